//! BiCGSTAB (H. A. van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of
//! nonsymmetric linear systems", SIAM Journal on Scientific and Statistical Computing 13, 1992, doi:10.1137/0913035).

use crate::parallel::*;

/// Elements added in one piece, so that sums do not depend on the number of threads.
const PIECE: usize = 4096;

/// A scalar product whose bits do not depend on the number of threads.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let pieces: Vec<f64> = a
        .par_chunks(PIECE)
        .zip(b.par_chunks(PIECE))
        .map(|(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum())
        .collect();
    pieces.iter().sum()
}

/// x of (I − M) x = b, roughly, and the number of products with M: until `enough` takes the residual, or `most` products
/// are done. How good x is is for the caller to find out.
pub(super) fn bicgstab(
    product: &(impl Fn(&[f64], &mut [f64]) + Sync),
    b: &[f64],
    most: usize,
    enough: impl Fn(&[f64]) -> bool,
) -> (Vec<f64>, usize) {
    let n = b.len();
    let apply = |x: &[f64], y: &mut [f64]| {
        product(x, y);
        y.par_iter_mut().zip(x).for_each(|(y, x)| *y = x - *y);
    };
    let mut x = b.to_vec();
    let mut r = vec![0.0; n];
    apply(&x, &mut r);
    r.par_iter_mut().zip(b).for_each(|(r, b)| *r = b - *r);
    let shadow = r.clone();
    let (mut p, mut mp, mut s, mut ms) = (r.clone(), vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    let mut rho = dot(&shadow, &r);
    let mut used = 1;
    while used + 2 <= most && !enough(&r) {
        apply(&p, &mut mp);
        let alpha = rho / dot(&shadow, &mp);
        s.par_iter_mut().zip(&r).zip(&mp).for_each(|((s, r), mp)| *s = r - alpha * mp);
        apply(&s, &mut ms);
        used += 2;
        let omega = dot(&ms, &s) / dot(&ms, &ms).max(f64::MIN_POSITIVE);
        x.par_iter_mut().zip(&p).zip(&s).for_each(|((x, p), s)| *x += alpha * p + omega * s);
        r.par_iter_mut().zip(&s).zip(&ms).for_each(|((r, s), ms)| *r = s - omega * ms);
        let next = dot(&shadow, &r);
        let beta = next / rho * (alpha / omega);
        rho = next;
        if !beta.is_finite() {
            break;
        }
        p.par_iter_mut().zip(&r).zip(&mp).for_each(|((p, r), mp)| *p = r + beta * (*p - omega * mp));
    }
    (x, used)
}
