// The step of `step`, each entry of its matrix one byte: the number of a pair (column - row, value). One thread
// a row. Moves 1 byte an entry, and 3 numbers a row (E, x, y), in the window every second step acc twice; x is
// gathered once an entry, pairs come from a table that stays in cache.
alias real = f64;

struct Params {
    step: u32,          // number of the step, from 0
    window_first: u32,  // first step whose term is to be added
    window_end: u32,    // one past the last
    weights: u32,       // step of the first weight
    rows: u32,          // one past the last row of this chunk that is computed
    first_row: u32,     // of this chunk, in y's own rows, E and acc
    own: u32,           // place of the first own row in x and y; halos lie before and behind
    begin: u32,         // first row of the chunk that is computed; of listed rows the place of the first in y
    listed: u32,        // where the slices list rows; 0: all, one after the other
    offsets: u32,       // place of the offsets of the pairs in slices
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> entries: array<u32>;  // four a word
@group(0) @binding(2) var<storage, read> values: array<real>;  // of the pairs

// The pair of entry e.
fn pair(e: u32) -> u32 {
    return (entries[e >> 2u] >> (8u * (e & 3u))) & 255u;
}

// One entry's share, in the row of x[base].
fn add_entry(base: u32, e: u32, sum: Products) -> Products {
    let id = pair(e);
    return plus_product(values[id], x[base + slices[p.offsets + id]], sum);
}

@compute @workgroup_size(256)
fn step_pair(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place >= p.rows { return; }
    let row = row_of(place);
    let ell = entries_of(row);
    var e = ell.first;
    let end = ell.end;
    let i = p.first_row + row;
    let base = p.own + i;
    let own = x[base];
    let rate = exit[i];
    let added = terms();
    let before = held(added.open, i);

    // Every load of four entries before the first use.
    var s = no_products();
    for (; e + 192u < end; e += 256u) {
        if e != ell.first { s = settled(s); }
        let i0 = pair(e); let i1 = pair(e + 64u); let i2 = pair(e + 128u); let i3 = pair(e + 192u);
        let x0 = x[base + slices[p.offsets + i0]]; let x1 = x[base + slices[p.offsets + i1]];
        let x2 = x[base + slices[p.offsets + i2]]; let x3 = x[base + slices[p.offsets + i3]];
        let s1 = plus_product(values[i1], x1, plus_product(values[i0], x0, s));
        s = plus_product(values[i3], x3, plus_product(values[i2], x2, s1));
    }
    if e + 64u < end {
        let i0 = pair(e); let i1 = pair(e + 64u);
        let x0 = x[base + slices[p.offsets + i0]]; let x1 = x[base + slices[p.offsets + i1]];
        s = plus_product(values[i1], x1, plus_product(values[i0], x0, s));
        e += 128u;
    }
    if e < end { s = add_entry(base, e, s); }
    s = with_tail(s, base, row, ell.pointers);
    finish(place, i, rate, own, s, added, before);
}
