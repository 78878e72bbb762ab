// Performs a step of the computation of P(t) = e^{Qt} for chains of more than 64 states: it writes
// B = mean I + Q h, or it computes a matrix product and combines it with other matrices.
// `exponential` describes the method. Each chain has 6 matrices in global memory.
// A workgroup computes 64 by 64 elements of a matrix.
alias real = f64;

struct Params {
    step: u32,
    n: u32,          // states of each chain
    first: u32,      // first chain of this launch
    chains: u32,     // number of chains of this launch
    task: u32,       // 0: B, 1 to 4: product of the polynomial, 5: square
    left: u32,       // number of the left factor among a chain's matrices
    right: u32,      // number of the right factor
    to: u32,         // number of the matrix to write
    stage: u32,      // 0 before the polynomial is complete, then 1 plus the number of squarings
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<real>;         // generators by rows
@group(0) @binding(1) var<storage, read> exit: array<real>;      // exit rate of each state
@group(0) @binding(2) var<storage, read> alpha: array<real>;     // largest exit rate of each chain
@group(0) @binding(3) var<storage, read> times: array<real>;
@group(0) @binding(4) var<storage, read> coefficients: array<real>;   // 1/k! and c_k
@group(0) @binding(5) var<storage, read_write> matrices: array<real>;    // 6 per chain of this launch
@group(0) @binding(6) var<storage, read_write> transition: array<real>;  // P(t) by rows

// First elements of the left and right factor.
struct Factors { left: u32, right: u32 }

// Four elements of a column of the left factor, in rows from `row`; 0 in columns from n. The last
// row stands for those beyond it: products with them are not stored.
fn left_part(factors: Factors, row: u32, column: u32) -> vec4<real> {
    if column >= p.n { return vec4<real>(); }
    let at = factors.left + column;
    let last = p.n - 1u;
    return vec4<real>(matrices[at + min(row, last) * p.n], matrices[at + min(row + 1u, last) * p.n],
        matrices[at + min(row + 2u, last) * p.n], matrices[at + min(row + 3u, last) * p.n]);
}

// Two pairs of elements of a row of the right factor, 32 columns apart; the last row and column
// stand for those beyond them.
fn right_part(factors: Factors, row: u32, column: u32) -> vec4<real> {
    let last = p.n - 1u;
    let at = factors.right + min(row, last) * p.n;
    return vec4<real>(matrices[at + min(column, last)], matrices[at + min(column + 1u, last)],
        matrices[at + min(column + 32u, last)], matrices[at + min(column + 33u, last)]);
}

// Writes an element of the results of this step. Matrix 0 is B, 1 is C = B², and 3 is X; 2, 4 and 5
// are factors of later products.
fn finish(slot: u32, chain: u32, scaling: Scaling, row: u32, column: u32, product: real) {
    if row >= p.n || column >= p.n { return; }
    let size = p.n * p.n;
    let at = row * p.n + column;
    let own = 6u * slot * size + at;
    var result = product;
    if p.task == 0u {
        result = q[chain * size + at] * scaling.h;
        if row == column { result = max(fma(-exit[chain * p.n + row], scaling.h, scaling.mean), real(0)); }
    } else if p.task < 5u {
        let b = matrices[own];
        let b2 = matrices[own + size];
        let x = matrices[own + 3u * size];
        if p.task == 1u {
            matrices[own + 2u * size] = fma(c(1u), product, c(2u) * b);
        } else if p.task == 2u {
            matrices[own + 4u * size] = fma(c(4u), b, fma(c(3u), b2, product));
            matrices[own + 5u * size] = fma(c(5u), b2, product);
        } else if p.task == 3u {
            let y = fma(c(7u), b2, fma(c(6u), x, product));
            matrices[own + 2u * size] = fma(c(9u), b, fma(c(8u), b2, y));
            result = fma(c(11u), b, fma(c(10u), x, y));
            // The terms to add to the last product replace X.
            var rest = fma(c(12u), y, fma(c(13u), x, fma(c(14u), b2, b)));
            if row == column { rest += real(1); }
            matrices[own + 3u * size] = rest;
        } else {
            result = scaling.scale * (product + x);
        }
    }
    if p.stage == scaling.squarings + 1u {
        transition[chain * size + at] = probability(result);
    } else {
        matrices[own + p.to * size] = result;
    }
}

fn finish_row(slot: u32, chain: u32, scaling: Scaling, row: u32, column: u32, x: vec4<real>) {
    finish(slot, chain, scaling, row, column, x.x);
    finish(slot, chain, scaling, row, column + 1u, x.y);
    finish(slot, chain, scaling, row, column + 2u, x.z);
    finish(slot, chain, scaling, row, column + 3u, x.w);
}

@compute @workgroup_size(256)
fn exponential_step(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) local: u32) {
    let side = (p.n + 63u) / 64u;
    let own = group.y * groups.x + group.x;
    // Surplus workgroups repeat the last chain, since all threads must reach the barriers.
    let slot = min(own / (side * side), p.chains - 1u);
    let chain = p.first + slot;
    let scaling = scaling_of(alpha[chain], times[chain]);
    if p.stage > scaling.squarings + 1u { return; }
    let rows = own / side % side * 64u;
    let columns = own % side * 64u;
    // 32 adjacent threads cover 8 by 4 tiles, so they read few distinct vectors.
    let tile_row = local / 128u * 8u + local % 32u / 4u;
    let tile_column = local / 32u % 4u * 4u + local % 4u;
    let first = 6u * slot * p.n * p.n;
    let factors = Factors(first + p.left * p.n * p.n, first + p.right * p.n * p.n);
    let line = local / 16u;
    let part = local % 16u;
    var sum = Tile();
    if p.task > 0u {
        // 16 adjacent threads read 32 adjacent columns of the right factor, then 32 others. Eight
        // of them write the same half of 8 tiles.
        let tile = part % 8u;
        let column = columns + 4u * tile + 2u * (part / 8u);
        let half = part / 8u * 2u * PANEL;
        var l = left_part(factors, rows + 4u * line, part);
        var r = right_part(factors, line, column);
        for (var k = 0u; k < p.n; k += 16u) {
            let panel = k / 16u % 2u * PANEL;
            put_left(place_in(panel, part, 16u, line), l);
            right[place_in(panel, line, 16u, tile) + half] = r.xy;
            right[place_in(panel, line, 16u, tile + 8u) + half] = r.zw;
            workgroupBarrier();
            // The next panel is read from global memory while this one is used.
            l = left_part(factors, rows + 4u * line, k + 16u + part);
            r = right_part(factors, k + 16u + line, column);
            sum = plus_panel(sum, panel, 16u, 16u, tile_row, tile_column);
        }
    }
    if own / (side * side) < p.chains {
        let row = rows + 4u * tile_row;
        let column = columns + 4u * tile_column;
        finish_row(slot, chain, scaling, row, column, sum.a);
        finish_row(slot, chain, scaling, row + 1u, column, sum.b);
        finish_row(slot, chain, scaling, row + 2u, column, sum.c);
        finish_row(slot, chain, scaling, row + 3u, column, sum.d);
    }
}
