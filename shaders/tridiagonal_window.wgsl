// Solution of a tridiagonal system by overlapping tiles (truncated SPIKE). Each window of 2048 rows
// is solved on its own, and the tile in its middle is kept. Each row is read once.
//
// A thread eliminates 7 of its 8 rows to x_i = e.x - e.y x_left - e.z x_last. The threads' last
// unknowns form a tridiagonal system of 256, to which p.levels levels of parallel cyclic reduction
// are applied. The truncation neglects the unknowns beyond the window and beyond the last level.
// Its error appears in the threads' last rows, which are checked here, and in the rows at the
// tile's borders, which tridiagonal_seam checks.
//
// Reads 4 numbers per row and writes 1. Writes a flag per tile, nonzero if it is not certified: a
// pivot is small, a row is not dominant, or a residual is large. Adjacent groups solve one tile for
// different right-hand sides, so that all but one read the three diagonals from cache.
alias real = f64;

@group(0) @binding(0) var<storage, read> dl: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> d: array<vec2<real>>;
@group(0) @binding(2) var<storage, read> du: array<vec2<real>>;
@group(0) @binding(3) var<storage, read> rhs: array<vec2<real>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec2<real>>;
@group(0) @binding(5) var<storage, read_write> flags: array<u32>;

const ROWS: u32 = 8u;      // rows of a thread

// Pairs of rows between memory and threads, one per slot; also values exchanged by threads.
var<workgroup> stage: array<vec2<real>, 1024>;

// Slot of a pair of rows: neither a thread's own pairs nor those of adjacent threads conflict in a
// bank.
fn slot(pair: u32) -> u32 { return pair ^ (((pair >> 3u) & 3u) ^ ((pair >> 5u) & 1u)); }

// Pairs local, local + 256, ... of a window, or a thread's own 4 pairs.
struct Four { v0: vec2<real>, v1: vec2<real>, v2: vec2<real>, v3: vec2<real> }

fn put_apart(local: u32, q: Four) {
    stage[slot(local)] = q.v0; stage[slot(local + 256u)] = q.v1;
    stage[slot(local + 512u)] = q.v2; stage[slot(local + 768u)] = q.v3;
}

fn put_own(local: u32, q: Four) {
    stage[slot(4u * local)] = q.v0; stage[slot(4u * local + 1u)] = q.v1;
    stage[slot(4u * local + 2u)] = q.v2; stage[slot(4u * local + 3u)] = q.v3;
}

// Returns a thread's own pairs; `q` has the pairs that adjacent threads read from adjacent places.
fn own_of(local: u32, q: Four) -> Four {
    put_apart(local, q);
    workgroupBarrier();
    let own = Four(stage[slot(4u * local)], stage[slot(4u * local + 1u)],
        stage[slot(4u * local + 2u)], stage[slot(4u * local + 3u)]);
    workgroupBarrier();
    return own;
}

// Reads three numbers that thread t showed; 0 beyond the window's ends. The memory has two halves,
// so that threads can read one while others write to the other.
fn shown(side: u32, t: u32) -> vec3<real> {
    if t > 255u { return vec3<real>(); }
    return vec3<real>(stage[side + t], stage[side + t + 256u].x);
}

fn show(side: u32, local: u32, v: vec3<real>) {
    stage[side + local] = v.xy;
    stage[side + local + 256u].x = v.z;
}

// Returns the rows of a pair in memory, or of the nearest existing pair.
fn rows_near(pair: i32, beside: u32) -> Rows {
    return rows_of(u32(clamp(pair, 0, i32((p.rows - 1u) >> 1u))), beside);
}

// The rows so far: x_first = f.x - f.y x_left - f.z x_behind, and the last two rows, k and l, in
// this form. `good` is true if they may be certified.
struct Sweep { f: vec3<real>, k: vec3<real>, l: vec3<real>, good: bool }

// Eliminates two more rows.
fn with_two(s: Sweep, o: Rows, small: real) -> Sweep {
    let both = eliminate(s.l, o.a, o.b, o.c, o.r);
    let rest = abs(o.a) + abs(o.c);
    let weight = abs(o.b) + rest;
    let good = s.good && all(abs(o.b) >= rest) && abs(both.det) > small * weight.x * weight.y;
    let f = both.first;
    return Sweep(vec3<real>(fma(-s.f.z, f.x, s.f.x), fma(-s.f.z, f.y, s.f.y), -s.f.z * f.z), f, both.second, good);
}

fn unknown(e: vec3<real>, left: real, behind: real) -> real { return fma(-e.z, behind, fma(-e.y, left, e.x)); }

