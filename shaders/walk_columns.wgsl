// Random walks for four right-hand sides at a time. out_b = sum over the walks i of block b of
// theta_i = sum over k <= T of W_k g(s_k), for four columns g. Here s_k is the row and W_k the
// weight after k steps; s_0 is the task's row, W_0 = 1. As walk.wgsl, except that a record has the
// index of its row instead of g, and g is in an array. One thread per walk. One workgroup adds 256
// walks of one task, in a tree order common to all lanes. Reads 4 numbers per step in addition to
// those of walk.wgsl.
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
