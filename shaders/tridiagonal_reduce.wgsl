// 128 rows a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i become a unit: its first and last unknown as functions of the unknowns
// next to it, x_first = u0 - u1 x_left - u2 x_right, x_last = u3 - u4 x_left - u5 x_right.
// A thread eliminates 4 rows downwards, with one division each; a tree of 5 levels joins 32 threads to a unit.
// Reads 4 numbers a row, writes 6 a unit. Flags of a unit: its small pivots are counted, bit 31 says that a row is not
// dominant.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; several lie one behind the other
    first: u32,   // the chunk's first row, counted inside its system
    ring: u32,    // 1: the system is cyclic, the ends of its diagonals count
    small: u32,   // pivots of at most 4^-small of their row are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> units: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 4u;      // of a thread
const THREADS: u32 = 32u;  // of a unit

// Slot s lies at s + s / 16, so that strides of powers of two meet different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;
var<workgroup> flag: array<u32, 272>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

// Small pivots are counted, the bit above says that a row is not dominant.
fn both(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }

@compute @workgroup_size(256)
fn tridiagonal_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let row = (tile * 256u + local) * ROWS;
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    // No row yet: x_first is x_right and x_last is x_left.
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var bad = 0u;
    if row < p.rows {
        var place = (p.first + row) % p.n;
        var va: array<vec2<real>, 2>;
        var vb: array<vec2<real>, 2>;
        var vc: array<vec2<real>, 2>;
        var vd: array<vec2<real>, 2>;
        let pair = row >> 1u;
        for (var k = 0u; k < ROWS / 2u; k++) {
            va[k] = dl[pair + k];
            vb[k] = d[pair + k];
            vc[k] = du[pair + k];
            vd[k] = rhs[pair + k];
        }
        for (var k = 0u; k < ROWS; k++) {
            let a = select(va[k >> 1u][k & 1u], real(0), place == 0u && p.ring == 0u);
            let c = select(vc[k >> 1u][k & 1u], real(0), place + 1u == p.n && p.ring == 0u);
            let b = vb[k >> 1u][k & 1u];
            let rest = abs(a) + abs(c);
            let pivot = fma(-a, l.z, b);
            let inverse = real(1) / pivot;
            let last = vec3<real>(fma(-a, l.x, vd[k >> 1u][k & 1u]) * inverse, -a * l.y * inverse, c * inverse);
            if row + k < p.rows {
                bad = both(bad, select(0u, 0x80000000u, abs(b) < rest)) + select(0u, 1u, abs(pivot) <= small * (rest + abs(b)));
                f = vec3<real>(fma(-f.z, last.x, f.x), fma(-f.z, last.y, f.y), -f.z * last.z);
                l = last;
            }
            place = select(place + 1u, 0u, place + 1u == p.n);
        }
    }
    let own = slot(local);
    u0[own] = f.x; u1[own] = f.y; u2[own] = f.z;
    u3[own] = l.x; u4[own] = l.y; u5[own] = l.z;
    flag[own] = bad;
    for (var half = 1u; half < THREADS; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let det = fma(-u5[a], u1[b], real(1));
            let g = real(1) / det;
            let y = vec3<real>(g * fma(-u5[a], u0[b], u3[a]), g * u4[a], -g * u5[a] * u2[b]);
            let z = vec3<real>(g * fma(-u1[b], u3[a], u0[b]), -g * u1[b] * u4[a], g * u2[b]);
            flag[b] = both(flag[a], flag[b]) + select(0u, 1u, abs(det) <= small);
            u0[b] = fma(-u2[a], z.x, u0[a]);
            u1[b] = fma(-u2[a], z.y, u1[a]);
            u2[b] = -u2[a] * z.z;
            u3[b] = fma(-u4[b], y.x, u3[b]);
            u5[b] = fma(-u4[b], y.z, u5[b]);
            u4[b] = -u4[b] * y.y;
        }
    }
    workgroupBarrier();
    let unit = tile * (256u / THREADS) + local;
    if local < 256u / THREADS && unit * (ROWS * THREADS) < p.rows {
        let all = slot((local + 1u) * THREADS - 1u);
        units[3u * unit] = vec2<real>(u0[all], u1[all]);
        units[3u * unit + 1u] = vec2<real>(u2[all], u3[all]);
        units[3u * unit + 2u] = vec2<real>(u4[all], u5[all]);
        flags[unit] = flag[all];
    }
}
