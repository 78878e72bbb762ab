//! The projected equation u' = H u, u(0) = e₁, solved by piecewise polynomials.
//!
//! H is that of a recurrence (P − I) V = V H + w eᵀ + F, see [`krylov`](super::exponential). For
//! any curve û, the defect of y = V û is V (û' − H û) − û_m w − F û. Its integral is bounded from
//! the polynomials as stored. So the exponentials e^{hH} − I that give their values need no error
//! bound; they are computed by squaring in double precision.

use std::sync::LazyLock;

use super::arnoldi::Recurrence;
use crate::numerics::double_double::{CompensatedSum, UNIT};

/// Degree of the polynomials.
const DEGREE: usize = 16;
/// Number of coefficients of a polynomial.
const TERMS: usize = DEGREE + 1;
/// Number of grid steps per [`LocalPolynomial`]; the interpolation points are grid points.
const GRID: f64 = 128.0;
/// Number of bits of the largest distance in grid steps between interpolation points.
const BITS: usize = 4;
/// Number of leading coefficients with residuals in double-double. Later ones are much smaller.
const EXACT: usize = 2;
/// Maximum number of terms of a double-double sum.
const MOST_TERMS: usize = 64;
/// Factor that covers the rounding of a sum of some ten thousand terms of one sign.
const MARGIN: f64 = 1.000_001;

/// Returns the interpolation points, the grid points nearest to the Chebyshev extrema.
fn places() -> [u32; TERMS] {
    std::array::from_fn(|i| {
        let angle = std::f64::consts::PI * i as f64 / DEGREE as f64;
        (0.5 * GRID * (1.0 - angle.cos())).round() as u32
    })
}

/// Returns the Chebyshev polynomials T_0(θ), T_1(θ), ….
fn polynomials(theta: f64) -> [f64; TERMS] {
    let mut values = [1.0; TERMS];
    values[1] = theta;
    for n in 2..TERMS {
        values[n] = 2.0 * theta * values[n - 1] - values[n - 2];
    }
    values
}

/// Matrix that maps values at the interpolation points to Chebyshev coefficients, by rows.
static FROM_VALUES: LazyLock<Vec<[f64; TERMS]>> = LazyLock::new(|| {
    let mut rows: Vec<([f64; TERMS], [f64; TERMS])> = (0..TERMS)
        .map(|i| {
            let mut unit = [0.0; TERMS];
            unit[i] = 1.0;
            (polynomials(2.0 * f64::from(places()[i]) / GRID - 1.0), unit)
        })
        .collect();
    for k in 0..TERMS {
        let pivot = (k..TERMS).max_by(|&a, &b| rows[a].0[k].abs().total_cmp(&rows[b].0[k].abs()));
        rows.swap(k, pivot.unwrap_or(k));
        let (own, right) = rows[k];
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            let factor = row.0[k] / own[k];
            (0..TERMS).for_each(|j| row.0[j] -= factor * own[j]);
            (0..TERMS).for_each(|j| row.1[j] -= factor * right[j]);
        }
    }
    rows.iter().enumerate().map(|(k, (own, right))| right.map(|r| r / own[k])).collect()
});

/// Polynomial that approximates the solution û of the projected equation on an interval.
#[derive(Debug, Clone)]
pub(crate) struct LocalPolynomial {
    /// Start of the interval in units of 1/α.
    pub(crate) from: f64,
    /// Length of the interval in units of 1/α.
    pub(crate) length: f64,
    /// For each Chebyshev polynomial T_n its coefficients, one number per component of û.
    terms: Vec<Vec<f64>>,
    /// Value of each component at the end of the interval.
    end: Vec<f64>,
    /// Accumulated error from time 0 to the end of this piece.
    pub(crate) error: OdeError,
}

/// Accumulated l1 error of an approximation y = V û (V: Krylov basis).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OdeError {
    /// Truncation error of the Krylov space.
    pub(crate) truncation: f64,
    /// Upper bound of the l1 error of V û from rounding and from the defect û' − H û.
    ///
    /// Rounding is that of the Arnoldi recurrence, its term F.
    pub(crate) rounding: f64,
}

