// The unknowns of units of 128 rows, from those next to each: x_i = e_i.x - e_i.y x_left - e_i.z x_behind.
// A thread eliminates its 8 rows again, as tridiagonal_reduce did; the tree joins the threads of a unit, then hands the
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

const ROWS: u32 = 8u;      // of a thread
const THREADS: u32 = 16u;  // of a unit

// Slot s lies at s + s / 16, so that strides of powers of two meet different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;
var<workgroup> edges: array<vec2<real>, 16>;  // x_left and x_right of each unit

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

// Writes the unknowns of a pair and gives the first.
fn back(e: Pair, left: real, next: real, pair: u32) -> real {
    let first = fma(-e.first.z, next, fma(-e.first.y, left, e.first.x));
    let second = fma(-e.second.z, next, fma(-e.second.y, left, e.second.x));
    x[pair] = vec2<real>(first, second);
    return first;
}

@compute @workgroup_size(256)
fn tridiagonal_solve(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    // From the last rows to the first: what tridiagonal_reduce read last is still in cache.
    let tiles = (p.rows + 256u * ROWS - 1u) / (256u * ROWS);
    let index = group.y * groups.x + group.x;
    if index >= tiles { return; }
    let tile = tiles - 1u - index;
    let row = (tile * 256u + local) * ROWS;
    // No row yet: x_first is x_right and x_last is x_left.
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var e0: Pair;
    var e1: Pair;
    var e2: Pair;
    var e3: Pair;
    if row < p.rows {
        let r0 = rows_at(row + 0u);
        let r1 = rows_at(row + 2u);
        let r2 = rows_at(row + 4u);
        let r3 = rows_at(row + 6u);
        e0 = eliminate(l, r0);
        f = through(f, e0);
        l = behind(l, e0, row + 0u);
        e1 = eliminate(l, r1);
        f = through(f, e1);
        l = behind(l, e1, row + 2u);
        e2 = eliminate(l, r2);
        f = through(f, e2);
        l = behind(l, e2, row + 4u);
        e3 = eliminate(l, r3);
        f = through(f, e3);
        l = behind(l, e3, row + 6u);
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
        var pair = (row >> 1u) + 3u;
        next = back(e3, left, next, pair);
        pair--;
        next = back(e2, left, next, pair);
        pair--;
        next = back(e1, left, next, pair);
        pair--;
        next = back(e0, left, next, pair);
    }
}
