// y_i = x_i + ((R^T x)_i - E_i x_i) / alpha, and the terms w_k x_k of an open Poisson window added to acc.
// One thread a row of the HYB matrix. Moves (value + 4) bytes an entry, and 3 numbers a row (E, x, y), in the
// window every second step acc twice; x is gathered once an entry, from cache where rows are neighbours.
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
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;

// One entry's share.
fn add_entry(base: u32, e: u32, sum: Sum) -> Sum { return plus_product(values[e], x[columns[e]], sum); }

@compute @workgroup_size(256)
fn step(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
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

    // Four entries at a time, every load before the first use: what limits this kernel is how much it has in
    // flight.
    var s = none();
    for (; e + 192u < end; e += 256u) {
        let c0 = columns[e]; let c1 = columns[e + 64u]; let c2 = columns[e + 128u]; let c3 = columns[e + 192u];
        let v0 = values[e]; let v1 = values[e + 64u]; let v2 = values[e + 128u]; let v3 = values[e + 192u];
        let x0 = x[c0]; let x1 = x[c1]; let x2 = x[c2]; let x3 = x[c3];
        s = plus_product(v3, x3, plus_product(v2, x2, plus_product(v1, x1, plus_product(v0, x0, s))));
    }
    if e + 64u < end {
        let c0 = columns[e]; let c1 = columns[e + 64u];
        let v0 = values[e]; let v1 = values[e + 64u];
        let x0 = x[c0]; let x1 = x[c1];
        s = plus_product(v1, x1, plus_product(v0, x0, s));
        e += 128u;
    }
    if e < end { s = add_entry(0u, e, s); }
    s = with_tail(s, 0u, row, ell.pointers);
    let added = terms();
    finish(place, i, rate, own, s, added, held(added.open, i));
}
