// The interface system of one workgroup: the unknowns next to each of its units, from those next to
// all of them. A binary tree over the units, as in tridiagonal_merge. A thread joins `share` units,
// a power of two up to 8; then `width` threads, also a power of two, join the results, and back. In
// a cyclic system, the last unknown is x_left of all units and the first is x_right. Reads 12
// numbers per unit, writes 8.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units, at most share * width
    share: u32,   // units of a thread
    width: u32,   // threads that have units
    cyclic: u32,  // 1: cyclic system
    small: u32,   // pivots of at most 4^-small are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
// x_left and x_right of all units.
@group(0) @binding(2) var<storage, read> ends: array<vec2<real>>;
// Expressions of the unknowns between the units of one thread, as joined units give them.
@group(0) @binding(3) var<storage, read_write> nodes: array<vec2<real>>;
// x_left and x_right of each unit.
@group(0) @binding(4) var<storage, read_write> values: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> above: array<vec2<real>>;  // all units merged
@group(0) @binding(6) var<storage, read_write> flags_above: array<u32>;

var<workgroup> flag: array<u32, 272>;

// A unit and its flags.
struct Flagged { unit: Unit, bad: u32 }

fn given(unit: u32) -> Flagged {
    if unit >= p.count { return Flagged(no_unit(), 0u); }
    return Flagged(unit_of(units[3u * unit], units[3u * unit + 1u], units[3u * unit + 2u]), flags[unit]);
}

// Joins two units and stores the expressions of the unknowns between them.
fn join_and_keep(unit: u32, a: Flagged, b: Flagged, small: real) -> Flagged {
    let two = joined(a.unit, b.unit);
    if unit < p.count {
        nodes[3u * unit] = two.between.f.xy;
        nodes[3u * unit + 1u] = vec2<real>(two.between.f.z, two.between.l.x);
        nodes[3u * unit + 2u] = two.between.l.yz;
    }
    return Flagged(two.whole, both_flags(a.bad, b.bad) + select(0u, 1u, abs(two.det) <= small));
}

// Returns the expressions of the unknowns at the right end of a unit.
fn kept(unit: u32) -> Unit {
    // After the last unit, the next unknown is x_right of all units.
    if unit >= p.count { return Unit(vec3<real>(), vec3<real>(real(0), real(0), real(-1))); }
    return unit_of(nodes[3u * unit], nodes[3u * unit + 1u], nodes[3u * unit + 2u]);
}

@compute @workgroup_size(256)
fn tridiagonal_interface(@builtin(local_invocation_index) local: u32) {
    let small = share_of(p.small);
    let first = local * p.share;
    // An empty unit, or the thread's only unit.
    var whole = given(select(p.count, first, p.share == 1u));
    if p.share > 1u && first < p.count {
        // Left halves of four and of eight units, kept until the right halves are joined.
        var two = whole;
        var four = whole;
        for (var i = 0u; i < p.share; i += 2u) {
            whole = join_and_keep(first + i, given(first + i), given(first + i + 1u), small);
            if (i & 2u) == 0u {
                two = whole;
            } else {
                whole = join_and_keep(first + i - 1u, two, whole, small);
                if (i & 4u) == 0u {
                    four = whole;
                } else {
                    whole = join_and_keep(first + i - 3u, four, whole, small);
                }
            }
        }
    }
    let own = slot(local);
    lay(own, whole.unit);
    flag[own] = whole.bad;
    for (var half = 1u; half < 256u; half <<= 1u) {
        workgroupBarrier();
        let behind = (2u * local + 1u) * half;
        if behind < p.width {
            let a = slot(behind - 1u);
            let b = slot(behind + half - 1u);
            let two = joined(unit_in(a), unit_in(b));
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(two.det) <= small);
            lay(b, two.whole);
            // The left slot now holds the unknowns between the two units.
            lay(a, two.between);
        }
    }
    workgroupBarrier();
    let all = slot(p.width - 1u);
    let r0 = vec2<real>(u0[all], u1[all]);
    let r1 = vec2<real>(u2[all], u3[all]);
    let r2 = vec2<real>(u4[all], u5[all]);
    var ends_ = ends[0];
    var closing = flag[all];
    if p.cyclic == 1u {
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
            resolve(middle, left, right);
        }
    }
    workgroupBarrier();
    if first >= p.count { return; }
    var left = ends_.x;
    var right = ends_.y;
    if local > 0u { left = u0[slot(local - 1u)]; }
    if local < p.width - 1u { right = u1[slot(local)]; }
    if p.share == 1u {
        values[first] = vec2<real>(left, right);
        return;
    }
    for (var i = 0u; i < p.share; i += 2u) {
        let unit = first + i;
        // All loads that may be needed are issued before the first use.
        let eight = kept(first + min(3u, p.share - 1u));
        let four = kept(first + (i & 4u) + 1u);
        let two = kept(unit);
        var before = left;
        var behind = right;
        if p.share > 4u {
            let x = unknowns(eight, before, behind);
            if (i & 4u) == 0u { behind = x.y; } else { before = x.x; }
        }
        if p.share > 2u {
            let x = unknowns(four, before, behind);
            if (i & 2u) == 0u { behind = x.y; } else { before = x.x; }
        }
        let x = unknowns(two, before, behind);
        if unit < p.count { values[unit] = vec2<real>(before, x.y); }
        if unit + 1u < p.count { values[unit + 1u] = vec2<real>(x.x, behind); }
    }
}
