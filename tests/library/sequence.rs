//! Sequences on the host against published numbers. Walks compare them with those of other lanes.

use std::ops::Range;

use crate::walk::SEQUENCES;
use kolmo::walk::sequence::{Points, Scramble, Sequence, sobol};

/// Returns coordinates of a stream from point `first` on, one row per dimension.
fn rows(
    points: &Points,
    stream: (u32, u32),
    first: u32,
    count: usize,
    dimensions: Range<u32>,
) -> Vec<Vec<u32>> {
    let mut words = vec![0; count * dimensions.len()];
    points.fill(points.stream(stream.0, stream.1), first, dimensions, &mut words);
    words.chunks(count).map(<[u32]>::to_vec).collect()
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
        let [dimensions, d, first, known @ ..] = &words[..] else { panic!("{line}") };
        let (d, points) = (number(d), Points::new(Sequence::Sobol, Scramble::None, number(dimensions), 0));
        let got = rows(&points, (3, 1), number(first), known.len(), d..d + 1);
        assert_eq!(got.concat(), known.iter().map(|known| fraction(known)).collect::<Vec<_>>(), "{line}");
    }
}

/// The first 2^m points of dimensions 0 and 1 are a (0, m, 2)-net, scrambled or not.
///
/// Each of the 2^m cells of an elementary partition of the plane contains one point.
#[test]
fn sobol_points_are_a_net() {
    const M: u32 = 10;
    for scramble in [Scramble::None, Scramble::Owen, Scramble::Shift] {
        let got = rows(&Points::new(Sequence::Sobol, scramble, 2, 2026), (1, 2), 0, 1 << M, 0..2);
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

#[test]
fn replicates_share_hardly_a_word() {
    for sequence in SEQUENCES {
        let points = Points::new(sequence, sequence.default_scramble(), 73, 5);
        let [first, second] = [0, 1].map(|replicate| rows(&points, (1, replicate), 0, 1000, 0..73).concat());
        // Two independent streams of 73000 words of 32 bits share 73000 · 2⁻³² on average, and
        // more than five with a probability below 10⁻³⁰.
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(same <= 5, "{sequence}: {same} words are the same in two replicates");
    }
}

/// Blocks and points of any alignment, dimensions on both sides of the table's end.
#[test]
fn blocks_hold_single_values() {
    for (sequence, scramble, first, dimensions) in [
        (Sequence::Sobol, Scramble::Owen, 5, 21_190..21_211),
        (Sequence::Sobol, Scramble::None, 4_294_967_000, 3..9),
        (Sequence::Sobol, Scramble::Shift, 77, 0..40),
        (Sequence::Philox, Scramble::None, 1_000_000_007, 2..13),
    ] {
        let points = Points::new(sequence, scramble, dimensions.end, 0xfeed_0000_beef);
        let stream = (1 << 20, 15);
        let got = rows(&points, stream, first, 291, dimensions.clone());
        for (d, row) in dimensions.zip(&got) {
            for (i, &x) in (first..).zip(row) {
                let value = points.value(points.stream(stream.0, stream.1), i, d);
                assert_eq!(x, value, "{sequence}, {scramble}: {d} of point {i}");
            }
        }
    }
}
