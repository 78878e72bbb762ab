//! Built-in tridiagonal systems.

use rayon::prelude::*;

use super::Parameters;
use crate::Result;
use crate::tridiagonal::System;

/// Built-in systems, for messages.
pub const TRIDIAGONAL: &str =
    "random:N, toeplitz:N,DL,D,DU and laplace:N, each with ,BATCH for several systems";

/// Largest number of rows.
const MOST_ROWS: u64 = (1 << 31) - 1;

/// A built-in system with its specification as it was understood.
#[derive(Debug, Clone)]
pub struct Tridiagonal {
    /// Such as `laplace:1000`.
    pub name: String,
    /// The system.
    pub system: System,
}

/// Number `index` of a stream, uniform in (0, 1): the finaliser of SplitMix64 (Steele, Lea, Flood 2014,
/// doi:10.1145/2660193.2660195) on a counter, so that any number can be had without those before it.
fn uniform(seed: u64, stream: u64, index: u64) -> f64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = mix(seed.wrapping_add(stream.wrapping_mul(STEP)).wrapping_add(STEP));
    let bits = mix(key.wrapping_add(index.wrapping_mul(STEP)));
    ((bits >> 12) as f64 + 0.5) * 2f64.powi(-52)
}

/// The built-in system that `spec` names, with the right-hand side b_i = u_i·d_i, u_i uniform in (0, 1) from `seed`:
/// * `random:N`: off-diagonals uniform in (−1, 1), |d_i| = 1.1·(|dl_i| + |du_i|) with a random sign;
/// * `toeplitz:N,DL,D,DU`: the same three numbers in every row;
/// * `laplace:N`: −1, 2, −1.
///
/// One more parameter, as in `random:N,BATCH`, makes it so many systems of N rows.
///
/// `None` when `spec` does not begin with the name of one and a colon: it is then a path.
///
/// ```
/// let laplace = kolmo::models::tridiagonal("laplace:4", 0).unwrap()?;
/// assert_eq!(laplace.system.d, [2.0; 4]);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn tridiagonal(spec: &str, seed: u64) -> Option<Result<Tridiagonal>> {
    let (name, parameters) = spec.split_once(':')?;
    let p = Parameters { spec, values: parameters.split(',').map(str::trim).collect() };
    match name {
        "random" => Some(random(&p, seed)),
        "laplace" => Some(laplace(&p, seed)),
        "toeplitz" => Some(toeplitz(&p, seed)),
        _ => None,
    }
}

/// Rows of a system and number of systems, from the first of `names` and, if there is one more parameter, the last.
fn rows(p: &Parameters<'_>, names: &[&str], example: &str) -> Result<(usize, usize)> {
    let batch = match p.values.len() == names.len() + 1 {
        true => p.whole(names.len(), "BATCH (systems)", MOST_ROWS, example)?,
        false => p.expect(names, example).map(|()| 1)?,
    };
    let n = p.whole(0, "N (rows)", MOST_ROWS, example)?;
    crate::lane::cpu::expect_memory(n.saturating_mul(32 * batch), || format!("{}: dl, d, du and b", p.spec))?;
    Ok((n as usize, batch as usize))
}

fn random(p: &Parameters<'_>, seed: u64) -> Result<Tridiagonal> {
    let (n, batch) = rows(p, &["N"], "random:1000000")?;
    let all = n * batch;
    let side = |stream| (0..all as u64).into_par_iter().map(move |i| 2.0 * uniform(seed, stream, i) - 1.0);
    let (dl, du): (Vec<f64>, Vec<f64>) = (side(0).collect(), side(1).collect());
    let sign = |i: usize| if uniform(seed, 2, i as u64) < 0.5 { -1.0 } else { 1.0 };
    let d = (0..all).into_par_iter().map(|i| sign(i) * 1.1 * (dl[i].abs() + du[i].abs())).collect();
    made(format!("random:{n}"), batch, dl, d, du, seed)
}

fn laplace(p: &Parameters<'_>, seed: u64) -> Result<Tridiagonal> {
    let (n, batch) = rows(p, &["N"], "laplace:1000000")?;
    let all = |v| vec![v; n * batch];
    made(format!("laplace:{n}"), batch, all(-1.0), all(2.0), all(-1.0), seed)
}

fn toeplitz(p: &Parameters<'_>, seed: u64) -> Result<Tridiagonal> {
    const EXAMPLE: &str = "toeplitz:1000000,-1,4,-1";
    let (n, batch) = rows(p, &["N", "DL", "D", "DU"], EXAMPLE)?;
    let number = |place: usize, name: &str| match p.values[place].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(p.refuse(name, "a finite number", EXAMPLE)),
    };
    let (dl, d, du) = (number(1, "DL")?, number(2, "D")?, number(3, "DU")?);
    let all = |v| vec![v; n * batch];
    made(format!("toeplitz:{n},{dl},{d},{du}"), batch, all(dl), all(d), all(du), seed)
}

fn made(
    name: String,
    batch: usize,
    dl: Vec<f64>,
    d: Vec<f64>,
    du: Vec<f64>,
    seed: u64,
) -> Result<Tridiagonal> {
    let name = if batch == 1 { name } else { format!("{name},{batch}") };
    let b = d.par_iter().enumerate().map(|(i, d)| uniform(seed, 3, i as u64) * d).collect();
    Ok(Tridiagonal { name, system: System::batched(batch, dl, d, du, vec![b])? })
}
