// Reduces 128 rows a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i to a unit: its first and last unknown
// as functions of the unknowns next to it. They are x_first = u0 - u1 x_left - u2 x_right and
// x_last = u3 - u4 x_left - u5 x_right. A thread eliminates 8 rows downwards, two with one
// division; a tree of 4 levels joins 16 threads to a unit. Reads 4 numbers per row, writes 6 per
// unit. The flags of a unit count its small pivots; bit 31 is set if a row is not dominant.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; systems are concatenated
    first: u32,   // index of the chunk's first row within its system
    cyclic: u32,  // 1: the system is cyclic and uses the ends of its diagonals
    small: u32,   // pivots of at most 4^-small relative to their row are flagged
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> units: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 8u;      // rows of a thread
const THREADS: u32 = 16u;  // threads of a unit

var<workgroup> flag: array<u32, 272>;

@compute @workgroup_size(256)
fn tridiagonal_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let row = (tile * 256u + local) * ROWS;
    let small = share_of(p.small);
    var s = sweep_from((p.first + row) % p.n);
    if row < p.rows {
        let pair = row >> 1u;
        let rows0 = rows_at(pair); let rows1 = rows_at(pair + 1u);
        let rows2 = rows_at(pair + 2u); let rows3 = rows_at(pair + 3u);
        let cut = p.cyclic == 0u;
        s = with_pair(s, rows0, row + 0u < p.rows, row + 1u < p.rows, cut, small);
        s = with_pair(s, rows1, row + 2u < p.rows, row + 3u < p.rows, cut, small);
        s = with_pair(s, rows2, row + 4u < p.rows, row + 5u < p.rows, cut, small);
        s = with_pair(s, rows3, row + 6u < p.rows, row + 7u < p.rows, cut, small);
    }
    let own = slot(local);
    lay(own, s.unit);
    flag[own] = s.bad;
    for (var half = 1u; half < THREADS; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let two = joined(unit_in(a), unit_in(b));
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(two.det) <= small);
            lay(b, two.whole);
        }
    }
    workgroupBarrier();
    let unit = tile * (256u / THREADS) + local;
    if local < 256u / THREADS && unit * (ROWS * THREADS) < p.rows {
        let all = slot((local + 1u) * THREADS - 1u);
        units[3u * unit] = vec2<real>(u0[all], u1[all]);
        units[3u * unit + 1u] = vec2<real>(u2[all], u3[all]);
        units[3u * unit + 2u] = vec2<real>(u4[all], u5[all]);
        flags[unit] = flag[all];
    }
}
