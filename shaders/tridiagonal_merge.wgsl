// Merges up to 256 units into one: its first and last unknown as functions of the unknowns next to
// it. One thread per unit; a tree of `levels` levels joins them. Each unit's slot then holds the
// two unknowns at its right end: y = u0 - u1 x_left - u2 x_right, z = u3 - u4 x_left - u5 x_right.
// Reads and writes 6 numbers per unit.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units
    small: u32,   // pivots of at most 4^-small are flagged
    levels: u32,  // 2^levels units are merged, at most 256
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
@group(0) @binding(2) var<storage, read_write> above: array<vec2<real>>;
@group(0) @binding(3) var<storage, read_write> flags_above: array<u32>;

var<workgroup> flag: array<u32, 272>;

@compute @workgroup_size(256)
fn tridiagonal_merge(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let unit = tile * 256u + local;
    // Index `place` of the thread's unit among the units to be merged.
    let fan = 1u << p.levels;
    let place = local & (fan - 1u);
    let base = local - place;
    let small = share_of(p.small);
    let own = slot(local);
    var given = no_unit();
    var bad = 0u;
    if unit < p.count {
        given = unit_of(units[3u * unit], units[3u * unit + 1u], units[3u * unit + 2u]);
        bad = flags[unit];
    }
    lay(own, given);
    flag[own] = bad;
    for (var half = 1u; half < 256u; half <<= 1u) {
        workgroupBarrier();
        let behind = (2u * place + 1u) * half;
        if behind < fan {
            let a = slot(base + behind - 1u);
            let b = slot(base + behind + half - 1u);
            let two = joined(unit_in(a), unit_in(b));
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(two.det) <= small);
            lay(b, two.whole);
            // The left slot now holds the unknowns between the two units.
            lay(a, two.between);
        }
    }
    workgroupBarrier();
    if unit < p.count {
        units[3u * unit] = vec2<real>(u0[own], u1[own]);
        units[3u * unit + 1u] = vec2<real>(u2[own], u3[own]);
        units[3u * unit + 2u] = vec2<real>(u4[own], u5[own]);
    }
    if place == 0u && unit < p.count {
        let all = slot(base + fan - 1u);
        let whole = unit >> p.levels;
        above[3u * whole] = vec2<real>(u0[all], u1[all]);
        above[3u * whole + 1u] = vec2<real>(u2[all], u3[all]);
        above[3u * whole + 2u] = vec2<real>(u4[all], u5[all]);
        flags_above[whole] = flag[all];
    }
}
