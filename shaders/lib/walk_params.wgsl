// The parameters of walks in blocks.

struct Params {
    step: u32,
    groups: u32,       // blocks of a step
    first: u32,        // block of step 0
    end: u32,          // one past the last block
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
}
var<immediate> p: Params;
