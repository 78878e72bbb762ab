// Solution of a pentadiagonal system by overlapping tiles (truncated SPIKE), as a block tridiagonal
// system with blocks of 2 by 2. Each window of 1024 rows is solved on its own, and the tile in its
// middle is kept. With p.seam, checks the rows at the borders of tiles instead. Reads 6 numbers per
// row and writes 1. Writes a flag per tile, nonzero if it is not certified.
alias real = f64;

@group(0) @binding(0) var<storage, read> dl2: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(4) var<storage, read> du2: array<vec2<real>>;
@group(0) @binding(5) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(6) var<storage, read_write> x: array<vec2<real>>;
// One per tile, then one per 128 tiles.
@group(0) @binding(7) var<storage, read_write> flags: array<u32>;

@compute @workgroup_size(GROUP)
fn pentadiagonal_window(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    windows(group.y * groups.x + group.x, local);
}

fn block_row(k: u32) -> BlockRow {
    let a2 = dl2[k]; let a = dl[k]; let b = d[k]; let c = du[k]; let c2 = du2[k];
    return BlockRow(vec4<real>(a2.x, a.x, real(0), a2.y), vec4<real>(b.x, c.x, a.y, b.y), vec4<real>(c2.x, real(0), c.y, c2.y), rhs[k]);
}
