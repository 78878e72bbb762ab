// Parameters of windows, and of the seams between their tiles.

struct Params {
    step: u32,
    rows: u32,     // rows in memory
    n: u32,        // rows of one system; systems are concatenated
    first: u32,    // index of the first row in memory within its system
    at: u32,       // row in memory of the first tile's start
    tiles: u32,
    tile: u32,     // rows of a tile, a multiple of 32
    rhs: u32,      // right-hand sides, each with its own unknowns
    stride: u32,   // distance between two right-hand sides in numbers, even
    levels: u32,   // tridiagonal_window: levels of cyclic reduction
    small: u32,    // tridiagonal_window: a pivot is small up to 4^-small relative to its row
    limit: u32,    // largest certified backward error: 4^-limit
    tiny: u32,     // range of certified products: 4^-(8 tiny) to 4^(8 tiny)
}
var<immediate> p: Params;
