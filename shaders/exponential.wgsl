// Computes P(t) = e^{Qt} of small chains. P(h), h = t / 2^squarings, is e^-mean times a polynomial of
// degree 16 in B = mean I + Q h; repeated squaring gives P(t). Four products evaluate the polynomial
// by a scheme of J. Sastre (Linear Algebra and its Applications 539, 2018). Each thread holds a tile of 4 by 4 elements of
// each matrix in registers. SIDE by SIDE threads compute a matrix product. They exchange panels
// through workgroup memory: up to 16 columns of the left factor, and as many rows of the right one.
// The terms of one panel are summed first. Reads n + 1 numbers per state, writes n.
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

// Position of a thread's tile: offset of its chain in a panel, tile row and tile column.
struct Place { panel: u32, row: u32, column: u32 }

fn place_of(local: u32) -> Place {
    let own = local % (SIDE * SIDE);
    let panel = local / (SIDE * SIDE) * min(16u, 4u * SIDE) * SIDE;
    if SIDE < 8u { return Place(panel, own / SIDE, own % SIDE); }
    // 32 adjacent threads cover 8 by 4 tiles, so they read few distinct vectors.
    let warp = own / 32u;
    let lane = own % 32u;
    let wide = max(SIDE / 4u, 1u);
    return Place(panel, warp / wide * 8u + lane / 4u, warp % wide * 4u + lane % 4u);
}

// Returns the product l r. `turn` counts the products: consecutive panels alternate between two
// buffers, so one barrier per panel suffices.
fn product(l: Tile, r: Tile, at: Place, turn: u32) -> Tile {
    let depth = min(16u, 4u * SIDE);
    let panels = 4u * SIDE / depth;
    var sum = Tile();
    for (var k = 0u; k < panels; k++) {
        let panel = ((turn * panels + k) % 2u) * PANEL + at.panel;
        if at.column * 4u / depth == k {
            let line = at.column * 4u % depth;
            put_left(place_in(panel, line, SIDE, at.row), vec4<real>(l.a.x, l.b.x, l.c.x, l.d.x));
            put_left(place_in(panel, line + 1u, SIDE, at.row), vec4<real>(l.a.y, l.b.y, l.c.y, l.d.y));
            put_left(place_in(panel, line + 2u, SIDE, at.row), vec4<real>(l.a.z, l.b.z, l.c.z, l.d.z));
            put_left(place_in(panel, line + 3u, SIDE, at.row), vec4<real>(l.a.w, l.b.w, l.c.w, l.d.w));
        }
        if at.row * 4u / depth == k {
            let line = at.row * 4u % depth;
            put_right(place_in(panel, line, SIDE, at.column), r.a);
            put_right(place_in(panel, line + 1u, SIDE, at.column), r.b);
            put_right(place_in(panel, line + 2u, SIDE, at.column), r.c);
            put_right(place_in(panel, line + 3u, SIDE, at.column), r.d);
        }
        workgroupBarrier();
        sum = plus_panel(sum, panel, depth, SIDE, at.row, at.column);
    }
    return sum;
}

// Adds y to the diagonal of a matrix x.
fn plus_diagonal(x: Tile, at: Place, y: vec4<real>) -> Tile {
    if at.row != at.column { return x; }
    let o = real(0);
    return Tile(x.a + vec4<real>(y.x, o, o, o), x.b + vec4<real>(o, y.y, o, o), x.c + vec4<real>(o, o, y.z, o),
        x.d + vec4<real>(o, o, o, y.w));
}

fn scaled(factor: real, x: Tile) -> Tile {
    return Tile(factor * x.a, factor * x.b, factor * x.c, factor * x.d);
}

fn plus_scaled(sum: Tile, factor: real, x: Tile) -> Tile {
    let f = vec4<real>(factor);
    return Tile(fma(f, x.a, sum.a), fma(f, x.b, sum.b), fma(f, x.c, sum.c), fma(f, x.d, sum.d));
}

