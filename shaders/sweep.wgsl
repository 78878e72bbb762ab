// Many steps of step.wgsl for a chain small enough to live in one workgroup: x stays in workgroup memory from the
// first step to the last, and a launch costs once. Launch b runs the steps first + b count up to end.
// One workgroup; one thread the rows local, local + 256, ... The matrix is read from cache at every step.
alias real = f64;

struct Params {
    step: u32,          // number of the launch, from 0
    first: u32,         // step that launch 0 begins with
    count: u32,         // steps of a launch
    end: u32,           // one past the last step of the run
    window_first: u32,  // first step whose weight is not zero
    window_end: u32,    // one past the last
    rows: u32,          // at most 1024
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then the window's weights
@group(0) @binding(5) var<storage, read_write> x: array<real>;  // x_k in, x_{k + steps} out
@group(0) @binding(6) var<storage, read_write> before: array<real>;  // x of one step earlier, out
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

var<workgroup> state: array<real, 2048>;

// Entries, of the x that begins at `base`.
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
