// Stage 1: a block of rows becomes two rows of the interface system. The rows are a_i x_{i-1} + b_i
// x_i + c_i x_{i+1} = d_i. The two new rows are a_0 x_before + u x_first + v x_last = r and v'
// x_first + u' x_last + c_last x_after = r'.
//
// One thread per block eliminates once downwards and once upwards. The pivot row is
// the running row or the next: the one with the larger element relative to its own size. This adds
// at most one element to a row. Reads 8 numbers per row, the second four from cache, and writes 8
// per block.
alias real = f64;

// Interface system: dl, d, du, rhs.
@group(0) @binding(4) var<storage, read_write> above: array<real>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;   // one per workgroup

alias Value = u32;

fn join(a: Value, b: Value) -> Value { return both_flags(a, b); }

// The row that runs through a block: v x_kept + u x_i + w x_{i+1} = r.
struct Running { v: real, u: real, w: real, r: real, size: real, bad: u32 }

fn eliminate_block(s: Running, next: Row, small: real) -> Running {
    let own = size(next.a, next.b, next.c);
    let exchange = abs(next.a) * s.size > abs(s.u) * own;
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
    let small = share_of(p.small);
    var bad = 0u;
    if block < p.blocks {
        let ends = ends_of(block);
        let start = ends.x;
        let end = ends.y;
        let head = row(start);
        let second = row(start + 1u);
        var loose = abs(head.b) < abs(head.a) + abs(head.c) || abs(second.b) < abs(second.a) + abs(second.c);
        var s = Running(second.a, second.b, second.c, second.d, size(second.a, second.b, second.c), 0u);
        for (var i = start + 2u; i < end; i++) {
            let next = row(i);
            loose = loose || abs(next.b) < abs(next.a) + abs(next.c);
            s = eliminate_block(s, next, small);
        }
        let low = 2u * block + 1u;
        let count = 2u * p.blocks;
        above[low] = s.v;
        above[count + low] = s.u;
        above[2u * count + low] = s.w;
        above[3u * count + low] = s.r;
        bad = s.bad;

        // Upwards: left and right are exchanged.
        let tail = row(end - 2u);
        s = Running(tail.c, tail.b, tail.a, tail.d, size(tail.a, tail.b, tail.c), 0u);
        for (var i = end - 2u; i > start; i--) {
            let next = row(i - 1u);
            s = eliminate_block(s, Row(next.c, next.b, next.a, next.d), small);
        }
        above[low - 1u] = s.w;
        above[count + low - 1u] = s.u;
        above[2u * count + low - 1u] = s.v;
        above[3u * count + low - 1u] = s.r;
        bad = (bad + s.bad) | select(0u, 0x80000000u, loose);
    }
    let all = tree(local, bad);
    if local == 0u && block < p.blocks { flags[block / 256u] = all; }
}
