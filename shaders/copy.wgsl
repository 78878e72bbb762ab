// a_i = b_i, two numbers at a time, to measure memory bandwidth. One thread per pair. Moves 4
// numbers per thread.
alias real = f64;

struct Params { step: u32, items: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> b: array<vec2<real>>;
@group(0) @binding(1) var<storage, read_write> a: array<vec2<real>>;

@compute @workgroup_size(256)
fn copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.items { return; }
    a[i] = b[i];
}