impl OdeError {
    pub(crate) fn total(self) -> f64 {
        self.truncation + self.rounding
    }
}

/// Values of the solution û of the projected equation at a time.
pub(crate) struct OdeValues {
    /// Coefficients û of the basis vectors at the time.
    pub(crate) at: Vec<f64>,
    /// Integral of these coefficients û from 0 to the time, which accumulated rewards need.
    pub(crate) until: Vec<f64>,
    /// Bound of the l1 error of V û (V: Krylov basis) from the rounding of `at` and of the time.
    pub(crate) rounding: f64,
}

/// Piecewise polynomial solution û of u' = H u, under construction.
pub(super) struct Projected<'a> {
    recurrence: &'a Recurrence,
    m: usize,
    /// The matrix H, row by row.
    matrix: Vec<f64>,
    /// Length of the shortest piece in units of 1/α.
    first: f64,
    /// e^{hH} − I for h = first/GRID and its multiples by powers of two, column by column.
    steps: Vec<Vec<f64>>,
    pub(crate) pieces: Vec<LocalPolynomial>,
}

impl<'a> Projected<'a> {
    pub(crate) fn new(recurrence: &'a Recurrence) -> Self {
        let m = recurrence.columns.len();
        let mut matrix = vec![0.0; m * m];
        for (j, column) in recurrence.columns.iter().enumerate() {
            column.iter().take(m).enumerate().for_each(|(i, &h)| matrix[i * m + j] = h);
        }
        let sums = recurrence.columns.iter().map(|column| column.iter().map(|h| h.abs()).sum::<f64>());
        let largest = sums.fold(f64::MIN_POSITIVE, f64::max);
        // A power of two such that `first` times the norm of the matrix is at most 2.
        let first = (1.0 / largest).log2().floor().clamp(-900.0, 900.0).exp2() * 2.0;
        let mut projected = Self { recurrence, m, matrix, first, steps: Vec::new(), pieces: Vec::new() };
        projected.steps.push(projected.shortest());
        projected
    }

    /// Computes e^{hH} − I of the shortest step (‖hH‖ ≤ 1/64) by eight terms of Taylor's series.
    fn shortest(&self) -> Vec<f64> {
        let (m, h) = (self.m, self.first / GRID);
        let scaled: Vec<f64> = (0..m * m).map(|k| self.matrix[k % m * m + k / m] * h).collect();
        let mut sum = scaled.clone();
        for k in (2..=8).rev() {
            // A (I + sum/k), where `sum` has the later terms.
            let behind = product(&sum, &scaled, m);
            sum = scaled.iter().zip(&behind).map(|(a, b)| a + b / f64::from(k)).collect();
        }
        sum
    }

    /// Computes e^{hH} − I for h up to `first`/GRID times 2^`level`.
    fn step(&mut self, level: usize) {
        while self.steps.len() <= level {
            let last = self.steps.last().expect("there is a first");
            let mut next = product(last, last, self.m);
            next.iter_mut().zip(last).for_each(|(n, z)| *n += 2.0 * z);
            self.steps.push(next);
        }
    }

    /// Returns the time at which the last piece ends.
    pub(crate) fn end(&self) -> f64 {
        self.pieces.last().map_or(0.0, |piece| piece.from + piece.length)
    }

    pub(crate) fn error(&self) -> OdeError {
        self.pieces.last().map_or(OdeError::default(), |piece| piece.error)
    }

    /// Appends polynomial pieces up to the time `wanted`, as long as `allowed(error, time)` is
    /// true.
    pub(crate) fn extend(&mut self, wanted: f64, allowed: impl Fn(OdeError, f64) -> bool) {
        let (mut level, mut grows_at) = (0, 0.0);
        while self.end() < wanted {
            let piece = self.piece(level);
            let end = piece.from + piece.length;
            if allowed(piece.error, end.min(wanted)) {
                self.pieces.push(piece);
                // A piece may be as long as all before it, since fast modes have decayed by then.
                if 2.0 * self.length(level) <= end && end >= grows_at {
                    level += 1;
                }
                continue;
            }
            if level == 0 || self.length(level) < end / 32.0 {
                break;
            }
            (level, grows_at) = (level - 1, 2.0 * end);
        }
    }

