// out_b = sum over the walks i of block b of theta_i = sum over k <= T of W_k g(s_k), s_0 = the task's row, W_0 = 1.
// One thread a walk, 256 walks of one task a workgroup, added as a tree that is the same on every lane. A step from a
// row takes the first entry whose distribution function exceeds the point's next coordinate, and W times the row's sum
// and the entry's sign (almost optimal walks). A walk ends after T steps, or once |W| <= cut, as in a row without entries.
// Reads 64 bytes, and 32 for each 4 entries from the seventh up to the one that is taken, of one record a step; 16 bytes of
// the sequence's table for every 4 bits of the point's number, the same for all threads.
alias real = f64;

@group(0) @binding(3) var<storage, read_write> out: array<real>;

alias Value = real;

fn join(a: Value, b: Value) -> Value { return a + b; }

fn tally(weight: real, head: vec4<u32>, theta: Value) -> Value { return fma(weight, number(head.x, head.y), theta); }

@compute @workgroup_size(256)
fn walk(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let member = group.y * groups.x + group.x;
    let block = p.first + p.step * p.groups + member;
    if member >= p.groups || block >= p.end { return; }
    walk_block(block, local);
}
