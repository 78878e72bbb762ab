//! LAPACK's `dgtsv` and `dgbsv`: elimination with partial pivoting on one thread (Anderson et al.,
//! LAPACK Users' Guide, 1999).

#![expect(unsafe_code, reason = "a foreign interface")]

use std::time::Instant;

use libloading::Library;

use super::{banded_residual, residual, rows};
use crate::{PeerTimes, Spread};
use kolmo::tridiagonal::{BandedSystem, Form, System};

/// File names of LAPACK libraries. The environment variable `KOLMO_LAPACK` precedes them.
const LIBRARIES: [&str; 5] =
    ["libopenblas.so.0", "liblapack.so.3", "libmkl_rt.so.2", "libopenblas.dylib", "liblapack.dylib"];

/// Signature of `dgtsv`: n, nrhs, dl, d, du, b, ldb, info.
type Dgtsv = unsafe extern "C" fn(
    *const i32,
    *const i32,
    *mut f64,
    *mut f64,
    *mut f64,
    *mut f64,
    *const i32,
    *mut i32,
);

fn library() -> Result<(String, Library), String> {
    let given = std::env::var("KOLMO_LAPACK").ok();
    let names = given.iter().map(String::as_str).chain(LIBRARIES);
    let mut why = Vec::new();
    for name in names {
        // SAFETY: loading runs the initialisation of a BLAS library.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name.to_owned(), library)),
            Err(_) => why.push(name),
        }
    }
    Err(format!("LAPACK is none of {}; KOLMO_LAPACK names another library", why.join(", ")))
}

/// Measures `dgtsv` on copies of a system's rows, one system after another, without the copying.
///
/// # Errors
/// If there is no LAPACK, the system is cyclic, or a matrix is singular.
pub fn dgtsv(system: &System, repeat: usize) -> Result<PeerTimes, String> {
    if system.cyclic {
        return Err("LAPACK has no routine for cyclic systems".to_owned());
    }
    let n = i32::try_from(system.n).map_err(|_| format!("{} rows are too many for dgtsv", system.n))?;
    let (name, library) = library()?;
    // SAFETY: this is the signature of the routine with 32-bit integers.
    let dgtsv = unsafe { library.get::<Dgtsv>(b"dgtsv_\0") }.map_err(|e| format!("{name}: {e}"))?;
    let given = rows(system);
    let mut own = given.clone();
    let mut seconds = Vec::new();
    // The first measurement is a warm-up.
    for _ in 0..=repeat {
        own.iter_mut().zip(&given).for_each(|(own, given)| own.copy_from_slice(given));
        let at = Instant::now();
        for s in 0..system.batch {
            let [dl, d, du, b] = own.each_mut().map(|v| &mut v[s * system.n..(s + 1) * system.n]);
            let (one, mut info) = (1, 0);
            // SAFETY: d and b have n numbers; dl and du have n − 1, dl's from its second on.
            unsafe {
                let dl = dl.as_mut_ptr().wrapping_add(usize::from(n > 1));
                dgtsv(&n, &one, dl, d.as_mut_ptr(), du.as_mut_ptr(), b.as_mut_ptr(), &n, &mut info);
            }
            if info != 0 {
                return Err(format!("dgtsv: info = {info} in system {s}"));
            }
        }
        seconds.push(at.elapsed().as_secs_f64());
    }
    Ok(PeerTimes {
        name: "dgtsv",
        library: name,
        seconds: Spread::of(seconds.split_off(1)),
        // The second upper diagonal overwrites dl, and x overwrites b.
        extra_memory: 0.0,
        residual: residual(system, &own[3]),
    })
}

/// Signature of `dgbsv`: n, kl, ku, nrhs, ab, ldab, ipiv, b, ldb, info.
type Dgbsv = unsafe extern "C" fn(
    *const i32,
    *const i32,
    *const i32,
    *const i32,
    *mut f64,
    *const i32,
    *mut i32,
    *mut f64,
    *const i32,
    *mut i32,
);

/// Stores the matrix of system `s` in the band format of `dgbsv`.
///
/// Columns have 3·beside + 1 numbers, where `beside` is the half bandwidth. The first `beside` of
/// them are space for fill-in.
fn band(system: &BandedSystem, s: usize, beside: usize, ab: &mut [f64]) {
    let (n, height, arrays) = (system.n(), 3 * beside + 1, system.arrays());
    ab.fill(0.0);
    let mut put = |i: usize, j: isize, v: f64| {
        if v != 0.0 {
            let j = j as usize;
            ab[j * height + 2 * beside + i - j] = v;
        }
    };
    for i in 0..n {
        let row = s * n + i;
        match system.form() {
            Form::Pentadiagonal => {
                (-2..).zip(arrays).for_each(|(k, array)| put(i, i as isize + k, array[row]));
            }
            Form::Blocks => {
                let first = (i / 2 * 2) as isize - 2;
                for (k, array) in (0..).zip(arrays) {
                    (0..2).for_each(|j| put(i, first + 2 * k + j, array[2 * row + j as usize]));
                }
            }
        }
    }
}

/// Measures `dgbsv` on a pentadiagonal or block tridiagonal system, without the copying.
///
/// # Errors
/// If there is no LAPACK, or a matrix is singular.
pub fn dgbsv(system: &BandedSystem, repeat: usize) -> Result<PeerTimes, String> {
    let n = i32::try_from(system.n()).map_err(|_| format!("{} rows are too many for dgbsv", system.n()))?;
    let (name, library) = library()?;
    // SAFETY: this is the signature of the routine with 32-bit integers.
    let dgbsv = unsafe { library.get::<Dgbsv>(b"dgbsv_\0") }.map_err(|e| format!("{name}: {e}"))?;
    let beside = if system.form() == Form::Pentadiagonal { 2 } else { 3 };
    let height = 3 * beside + 1;
    let mut ab = vec![0.0; height * system.n()];
    let mut pivots = vec![0i32; system.n()];
    let (mut x, mut seconds) = (Vec::new(), Vec::new());
    // The first measurement is a warm-up.
    for _ in 0..=repeat {
        x.clone_from(&system.b[0]);
        let mut all = 0.0;
        for (s, b) in x.chunks_exact_mut(system.n()).enumerate() {
            band(system, s, beside, &mut ab);
            let (kl, ldab, one, mut info) = (beside as i32, height as i32, 1, 0);
            let at = Instant::now();
            // SAFETY: ab has n columns of 2·kl + ku + 1 numbers, the other two have n.
            unsafe {
                let (ab, pivots) = (ab.as_mut_ptr(), pivots.as_mut_ptr());
                dgbsv(&n, &kl, &kl, &one, ab, &ldab, pivots, b.as_mut_ptr(), &n, &mut info);
            }
            all += at.elapsed().as_secs_f64();
            if info != 0 {
                return Err(format!("dgbsv: info = {info} in system {s}"));
            }
        }
        seconds.push(all);
    }
    let given = (system.form().width() * system.arrays().len() + 2) as f64;
    Ok(PeerTimes {
        name: "dgbsv",
        library: name,
        seconds: Spread::of(seconds.split_off(1)),
        // x overwrites b; a pivot index takes half as much as a number.
        extra_memory: (height as f64 + 1.5) / given - 1.0,
        residual: banded_residual(system, &x),
    })
}
