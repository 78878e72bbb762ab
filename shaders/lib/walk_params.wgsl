// The parameters of walks, in blocks or on a grid.

struct Params {
    step: u32,
    groups: u32,       // blocks of a step; walk_grid: of the grid
    first: u32,        // block of step 0
    end: u32,          // one past the last block; walk_grid: tasks, one a thread, or 0
    per_task: u32,     // blocks of a task
    first_point: u32,
    end_point: u32,
    length: u32,       // T
    cut: u32,          // bits of an f32
    sequence: u32,     // 0 Sobol, 3 Philox, 4 a buffer of points
    scramble: u32,     // 0 none, 1 Owen, 2 shift
    tabled: u32,       // dimensions from this one on are Philox's
    seed_low: u32,
    seed_high: u32,
    stride: u32,       // points in a row of the buffer, which begins with first_point
    given: u32,        // walk_lazy: 1, the matrix is L and the right-hand side f; 0, Jacobi's splitting
}
var<immediate> p: Params;
