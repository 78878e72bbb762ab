// Random walks. out_b = sum over the walks i of block b of theta_i = sum over k <= T of W_k g(s_k).
// Here s_k is the row and W_k the weight after k steps; s_0 is the task's row, W_0 = 1. One thread
// per walk. One workgroup adds 256 walks of one task, in a tree order common to all lanes.
//
// A step from a row takes the first entry with a distribution function above the point's next
// coordinate. It multiplies W by the row's sum and the entry's sign (almost optimal walks). A walk
// ends after T steps, or when |W| <= cut, as in a row without entries.
//
// Per step, reads 64 bytes of one record, and 32 for each 4 entries from the seventh up to the one
// taken. Also reads 16 bytes of the sequence's table for every 4 bits of the point's index, the
// same for all threads.
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
