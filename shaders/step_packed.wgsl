// The step of `step`, each entry of its matrix packed into one word: the column in the low bits, the number of
// its value in those above. One thread a row. Moves 4 bytes an entry, and 3 numbers a row (E, x, y), in the
// window every second step acc twice; x is gathered once an entry, values come from a table that stays in cache.
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
    column_bits: u32,   // bits of a column
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> entries: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;  // the distinct ones

// One entry's share.
fn add_entry(base: u32, e: u32, sum: Products) -> Products {
    let word = entries[e];
    return plus_product(values[word >> p.column_bits], x[word & ((1u << p.column_bits) - 1u)], sum);
}

@compute @workgroup_size(256)
fn step_packed(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place >= p.rows { return; }
    let row = row_of(place);
    let ell = entries_of(row);
    var e = ell.first;
    let end = ell.end;
    let i = p.first_row + row;
    let own = x[p.own + i];
    let rate = exit[i];
    let added = terms();
    let before = held(added.open, i);

    // Every load of four entries before the first use.
    let mask = (1u << p.column_bits) - 1u;
    var s = no_products();
    for (; e + 192u < end; e += 256u) {
        if e != ell.first { s = settled(s); }
        let w0 = entries[e]; let w1 = entries[e + 64u]; let w2 = entries[e + 128u]; let w3 = entries[e + 192u];
        let x0 = x[w0 & mask]; let x1 = x[w1 & mask]; let x2 = x[w2 & mask]; let x3 = x[w3 & mask];
        let v0 = values[w0 >> p.column_bits]; let v1 = values[w1 >> p.column_bits];
        let v2 = values[w2 >> p.column_bits]; let v3 = values[w3 >> p.column_bits];
        s = plus_product(v3, x3, plus_product(v2, x2, plus_product(v1, x1, plus_product(v0, x0, s))));
    }
    if e + 64u < end {
        let w0 = entries[e]; let w1 = entries[e + 64u];
        let x0 = x[w0 & mask]; let x1 = x[w1 & mask];
        let v0 = values[w0 >> p.column_bits]; let v1 = values[w1 >> p.column_bits];
        s = plus_product(v1, x1, plus_product(v0, x0, s));
        e += 128u;
    }
    if e < end { s = add_entry(0u, e, s); }
    s = with_tail(s, 0u, row, ell.pointers);
    finish(place, i, rate, own, s, added, before);
}
