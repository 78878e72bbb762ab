//! A-priori estimates of the number and length of chains.
//!
//! They are from S. Lai, J. Jin, M. Guo, X. Lin, ISCC 2015, section 2.2.
//!
//!  | function | equation there |
//!  |---|---|
//!  | [`length_as_printed`] | (2.16) without the factor 1 − ‖L‖: it bounds the last term only |
//!  | [`length`] | (2.16) with that factor: the terms after T sum to at most δ |
//!  | [`chains`] | (2.20): the probable error, which half of all runs exceed, is at most ε |

/// Number of steps T of (2.16) as printed, for ‖L‖^T ‖f‖ ≤ δ.
pub fn length_as_printed(delta: f64, f: f64, norm: f64) -> f64 {
    ((delta / f).ln() / norm.ln()).ceil().max(0.0)
}

/// Smallest number of steps T with ‖L‖^(T+1) ‖f‖ / (1 − ‖L‖) ≤ δ.
pub fn length(delta: f64, f: f64, norm: f64) -> f64 {
    (((delta * (1.0 - norm) / f).ln() / norm.ln()).ceil() - 1.0).max(0.0)
}

/// Number of chains N of (2.20): 0.6745² / ε² · ‖f‖² / (1 − ‖L‖)².
pub fn chains(epsilon: f64, f: f64, norm: f64) -> f64 {
    let deviation = f / (1.0 - norm);
    (0.6745f64.powi(2) * (deviation / epsilon).powi(2)).ceil().max(1.0)
}
