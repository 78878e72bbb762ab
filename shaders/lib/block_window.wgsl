// Windows of 1024 block rows of two rows each, and the rows at the borders of their tiles. The kernel says how a block row
// lies in memory, and binds x and flags.

struct Params {
    step: u32,
    blocks: u32,   // block rows in memory
    at: u32,       // the block row in memory with which the first tile begins
    tiles: u32,
    tile: u32,     // block rows of a tile, a multiple of 16
    levels: u32,   // levels of cyclic reduction
    small: u32,    // pivots whose determinant is at most 4^-small of their rows' are small
    limit: u32,    // rows are certified up to a backward error of 4^-limit
    tiny: u32,     // and if their products lie between 4^-(8 tiny) and 4^(8 tiny)
    seam: u32,     // 1: rows at borders, and of 256 tiles the number of those that are not certified
}
var<immediate> p: Params;

// l x_before + d x_own + u x_behind = r for vectors of two unknowns; a matrix lies row by row.
struct BlockRow { l: vec4<real>, d: vec4<real>, u: vec4<real>, r: vec2<real> }

// An unknown, x = e - f x_left - g x_behind.
struct Unknown { e: vec2<real>, f: vec4<real>, g: vec4<real> }

// Two of them, those of the threads before and behind.
struct Beside { before: Unknown, behind: Unknown }

// Unknowns on their way between threads and memory; or what threads show one another.
var<workgroup> stage: array<vec2<real>, 1024>;

// The slot of an unknown, so that neither a thread's nor neighbours' meet in a bank.
fn slot(block: u32) -> u32 { return block ^ (((block >> 3u) & 3u) ^ ((block >> 5u) & 1u)); }

fn applied(m: vec4<real>, v: vec2<real>) -> vec2<real> { return vec2<real>(fma(m.x, v.x, m.y * v.y), fma(m.z, v.x, m.w * v.y)); }

// s - m v
fn less(s: vec2<real>, m: vec4<real>, v: vec2<real>) -> vec2<real> {
    return vec2<real>(fma(-m.x, v.x, fma(-m.y, v.y, s.x)), fma(-m.z, v.x, fma(-m.w, v.y, s.y)));
}

fn product(a: vec4<real>, b: vec4<real>) -> vec4<real> {
    return vec4<real>(fma(a.x, b.x, a.y * b.z), fma(a.x, b.y, a.y * b.w), fma(a.z, b.x, a.w * b.z), fma(a.z, b.y, a.w * b.w));
}

// s - a b
fn without(s: vec4<real>, a: vec4<real>, b: vec4<real>) -> vec4<real> {
    return vec4<real>(fma(-a.x, b.x, fma(-a.y, b.z, s.x)), fma(-a.x, b.y, fma(-a.y, b.w, s.y)),
        fma(-a.z, b.x, fma(-a.w, b.z, s.z)), fma(-a.z, b.y, fma(-a.w, b.w, s.w)));
}

fn determinant_of(m: vec4<real>) -> real { return fma(m.x, m.w, -m.y * m.z); }

fn inverse_of(m: vec4<real>) -> vec4<real> { return (real(1) / determinant_of(m)) * vec4<real>(m.w, -m.y, -m.z, m.x); }

fn none() -> Unknown { return Unknown(vec2<real>(), vec4<real>(), vec4<real>()); }

// The unknown to the left of a thread's own.
fn left_one() -> Unknown {
    return Unknown(vec2<real>(), vec4<real>(real(-1), real(0), real(0), real(-1)), vec4<real>());
}

// A block row in memory; one that does not exist is x = 0.
fn row_or_none(block: i32) -> BlockRow {
    if block >= 0 && u32(block) < p.blocks { return block_row(u32(block)); }
    return BlockRow(vec4<real>(), vec4<real>(real(1), real(0), real(0), real(1)), vec4<real>(), vec2<real>());
}

fn x_or_none(block: u32) -> vec2<real> {
    if block < p.blocks { return x[block]; }
    return vec2<real>();
}

