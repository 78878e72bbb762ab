// The unknowns of units of 128 rows, from those next to each unit: x_i = e_i.x - e_i.y x_left -
// e_i.z x_behind. A thread eliminates its 8 rows again, as in tridiagonal_reduce. A tree joins the
// threads of a unit, then passes the unknowns between them down, and each thread substitutes
// backwards. Reads 4 numbers per row and 2 per unit, writes 1 per row.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,    // rows of this chunk
    n: u32,       // rows of one system; systems are concatenated
    first: u32,   // index of the chunk's first row within its system
    cyclic: u32,  // 1: the system is cyclic and uses the ends of its diagonals
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
// x_left and x_right of each unit.
@group(0) @binding(4) var<storage, read> values: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> x: array<vec2<real>>;

const ROWS: u32 = 8u;      // rows of a thread
const THREADS: u32 = 16u;  // threads of a unit

var<workgroup> edges: array<vec2<real>, 16>;

@compute @workgroup_size(256)
fn tridiagonal_solve(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    // From the last rows to the first, since the last rows read by tridiagonal_reduce are still in
    // cache.
    let tiles = (p.rows + 256u * ROWS - 1u) / (256u * ROWS);
    let index = group.y * groups.x + group.x;
    if index >= tiles { return; }
    let tile = tiles - 1u - index;
    let row = (tile * 256u + local) * ROWS;
    let pair = row >> 1u;
    var s = sweep_from((p.first + row) % p.n);
    var pair0 = Pair(); var pair1 = Pair(); var pair2 = Pair(); var pair3 = Pair();
    if row < p.rows {
        let rows0 = rows_at(pair); let rows1 = rows_at(pair + 1u);
        let rows2 = rows_at(pair + 2u); let rows3 = rows_at(pair + 3u);
        let cut = p.cyclic == 0u;
        s = with_pair(s, rows0, row + 0u < p.rows, row + 1u < p.rows, cut, real(0));
        pair0 = s.pair;
        s = with_pair(s, rows1, row + 2u < p.rows, row + 3u < p.rows, cut, real(0));
        pair1 = s.pair;
        s = with_pair(s, rows2, row + 4u < p.rows, row + 5u < p.rows, cut, real(0));
        pair2 = s.pair;
        s = with_pair(s, rows3, row + 6u < p.rows, row + 7u < p.rows, cut, real(0));
        pair3 = s.pair;
    }
    let unit = tile * (256u / THREADS) + local;
    if local < 256u / THREADS && unit * (ROWS * THREADS) < p.rows { edges[local] = values[unit]; }
    let own = slot(local);
    lay(own, s.unit);
    for (var half = 1u; half < THREADS; half <<= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let a = slot((2u * local + 1u) * half - 1u);
            let b = slot((2u * local + 2u) * half - 1u);
            let two = joined(unit_in(a), unit_in(b));
            lay(b, two.whole);
            // The left slot now holds the unknowns between the two units.
            lay(a, two.between);
        }
    }
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < 128u / half {
            let start = 2u * local * half;
            let between = slot(start + half - 1u);
            let end = start + 2u * half - 1u;
            let ends = edges[start / THREADS];
            var left = ends.x;
            var right = ends.y;
            if start % THREADS > 0u { left = u0[slot(start - 1u)]; }
            if end % THREADS < THREADS - 1u { right = u1[slot(end)]; }
            resolve(between, left, right);
        }
    }
    workgroupBarrier();
    if row < p.rows {
        let ends = edges[local / THREADS];
        var left = ends.x;
        var next = ends.y;
        if local % THREADS > 0u { left = u0[slot(local - 1u)]; }
        if local % THREADS < THREADS - 1u { next = u1[slot(local)]; }
        let x3 = of_pair(pair3, left, next);
        x[pair + 3u] = x3;
        let x2 = of_pair(pair2, left, x3.x);
        x[pair + 2u] = x2;
        let x1 = of_pair(pair1, left, x2.x);
        x[pair + 1u] = x1;
        let x0 = of_pair(pair0, left, x1.x);
        x[pair + 0u] = x0;
    }
}
