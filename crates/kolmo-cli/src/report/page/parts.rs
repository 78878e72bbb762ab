//! Parts of the comparison and the rate of each.

/// Parts: (name, heading, description).
pub(super) const PARTS: [(&str, &str, &str); 5] = [
    (
        "step",
        "One step of uniformization",
        "y = x P, fused with the accumulation of the answer, on the same chain. The error is the largest one of y against a \
         plain sum, relative to its largest entry.",
    ),
    (
        "transient",
        "Transient solutions",
        "All products of a solution with \u{3b5} = 10\u{207b}\u{2076}, the building of the matrix aside. The error is the l1 \
         distance to another solution with \u{3b5} = 10\u{207b}\u{2079}.",
    ),
    (
        "walk",
        "Quasi-random walks",
        "Chains of 73 steps, and one component to its default half-width from the matrix in the host\u{2019}s memory. The \
         error is relative to the component.",
    ),
    ("tridiagonal", "Tridiagonal systems", "From the host to the host. The error is the relative residual."),
    (
        "transfer",
        "Transfers",
        "What moves between host and device; a round trip counts both ways, a copy on the device reads and writes. What \
         arrived was compared word by word.",
    ),
];

/// Unit, JSON key and scale of the rate of a part.
pub(super) fn rate(part: &str) -> (&'static str, &'static str, f64) {
    match part {
        "walk" => ("Msteps/s", "steps_per_s", 1e-6),
        "tridiagonal" => ("Mrows/s", "rows_per_s", 1e-6),
        _ => ("GB/s", "gb_per_s", 1.0),
    }
}
