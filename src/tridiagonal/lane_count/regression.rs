//! Least squares with a few parameters, and metrics of the fit.

use serde::{Deserialize, Serialize};

/// Linear function slope · n + intercept, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds per row.
    pub slope: f64,
    /// Milliseconds.
    pub intercept: f64,
}

impl Line {
    /// Value at `n`.
    pub fn at(&self, n: usize) -> f64 {
        self.slope * n as f64 + self.intercept
    }
}

/// Agreement of predictions with observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// R² = 1 − SS_res / SS_tot; `None` if all observations are equal.
    pub r_squared: Option<f64>,
    /// Mean squared error.
    pub mse: f64,
    /// Root mean squared error.
    pub rmse: f64,
}

impl Metrics {
    /// Computes the metrics of pairs (prediction, observation), one or more.
    pub fn of(pairs: &[(f64, f64)]) -> Self {
        assert!(!pairs.is_empty(), "metrics of no observation");
        let count = pairs.len() as f64;
        let mean = pairs.iter().map(|p| p.1).sum::<f64>() / count;
        let residual: f64 = pairs.iter().map(|p| (p.0 - p.1).powi(2)).sum();
        let total: f64 = pairs.iter().map(|p| (p.1 - mean).powi(2)).sum();
        let mse = residual / count;
        Self { r_squared: (total > 0.0).then(|| 1.0 - residual / total), mse, rmse: mse.sqrt() }
    }
}

/// Metrics of the observations that a model was fitted to, and of those left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Metrics of the training set, three quarters of the observations.
    pub training: Metrics,
    /// Metrics of the test set, one quarter of the observations.
    pub test: Metrics,
}

/// Returns the indices of `count` observations, shuffled with a fixed seed and split 3 : 1 into
/// training and test.
pub fn split(count: usize) -> (Vec<usize>, Vec<usize>) {
    let mut training: Vec<usize> = (0..count).collect();
    fastrand::Rng::with_seed(0).shuffle(&mut training);
    let test = training.split_off(count - count.div_ceil(4));
    (training, test)
}

/// Returns the coefficients c that minimize Σ (row·c − y)²; `None` if the rows do not determine
/// them.
pub fn least_squares(rows: &[Vec<f64>], y: &[f64]) -> Option<Vec<f64>> {
    assert_eq!(rows.len(), y.len(), "a row of features for each observation");
    let parameters = rows.first()?.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // Modified Gram–Schmidt, with each column orthogonalized twice, is as accurate as reflections.
    // Columns are scaled to length 1, as one may count rows and another logarithms.
    let mut q: Vec<Vec<f64>> = Vec::new();
    let mut r = vec![vec![0.0; parameters]; parameters];
    let mut scales = Vec::new();
    for j in 0..parameters {
        let mut column: Vec<f64> = rows.iter().map(|row| row[j]).collect();
        let scale = dot(&column, &column).sqrt();
        if scale == 0.0 || !scale.is_finite() {
            return None;
        }
        column.iter_mut().for_each(|v| *v /= scale);
        for _ in 0..2 {
            for (k, q) in q.iter().enumerate() {
                let along = dot(q, &column);
                r[k][j] += along;
                column.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
            }
        }
        let length = dot(&column, &column).sqrt();
        // The remainder is rounding error: the column depends linearly on the others.
        if length < 1e-12 * rows.len() as f64 {
            return None;
        }
        r[j][j] = length;
        column.iter_mut().for_each(|v| *v /= length);
        q.push(column);
        scales.push(scale);
    }
    let mut rest = y.to_vec();
    let mut c = vec![0.0; parameters];
    for (c, q) in c.iter_mut().zip(&q) {
        *c = dot(q, &rest);
        rest.iter_mut().zip(q).for_each(|(v, q)| *v -= *c * q);
    }
    for j in (0..parameters).rev() {
        c[j] = (c[j] - ((j + 1)..parameters).map(|k| r[j][k] * c[k]).sum::<f64>()) / r[j][j];
    }
    Some(c.iter().zip(&scales).map(|(c, s)| c / s).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_points_worked_out_by_hand() {
        // (0, 1), (1, 3), (2, 4), (3, 4): the slope is Σ(x − 3/2)(y − 3) / Σ(x − 3/2)² = 5/5, the
        // mean 3.
        let rows: Vec<Vec<f64>> = (0..4).map(|x| vec![f64::from(x), 1.0]).collect();
        let y = [1.0, 3.0, 4.0, 4.0];

        let c = least_squares(&rows, &y).unwrap();

        assert!((c[0] - 1.0).abs() < 1e-14 && (c[1] - 1.5).abs() < 1e-14, "{c:?}");
        let pairs: Vec<_> = rows.iter().zip(y).map(|(row, y)| (c[0] * row[0] + c[1], y)).collect();
        let metrics = Metrics::of(&pairs);
        // Residuals ½, −½, −½, ½; SS_tot = 4 + 0 + 1 + 1.
        assert!((metrics.mse - 0.25).abs() < 1e-14 && (metrics.rmse - 0.5).abs() < 1e-14);
        approx::assert_abs_diff_eq!(metrics.r_squared.unwrap(), 5.0 / 6.0, epsilon = 1e-14);
    }

    #[test]
    fn features_that_say_the_same_determine_nothing() {
        let rows: Vec<Vec<f64>> = (0..9).map(|x| vec![f64::from(x), 3.0 * f64::from(x)]).collect();

        assert_eq!(least_squares(&rows, &[1.0; 9]), None);
        assert_eq!(least_squares(&[vec![0.0]], &[1.0]), None);
        assert_eq!(Metrics::of(&[(1.0, 2.0), (2.0, 2.0)]).r_squared, None);
    }

    #[test]
    fn a_split_keeps_a_quarter_and_everything_once() {
        for count in [1, 4, 5, 30, 75] {
            let (training, test) = split(count);

            assert_eq!(test.len(), count.div_ceil(4));
            let mut all = [training, test].concat();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(split(30), split(30));
        assert!(!split(30).1.is_sorted());
    }
}
