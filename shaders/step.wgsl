// A uniformization step: y_i = x_i + ((R^T x)_i - E_i x_i) / alpha, with rates R, exit rates E and
// uniformization rate alpha. Also adds the terms w_k x_k of an open Poisson window to acc. One
// thread per row of the HYB matrix. Moves (value + 4) bytes per entry, and 3 numbers per row (E, x,
// y). In the window, every second step moves acc twice. x is gathered once per entry, from cache if
// its rows are adjacent.
//
// With COLUMNS vectors side by side, one thread computes one element of a row, and adjacent threads
// share the row's entries. x, y, acc, `rows`, `first_row` and `own` then count elements. With
// DERIVATIVES, vectors from 1 on are derivatives of vector 0. An element of these has entries of
// its own, 12 bytes each, which are multiplied with vector 0 and added to s.
alias real = f64;

struct Params {
    step: u32,          // index of the step, from 0
    window_first: u32,  // first step that adds its term
    window_end: u32,    // exclusive end
    weights: u32,       // step of the first weight
    rows: u32,          // end of the computed rows of this chunk (exclusive)
    first_row: u32,     // index of the chunk's first row in y's own rows, E and acc
    own: u32,           // index of the first own row in x and y; halos are before and after
    begin: u32,         // first computed row of the chunk
    derivatives: u32,   // position in `slices` of the pointers to the elements' own entries
}
var<immediate> p: Params;

override DERIVATIVES = false;

@compute @workgroup_size(256)
fn step(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place >= p.rows { return; }
    let row = place / COLUMNS;
    let i = p.first_row + COLUMNS * row + place % COLUMNS;
    let own = x[p.own + i];
    let rate = exit[i / COLUMNS];
    var s = row_sum(row, place % COLUMNS, with_own(rate, own, no_products()));
    if DERIVATIVES {
        var change = no_products();
        let end = slices[p.derivatives + place + 1u];
        for (var e = slices[p.derivatives + place]; e < end; e++) { change = add_entry(0u, e, change); }
        s = plus(s, change);
    }
    let added = terms();
    finish(i, rate, own, s, added, held(added.open, i));
}
