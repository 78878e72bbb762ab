// Products of dense matrices by tiles of 4 by 4 elements, one per thread. Panels of up to 16 lines
// pass through workgroup memory. A line is a column of the left factor or a row of the right one.

// Vectors in half a panel.
override PANEL = 256u;
// Two panels of each factor, in turn. A vector holds 2 elements of a line; the first half of an
// array has elements 0 and 1 of each tile, the second half has elements 2 and 3.
var<workgroup> left: array<vec2<real>, 4u * PANEL>;
var<workgroup> right: array<vec2<real>, 4u * PANEL>;

// Four rows of a tile.
struct Tile { a: vec4<real>, b: vec4<real>, c: vec4<real>, d: vec4<real> }

// Index of the elements of a tile in a line of `side` tiles, a power of two. The order of tiles in
// a line depends on its number: threads that read 4 lines at a time use different memory banks.
fn place_in(panel: u32, line: u32, side: u32, tile: u32) -> u32 {
    return panel + line * side + (tile ^ (2u * (line % 4u) & (side - 1u)));
}

fn put_left(at: u32, x: vec4<real>) {
    left[at] = x.xy;
    left[at + 2u * PANEL] = x.zw;
}

fn put_right(at: u32, x: vec4<real>) {
    right[at] = x.xy;
    right[at + 2u * PANEL] = x.zw;
}

// Adds the products of lines `line` to `line` + 3 to a tile, in order. `half` is the distance of an
// array's halves. If there are 8 or more tiles in a line, 32 adjacent threads must have tiles of 8
// rows and 4 columns: thread 4 i + j has tile row i and tile column j, counted from a multiple of 8
// and of 4. CUDA has its own text.
fn plus_four_lines(sum: Tile, panel: u32, half: u32, line: u32, side: u32, row: u32, column: u32) -> Tile {
    var s = sum;
    for (var k = line; k < line + 4u; k++) {
        let at = place_in(panel, k, side, row);
        let l = vec4<real>(left[at], left[at + half]);
        let to = place_in(panel, k, side, column);
        let r = vec4<real>(right[to], right[to + half]);
        s = Tile(fma(vec4<real>(l.x), r, s.a), fma(vec4<real>(l.y), r, s.b), fma(vec4<real>(l.z), r, s.c),
            fma(vec4<real>(l.w), r, s.d));
    }
    return s;
}

// Adds the products of the first `lines` lines of a panel to a tile. `lines` is a multiple of 4.
fn plus_panel(sum: Tile, panel: u32, lines: u32, side: u32, row: u32, column: u32) -> Tile {
    var some = Tile();
    for (var line = 0u; line < lines; line += 4u) {
        some = plus_four_lines(some, panel, 2u * PANEL, line, side, row, column);
    }
    return Tile(sum.a + some.a, sum.b + some.b, sum.c + some.c, sum.d + some.d);
}
