// out_b = sum over the walks i of block b of theta_i = sum over k <= T of W_k g(s_k), s_0 = the task's row, W_0 = 1.
// One thread a walk, 256 walks of one task a workgroup, added as a tree that is the same on every lane. A step from a
// row takes the first entry whose distribution function exceeds the point's next coordinate, and W times the row's sum
// and the entry's sign (almost optimal walks). A walk ends after T steps, or once |W| <= cut, as in a row without entries.
// Reads 64 bytes, and 32 for each 4 entries from the seventh up to the one that is taken, of one record a step; 16 bytes of
// the sequence's table for every 4 bits of the point's number, the same for all threads.
alias real = f64;

struct Params {
    step: u32,
    groups: u32,       // blocks of a step
    first: u32,        // block of step 0
    end: u32,          // one past the last block
    per_task: u32,     // blocks of a task
    first_point: u32,
    end_point: u32,
    length: u32,       // T
    cut: u32,          // bits of an f32
    sequence: u32,     // 0 Sobol, 3 Philox, 4 a buffer of points
    scramble: u32,     // 0 none, 1 Owen, 2 shift
    tabled: u32,       // dimensions from this one on are Philox's
    seed_low: u32,
    seed_high: u32,
    stride: u32,       // points in a row of the buffer, which begins with first_point
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> rows: array<vec4<u32>>;   // records, see walk::table
@group(0) @binding(1) var<storage, read> tasks: array<vec4<u32>>;  // record of the first row, key, component, replicate
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;  // of the sequence, or points by dimensions
@group(0) @binding(3) var<storage, read_write> out: array<real>;

var<workgroup> sums: array<real, 256>;

// A bijection of 32 bits whose outputs look independent.
fn mix_bits(bits: u32) -> u32 {
    var x = bits;
    x ^= x >> 16u;
    x *= 0x7feb352du;
    x ^= x >> 15u;
    x *= 0x846ca68bu;
    x ^= x >> 16u;
    return x;
}

// The seed of one dimension's scramble.
fn dimension_key(key: u32, dimension: u32) -> u32 {
    return mix_bits(key + dimension * 0x9e3779b9u);
}

// The upper half of a product: no type of WGSL holds 64 bits everywhere.
fn multiply_high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bh;
    let high = ah * bl;
    let carry = ((al * bl) >> 16u) + (low & 0xffffu) + (high & 0xffffu);
    return ah * bh + (low >> 16u) + (high >> 16u) + (carry >> 16u);
}

// Philox4x32-10: four words for a counter.
fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let a = multiply_high(0xd2511f53u, c.x);
        let b = multiply_high(0xcd9e8d57u, c.z);
        c = vec4(b ^ c.y ^ k.x, 0xcd9e8d57u * c.z, a ^ c.w ^ k.y, 0xd2511f53u * c.x);
        k += vec2(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// A coordinate of a point of the Sobol sequence, its first digit in bit 0.
fn sobol_reversed(point: u32, dimension: u32) -> u32 {
    var x = 0u;
    var at = 8u * dimension;
    for (var i = point; i != 0u; i >>= 4u) {
        let c = table[at];
        x ^= (c.x & (0u - (i & 1u))) ^ (c.y & (0u - ((i >> 1u) & 1u)))
            ^ (c.z & (0u - ((i >> 2u) & 1u))) ^ (c.w & (0u - ((i >> 3u) & 1u)));
        at++;
    }
    return x;
}

// Owen's scramble of a coordinate that has its first digit in bit 0: what happens to a bit depends on those below it.
fn owen_reversed(bits: u32, seed: u32) -> u32 {
    var x = bits;
    x ^= x * 0x3d20adeau;
    x += seed;
    x *= (seed >> 16u) | 1u;
    x ^= x * 0x05526c56u;
    x ^= x * 0x53a22864u;
    return x;
}

// The sum of two f32.
fn number(high: u32, low: u32) -> real {
    return real(bitcast<f32>(high)) + real(bitcast<f32>(low));
}

// The target of the entry of a row that the fraction u falls on; `pairs` are the row's first two entries, at `first`, and
// `third` and `fifth` what lies behind them, in the next unit.
fn choose(first: u32, pairs: vec4<u32>, third: vec4<u32>, fifth: vec4<u32>, u: u32) -> u32 {
    var pair = pairs;
    if pair.x == 0u {
        // A long row: its entries lie behind the pair (0, number of entries), two in 16 bytes.
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
        // A unit at a time: both halves are on their way at once.
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

fn walk_from(row: u32, point: u32, key: u32, stream: vec2<u32>) -> real {
    let cut = real(bitcast<f32>(p.cut));
    let seed = vec2(p.seed_low, p.seed_high);
    var words = vec4(0u);
    var at = 2u * row;
    var weight = real(1);
    var theta = real(0);
    for (var j = 0u; ; j++) {
        // Two units, asked for before the point is made, which takes as long as they do: more often than not the second is
        // needed, and then it is there.
        let head = rows[at];
        let pairs = rows[at + 1u];
        let third = rows[at + 2u];
        let fifth = rows[at + 3u];
        theta = fma(weight, number(head.x, head.y), theta);
        if j == p.length { break; }
        weight *= number(head.z, head.w);
        if abs(weight) <= cut { break; }
        var u: u32;
        if p.sequence == 0u && j < p.tabled {
            let x = sobol_reversed(point, j);
            let scramble = dimension_key(key, j);
            u = reverseBits(select(x, owen_reversed(x, scramble), p.scramble == 1u));
            u ^= select(0u, scramble, p.scramble == 2u);
        } else if p.sequence == 4u {
            let word = j * p.stride + (point - p.first_point);
            u = table[word >> 2u][word & 3u];
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

@compute @workgroup_size(256)
fn walk(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let member = group.y * groups.x + group.x;
    let block = p.first + p.step * p.groups + member;
    if member >= p.groups || block >= p.end { return; }
    let task_number = block / p.per_task;
    let point = p.first_point + (block - task_number * p.per_task) * 256u + local;
    var theta = real(0);
    if point < p.end_point {
        let task = tasks[task_number];
        theta = walk_from(task.x, point, task.y, task.zw);
    }
    sums[local] = theta;
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { sums[local] += sums[local + half]; }
    }
    if local == 0u { out[block] = sums[0]; }
}
