// Solution of a block tridiagonal system with blocks of 2 by 2 by overlapping tiles (truncated
// SPIKE). Each window of 512 block rows is solved on its own, and the tile in its middle is kept.
// With p.seam, checks the rows at the borders of tiles instead. Reads 7 numbers per row and writes
// 1. Writes a flag per tile, nonzero if it is not certified.
alias real = f64;

// Two numbers per row.
@group(0) @binding(0) var<storage, read> lower: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> diagonal: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> upper: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec2<real>>;
// One per tile, then one per 128 tiles.
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

@compute @workgroup_size(GROUP)
fn block_window(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    windows(group.y * groups.x + group.x, local);
}

fn block_row(k: u32) -> BlockRow {
    return BlockRow(
        vec4<real>(lower[2u * k], lower[2u * k + 1u]),
        vec4<real>(diagonal[2u * k], diagonal[2u * k + 1u]),
        vec4<real>(upper[2u * k], upper[2u * k + 1u]),
        rhs[k],
    );
}
