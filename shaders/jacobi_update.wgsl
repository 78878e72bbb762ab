// x_i += r_i, then r_i -= q_i with q = r - M r: a sweep of Jacobi's method. One thread per row.
// Moves 5 numbers per row.
alias real = f64;

struct Params { step: u32, rows: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<real>;
@group(0) @binding(1) var<storage, read_write> x: array<real>;
@group(0) @binding(2) var<storage, read_write> r: array<real>;

@compute @workgroup_size(256)
fn jacobi_update(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    x[i] += r[i];
    r[i] -= q[i];
}
