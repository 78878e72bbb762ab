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

alias Entry = u32;
fn entry(e: u32) -> Entry { return entries[e]; }
fn entry_x(base: u32, entry: Entry) -> real { return x[entry & ((1u << p.column_bits) - 1u)]; }
fn entry_value(entry: Entry) -> real { return values[entry >> p.column_bits]; }

@compute @workgroup_size(256)
fn step_packed(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place < p.rows { step_row(place); }
}
