//! Sequences against published numbers.
//!
//! Walks on lanes are compared with those of the CPU in `walk.rs`, bit by bit.

use std::ops::Range;

use crate::walk::SEQUENCES;
use kolmo::walk::sequence::{Points, Scramble, Sequence, Stream, sobol};

/// Returns coordinates of consecutive points, one row per dimension.
fn rows(points: &Points, stream: Stream, first: u32, count: u32, dimensions: Range<u32>) -> Vec<Vec<u32>> {
    let mut words = vec![0; count as usize * dimensions.len()];
    points.fill_host(stream, first, dimensions, &mut words);
    words.chunks(count as usize).map(<[u32]>::to_vec).collect()
}

/// Compares points with those of `known/points.txt`.
#[test]
fn points_are_the_published_ones() {
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let fraction = |text: &str| {
        let (numerator, denominator) = text.split_once('/').expect("a fraction");
        ((u64::from(number(numerator)) << 32) / u64::from(number(denominator))) as u32
    };
    assert_eq!(sobol::DIMENSIONS, 21_201);
    for line in include_str!("known/points.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [sequence, dimensions, d, first, known @ ..] = &words[..] else { panic!("{line}") };
        let (sequence, count, d) = (sequence.parse().expect("a sequence"), known.len() as u32, number(d));
        let points = Points::new(sequence, Scramble::None, number(dimensions), 0);
        let got = rows(&points, points.stream(3, 1), number(first), count, d..d + 1);
        assert_eq!(got.concat(), known.iter().map(|known| fraction(known)).collect::<Vec<_>>(), "{line}");
    }
}

/// Point i of dimension 0 is the bit-reversed Gray code of i, so that every bit of i matters.
#[test]
fn sobol_reaches_the_last_point() {
    let points = Points::new(Sequence::Sobol, Scramble::None, 1, 0);
    for first in [0, 12_345, 0x7fff_ffff, 0xffff_ff00] {
        let got = rows(&points, points.stream(0, 0), first, 256, 0..1);
        let wanted = (first..=first + 255).map(|i| (i ^ i >> 1).reverse_bits());
        assert!(got[0].iter().copied().eq(wanted), "256 points from {first} on");
    }
}

/// The first 2^m points of dimensions 0 and 1 are a (0, m, 2)-net, scrambled or not.
///
/// Each of the 2^m cells of an elementary partition of the plane contains one point.
#[test]
fn sobol_points_are_a_net() {
    const M: u32 = 10;
    for scramble in [Scramble::None, Scramble::Owen, Scramble::Shift] {
        let points = Points::new(Sequence::Sobol, scramble, 2, 2026);
        let got = rows(&points, points.stream(1, 2), 0, 1 << M, 0..2);
        for split in 0..=M {
            let mut cells = vec![0; 1 << M];
            for (&x, &y) in got[0].iter().zip(&got[1]) {
                // A shift by 32 bits must give 0.
                let cell = |x: u32, bits: u32| u64::from(x) >> (32 - bits);
                cells[(cell(x, split) << (M - split) | cell(y, M - split)) as usize] += 1;
            }
            assert!(cells.iter().all(|&n| n == 1), "{scramble}, {split} bits of x");
        }
    }
}

/// Known answers of the authors, as four dimensions of one point.
#[test]
fn philox_gives_the_published_words() {
    let philox = Points::new(Sequence::Philox, Scramble::None, 4, 0);
    let got = rows(&philox, philox.stream(0, 0), 0, 1, 0..4);
    assert_eq!(got, [[0x6627_e8d5], [0xe169_c58d], [0xbc57_ac4c], [0x9b00_dbd8]]);
}

#[test]
fn replicates_share_hardly_a_word() {
    for sequence in SEQUENCES {
        let points = Points::new(sequence, sequence.default_scramble(), 73, 5);
        let [first, second] =
            [0, 1].map(|replicate| rows(&points, points.stream(1, replicate), 0, 1000, 0..73).concat());
        // Two independent streams of 73000 words of 32 bits share 73000 · 2⁻³² on average, and more
        // than five with a probability below 10⁻³⁰.
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(same <= 5, "{sequence}: {same} words are the same in two replicates");
    }
}

/// Points of any alignment, dimensions on both sides of the table's end.
#[test]
fn rows_of_points_have_each_coordinate() {
    for (sequence, scramble, first, dimensions) in [
        (Sequence::Sobol, Scramble::Owen, 5, 21_190..21_211),
        (Sequence::Sobol, Scramble::Shift, 77, 0..40),
        (Sequence::Sobol, Scramble::None, 4_294_967_000, 3..9),
        (Sequence::Philox, Scramble::None, 1_000_000_007, 2..13),
    ] {
        let points = Points::new(sequence, scramble, dimensions.end, 0xfeed_0000_beef);
        let stream = points.stream(1 << 20, 15);
        let got = rows(&points, stream, first, 291, dimensions.clone());
        for (d, row) in dimensions.zip(&got) {
            for (i, &x) in (first..).zip(row) {
                assert_eq!(x, points.value(stream, i, d), "{sequence}, {scramble}: {d} of point {i}");
            }
        }
    }
}
