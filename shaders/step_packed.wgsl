// The operation of step.wgsl with each matrix entry packed into one word: the column in the low
// bits, the index of its value in the others. One thread per row. Moves 4 bytes per entry, and 3
// numbers per row (E, x, y). In the window, every second step moves acc twice. x is gathered once
// per entry. Values come from a table that stays in cache.
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
    column_bits: u32,   // bits of a column
}
var<immediate> p: Params;

@group(0) @binding(1) var<storage, read> entries: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;  // the distinct values

alias Entry = u32;
fn entry(e: u32) -> Entry { return entries[e]; }
fn entry_x(base: u32, entry: Entry) -> real { return x[entry & ((1u << p.column_bits) - 1u)]; }
fn entry_value(entry: Entry) -> real { return values[entry >> p.column_bits]; }

fn step_row(row: u32) {
    let i = p.first_row + row;
    let own = x[p.own + i];
    let leave = exit[i];
    let s = row_sum(row, p.own + i, with_own(leave, own, no_products()));
    let added = terms();
    finish(i, leave, own, s, added, held(added.open, i));
}

@compute @workgroup_size(256)
fn step_packed(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    var place = (group.y * groups.x + group.x) * 256u + local;
    if SOME { place += p.begin; }
    if place < p.rows { step_row(place); }
}
