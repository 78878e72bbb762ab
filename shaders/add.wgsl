// acc_i += x_i. One thread per element. Moves 3 numbers per element.
alias real = f64;

struct Params { step: u32, rows: u32, own: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<real>;
@group(0) @binding(1) var<storage, read_write> acc: array<real>;

@compute @workgroup_size(256)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
       @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    acc[i] += x[p.own + i];
}
