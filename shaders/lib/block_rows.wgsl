// Rows of blocks; one thread per block.

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; systems are concatenated
    first: u32,   // index of the chunk's first row within its system
    blocks: u32,  // number of blocks; the first rows % blocks have one more row
    small: u32,   // pivots of at most 4^-small relative to their row are replaced by that
    at_dl: u32,   // offsets of this chunk in the arrays
    at_d: u32,
    at_du: u32,
    at_rhs: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> du: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;

struct Row { a: real, b: real, c: real, d: real }

fn row(i: u32) -> Row {
    let place = (p.first + i) % p.n;
    var r = Row(real(0), d[p.at_d + i], real(0), rhs[p.at_rhs + i]);
    if place > 0u { r.a = dl[p.at_dl + i]; }
    if place + 1u < p.n { r.c = du[p.at_du + i]; }
    return r;
}

fn size(a: real, b: real, c: real) -> real { return max(abs(a), max(abs(b), abs(c))); }

// Returns the first row of a block, and one past its last.
fn ends_of(block: u32) -> vec2<u32> {
    let length = p.rows / p.blocks;
    let longer = p.rows % p.blocks;
    let start = block * length + min(block, longer);
    return vec2(start, start + length + select(0u, 1u, block < longer));
}
