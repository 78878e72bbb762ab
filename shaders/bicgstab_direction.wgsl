// d_i = r_i + beta (d_i - omega q_i), the next direction of BiCGSTAB. One thread per row. Moves 4
// numbers per row.
alias real = f64;

struct Params { step: u32, rows: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> scalars: array<real>;
@group(0) @binding(1) var<storage, read> r: array<real>;
@group(0) @binding(2) var<storage, read> q: array<real>;
@group(0) @binding(3) var<storage, read_write> d: array<real>;

@compute @workgroup_size(256)
fn bicgstab_direction(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) local: u32) {
    if scalars[ACTIVE] == real(0) { return; }
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    d[i] = fma(scalars[BETA], fma(-scalars[OMEGA], q[i], d[i]), r[i]);
}
