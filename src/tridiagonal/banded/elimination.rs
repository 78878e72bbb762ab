//! Gaussian elimination with partial pivoting of banded matrices on the host, as LAPACK's `dgbsv`: a row is exchanged with the
//! one of those below that has the largest element, which doubles the upper bandwidth.

/// Solves in place, several right-hand sides of one matrix of `n` rows with as many diagonals on either side: `W` in all,
/// the row of a pivot that is zero, if there is one. `row` gives the elements of a row, the middle one its diagonal's.
pub(super) fn solve<const W: usize>(
    n: usize,
    row: impl Fn(usize) -> [f64; W],
    b: &mut [Vec<f64>],
) -> Option<usize> {
    let beside = W / 2;
    // The first rows from column 0 on.
    let mut active: Vec<[f64; W]> = (0..n.min(beside + 1))
        .map(|i| {
            let mut own = row(i);
            own.rotate_left(beside - i);
            own[W - (beside - i)..].fill(0.0);
            own
        })
        .collect();
    let mut upper = Vec::with_capacity(n);
    for i in 0..n {
        let mut largest = 0;
        for k in 1..active.len() {
            if active[k][0].abs() > active[largest][0].abs() {
                largest = k;
            }
        }
        if active[largest][0] == 0.0 {
            return Some(i);
        }
        active.swap(0, largest);
        b.iter_mut().for_each(|b| b.swap(i, i + largest));
        let pivot = active[0];
        for (k, own) in active.iter_mut().enumerate().skip(1) {
            let factor = own[0] / pivot[0];
            for j in 1..W {
                own[j - 1] = own[j] - factor * pivot[j];
            }
            own[W - 1] = 0.0;
            b.iter_mut().for_each(|b| b[i + k] -= factor * b[i]);
        }
        upper.push(pivot);
        active.remove(0);
        if i + beside + 1 < n {
            active.push(row(i + beside + 1));
        }
    }
    for b in b {
        for (i, own) in upper.iter().enumerate().rev() {
            let behind = own[1..].iter().zip(&b[i + 1..]).map(|(u, x)| u * x).sum::<f64>();
            b[i] = (b[i] - behind) / own[0];
        }
    }
    None
}
