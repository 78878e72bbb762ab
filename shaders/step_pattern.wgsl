// The operation of step.wgsl with each matrix row as one index of 8 or 16 bits, that of its
// pattern. A pattern is a list of pairs (column - row, value) and, if that pays, E. A group takes
// adjacent blocks of 256 rows, each thread one row at a time. Moves 1 or 2 bytes per row, and 2 or
// 3 numbers (x, y, E if separate). In the window, every second step moves acc twice. x is gathered
// once per entry.
//
// Patterns are in tables that stay in cache; adjacent rows usually have adjacent patterns. An entry
// is one word, with its value as an index into a dictionary that each group keeps.
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
    ids_log: u32,       // log2 of the pattern indices per word, 1 or 2
    pointers: u32,      // offset of the COO pointers in patterns
    groups: u32,        // offset of the ELL entries, in groups of four words
    value_bits: u32,    // bits of the value's index in an entry
    least: u32,         // smallest column - row; entries are relative to it
    dictionary: u32,    // index of the distinct values
    exit_apart: u32,    // 1: E is a separate array
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> ids: array<u32>;       // pattern indices, 2 or 4 per word
// A word per pattern, COO pointers and COO entries; then groups of four ELL entries.
@group(0) @binding(1) var<storage, read> patterns: array<vec4<u32>>;
// E per pattern, then the distinct values.
@group(0) @binding(2) var<storage, read> values: array<real>;

// Returns a word of the tables.
fn word_at(place: u32) -> u32 { return patterns[place >> 2u][place & 3u]; }

const MOST_VALUES = 256u;
var<workgroup> distinct: array<real, MOST_VALUES>;

// An entry's value, and its x in a row with smallest possible column `least`.
fn rate(entry: u32) -> real { return distinct[entry & ((1u << p.value_bits) - 1u)]; }
fn entry_x(least: u32, entry: u32) -> real { return x[least + (entry >> p.value_bits)]; }

// Adds the product of the COO entry at an index of the tables.
fn add_entry(least: u32, place: u32, sum: Products) -> Products {
    let entry = word_at(place);
    return plus_product(rate(entry), entry_x(least, entry), sum);
}

fn step_row(row: u32) {
    let i = p.first_row + row;
    let base = p.own + i;
    let bits = 32u >> p.ids_log;
    let shift = (row & ((1u << p.ids_log) - 1u)) * bits;
    let id = (ids[row >> p.ids_log] >> shift) & ((1u << bits) - 1u);
    // Start of its groups, true if it has COO entries, number of its ELL entries.
    let word = word_at(id);
    var g = p.groups + ((word >> 9u) << 6u) + (id & 63u);
    let end = g + (((word & 255u) + 3u) >> 2u) * 64u;
    let own = x[base];
    let least = base + p.least;

    // Padding is 0 times x of the row itself, so no load waits for a comparison.
    var s = no_products();
    let first = g;
    for (; g < end; g += 64u) {
        if g != first { s = settled(s); }
        let e = patterns[g];
        let x0 = entry_x(least, e.x); let x1 = entry_x(least, e.y);
        let x2 = entry_x(least, e.z); let x3 = entry_x(least, e.w);
        let s1 = plus_product(rate(e.y), x1, plus_product(rate(e.x), x0, s));
        s = plus_product(rate(e.w), x3, plus_product(rate(e.z), x2, s1));
    }
    if (word & 256u) != 0u {
        s = with_entries(s, least, word_at(p.pointers + id), word_at(p.pointers + id + 1u));
    }
    var leave = values[id];
    if p.exit_apart != 0u { leave = exit[i]; }
    s = with_own(leave, own, s);
    let added = terms();
    finish(i, leave, own, s, added, held(added.open, i));
}

@compute @workgroup_size(256)
fn step_pattern(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) local: u32) {
    let count = 1u << p.value_bits;
    for (var v = local; v < count; v += 256u) { distinct[v] = values[p.dictionary + v]; }
    workgroupBarrier();
    var begin = 0u;
    if SOME { begin = p.begin; }
    let blocks = (p.rows - begin + 255u) / 256u;
    let all = groups.x * groups.y;
    let each = (blocks + all - 1u) / all * 256u;
    let first = begin + (group.y * groups.x + group.x) * each;
    let end = min(p.rows, first + each);
    for (var row = first + local; row < end; row += 256u) { step_row(row); }
}