    fn length(&self, level: usize) -> f64 {
        self.first * (level as f64).exp2()
    }

    /// Computes the polynomial that continues û after the last piece, without adding it.
    ///
    /// Its interval is as long as the shortest one, `first`, times 2^`level`.
    fn piece(&mut self, level: usize) -> LocalPolynomial {
        self.step(level + BITS - 1);
        let (m, from, length) = (self.m, self.end(), self.length(level));
        let begin = match self.pieces.last() {
            Some(piece) => piece.end.clone(),
            None => (0..m).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect(),
        };
        // Changes from the initial values are stored, because their rounding is smaller.
        let mut change = vec![0.0; m];
        let mut changes = vec![change.clone()];
        for pair in places().windows(2) {
            for bit in (0..BITS).filter(|bit| (pair[1] - pair[0]) >> bit & 1 == 1) {
                let value: Vec<f64> = begin.iter().zip(&change).map(|(b, c)| b + c).collect();
                let grown = times(&self.steps[level + bit], &value);
                change.iter_mut().zip(&grown).for_each(|(c, g)| *c += g);
            }
            changes.push(change.clone());
        }
        let term = |factors: &[f64; TERMS]| -> Vec<f64> {
            (0..m).map(|i| factors.iter().zip(&changes).map(|(f, v)| f * v[i]).sum()).collect()
        };
        let mut terms: Vec<Vec<f64>> = FROM_VALUES.iter().map(term).collect();
        terms[0].iter_mut().zip(&begin).for_each(|(t, b)| *t += b);
        let mut piece = LocalPolynomial { from, length, terms, end: Vec::new(), error: self.error() };
        piece.end = (0..m).map(|i| piece.at_end(i, 1.0).sum).collect();
        self.account(&mut piece);
        piece
    }

    /// Adds the error of V û over a piece to the piece's accumulated error.
    fn account(&self, piece: &mut LocalPolynomial) {
        let (m, recurrence) = (self.m, self.recurrence);
        let (mut residual, mut rounding, mut last) = (0.0, 0.0, 0.0);
        let slopes = piece.slopes();
        for i in 0..m {
            let own: f64 = piece.terms.iter().map(|term| term[i].abs()).sum();
            // The jump between this piece and the end of the one before.
            let mut jump = piece.at_end(i, -1.0);
            let before = match self.pieces.last() {
                Some(before) => {
                    let end = before.at_end(i, 1.0);
                    jump.add(-end.sum);
                    jump.add(-end.lost);
                    before.terms.iter().map(|term| term[i].abs()).sum()
                }
                None => {
                    let begin = if i == 0 { 1.0 } else { 0.0 };
                    jump.add(-begin);
                    begin
                }
            };
            let mut defect = 0.0;
            let row = &self.matrix[i * m..][..m];
            let from = i.saturating_sub(1);
            for (n, (term, slope)) in piece.terms.iter().zip(&slopes).enumerate() {
                let (row, term) = (&row[from..], &term[from..]);
                let all = row.iter().zip(term).fold(slope[i].abs(), |all, (h, c)| all + (h * c).abs());
                defect += if n < EXACT {
                    let mut sum = CompensatedSum { sum: slope[i], lost: 0.0 };
                    row.iter().zip(term).for_each(|(h, c)| sum.add_product(-h, *c));
                    sum.magnitude(MOST_TERMS, all)
                } else {
                    let sum = row.iter().zip(term).fold(slope[i], |sum, (h, c)| sum - h * c);
                    sum.abs() + 64.0 * UNIT * all
                };
            }
            // A slope is a sum of at most nine products, each of which is rounded as well.
            let slopes: f64 =
                piece.terms.iter().enumerate().map(|(n, term)| (n * n) as f64 * term[i].abs()).sum();
            let slopes = 40.0 * UNIT * slopes;
            let weight = recurrence.norms[i];
            residual += weight * (piece.length * defect + slopes + jump.magnitude(MOST_TERMS, own + before));
            rounding += recurrence.rounding[i] * own;
            last = own;
        }
        let error = &mut piece.error;
        error.truncation += MARGIN * piece.length * last * recurrence.residual;
        error.rounding += MARGIN * (residual + piece.length * rounding);
    }

