//! Built-in tridiagonal systems.

use std::ops::Range;

use super::Parameters;
use crate::Result;
use crate::parallel::*;
use crate::tridiagonal::{BandedSystem, Form, System};
use crate::util::memory::try_zeroed;

/// Names of the built-in tridiagonal systems, for messages.
pub const TRIDIAGONAL: &str =
    "random:N, toeplitz:N,DL,D,DU and laplace:N, each with ,BATCH for several systems";

/// Names of the built-in pentadiagonal and block tridiagonal systems, for messages.
pub const BANDED: &str = "pentadiagonal:N, blocks:N and biharmonic:N, each with ,BATCH for several systems";

/// Largest number of rows of a system in one process.
const MOST_ROWS: u64 = (1 << 31) - 1;
/// Largest number of rows of a system that several ranks share.
const MOST_SHARED_ROWS: u64 = 1 << 44;

/// A built-in system with its normalised specification.
#[derive(Debug, Clone)]
pub struct Tridiagonal {
    /// Normalised specification, such as `laplace:1000`.
    pub name: String,
    /// The system.
    pub system: System,
}

/// Returns number `index` of a random stream, uniform in (0, 1).
///
/// This is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195) on a
/// counter, so that any number can be computed without its predecessors.
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

/// A built-in system with rows that are generated on demand.
#[derive(Debug, Clone)]
pub struct BuiltIn {
    /// Normalised specification, such as `laplace:1000`.
    pub name: String,
    /// Number of rows of each system.
    pub n: usize,
    /// Number of systems.
    pub batch: usize,
    numbers: Coefficients,
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
enum Coefficients {
    Random,
    /// Subdiagonal dl, diagonal d and superdiagonal du, equal in all rows.
    Same([f64; 3]),
}

/// Returns the built-in system with the specification `spec`.
///
/// The right-hand side is b_i = u_i·d_i with u_i uniform in (0, 1) from `seed`. Systems are:
///
/// * `random:N`: off-diagonals uniform in (−1, 1), |d_i| = 1.1·(|dl_i| + |du_i|) with a random
///   sign.
/// * `toeplitz:N,DL,D,DU`: three constants in every row.
/// * `laplace:N`: −1, 2, −1.
///
/// One more parameter, as in `random:N,BATCH`, gives BATCH systems of N rows.
///
/// Returns `None` if `spec` does not begin with one of the names and a colon; it may be a path.
///
/// ```
/// let laplace = kolmo::models::tridiagonal("laplace:4", 0).unwrap()?;
/// assert_eq!(laplace.system.d, [2.0; 4]);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn tridiagonal(spec: &str, seed: u64) -> Option<Result<Tridiagonal>> {
    let whole = |built_in: BuiltIn| {
        let BuiltIn { n, batch, .. } = built_in;
        let [dl, d, du, b] = built_in.rows(0..n.saturating_mul(batch))?;
        Ok(Tridiagonal { name: built_in.name, system: System::batched(batch, dl, d, du, vec![b])? })
    };
    BuiltIn::parse(spec, seed, false).map(|built_in| built_in.and_then(whole))
}

impl BuiltIn {
    /// Parses the specification of a built-in system, see [`tridiagonal`].
    ///
    /// With `shared`, ranks share the rows; there may be more rows than one process accepts.
    pub fn parse(spec: &str, seed: u64, shared: bool) -> Option<Result<Self>> {
        let p = Parameters::of(spec, &["random:1000000", "laplace:1000000", "toeplitz:1000000,-1,4,-1"])?;
        let most = if shared { MOST_SHARED_ROWS } else { MOST_ROWS };
        let made = || {
            let names = if p.name == "toeplitz" { &["N", "DL", "D", "DU"][..] } else { &["N"] };
            let (n, batch) = rows(&p, names, most)?;
            let number = |place: usize, name: &str| match p.values[place].parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(value),
                _ => Err(p.refuse(name, "a finite number")),
            };
            let (given, numbers) = match p.name {
                "random" => (String::new(), Coefficients::Random),
                "laplace" => (String::new(), Coefficients::Same([-1.0, 2.0, -1.0])),
                _ => {
                    let (dl, d, du) = (number(1, "DL")?, number(2, "D")?, number(3, "DU")?);
                    (format!(",{dl},{d},{du}"), Coefficients::Same([dl, d, du]))
                }
            };
            let name = format!("{}:{n}{given}{}", p.name, systems(batch));
            Ok(Self { name, n, batch, numbers, seed })
        };
        Some(made())
    }

    /// Returns sub-, main, superdiagonal and right-hand side of `rows`, counted over all systems.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn rows(&self, rows: Range<usize>) -> Result<[Vec<f64>; 4]> {
        let what = || format!("{}: dl, d, du and b", self.name);
        crate::util::memory::expect_memory(32u64.saturating_mul(rows.len() as u64), what)?;
        let room = || try_zeroed(rows.len(), what);
        let [mut dl, mut d, mut du, mut b] = [room()?, room()?, room()?, room()?];
        let (seed, at) = (self.seed, rows.start as u64);
        match self.numbers {
            Coefficients::Random => {
                let side = |stream| move |k| 2.0 * uniform(seed, stream, at + k as u64) - 1.0;
                fill(&mut dl, side(0));
                fill(&mut du, side(1));
                let sign = |k: usize| if uniform(seed, 2, at + k as u64) < 0.5 { -1.0 } else { 1.0 };
                fill(&mut d, |k| sign(k) * 1.1 * (dl[k].abs() + du[k].abs()));
            }
            Coefficients::Same(numbers) => {
                [&mut dl, &mut d, &mut du].into_iter().zip(numbers).for_each(|(to, v)| fill(to, |_| v));
            }
        }
        fill(&mut b, |k| uniform(seed, 3, at + k as u64) * d[k]);
        Ok([dl, d, du, b])
    }
}

