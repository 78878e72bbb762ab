// out_b = sum over the selected rows i of block b of abs(y_i - f x_i); in q64 the factor is given
// as 1 - f. One workgroup adds a block of 256 rows, in a tree order common to all lanes. Moves 2
// numbers and 1 bit per row.
alias real = f64;

@group(0) @binding(0) var<storage, read> factor: array<real>;
@group(0) @binding(1) var<storage, read> among: array<u32>;  // one bit per row
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read> y: array<real>;
@group(0) @binding(4) var<storage, read_write> out: array<real>;

fn term(i: u32) -> Sum {
    if ((among[i >> 5u] >> (i & 31u)) & 1u) == 0u { return none(); }
    return deviation(factor[0], x[p.own + i], y[p.own + i]);
}

@compute @workgroup_size(256)
fn block_defect(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) local: u32) {
    block_of_rows(group.y * groups.x + group.x, local);
}
