//! The Faure sequence.
//!
//! H. Faure, "Discrépance de suites associées à un système de numération (en dimension s)", Acta Arithmetica 41, 1982,
//! doi:10.4064/aa-41-4-337-351. The base b is the least prime that is not below the number of dimensions. Coordinate j
//! of point i has the digits P^j d mod b, where d are the digits of i in base b and P is Pascal's triangle,
//! P_rc = c! / (r! (c − r)!). Numbers start at 0. A number of points that is no multiple of b is not balanced.
//!
//! With the digits as coefficients of a polynomial D(z) = Σ d_c z^c, those of P^j d are the coefficients of D(z + j):
//! no power of P is needed.

use super::halton::{primes, push_digit};

/// Dimensions with a base below 2¹⁶, so that a digit and half a fraction fit a word.
pub const DIMENSIONS: u32 = 65_521;

/// The base for a number of dimensions, at most [`DIMENSIONS`].
pub fn base(dimensions: u32) -> u32 {
    primes().find(|&p| p >= dimensions).unwrap_or(DIMENSIONS)
}

/// ⌊2³² x⌋ of coordinate `dimension` of a point.
#[inline(always)]
pub fn faure(point: u32, dimension: u32, base: u32) -> u32 {
    let mut digits = [0u32; 32];
    let (mut count, mut rest) = (0, point);
    while rest != 0 {
        digits[count] = rest % base;
        rest /= base;
        count += 1;
    }
    for r in 0..count {
        for c in (r + 1..count).rev() {
            digits[c - 1] = (digits[c - 1] + dimension * digits[c]) % base;
        }
    }
    digits[..count].iter().rev().fold(0, |y, &digit| push_digit(digit, y, base))
}
