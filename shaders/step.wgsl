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

// Whether it is for some rows of the chunk: from one of them on, or listed, which are stored side by side.
const SOME = false;

@group(0) @binding(0) var<storage, read> slices: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

@compute @workgroup_size(256)
fn step(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
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

    // Four entries at a time, every load before the first use: what limits this kernel is how much it has in
    // flight.
    var s = real(0);
    for (; e + 192u < end; e += 256u) {
        let c0 = columns[e]; let c1 = columns[e + 64u]; let c2 = columns[e + 128u]; let c3 = columns[e + 192u];
        let v0 = values[e]; let v1 = values[e + 64u]; let v2 = values[e + 128u]; let v3 = values[e + 192u];
        let x0 = x[c0]; let x1 = x[c1]; let x2 = x[c2]; let x3 = x[c3];
        s = fma(v3, x3, fma(v2, x2, fma(v1, x1, fma(v0, x0, s))));
    }
    if e + 64u < end {
        let c0 = columns[e]; let c1 = columns[e + 64u];
        let v0 = values[e]; let v1 = values[e + 64u];
        let x0 = x[c0]; let x1 = x[c1];
        s = fma(v1, x1, fma(v0, x0, s));
        e += 128u;
    }
    if e < end { s = fma(values[e], x[columns[e]], s); }
    if pointers != 0u {
        var t = slices[pointers + (row & 63u)];
        let tail = slices[pointers + (row & 63u) + 1u];
        // Entry t of the COO part goes to partial sum t mod 4: one chain would wait for each addition.
        var p0 = real(0); var p1 = real(0); var p2 = real(0); var p3 = real(0);
        for (; t + 4u <= tail; t += 4u) {
            p0 = fma(values[t], x[columns[t]], p0);
            p1 = fma(values[t + 1u], x[columns[t + 1u]], p1);
            p2 = fma(values[t + 2u], x[columns[t + 2u]], p2);
            p3 = fma(values[t + 3u], x[columns[t + 3u]], p3);
        }
        if t < tail { p0 = fma(values[t], x[columns[t]], p0); }
        if t + 1u < tail { p1 = fma(values[t + 1u], x[columns[t + 1u]], p1); }
        if t + 2u < tail { p2 = fma(values[t + 2u], x[columns[t + 2u]], p2); }
        s += (p0 + p2) + (p1 + p3);
    }
    let next = fma(fma(-rate, own, s), scalars[0], own);
    if SOME && p.listed != 0u { y[place] = next; } else { y[p.own + i] = next; }
    // An even step adds its own term and, from the number just computed, that of the next.
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    let both = open && even && p.step + 1u < p.window_end;
    if open {
        let w = 1u + p.step - p.weights;
        var sum = fma(scalars[w], own, acc[i]);
        if both { sum = fma(scalars[w + 1u], next, sum); }
        acc[i] = sum;
    }
}
