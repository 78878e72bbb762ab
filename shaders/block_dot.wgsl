// out_b = sum over the rows i of block b of r_i x_i. One workgroup adds a block of 256 rows, in a
// tree order common to all lanes. Moves 2 numbers per row.
alias real = f64;

@group(0) @binding(0) var<storage, read> r: array<real>;
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read_write> out: array<real>;

fn term(i: u32) -> Sum { return product(r[i], x[p.own + i]); }

@compute @workgroup_size(256)
fn block_dot(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    block_of_rows(group.y * groups.x + group.x, local);
}
