// The unknowns next to each of up to 256 units, from those next to all of them together. One thread
// per unit. The expressions that tridiagonal_merge left in the units' slots are evaluated from the
// root of the tree down. Reads 6 numbers per unit and 2 per group of merged units, writes 2 per
// unit.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units
    levels: u32,  // levels of the tree over 2^levels units, at most 256
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> units: array<vec2<real>>;
// x_left and x_right of each group of 2^levels units.
@group(0) @binding(1) var<storage, read> above: array<vec2<real>>;
// x_left and x_right of each unit.
@group(0) @binding(2) var<storage, read_write> values: array<vec2<real>>;

@compute @workgroup_size(256)
fn tridiagonal_expand(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let unit = tile * 256u + local;
    let own = slot(local);
    // Index `place` of the thread's unit among the units that were merged.
    let fan = 1u << p.levels;
    let place = local & (fan - 1u);
    let base = local - place;
    // After the last unit, the next unknown is x_right of all units.
    var given = Unit(vec3<real>(), vec3<real>(real(0), real(0), real(-1)));
    var ends = vec2<real>(real(0), real(0));
    if unit < p.count {
        given = unit_of(units[3u * unit], units[3u * unit + 1u], units[3u * unit + 2u]);
        ends = above[unit >> p.levels];
    }
    lay(own, given);
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        let start = 2u * place * half;
        if start + half < fan {
            let between = slot(base + start + half - 1u);
            let end = start + 2u * half - 1u;
            var left = ends.x;
            var right = ends.y;
            if start > 0u { left = u0[slot(base + start - 1u)]; }
            if end < fan - 1u { right = u1[slot(base + end)]; }
            resolve(between, left, right);
        }
    }
    workgroupBarrier();
    if unit < p.count {
        var left = ends.x;
        var right = ends.y;
        if place > 0u { left = u0[slot(local - 1u)]; }
        if place < fan - 1u { right = u1[slot(local)]; }
        values[unit] = vec2<real>(left, right);
    }
}
