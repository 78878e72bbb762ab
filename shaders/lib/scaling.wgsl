// Scaling of time for P(t) = e^{Qt}: P(t) is the result of repeated squarings of P(h).

struct Scaling {
    h: real,
    mean: real,     // mean number of jumps in time h
    scale: real,    // e^-mean
}

fn scaling_of(alpha: real, time: real, squarings: u32) -> Scaling {
    var h = time;
    for (var k = 0u; k < squarings; k++) { h *= real(0.5); }
    let mean = alpha * h;
    // Taylor polynomial.
    var scale = inverse[19];
    for (var k = 19u; k > 0u; k--) { scale = fma(scale, -mean, inverse[k - 1u]); }
    return Scaling(h, mean, scale);
}
