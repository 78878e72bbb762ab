// y_{first + i} = x_{index_i}: packs values of one subdomain that are halo values of another, or
// places the rates of a matrix. One thread per element. Moves 2 numbers and 4 bytes per element.
alias real = f64;

struct Params { step: u32, items: u32, first: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> index: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read_write> y: array<real>;

@compute @workgroup_size(256)
fn gather(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
          @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.items { return; }
    y[p.first + i] = x[index[i]];
}
