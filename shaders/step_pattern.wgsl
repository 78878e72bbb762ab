// The step of `step`, each row of its matrix one number of 8 or 16 bits: its pattern, a list of pairs
// (column - row, value) and, where that pays, E. A group takes neighbouring blocks of 256 rows, one thread a row at a
// time. Moves 1 or 2 bytes a row, and 2 or 3 numbers (x, y, E if apart), in the window every second step acc twice; x
// is gathered once an entry. Patterns lie in tables that stay in cache, those of neighbouring rows as a rule side by
// side; an entry is one word, its value a number into a dictionary that each group keeps.
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
    listed: u32,        // where the patterns' words list rows; 0: all, one after the other
    ids_log: u32,       // binary logarithm of the pattern numbers in a word, 1 or 2
    pointers: u32,      // place of the COO pointers in patterns
    groups: u32,        // first group of ELL entries, in fours of words
    value_bits: u32,    // of a value's number in an entry
    least: u32,         // least column - row, which the rest of an entry counts from
    dictionary: u32,    // place of the distinct values
    exit_apart: u32,    // whether E is an array of its own
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> ids: array<u32>;       // numbers of patterns, 2 or 4 a word
@group(0) @binding(1) var<storage, read> patterns: array<vec4<u32>>;  // a word each, COO pointers, COO entries; groups of ELL entries
@group(0) @binding(2) var<storage, read> values: array<real>;   // E of each pattern, then distinct values

// A word of the tables.
fn word_at(place: u32) -> u32 { return patterns[place >> 2u][place & 3u]; }

const MOST_VALUES = 256u;
var<workgroup> distinct: array<real, MOST_VALUES>;

// An entry's value, and its x in the row whose least possible column is `least`.
fn rate(entry: u32) -> real { return distinct[entry & ((1u << p.value_bits) - 1u)]; }
fn entry_x(least: u32, entry: u32) -> real { return x[least + (entry >> p.value_bits)]; }

// The share of the COO entry at a place of the tables.
fn add_entry(least: u32, place: u32, sum: Products) -> Products {
    let entry = word_at(place);
    return plus_product(rate(entry), entry_x(least, entry), sum);
}

fn step_row(place: u32) {
    let row = row_of(place);
    let i = p.first_row + row;
    let base = p.own + i;
    let bits = 32u >> p.ids_log;
    let shift = (row & ((1u << p.ids_log) - 1u)) * bits;
    let id = (ids[row >> p.ids_log] >> shift) & ((1u << bits) - 1u);
    // Start of its groups, whether it has COO entries, number of the others.
    let word = word_at(id);
    var g = p.groups + ((word >> 9u) << 6u) + (id & 63u);
    let end = g + (((word & 255u) + 3u) >> 2u) * 64u;
    let own = x[base];
    let least = base + p.least;

    // Padding is 0 times x of the row itself, so that no load waits for a comparison.
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
    finish(place, i, leave, own, s, added, held(added.open, i));
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
