// Many steps of step.wgsl in one launch, for a chain that fits in one workgroup. x stays in
// workgroup memory from the first step to the last. Launch b runs `count` steps from first + b
// count on, at most up to `end`. One workgroup; thread `local` computes the rows local, local +
// 256, ... The matrix is read from cache in every step.
alias real = f64;

struct Params {
    step: u32,          // index of the launch, from 0
    first: u32,         // first step of launch 0
    count: u32,         // steps per launch
    end: u32,           // exclusive end of the run's steps
    window_first: u32,  // first step with a nonzero weight
    window_end: u32,    // exclusive end
    rows: u32,          // at most 1024
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> exit: array<real>;
// 1/alpha, then the window's weights.
@group(0) @binding(4) var<storage, read> scalars: array<real>;
@group(0) @binding(5) var<storage, read_write> x: array<real>;  // in: x_k, out: x_{k + steps}
@group(0) @binding(6) var<storage, read_write> before: array<real>;  // out: x of one step earlier
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

var<workgroup> state: array<real, 2048>;

// Entries, applied to the x that begins at `base`.
struct Entry { value: real, column: u32 }
fn entry(e: u32) -> Entry { return Entry(values[e], columns[e]); }
fn entry_x(base: u32, entry: Entry) -> real { return state[base + entry.column]; }
fn entry_value(entry: Entry) -> real { return entry.value; }

@compute @workgroup_size(256)
fn sweep(@builtin(local_invocation_index) local: u32) {
    let first = p.first + p.step * p.count;
    let end = min(first + p.count, p.end);
    for (var i = local; i < p.rows; i += 256u) { state[i] = x[i]; }
    workgroupBarrier();
    var from_ = 0u;
    for (var k = first; k < end; k++) {
        let to = 1024u - from_;
        for (var i = local; i < p.rows; i += 256u) {
            let own = state[from_ + i];
            let s = row_sum(i, from_, with_own(exit[i], own, no_products()));
            state[to + i] = stepped(s, exit[i], own, scalars[0]);
            if k >= p.window_first && k < p.window_end {
                acc[i] = weighted(scalars[1u + k - p.window_first], own, acc[i]);
            }
        }
        workgroupBarrier();
        from_ = to;
    }
    for (var i = local; i < p.rows; i += 256u) {
        x[i] = state[from_ + i];
        before[i] = state[1024u - from_ + i];
    }
}
