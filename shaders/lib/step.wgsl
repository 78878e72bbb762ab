// What steps of every format share: arrays, and what follows a row's sum.

// Whether it is for some rows of the chunk: from one of them on, or listed, which are stored side by side.
override SOME = false;
// Whether it is one of Chebyshev's recurrence, 2 x P - y: what y holds is the vector before x.
override RECURRENCE = false;

@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

// The chunk's row that is the launch's row `place`; the kernel has the tables' words.
fn row_of(place: u32) -> u32 {
    if SOME && p.listed != 0u { return word_at(p.listed + place - p.begin); }
    return place;
}

// The terms that a step adds: an even step its own and, from the number just computed, that of the next.
struct Terms { open: bool, both: bool }

fn terms() -> Terms {
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    return Terms(open, open && even && p.step + 1u < p.window_end);
}

// The accumulator of row i, where terms are added to it.
fn held(open: bool, i: u32) -> real {
    if open { return acc[i]; }
    return real(0);
}

// The next number of row i, the group's row `place`, from the sum of its entries; its own number and the accumulator
// are given.
fn finish(place: u32, i: u32, leave: real, own: real, s: Products, added: Terms, before: real) {
    var next = stepped(s, leave, own, scalars[0]);
    if RECURRENCE { next = next + next - y[p.own + i]; }
    if SOME && p.listed != 0u { y[place] = next; } else { y[p.own + i] = next; }
    if added.open {
        let w = 1u + p.step - p.weights;
        var sum = weighted(scalars[w], own, before);
        if added.both { sum = weighted(scalars[w + 1u], next, sum); }
        acc[i] = sum;
    }
}