// True unless the pivot is small against what its two rows have.
fn is_pivot(m: vec4<real>, o: BlockRow) -> bool {
    let l = abs(o.l); let d = abs(o.d); let u = abs(o.u);
    let upper = ((l.x + l.y) + (d.x + d.y)) + (u.x + u.y);
    let lower = ((l.z + l.w) + (d.z + d.w)) + (u.z + u.w);
    return abs(determinant_of(m)) > share_of(p.small) * upper * lower;
}

// The unknowns between the one to the left and those behind, so far: the first and the last, and whether pivots are good.
struct Sweep { first: Unknown, last: Unknown, good: bool }

// With one more block row.
fn with_row(s: Sweep, o: BlockRow) -> Sweep {
    let pivot = without(o.d, o.l, s.last.g);
    let inverse = inverse_of(pivot);
    let own = Unknown(
        applied(inverse, less(o.r, o.l, s.last.e)), -product(inverse, product(o.l, s.last.f)), product(inverse, o.u));
    let f = s.first;
    let first = Unknown(less(f.e, f.g, own.e), without(f.f, f.g, own.f), -product(f.g, own.g));
    return Sweep(first, own, s.good && is_pivot(pivot, o));
}

fn shown(t: u32) -> Unknown {
    if t > 255u { return none(); }
    return Unknown(stage[t], vec4<real>(stage[t + 256u], stage[t + 512u]), vec4<real>(stage[t + 768u], vec2<real>()));
}

fn rest_shown(u: Unknown, t: u32) -> Unknown {
    if t > 255u { return u; }
    return Unknown(u.e, u.f, vec4<real>(u.g.xy, stage[t]));
}

// What the threads at these places show, nothing beyond the window's ends.
fn exchanged(local: u32, own: Unknown, before: u32, behind: u32) -> Beside {
    stage[local] = own.e;
    stage[local + 256u] = own.f.xy;
    stage[local + 512u] = own.f.zw;
    stage[local + 768u] = own.g.xy;
    workgroupBarrier();
    let a = shown(before);
    let b = shown(behind);
    workgroupBarrier();
    stage[local] = own.g.zw;
    workgroupBarrier();
    let beside = Beside(rest_shown(a, before), rest_shown(b, behind));
    workgroupBarrier();
    return beside;
}

// The unknown of a thread from those twice as far away.
fn reduced(v: Unknown, beside: Beside, pivot: vec4<real>) -> Unknown {
    let inverse = inverse_of(pivot);
    return Unknown(
        applied(inverse, less(less(v.e, v.f, beside.before.e), v.g, beside.behind.e)),
        -product(inverse, product(v.f, beside.before.f)),
        -product(inverse, product(v.g, beside.behind.g)),
    );
}

fn value(u: Unknown, left: vec2<real>, behind: vec2<real>) -> vec2<real> { return less(less(u.e, u.f, left), u.g, behind); }

// True if |r| <= 4^-limit s for one of the two rows with these unknowns, s the sum of the sizes of its products, no digit of
// which is lost. Or all of them are products with 0.
fn is_row_certified(l: vec2<real>, d: vec2<real>, u: vec2<real>, r: real,
      before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    let a = fma(-l.x, before.x, fma(-l.y, before.y, r));
    let left = abs(fma(-d.x, own.x, fma(-d.y, own.y, fma(-u.x, behind.x, fma(-u.y, behind.y, a)))));
    let sizes = abs(l * before) + abs(d * own) + abs(u * behind);
    let scale = sizes.x + sizes.y + abs(r);
    var least = share_of(p.tiny);
    least *= least;
    least *= least;
    least *= least;
    // Comparisons with what is no number are false.
    let known = left <= scale * share_of(p.limit) && scale >= least && scale * least <= real(1);
    let zero = vec2<real>();
    return known || (r == real(0) && all((l == zero) | (before == zero)) && all((d == zero) | (own == zero))
        && all((u == zero) | (behind == zero)));
}

fn is_certified(o: BlockRow, before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    return is_row_certified(o.l.xy, o.d.xy, o.u.xy, o.r.x, before, own, behind)
        && is_row_certified(o.l.zw, o.d.zw, o.u.zw, o.r.y, before, own, behind);
}

