// acc_i += w_k x_i, and at even steps also acc_i += w_{k+1} y_i. One thread per element. Moves 4
// numbers per element in every second step.
alias real = f64;

struct Params {
    step: u32,          // index of the step, from 0
    window_first: u32,  // first step that adds its term
    window_end: u32,    // exclusive end
    weights: u32,       // step of the first weight
    rows: u32,
    own: u32,           // index of the first own row in x and y
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> y: array<real>;        // the iterate after x
@group(0) @binding(3) var<storage, read_write> acc: array<real>;

@compute @workgroup_size(256)
fn accumulate(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    let even = (p.step & 1u) == 0u;
    if p.step < p.window_first || p.step >= p.window_end || !(even || p.step == p.window_first) { return; }
    let w = 1u + p.step - p.weights;
    var sum = weighted(scalars[w], x[p.own + i], acc[i]);
    if even && p.step + 1u < p.window_end { sum = weighted(scalars[w + 1u], y[p.own + i], sum); }
    acc[i] = sum;
}