/// Returns the suffix `,BATCH` of a normalised specification; empty for a single system.
fn systems(batch: usize) -> String {
    if batch == 1 { String::new() } else { format!(",{batch}") }
}

/// Sets every element of an array to a function of its position.
fn fill(to: &mut [f64], number: impl Fn(usize) -> f64 + Sync) {
    to.par_iter_mut().enumerate().for_each(|(k, to)| *to = number(k));
}

/// Returns the built-in pentadiagonal or block tridiagonal system `spec`, and its name.
///
/// The right-hand side is as in [`tridiagonal`]. Systems are:
///
/// * `pentadiagonal:N`: off-diagonal elements uniform in (−1, 1); a diagonal element is 1.1 times
///   the sum of their absolute values in its row, with a random sign.
/// * `blocks:N`: like `pentadiagonal`, with N rows in blocks of 2 × 2.
/// * `biharmonic:N`: 1, −4, 6, −4, 1.
///
/// One more parameter BATCH gives BATCH systems of N rows. Returns `None` if `spec` does not begin
/// with one of the names and a colon.
///
/// ```
/// let (_, system) = kolmo::models::banded("biharmonic:4", 0).unwrap()?;
/// assert_eq!(system.arrays()[0], [0.0, 0.0, 1.0, 1.0]);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn banded(spec: &str, seed: u64) -> Option<Result<(String, BandedSystem)>> {
    let p = Parameters::of(spec, &["pentadiagonal:1000000", "blocks:1000000", "biharmonic:1000000"])?;
    Some(banded_of(&p, seed))
}

fn banded_of(p: &Parameters<'_>, seed: u64) -> Result<(String, BandedSystem)> {
    let kind = p.name;
    let form = if kind == "blocks" { Form::Blocks } else { Form::Pentadiagonal };
    let (n, batch) = rows(p, &["N"], MOST_ROWS)?;
    if form == Form::Blocks && n % 2 != 0 {
        return Err(p.refuse("N (rows)", "an even number"));
    }
    let (all, count, width) = (n.saturating_mul(batch), form.names().len(), form.width());
    let name = format!("{kind}:{n}{}", systems(batch));
    let bytes = (8 * (count * width + 1) as u64).saturating_mul(all as u64);
    crate::util::memory::expect_memory(bytes, || format!("the arrays of {name}"))?;
    let array = |k: usize| -> Vec<f64> {
        let number = |at: usize| match kind {
            "biharmonic" => [1.0, -4.0, 6.0, -4.0, 1.0][k],
            _ => 2.0 * uniform(seed, k as u64, at as u64) - 1.0,
        };
        (0..width * all).into_par_iter().map(number).collect()
    };
    let mut arrays: Vec<Vec<f64>> = (0..count).map(array).collect();
    let place = |i: usize| width * i + if width == 2 { i % 2 } else { 0 };
    if kind != "biharmonic" {
        let element = |i: usize| {
            let sizes = |at: usize| arrays.iter().map(move |array| array[at].abs());
            let given = arrays[count / 2][place(i)];
            let sum = (width * i..width * (i + 1)).flat_map(sizes).sum::<f64>() - given.abs();
            1.1 * sum * if given < 0.0 { -1.0 } else { 1.0 }
        };
        let diagonal: Vec<f64> = (0..all).into_par_iter().map(element).collect();
        diagonal.into_iter().enumerate().for_each(|(i, v)| arrays[count / 2][place(i)] = v);
    }
    let b = |i: usize| uniform(seed, count as u64, i as u64) * arrays[count / 2][place(i)];
    let b = (0..all).into_par_iter().map(b).collect();
    Ok((name, BandedSystem::new(form, batch, arrays, vec![b])?))
}

/// Reads the number of rows of a system, at most `most`, and the number of systems, 1 by default.
fn rows(p: &Parameters<'_>, names: &[&str], most: u64) -> Result<(usize, usize)> {
    let batch = match p.values.len() == names.len() + 1 {
        true => p.whole(names.len(), "BATCH (systems)", MOST_ROWS)?,
        false => p.expect(names).map(|()| 1)?,
    };
    let n = p.whole(0, "N (rows)", most)?;
    Ok((n as usize, batch as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_same_in_any_parts() {
        for spec in ["random:1000", "random:100,10", "toeplitz:1000,-1,4,-2"] {
            let whole = tridiagonal(spec, 7).unwrap().unwrap().system;
            let built_in = BuiltIn::parse(spec, 7, true).unwrap().unwrap();
            let parts = [0..400, 400..400, 400..1000].map(|range| built_in.rows(range).unwrap());
            for (k, all) in [&whole.dl, &whole.d, &whole.du, &whole.b[0]].into_iter().enumerate() {
                assert_eq!(&parts.iter().flat_map(|part| part[k].clone()).collect::<Vec<_>>(), all);
            }
        }
    }
}
