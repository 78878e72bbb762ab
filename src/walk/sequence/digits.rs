//! Radical-inverse fractions: digits in a base below 2¹⁶.

use super::stream::dimension_key;

/// Largest number of digits of a word, in base 2.
pub const DIGITS: usize = 32;

/// Returns (digit · 2³² + fraction) / base, rounded down, for digit < base.
///
/// Applied from the last digit to the first it gives ⌊2³² x⌋ of a fraction x exactly, since
/// rounding down commutes with the division by the base.
#[inline(always)]
pub fn push_digit(digit: u32, fraction: u32, base: u32) -> u32 {
    ((u64::from(digit) << 32 | u64::from(fraction)) / u64::from(base)) as u32
}

/// Returns the digits of a number, the last one first, and their count.
#[inline(always)]
pub fn digits_of(number: u32, base: u32) -> ([u32; DIGITS], usize) {
    let mut digits = [0; DIGITS];
    let (mut count, mut rest) = (0, number);
    while rest != 0 {
        digits[count] = rest % base;
        rest /= base;
        count += 1;
    }
    (digits, count)
}

/// Returns Owen's scramble of the fraction with the given first digits.
///
/// Each digit d becomes a d + c mod base, for a prime base. The random a ≠ 0 and c are a hash of
/// the previous digits. As in Owen's scramble, two different digits become any two different digits
/// with equal probability, and the variance depends on nothing else. 32 bits of digits are
/// computed, and the fraction is rounded down.
///
/// * A. B. Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995,
///   doi:10.1007/978-1-4612-2552-2_19.
/// * J. Matoušek, "On the L2-discrepancy for anchored boxes", Journal of Complexity 14, 1998,
///   doi:10.1006/jcom.1998.0489.
#[inline(always)]
pub fn owen_digits(digits: &[u32; DIGITS], base: u32, key: u32) -> u32 {
    let (scrambled, count) = scramble(digits, base, key);
    scrambled[..count].iter().rev().fold(0, |y, &digit| push_digit(digit, y, base))
}

/// Returns the scrambled digits and their count.
#[inline(always)]
fn scramble(digits: &[u32; DIGITS], base: u32, key: u32) -> ([u32; DIGITS], usize) {
    let below = |word: u32, end: u32| ((u64::from(word) * u64::from(end)) >> 32) as u32;
    let mut scrambled = [0; DIGITS];
    let (mut hash, mut count, mut reach) = (key, 0, u32::MAX);
    while reach != 0 {
        let digit = digits[count];
        let (a, c) = (1 + below(hash, base - 1), below(dimension_key(hash, 0), base));
        scrambled[count] = (a * digit + c) % base;
        hash = dimension_key(hash, digit + 1);
        reach /= base;
        count += 1;
    }
    (scrambled, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the first k digits are permuted, independently of later ones.
    #[test]
    fn the_scramble_is_nested() {
        for (base, k) in [(2, 10), (3, 6), (5, 4), (17, 2), (251, 1), (65_521, 1)] {
            let power = u32::pow(base, k);
            for key in [0, 0x1234_5678, u32::MAX] {
                let mut seen = vec![false; power as usize];
                for number in 0..power {
                    let first = |number: u32| {
                        let (digits, count) = scramble(&digits_of(number, base).0, base, key);
                        assert!(u64::pow(u64::from(base), count as u32) >= 1 << 32, "32 bits are filled");
                        digits[..k as usize].iter().fold(0, |y, d| y * base + d)
                    };
                    let y = first(number);
                    assert!(!std::mem::replace(&mut seen[y as usize], true), "{number} in {base}");
                    let more = u32::MAX / power - 1;
                    let longer = number + power * (number.wrapping_mul(0x9e37_79b9) % more);
                    assert_eq!(first(longer), y, "{longer} in {base}");
                }
            }
        }
    }

    /// Checks over many keys that a digit becomes each digit equally often.
    ///
    /// χ² has base − 1 degrees of freedom.
    #[test]
    fn scrambled_digits_are_uniform() {
        const KEYS: u32 = 20_000;
        let base = 11;
        for number in [0, 1, 7, 1000] {
            let mut counts = vec![0u32; base as usize];
            for key in 0..KEYS {
                let y = owen_digits(&digits_of(number, base).0, base, super::super::stream::mix_bits(key));
                counts[((u64::from(y) * u64::from(base)) >> 32) as usize] += 1;
            }
            let mean = f64::from(KEYS) / f64::from(base);
            let chi2: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
            // Exceeded with probability 10⁻⁶ at ten degrees of freedom; keys are fixed, so this is
            // one draw.
            assert!(chi2 < 46.9, "{number}: {chi2}");
        }
    }
}
