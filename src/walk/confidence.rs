//! Intervals from independent replicates.
//!
//! Student's interval knows what samples show. A large value of small probability that none of N samples has is missing
//! in their mean and in their spread alike: it is met by the certified range D of what a walk adds up. No event that is
//! missed has a probability above ln(1/α) / N but with the probability α, and it moves the mean by D times as much at most:
//! D · 3 / N at 95 % (J. A. Hanley, A. Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983,
//! doi:10.1001/jama.1983.03330370053031). Empirical Bernstein bounds have the same term beside the sample variance
//! (J.-Y. Audibert, R. Munos, C. Szepesvári, "Exploration–exploitation tradeoff using variance estimates in multi-armed
//! bandits", Theoretical Computer Science 410, 2009, doi:10.1016/j.tcs.2009.01.016; A. Maurer, M. Pontil, COLT 2009).
//!
//! Here the half-width is the larger of Student's and of [`unseen`], D · 4/3 · ln(2/(1 − confidence)) / N. The distribution
//! that is worst for Student, two values D apart, has then 93.6 % or more at 16 replicates and 95 % (hits are Poisson
//! distributed; 0 % without it), since Student's interval is the larger one from some five hits on.
//!
//! Replicates whose points are stratified may all agree, so that their spread says nothing of a part of small probability
//! within a stratum. Each of the N points of such strata misses that part independently, with the same probability as
//! above, so that the term holds for them, too. It is never left out.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean and half-width of the two-sided Student interval of some independent estimates of one number.
///
/// A single estimate says nothing of its error: its half-width is infinite.
pub(crate) fn student(estimates: &[f64], confidence: f64) -> (f64, f64) {
    let count = estimates.len() as f64;
    let mean = estimates.iter().sum::<f64>() / count;
    if estimates.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = estimates.iter().map(|e| (e - mean) * (e - mean)).sum();
    let deviation = (squares / (count - 1.0) / count).sqrt();
    (mean, quantile(count - 1.0, confidence) * deviation)
}

/// The half-width below which a mean of so many samples, each within `range` of it, does not fall: what none of them has
/// shown may move it as far.
pub(crate) fn unseen(range: f64, samples: f64, confidence: f64) -> f64 {
    4.0 / 3.0 * (2.0 / (1.0 - confidence)).ln() * range / samples
}

/// The quantile of Student's t with that many degrees of freedom that |t| stays below with probability `confidence`.
pub(crate) fn quantile(freedom: f64, confidence: f64) -> f64 {
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
            approx::assert_abs_diff_eq!(quantile(freedom, confidence), wanted, epsilon = 6e-4);
        }
    }

    /// Samples of two values, 1 with the probability λ / N: their number is Poisson distributed in each of 16 replicates.
    #[test]
    fn rare_values_are_covered() {
        use crate::walk::sequence::philox::philox;
        let (replicates, runs, samples) = (16, 4000, 1e6);
        let poisson = |mean: f64, run: u32, replicate: u32| {
            // Knuth's: uniform numbers are multiplied until their product is below e^−λ.
            let (mut product, mut count) = (1.0, 0u32);
            loop {
                let word = philox([count, replicate, run, mean.to_bits() as u32], [5, 7])[0];
                product *= (f64::from(word) + 0.5) / 4_294_967_296.0;
                if product < (-mean).exp() {
                    return f64::from(count);
                }
                count += 1;
            }
        };
        for hits in [0.5, 2.0, 4.0, 6.0, 8.0, 10.0, 16.0, 30.0] {
            let mut covered = 0;
            for run in 0..runs {
                let of = |r| poisson(hits / f64::from(replicates), run, r) * f64::from(replicates) / samples;
                let means: Vec<f64> = (0..replicates).map(of).collect();
                let (mean, half) = student(&means, 0.95);
                covered += u32::from((mean - hits / samples).abs() <= half.max(unseen(1.0, samples, 0.95)));
            }
            // 93.6 % and three standard errors of 0.39 %.
            assert!(f64::from(covered) >= 0.924 * f64::from(runs), "{hits}: {covered} of {runs}");
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
