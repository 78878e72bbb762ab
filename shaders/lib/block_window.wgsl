// Overlapping tiles (truncated SPIKE) of a block tridiagonal system with blocks of 2 by 2. A window
// has 512 block rows; the tile in its middle is kept. The kernel defines block_row, which loads a
// block row, and binds x and flags.

struct Params {
    step: u32,
    blocks: u32,   // block rows in memory
    at: u32,       // block row in memory of the first tile's start
    tiles: u32,
    tile: u32,     // block rows of a tile
    levels: u32,   // levels of cyclic reduction, at least 1
    limit: u32,    // largest certified backward error: 4^-limit
    tiny: u32,     // range of certified products: 4^-(8 tiny) to 4^(8 tiny)
    seam: u32,     // 1: check border rows and count uncertified tiles; 2: only count
}
var<immediate> p: Params;

// l x_before + d x_own + u x_behind = r for vectors of two unknowns; matrices are stored by rows.
struct BlockRow { l: vec4<real>, d: vec4<real>, u: vec4<real>, r: vec2<real> }

// Two unknowns in terms of their neighbours: x = e - f x_before - g x_behind.
struct Unknown { e: vec2<real>, f: vec4<real>, g: vec4<real> }

override GROUP = 128u;      // threads of a group
const WINDOW: u32 = 512u;   // block rows of a window, four per thread
const PAIRS: u32 = 64u;     // pairs of threads

// Values that threads exchange, in five arrays of PLACES. Each has two halves of 64 values, APART
// apart, which avoids bank conflicts. Later it holds unknowns before they are stored, and the last
// unknowns of threads.
const APART: u32 = 68u;
const PLACES: u32 = 136u;
var<workgroup> stage: array<vec2<real>, 680>;
var<workgroup> bad: u32;

// Slot of an unknown: neither a thread's own unknowns nor those of adjacent threads conflict in a
// bank.
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

fn inverse_of(m: vec4<real>) -> vec4<real> {
    return (real(1) / fma(m.x, m.w, -m.y * m.z)) * vec4<real>(m.w, -m.y, -m.z, m.x);
}

// Solves a block row for its own unknown.
fn solved(o: BlockRow) -> Unknown {
    let inverse = inverse_of(o.d);
    return Unknown(applied(inverse, o.r), product(inverse, o.l), product(inverse, o.u));
}

// Substitutes `before` for the unknown before a block row.
fn after(before: Unknown, o: BlockRow) -> BlockRow {
    return BlockRow(-product(o.l, before.f), without(o.d, o.l, before.g), o.u, less(o.r, o.l, before.e));
}

// Substitutes `behind` for the unknown after a block row.
fn ahead_of(behind: Unknown, o: BlockRow) -> BlockRow {
    return BlockRow(o.l, without(o.d, o.u, behind.f), -product(o.u, behind.g), less(o.r, o.u, behind.e));
}

// Writes an unknown as a block row.
fn row_of(v: Unknown) -> BlockRow {
    return BlockRow(v.f, vec4<real>(real(1), real(0), real(0), real(1)), v.g, v.e);
}

// Substitutes x_behind in v: `behind` is x_behind = e - f x_before - g x_next, with x_before as in
// v.
fn joined(v: Unknown, behind: Unknown) -> Unknown {
    return Unknown(less(v.e, v.g, behind.e), without(v.f, v.g, behind.f), -product(v.g, behind.g));
}

// An unknown in terms of only the one before it: x = e - f x_before.
struct Upward { e: vec2<real>, f: vec4<real> }

// Solves a block row in terms of the unknown before it; `behind` is the unknown after it.
fn upward(o: BlockRow, behind: Upward) -> Upward {
    let inverse = inverse_of(without(o.d, o.u, behind.f));
    return Upward(applied(inverse, less(o.r, o.u, behind.e)), product(inverse, o.l));
}

// Returns a block row in memory; beyond the memory it is x = 0.
fn row_or_none(block: i32) -> BlockRow {
    if block >= 0 && u32(block) < p.blocks { return block_row(u32(block)); }
    return BlockRow(vec4<real>(), vec4<real>(real(1), real(0), real(0), real(1)), vec4<real>(), vec2<real>());
}

