// Computes P(t) = e^{Qt} of small chains. P(h), h = t / 2^squarings, is e^-mean times a polynomial
// of degree 16 in B = mean I + Q h; repeated squaring gives P(t). Four products evaluate the
// polynomial by a scheme of J. Sastre (Linear Algebra and its Applications 539, 2018). Each thread
// holds a tile of 4 by 4 elements of each matrix in registers. SIDE by SIDE threads compute a
// matrix product. They exchange panels through workgroup memory: up to 32 columns of the left
// factor, and as many rows of the right one. A matrix to square is stored there completely. Terms
// are summed in groups of 16. Reads n + 1 numbers per state, writes n.
alias real = f64;

struct Params {
    step: u32,
    n: u32,          // states of each chain, at most 4 SIDE
    chains: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<real>;         // generators by rows
@group(0) @binding(1) var<storage, read> exit: array<real>;      // exit rate of each state
@group(0) @binding(2) var<storage, read> alpha: array<real>;     // largest exit rate of each chain
@group(0) @binding(3) var<storage, read> times: array<real>;
@group(0) @binding(4) var<storage, read> coefficients: array<real>;   // 1/k! and c_k
@group(0) @binding(5) var<storage, read_write> transition: array<real>;  // P(t) by rows

override GROUP = 256u;    // threads of a workgroup
override SIDE = 16u;      // tiles along a side of a matrix, a power of two
override DEPTH = 32u;     // columns of a panel, at most 4 SIDE

// Position of a thread's tile: first pair of its chain's panels, row and pair.
struct Place { panel: u32, row: u32, pair: u32 }

fn place_of(local: u32) -> Place {
    let own = local % (SIDE * SIDE);
    let panel = local / (SIDE * SIDE) * 4u * SIDE * DEPTH;
    if SIDE < 8u { return Place(panel, own / SIDE, own % SIDE); }
    // 32 adjacent threads cover 32 rows and 8 pairs.
    let warp = own / 32u;
    let lane = own % 32u;
    let wide = max(SIDE / 4u, 1u);
    return Place(panel, warp / wide * 32u + lane / 4u, warp % wide * 8u + lane % 4u);
}

// Returns the product l r, by panels of DEPTH columns and rows.
fn product(l: Tile, r: Tile, at: Place) -> Tile {
    let width = 2u * SIDE;
    let panels = Panels(at.panel, DEPTH / 2u, at.panel + width * DEPTH, width);
    var sum = Tile();
    for (var k = 0u; k * DEPTH < p.n; k++) {
        workgroupBarrier();
        if 2u * at.pair / DEPTH == k {
            put_tile(panels.left, DEPTH / 2u, width, at.row, at.pair % (DEPTH / 2u), l);
        }
        if at.row / DEPTH == k { put_tile(panels.right, width, width, at.row % DEPTH, at.pair, r); }
        workgroupBarrier();
        sum = plus_lines(sum, panels, min(DEPTH, p.n - k * DEPTH), at.row, at.pair);
    }
    return sum;
}

// Returns the square of x.
fn square(x: Tile, at: Place) -> Tile {
    let width = 2u * SIDE;
    workgroupBarrier();
    put_tile(at.panel, width, width, at.row, at.pair, x);
    workgroupBarrier();
    return plus_lines(Tile(), Panels(at.panel, width, at.panel, width), p.n, at.row, at.pair);
}

fn scaled(factor: real, x: Tile) -> Tile {
    return Tile(factor * x.a, factor * x.b, factor * x.c, factor * x.d);
}

fn plus_scaled(sum: Tile, factor: real, x: Tile) -> Tile {
    let f = vec4<real>(factor);
    return Tile(fma(f, x.a, sum.a), fma(f, x.b, sum.b), fma(f, x.c, sum.c), fma(f, x.d, sum.d));
}

// Element of B = mean I + Q h; 0 beyond n. Indices are clamped, so that reads are not conditional
// and need not wait for each other.
fn element_of(chain: u32, row: u32, column: u32, scaling: Scaling) -> real {
    let last = p.n - 1u;
    let i = chain * p.n + min(row, last);
    let rate = q[i * p.n + min(column, last)];
    let stay = max(fma(-exit[i], scaling.h, scaling.mean), real(0));
    return select(select(rate * scaling.h, stay, row == column), real(0), max(row, column) > last);
}

fn scaled_row(chain: u32, row: u32, column: u32, scaling: Scaling) -> vec4<real> {
    let next = column + 2u * pair_step(2u * SIDE);
    return vec4<real>(element_of(chain, row, column, scaling), element_of(chain, row, column + 1u, scaling),
        element_of(chain, row, next, scaling), element_of(chain, row, next + 1u, scaling));
}

// Adds 1 to elements on the diagonal, also beyond n.
fn plus_one(x: vec4<real>, row: u32, column: u32) -> vec4<real> {
    let next = column + 2u * pair_step(2u * SIDE);
    return vec4<real>(select(x.x, x.x + real(1), row == column),
        select(x.y, x.y + real(1), row == column + 1u), select(x.z, x.z + real(1), row == next),
        select(x.w, x.w + real(1), row == next + 1u));
}

// Writes a pair of elements of P(t).
fn store_pair(chain: u32, row: u32, column: u32, x: vec2<real>) {
    if row >= p.n { return; }
    let at = (chain * p.n + row) * p.n + column;
    if column < p.n { transition[at] = probability(x.x); }
    if column + 1u < p.n { transition[at + 1u] = probability(x.y); }
}

fn store(chain: u32, row: u32, column: u32, x: vec4<real>) {
    store_pair(chain, row, column, x.xy);
    store_pair(chain, row, column + 2u * pair_step(2u * SIDE), x.zw);
}

@compute @workgroup_size(GROUP)
fn exponential(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    let each = GROUP / (SIDE * SIDE);
    let first = (group.y * groups.x + group.x) * each;
    let last = p.chains - 1u;
    // All threads must reach the barriers: those of surplus chains repeat the last one, and those
    // of chains with fewer squarings than others of the workgroup keep their result.
    var jumps = real(0);
    for (var k = first; k < first + each; k++) { jumps = max(jumps, alpha[min(k, last)] * times[min(k, last)]); }
    let most = scaling_of(jumps, real(1)).squarings;
    let own = first + local / (SIDE * SIDE);
    let chain = min(own, last);
    let at = place_of(local);
    let row = at.row;
    let column = 2u * at.pair;
    let step = row_step(2u * SIDE);
    let scaling = scaling_of(alpha[chain], times[chain]);
    let b = Tile(scaled_row(chain, row, column, scaling), scaled_row(chain, row + step, column, scaling),
        scaled_row(chain, row + 2u * step, column, scaling), scaled_row(chain, row + 3u * step, column, scaling));
    let b2 = square(b, at);
    let x = product(b2, plus_scaled(scaled(c(2u), b), c(1u), b2), at);
    let left_of_y = plus_scaled(plus_scaled(x, c(3u), b2), c(4u), b);
    var y = product(left_of_y, plus_scaled(x, c(5u), b2), at);
    y = plus_scaled(plus_scaled(y, c(6u), x), c(7u), b2);
    let left = plus_scaled(plus_scaled(y, c(8u), b2), c(9u), b);
    let right = plus_scaled(plus_scaled(y, c(10u), x), c(11u), b);
    let others = plus_scaled(plus_scaled(plus_scaled(b, c(14u), b2), c(13u), x), c(12u), y);
    let rest = Tile(plus_one(others.a, row, column), plus_one(others.b, row + step, column),
        plus_one(others.c, row + 2u * step, column), plus_one(others.d, row + 3u * step, column));
    var sum = product(left, right, at);
    sum = scaled(exponential_of(scaling.mean), plus_scaled(sum, real(1), rest));
    for (var k = 0u; k < most; k++) {
        let next = square(sum, at);
        if k < scaling.squarings { sum = next; }
    }
    if own < p.chains {
        store(chain, row, column, sum.a);
        store(chain, row + step, column, sum.b);
        store(chain, row + 2u * step, column, sum.c);
        store(chain, row + 3u * step, column, sum.d);
    }
}
