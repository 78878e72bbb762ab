// Windows of 512 block rows of two rows each, and the rows at the borders of their tiles. The kernel says how a block row
// lies in memory, and binds x and flags.

struct Params {
    step: u32,
    blocks: u32,   // block rows in memory
    at: u32,       // the block row in memory with which the first tile begins
    tiles: u32,
    tile: u32,     // block rows of a tile
    levels: u32,   // levels of cyclic reduction, at least 1
    limit: u32,    // rows are certified up to a backward error of 4^-limit
    tiny: u32,     // and if their products lie between 4^-(8 tiny) and 4^(8 tiny)
    seam: u32,     // 1: rows at borders, and of 128 tiles the number of those that are not certified; 2: the number alone
}
var<immediate> p: Params;

// l x_before + d x_own + u x_behind = r for vectors of two unknowns; a matrix lies row by row.
struct BlockRow { l: vec4<real>, d: vec4<real>, u: vec4<real>, r: vec2<real> }

// An unknown, x = e - f x_before - g x_behind.
struct Unknown { e: vec2<real>, f: vec4<real>, g: vec4<real> }

override GROUP = 128u;      // threads of a group
const WINDOW: u32 = 512u;   // block rows of a window, four a thread
const PAIRS: u32 = 64u;     // of threads

// What threads show one another, in five places each: twice 64 of them, so that they do not meet in a bank. Then the unknowns
// on their way to memory, and last ones of threads.
const APART: u32 = 68u;
const PLACES: u32 = 136u;
var<workgroup> stage: array<vec2<real>, 680>;
var<workgroup> bad: u32;

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

fn inverse_of(m: vec4<real>) -> vec4<real> {
    return (real(1) / fma(m.x, m.w, -m.y * m.z)) * vec4<real>(m.w, -m.y, -m.z, m.x);
}

// The unknown of a block row.
fn solved(o: BlockRow) -> Unknown {
    let inverse = inverse_of(o.d);
    return Unknown(applied(inverse, o.r), product(inverse, o.l), product(inverse, o.u));
}

// A block row in which the one before it is replaced by those beside that.
fn after(before: Unknown, o: BlockRow) -> BlockRow {
    return BlockRow(-product(o.l, before.f), without(o.d, o.l, before.g), o.u, less(o.r, o.l, before.e));
}

// The same for the one behind it.
fn ahead_of(behind: Unknown, o: BlockRow) -> BlockRow {
    return BlockRow(o.l, without(o.d, o.u, behind.f), -product(o.u, behind.g), less(o.r, o.u, behind.e));
}

// An unknown as a block row.
fn row_of(v: Unknown) -> BlockRow {
    return BlockRow(v.f, vec4<real>(real(1), real(0), real(0), real(1)), v.g, v.e);
}

// An unknown with the one behind it, x_behind = e - f x_before - g x_behind, in its place.
fn joined(v: Unknown, behind: Unknown) -> Unknown {
    return Unknown(less(v.e, v.g, behind.e), without(v.f, v.g, behind.f), -product(v.g, behind.g));
}

// An unknown by the one before it alone, x = e - f x_before.
struct Upward { e: vec2<real>, f: vec4<real> }

// That of a block row, with the one behind it.
fn upward(o: BlockRow, behind: Upward) -> Upward {
    let inverse = inverse_of(without(o.d, o.u, behind.f));
    return Upward(applied(inverse, less(o.r, o.u, behind.e)), product(inverse, o.l));
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

fn show(at: u32, u: Unknown) {
    stage[at] = u.e;
    stage[at + PLACES] = u.f.xy;
    stage[at + 2u * PLACES] = u.f.zw;
    stage[at + 3u * PLACES] = u.g.xy;
    stage[at + 4u * PLACES] = u.g.zw;
}

// What is shown at a place; x = 0 where there is none.
fn shown(at: u32, is_there: bool) -> Unknown {
    if !is_there { return Unknown(vec2<real>(), vec4<real>(), vec4<real>()); }
    return Unknown(stage[at], vec4<real>(stage[at + PLACES], stage[at + 2u * PLACES]),
        vec4<real>(stage[at + 3u * PLACES], stage[at + 4u * PLACES]));
}

// True if |r| <= 4^-limit s for one of the two rows with these unknowns, s the sum of the sizes of its products, no digit of
// which is lost. Or all of them are products with 0.
fn is_row_certified(l: vec2<real>, d: vec2<real>, u: vec2<real>, r: real,
      before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    let a = fma(-l.x, before.x, fma(-l.y, before.y, r));
    let left = abs(fma(-d.x, own.x, fma(-d.y, own.y, fma(-u.x, behind.x, fma(-u.y, behind.y, a)))));
    let share = share_of(p.limit);
    var least = share_of(p.tiny);
    least *= least;
    least *= least;
    least *= least;
    // Comparisons with what is no number are false. Mostly a part of s will do; products that overflow make the residual infinite.
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

// The block rows of a tile, from the first to behind the last.
struct Tile { begin: i32, end: i32 }

fn is_in(t: Tile, block: i32) -> bool { return block >= t.begin && block < t.end; }

// Stores an unknown if it is the tile's.
fn keep(t: Tile, start: i32, k: u32) {
    let block = start + i32(k);
    if is_in(t, block) { x[u32(block)] = stage[slot(k)]; }
}

fn is_good(t: Tile, block: i32, o: BlockRow, before: vec2<real>, own: vec2<real>, behind: vec2<real>) -> bool {
    return !is_in(t, block) || is_certified(o, before, own, behind);
}

// A tile from its window: a thread eliminates 3 of its 4 block rows, its own last unknown being one of 128 of a block
// tridiagonal system. Half of these are eliminated, too, and for the others parallel cyclic reduction takes some levels. Between
// their last unknowns, threads eliminate their 3 block rows upwards, which costs less than to keep the other elimination.
// Whatever is left out shows in the residual of the tile's rows.
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
    // The last unknowns of the second threads of pairs.
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
    // A tile has the window's last row only where nothing lies behind it.
    let right = stage[slot(min(4u * local + 4u, WINDOW - 1u))];
    let good = is_good(here, block, o.a, left, x0, x1) && is_good(here, block + 1, o.b, x0, x1, x2)
        && is_good(here, block + 2, o.c, x1, x2, x3) && is_good(here, block + 3, o.d, x2, x3, right);
    // Threads that write here all write the same.
    if !good { bad = 1u; }
    workgroupBarrier();
    if local == 0u { flags[tile] = bad; }
}

// The two block rows at the border before a tile, with the unknowns that both tiles left.
fn is_seam_certified(tile: u32) -> bool {
    let block = p.at + tile * p.tile;
    if p.seam == 2u || tile == 0u || block >= p.blocks { return true; }
    let a = x[block - 2u]; let b = x[block - 1u]; let c = x[block];
    return is_certified(block_row(block - 1u), a, b, c) && is_certified(block_row(block), b, c, x_or_none(block + 1u));
}

// A thread takes a tile; of 128 the number of those that are not certified.
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