fn x_or_none(block: u32) -> vec2<real> {
    if block < p.blocks { return x[block]; }
    return vec2<real>();
}

fn show(at: u32, u: Unknown) {
    stage[at] = u.e;
    stage[at + PLACES] = u.f.xy;
    stage[at + 2u * PLACES] = u.f.zw;
    stage[at + 3u * PLACES] = u.g.xy;
    stage[at + 4u * PLACES] = u.g.zw;
}

// Reads the unknown shown at an index; x = 0 if there is none.
fn shown(at: u32, is_there: bool) -> Unknown {
    if !is_there { return Unknown(vec2<real>(), vec4<real>(), vec4<real>()); }
    return Unknown(stage[at], vec4<real>(stage[at + PLACES], stage[at + 2u * PLACES]),
        vec4<real>(stage[at + 3u * PLACES], stage[at + 4u * PLACES]));
}

// True if one of a block's two rows has a residual |r| <= 4^-limit s, with s the sum of the
// magnitudes of its terms. No product may have lost digits. Also true if all terms are products
// with 0.
fn is_row_certified(l: vec2<real>, d: vec2<real>, u: vec2<real>, r: real,
      before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    let a = fma(-l.x, before.x, fma(-l.y, before.y, r));
    let left = abs(fma(-d.x, own.x, fma(-d.y, own.y, fma(-u.x, behind.x, fma(-u.y, behind.y, a)))));
    let share = share_of(p.limit);
    var least = share_of(p.tiny);
    least *= least;
    least *= least;
    least *= least;
    // Comparisons with NaN are false. Usually a part of s suffices. Products that overflow make the
    // residual infinite.
    let part = abs(d * (share * own));
    let some = (part.x + part.y) + abs(share * r);
    if left < some && some >= least { return true; }
    let sizes = abs(l * before) + abs(d * own) + abs(u * behind);
    let scale = sizes.x + sizes.y + abs(r);
    let known = left <= scale * share && scale >= least && scale * least <= real(1);
    let zero = vec2<real>();
    return known || (r == real(0) && all((l == zero) | (before == zero)) && all((d == zero) | (own == zero))
        && all((u == zero) | (behind == zero)));
}

fn is_certified(o: BlockRow, before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    return is_row_certified(o.l.xy, o.d.xy, o.u.xy, o.r.x, before, own, behind)
        && is_row_certified(o.l.zw, o.d.zw, o.u.zw, o.r.y, before, own, behind);
}

// A thread's block rows.
struct Four { a: BlockRow, b: BlockRow, c: BlockRow, d: BlockRow }

fn four_from(block: i32) -> Four {
    let k = u32(block);
    if block >= 0 && k + 3u < p.blocks { return Four(block_row(k), block_row(k + 1u), block_row(k + 2u), block_row(k + 3u)); }
    return Four(row_or_none(block), row_or_none(block + 1), row_or_none(block + 2), row_or_none(block + 3));
}

// The block rows begin to end - 1 of a tile.
struct Tile { begin: i32, end: i32 }

fn is_in(t: Tile, block: i32) -> bool { return block >= t.begin && block < t.end; }

// Stores an unknown if it is in the tile.
fn keep(t: Tile, start: i32, k: u32) {
    let block = start + i32(k);
    if is_in(t, block) { x[u32(block)] = stage[slot(k)]; }
}

fn is_good(t: Tile, block: i32, o: BlockRow, before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    return !is_in(t, block) || is_certified(o, before, own, behind);
}

