// The unknowns of units of 128 rows, from those next to each: x_i = e_i - g_i x_left - h_i x_{i+1}.
// A thread eliminates its 4 rows again, as tridiagonal_reduce did; the tree joins the threads of a unit, then hands the
// unknowns between them down; the thread substitutes backwards. Reads 4 numbers a row and 2 a unit, writes 1 a row.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; several lie one behind the other
    first: u32,   // the chunk's first row, counted inside its system
    ring: u32,    // 1: the system is cyclic, the ends of its diagonals count
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read> outer: array<vec2<real>>;  // x_left and x_right of each unit
@group(0) @binding(5) var<storage, read_write> x: array<vec2<real>>;

const ROWS: u32 = 4u;      // of a thread
const THREADS: u32 = 32u;  // of a unit

// Slot s lies at s + s / 16, so that strides of powers of two meet different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;
var<workgroup> edges: array<vec2<real>, 8>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

@compute @workgroup_size(256)
fn tridiagonal_solve(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    // From the last rows to the first: what tridiagonal_reduce read last is still in cache.
    let tiles = (p.rows + 256u * ROWS - 1u) / (256u * ROWS);
    let index = group.y * groups.x + group.x;
    if index >= tiles { return; }
    let tile = tiles - 1u - index;
    let row = (tile * 256u + local) * ROWS;
    let pair = row >> 1u;
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var e: array<real, 4>;
    var g: array<real, 4>;
    var h: array<real, 4>;
    if row < p.rows {
        var place = (p.first + row) % p.n;
        var va: array<vec2<real>, 2>;
        var vb: array<vec2<real>, 2>;
        var vc: array<vec2<real>, 2>;
        var vd: array<vec2<real>, 2>;
        for (var k = 0u; k < ROWS / 2u; k++) {
            va[k] = dl[pair + k];
            vb[k] = d[pair + k];
            vc[k] = du[pair + k];
            vd[k] = rhs[pair + k];
        }
        for (var k = 0u; k < ROWS; k++) {
            let a = select(va[k >> 1u][k & 1u], real(0), place == 0u && p.ring == 0u);
            let c = select(vc[k >> 1u][k & 1u], real(0), place + 1u == p.n && p.ring == 0u);
            let inverse = real(1) / fma(-a, l.z, vb[k >> 1u][k & 1u]);
            let last = vec3<real>(fma(-a, l.x, vd[k >> 1u][k & 1u]) * inverse, -a * l.y * inverse, c * inverse);
            // A row behind the last one repeats the unknown that follows it.
            e[k] = real(0); g[k] = real(0); h[k] = real(-1);
            if row + k < p.rows {
                f = vec3<real>(fma(-f.z, last.x, f.x), fma(-f.z, last.y, f.y), -f.z * last.z);
                l = last;
                e[k] = last.x; g[k] = last.y; h[k] = last.z;
            }
            place = select(place + 1u, 0u, place + 1u == p.n);
        }
    }
    let unit = tile * (256u / THREADS) + local;
    if local < 256u / THREADS && unit * (ROWS * THREADS) < p.rows { edges[local] = outer[unit]; }
    let own = slot(local);
    u0[own] = f.x; u1[own] = f.y; u2[own] = f.z;
    u3[own] = l.x; u4[own] = l.y; u5[own] = l.z;
    for (var half = 1u; half < THREADS; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let det = fma(-u5[a], u1[b], real(1));
            let g = real(1) / det;
            let y = vec3<real>(g * fma(-u5[a], u0[b], u3[a]), g * u4[a], -g * u5[a] * u2[b]);
            let z = vec3<real>(g * fma(-u1[b], u3[a], u0[b]), -g * u1[b] * u4[a], g * u2[b]);
            u0[b] = fma(-u2[a], z.x, u0[a]);
            u1[b] = fma(-u2[a], z.y, u1[a]);
            u2[b] = -u2[a] * z.z;
            u3[b] = fma(-u4[b], y.x, u3[b]);
            u5[b] = fma(-u4[b], y.z, u5[b]);
            u4[b] = -u4[b] * y.y;
            // What is left of the two goes where the left one was: the unknowns between them.
            u0[a] = y.x; u1[a] = y.y; u2[a] = y.z;
            u3[a] = z.x; u4[a] = z.y; u5[a] = z.z;
        }
    }
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let start = 2u * local * half;
            let between = slot(start + half - 1u);
            let end = start + 2u * half - 1u;
            let ends = edges[start / THREADS];
            var left = ends.x;
            var right = ends.y;
            if start % THREADS > 0u { left = u0[slot(start - 1u)]; }
            if end % THREADS < THREADS - 1u { right = u1[slot(end)]; }
            let y = fma(-u2[between], right, fma(-u1[between], left, u0[between]));
            let z = fma(-u5[between], right, fma(-u4[between], left, u3[between]));
            u0[between] = y;
            u1[between] = z;
        }
    }
    workgroupBarrier();
    if row < p.rows {
        let ends = edges[local / THREADS];
        var left = ends.x;
        var next = ends.y;
        if local % THREADS > 0u { left = u0[slot(local - 1u)]; }
        if local % THREADS < THREADS - 1u { next = u1[slot(local)]; }
        for (var k = ROWS / 2u; k > 0u; k--) {
            let hi = 2u * k - 1u;
            let second = fma(-h[hi], next, fma(-g[hi], left, e[hi]));
            next = fma(-h[hi - 1u], second, fma(-g[hi - 1u], left, e[hi - 1u]));
            x[pair + k - 1u] = vec2<real>(next, second);
        }
    }
}
