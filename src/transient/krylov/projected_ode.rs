//! The small equation u' = H u, u(0) = e₁, that a Krylov space leaves of a chain: a curve of polynomials, and what it errs by.
//!
//! H is that of a recurrence (P − I) V = V H + w eᵀ + F, see [`krylov`](super::exponential). Any curve û will do: y = V û has the defect
//!
//! y' − y (P − I) = V (û' − H û) − û_m w − F û,
//!
//! and what that adds up to is bounded here from polynomials as they are stored. How they were found does not matter. So the
//! exponentials that give their values need no bound of their own: they are squared in double precision, as e^{hH} − I.

use std::sync::LazyLock;

use super::arnoldi::Recurrence;
use crate::transient::numerics::double_double::{Exact, UNIT};

/// Degree of the polynomials.
const DEGREE: usize = 16;
/// Numbers of a polynomial.
const TERMS: usize = DEGREE + 1;
/// Steps of the finest exponential in a piece.
const GRID: f64 = 128.0;
/// Units by which places on that grid are a power of two apart at most.
const BITS: usize = 4;
/// Terms whose residuals are computed with twice the digits: those that are not much smaller than the others.
const EXACT: usize = 2;
/// Terms of a sum of twice the digits, at most.
const MOST_TERMS: usize = 64;
/// Above every sum of some ten thousand terms of one sign as it is rounded, divided by what it is.
const MARGIN: f64 = 1.000_001;

/// Places on the grid that are near those where Chebyshev's polynomial of the degree is ±1.
fn places() -> [u32; TERMS] {
    std::array::from_fn(|i| {
        let angle = std::f64::consts::PI * i as f64 / DEGREE as f64;
        (0.5 * GRID * (1.0 - angle.cos())).round() as u32
    })
}

/// T_0 … at θ.
fn polynomials(theta: f64) -> [f64; TERMS] {
    let mut values = [1.0; TERMS];
    values[1] = theta;
    for n in 2..TERMS {
        values[n] = 2.0 * theta * values[n - 1] - values[n - 2];
    }
    values
}

/// Coefficients from values at the places: the inverse of the matrix of polynomials there, one row a coefficient.
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
        for (i, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            debug_assert_ne!(i, k);
            let factor = row.0[k] / own[k];
            (0..TERMS).for_each(|j| row.0[j] -= factor * own[j]);
            (0..TERMS).for_each(|j| row.1[j] -= factor * right[j]);
        }
    }
    rows.iter().enumerate().map(|(k, (own, right))| right.map(|r| r / own[k])).collect()
});

/// A polynomial over an interval.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Its interval.
    pub(crate) from: f64,
    pub(crate) length: f64,
    /// Of each Chebyshev polynomial its factors, one a component.
    terms: Vec<Vec<f64>>,
    /// Of each component its value at the end, and the sum of the magnitudes there.
    end: Vec<f64>,
    /// What the curve errs by up to the end of this piece.
    pub(crate) error: Error,
}

/// What a curve errs by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Error {
    /// Of what the space lacks.
    pub(crate) truncation: f64,
    /// Of products and sums of vectors as they were rounded, and of the curve in the space.
    pub(crate) rounding: f64,
}

impl Error {
    pub(crate) fn total(self) -> f64 {
        self.truncation + self.rounding
    }
}

/// The values of a curve at a time.
pub(crate) struct Values {
    /// û.
    pub(crate) at: Vec<f64>,
    /// ∫ û up to there.
    pub(crate) until: Vec<f64>,
    /// What V û errs by there as these numbers are rounded.
    pub(crate) rounding: f64,
}

