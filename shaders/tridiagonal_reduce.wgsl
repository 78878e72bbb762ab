// 128 rows a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i become a unit: its first and last unknown as functions of the unknowns
// next to it, x_first = u0 - u1 x_left - u2 x_right, x_last = u3 - u4 x_left - u5 x_right.
// A thread eliminates 8 rows downwards, two with one division; a tree of 4 levels joins 16 threads to a unit.
// Reads 4 numbers a row, writes 6 a unit. Flags of a unit: its small pivots are counted, bit 31 says that a row is not
// dominant.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; several lie one behind the other
    first: u32,   // the chunk's first row, counted inside its system
    ring: u32,    // 1: the system is cyclic, the ends of its diagonals count
    small: u32,   // pivots of at most 4^-small of their rows are counted
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> units: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 8u;      // of a thread
const THREADS: u32 = 16u;  // of a unit

// Slot s lies at s + s / 16, so that strides of powers of two meet different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;
var<workgroup> flag: array<u32, 272>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

// Two rows a x_before + b x + c x_after = r.
struct Rows { a: vec2<real>, b: vec2<real>, c: vec2<real>, r: vec2<real> }

fn rows_at(row: u32) -> Rows {
    var two = Rows(dl[row >> 1u], d[row >> 1u], du[row >> 1u], rhs[row >> 1u]);
    let place = (p.first + row) % p.n;
    let next = select(place + 1u, 0u, place + 1u == p.n);
    if p.ring == 0u {
        if place == 0u { two.a.x = real(0); }
        if next == 0u { two.a.y = real(0); two.c.x = real(0); }
        if next + 1u == p.n { two.c.y = real(0); }
    }
    // A row behind the last one repeats the unknown that follows it.
    if row >= p.rows { two.a.x = real(0); two.b.x = real(1); two.c.x = real(-1); two.r.x = real(0); }
    if row + 1u >= p.rows { two.a.y = real(0); two.b.y = real(1); two.c.y = real(-1); two.r.y = real(0); }
    return two;
}

// Both unknowns from x_left and the unknown behind them: x = e.x - e.y x_left - e.z x_behind.
struct Pair { first: vec3<real>, second: vec3<real>, det: real }

// Eliminates two rows with one division, behind a row that left x_before = l.x - l.y x_left - l.z x_first.
fn eliminate(l: vec3<real>, two: Rows) -> Pair {
    let pivot = fma(-two.a.x, l.z, two.b.x);
    let sum = fma(-two.a.x, l.x, two.r.x);
    let left = -two.a.x * l.y;
    let det = fma(pivot, two.b.y, -two.a.y * two.c.x);
    let g = real(1) / det;
    return Pair(
        vec3<real>(fma(two.b.y, sum, -two.c.x * two.r.y) * g, two.b.y * left * g, -two.c.x * two.c.y * g),
        vec3<real>(fma(pivot, two.r.y, -two.a.y * sum) * g, -two.a.y * left * g, pivot * two.c.y * g),
        det,
    );
}

// The row that is left behind a pair: its second, but for rows that are not there.
fn behind(l: vec3<real>, pair: Pair, row: u32) -> vec3<real> {
    return select(select(l, pair.first, row < p.rows), pair.second, row + 1u < p.rows);
}

// The first unknown, when the pair behind what it was given by is eliminated.
fn through(f: vec3<real>, pair: Pair) -> vec3<real> {
    return vec3<real>(fma(-f.z, pair.first.x, f.x), fma(-f.z, pair.first.y, f.y), -f.z * pair.first.z);
}

// Small pivots are counted, the bit above says that a row is not dominant.
fn both(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }

fn judged(two: Rows, pair: Pair, small: real) -> u32 {
    let rest = abs(two.a) + abs(two.c);
    let size = rest + abs(two.b);
    return select(0u, 0x80000000u, any(abs(two.b) < rest)) + select(0u, 1u, abs(pair.det) <= small * size.x * size.y);
}

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
        let r0 = rows_at(row + 0u);
        let r1 = rows_at(row + 2u);
        let r2 = rows_at(row + 4u);
        let r3 = rows_at(row + 6u);
        let e0 = eliminate(l, r0);
        f = through(f, e0);
        l = behind(l, e0, row + 0u);
        bad = both(bad, judged(r0, e0, small));
        let e1 = eliminate(l, r1);
        f = through(f, e1);
        l = behind(l, e1, row + 2u);
        bad = both(bad, judged(r1, e1, small));
        let e2 = eliminate(l, r2);
        f = through(f, e2);
        l = behind(l, e2, row + 4u);
        bad = both(bad, judged(r2, e2, small));
        let e3 = eliminate(l, r3);
        f = through(f, e3);
        l = behind(l, e3, row + 6u);
        bad = both(bad, judged(r3, e3, small));
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
