// Stage 1: a block of rows a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i becomes two rows of the interface system,
// a_0 x_before + u x_first + v x_last = r and v' x_first + u' x_last + c_last x_after = r'.
// One thread a block, once down and once up; with pivoting, of the running row and the next the one with the larger
// element against its own size is the pivot, which adds no more than one element to a row.
// Reads 8 numbers a row, the second four from cache, and writes 8 a block.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; several lie one behind the other
    first: u32,   // the chunk's first row, counted inside its system
    blocks: u32,  // the first rows % blocks of them have a row more
    pivot: u32,   // 1: rows may be exchanged
    small: u32,   // pivots of at most 4^-small of their row are replaced by that, and counted
    at_dl: u32,   // where the diagonals begin in their arrays
    at_d: u32,
    at_du: u32,
    at_rhs: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> du: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;
@group(0) @binding(4) var<storage, read_write> above: array<real>;  // the interface system: dl, d, du, rhs
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;   // of each workgroup

var<workgroup> flag: array<u32, 256>;

struct Row { a: real, b: real, c: real, d: real }

fn row(i: u32) -> Row {
    let place = (p.first + i) % p.n;
    var r = Row(real(0), d[p.at_d + i], real(0), rhs[p.at_rhs + i]);
    if place > 0u { r.a = dl[p.at_dl + i]; }
    if place + 1u < p.n { r.c = du[p.at_du + i]; }
    return r;
}

fn size(a: real, b: real, c: real) -> real { return max(abs(a), max(abs(b), abs(c))); }

// v x_kept + u x_i + w x_{i+1} = r, the row that runs through a block.
struct Running { v: real, u: real, w: real, r: real, size: real, bad: u32 }

fn eliminate(s: Running, next: Row, small: real) -> Running {
    let own = size(next.a, next.b, next.c);
    let exchange = p.pivot == 1u && abs(next.a) * s.size > abs(s.u) * own;
    let pv = select(s.v, real(0), exchange);
    var pu = select(s.u, next.a, exchange);
    let pw = select(s.w, next.b, exchange);
    let pz = select(real(0), next.c, exchange);
    let pr = select(s.r, next.d, exchange);
    let least = small * select(s.size, own, exchange);
    let tiny = abs(pu) <= least;
    if tiny { pu = select(max(least, small), -max(least, small), pu < real(0)); }
    let q = select(next.a, s.u, exchange) / pu;
    return Running(
        fma(-q, pv, select(real(0), s.v, exchange)),
        fma(-q, pw, select(next.b, s.w, exchange)),
        fma(-q, pz, select(next.c, real(0), exchange)),
        fma(-q, pr, select(next.d, s.r, exchange)),
        select(own, s.size, exchange),
        s.bad + select(0u, 1u, tiny),
    );
}

@compute @workgroup_size(256)
fn tridiagonal_block_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 256u + local;
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    var bad = 0u;
    if block < p.blocks {
        let length = p.rows / p.blocks;
        let longer = p.rows % p.blocks;
        let start = block * length + min(block, longer);
        let end = start + length + select(0u, 1u, block < longer);
        let head = row(start);
        let second = row(start + 1u);
        var loose = abs(head.b) < abs(head.a) + abs(head.c) || abs(second.b) < abs(second.a) + abs(second.c);
        var s = Running(second.a, second.b, second.c, second.d, size(second.a, second.b, second.c), 0u);
        for (var i = start + 2u; i < end; i++) {
            let next = row(i);
            loose = loose || abs(next.b) < abs(next.a) + abs(next.c);
            s = eliminate(s, next, small);
        }
        let low = 2u * block + 1u;
        let count = 2u * p.blocks;
        above[low] = s.v;
        above[count + low] = s.u;
        above[2u * count + low] = s.w;
        above[3u * count + low] = s.r;
        bad = s.bad;

        // The other way round: left is right.
        let tail = row(end - 2u);
        s = Running(tail.c, tail.b, tail.a, tail.d, size(tail.a, tail.b, tail.c), 0u);
        for (var i = end - 2u; i > start; i--) {
            let next = row(i - 1u);
            s = eliminate(s, Row(next.c, next.b, next.a, next.d), small);
        }
        above[low - 1u] = s.w;
        above[count + low - 1u] = s.u;
        above[2u * count + low - 1u] = s.v;
        above[3u * count + low - 1u] = s.r;
        bad = (bad + s.bad) | select(0u, 0x80000000u, loose);
    }
    flag[local] = bad;
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half {
            let other = flag[local + half];
            flag[local] = ((flag[local] | other) & 0x80000000u) | ((flag[local] & 0x7fffffffu) + (other & 0x7fffffffu));
        }
    }
    if local == 0u && block < p.blocks { flags[block / 256u] = flag[0]; }
}
