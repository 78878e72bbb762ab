//! The Sobol sequence in 21201 dimensions, with Owen's scramble.
//!
//! I. M. Sobol', "On the distribution of points in a cube and the approximate evaluation of
//! integrals", USSR Computational Mathematics and Mathematical Physics 7(4), 1967,
//! doi:10.1016/0041-5553(67)90144-9. Points are in the order of I. A. Antonov and V. M. Saleev,
//! 1979, doi:10.1016/0041-5553(79)90085-5. Point i is the XOR sum of the direction numbers at the
//! 1-bits of its Gray code i ⊕ ⌊i/2⌋. The direction numbers are by S. Joe and F. Y. Kuo,
//! "Constructing Sobol sequences with better two-dimensional projections", SIAM Journal on
//! Scientific Computing 30, 2008, doi:10.1137/070709359.
//!
//! Point 0 is the origin and part of the sequence. The first 2^m points are a net only with it.
//!
//! # The table
//! A dimension has 32 words, one per bit of the point's number. Word k is v_k ⊕ v_{k−1} for the
//! direction numbers v, so that the XOR sum of the words at the 1-bits of i is point i in Gray
//! order. Words are stored bit-reversed for the scramble: bit 0 is the first binary digit of the
//! coordinate.

/// Number of dimensions of the table.
pub const DIMENSIONS: u32 = 21_201;

/// Number of words per dimension.
pub const WORDS: usize = 32;

/// Published table of direction numbers (`data/LICENSE-JOE-KUO`), packed.
///
/// First come 18 counts of 16 bits: the numbers of dimensions ≥ 2 with a polynomial of degree 1, 2,
/// …. A stream of bits follows, least significant bit first. For each dimension with degree s it
/// has `a` in s − 1 bits, and (m_i − 1) / 2 in i − 1 bits for i = 1 … s.
static PACKED: &[u8] = include_bytes!("data/joe-kuo-6.21201.bin");
const DEGREES: usize = 18;

/// Calls `see` with a primitive polynomial's coefficients a and with m_1 … m_s, per dimension.
///
/// Dimensions start at 1; dimension 0 is van der Corput's sequence.
fn polynomials(mut see: impl FnMut(u32, &[u32]) -> bool) {
    let mut at = 16 * DEGREES;
    let mut bit = || {
        at += 1;
        u32::from(PACKED[(at - 1) / 8] >> ((at - 1) % 8) & 1)
    };
    let mut take = |count: usize| (0..count).fold(0, |value, i| value | bit() << i);
    for s in 1..=DEGREES {
        let count = u16::from_le_bytes([PACKED[2 * s - 2], PACKED[2 * s - 1]]);
        for _ in 0..count {
            let a = take(s - 1);
            let mut m = [0; DEGREES];
            for (i, m) in m[..s].iter_mut().enumerate() {
                *m = 2 * take(i) + 1;
            }
            if !see(a, &m[..s]) {
                return;
            }
        }
    }
}

/// Returns the direction numbers from polynomial a and initial numbers m, first digit in bit 31.
fn directions(a: u32, m: &[u32]) -> [u32; WORDS] {
    let s = m.len();
    let mut v = [0; WORDS];
    for (k, m) in m.iter().enumerate() {
        v[k] = m << (31 - k);
    }
    for k in s..WORDS {
        v[k] = v[k - s] ^ v[k - s] >> s;
        for j in 1..s {
            if a >> (s - 1 - j) & 1 == 1 {
                v[k] ^= v[k - j];
            }
        }
    }
    v
}

/// Returns the table (module docs) of the first `dimensions` dimensions, at most [`DIMENSIONS`].
pub fn table(dimensions: u32) -> Vec<u32> {
    assert!(dimensions <= DIMENSIONS, "{dimensions} dimensions of {DIMENSIONS}");
    let mut words = Vec::with_capacity(WORDS * dimensions as usize);
    let mut push = |v: [u32; WORDS]| {
        let before = std::iter::once(0).chain(v);
        words.extend(v.iter().zip(before).map(|(v, before)| (v ^ before).reverse_bits()));
        words.len() < WORDS * dimensions as usize
    };
    // Dimension 0: the digits of i, mirrored at the binary point.
    if dimensions > 0 && push(std::array::from_fn(|k| 1 << (31 - k))) {
        polynomials(|a, m| push(directions(a, m)));
    }
    words
}

/// Returns a coordinate of a point, its first digit in bit 0, from its dimension's table words.
#[inline(always)]
pub fn sobol_reversed(words: &[u32], point: u32) -> u32 {
    let (mut x, mut rest) = (0, point);
    for c in words[..WORDS].chunks_exact(4) {
        if rest == 0 {
            break;
        }
        for (k, c) in c.iter().enumerate() {
            x ^= c & 0u32.wrapping_sub(rest >> k & 1);
        }
        rest >>= 4;
    }
    x
}

/// Returns Owen's scramble of a coordinate that has its first digit in bit 0.
///
/// Each digit is permuted at random. The permutation is selected by a hash of the previous digits.
///
/// * A. B. Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995,
///   doi:10.1007/978-1-4612-2552-2_19.
/// * A hash in which every bit depends only on lower ones: S. Laine, T. Karras, "Stratified
///   sampling for stochastic transparency", 2011, doi:10.1111/j.1467-8659.2011.01995.x.
/// * Its constants: N. Vegdahl, "Building a better LK hash", 2021.
/// * Its use: B. Burley, "Practical hash-based Owen scrambling", Journal of Computer Graphics
///   Techniques 9(4), 2020.
#[inline(always)]
pub fn owen_reversed(bits: u32, seed: u32) -> u32 {
    let mut x = bits;
    x ^= x.wrapping_mul(0x3d20_adea);
    x = x.wrapping_add(seed);
    x = x.wrapping_mul(seed >> 16 | 1);
    x ^= x.wrapping_mul(0x0552_6c56);
    x ^= x.wrapping_mul(0x53a2_2864);
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unpacks the whole table: the text has the CRC-32 of the published file.
    #[test]
    fn the_table_is_the_published_one() {
        use std::fmt::Write as _;
        let mut text = String::from("d s a m_i\n");
        let mut d = 1;
        polynomials(|a, m| {
            d += 1;
            write!(text, "{d} {} {a}", m.len()).expect("a string takes all");
            for m in m {
                write!(text, " {m}").expect("a string takes all");
            }
            text.push('\n');
            true
        });
        assert_eq!((d, text.len()), (DIMENSIONS, 1_659_695));
        let mut crc = flate2::Crc::new();
        crc.update(text.as_bytes());
        assert_eq!(crc.sum(), 0x5c59_4c32);
    }

    #[test]
    fn the_scramble_gives_the_known_numbers() {
        let known = [
            (0x1234_5678, [0x1679_d7f6, 0x87e3_2b06, 0xc25d_715c, 0x557b_3322]),
            (0x9e37_79b9, [0x855d_b73c, 0x23eb_314f, 0x7de7_2079, 0xc1ba_b68b]),
        ];
        for (seed, wanted) in known {
            let got = [0u32, 0x8000_0000, 0xc000_0000, 0x4000_0000]
                .map(|x| owen_reversed(x.reverse_bits(), seed).reverse_bits());
            assert_eq!(got, wanted, "seed {seed:x}");
        }
    }
}