    /// Evaluates û at a time that is known to an error of `doubt`.
    pub(crate) fn values(&self, time: f64, doubt: f64) -> OdeValues {
        let place = self.pieces.partition_point(|piece| piece.from + piece.length < time);
        let piece = &self.pieces[place.min(self.pieces.len() - 1)];
        let (mut at, mut until) = (vec![0.0; self.m], vec![0.0; self.m]);
        let theta = (2.0 * ((time - piece.from) / piece.length) - 1.0).clamp(-1.0, 1.0);
        for before in &self.pieces[..place.min(self.pieces.len() - 1)] {
            before.integrate(1.0, &mut until);
        }
        piece.integrate(theta, &mut until);
        let polynomials = polynomials(theta);
        let slopes = piece.slopes();
        let mut rounding = 0.0;
        for i in 0..self.m {
            at[i] = piece.terms.iter().zip(polynomials).map(|(term, p)| term[i] * p).sum();
            let unit: f64 =
                piece.terms.iter().enumerate().map(|(n, term)| (n * n + n + 20) as f64 * term[i].abs()).sum();
            let slope: f64 = slopes.iter().map(|slope| slope[i].abs()).sum();
            rounding += self.recurrence.norms[i] * (10.0 * UNIT * unit + 1.01 * doubt * slope);
        }
        OdeValues { at, until, rounding: MARGIN * rounding }
    }
}

impl LocalPolynomial {
    /// Returns component `component` of û at the end (`side` = 1) or the start (`side` = −1).
    fn at_end(&self, component: usize, side: f64) -> CompensatedSum {
        let mut sum = CompensatedSum::default();
        let mut sign = 1.0;
        for term in &self.terms {
            sum.add(sign * term[component]);
            sign *= side;
        }
        sum
    }

    /// Returns the Chebyshev coefficients of the derivative of this polynomial.
    fn slopes(&self) -> Vec<Vec<f64>> {
        let m = self.end.len();
        let mut slopes = vec![vec![0.0; m]; TERMS + 1];
        for n in (1..TERMS).rev() {
            let (own, above) = slopes.split_at_mut(n + 1);
            for ((slope, above), term) in own[n - 1].iter_mut().zip(&above[0]).zip(&self.terms[n]) {
                *slope = above + (2 * n) as f64 * term;
            }
        }
        slopes.truncate(TERMS);
        slopes[0].iter_mut().for_each(|s| *s *= 0.5);
        let factor = 2.0 / self.length;
        slopes.iter_mut().flatten().for_each(|s| *s *= factor);
        slopes
    }

    /// Adds ∫ û from the start of the piece (θ = −1) up to θ in \[−1, 1\] to `sums`.
    fn integrate(&self, theta: f64, sums: &mut [f64]) {
        // ∫ T_n = (T_{n+1}/(n + 1) − T_{n−1}/(n − 1))/2.
        let antiderivatives = |theta: f64| -> [f64; TERMS] {
            let p = polynomials(theta);
            let above = 2.0 * theta * p[TERMS - 1] - p[TERMS - 2];
            std::array::from_fn(|n| match n {
                0 => theta,
                1 => 0.5 * theta * theta,
                _ => {
                    let up = if n + 1 < TERMS { p[n + 1] } else { above };
                    0.5 * (up / (n + 1) as f64 - p[n - 1] / (n - 1) as f64)
                }
            })
        };
        let (to, from) = (antiderivatives(theta), antiderivatives(-1.0));
        for (n, term) in self.terms.iter().enumerate() {
            let factor = 0.5 * self.length * (to[n] - from[n]);
            sums.iter_mut().zip(term).for_each(|(sum, c)| *sum += factor * c);
        }
    }
}

