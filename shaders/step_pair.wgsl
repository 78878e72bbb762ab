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

alias Entry = u32;
fn entry(e: u32) -> Entry { return (entries[e >> 2u] >> (8u * (e & 3u))) & 255u; }
fn entry_x(base: u32, pair: Entry) -> real { return x[base + slices[p.offsets + pair]]; }
fn entry_value(pair: Entry) -> real { return values[pair]; }

@compute @workgroup_size(256)
fn step_pair(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place < p.rows { step_row(place); }
}
