// d_ij += sum of x_m(i) (b_m(j) - b_m(i)) over the last steps, up to 8, for the entries (i, j) of a
// matrix. At step s, b has the vectors of the steps from 8 floor(s/8) to s, side by side. Vector
// `last` - s of x belongs to step s. One thread per row. Moves 20 bytes per entry, and 2 numbers
// per row and step. The numbers of 8 steps are gathered once per entry.
alias real = f64;

struct Params { step: u32, rows: u32, last: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read> b: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> derivatives: array<real>;

const STEPS = 8u;
const PAIRS = STEPS / 2u;

@compute @workgroup_size(256)
fn rate_derivatives(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    let first = p.step & ~(STEPS - 1u);
    var mass: array<vec2<real>, PAIRS>;
    var own: array<vec2<real>, PAIRS>;
    var any = false;
    for (var k = 0u; k < PAIRS; k++) {
        mass[k] = vec2<real>(mass_of(first + 2u * k, i), mass_of(first + 2u * k + 1u, i));
        own[k] = b[PAIRS * i + k];
        any |= mass[k].x != real(0) || mass[k].y != real(0);
    }
    if !any { return; }
    for (var e = starts[i]; e < starts[i + 1u]; e++) {
        let to = PAIRS * columns[e];
        let low = fma(mass[2], b[to + 2u] - own[2], mass[0] * (b[to] - own[0]));
        let high = fma(mass[3], b[to + 3u] - own[3], mass[1] * (b[to + 1u] - own[1]));
        let sum = low + high;
        derivatives[e] += sum.x + sum.y;
    }
}

// Element i of the vector x of a step; 0 for steps after the current one.
fn mass_of(step: u32, i: u32) -> real {
    if step > p.step { return real(0); }
    return x[(p.last - step) * p.rows + i];
}
