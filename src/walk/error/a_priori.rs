//! How many chains, and how long, by the a-priori estimates of S. Lai, J. Jin, M. Guo, X. Lin, ISCC 2015, section 2.2.
//!
//! | here | there |
//! |---|---|
//! | [`length_as_printed`] | (2.16), which leaves out the factor 1 − ‖L‖ and so bounds the last term, not the rest |
//! | [`length`] | (2.16) with that factor: the terms after T add up to at most δ |
//! | [`chains`] | (2.20): the probable error, which half of all runs exceed, is at most ε |

use std::fmt;
use std::str::FromStr;

use crate::util::quantity::count;
use crate::{Error, Result};

/// Steps of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many that what is left out is at most δ.
    Bound,
    /// That many.
    Steps(u32),
    /// (2.16) as printed.
    Printed,
}

/// Chains of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Twice as many again and again, until the interval meets ε.
    Grow,
    /// That many over all replicates.
    Number(u64),
    /// (2.20) with ‖L‖.
    Norm,
    /// (2.20) with the norm of the component's row, as the paper suggests; that is no bound.
    RowNorm,
}

impl FromStr for Length {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto" | "corrected", _) => Ok(Self::Bound),
            ("printed", _) => Ok(Self::Printed),
            (_, Some(steps)) => Ok(Self::Steps(steps)),
            _ => Err(Error::Invalid(format!(
                "'{s}' is no length; give a number of steps, corrected or printed"
            ))),
        }
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto", _) => Ok(Self::Grow),
            ("norm", _) => Ok(Self::Norm),
            ("row-norm", _) => Ok(Self::RowNorm),
            (_, Some(number)) => Ok(Self::Number(number)),
            _ => {
                Err(Error::Invalid(format!("'{s}' is no number of chains; give a number, norm or row-norm")))
            }
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grow => f.write_str("auto"),
            Self::Number(n) => write!(f, "{n}"),
            Self::Norm => f.write_str("norm"),
            Self::RowNorm => f.write_str("row-norm"),
        }
    }
}

/// T of (2.16) as printed: ‖L‖^T ‖f‖ ≤ δ.
pub fn length_as_printed(delta: f64, f: f64, norm: f64) -> f64 {
    ((delta / f).ln() / norm.ln()).ceil().max(0.0)
}

/// The least T with ‖L‖^(T+1) ‖f‖ / (1 − ‖L‖) ≤ δ.
pub fn length(delta: f64, f: f64, norm: f64) -> f64 {
    (((delta * (1.0 - norm) / f).ln() / norm.ln()).ceil() - 1.0).max(0.0)
}

/// N of (2.20): 0.6745² / ε² · ‖f‖² / (1 − ‖L‖)².
pub fn chains(epsilon: f64, f: f64, norm: f64) -> f64 {
    let deviation = f / (1.0 - norm);
    (0.6745f64.powi(2) * (deviation / epsilon).powi(2)).ceil().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_by_hand() {
        // 0.5^T ≤ 1/8: three steps; 0.5^(T+1) / 0.5 ≤ 1/8: the same three, one more than with the whole tail at T = 2.
        assert_eq!(length_as_printed(0.125, 1.0, 0.5), 3.0);
        assert_eq!(length(0.125, 1.0, 0.5), 3.0);
        // At 0.9 the tail is ten terms long: 0.9^T ≤ 0.01 has T = 44, 0.9^(T+1) ≤ 0.001 has T = 65.
        assert_eq!(length_as_printed(0.01, 1.0, 0.9), 44.0);
        assert_eq!(length(0.01, 1.0, 0.9), 65.0);
        assert_eq!(length(2.0, 1.0, 0.5), 0.0);
        // (0.6745 · 2 / 0.01)² = 18198.01.
        assert_eq!(chains(0.01, 1.0, 0.5), 18_199.0);
    }

    #[test]
    fn names() {
        assert_eq!("printed".parse::<Length>().unwrap(), Length::Printed);
        assert_eq!("73".parse::<Length>().unwrap(), Length::Steps(73));
        assert_eq!("row-norm".parse::<Count>().unwrap(), Count::RowNorm);
        for wrong in ["", "-1", "1.5", "long"] {
            assert!(wrong.parse::<Length>().is_err() && wrong.parse::<Count>().is_err(), "{wrong}");
        }
    }
}
