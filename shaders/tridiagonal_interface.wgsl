// The interface system of one workgroup: the unknowns next to each of its units, from those next to all of them.
// A binary tree over the units, as tridiagonal_merge's: a thread joins `share` of them, a power of two up to 8, and `width`
// threads the results, another power of two; and back. Where the system is cyclic, its last unknown is x_left of all and its
// first x_right. Reads 12 numbers a unit, writes 8.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units, at most share * width
    share: u32,   // units of a thread
    width: u32,   // threads that have some
    ring: u32,    // 1: the system is cyclic
    small: u32,   // pivots of at most 4^-small are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
@group(0) @binding(2) var<storage, read> ends: array<vec2<real>>;  // x_left and x_right of all units
@group(0) @binding(3) var<storage, read_write> nodes: array<vec2<real>>;  // what gives the unknowns between units of a thread
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

// A unit: x_first = f.x - f.y x_left - f.z x_right, x_last = l.x - l.y x_left - l.z x_right; and its flags.
struct Unit { f: vec3<real>, l: vec3<real>, bad: u32 }
// Two units as one, and the two unknowns between them.
struct Joined { whole: Unit, y: vec3<real>, z: vec3<real> }

fn joined(a: Unit, b: Unit, small: real) -> Joined {
    let det = fma(-a.l.z, b.f.y, real(1));
    let g = real(1) / det;
    let y = vec3<real>(g * fma(-a.l.z, b.f.x, a.l.x), g * a.l.y, -g * a.l.z * b.f.z);
    let z = vec3<real>(g * fma(-b.f.y, a.l.x, b.f.x), -g * b.f.y * a.l.y, g * b.f.z);
    let f = vec3<real>(fma(-a.f.z, z.x, a.f.x), fma(-a.f.z, z.y, a.f.y), -a.f.z * z.z);
    let l = vec3<real>(fma(-b.l.y, y.x, b.l.x), -b.l.y * y.y, fma(-b.l.y, y.z, b.l.z));
    return Joined(Unit(f, l, both(a.bad, b.bad) + select(0u, 1u, abs(det) <= small)), y, z);
}

fn given(unit: u32) -> Unit {
    // No unit: x_first is x_right and x_last is x_left.
    var v0 = vec2<real>(real(0), real(0));
    var v1 = vec2<real>(real(-1), real(0));
    var v2 = vec2<real>(real(-1), real(0));
    var bad = 0u;
    if unit < p.count {
        v0 = units[3u * unit];
        v1 = units[3u * unit + 1u];
        v2 = units[3u * unit + 2u];
        bad = flags[unit];
    }
    return Unit(vec3<real>(v0.x, v0.y, v1.x), vec3<real>(v1.y, v2.x, v2.y), bad);
}

fn keep(unit: u32, between: Joined) {
    if unit < p.count {
        nodes[3u * unit] = between.y.xy;
        nodes[3u * unit + 1u] = vec2<real>(between.y.z, between.z.x);
        nodes[3u * unit + 2u] = between.z.yz;
    }
}

// The unknowns on both sides of the right end of a unit.
struct Node { y: vec3<real>, z: vec3<real> }

fn kept(unit: u32) -> Node {
    // Behind the last unit: the first unknown of what follows is x_right of all.
    var v0 = vec2<real>(real(0), real(0));
    var v1 = vec2<real>(real(0), real(0));
    var v2 = vec2<real>(real(0), real(-1));
    if unit < p.count {
        v0 = nodes[3u * unit];
        v1 = nodes[3u * unit + 1u];
        v2 = nodes[3u * unit + 2u];
    }
    return Node(vec3<real>(v0.x, v0.y, v1.x), vec3<real>(v1.y, v2.x, v2.y));
}

fn between(node: Node, left: real, right: real) -> vec2<real> {
    return vec2<real>(
        fma(-node.y.z, right, fma(-node.y.y, left, node.y.x)),
        fma(-node.z.z, right, fma(-node.z.y, left, node.z.x)),
    );
}

@compute @workgroup_size(256)
fn tridiagonal_interface(@builtin(local_invocation_index) local: u32) {
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    let first = local * p.share;
    // None, or the only one.
    var whole = given(select(p.count, first, p.share == 1u));
    if p.share > 1u && first < p.count {
        // Left halves of four and of eight, which wait for the right ones.
        var two = whole;
        var four = whole;
        for (var i = 0u; i < p.share; i += 2u) {
            let pair = joined(given(first + i), given(first + i + 1u), small);
            keep(first + i, pair);
            whole = pair.whole;
            if (i & 2u) == 0u {
                two = whole;
            } else {
                let pairs = joined(two, whole, small);
                keep(first + i - 1u, pairs);
                whole = pairs.whole;
                if (i & 4u) == 0u {
                    four = whole;
                } else {
                    let fours = joined(four, whole, small);
                    keep(first + i - 3u, fours);
                    whole = fours.whole;
                }
            }
        }
    }
    let own = slot(local);
    u0[own] = whole.f.x; u1[own] = whole.f.y; u2[own] = whole.f.z;
    u3[own] = whole.l.x; u4[own] = whole.l.y; u5[own] = whole.l.z;
    flag[own] = whole.bad;
    for (var half = 1u; half < 256u; half <<= 1u) {
        workgroupBarrier();
        let behind = (2u * local + 1u) * half;
        if behind < p.width {
            let a = slot(behind - 1u);
            let b = slot(behind + half - 1u);
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
    let all = slot(p.width - 1u);
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
        let start = 2u * local * half;
        if start + half < p.width {
            let middle = slot(start + half - 1u);
            let end = start + 2u * half - 1u;
            var left = ends_.x;
            var right = ends_.y;
            if start > 0u { left = u0[slot(start - 1u)]; }
            if end < p.width - 1u { right = u1[slot(end)]; }
            let y = fma(-u2[middle], right, fma(-u1[middle], left, u0[middle]));
            let z = fma(-u5[middle], right, fma(-u4[middle], left, u3[middle]));
            u0[middle] = y;
            u1[middle] = z;
        }
    }
    workgroupBarrier();
    if first >= p.count { return; }
    var left = ends_.x;
    var right = ends_.y;
    if local > 0u { left = u0[slot(local - 1u)]; }
    if local < p.width - 1u { right = u1[slot(local)]; }
    if p.share == 1u {
        outer[first] = vec2<real>(left, right);
        return;
    }
    for (var i = 0u; i < p.share; i += 2u) {
        let unit = first + i;
        // What may be asked for is asked for before any of it is needed.
        let eight = kept(first + min(3u, p.share - 1u));
        let four = kept(first + (i & 4u) + 1u);
        let two = kept(unit);
        var before = left;
        var behind = right;
        if p.share > 4u {
            let x = between(eight, before, behind);
            if (i & 4u) == 0u { behind = x.y; } else { before = x.x; }
        }
        if p.share > 2u {
            let x = between(four, before, behind);
            if (i & 2u) == 0u { behind = x.y; } else { before = x.x; }
        }
        let x = between(two, before, behind);
        if unit < p.count { outer[unit] = vec2<real>(before, x.y); }
        if unit + 1u < p.count { outer[unit + 1u] = vec2<real>(x.x, behind); }
    }
}
