// Checks the rows on both sides of the borders between tiles, with the unknowns of the two tiles,
// and counts the uncertified tiles of each 256, these rows included. One thread per tile and
// right-hand side, which also checks the border before the tile. Reads 13 numbers and 4 bytes per
// tile, writes 4 bytes per 256 tiles.
alias real = f64;

@group(0) @binding(0) var<storage, read> dl: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> du: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;
@group(0) @binding(4) var<storage, read> x: array<real>;
// One per tile, then one per 256 tiles.
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

@compute @workgroup_size(256)
fn tridiagonal_seam(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let at = index * 256u + local;
    let tile = at / p.rhs;
    let beside = (at % p.rhs) * p.stride;
    var bad = 0u;
    if tile < p.tiles {
        bad = flags[at];
        let row = p.at + tile * p.tile;
        if tile > 0u && row < p.rows {
            let before = is_certified(row_at(row - 1u, beside), unknowns_at(row - 1u, beside), p.limit, p.tiny);
            let behind = is_certified(row_at(row, beside), unknowns_at(row, beside), p.limit, p.tiny);
            bad = select(1u, bad, before && behind);
        }
    }
    let all = tree(local, bad);
    let count = p.tiles * p.rhs;
    if local == 0u && index * 256u < count { flags[count + index] = all; }
}

alias Value = u32;

fn join(a: u32, b: u32) -> u32 { return a + b; }

// Returns a row, without the elements beyond the ends of its system.
fn row_at(row: u32, beside: u32) -> vec4<real> {
    let place = (p.first + row) % p.n;
    let a = select(dl[row], real(0), place == 0u);
    let c = select(du[row], real(0), place + 1u == p.n);
    return vec4<real>(a, d[row], c, rhs[beside + row]);
}

// Returns a row's unknown and its neighbours; there are at least 64 rows before it.
fn unknowns_at(row: u32, beside: u32) -> vec3<real> {
    let behind = min(row + 1u, p.rows - 1u);
    return vec3<real>(x[beside + row - 1u], x[beside + row], select(real(0), x[beside + behind], behind > row));
}
