// acc_i += w_step x_i. One thread an element. Moves 3 numbers an element.
alias real = f64;

struct Params { step: u32, window_first: u32, rows: u32, own: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> scalars: array<real>;  // 1/alpha, then the window's weights
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read_write> acc: array<real>;

@compute @workgroup_size(256)
fn accumulate(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    acc[i] = fma(scalars[1u + p.step - p.window_first], x[p.own + i], acc[i]);
}
