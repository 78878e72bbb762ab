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

// Two adjacent elements of the left factor; 0 in columns from n. The last row stands for those
// beyond it: products with them are not stored.
fn left_pair(factors: Factors, row: u32, column: u32) -> vec2<real> {
    let last = p.n - 1u;
    let at = factors.left + min(row, last) * p.n;
    let x = vec2<real>(matrices[at + min(column, last)], matrices[at + min(column + 1u, last)]);
    return vec2<real>(select(x.x, real(0), column > last), select(x.y, real(0), column + 1u > last));
}

// Two adjacent elements of the right factor; the last row and column stand for those beyond them.
fn right_pair(factors: Factors, row: u32, column: u32) -> vec2<real> {
    let last = p.n - 1u;
    let at = factors.right + min(row, last) * p.n;
    return vec2<real>(matrices[at + min(column, last)], matrices[at + min(column + 1u, last)]);
}

// Four elements of a stored matrix in a row of a tile. Indices are clamped, so that reads are not
// conditional.
fn row_of(first: u32, row: u32, column: u32) -> vec4<real> {
    let last = p.n - 1u;
    let at = first + min(row, last) * p.n;
    return vec4<real>(matrices[at + min(column, last)], matrices[at + min(column + 1u, last)],
        matrices[at + min(column + 8u, last)], matrices[at + min(column + 9u, last)]);
}

// Four elements of B = mean I + Q h.
fn scaled_row(chain: u32, row: u32, column: u32, scaling: Scaling) -> vec4<real> {
    let last = p.n - 1u;
    let i = chain * p.n + min(row, last);
    let at = i * p.n;
    let stay = max(fma(-exit[i], scaling.h, scaling.mean), real(0));
    return vec4<real>(select(q[at + min(column, last)] * scaling.h, stay, row == column),
        select(q[at + min(column + 1u, last)] * scaling.h, stay, row == column + 1u),
        select(q[at + min(column + 8u, last)] * scaling.h, stay, row == column + 8u),
        select(q[at + min(column + 9u, last)] * scaling.h, stay, row == column + 9u));
}

fn store_row(first: u32, row: u32, column: u32, x: vec4<real>) {
    if row >= p.n { return; }
    let at = first + row * p.n + column;
    if column < p.n { matrices[at] = x.x; }
    if column + 1u < p.n { matrices[at + 1u] = x.y; }
    if column + 8u < p.n { matrices[at + 8u] = x.z; }
    if column + 9u < p.n { matrices[at + 9u] = x.w; }
}

fn store_probabilities(first: u32, row: u32, column: u32, x: vec4<real>) {
    if row >= p.n { return; }
    let at = first + row * p.n + column;
    if column < p.n { transition[at] = probability(x.x); }
    if column + 1u < p.n { transition[at + 1u] = probability(x.y); }
    if column + 8u < p.n { transition[at + 8u] = probability(x.z); }
    if column + 9u < p.n { transition[at + 9u] = probability(x.w); }
}

// Writes a row of a tile of the results of this step. Matrix 0 is B, 1 is C = B², and 3 is X; 2, 4
// and 5 are factors of later products.
fn finish(slot: u32, chain: u32, scaling: Scaling, row: u32, column: u32, product: vec4<real>) {
    let size = p.n * p.n;
    let first = 6u * slot * size;
    var result = product;
    if p.task == 0u {
        result = scaled_row(chain, row, column, scaling);
    } else if p.task == 1u {
        let d = c(2u) * row_of(first, row, column);
        store_row(first + 2u * size, row, column, fma(vec4<real>(c(1u)), product, d));
    } else if p.task == 2u {
        let b = row_of(first, row, column);
        let b2 = row_of(first + size, row, column);
        let l = fma(vec4<real>(c(4u)), b, fma(vec4<real>(c(3u)), b2, product));
        store_row(first + 4u * size, row, column, l);
        store_row(first + 5u * size, row, column, fma(vec4<real>(c(5u)), b2, product));
    } else if p.task == 3u {
        let b = row_of(first, row, column);
        let b2 = row_of(first + size, row, column);
        let x = row_of(first + 3u * size, row, column);
        let y = fma(vec4<real>(c(7u)), b2, fma(vec4<real>(c(6u)), x, product));
        let l = fma(vec4<real>(c(9u)), b, fma(vec4<real>(c(8u)), b2, y));
        result = fma(vec4<real>(c(11u)), b, fma(vec4<real>(c(10u)), x, y));
        // The terms to add to the last product replace X.
        var rest = fma(vec4<real>(c(12u)), y, fma(vec4<real>(c(13u)), x, fma(vec4<real>(c(14u)), b2, b)));
        rest.x = select(rest.x, rest.x + real(1), row == column);
        rest.y = select(rest.y, rest.y + real(1), row == column + 1u);
        rest.z = select(rest.z, rest.z + real(1), row == column + 8u);
        rest.w = select(rest.w, rest.w + real(1), row == column + 9u);
        store_row(first + 2u * size, row, column, l);
        store_row(first + 3u * size, row, column, rest);
    } else if p.task == 4u {
        result = exponential_of(scaling.mean) * (product + row_of(first + 3u * size, row, column));
    }
    if p.stage == scaling.squarings + 1u {
        store_probabilities(chain * size, row, column, result);
    } else {
        store_row(first + p.to * size, row, column, result);
    }
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
    // 32 adjacent threads cover 32 rows and 8 pairs of columns.
    let tile_row = local / 128u * 32u + local % 32u / 4u;
    let tile_pair = local / 32u % 4u * 8u + local % 4u;
    let first = 6u * slot * p.n * p.n;
    let factors = Factors(first + p.left * p.n * p.n, first + p.right * p.n * p.n);
    var sum = Tile();
    if p.task > 0u {
        // Each thread reads two pairs of a panel of 16 lines.
        let row = local / 8u;
        let part = local % 8u;
        let line = local / 16u;
        let pair = local % 16u;
        var l = left_pair(factors, rows + row, 2u * part);
        var l2 = left_pair(factors, rows + row + 32u, 2u * part);
        var r = right_pair(factors, line, columns + 2u * pair);
        var r2 = right_pair(factors, line, columns + 2u * pair + 32u);
        for (var k = 0u; k * 16u < p.n; k++) {
            // Two panels of each factor, in turn.
            let panels = Panels(k % 2u * 1024u, 8u, k % 2u * 1024u + 512u, 32u);
            pairs[place_in(panels.left, 8u, row, part)] = l;
            pairs[place_in(panels.left, 8u, row + 32u, part)] = l2;
            pairs[place_in(panels.right, 32u, line, pair)] = r;
            pairs[place_in(panels.right, 32u, line, pair + 16u)] = r2;
            workgroupBarrier();
            // The next panel is read from global memory while this one is used.
            let next = (k + 1u) * 16u;
            l = left_pair(factors, rows + row, next + 2u * part);
            l2 = left_pair(factors, rows + row + 32u, next + 2u * part);
            r = right_pair(factors, next + line, columns + 2u * pair);
            r2 = right_pair(factors, next + line, columns + 2u * pair + 32u);
            sum = plus_lines(sum, panels, 16u, tile_row, tile_pair);
        }
    }
    if own / (side * side) < p.chains {
        let row = rows + tile_row;
        let column = columns + 2u * tile_pair;
        finish(slot, chain, scaling, row, column, sum.a);
        finish(slot, chain, scaling, row + 8u, column, sum.b);
        finish(slot, chain, scaling, row + 16u, column, sum.c);
        finish(slot, chain, scaling, row + 24u, column, sum.d);
    }
}
