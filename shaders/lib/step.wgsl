// Common part of the steps in all formats: arrays, and the operations after a row's sum.

// True if only a range of the chunk's rows is computed.
override SOME = false;
// True for a step of Chebyshev's recurrence, 2 x P - y; y then holds the vector before x.
override RECURRENCE = false;

@group(0) @binding(3) var<storage, read> exit: array<real>;
@group(0) @binding(4) var<storage, read> scalars: array<real>;  // 1/alpha, then weights
@group(0) @binding(5) var<storage, read> x: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> acc: array<real>;

// Terms that a step adds: an even step adds its own and, from the new number, that of the next
// step.
struct Terms { open: bool, both: bool }

fn terms() -> Terms {
    let even = (p.step & 1u) == 0u;
    let open = p.step >= p.window_first && p.step < p.window_end && (even || p.step == p.window_first);
    return Terms(open, open && even && p.step + 1u < p.window_end);
}

// Returns the accumulator of row i if terms are added to it, else 0.
fn held(open: bool, i: u32) -> real {
    if open { return acc[i]; }
    return real(0);
}

// Stores the next number of row i. `s` is the sum over its entries, `own` its current number, and
// `before` its accumulator.
fn finish(i: u32, leave: real, own: real, s: Products, added: Terms, before: real) {
    var next = stepped(s, leave, own, scalars[0]);
    if RECURRENCE { next = next + next - y[p.own + i]; }
    y[p.own + i] = next;
    if added.open {
        let w = 1u + p.step - p.weights;
        var sum = weighted(scalars[w], own, before);
        if added.both { sum = weighted(scalars[w + 1u], next, sum); }
        acc[i] = sum;
    }
}
