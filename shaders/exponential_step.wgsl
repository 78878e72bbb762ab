// Performs a step of the computation of P(t) = e^{Qt} for chains of more than 64 states: it writes
// B = mean I + Q h, a matrix product, terms of the polynomial in B, or the result. `exponential`
// describes the method. Each chain has 5 matrices in global memory: B, B² and three others. A
// workgroup computes 64 by 64 elements of a matrix, and each thread a tile of 4 by 4. Panels of 8
// columns of the left factor and 8 rows of the right one pass through workgroup memory. The terms
// of one panel are summed first.
alias real = f64;

struct Params {
    step: u32,
    n: u32,          // states of each chain
    first: u32,      // index of the first chain in `order`
    chains: u32,     // number of chains of this launch
    task: u32,       // 0: B, 1: product, 2: product plus terms of the polynomial, 3: result
    left: u32,       // number of the left factor, or of the result, among a chain's matrices
    right: u32,      // number of the right factor
    to: u32,         // number of the matrix to write
    factors: u32,    // 2, or 0 to omit the product
    term: u32,       // index of the first term of the polynomial
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> order: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<real>;         // generators by rows
@group(0) @binding(2) var<storage, read> exit: array<real>;      // exit rate of each state
@group(0) @binding(3) var<storage, read> scalars: array<real>;   // h, mean and e^-mean of each chain
@group(0) @binding(4) var<storage, read> inverse: array<real>;   // 1/k!
@group(0) @binding(5) var<storage, read_write> matrices: array<real>;    // 5 per chain of this launch
@group(0) @binding(6) var<storage, read_write> transition: array<real>;  // P(t) by rows

const PANEL: u32 = 128u;
// Two panels of each factor, in turn. A vector holds 4 elements of a column of the left factor, or
// of a row of the right one.
var<workgroup> left: array<vec4<real>, 256>;
var<workgroup> right: array<vec4<real>, 256>;

// Element of a matrix of the chain in a slot; 0 beyond n.
fn element(slot: u32, matrix: u32, row: u32, column: u32) -> real {
    if row >= p.n || column >= p.n { return real(0); }
    return matrices[((slot * 5u + matrix) * p.n + row) * p.n + column];
}

// Writes an element of the result of this step.
fn finish(slot: u32, chain: u32, row: u32, column: u32, product: real) {
    if row >= p.n || column >= p.n { return; }
    let size = p.n * p.n;
    let at = row * p.n + column;
    var x = product;
    if p.task == 0u {
        let h = scalars[3u * chain];
        if row == column {
            x = max(fma(-exit[chain * p.n + row], h, scalars[3u * chain + 1u]), real(0));
        } else {
            x = q[chain * size + at] * h;
        }
    } else if p.task == 2u {
        let scale = scalars[3u * chain + 2u];
        x = fma(scale * inverse[p.term + 1u], matrices[slot * 5u * size + at], x);
        x = fma(scale * inverse[p.term + 2u], matrices[(slot * 5u + 1u) * size + at], x);
        if row == column { x = fma(scale, inverse[p.term], x); }
    } else if p.task == 3u {
        // Probabilities that rounding has raised above 1 are set to 1.
        transition[chain * size + at] = min(matrices[(slot * 5u + p.left) * size + at], real(1));
        return;
    }
    matrices[(slot * 5u + p.to) * size + at] = x;
}

fn finish_row(slot: u32, chain: u32, row: u32, column: u32, x: vec4<real>) {
    finish(slot, chain, row, column, x.x);
    finish(slot, chain, row, column + 1u, x.y);
    finish(slot, chain, row, column + 2u, x.z);
    finish(slot, chain, row, column + 3u, x.w);
}

@compute @workgroup_size(256)
fn exponential_step(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) local: u32) {
    let side = (p.n + 63u) / 64u;
    let own = group.y * groups.x + group.x;
    // Surplus workgroups repeat the last chain, since all threads must reach the barriers.
    let slot = min(own / (side * side), p.chains - 1u);
    let rows = own / side % side * 64u;
    let columns = own % side * 64u;
    // 32 adjacent threads cover 8 by 4 tiles, so they read few distinct vectors.
    let tile_row = local / 128u * 8u + local % 32u / 4u;
    let tile_column = local / 32u % 4u * 4u + local % 4u;
    var a = vec4<real>();
    var b = vec4<real>();
    var c = vec4<real>();
    var d = vec4<real>();
    for (var k = 0u; k < p.n && p.factors > 0u; k += 8u) {
        let panel = k / 8u % 2u * PANEL;
        let i = local % PANEL;
        if local < PANEL {
            let row = rows + i / 8u * 4u;
            let inner = k + i % 8u;
            left[panel + i % 8u * 16u + i / 8u] = vec4<real>(
                element(slot, p.left, row, inner), element(slot, p.left, row + 1u, inner),
                element(slot, p.left, row + 2u, inner), element(slot, p.left, row + 3u, inner));
        } else {
            let column = columns + i % 16u * 4u;
            let inner = k + i / 16u;
            right[panel + i] = vec4<real>(
                element(slot, p.right, inner, column), element(slot, p.right, inner, column + 1u),
                element(slot, p.right, inner, column + 2u), element(slot, p.right, inner, column + 3u));
        }
        workgroupBarrier();
        var some_a = vec4<real>();
        var some_b = vec4<real>();
        var some_c = vec4<real>();
        var some_d = vec4<real>();
        for (var j = 0u; j < 8u; j++) {
            let l = left[panel + j * 16u + tile_row];
            let r = right[panel + j * 16u + tile_column];
            some_a = fma(vec4<real>(l.x), r, some_a);
            some_b = fma(vec4<real>(l.y), r, some_b);
            some_c = fma(vec4<real>(l.z), r, some_c);
            some_d = fma(vec4<real>(l.w), r, some_d);
        }
        a += some_a;
        b += some_b;
        c += some_c;
        d += some_d;
    }
    if own / (side * side) < p.chains {
        let chain = order[p.first + slot];
        let row = rows + 4u * tile_row;
        let column = columns + 4u * tile_column;
        finish_row(slot, chain, row, column, a);
        finish_row(slot, chain, row + 1u, column, b);
        finish_row(slot, chain, row + 2u, column, c);
        finish_row(slot, chain, row + 3u, column, d);
    }
}
