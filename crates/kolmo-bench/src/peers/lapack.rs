//! LAPACK's `dgtsv` (Anderson et al., LAPACK Users' Guide, 1999): elimination with partial pivoting on one thread.

#![expect(unsafe_code, reason = "a foreign interface")]

use std::time::Instant;

use libloading::Library;

use super::{PeerTimes, residual, rows};
use crate::Spread;
use kolmo::tridiagonal::System;

/// Names that LAPACK goes by; the environment variable `KOLMO_LAPACK` comes before them.
const LIBRARIES: [&str; 5] =
    ["libopenblas.so.0", "liblapack.so.3", "libmkl_rt.so.2", "libopenblas.dylib", "liblapack.dylib"];

/// n, nrhs, dl, d, du, b, ldb, info.
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
        // SAFETY: the library's initialisation is that of a BLAS.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name.to_owned(), library)),
            Err(_) => why.push(name),
        }
    }
    Err(format!("LAPACK is none of {}; KOLMO_LAPACK names another library", why.join(", ")))
}

/// Times `dgtsv` on copies of a system's rows, one system after the other; the copies are not timed.
///
/// # Errors
/// If there is no LAPACK, the system is cyclic, or a matrix is singular.
pub fn dgtsv(system: &System, repeat: usize) -> Result<PeerTimes, String> {
    if system.cyclic {
        return Err("LAPACK has no routine for cyclic systems".to_owned());
    }
    let n = i32::try_from(system.n).map_err(|_| format!("{} rows are too many for dgtsv", system.n))?;
    let (name, library) = library()?;
    // SAFETY: this is the routine's interface, with integers of 32 bits.
    let dgtsv = unsafe { library.get::<Dgtsv>(b"dgtsv_\0") }.map_err(|e| format!("{name}: {e}"))?;
    let given = rows(system);
    let mut own = given.clone();
    let mut seconds = Vec::new();
    // The first one does not count.
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
        // The second upper diagonal takes the place of the lower one, and x that of b.
        extra_memory: 0.0,
        residual: residual(system, &own[3]),
    })
}
