// out_b = sum over the walks i of block b of theta_i = sum over k <= T of W_k g(s_k), s_0 = the task's row, W_0 = 1, for
// four columns g at once, those of four right-hand sides. As walk, but that a record holds the number of its row in the
// place of g, and g lies in an array. One thread a walk, 256 walks of one task a workgroup, added as a tree that is the
// same on every lane. Reads 4 numbers a step beside what walk reads.
alias real = f64;

@group(0) @binding(3) var<storage, read> columns: array<vec4<real>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<real>>;

alias Value = vec4<real>;

fn join(a: Value, b: Value) -> Value { return a + b; }

fn tally(weight: real, head: vec4<u32>, theta: Value) -> Value { return fma(vec4(weight), columns[head.x], theta); }

@compute @workgroup_size(256)
fn walk_columns(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) local: u32) {
    let member = group.y * groups.x + group.x;
    let block = p.first + p.step * p.groups + member;
    if member >= p.groups || block >= p.end { return; }
    walk_block(block, local);
}
