// Stage 3: the unknowns inside of a block, from its first and last and the one behind it.
// One thread a block, down as in stage 1, where x_i = e_i - h_i x_{i+1} - k_i x_{i+2} is kept row by row of all blocks
// so that neighbouring threads write neighbouring numbers, and back up.
// Reads 4 numbers a row and 3 a block, writes and reads 3 a row, writes 1 a row.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; several lie one behind the other
    first: u32,   // the chunk's first row, counted inside its system
    blocks: u32,  // the first rows % blocks of them have a row more
    pivot: u32,   // 1: rows may be exchanged
    small: u32,   // pivots of at most 4^-small of their row are replaced by that
    at_dl: u32,   // where the diagonals begin in their arrays
    at_d: u32,
    at_du: u32,
    at_rhs: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> du: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;
@group(0) @binding(4) var<storage, read> above: array<real>;  // first and last unknown of each block, and one more
@group(0) @binding(5) var<storage, read_write> kept: array<real>;
@group(0) @binding(6) var<storage, read_write> x: array<real>;

struct Row { a: real, b: real, c: real, d: real }

fn row(i: u32) -> Row {
    let place = (p.first + i) % p.n;
    var r = Row(real(0), d[p.at_d + i], real(0), rhs[p.at_rhs + i]);
    if place > 0u { r.a = dl[p.at_dl + i]; }
    if place + 1u < p.n { r.c = du[p.at_du + i]; }
    return r;
}

fn size(a: real, b: real, c: real) -> real { return max(abs(a), max(abs(b), abs(c))); }

@compute @workgroup_size(256)
fn tridiagonal_block_solve(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 256u + local;
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    if block < p.blocks {
        let length = p.rows / p.blocks;
        let longer = p.rows % p.blocks;
        let start = block * length + min(block, longer);
        let end = start + length + select(0u, 1u, block < longer);
        let x_first = above[2u * block];
        let second = row(start + 1u);
        // u x_i + w x_{i+1} = r, x_first known.
        var u = second.b;
        var w = second.c;
        var r = fma(-second.a, x_first, second.d);
        var own = size(second.a, second.b, second.c);
        var at = block;
        for (var i = start + 2u; i < end; i++) {
            let next = row(i);
            let other = size(next.a, next.b, next.c);
            let exchange = p.pivot == 1u && abs(next.a) * own > abs(u) * other;
            var pu = select(u, next.a, exchange);
            let pw = select(w, next.b, exchange);
            let pz = select(real(0), next.c, exchange);
            let pr = select(r, next.d, exchange);
            let least = small * select(own, other, exchange);
            if abs(pu) <= least { pu = select(max(least, small), -max(least, small), pu < real(0)); }
            let inverse = real(1) / pu;
            kept[at] = pr * inverse;
            kept[at + p.blocks] = pw * inverse;
            kept[at + 2u * p.blocks] = pz * inverse;
            at += 3u * p.blocks;
            let q = select(next.a, u, exchange) * inverse;
            u = fma(-q, pw, select(next.b, w, exchange));
            w = fma(-q, pz, select(next.c, real(0), exchange));
            r = fma(-q, pr, select(next.d, r, exchange));
            own = select(other, own, exchange);
        }
        var next = above[2u * block + 1u];
        var after = above[2u * block + 2u];
        x[start] = x_first;
        x[end - 1u] = next;
        for (var i = end - 2u; i > start; i--) {
            at -= 3u * p.blocks;
            let here = fma(-kept[at + 2u * p.blocks], after, fma(-kept[at + p.blocks], next, kept[at]));
            after = next;
            next = here;
            x[i] = here;
        }
    }
}
