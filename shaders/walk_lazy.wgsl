// Random walks directly from A in compressed rows: no table is made, and only rows that a walk
// meets are read. out_b = (sum over the walks i of block b of theta_i of walk.wgsl, largest row sum
// of |L|, largest |f|, entries of the longest row). The last three are over the rows that the walks
// meet. One thread per walk. One workgroup adds 256 walks of one task in a tree. A step reads its
// row twice: for the diagonal entry and the sum of the others, then up to the chosen entry. Reads
// 12 bytes per entry for the sum, and 12 per entry up to the chosen one.
alias real = f64;

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;
// First row, key, component, replicate.
@group(0) @binding(4) var<storage, read> tasks: array<vec4<u32>>;
// Direction numbers of the sequence.
@group(0) @binding(5) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<real>>;

alias Value = vec4<real>;

fn join(a: Value, b: Value) -> Value { return vec4(a.x + b.x, max(a.yzw, b.yzw)); }

// Result for a row without a diagonal entry: more entries than a row can have.
const NO_DIAGONAL = 8589934592.0;

// Returns theta of a walk, and of the rows that it met the largest row sum, |f| and number of
// entries.
fn walk_from(first: u32, point: u32, key: u32, stream: vec2<u32>) -> Value {
    let cut = real(bitcast<f32>(p.cut));
    let seed = vec2(p.seed_low, p.seed_high);
    var words = vec4(0u);
    var row = first;
    var weight = real(1);
    var theta = real(0);
    var worst = real(0);
    var largest = real(0);
    var longest = real(0);
    for (var j = 0u; ; j++) {
        let begin = starts[row];
        let end = starts[row + 1u];
        var diagonal = real(p.given);
        var sum = real(0);
        for (var e = begin; e < end; e++) {
            let a = values[e];
            if p.given == 0u && columns[e] == row { diagonal = a; } else { sum += abs(a); }
        }
        if diagonal == real(0) { return vec4(theta, worst, largest, real(NO_DIAGONAL)); }
        longest = max(longest, real(end - begin));
        let f = rhs[row] / diagonal;
        largest = max(largest, abs(f));
        theta = fma(weight, f, theta);
        let norm = sum / abs(diagonal);
        worst = max(worst, norm);
        if j == p.length { break; }
        weight *= norm;
        if abs(weight) <= cut { break; }
        var u: u32;
        if p.sequence == 0u && j < p.tabled {
            u = sobol(point, j, dimension_key(key, j));
        } else {
            if (j & 3u) == 0u || j == p.tabled { words = philox(vec4(point, j >> 2u, stream), seed); }
            u = words[j & 3u];
        }
        // The middle of the fraction's cell, so that rounding reaches no end of it.
        let aim = ((real(u) + real(0.5)) * real(2.3283064365386963e-10)) * sum;
        var reached = real(0);
        var next = row;
        var positive = true;
        for (var e = begin; e < end; e++) {
            let a = values[e];
            let column = columns[e];
            if (p.given == 0u && column == row) || a == real(0) { continue; }
            next = column;
            positive = a > real(0);
            reached += abs(a);
            if reached > aim { break; }
        }
        // l = -a / diagonal in Jacobi's splitting.
        if positive != (p.given == 1u || diagonal < real(0)) { weight = -weight; }
        row = next;
    }
    return vec4(theta, worst, largest, longest);
}

@compute @workgroup_size(256)
fn walk_lazy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    let member = group.y * groups.x + group.x;
    let block = p.first + p.step * p.groups + member;
    if member >= p.groups || block >= p.end { return; }
    walk_block(block, local);
}
