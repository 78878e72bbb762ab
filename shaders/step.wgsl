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

@compute @workgroup_size(256)
fn step(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place >= p.rows { return; }
    let row = row_of(place);
    let i = p.first_row + row;
    let own = x[p.own + i];
    let rate = exit[i];
    let s = row_sum(row, with_own(rate, own, no_products()));
    let added = terms();
    finish(place, i, rate, own, s, added, held(added.open, i));
}
