// d_ij += sum of x_m(i) (b_m(j) - b_m(i)) over the last steps, up to 8, for the entries (i, j) of a
// matrix. At step s, b has the vectors of the steps from 8 floor(s/8) to s. Vector `last` - s of x
// belongs to step s. One thread per row. Moves 20 bytes per entry, and 2 numbers per row and step.
// Gathers one element of each vector b per entry.
alias real = f64;

struct Params { step: u32, rows: u32, last: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read> b: array<real>;
@group(0) @binding(4) var<storage, read_write> derivatives: array<real>;

const STEPS = 8u;

@compute @workgroup_size(256)
fn rate_derivatives(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    let first = p.step & ~(STEPS - 1u);
    var mass: array<real, STEPS>;
    var own: array<real, STEPS>;
    var any = false;
    for (var k = 0u; k < STEPS; k++) {
        mass[k] = real(0);
        if first + k <= p.step { mass[k] = x[(p.last - first - k) * p.rows + i]; }
        own[k] = b[k * p.rows + i];
        any |= mass[k] != real(0);
    }
    if !any { return; }
    for (var e = starts[i]; e < starts[i + 1u]; e++) {
        let to = columns[e];
        var sum = derivatives[e];
        for (var k = 0u; k < STEPS; k += 2u) {
            let first = mass[k] * (b[k * p.rows + to] - own[k]);
            sum += fma(mass[k + 1u], b[(k + 1u) * p.rows + to] - own[k + 1u], first);
        }
        derivatives[e] = sum;
    }
}