@compute @workgroup_size(256)
fn tridiagonal_window(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    var tile = index;
    var beside = 0u;
    if p.rhs > 1u { tile = index / p.rhs; beside = (index % p.rhs) * (p.stride >> 1u); }
    if tile >= p.tiles { return; }
    // First row in memory of the window, and of the thread. The window may extend beyond the rows
    // in memory.
    let overlap = (2048u - p.tile) >> 1u;
    let start = i32(p.at + tile * p.tile) - i32(overlap);
    let row = start + i32(local * ROWS);
    let pair = start / 2 + i32(local);
    if local == 0u { flags[index] = 0u; }
    storageBarrier();
    let q0 = rows_near(pair, beside); let q1 = rows_near(pair + 256, beside);
    let q2 = rows_near(pair + 512, beside); let q3 = rows_near(pair + 768, beside);
    let a = own_of(local, Four(q0.a, q1.a, q2.a, q3.a));
    let b = own_of(local, Four(q0.b, q1.b, q2.b, q3.b));
    let c = own_of(local, Four(q0.c, q1.c, q2.c, q3.c));
    let r = own_of(local, Four(q0.r, q1.r, q2.r, q3.r));
    var o0 = Rows(a.v0, b.v0, c.v0, r.v0); var o1 = Rows(a.v1, b.v1, c.v1, r.v1);
    var o2 = Rows(a.v2, b.v2, c.v2, r.v2); var o3 = Rows(a.v3, b.v3, c.v3, r.v3);
    let own = row >= 0 && u32(row) < p.rows;
    var place = 0u;
    var last = 0u;
    if own {
        place = p.first + u32(row);
        if place >= p.n { place %= p.n; }
        last = p.rows - u32(row);
    }
    // Only few threads have an end of a system or of the memory among their rows. Missing rows are
    // x_i = 0.
    if place == 0u || place + ROWS >= p.n || last < ROWS {
        o0 = within(o0, place, last); place = behind(place);
        o1 = within(o1, place, max(last, 2u) - 2u); place = behind(place);
        o2 = within(o2, place, max(last, 4u) - 4u); place = behind(place);
        o3 = within(o3, place, max(last, 6u) - 6u);
    }
    // The first 7 rows.
    let small = share_of(p.small);
    let none = vec3<real>(real(0), real(-1), real(0));
    let s1 = with_two(Sweep(none.xzy, none, none, true), o0, small);
    let s3 = with_two(s1, o1, small);
    let s5 = with_two(s3, o2, small);
    let rest = abs(o3.a) + abs(o3.c);
    let weight = abs(o3.b) + rest;
    let seventh = fma(-o3.a.x, s5.l.z, o3.b.x);
    let l = vec3<real>(fma(-o3.a.x, s5.l.x, o3.r.x), -o3.a.x * s5.l.y, o3.c.x) * (real(1) / seventh);
    show(0u, local, vec3<real>(fma(-s5.f.z, l.x, s5.f.x), fma(-s5.f.z, l.y, s5.f.y), -s5.f.z * l.z));
    workgroupBarrier();
    // The last row: y + v.y y_before + v.z y_behind = v.x.
    let next = shown(0u, local + 1u);
    let eighth = fma(-o3.c.y, next.y, fma(-o3.a.y, l.z, o3.b.y));
    var v = (real(1) / eighth)
        * vec3<real>(fma(-o3.c.y, next.x, fma(-o3.a.y, l.x, o3.r.y)), -o3.a.y * l.y, -o3.c.y * next.z);
    var good = s5.good && all(abs(o3.b) >= rest) && abs(seventh) > small * weight.x && abs(eighth) > small * weight.y;
    var side = 512u;
    show(side, local, v);
    for (var half = 1u; half < 1u << p.levels; half <<= 1u) {
        workgroupBarrier();
        let before = shown(side, local - half);
        let after = shown(side, local + half);
        let det = fma(-v.z, after.y, fma(-v.y, before.z, real(1)));
        good = good && abs(det) > small;
        v = (real(1) / det)
            * vec3<real>(fma(-v.z, after.x, fma(-v.y, before.x, v.x)), -v.y * before.y, -v.z * after.z);
        side ^= 512u;
        show(side, local, v);
    }
    workgroupBarrier();
    // The other rows, between the last unknowns of the previous thread and of this one.
    let left = shown(side, local - 1u).x;
    workgroupBarrier();
    let x3 = vec2<real>(unknown(l, left, v.x), v.x);
    let x2 = vec2<real>(unknown(s5.k, left, x3.x), unknown(s5.l, left, x3.x));
    let x1 = vec2<real>(unknown(s3.k, left, x2.x), unknown(s3.l, left, x2.x));
    let x0 = vec2<real>(unknown(s1.k, left, x1.x), unknown(s1.l, left, x1.x));
    put_own(local, Four(x0, x1, x2, x3));
    workgroupBarrier();
    keep(tile, pair, beside, stage[slot(local)]);
    keep(tile, pair + 256, beside, stage[slot(local + 256u)]);
    keep(tile, pair + 512, beside, stage[slot(local + 512u)]);
    keep(tile, pair + 768, beside, stage[slot(local + 768u)]);
    var right = real(0);
    if local < 255u { right = stage[slot(4u * local + 4u)].x; }
    let eighth_row = vec4<real>(o3.a.y, o3.b.y, o3.c.y, o3.r.y);
    good = good && is_certified(eighth_row, vec3<real>(x3, right), p.limit, p.tiny);
    let kept = own && local >= overlap / ROWS && local < (overlap + p.tile) / ROWS;
    // All threads that write here write one value.
    if kept && !good { flags[index] = 1u; }
}

// Stores two unknowns if they are in the tile; x has space for one more after the last row.
fn keep(tile: u32, pair: i32, beside: u32, own: vec2<real>) {
    let begin = i32(p.at + tile * p.tile);
    let row = 2 * pair;
    if row >= begin && row < min(begin + i32(p.tile), i32(p.rows)) { x[beside + u32(pair)] = own; }
}

// Index within its system of the row two further on.
fn behind(place: u32) -> u32 {
    let next = place + 2u;
    return select(next, next % p.n, next >= p.n);
}

// Cuts two rows at the ends of systems; only the first `last` of them exist.
fn within(o: Rows, place: u32, last: u32) -> Rows {
    let second = select(place + 1u, 0u, place + 1u == p.n);
    let begins = vec2<bool>(place == 0u, second == 0u);
    let ends = vec2<bool>(place + 1u == p.n, second + 1u == p.n);
    let out = vec2<bool>(last < 1u, last < 2u);
    return Rows(
        select(o.a, vec2<real>(), begins | out),
        select(o.b, vec2<real>(real(1)), out),
        select(o.c, vec2<real>(), ends | out),
        select(o.r, vec2<real>(), out),
    );
}
