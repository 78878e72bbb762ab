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
var<workgroup> edges: array<vec2<real>, 16>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

// Two rows a, b, c | r, eliminated with one division behind a row x_before = l.x - l.y x_left - l.z x_first: what gives
// them from x_left and the unknown behind them.
struct Pair { first: vec3<real>, second: vec3<real>, pivot: real, det: real }

fn eliminate(l: vec3<real>, a: vec2<real>, b: vec2<real>, c: vec2<real>, r: vec2<real>) -> Pair {
    let pivot = fma(-a.x, l.z, b.x);
    let sum = fma(-a.x, l.x, r.x);
    let left = -a.x * l.y;
    let det = fma(pivot, b.y, -a.y * c.x);
    let g = real(1) / det;
    return Pair(
        vec3<real>(fma(b.y, sum, -c.x * r.y) * g, b.y * left * g, -c.x * c.y * g),
        vec3<real>(fma(pivot, r.y, -a.y * sum) * g, -a.y * left * g, pivot * c.y * g),
        pivot, det,
    );
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
    let pair = row >> 1u;
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var first0 = vec3<real>(); var second0 = vec3<real>();
    var first1 = vec3<real>(); var second1 = vec3<real>();
    var first2 = vec3<real>(); var second2 = vec3<real>();
    var first3 = vec3<real>(); var second3 = vec3<real>();
    if row < p.rows {
        let a0 = dl[pair + 0u]; let b0 = d[pair + 0u]; let c0 = du[pair + 0u]; let d0 = rhs[pair + 0u];
        let a1 = dl[pair + 1u]; let b1 = d[pair + 1u]; let c1 = du[pair + 1u]; let d1 = rhs[pair + 1u];
        let a2 = dl[pair + 2u]; let b2 = d[pair + 2u]; let c2 = du[pair + 2u]; let d2 = rhs[pair + 2u];
        let a3 = dl[pair + 3u]; let b3 = d[pair + 3u]; let c3 = du[pair + 3u]; let d3 = rhs[pair + 3u];
        let cut = p.ring == 0u;
        var place = (p.first + row) % p.n;
        {
            var a = a0; var b = b0; var c = c0; var r = d0;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = row + 0u < p.rows;
            let in1 = row + 1u < p.rows;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>((place == 0u && cut) || !in0, (place1 == 0u && cut) || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0 && cut, last1 && cut));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first0 = both.first; second0 = both.second;
        }
        {
            var a = a1; var b = b1; var c = c1; var r = d1;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = row + 2u < p.rows;
            let in1 = row + 3u < p.rows;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>((place == 0u && cut) || !in0, (place1 == 0u && cut) || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0 && cut, last1 && cut));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first1 = both.first; second1 = both.second;
        }
        {
            var a = a2; var b = b2; var c = c2; var r = d2;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = row + 4u < p.rows;
            let in1 = row + 5u < p.rows;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>((place == 0u && cut) || !in0, (place1 == 0u && cut) || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0 && cut, last1 && cut));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first2 = both.first; second2 = both.second;
        }
        {
            var a = a3; var b = b3; var c = c3; var r = d3;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = row + 6u < p.rows;
            let in1 = row + 7u < p.rows;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>((place == 0u && cut) || !in0, (place1 == 0u && cut) || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0 && cut, last1 && cut));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first3 = both.first; second3 = both.second;
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
        let y3 = fma(-second3.z, next, fma(-second3.y, left, second3.x));
        next = fma(-first3.z, next, fma(-first3.y, left, first3.x));
        x[pair + 3u] = vec2<real>(next, y3);
        let y2 = fma(-second2.z, next, fma(-second2.y, left, second2.x));
        next = fma(-first2.z, next, fma(-first2.y, left, first2.x));
        x[pair + 2u] = vec2<real>(next, y2);
        let y1 = fma(-second1.z, next, fma(-second1.y, left, second1.x));
        next = fma(-first1.z, next, fma(-first1.y, left, first1.x));
        x[pair + 1u] = vec2<real>(next, y1);
        let y0 = fma(-second0.z, next, fma(-second0.y, left, second0.x));
        next = fma(-first0.z, next, fma(-first0.y, left, first0.x));
        x[pair + 0u] = vec2<real>(next, y0);
    }
}
