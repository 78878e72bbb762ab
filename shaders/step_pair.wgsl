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

const SOME = false;  // as in `step`

@group(0) @binding(0) var<storage, read> slices: array<u32>;   // headers, COO pointers, then offsets
@group(0) @binding(1) var<storage, read> entries: array<u32>;  // four a word
@group(0) @binding(2) var<storage, read> values: array<real>;  // of the pairs
@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

// The pair of entry e.
fn pair(e: u32) -> u32 {
    return (entries[e >> 2u] >> (8u * (e & 3u))) & 255u;
}

// One entry's share, in the row of x[base].
fn add_pair(base: u32, e: u32, sum: real) -> real {
    let id = pair(e);
    return fma(values[id], x[base + slices[p.offsets + id]], sum);
}

@compute @workgroup_size(256)
fn step_pair(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
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
    let base = p.own + i;
    let own = x[base];
    let rate = exit[i];
    // An even step adds its own term and, from the number just computed, that of the next.
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    let both = open && even && p.step + 1u < p.window_end;
    var sum = real(0);
    if open { sum = acc[i]; }

    // Every load of four entries before the first use.
    var s = real(0);
    for (; e + 192u < end; e += 256u) {
        let i0 = pair(e); let i1 = pair(e + 64u); let i2 = pair(e + 128u); let i3 = pair(e + 192u);
        let x0 = x[base + slices[p.offsets + i0]]; let x1 = x[base + slices[p.offsets + i1]];
        let x2 = x[base + slices[p.offsets + i2]]; let x3 = x[base + slices[p.offsets + i3]];
        s = fma(values[i3], x3, fma(values[i2], x2, fma(values[i1], x1, fma(values[i0], x0, s))));
    }
    if e + 64u < end {
        let i0 = pair(e); let i1 = pair(e + 64u);
        let x0 = x[base + slices[p.offsets + i0]]; let x1 = x[base + slices[p.offsets + i1]];
        s = fma(values[i1], x1, fma(values[i0], x0, s));
        e += 128u;
    }
    if e < end { s = add_pair(base, e, s); }
    if pointers != 0u {
        var t = slices[pointers + (row & 63u)];
        let tail = slices[pointers + (row & 63u) + 1u];
        // Entry t of the COO part goes to partial sum t mod 4, as in `step`.
        var p0 = real(0); var p1 = real(0); var p2 = real(0); var p3 = real(0);
        for (; t + 4u <= tail; t += 4u) {
            p0 = add_pair(base, t, p0);
            p1 = add_pair(base, t + 1u, p1);
            p2 = add_pair(base, t + 2u, p2);
            p3 = add_pair(base, t + 3u, p3);
        }
        if t < tail { p0 = add_pair(base, t, p0); }
        if t + 1u < tail { p1 = add_pair(base, t + 1u, p1); }
        if t + 2u < tail { p2 = add_pair(base, t + 2u, p2); }
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
