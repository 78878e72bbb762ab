// The interface system of one workgroup: the unknowns next to each of its units, from those next to all of them.
// A thread joins `share` units in order, a tree of 8 levels the 256 results, and back. Where the system is cyclic, its
// last unknown is x_left of all and its first x_right. Reads 12 numbers a unit, writes 8.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units
    share: u32,   // units of a thread
    ring: u32,    // 1: the system is cyclic
    small: u32,   // pivots of at most 4^-small are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
@group(0) @binding(2) var<storage, read> ends: array<vec2<real>>;  // x_left and x_right of all units
@group(0) @binding(3) var<storage, read_write> nodes: array<vec2<real>>;  // what gives the unknowns at a unit's left end
@group(0) @binding(4) var<storage, read_write> outer: array<vec2<real>>;  // x_left and x_right of each unit
@group(0) @binding(5) var<storage, read_write> above: array<vec2<real>>;  // all units as one
@group(0) @binding(6) var<storage, read_write> flags_above: array<u32>;

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
fn tridiagonal_interface(@builtin(local_invocation_index) local: u32) {
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    let first = min(local * p.share, p.count);
    let last = min(first + p.share, p.count);
    // No unit: x_first is x_right and x_last is x_left.
    var f = vec3<real>(real(0), real(0), real(-1));
    var l = vec3<real>(real(0), real(-1), real(0));
    var bad = 0u;
    for (var unit = first; unit < last; unit++) {
        let v0 = units[3u * unit];
        let v1 = units[3u * unit + 1u];
        let v2 = units[3u * unit + 2u];
        let det = fma(-l.z, v0.y, real(1));
        let g = real(1) / det;
        let y = vec3<real>(g * fma(-l.z, v0.x, l.x), g * l.y, -g * l.z * v1.x);
        let z = vec3<real>(g * fma(-v0.y, l.x, v0.x), -g * v0.y * l.y, g * v1.x);
        bad = both(bad, flags[unit]) + select(0u, 1u, abs(det) <= small);
        f = vec3<real>(fma(-f.z, z.x, f.x), fma(-f.z, z.y, f.y), -f.z * z.z);
        l = vec3<real>(fma(-v2.x, y.x, v1.y), -v2.x * y.y, fma(-v2.x, y.z, v2.y));
        nodes[3u * unit] = y.xy;
        nodes[3u * unit + 1u] = vec2<real>(y.z, z.x);
        nodes[3u * unit + 2u] = z.yz;
    }
    let own = slot(local);
    u0[own] = f.x; u1[own] = f.y; u2[own] = f.z;
    u3[own] = l.x; u4[own] = l.y; u5[own] = l.z;
    flag[own] = bad;
    for (var half = 1u; half < 256u; half <<= 1u) {
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
            // What is left of the two goes where the left one was: the unknowns between them.
            u0[a] = y.x; u1[a] = y.y; u2[a] = y.z;
            u3[a] = z.x; u4[a] = z.y; u5[a] = z.z;
        }
    }
    workgroupBarrier();
    let all = slot(255u);
    let r0 = vec2<real>(u0[all], u1[all]);
    let r1 = vec2<real>(u2[all], u3[all]);
    let r2 = vec2<real>(u4[all], u5[all]);
    var ends_ = ends[0];
    var closing = flag[all];
    if p.ring == 1u {
        // (1 + u2) x_first + u1 x_last = u0, u5 x_first + (1 + u4) x_last = u3.
        let det = fma(real(1) + r1.x, real(1) + r2.x, -r0.y * r2.y);
        closing += select(0u, 1u, abs(det) <= small * (abs(r0.y) + abs(r2.y) + real(1)));
        let g = real(1) / det;
        ends_ = vec2<real>(g * fma(real(1) + r1.x, r1.y, -r2.y * r0.x), g * fma(real(1) + r2.x, r0.x, -r0.y * r1.y));
    }
    if local == 0u {
        above[0] = r0;
        above[1] = r1;
        above[2] = r2;
        flags_above[0] = closing;
    }
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let start = 2u * local * half;
            let between = slot(start + half - 1u);
            let end = start + 2u * half - 1u;
            var left = ends_.x;
            var right = ends_.y;
            if start > 0u { left = u0[slot(start - 1u)]; }
            if end < 255u { right = u1[slot(end)]; }
            let y = fma(-u2[between], right, fma(-u1[between], left, u0[between]));
            let z = fma(-u5[between], right, fma(-u4[between], left, u3[between]));
            u0[between] = y;
            u1[between] = z;
        }
    }
    workgroupBarrier();
    var left = ends_.x;
    var right = ends_.y;
    if local > 0u { left = u0[slot(local - 1u)]; }
    if local < 255u { right = u1[slot(local)]; }
    for (var unit = last; unit > first; unit--) {
        let v0 = nodes[3u * unit - 3u];
        let v1 = nodes[3u * unit - 2u];
        let v2 = nodes[3u * unit - 1u];
        let y = fma(-v1.x, right, fma(-v0.y, left, v0.x));
        let z = fma(-v2.y, right, fma(-v2.x, left, v1.y));
        outer[unit - 1u] = vec2<real>(y, right);
        right = z;
    }
}
