// Parameters of random walks.

struct Params {
    step: u32,
    groups: u32,       // blocks per step
    first: u32,        // block of step 0
    end: u32,          // exclusive end of the blocks
    per_task: u32,     // blocks of a task
    first_point: u32,
    end_point: u32,
    length: u32,       // maximum number of steps, T
    cut: u32,          // threshold of the weight, as bits of an f32
    scramble: u32,     // 0 none, 1 Owen, 2 shift
    tabled: u32,       // first dimension that Philox generates
    seed_low: u32,
    seed_high: u32,
}
var<immediate> p: Params;
