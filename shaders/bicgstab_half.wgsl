// r_i -= alpha q_i, the residual after the first half of a BiCGSTAB iteration. One thread per row.
// Moves 3 numbers per row.
alias real = f64;

struct Params { step: u32, rows: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> scalars: array<real>;
@group(0) @binding(1) var<storage, read> q: array<real>;
@group(0) @binding(2) var<storage, read_write> r: array<real>;

@compute @workgroup_size(256)
fn bicgstab_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) local: u32) {
    if scalars[ACTIVE] == real(0) { return; }
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    r[i] = fma(-scalars[ALPHA], q[i], r[i]);
}