// A tile from its window: a thread eliminates 3 of its 4 block rows, its own last unknown being one of 256 of a block
// tridiagonal system, of which parallel cyclic reduction takes some levels. Whatever that leaves out shows in the residual of
// the tile's rows.
fn window(tile: u32, local: u32) {
    if tile >= p.tiles { return; }
    let overlap = (1024u - p.tile) >> 1u;
    let begin = i32(p.at + tile * p.tile);
    let start = begin - i32(overlap);
    let block = start + i32(4u * local);
    if local == 0u { flags[tile] = 0u; }
    storageBarrier();
    let o0 = row_or_none(block); let o1 = row_or_none(block + 1); let o2 = row_or_none(block + 2);
    let last = row_or_none(block + 3);
    let s0 = with_row(Sweep(left_one(), left_one(), true), o0);
    let s1 = with_row(Sweep(s0.last, s0.last, s0.good), o1);
    let s2 = with_row(s1, o2);
    let next = exchanged(local, s2.first, 256u, local + 1u).behind;
    // The last block row, between the last unknowns of the threads before and behind.
    let pivot = without(without(last.d, last.l, s2.last.g), last.u, next.f);
    let inverse = inverse_of(pivot);
    var v = Unknown(
        applied(inverse, less(less(last.r, last.l, s2.last.e), last.u, next.e)),
        -product(inverse, product(last.l, s2.last.f)),
        -product(inverse, product(last.u, next.g)),
    );
    var good = s2.good && is_pivot(pivot, last);
    let unit = vec4<real>(real(1), real(0), real(0), real(1));
    for (var half = 1u; half < 1u << p.levels; half <<= 1u) {
        let beside = exchanged(local, v, local - half, local + half);
        let both = without(without(unit, v.f, beside.before.g), v.g, beside.behind.f);
        good = good && abs(determinant_of(both)) > share_of(p.small);
        v = reduced(v, beside, both);
    }
    stage[local] = v.e;
    workgroupBarrier();
    var left = vec2<real>();
    if local > 0u { left = stage[local - 1u]; }
    workgroupBarrier();
    let x3 = v.e;
    let x2 = value(s2.last, left, x3);
    let x1 = value(s1.last, left, x2);
    let x0 = value(s0.last, left, x1);
    stage[slot(4u * local)] = x0; stage[slot(4u * local + 1u)] = x1;
    stage[slot(4u * local + 2u)] = x2; stage[slot(4u * local + 3u)] = x3;
    workgroupBarrier();
    for (var k = local; k < 1024u; k += 256u) {
        let own = start + i32(k);
        if own >= begin && own < min(begin + i32(p.tile), i32(p.blocks)) { x[u32(own)] = stage[slot(k)]; }
    }
    if local < overlap / 4u || local >= (overlap + p.tile) / 4u { return; }
    // There are threads on both sides.
    let right = stage[slot(4u * local + 4u)];
    // Read once more, from the cache, instead of being held all along.
    good = good && is_certified(row_or_none(block), left, x0, x1) && is_certified(row_or_none(block + 1), x0, x1, x2)
        && is_certified(row_or_none(block + 2), x1, x2, x3) && is_certified(row_or_none(block + 3), x2, x3, right);
    // Threads that write here all write the same.
    if !good { flags[tile] = 1u; }
}

// The two block rows at the border before a tile, with the unknowns that both tiles left.
fn is_seam_certified(tile: u32) -> bool {
    let block = p.at + tile * p.tile;
    if tile == 0u || block >= p.blocks { return true; }
    let a = x[block - 2u]; let b = x[block - 1u]; let c = x[block];
    return is_certified(block_row(block - 1u), a, b, c) && is_certified(block_row(block), b, c, x_or_none(block + 1u));
}

// A thread takes a tile; of 256 the number of those that are not certified.
fn seam(group: u32, local: u32) {
    let tile = group * 256u + local;
    var bad = 0u;
    if tile < p.tiles { bad = select(1u, flags[tile], is_seam_certified(tile)); }
    stage[local].x = real(bad);
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { stage[local].x += stage[local + half].x; }
    }
    if local == 0u && group * 256u < p.tiles { flags[p.tiles + group] = u32(stage[0].x); }
}

fn windows(group: u32, local: u32) {
    if p.seam == 1u { seam(group, local); } else { window(group, local); }
}
