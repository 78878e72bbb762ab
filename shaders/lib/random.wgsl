// Random and quasi-random words. The kernel binds `table`, that of the Sobol sequence, and has
// p.scramble.

// Hashes a word by a bijection of 32 bits.
fn mix_bits(bits: u32) -> u32 {
    var x = bits;
    x ^= x >> 16u;
    x *= 0x7feb352du;
    x ^= x >> 15u;
    x *= 0x846ca68bu;
    x ^= x >> 16u;
    return x;
}

// Returns the seed of one dimension's scramble.
fn dimension_key(key: u32, dimension: u32) -> u32 {
    return mix_bits(key + dimension * 0x9e3779b9u);
}

// Returns the upper half of a product, since not all adapters have 64-bit integers.
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

// Philox4x32-10: returns four words for a counter.
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

// Returns a coordinate of a Sobol point, with its first binary digit in bit 0.
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

// Applies Owen's scramble to a coordinate with its first digit in bit 0; each bit depends on those
// below it.
fn owen_reversed(bits: u32, seed: u32) -> u32 {
    var x = bits;
    x ^= x * 0x3d20adeau;
    x += seed;
    x *= (seed >> 16u) | 1u;
    x ^= x * 0x05526c56u;
    x ^= x * 0x53a22864u;
    return x;
}

// Returns a coordinate of a scrambled Sobol point; `scramble` is the dimension's seed.
fn sobol(point: u32, dimension: u32, scramble: u32) -> u32 {
    let x = sobol_reversed(point, dimension);
    let u = reverseBits(select(x, owen_reversed(x, scramble), p.scramble == 1u));
    return u ^ select(0u, scramble, p.scramble == 2u);
}
