//! Fixed point: the initial vector, and the error of a result read off its missing mass.
//!
//! Every computed number is at most the exact one. So the l1 error of a result is the initial mass
//! minus the mass of its probabilities, a difference of two integers. `docs/certificate.md` has the
//! proof.

use crate::kernel::{Number, Q64};
use crate::parallel::*;
use crate::ranks::Ranks;

/// 2¹⁰⁰, the unit of exact sums.
///
/// Multiples of 2⁻⁶⁴ and all doubles above 2⁻⁴⁷ are multiples of 2⁻¹⁰⁰.
const PARTS: f64 = 1_267_650_600_228_229_401_496_703_205_376.0;

/// Returns 2¹⁰⁰ times the sum of all ranks' values, with each value rounded up to a multiple of
/// 2⁻¹⁰⁰.
pub(crate) fn exact_mass(values: &[f64], ranks: Ranks) -> u128 {
    let blocks = values.par_chunks(1 << 14);
    let block = |block: &[f64]| block.iter().map(|p| (p * PARTS).ceil() as u128).sum::<u128>();
    sum_of(blocks.map(block).reduce(|| 0, |a, b| a + b), ranks)
}

/// Returns the sum of `own` over all ranks.
fn sum_of(own: u128, ranks: Ranks) -> u128 {
    let word = |k: u32| u128::from(ranks.all_reduce_sum((own >> (32 * k)) as u32 as u64)) << (32 * k);
    (0..4).map(word).sum()
}

/// Returns an upper bound of the difference of two masses from [`exact_mass`].
pub(crate) fn missing(given: u128, found: u128) -> f64 {
    let missing = given.saturating_sub(found) as f64 * (1.0 + f64::EPSILON);
    missing / PARTS
}

/// Returns the initial vector rounded down to Q64, with a mass below 1, as bits of doubles.
pub(crate) fn beginning(initial: &[f64], ranks: Ranks) -> Vec<f64> {
    const MOST: u128 = u64::MAX as u128;
    let mut bits: Vec<u64> = initial.par_iter().map(|&p| Q64::of(p).bits()).collect();
    let sum = sum_of(bits.par_iter().map(|&p| u128::from(p)).reduce(|| 0, |a, b| a + b), ranks);
    if sum > MOST {
        // The sum exceeds 1 by at most 10⁻⁶.
        let part = (MOST << 63) / sum;
        bits.par_iter_mut().for_each(|p| *p = ((u128::from(*p) * part) >> 63) as u64);
    }
    bytemuck::cast_vec(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initial_vector_has_a_mass_just_below_1() {
        for initial in
            [vec![1.0], vec![0.5; 2], vec![0.1; 10], vec![1.0 / 3.0; 3], vec![0.25, 0.25, 0.500_000_9]]
        {
            let bits = beginning(&initial, Ranks::ALONE);
            let mass: u128 = bits.iter().map(|&p| u128::from(p.to_bits())).sum();
            let given = exact_mass(&initial, Ranks::ALONE);

            assert!(mass < 1 << 64);
            assert!(bits.iter().zip(&initial).all(|(p, &of)| Q64(p.to_bits()).wide() <= of));
            let lacks = missing(given, mass << 36);
            assert!((0.0..=1e-6 + 1e-15).contains(&lacks), "{initial:?} lacks {lacks:e}");
        }
        let exact = exact_mass(&[0.5, 0.25], Ranks::ALONE);
        assert_eq!(exact, 3 << 98);
        assert_eq!(missing(exact, exact - (1 << 36)), (-64f64).exp2() * (1.0 + f64::EPSILON));
    }
}