// Four elements of a row of Q h, from `column`; 0 on the diagonal and beyond n.
fn row_of(chain: u32, row: u32, column: u32, h: real) -> vec4<real> {
    var x = vec4<real>();
    if row < p.n {
        let at = (chain * p.n + row) * p.n + column;
        if column < p.n && column != row { x.x = q[at] * h; }
        if column + 1u < p.n && column + 1u != row { x.y = q[at + 1u] * h; }
        if column + 2u < p.n && column + 2u != row { x.z = q[at + 2u] * h; }
        if column + 3u < p.n && column + 3u != row { x.w = q[at + 3u] * h; }
    }
    return x;
}

fn diagonal_of(chain: u32, row: u32, h: real, mean: real) -> real {
    if row >= p.n { return real(0); }
    return max(fma(-exit[chain * p.n + row], h, mean), real(0));
}

// Writes four elements of P(t).
fn store(chain: u32, row: u32, column: u32, x: vec4<real>) {
    if row >= p.n { return; }
    let at = (chain * p.n + row) * p.n + column;
    if column < p.n { transition[at] = probability(x.x); }
    if column + 1u < p.n { transition[at + 1u] = probability(x.y); }
    if column + 2u < p.n { transition[at + 2u] = probability(x.z); }
    if column + 3u < p.n { transition[at + 3u] = probability(x.w); }
}

@compute @workgroup_size(GROUP)
fn exponential(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    let each = GROUP / (SIDE * SIDE);
    let first = (group.y * groups.x + group.x) * each;
    let last = p.chains - 1u;
    // All threads must reach the barriers: those of surplus chains repeat the last one, and those
    // of chains with fewer squarings than others of the workgroup keep their result.
    var most = real(0);
    for (var k = first; k < first + each; k++) { most = max(most, alpha[min(k, last)] * times[min(k, last)]); }
    let squarings = squarings_of(most);
    let own = first + local / (SIDE * SIDE);
    let chain = min(own, last);
    let at = place_of(local);
    let row = 4u * at.row;
    let column = 4u * at.column;
    let scaling = scaling_of(alpha[chain], times[chain]);
    let h = scaling.h;
    let mean = scaling.mean;
    let scale = scaling.scale;
    let rates = Tile(row_of(chain, row, column, h), row_of(chain, row + 1u, column, h),
        row_of(chain, row + 2u, column, h), row_of(chain, row + 3u, column, h));
    let b = plus_diagonal(rates, at, vec4<real>(diagonal_of(chain, row, h, mean),
        diagonal_of(chain, row + 1u, h, mean), diagonal_of(chain, row + 2u, h, mean),
        diagonal_of(chain, row + 3u, h, mean)));
    let b2 = product(b, b, at, 0u);
    let x = product(b2, plus_scaled(scaled(c(2u), b), c(1u), b2), at, 1u);
    let left_of_y = plus_scaled(plus_scaled(x, c(3u), b2), c(4u), b);
    var y = product(left_of_y, plus_scaled(x, c(5u), b2), at, 2u);
    y = plus_scaled(plus_scaled(y, c(6u), x), c(7u), b2);
    let left = plus_scaled(plus_scaled(y, c(8u), b2), c(9u), b);
    let right = plus_scaled(plus_scaled(y, c(10u), x), c(11u), b);
    let others = plus_scaled(plus_scaled(plus_scaled(b, c(14u), b2), c(13u), x), c(12u), y);
    let rest = plus_diagonal(others, at, vec4<real>(real(1)));
    var sum = product(left, right, at, 3u);
    sum = scaled(scale, plus_scaled(sum, real(1), rest));
    for (var k = 0u; k < squarings; k++) {
        let square = product(sum, sum, at, 4u + k);
        if k < scaling.squarings { sum = square; }
    }
    if own < p.chains {
        store(chain, row, column, sum.a);
        store(chain, row + 1u, column, sum.b);
        store(chain, row + 2u, column, sum.c);
        store(chain, row + 3u, column, sum.d);
    }
}
