//! The Faure sequence.
//!
//! H. Faure, "Discrépance de suites associées à un système de numération (en dimension s)", Acta
//! Arithmetica 41, 1982, doi:10.4064/aa-41-4-337-351. The base b is the smallest prime that is not
//! below the number of dimensions. Let d be the digits of i in base b, and P Pascal's triangle,
//! P_rc = c! / (r! (c − r)!). Coordinate j of point i has the digits P^j d mod b. Points are
//! numbered from 0. A number of points that is no multiple of b is not balanced.
//!
//! P^j d are the coefficients of D(z + j) for the polynomial D(z) = Σ d_c z^c, so no power of P is
//! computed.

use super::halton::{primes, push_digit};

/// Largest number of digits of a word, in base 2.
const DIGITS: usize = 32;

/// Largest number of dimensions.
///
/// Bases are below 2¹⁶, so that a digit and half a fraction fit a word.
pub const DIMENSIONS: u32 = 65_521;

/// Returns the base for a number of dimensions, at most [`DIMENSIONS`].
pub fn base(dimensions: u32) -> u32 {
    primes().find(|&p| p >= dimensions).unwrap_or(DIMENSIONS)
}

/// Returns the digits of a number, the last one first, and their count.
#[inline(always)]
fn digits_of(number: u32, base: u32) -> ([u32; DIGITS], usize) {
    let mut digits = [0; DIGITS];
    let (mut count, mut rest) = (0, number);
    while rest != 0 {
        digits[count] = rest % base;
        rest /= base;
        count += 1;
    }
    (digits, count)
}

/// Returns the digits of coordinate `dimension` of a point, the first one first, and their count.
#[inline(always)]
fn digits(point: u32, dimension: u32, base: u32) -> ([u32; DIGITS], usize) {
    let (mut digits, count) = digits_of(point, base);
    for r in 0..count {
        for c in (r + 1..count).rev() {
            digits[c - 1] = (digits[c - 1] + dimension * digits[c]) % base;
        }
    }
    (digits, count)
}

/// Returns ⌊2³² x⌋ of coordinate `dimension` of a point.
#[inline(always)]
pub fn faure(point: u32, dimension: u32, base: u32) -> u32 {
    let (digits, count) = digits(point, dimension, base);
    digits[..count].iter().rev().fold(0, |y, &digit| push_digit(digit, y, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares digits with the definition: powers of Pascal's matrix, in exact integers.
    #[test]
    fn digits_are_those_of_powers_of_pascals_matrix() {
        for dimensions in [2, 3, 5, 11, 73] {
            let base = u128::from(base(dimensions));
            for dimension in (0..dimensions).step_by(3) {
                for point in (0..3000).step_by(7).chain([u32::MAX]) {
                    let mut number = Vec::new();
                    let mut rest = u128::from(point);
                    while rest > 0 {
                        number.push(rest % base);
                        rest /= base;
                    }
                    let m = number.len();
                    let (mut numerator, mut power) = (0, 1);
                    for r in 0..m {
                        // Terms c! / (r! (c − r)!) · j^(c − r) for successive c.
                        let (mut binomial, mut shift, mut digit) = (1, 1, 0);
                        for (c, &d) in number.iter().enumerate().skip(r) {
                            digit = (digit + binomial % base * shift % base * d) % base;
                            binomial = binomial * (c as u128 + 1) / (c as u128 + 1 - r as u128);
                            shift = shift * u128::from(dimension) % base;
                        }
                        numerator = numerator * base + digit;
                        power *= base;
                    }
                    let got = faure(point, dimension, base as u32);
                    assert_eq!(
                        u128::from(got),
                        (numerator << 32) / power,
                        "{dimension} of {point} in {base}"
                    );
                }
            }
        }
    }
}
