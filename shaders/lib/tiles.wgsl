// Products of dense matrices by tiles of 4 by 4 elements, one per thread. Factors, or panels of
// them, pass through workgroup memory by rows. A panel has some columns of the left factor, or as
// many rows of the right one. Lines are columns of the left factor and rows of the right one.

// Number of terms per group of a sum, a multiple of 4.
override GROUPED = 16u;
// Pairs of adjacent elements in workgroup memory.
override PAIRS = 2048u;
var<workgroup> pairs: array<vec2<real>, PAIRS>;

// Four rows of a tile; each has two pairs of adjacent elements. `row_step` and `pair_step` are the
// distances of rows and pairs.
struct Tile { a: vec4<real>, b: vec4<real>, c: vec4<real>, d: vec4<real> }

// Panels of two factors: their first pair, and the number of pairs in a row, a power of two.
struct Panels { left: u32, left_width: u32, right: u32, right_width: u32 }

// Distance of the rows of a tile in a matrix with `width` pairs in a row.
fn row_step(width: u32) -> u32 { return min(width / 2u, 8u); }

// Distance of the pairs of a tile.
fn pair_step(width: u32) -> u32 { return min(width / 2u, 4u); }

// Index of a pair of a panel. The order of pairs in a row depends on the row's number, so that
// adjacent threads use different memory banks.
fn place_in(panel: u32, width: u32, row: u32, pair: u32) -> u32 {
    let order = ((row & 1u) << 2u) | (row & 2u);
    return panel + row * width + (pair ^ (order & (width - 1u)));
}

// Stores the row of a tile; `step` is the distance of its pairs.
fn put_row(panel: u32, width: u32, row: u32, pair: u32, step: u32, x: vec4<real>) {
    pairs[place_in(panel, width, row, pair)] = x.xy;
    pairs[place_in(panel, width, row, pair + step)] = x.zw;
}

// Stores a tile of a matrix with `whole` pairs in a row.
fn put_tile(panel: u32, width: u32, whole: u32, row: u32, pair: u32, x: Tile) {
    let down = row_step(whole);
    let right = pair_step(whole);
    put_row(panel, width, row, pair, right, x.a);
    put_row(panel, width, row + down, pair, right, x.b);
    put_row(panel, width, row + 2u * down, pair, right, x.c);
    put_row(panel, width, row + 3u * down, pair, right, x.d);
}

fn left_element(panels: Panels, row: u32, line: u32) -> real {
    return pairs[place_in(panels.left, panels.left_width, row, line / 2u)][line % 2u];
}

// Adds the products of lines `line` to `line` + 3 to the tile at `row` and `pair`, in order. If the
// right panel has 16 pairs in a row or more, 32 adjacent threads must cover 32 rows and 8 pairs:
// thread 4 i + j has row i and pair j, counted from multiples of 32 and 8. CUDA has its own text.
fn plus_four_lines(sum: Tile, panels: Panels, line: u32, row: u32, pair: u32) -> Tile {
    let down = row_step(panels.right_width);
    let right = pair_step(panels.right_width);
    var s = sum;
    for (var k = line; k < line + 4u; k++) {
        let r = vec4<real>(pairs[place_in(panels.right, panels.right_width, k, pair)],
            pairs[place_in(panels.right, panels.right_width, k, pair + right)]);
        s = Tile(fma(vec4<real>(left_element(panels, row, k)), r, s.a),
            fma(vec4<real>(left_element(panels, row + down, k)), r, s.b),
            fma(vec4<real>(left_element(panels, row + 2u * down, k)), r, s.c),
            fma(vec4<real>(left_element(panels, row + 3u * down, k)), r, s.d));
    }
    return s;
}

// Adds the products of the first `lines` lines of panels, and of lines up to a multiple of GROUPED.
// The latter add 0 to elements within n, since the left factor is 0 there.
fn plus_lines(sum: Tile, panels: Panels, lines: u32, row: u32, pair: u32) -> Tile {
    var s = sum;
    for (var k = 0u; k * GROUPED < lines; k++) {
        var some = Tile();
        for (var line = 0u; line < GROUPED; line += 4u) {
            some = plus_four_lines(some, panels, k * GROUPED + line, row, pair);
        }
        s = Tile(s.a + some.a, s.b + some.b, s.c + some.c, s.d + some.d);
    }
    return s;
}
