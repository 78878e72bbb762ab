// Whole systems of up to 2048 rows, some in a tile: x_i from dl, d, du and the right-hand side, without any other tile.
// A thread eliminates 8 rows downwards, two with one division; a tree joins the threads that a system may spread over,
// then hands the unknowns between them down; the thread substitutes backwards.
// Reads 4 numbers a row, writes 1. Flags of a tile: its small pivots are counted, bit 31 says that a row is not dominant.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of all systems, which lie one behind the other
    n: u32,       // rows of one system
    tile: u32,    // rows of a tile, whole systems; an even number where there is a second tile
    span: u32,    // threads that are joined, a power of two
    small: u32,   // pivots of at most 4^-small of their row are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 8u;      // of a thread

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
fn both_flags(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }

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
fn tridiagonal_batch(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    if tile * p.tile >= p.rows { return; }
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    // The rows of a tile end where the next one begins.
    let end = min(p.tile, p.rows - tile * p.tile);
    let at = local * ROWS;
    let pair = (tile * p.tile + at) >> 1u;
    var bad = 0u;
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var first0 = vec3<real>(); var second0 = vec3<real>();
    var first1 = vec3<real>(); var second1 = vec3<real>();
    var first2 = vec3<real>(); var second2 = vec3<real>();
    var first3 = vec3<real>(); var second3 = vec3<real>();
    if at < end {
        let a0 = dl[pair + 0u]; let b0 = d[pair + 0u]; let c0 = du[pair + 0u]; let d0 = rhs[pair + 0u];
        let a1 = dl[pair + 1u]; let b1 = d[pair + 1u]; let c1 = du[pair + 1u]; let d1 = rhs[pair + 1u];
        let a2 = dl[pair + 2u]; let b2 = d[pair + 2u]; let c2 = du[pair + 2u]; let d2 = rhs[pair + 2u];
        let a3 = dl[pair + 3u]; let b3 = d[pair + 3u]; let c3 = du[pair + 3u]; let d3 = rhs[pair + 3u];
        var place = at % p.n;
        {
            var a = a0; var b = b0; var c = c0; var r = d0;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = at + 0u < end;
            let in1 = at + 1u < end;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>(place == 0u || !in0, place1 == 0u || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0, last1));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first0 = both.first; second0 = both.second;
        }
        {
            var a = a1; var b = b1; var c = c1; var r = d1;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = at + 2u < end;
            let in1 = at + 3u < end;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>(place == 0u || !in0, place1 == 0u || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0, last1));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first1 = both.first; second1 = both.second;
        }
        {
            var a = a2; var b = b2; var c = c2; var r = d2;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = at + 4u < end;
            let in1 = at + 5u < end;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>(place == 0u || !in0, place1 == 0u || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0, last1));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first2 = both.first; second2 = both.second;
        }
        {
            var a = a3; var b = b3; var c = c3; var r = d3;
            let last0 = place + 1u == p.n;
            let place1 = select(place + 1u, 0u, last0);
            let last1 = place1 + 1u == p.n;
            let in0 = at + 6u < end;
            let in1 = at + 7u < end;
            // A row behind the last one repeats the unknown that follows it.
            a = select(a, vec2<real>(), vec2<bool>(place == 0u || !in0, place1 == 0u || !in1));
            c = select(c, vec2<real>(), vec2<bool>(last0, last1));
            if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
            if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
            place = select(place1 + 1u, 0u, last1);
            let both = eliminate(l, a, b, c, r);
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
            first3 = both.first; second3 = both.second;
        }
    }
    let own = slot(local);
    u0[own] = f.x; u1[own] = f.y; u2[own] = f.z;
    u3[own] = l.x; u4[own] = l.y; u5[own] = l.z;
    flag[own] = bad;
    for (var half = 1u; half < p.span; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let det = fma(-u5[a], u1[b], real(1));
            let g = real(1) / det;
            let y = vec3<real>(g * fma(-u5[a], u0[b], u3[a]), g * u4[a], -g * u5[a] * u2[b]);
            let z = vec3<real>(g * fma(-u1[b], u3[a], u0[b]), -g * u1[b] * u4[a], g * u2[b]);
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(det) <= small);
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
    workgroupBarrier();
    // Flags of the joined threads are added up.
    if local == 0u {
        var all = 0u;
        for (var last = p.span - 1u; last < 256u; last += p.span) { all = both_flags(all, flag[slot(last)]); }
        flags[tile] = all;
    }
    for (var half = p.span >> 1u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let start = 2u * local * half;
            let between = slot(start + half - 1u);
            let last = start + 2u * half - 1u;
            var left = real(0);
            var right = real(0);
            if start % p.span > 0u { left = u0[slot(start - 1u)]; }
            if last % p.span < p.span - 1u { right = u1[slot(last)]; }
            let y = fma(-u2[between], right, fma(-u1[between], left, u0[between]));
            let z = fma(-u5[between], right, fma(-u4[between], left, u3[between]));
            u0[between] = y;
            u1[between] = z;
        }
    }
    workgroupBarrier();
    if at < end {
        var left = real(0);
        var next = real(0);
        if local % p.span > 0u { left = u0[slot(local - 1u)]; }
        if local % p.span < p.span - 1u { next = u1[slot(local)]; }
        let y3 = fma(-second3.z, next, fma(-second3.y, left, second3.x));
        next = fma(-first3.z, next, fma(-first3.y, left, first3.x));
        if at + 6u < end { x[pair + 3u] = vec2<real>(next, y3); }
        let y2 = fma(-second2.z, next, fma(-second2.y, left, second2.x));
        next = fma(-first2.z, next, fma(-first2.y, left, first2.x));
        if at + 4u < end { x[pair + 2u] = vec2<real>(next, y2); }
        let y1 = fma(-second1.z, next, fma(-second1.y, left, second1.x));
        next = fma(-first1.z, next, fma(-first1.y, left, first1.x));
        if at + 2u < end { x[pair + 1u] = vec2<real>(next, y1); }
        let y0 = fma(-second0.z, next, fma(-second0.y, left, second0.x));
        next = fma(-first0.z, next, fma(-first0.y, left, first0.x));
        x[pair + 0u] = vec2<real>(next, y0);
    }
}