/// A curve in the making.
pub(super) struct Projected<'a> {
    recurrence: &'a Recurrence,
    m: usize,
    /// Row by row.
    matrix: Vec<f64>,
    /// Length of the shortest piece.
    first: f64,
    /// e^{hH} − I for h = first/GRID and its doubles, column by column.
    steps: Vec<Vec<f64>>,
    pub(crate) pieces: Vec<Piece>,
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
        // A power of two of which the matrix makes at most 2.
        let first = (1.0 / largest).log2().floor().clamp(-900.0, 900.0).exp2() * 2.0;
        let mut projected = Self { recurrence, m, matrix, first, steps: Vec::new(), pieces: Vec::new() };
        projected.steps.push(projected.shortest());
        projected
    }

    /// e^{hH} − I of the shortest step by Taylor's series: of at most 1/64 it needs eight terms.
    fn shortest(&self) -> Vec<f64> {
        let (m, h) = (self.m, self.first / GRID);
        let scaled: Vec<f64> = (0..m * m).map(|k| self.matrix[k % m * m + k / m] * h).collect();
        let mut sum = scaled.clone();
        for k in (2..=8).rev() {
            // A (I + sum/k), the sum being that of the terms behind.
            let behind = product(&sum, &scaled, m);
            sum = scaled.iter().zip(&behind).map(|(a, b)| a + b / f64::from(k)).collect();
        }
        sum
    }

    /// e^{hH} − I of a step of `first`/GRID times a power of two.
    fn step(&mut self, level: usize) {
        while self.steps.len() <= level {
            let last = self.steps.last().expect("there is a first");
            let mut next = product(last, last, self.m);
            next.iter_mut().zip(last).for_each(|(n, z)| *n += 2.0 * z);
            self.steps.push(next);
        }
    }

    /// Where the curve ends.
    pub(crate) fn end(&self) -> f64 {
        self.pieces.last().map_or(0.0, |piece| piece.from + piece.length)
    }

    pub(crate) fn error(&self) -> Error {
        self.pieces.last().map_or(Error::default(), |piece| piece.error)
    }

    /// Goes on for as long as what it errs by up to some time from its beginning is `allowed` then, and not further than is needed to reach
    /// `wanted`.
    pub(crate) fn extend(&mut self, wanted: f64, allowed: impl Fn(Error, f64) -> bool) {
        let (mut level, mut grows_at) = (0, 0.0);
        while self.end() < wanted {
            let piece = self.piece(level);
            let end = piece.from + piece.length;
            if allowed(piece.error, end.min(wanted)) {
                self.pieces.push(piece);
                // As long as all before, as fast parts have died out by then.
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

    /// The next piece.
    fn piece(&mut self, level: usize) -> Piece {
        self.step(level + BITS - 1);
        let (m, from, length) = (self.m, self.end(), self.length(level));
        let begin = match self.pieces.last() {
            Some(piece) => piece.end.clone(),
            None => (0..m).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect(),
        };
        // What it changes by, so that numbers round no more than that.
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
        let mut piece = Piece { from, length, terms, end: Vec::new(), error: self.error() };
        piece.end = (0..m).map(|i| piece.at_end(i, 1.0).sum).collect();
        self.account(&mut piece);
        piece
    }

    /// Adds what a piece errs by.
    fn account(&self, piece: &mut Piece) {
        let (m, recurrence) = (self.m, self.recurrence);
        let (mut residual, mut rounding, mut last) = (0.0, 0.0, 0.0);
        let slopes = piece.slopes();
        for i in 0..m {
            let own: f64 = piece.terms.iter().map(|term| term[i].abs()).sum();
            // Where it begins it is to go on with what stands before.
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
                    let mut sum = Exact { sum: slope[i], lost: 0.0 };
                    row.iter().zip(term).for_each(|(h, c)| sum.add_product(-h, *c));
                    sum.magnitude(MOST_TERMS, all)
                } else {
                    let sum = row.iter().zip(term).fold(slope[i], |sum, (h, c)| sum - h * c);
                    sum.abs() + 64.0 * UNIT * all
                };
            }
            // A slope is a sum of at most nine products, of which each is rounded, too.
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

    /// The curve at a time within it, which is known to `doubt`.
    pub(crate) fn values(&self, time: f64, doubt: f64) -> Values {
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
        Values { at, until, rounding: MARGIN * rounding }
    }
}

impl Piece {
    /// The value of a component at an end, `side` being 1 or −1.
    fn at_end(&self, component: usize, side: f64) -> Exact {
        let mut sum = Exact::default();
        let mut sign = 1.0;
        for term in &self.terms {
            sum.add(sign * term[component]);
            sign *= side;
        }
        sum
    }

    /// The terms of û'.
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

    /// Adds the integral from the beginning up to θ.
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

/// A product of square matrices, all of them row by row, or, the other way round, column by column.
fn product(a: &[f64], b: &[f64], m: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * m];
    for (row, out) in a.chunks(m).zip(c.chunks_mut(m)) {
        for (factor, other) in row.iter().zip(b.chunks(m)) {
            out.iter_mut().zip(other).for_each(|(o, b)| *o += factor * b);
        }
    }
    c
}

/// A matrix, column by column, times a column.
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

    /// A recurrence with nothing rounded and nothing left.
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
        // Two states with rates that are far apart: e^{−s} and e^{−s/10⁵}, after a change of the basis.
        let (fast, slow) = (-1.0, -1e-5);
        let matrix: [&[f64]; 2] = [
            &[0.25 * fast + 0.75 * slow, fast - slow],
            &[3.0 / 16.0 * (fast - slow), 0.75 * fast + 0.25 * slow],
        ];
        let recurrence = closed(&matrix);
        let mut curve = Projected::new(&recurrence);

        curve.extend(1e6, |error, _| error.total() <= 1e-8);

        assert!(
            curve.end() >= 1e6 && curve.pieces.len() < 40,
            "{} pieces to {}",
            curve.pieces.len(),
            curve.end()
        );
        assert!(curve.error().truncation == 0.0 && curve.error().total() < 1e-8, "{:?}", curve.error());
        for time in [0.0, 0.01, 1.0, 7.3, 1e3, 12345.6, 1e6] {
            let values = curve.values(time, 0.0);
            let (f, s) = ((fast * time).exp(), (slow * time).exp());
            let wanted = [0.25 * f + 0.75 * s, 3.0 / 16.0 * (f - s)];
            let until = |rate: f64| (rate * time).exp_m1() / rate;
            let area = 0.25 * until(fast) + 0.75 * until(slow);
            let error: f64 = values.at.iter().zip(wanted).map(|(a, b)| (a - b).abs()).sum();
            assert!(
                error <= curve.error().total() + values.rounding + 8.0 * f64::EPSILON,
                "{time}: {error:e}"
            );
            assert!(
                (values.until[0] - area).abs() <= 1e-8 * (1.0 + time),
                "{time}: {} and {area}",
                values.until[0]
            );
        }
    }

    #[test]
    fn an_oscillation_takes_more_pieces_and_is_enclosed() {
        let matrix: [&[f64]; 2] = [&[-1e-3, -1.0], &[1.0, -1e-3]];
        let recurrence = closed(&matrix);
        let mut curve = Projected::new(&recurrence);

        curve.extend(200.0, |error, _| error.total() <= 1e-9);

        assert!(curve.end() >= 200.0, "{}", curve.end());
        let values = curve.values(200.0, 0.0);
        let wanted = [200f64.cos(), 200f64.sin()].map(|turn| turn * (-0.2f64).exp());
        let error: f64 = values.at.iter().zip(wanted).map(|(a, b)| (a - b).abs()).sum();
        assert!(error <= curve.error().total() + values.rounding + 1e-13, "{error:e}, {:?}", curve.error());
    }

    #[test]
    fn a_solution_ends_at_the_allowed_error() {
        let mut recurrence = closed(&[&[-0.5, 0.25], &[0.5, -0.25]]);
        recurrence.residual = 1e-3;
        recurrence.rounding = vec![1e-9; 2];
        let mut curve = Projected::new(&recurrence);

        curve.extend(1e9, |error, time| error.total() <= 1e-5 * time.min(1e3));

        // ∫ |û_2| is at most 2/3 of the time, so 1.5 of 10⁻³ of it are too much before it is at 15.
        let (end, error) = (curve.end(), curve.error());
        assert!(end < 32.0 && error.total() <= 1e-5 * end, "{end}: {error:?}");
    }
}
