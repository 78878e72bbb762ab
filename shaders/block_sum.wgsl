// out_b = sum over the rows i of block b of x_i.
// One workgroup a block of 256 rows, added as a tree that is the same on every lane. Moves 1 number a row.
alias real = f64;

struct Params { step: u32, rows: u32, own: u32, out: u32, out_step: u32, first_step: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<real>;
@group(0) @binding(1) var<storage, read_write> out: array<real>;

var<workgroup> sums: array<real, 256>;

@compute @workgroup_size(256)
fn block_sum(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let block = group.y * groups.x + group.x;
    let i = block * 256u + local;
    var s = real(0);
    if i < p.rows { s = x[p.own + i]; }
    sums[local] = s;
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { sums[local] += sums[local + half]; }
    }
    if local == 0u && i < p.rows { out[p.out + (p.step - p.first_step) * p.out_step + block] = sums[0]; }
}
