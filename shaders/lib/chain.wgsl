// A walk through the records of walk::table.

@group(0) @binding(0) var<storage, read> rows: array<vec4<u32>>;   // records of walk::table
// Record of the first row, key, component, replicate.
@group(0) @binding(1) var<storage, read> tasks: array<vec4<u32>>;
// Table of direction numbers.
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;

// Returns a number stored as the sum of two f32.
fn number(high: u32, low: u32) -> real {
    return real(bitcast<f32>(high)) + real(bitcast<f32>(low));
}

// Returns the target of the row's entry that the fraction u selects. The row's first two entries
// are `pairs`, at index `first`. `third` and `fifth` are the next two pairs of entries.
fn choose(first: u32, pairs: vec4<u32>, third: vec4<u32>, fifth: vec4<u32>, u: u32) -> u32 {
    var pair = pairs;
    if pair.x == 0u {
        // A long row: the pair (0, number of entries) precedes its entries, which are stored two in
        // 16 bytes.
        var low = 0u;
        var high = pair.y - 1u;
        while low < high {
            let middle = (low + high) >> 1u;
            let two = rows[first + ((middle + 1u) >> 1u)];
            if u < select(two.x, two.z, (middle & 1u) == 0u) { high = middle; } else { low = middle + 1u; }
        }
        let two = rows[first + ((low + 1u) >> 1u)];
        return select(two.y, two.w, (low & 1u) == 0u);
    }
    if u >= pair.z {
        pair = third;
        if u >= pair.z { pair = fifth; }
        // A unit at a time: its halves are loaded together.
        var at = first + 3u;
        while u >= pair.z {
            pair = rows[at];
            let other = rows[at + 1u];
            at += 2u;
            if u >= pair.z { pair = other; }
        }
    }
    return select(pair.w, pair.y, u < pair.x);
}

// Returns theta of a walk: the kernel's `tally` over the heads of its rows.
fn walk_from(row: u32, point: u32, key: u32, stream: vec2<u32>) -> Value {
    let cut = real(bitcast<f32>(p.cut));
    let seed = vec2(p.seed_low, p.seed_high);
    var words = vec4(0u);
    var at = 2u * row;
    var weight = real(1);
    var theta = Value();
    for (var j = 0u; ; j++) {
        // Two units are loaded before the point is computed, which takes as long as the loads. Most
        // steps need the second unit.
        let head = rows[at];
        let pairs = rows[at + 1u];
        let third = rows[at + 2u];
        let fifth = rows[at + 3u];
        theta = tally(weight, head, theta);
        if j == p.length { break; }
        weight *= number(head.z, head.w);
        if abs(weight) <= cut { break; }
        var u: u32;
        if j < p.tabled {
            u = sobol(point, j, dimension_key(key, j));
        } else {
            if (j & 3u) == 0u || j == p.tabled { words = philox(vec4(point, j >> 2u, stream), seed); }
            u = words[j & 3u];
        }
        let next = choose(at + 1u, pairs, third, fifth, min(u, 0xfffffffeu));
        if (next >> 31u) == 1u { weight = -weight; }
        at = (next & 0x7fffffffu) << 1u;
    }
    return theta;
}