// Solves a window and keeps its tile.
//
// A thread eliminates 3 of its 4 block rows. The threads' last unknowns form a block tridiagonal
// system of 128. Half of these are eliminated, too, and the remaining levels of parallel cyclic
// reduction are applied to the others. Each thread then eliminates its 3 block rows again, upwards,
// which costs less than keeping the first elimination. The truncation error appears in the
// residuals of the tile's rows.
fn window(tile: u32, local: u32) {
    if tile >= p.tiles { return; }
    let begin = i32(p.at + tile * p.tile);
    let here = Tile(begin, min(begin + i32(p.tile), i32(p.blocks)));
    let start = begin - i32((WINDOW - p.tile) >> 1u);
    let block = start + i32(4u * local);
    if local == 0u { bad = 0u; }
    let o = four_from(block);
    let first = solved(o.a);
    let second = solved(after(first, o.b));
    let third = solved(after(second, o.c));
    let pair = local >> 1u;
    let is_second = (local & 1u) == 1u;
    let place = select(pair, pair + APART, is_second);
    show(place, joined(joined(first, second), third));
    workgroupBarrier();
    let next = shown(select(pair + APART, pair + 1u, is_second), local < 2u * PAIRS - 1u);
    workgroupBarrier();
    let own = solved(ahead_of(next, after(third, o.d)));
    show(place, own);
    workgroupBarrier();
    // The last unknowns of the second thread of each pair.
    var v = own;
    if local < PAIRS {
        let both = after(shown(local, true), row_of(shown(local + APART, true)));
        v = solved(ahead_of(shown(local + 1u, local + 1u < PAIRS), both));
    }
    var side = 0u;
    for (var half = 1u; half < 1u << (p.levels - 1u); half <<= 1u) {
        workgroupBarrier();
        if local < PAIRS { show(side + local, v); }
        workgroupBarrier();
        if local < PAIRS {
            let both = after(shown(side + local - half, local >= half), row_of(v));
            v = solved(ahead_of(shown(side + local + half, local + half < PAIRS), both));
        }
        side = APART - side;
    }
    workgroupBarrier();
    if local < PAIRS { stage[WINDOW + local] = v.e; }
    workgroupBarrier();
    var x3 = stage[WINDOW + pair];
    if !is_second {
        var before = vec2<real>();
        if pair > 0u { before = stage[WINDOW + pair - 1u]; }
        x3 = less(less(own.e, own.f, before), own.g, x3);
    }
    stage[slot(4u * local + 3u)] = x3;
    workgroupBarrier();
    var left = vec2<real>();
    if local > 0u { left = stage[slot(4u * local - 1u)]; }
    let c = upward(o.c, Upward(x3, vec4<real>()));
    let b = upward(o.b, c);
    let a = upward(o.a, b);
    let x0 = less(a.e, a.f, left);
    let x1 = less(b.e, b.f, x0);
    let x2 = less(c.e, c.f, x1);
    stage[slot(4u * local)] = x0; stage[slot(4u * local + 1u)] = x1; stage[slot(4u * local + 2u)] = x2;
    workgroupBarrier();
    keep(here, start, local); keep(here, start, local + 128u);
    keep(here, start, local + 256u); keep(here, start, local + 384u);
    // The tile contains the window's last row only at the end of the system.
    let right = stage[slot(min(4u * local + 4u, WINDOW - 1u))];
    let good = is_good(here, block, o.a, left, x0, x1) && is_good(here, block + 1, o.b, x0, x1, x2)
        && is_good(here, block + 2, o.c, x1, x2, x3) && is_good(here, block + 3, o.d, x2, x3, right);
    // All threads that write here write one value.
    if !good { bad = 1u; }
    workgroupBarrier();
    if local == 0u { flags[tile] = bad; }
}

// True if the two block rows at the border before a tile are certified with the unknowns of the two
// tiles.
fn is_seam_certified(tile: u32) -> bool {
    let block = p.at + tile * p.tile;
    if p.seam == 2u || tile == 0u || block >= p.blocks { return true; }
    let a = x[block - 2u]; let b = x[block - 1u]; let c = x[block];
    return is_certified(block_row(block - 1u), a, b, c) && is_certified(block_row(block), b, c, x_or_none(block + 1u));
}

// One thread per tile; counts the uncertified tiles of each 128.
fn seam(group: u32, local: u32) {
    let tile = group * GROUP + local;
    var own = 0u;
    if tile < p.tiles { own = select(1u, flags[tile], is_seam_certified(tile)); }
    stage[local].x = real(own);
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { stage[local].x += stage[local + half].x; }
    }
    if local == 0u && group * GROUP < p.tiles { flags[p.tiles + group] = u32(stage[0].x); }
}

fn windows(group: u32, local: u32) {
    if p.seam > 0u { seam(group, local); } else { window(group, local); }
}
