// a_i = b_i + s c_i, the STREAM triad, to measure memory bandwidth. One thread per element. Moves 3
// numbers per element.
alias real = f64;

struct Params { step: u32, items: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> b: array<real>;
@group(0) @binding(1) var<storage, read> c: array<real>;
@group(0) @binding(2) var<storage, read_write> a: array<real>;

@compute @workgroup_size(256)
fn triad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
         @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.items { return; }
    a[i] = fma(real(3), c[i], b[i]);
}
