// The unknowns next to each of up to 256 units, from those next to all of them together.
// One thread a unit; what tridiagonal_merge left in the units' places is gone through from the root of the tree down.
// Reads 6 numbers a unit and 2 of all together, writes 2 a unit.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units
    levels: u32,  // of the tree: 2^levels units, 256 at most, lie together
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> above: array<vec2<real>>;  // x_left and x_right of units that lie together
@group(0) @binding(2) var<storage, read_write> values: array<vec2<real>>;  // interface values: x_left and x_right of each unit

@compute @workgroup_size(256)
fn tridiagonal_expand(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let unit = tile * 256u + local;
    let own = slot(local);
    // Of the units that lie together the thread's is number `place`.
    let fan = 1u << p.levels;
    let place = local & (fan - 1u);
    let base = local - place;
    // Behind the last unit: the first unknown of what follows is x_right of all.
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
