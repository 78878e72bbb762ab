// The parameters of windows and of the seams between their tiles.

struct Params {
    step: u32,
    rows: u32,     // rows in memory
    n: u32,        // rows of one system; several lie one behind the other
    first: u32,    // the first row in memory, counted inside its system
    at: u32,       // the row in memory with which the first tile begins
    tiles: u32,
    tile: u32,     // rows of a tile, a multiple of 32
    rhs: u32,      // right-hand sides, each with its unknowns
    stride: u32,   // numbers between two of them, an even one
    levels: u32,   // tridiagonal_window: levels of cyclic reduction
    small: u32,    // tridiagonal_window: pivots of at most 4^-small of their row are small
    limit: u32,    // rows are certified up to a backward error of 4^-limit
    tiny: u32,     // and if their products lie between 4^-(8 tiny) and 4^(8 tiny)
}
var<immediate> p: Params;
