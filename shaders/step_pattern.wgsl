// The step of `step`, each row of its matrix one number of 8 or 16 bits: its pattern, a list of pairs
// (column - row, value) and, where that pays, E. One thread a row. Moves 1 or 2 bytes a row, and 2 or 3 numbers
// (x, y, E if apart), in the window every second step acc twice; x is gathered once an entry. Patterns lie in
// tables that stay in cache, those of neighbouring rows as a rule side by side.
alias real = f64;

struct Params {
    step: u32,          // number of the step, from 0
    window_first: u32,  // first step whose term is to be added
    window_end: u32,    // one past the last
    weights: u32,       // step of the first weight
    rows: u32,          // rows of this chunk
    first_row: u32,     // of this chunk, in y's own rows, E and acc
    own: u32,           // place of the first own row in x and y; halos lie before and behind
    ids_log: u32,       // binary logarithm of the pattern numbers in a word, 1 or 2
    pointers: u32,      // place of the COO pointers in patterns
    offsets: u32,       // and of the offsets
    exit_apart: u32,    // whether E is an array of its own
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> ids: array<u32>;       // numbers of patterns, 2 or 4 a word
@group(0) @binding(1) var<storage, read> patterns: array<u32>;  // a word each, COO pointers, then offsets
@group(0) @binding(2) var<storage, read> values: array<real>;   // E of each pattern, then values
@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

// One entry's share, in the row of x[base].
fn add(base: u32, e: u32, sum: real) -> real {
    return fma(values[e], x[base + patterns[p.offsets + e]], sum);
}

@compute @workgroup_size(256)
fn step_pattern(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * 256u + local;
    if row >= p.rows { return; }
    let i = p.first_row + row;
    let base = p.own + i;
    let bits = 32u >> p.ids_log;
    let place = row & ((1u << p.ids_log) - 1u);
    let id = (ids[row >> p.ids_log] >> (place * bits)) & ((1u << bits) - 1u);
    // Start of its entries in groups of 64, whether it has COO entries, number of the others.
    let word = patterns[id];
    var e = ((word >> 9u) << 6u) + (id & 63u);
    let end = e + ((word & 255u) << 6u);
    let own = x[base];
    var rate = values[id];
    if p.exit_apart != 0u { rate = exit[i]; }
    // An even step adds its own term and, from the number just computed, that of the next.
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    let both = open && even && p.step + 1u < p.window_end;
    var sum = real(0);
    if open { sum = acc[i]; }

    // Every load of four entries before the first use.
    var s = real(0);
    for (; e + 192u < end; e += 256u) {
        let c0 = patterns[p.offsets + e]; let c1 = patterns[p.offsets + e + 64u];
        let c2 = patterns[p.offsets + e + 128u]; let c3 = patterns[p.offsets + e + 192u];
        let v0 = values[e]; let v1 = values[e + 64u]; let v2 = values[e + 128u]; let v3 = values[e + 192u];
        let x0 = x[base + c0]; let x1 = x[base + c1]; let x2 = x[base + c2]; let x3 = x[base + c3];
        s = fma(v3, x3, fma(v2, x2, fma(v1, x1, fma(v0, x0, s))));
    }
    if e + 64u < end {
        let c0 = patterns[p.offsets + e]; let c1 = patterns[p.offsets + e + 64u];
        let v0 = values[e]; let v1 = values[e + 64u];
        let x0 = x[base + c0]; let x1 = x[base + c1];
        s = fma(v1, x1, fma(v0, x0, s));
        e += 128u;
    }
    if e < end { s = add(base, e, s); }
    if (word & 256u) != 0u {
        var t = patterns[p.pointers + id];
        let tail = patterns[p.pointers + id + 1u];
        // Entry t of the COO part goes to partial sum t mod 4, as in `step`.
        var p0 = real(0); var p1 = real(0); var p2 = real(0); var p3 = real(0);
        for (; t + 4u <= tail; t += 4u) {
            p0 = add(base, t, p0);
            p1 = add(base, t + 1u, p1);
            p2 = add(base, t + 2u, p2);
            p3 = add(base, t + 3u, p3);
        }
        if t < tail { p0 = add(base, t, p0); }
        if t + 1u < tail { p1 = add(base, t + 1u, p1); }
        if t + 2u < tail { p2 = add(base, t + 2u, p2); }
        s += (p0 + p2) + (p1 + p3);
    }
    let next = fma(fma(-rate, own, s), scalars[0], own);
    y[p.own + i] = next;
    if open {
        let w = 1u + p.step - p.weights;
        sum = fma(scalars[w], own, sum);
        if both { sum = fma(scalars[w + 1u], next, sum); }
        acc[i] = sum;
    }
}
