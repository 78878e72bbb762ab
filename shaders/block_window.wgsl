// Windows of 512 block rows of a block tridiagonal matrix with blocks of 2 by 2, each solved as if nothing lay around it, of
// which the tile in the middle is kept; or the rows at the borders of tiles.
// Reads 7 numbers a row, writes 1, and of a tile whether it is not certified.
alias real = f64;

// Two numbers a row.
@group(0) @binding(0) var<storage, read> lower: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> diagonal: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> upper: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;   // of the tiles, then of each 128 of them

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
