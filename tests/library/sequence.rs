//! Sequences against published numbers, on every lane.

use crate::support::Opened;
use crate::walk::SEQUENCES;
use kolmo::lane::Lane;
use kolmo::walk::sequence::mtgp32::{Mtgp32, SETS};
use kolmo::walk::sequence::{Points, Scramble, Sequence, Stream, fill, sobol};

fn points(sequence: Sequence, scramble: Scramble, dimensions: u32, seed: u64) -> Points {
    Points::new(sequence, scramble, dimensions, seed).expect("the sequence has that scramble")
}

/// Returns coordinates computed by the lane, one row per dimension.
fn rows(
    lane: &Lane,
    points: &Points,
    stream: Stream,
    first: u32,
    count: u32,
    dimensions: std::ops::Range<u32>,
) -> Vec<Vec<u32>> {
    let out = fill(lane, points, stream, first, count, dimensions).expect("a small buffer can be filled");
    let mut words = vec![0; out.len()];
    lane.download(&out, 0, &mut words).expect("a small buffer can be downloaded");
    words.chunks(count as usize).map(<[u32]>::to_vec).collect()
}

mod suite {
    use super::*;

    /// Compares points with those of `known/points.txt`.
    pub(super) fn points_are_the_published_ones(machine: &Opened) {
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
            let points = points(sequence, Scramble::None, number(dimensions), 0);
            let got = rows(&machine.lanes[0], &points, points.stream(3, 1), number(first), count, d..d + 1);
            assert_eq!(got.concat(), known.iter().map(|known| fraction(known)).collect::<Vec<_>>(), "{line}");
        }
    }

    /// The first 2^m points of dimensions 0 and 1 are a (0, m, 2)-net, scrambled or not.
    ///
    /// Each of the 2^m cells of an elementary partition of the plane contains one point.
    pub(super) fn sobol_points_are_a_net(machine: &Opened) {
        let lane = &machine.lanes[0];
        const M: u32 = 10;
        for scramble in [Scramble::None, Scramble::Owen, Scramble::Shift] {
            let points = points(Sequence::Sobol, scramble, 2, 2026);
            let got = rows(lane, &points, points.stream(1, 2), 0, 1 << M, 0..2);
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

    /// Output of the authors' reference program for every parameter set.
    ///
    /// Taken as dimensions 0, 1 and 11 of 12, in one piece and in several.
    pub(super) fn mtgp32_gives_the_published_words(machine: &Opened) {
        let lane = &machine.lanes[0];
        let known: Vec<Vec<u32>> = include_str!("known/mtgp32.csv")
            .lines()
            .filter(|line| !line.starts_with(['#', 'i']))
            .map(|line| line.split(',').map(|word| word.parse().expect("a known word")).collect())
            .collect();
        assert_eq!(known.len(), SETS as usize);
        let seeds: Vec<u32> = known.iter().map(|known| known[1]).collect();
        const DIMENSIONS: u32 = 12;
        let words = |generators: &mut Mtgp32, count: u32| {
            let out = generators.fill(lane, count).expect("a small buffer can be filled");
            let mut words = vec![0; out.len()];
            lane.download(&out, 0, &mut words).expect("a small buffer can be downloaded");
            words
        };
        let mut generators = Mtgp32::new(lane, &seeds, DIMENSIONS).expect("200 generators");
        let count = SETS * 256;
        let whole = words(&mut generators, count);
        for (g, known) in known.iter().enumerate() {
            for (output, &known) in [0, 1, 2, 3, 350, 351, 2999].iter().zip(&known[2..]) {
                let (d, i) = (output / 256, output % 256);
                assert_eq!(whole[d * count as usize + g * 256 + i], known, "set {g}, output {output}");
            }
        }
        // Three generators and six blocks of points: pieces of one block, three blocks, and 300
        // points.
        let piece = |first: usize, count: usize, all: &[u32]| -> Vec<u32> {
            all.chunks(6 * 256).flat_map(|row| &row[first..first + count]).copied().collect()
        };
        let three = || Mtgp32::new(lane, &seeds[..3], DIMENSIONS).expect("three generators");
        let all = words(&mut three(), 6 * 256);
        let mut pieces = three();
        for (first, count) in [(0, 256), (256, 3 * 256), (4 * 256, 300)] {
            let got = words(&mut pieces, count as u32);
            assert_eq!(got, piece(first, count, &all), "{count} from {first} on");
        }
    }

    pub(super) fn replicates_share_hardly_a_word(machine: &Opened) {
        for sequence in SEQUENCES.into_iter().filter(|&s| s != Sequence::Mtgp32) {
            let points = points(sequence, sequence.default_scramble(), 73, 5);
            let [first, second] = [0, 1].map(|replicate| {
                rows(&machine.lanes[0], &points, points.stream(1, replicate), 0, 1000, 0..73).concat()
            });
            // Two independent streams of 73000 words of 32 bits share 73000 · 2⁻³² on average, and
            // more than five with a probability below 10⁻³⁰.
            let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
            assert!(same <= 5, "{sequence}: {same} words are the same in two replicates");
        }
    }

    /// Blocks and points of any alignment, dimensions on both sides of the table's end.
    pub(super) fn buffers_hold_what_the_host_computes(machine: &Opened) {
        let lane = &machine.lanes[0];
        for (sequence, scramble, first, dimensions) in [
            (Sequence::Sobol, Scramble::Owen, 5, 21_190..21_211),
            (Sequence::Sobol, Scramble::None, 4_294_967_000, 3..9),
            (Sequence::Sobol, Scramble::Shift, 77, 0..40),
            (Sequence::Halton, Scramble::None, 99, 6_530..6_551),
            (Sequence::Halton, Scramble::Shift, 4_294_967_000, 0..7),
            (Sequence::Faure, Scramble::None, 100_000, 0..73),
            (Sequence::Faure, Scramble::Shift, 4_294_967_000, 1..7),
            (Sequence::Philox, Scramble::None, 1_000_000_007, 2..13),
        ] {
            let points = points(sequence, scramble, dimensions.end, 0xfeed_0000_beef);
            let stream = points.stream(1 << 20, 15);
            let got = rows(lane, &points, stream, first, 291, dimensions.clone());
            for (d, row) in dimensions.zip(&got) {
                for (i, &x) in (first..).zip(row) {
                    assert_eq!(x, points.value(stream, i, d), "{sequence}, {scramble}: {d} of point {i}");
                }
            }
        }
    }
}

// Sequences do not depend on the precision.
instances! {
    [
        points_are_the_published_ones,
        sobol_points_are_a_net,
        mtgp32_gives_the_published_words,
        replicates_share_hardly_a_word,
        buffers_hold_what_the_host_computes,
    ]
    cpu("cpu", F32);
    #[cfg(feature = "wgpu")] wgpu("wgpu:0", F32);
    #[cfg(feature = "cuda")] cuda("cuda:0", F32);
}
// Tests that read and write at the ends of buffers.
#[cfg(feature = "wgpu")]
instances! {
    [mtgp32_gives_the_published_words, buffers_hold_what_the_host_computes]
    wgpu_checked("wgpu:0", F32, true);
}
