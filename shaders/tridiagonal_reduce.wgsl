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
    small: u32,   // pivots of at most 4^-small of their row are flagged
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
        let pair = row >> 1u;
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
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
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
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
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
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
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
            let rest = abs(a) + abs(c);
            let weight = abs(b) + rest;
            bad = both_flags(bad, select(0u, 0x80000000u, any(abs(b) < rest)))
                + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
            f = vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z);
            l = select(select(l, both.first, in0), both.second, in1);
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
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(det) <= small);
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
