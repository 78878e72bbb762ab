// Scaling and squaring for P(t) = e^{Qt}: P(h), h = t / 2^squarings, is squared repeatedly.

struct Scaling {
    h: real,        // time of P(h)
    mean: real,     // mean number of jumps in time h
    squarings: u32,
}

// Returns the scaling of a chain with the largest exit rate `alpha`; at most 51 squarings.
fn scaling_of(alpha: real, time: real) -> Scaling {
    var s = Scaling(time, alpha * time, 0u);
    for (var left = s.mean; left > real(0.8) && s.squarings < 51u; left *= real(0.5)) {
        s.h *= real(0.5);
        s.squarings++;
    }
    s.mean = alpha * s.h;
    return s;
}

// Returns e^-mean, by a Taylor polynomial of degree 19.
fn exponential_of(mean: real) -> real {
    var scale = coefficients[19];
    for (var k = 19u; k > 0u; k--) { scale = fma(scale, -mean, coefficients[k - 1u]); }
    return scale;
}

// Coefficient c_k of the polynomial.
fn c(k: u32) -> real { return coefficients[19u + k]; }

// Probability x; rounding may have moved it out of [0, 1].
fn probability(x: real) -> real { return min(max(x, real(0)), real(1)); }