/// Multiplies square matrices stored row by row; with swapped factors also column by column.
fn product(a: &[f64], b: &[f64], m: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * m];
    for (row, out) in a.chunks(m).zip(c.chunks_mut(m)) {
        for (factor, other) in row.iter().zip(b.chunks(m)) {
            out.iter_mut().zip(other).for_each(|(o, b)| *o += factor * b);
        }
    }
    c
}

/// Multiplies a matrix, stored column by column, and a vector.
fn times(a: &[f64], x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for (column, x) in a.chunks(x.len()).zip(x) {
        y.iter_mut().zip(column).for_each(|(y, a)| *y += a * x);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a recurrence without rounding errors and without a remainder.
    fn closed(matrix: &[&[f64]]) -> Recurrence {
        let m = matrix.len();
        Recurrence {
            columns: (0..m).map(|j| matrix.iter().map(|row| row[j]).collect()).collect(),
            norms: vec![1.0; m],
            rounding: vec![0.0; m],
            residual: 0.0,
            rewards: Vec::new(),
        }
    }

    #[test]
    fn a_solution_is_within_its_bound_of_the_closed_form() {
        // Two states with rates that are far apart: e^{−s} and e^{−s/10⁵}, after a change of basis.
        let (fast, slow) = (-1.0, -1e-5);
        let matrix: [&[f64]; 2] = [
            &[0.25 * fast + 0.75 * slow, fast - slow],
            &[3.0 / 16.0 * (fast - slow), 0.75 * fast + 0.25 * slow],
        ];
        let recurrence = closed(&matrix);
        let mut curve = Projected::new(&recurrence);

        curve.extend(1e6, |error, _| error.total() <= 1e-8);

        let (pieces, end) = (curve.pieces.len(), curve.end());
        assert!(end >= 1e6 && pieces < 40, "{pieces} pieces to {end}");
        assert!(curve.error().truncation == 0.0 && curve.error().total() < 1e-8, "{:?}", curve.error());
        for time in [0.0, 0.01, 1.0, 7.3, 1e3, 12345.6, 1e6] {
            let values = curve.values(time, 0.0);
            let (f, s) = ((fast * time).exp(), (slow * time).exp());
            let wanted = [0.25 * f + 0.75 * s, 3.0 / 16.0 * (f - s)];
            let until = |rate: f64| (rate * time).exp_m1() / rate;
            let area = 0.25 * until(fast) + 0.75 * until(slow);
            let error: f64 = values.at.iter().zip(wanted).map(|(a, b)| (a - b).abs()).sum();
            let bound = curve.error().total() + values.rounding + 8.0 * f64::EPSILON;
            assert!(error <= bound, "{time}: {error:e}");
            let until = values.until[0];
            assert!((until - area).abs() <= 1e-8 * (1.0 + time), "{time}: {until} and {area}");
        }
    }

    #[test]
    fn a_solution_ends_at_the_allowed_error() {
        let mut recurrence = closed(&[&[-0.5, 0.25], &[0.5, -0.25]]);
        recurrence.residual = 1e-5;
        recurrence.rounding = vec![1e-9; 2];
        let mut curve = Projected::new(&recurrence);

        curve.extend(1e9, |error, time| error.total() <= 1e-5 * time.min(1e3));

        // The truncation error is 10⁻⁵ ∫ û_2, û_2 = ⅔ (1 − e^{−¾s}): above 10⁻² from 1,500 on.
        let (end, error) = (curve.end(), curve.error());
        assert!(end > 500.0 && end < 1510.0, "{end}: {error:?}");
        assert!(error.total() <= 1e-5 * end.min(1e3), "{end}: {error:?}");
    }
}
