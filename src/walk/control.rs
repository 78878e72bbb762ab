//! The residual as control variate: x = h + (I − L)⁻¹ r with h = Σ_{k<K} L^k f and r = L^K f. Walks on r in the place of
//! f have a smaller variance the smaller r is; h is computed for all components at once, one read of the matrix a sweep.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use super::gate::Gate;
use super::splitting::Split;
use crate::{Error, Result};

/// Sweeps that `auto` takes at most: with the building of the table they are about twenty reads of the matrix.
pub const MOST_AUTO: u32 = 8;
/// Sweeps that can be asked for.
pub const MOST: u32 = 100_000;

/// Number of sweeps K.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweeps {
    /// At most [`MOST_AUTO`], fewer where they leave nothing to walk for.
    Auto,
    /// That many; 0 walks on f itself.
    Fixed(u32),
}

impl FromStr for Sweeps {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, s.parse()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(k @ 0..=MOST)) => Ok(Self::Fixed(k)),
            _ => Err(Error::Invalid(format!("'{s}' is no number of sweeps; give auto or 0 to {MOST}"))),
        }
    }
}

impl fmt::Display for Sweeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(k) => write!(f, "{k}"),
        }
    }
}

/// h, r and what they took.
#[derive(Debug, Clone)]
pub struct Control {
    /// Σ_{k<K} L^k f.
    pub h: Vec<f64>,
    /// L^K f.
    pub r: Vec<f64>,
    /// K.
    pub sweeps: u32,
    /// max_i |r_i| / v_i.
    pub norm: f64,
    /// Σ_{k<K} max_i |(L^k f)_i| / v_i.
    pub norms: f64,
    /// Seconds of one sweep; 0 without any.
    pub sweep_seconds: f64,
    /// What the last sweep made of the norm: the next ones gain about as much.
    pub rate: f64,
}

impl Control {
    /// Takes the sweeps. `enough` is a bound of the error at which `Auto` has nothing left to do.
    pub fn new(split: &Split<'_>, gate: &Gate, f: &[f64], sweeps: Sweeps, enough: f64) -> Self {
        let (most, auto) = match sweeps {
            Sweeps::Auto => (MOST_AUTO, true),
            Sweeps::Fixed(k) => (k, false),
        };
        let mut control = Self {
            h: vec![0.0; f.len()],
            r: f.to_vec(),
            sweeps: 0,
            norm: gate.scaled_norm(f),
            norms: 0.0,
            sweep_seconds: 0.0,
            rate: gate.norm,
        };
        let zero = vec![0.0; if most > 0 { f.len() } else { 0 }];
        let mut next = zero.clone();
        let from = Instant::now();
        while control.sweeps < most {
            if control.norm == 0.0 || (auto && control.norm / (1.0 - gate.norm) <= enough) {
                break;
            }
            // One pass: what L makes of r, and r's share of h.
            split.sweep(&zero, &control.r, &mut next);
            add(&mut control.h, &control.r);
            std::mem::swap(&mut control.r, &mut next);
            control.sweeps += 1;
            control.norms += control.norm;
            let before = std::mem::replace(&mut control.norm, gate.scaled_norm(&control.r));
            control.rate = control.norm / before;
        }
        if control.sweeps > 0 {
            control.sweep_seconds = from.elapsed().as_secs_f64() / f64::from(control.sweeps);
        }
        control
    }
}

fn add(sum: &mut [f64], term: &[f64]) {
    use rayon::prelude::*;
    sum.par_iter_mut().zip(term).with_min_len(4096).for_each(|(s, t)| *s += t);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::CsrMatrix;
    use crate::walk::gate::gate;
    use crate::walk::splitting::Splitting;

    #[test]
    fn h_and_the_walks_on_r_are_x() {
        // x = L x + f with L = [[0, 0.5], [0.25, 0]], f = (1, 2): x = (16/7, 18/7).
        let rows: [&[(u32, f64)]; 2] = [&[(1, 0.5)], &[(0, 0.25)]];
        let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.extend_from_slice(rows[i]));
        let split = Split::new(&matrix, Splitting::Given).unwrap();
        let gate = gate(&split, Splitting::Given, false).unwrap();
        for k in [0, 1, 2, 5] {
            let control = Control::new(&split, &gate, &[1.0, 2.0], Sweeps::Fixed(k), 0.0);
            assert_eq!(control.sweeps, k);
            // (I − L)⁻¹ r = [[1, 0.5], [0.25, 1]] r · 8/7.
            let [r, s] = control.r[..] else { panic!("two rows") };
            let x = [control.h[0] + (r + 0.5 * s) * 8.0 / 7.0, control.h[1] + (0.25 * r + s) * 8.0 / 7.0];
            assert!((x[0] - 16.0 / 7.0).abs() < 1e-14 && (x[1] - 18.0 / 7.0).abs() < 1e-14, "{k}: {x:?}");
        }
        let control = Control::new(&split, &gate, &[1.0, 2.0], Sweeps::Auto, 10.0);
        assert_eq!(control.sweeps, 0, "a bound that holds at once needs no sweep");
        assert_eq!(Control::new(&split, &gate, &[1.0, 2.0], Sweeps::Auto, 1e-9).sweeps, MOST_AUTO);
    }

    #[test]
    fn numbers_of_sweeps() {
        assert_eq!("auto".parse::<Sweeps>().unwrap(), Sweeps::Auto);
        assert_eq!("0".parse::<Sweeps>().unwrap(), Sweeps::Fixed(0));
        for wrong in ["", "-1", "many", "1e3", "1000000"] {
            assert!(wrong.parse::<Sweeps>().is_err(), "{wrong}");
        }
    }
}
