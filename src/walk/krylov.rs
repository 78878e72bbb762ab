//! BiCGSTAB (H. A. van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of
//! nonsymmetric linear systems", SIAM Journal on Scientific and Statistical Computing 13, 1992, doi:10.1137/0913035).

use crate::Result;
use crate::parallel::*;

/// Rows of one piece: its sums do not depend on the number of threads, and a small system has no others.
const PIECE: usize = 4096;

/// Gets the number of products so far, now and then. An error, or a `false`, ends the work; with `false` what there is by
/// then is used.
pub(super) type GoOn<'a> = &'a mut (dyn FnMut(usize) -> Result<bool> + Send);

/// Sums of pieces, in their order.
fn added<const K: usize>(pieces: Vec<[f64; K]>) -> [f64; K] {
    std::array::from_fn(|k| pieces.iter().map(|piece| piece[k]).sum())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// y = (I − M) x, and its scalar products with `other` and itself.
fn apply(
    product: &(impl Fn(usize, &[f64], &mut [f64]) + Sync),
    x: &[f64],
    y: &mut [f64],
    other: &[f64],
) -> [f64; 2] {
    let pieces = y.par_chunks_mut(PIECE).enumerate().map(|(k, y)| {
        let rows = k * PIECE..k * PIECE + y.len();
        product(rows.start, x, y);
        y.iter_mut().zip(&x[rows.clone()]).for_each(|(y, x)| *y = x - *y);
        [dot(y, &other[rows]), dot(y, y)]
    });
    added(pieces.collect())
}

/// x of (I − M) x = b, roughly, and the number of products with M: until `enough` takes the residual, `most` products
/// are done, or `go_on` ends it. `product` gets the first of some rows, a vector and their rows of M times that. How good x
/// is is for the caller to find out.
pub(super) fn bicgstab(
    product: &(impl Fn(usize, &[f64], &mut [f64]) + Sync),
    b: &[f64],
    most: usize,
    enough: impl Fn(&[f64]) -> bool,
    go_on: GoOn<'_>,
) -> Result<(Vec<f64>, usize)> {
    let n = b.len();
    let mut x = b.to_vec();
    let mut r = vec![0.0; n];
    apply(product, &x, &mut r, b);
    r.par_chunks_mut(PIECE).zip(b.par_chunks(PIECE)).for_each(|(r, b)| {
        r.iter_mut().zip(b).for_each(|(r, b)| *r = b - *r);
    });
    let shadow = r.clone();
    let (mut p, mut mp, mut s, mut ms) = (r.clone(), vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    let [mut rho] = added(shadow.par_chunks(PIECE).map(|r| [dot(r, r)]).collect());
    let mut used = 1;
    while used + 2 <= most && !enough(&r) && go_on(used)? {
        let alpha = rho / apply(product, &p, &mut mp, &shadow)[0];
        s.par_chunks_mut(PIECE).zip(r.par_chunks(PIECE)).zip(mp.par_chunks(PIECE)).for_each(
            |((s, r), mp)| s.iter_mut().zip(r).zip(mp).for_each(|((s, r), mp)| *s = r - alpha * mp),
        );
        let [with_s, with_itself] = apply(product, &s, &mut ms, &s);
        used += 2;
        let omega = with_s / with_itself.max(f64::MIN_POSITIVE);
        let pieces = x.par_chunks_mut(PIECE).zip(r.par_chunks_mut(PIECE)).enumerate().map(|(k, (x, r))| {
            let rows = k * PIECE..k * PIECE + x.len();
            let (p, s, ms, shadow) = (&p[rows.clone()], &s[rows.clone()], &ms[rows.clone()], &shadow[rows]);
            x.iter_mut().zip(p).zip(s).for_each(|((x, p), s)| *x += alpha * p + omega * s);
            r.iter_mut().zip(s).zip(ms).for_each(|((r, s), ms)| *r = s - omega * ms);
            [dot(shadow, r)]
        });
        let [next] = added(pieces.collect());
        let beta = next / rho * (alpha / omega);
        rho = next;
        if !beta.is_finite() {
            break;
        }
        p.par_chunks_mut(PIECE).zip(r.par_chunks(PIECE)).zip(mp.par_chunks(PIECE)).for_each(
            |((p, r), mp)| {
                p.iter_mut().zip(r).zip(mp).for_each(|((p, r), mp)| *p = r + beta * (*p - omega * mp));
            },
        );
    }
    Ok((x, used))
}
