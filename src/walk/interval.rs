//! Intervals from independent replicates.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean and half-width of the two-sided Student interval of some independent estimates of one number.
///
/// A single estimate says nothing of its error: its half-width is infinite.
pub fn student(estimates: &[f64], confidence: f64) -> (f64, f64) {
    let count = estimates.len() as f64;
    let mean = estimates.iter().sum::<f64>() / count;
    if estimates.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = estimates.iter().map(|e| (e - mean) * (e - mean)).sum();
    let deviation = (squares / (count - 1.0) / count).sqrt();
    (mean, quantile(count - 1.0, confidence) * deviation)
}

/// The quantile of Student's t with that many degrees of freedom that |t| stays below with probability `confidence`.
pub fn quantile(freedom: f64, confidence: f64) -> f64 {
    let t = StudentsT::new(0.0, 1.0, freedom).expect("at least one degree of freedom");
    t.inverse_cdf(0.5 + 0.5 * confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Two-sided 95 %: 12.706, 2.365, 2.131, 1.960; 99 % at 15: 2.947.
        for (freedom, confidence, wanted) in [
            (1.0, 0.95, 12.706),
            (7.0, 0.95, 2.365),
            (15.0, 0.95, 2.131),
            (1e6, 0.95, 1.960),
            (15.0, 0.99, 2.947),
        ] {
            assert!((quantile(freedom, confidence) - wanted).abs() < 6e-4, "{freedom} {confidence}");
        }
    }

    #[test]
    fn a_small_example_by_hand() {
        // Mean 2, variance 1, standard error 1/√3, t with 2 degrees 4.303.
        let (mean, half) = student(&[1.0, 2.0, 3.0], 0.95);
        assert!(mean == 2.0 && (half - 4.303 / 3f64.sqrt()).abs() < 1e-3, "{half}");
        assert_eq!(student(&[5.0, 5.0], 0.95), (5.0, 0.0));
        assert_eq!(student(&[5.0], 0.95), (5.0, f64::INFINITY));
    }
}
