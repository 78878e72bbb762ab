// Random walks on a grid. out_g = sum over the threads t of group g of theta(t) + theta(t +
// threads) + ..., the walks of walk.wgsl from one row. They are distributed over a grid with a
// given number of groups, as in Lai, Jin, Guo and Lin 2015, fig. 1. Reads the data of walk.wgsl.
alias real = f64;

@group(0) @binding(3) var<storage, read_write> out: array<real>;

alias Value = real;

fn join(a: Value, b: Value) -> Value { return a + b; }

fn tally(weight: real, head: vec4<u32>, theta: Value) -> Value { return fma(weight, number(head.x, head.y), theta); }

@compute @workgroup_size(GROUP)
fn walk_grid(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    let member = group.y * groups.x + group.x;
    let thread = member * GROUP + local;
    // No early return, so that compilers can prove that all threads of a group, or none, reach the
    // barriers of the tree.
    if member < p.groups {
        let task = tasks[0];
        var theta = real(0);
        for (var point = p.first_point + thread; point < p.end_point; point += p.groups * GROUP) {
            theta += walk_from(task.x, point, task.y, task.zw);
        }
        let sum = tree(local, theta);
        if local == 0u { out[member] = sum; }
    }
}
