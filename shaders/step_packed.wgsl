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

const SOME = false;  // as in `step`

@group(0) @binding(0) var<storage, read> slices: array<u32>;
@group(0) @binding(1) var<storage, read> entries: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;  // the distinct ones
@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

// One entry's share.
fn add_packed(word: u32, sum: real) -> real {
    return fma(values[word >> p.column_bits], x[word & ((1u << p.column_bits) - 1u)], sum);
}

@compute @workgroup_size(256)
fn step_packed(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) local: u32) {
    var row = (group.y * groups.x + group.x) * 256u + local;
    if SOME { row += p.begin; }
    if row >= p.rows { return; }
    let place = row;
    if SOME && p.listed != 0u { row = slices[p.listed + place - p.begin]; }
    let header = 3u * (row >> 6u);
    var e = (slices[header] << 6u) + (row & 63u);
    let end = e + (slices[header + 1u] << 6u);
    let pointers = slices[header + 2u];
    let i = p.first_row + row;
    let own = x[p.own + i];
    let rate = exit[i];
    // An even step adds its own term and, from the number just computed, that of the next.
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    let both = open && even && p.step + 1u < p.window_end;
    var sum = real(0);
    if open { sum = acc[i]; }

    // Every load of four entries before the first use.
    let mask = (1u << p.column_bits) - 1u;
    var s = real(0);
    for (; e + 192u < end; e += 256u) {
        let w0 = entries[e]; let w1 = entries[e + 64u]; let w2 = entries[e + 128u]; let w3 = entries[e + 192u];
        let x0 = x[w0 & mask]; let x1 = x[w1 & mask]; let x2 = x[w2 & mask]; let x3 = x[w3 & mask];
        let v0 = values[w0 >> p.column_bits]; let v1 = values[w1 >> p.column_bits];
        let v2 = values[w2 >> p.column_bits]; let v3 = values[w3 >> p.column_bits];
        s = fma(v3, x3, fma(v2, x2, fma(v1, x1, fma(v0, x0, s))));
    }
    if e + 64u < end {
        let w0 = entries[e]; let w1 = entries[e + 64u];
        let x0 = x[w0 & mask]; let x1 = x[w1 & mask];
        let v0 = values[w0 >> p.column_bits]; let v1 = values[w1 >> p.column_bits];
        s = fma(v1, x1, fma(v0, x0, s));
        e += 128u;
    }
    if e < end { s = add_packed(entries[e], s); }
    if pointers != 0u {
        var t = slices[pointers + (row & 63u)];
        let tail = slices[pointers + (row & 63u) + 1u];
        // Entry t of the COO part goes to partial sum t mod 4, as in `step`.
        var p0 = real(0); var p1 = real(0); var p2 = real(0); var p3 = real(0);
        for (; t + 4u <= tail; t += 4u) {
            p0 = add_packed(entries[t], p0);
            p1 = add_packed(entries[t + 1u], p1);
            p2 = add_packed(entries[t + 2u], p2);
            p3 = add_packed(entries[t + 3u], p3);
        }
        if t < tail { p0 = add_packed(entries[t], p0); }
        if t + 1u < tail { p1 = add_packed(entries[t + 1u], p1); }
        if t + 2u < tail { p2 = add_packed(entries[t + 2u], p2); }
        s += (p0 + p2) + (p1 + p3);
    }
    let next = fma(fma(-rate, own, s), scalars[0], own);
    if SOME && p.listed != 0u { y[place] = next; } else { y[p.own + i] = next; }
    if open {
        let w = 1u + p.step - p.weights;
        sum = fma(scalars[w], own, sum);
        if both { sum = fma(scalars[w + 1u], next, sum); }
        acc[i] = sum;
    }
}
