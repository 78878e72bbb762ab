// Solution of whole systems of up to 2048 rows, one or more in a tile, independently of other
// tiles. A thread eliminates 8 rows downwards, two with one division. A tree joins the threads of a
// system, then passes the unknowns between them down, and each thread substitutes backwards. Reads
// 4 numbers per row and writes 1. Adjacent groups solve one tile for different right-hand sides, so
// that all but one read the three diagonals from cache. The flags of a tile count its small pivots;
// bit 31 is set if a row is not dominant.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of all systems, which are concatenated
    n: u32,       // rows of one system
    tile: u32,    // rows of a tile, whole systems; even if there are several tiles
    span: u32,    // number of threads that are joined, a power of two
    small: u32,   // pivots of at most 4^-small relative to their row are flagged
    rhs: u32,     // right-hand sides, each with its own unknowns
    stride: u32,  // distance between two right-hand sides in numbers, even
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 8u;      // rows of a thread

var<workgroup> flag: array<u32, 272>;

@compute @workgroup_size(256)
fn tridiagonal_batch(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let tile = index / p.rhs;
    if tile * p.tile >= p.rows { return; }
    let beside = (index % p.rhs) * (p.stride >> 1u);
    let small = share_of(p.small);
    // A tile has p.tile rows; the last one may have fewer.
    let end = min(p.tile, p.rows - tile * p.tile);
    let at = local * ROWS;
    let pair = (tile * p.tile + at) >> 1u;
    var s = sweep_from(at % p.n);
    var pair0 = Pair(); var pair1 = Pair(); var pair2 = Pair(); var pair3 = Pair();
    if at < end {
        let rows0 = rows_of(pair, beside); let rows1 = rows_of(pair + 1u, beside);
        let rows2 = rows_of(pair + 2u, beside); let rows3 = rows_of(pair + 3u, beside);
        s = with_pair(s, rows0, at + 0u < end, at + 1u < end, true, small);
        pair0 = s.pair;
        s = with_pair(s, rows1, at + 2u < end, at + 3u < end, true, small);
        pair1 = s.pair;
        s = with_pair(s, rows2, at + 4u < end, at + 5u < end, true, small);
        pair2 = s.pair;
        s = with_pair(s, rows3, at + 6u < end, at + 7u < end, true, small);
        pair3 = s.pair;
    }
    let own = slot(local);
    lay(own, s.unit);
    flag[own] = s.bad;
    for (var half = 1u; half < p.span; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let two = joined(unit_in(a), unit_in(b));
            flag[b] = both_flags(flag[a], flag[b]) + select(0u, 1u, abs(two.det) <= small);
            lay(b, two.whole);
            // The left slot now holds the unknowns between the two units.
            lay(a, two.between);
        }
    }
    workgroupBarrier();
    // Flags of the joined threads are added once for all right-hand sides.
    if local == 0u && beside == 0u {
        var all = 0u;
        for (var last = p.span - 1u; last < 256u; last += p.span) { all = both_flags(all, flag[slot(last)]); }
        flags[tile] = all;
    }
    for (var half = p.span >> 1u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let start = 2u * local * half;
            let between = slot(start + half - 1u);
            let last = start + 2u * half - 1u;
            var left = real(0);
            var right = real(0);
            if start % p.span > 0u { left = u0[slot(start - 1u)]; }
            if last % p.span < p.span - 1u { right = u1[slot(last)]; }
            resolve(between, left, right);
        }
    }
    workgroupBarrier();
    if at < end {
        let kept = beside + pair;
        var left = real(0);
        var next = real(0);
        if local % p.span > 0u { left = u0[slot(local - 1u)]; }
        if local % p.span < p.span - 1u { next = u1[slot(local)]; }
        let x3 = of_pair(pair3, left, next);
        if at + 6u < end { x[kept + 3u] = x3; }
        let x2 = of_pair(pair2, left, x3.x);
        if at + 4u < end { x[kept + 2u] = x2; }
        let x1 = of_pair(pair1, left, x2.x);
        if at + 2u < end { x[kept + 1u] = x1; }
        let x0 = of_pair(pair0, left, x1.x);
        x[kept] = x0;
    }
}
