// out[d points + i] = coordinate first_dimension + d of point first_point + i of a sequence, as a
// fraction of 2^32. One thread per value; the points of one dimension are adjacent. Writes 4 bytes
// per value. Reads 16 bytes of the table for every 4 bits of the point's index (Sobol), 4 bytes
// (Halton) or nothing; all threads of a dimension read the same bytes. Uses no floating-point
// numbers.
alias real = f64;

struct Params {
    step: u32,
    sequence: u32,         // 0 Sobol, 1 Halton, 2 Faure, 3 Philox
    scramble: u32,         // 0 none, 1 Owen (Sobol alone), 2 shift
    tabled: u32,           // first dimension that Philox generates
    base: u32,             // base of Faure's digits
    key: u32,              // key of the stream's scrambles
    seed_low: u32,
    seed_high: u32,
    component: u32,
    replicate: u32,
    first_point: u32,
    points: u32,
    first_dimension: u32,
    dimensions: u32,
    out: u32,              // index of the first value
}
var<immediate> p: Params;

// Sobol: 32 words per dimension; Halton: one word, the base.
@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

// Returns word `dimension` of a point's stream of random words.
fn philox_u32(point: u32, dimension: u32, stream: vec2<u32>, seed: vec2<u32>) -> u32 {
    let words = philox(vec4(point, dimension >> 2u, stream), seed);
    return words[dimension & 3u];
}

// Returns (digit 2^32 + fraction) / base, rounded down, for digit < base < 2^16.
fn push_digit(digit: u32, fraction: u32, base: u32) -> u32 {
    let high = (digit << 16u) | (fraction >> 16u);
    let q = high / base;
    let low = ((high - q * base) << 16u) | (fraction & 0xffffu);
    return (q << 16u) | (low / base);
}

// Radical inverse of `point` in a base: its digits, mirrored at the point.
fn halton_u32(point: u32, base: u32) -> u32 {
    var power = 1u;
    while point / power >= base { power *= base; }
    var rest = point;
    var y = 0u;
    for (; power != 0u; power /= base) {
        let digit = rest / power;
        rest -= digit * power;
        y = push_digit(digit, y, base);
    }
    return y;
}

// Writes the digits of a number, least significant first, and returns their count.
fn digits_of(number: u32, base: u32, digits: ptr<function, array<u32, 32>>) -> u32 {
    var count = 0u;
    for (var rest = number; rest != 0u; rest /= base) {
        (*digits)[count] = rest % base;
        count++;
    }
    return count;
}

// Writes the digits of a Faure coordinate, first digit first, and returns their count. They are the
// coefficients of the polynomial of the point's digits, shifted by `dimension` modulo `base`.
fn faure_digits(point: u32, dimension: u32, base: u32, digits: ptr<function, array<u32, 32>>) -> u32 {
    let count = digits_of(point, base, digits);
    for (var r = 0u; r + 1u < count; r++) {
        for (var c = count - 1u; c > r; c--) {
            (*digits)[c - 1u] = ((*digits)[c - 1u] + dimension * (*digits)[c]) % base;
        }
    }
    return count;
}

// Returns the fraction with these digits.
fn fraction(count: u32, base: u32, digits: ptr<function, array<u32, 32>>) -> u32 {
    var y = 0u;
    for (var r = count; r > 0u; r--) { y = push_digit((*digits)[r - 1u], y, base); }
    return y;
}

// Returns a coordinate of a point of the selected sequence, as a fraction of 2^32.
fn sequence_u32(point: u32, dimension: u32) -> u32 {
    if p.sequence == 3u || dimension >= p.tabled {
        return philox_u32(point, dimension, vec2(p.component, p.replicate), vec2(p.seed_low, p.seed_high));
    }
    let key = dimension_key(p.key, dimension);
    if p.sequence == 0u { return sobol(point, dimension, key); }
    if p.sequence == 1u {
        let base = table[dimension >> 2u][dimension & 3u];
        return halton_u32(point, base) + select(0u, key, p.scramble == 2u);
    }
    var digits: array<u32, 32>;
    let count = faure_digits(point, dimension, p.base, &digits);
    return fraction(count, p.base, &digits) + select(0u, key, p.scramble == 2u);
}

@compute @workgroup_size(256)
fn sequence(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let d = i / p.points;
    if d >= p.dimensions { return; }
    out[p.out + i] = sequence_u32(p.first_point + (i - d * p.points), p.first_dimension + d);
}
