// Scaling and squaring for P(t) = e^{Qt}: P(h), h = t / 2^squarings, is squared repeatedly.

struct Scaling {
    h: real,        // time of P(h)
    mean: real,     // mean number of jumps in time h
    scale: real,    // e^-mean
    squarings: u32,
}

// Returns the number of squarings for a mean number of jumps, at most 51.
fn squarings_of(jumps: real) -> u32 {
    var squarings = 0u;
    for (var left = jumps; left > real(0.8) && squarings < 51u; left *= real(0.5)) { squarings++; }
    return squarings;
}

// Returns the scaling of a chain with the largest exit rate `alpha`.
fn scaling_of(alpha: real, time: real) -> Scaling {
    let squarings = squarings_of(alpha * time);
    var h = time;
    for (var k = 0u; k < squarings; k++) { h *= real(0.5); }
    let mean = alpha * h;
    // Taylor polynomial of degree 19.
    var scale = coefficients[19];
    for (var k = 19u; k > 0u; k--) { scale = fma(scale, -mean, coefficients[k - 1u]); }
    return Scaling(h, mean, scale, squarings);
}

// Coefficient c_k of the polynomial.
fn c(k: u32) -> real { return coefficients[19u + k]; }

// Probability x; rounding may have moved it out of [0, 1].
fn probability(x: real) -> real { return min(max(x, real(0)), real(1)); }
