//! The Halton sequence.
//!
//! J. H. Halton, "On the efficiency of certain quasi-random sequences of points in evaluating
//! multi-dimensional integrals", Numerische Mathematik 2, 1960, doi:10.1007/BF01386213. Coordinate
//! j of point i is the radical inverse of i in base b_j, the j-th prime: its digits are mirrored at
//! the radix point.

/// Number of dimensions: primes below 2¹⁶, so that a digit and half a fraction fit a word.
pub const DIMENSIONS: u32 = 6542;

/// Primes below 2¹⁶ in ascending order.
pub fn primes() -> impl Iterator<Item = u32> {
    const END: usize = 1 << 16;
    let mut composite = vec![false; END];
    for i in (2..).take_while(|i| i * i < END) {
        if !composite[i] {
            (i * i..END).step_by(i).for_each(|k| composite[k] = true);
        }
    }
    (2..END as u32).filter(move |&i| !composite[i as usize])
}

/// Returns (digit · 2³² + fraction) / base, rounded down, for digit < base.
///
/// Applied from the last digit to the first it gives ⌊2³² x⌋ of a fraction x exactly, since
/// rounding down commutes with the division by the base.
#[inline(always)]
pub fn push_digit(digit: u32, fraction: u32, base: u32) -> u32 {
    ((u64::from(digit) << 32 | u64::from(fraction)) / u64::from(base)) as u32
}

/// Returns the radical inverse ⌊2³² φ_base(point)⌋, exactly.
#[inline(always)]
pub fn halton(point: u32, base: u32) -> u32 {
    let mut power = 1;
    while point / power >= base {
        power *= base;
    }
    let (mut rest, mut y) = (point, 0);
    while power != 0 {
        y = push_digit(rest / power, y, base);
        rest %= power;
        power /= base;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_prime_per_dimension() {
        assert_eq!(primes().count(), DIMENSIONS as usize);
        assert_eq!(primes().take(6).collect::<Vec<_>>(), [2, 3, 5, 7, 11, 13]);
        assert_eq!(primes().last(), Some(65521));
    }

    /// Compares with 128-bit integers: the mirrored number over the power of the base.
    #[test]
    fn coordinates_are_rounded_down_exactly() {
        for base in primes().step_by(97).chain([2, 3, 5, 65521]) {
            for point in (0..2000).chain((0..2000).map(|i| u32::MAX - i * 2_147_001)) {
                let (mut mirrored, mut power, mut rest) = (0u128, 1u128, u128::from(point));
                while rest > 0 {
                    mirrored = mirrored * u128::from(base) + rest % u128::from(base);
                    power *= u128::from(base);
                    rest /= u128::from(base);
                }
                assert_eq!(u128::from(halton(point, base)), (mirrored << 32) / power, "{point} in {base}");
            }
        }
    }
}
