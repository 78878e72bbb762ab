// Scaling and squaring for P(t) = e^{Qt}: P(h), h = t / 2^squarings, is squared repeatedly.

struct Scaling {
    h: real,        // time of P(h)
    mean: real,     // mean number of jumps in time h
    scale: real,    // e^-mean
}

// Returns the scaling of a chain with the largest exit rate `alpha`.
fn scaling_of(alpha: real, time: real, squarings: u32) -> Scaling {
    var h = time;
    for (var k = 0u; k < squarings; k++) { h *= real(0.5); }
    let mean = alpha * h;
    // Taylor polynomial of degree 19.
    var scale = inverse[19];
    for (var k = 19u; k > 0u; k--) { scale = fma(scale, -mean, inverse[k - 1u]); }
    return Scaling(h, mean, scale);
}
