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

/// Returns numerator / denominator as a fraction of 2³², rounded down.
fn fraction(numerator: u64, denominator: u64) -> u32 {
    ((numerator << 32) / denominator) as u32
}

mod suite {
    use super::*;

    /// Lists of J. Burkardt and of SciPy, times 16.
    pub(super) fn sobol_gives_the_published_points(machine: &Opened) {
        let lane = &machine.lanes[0];
        let known: [[u32; 16]; 6] = [
            [0, 8, 12, 4, 6, 14, 10, 2, 3, 11, 15, 7, 5, 13, 9, 1],
            [0, 8, 4, 12, 6, 14, 2, 10, 5, 13, 1, 9, 3, 11, 7, 15],
            [0, 8, 4, 12, 10, 2, 14, 6, 15, 7, 11, 3, 5, 13, 1, 9],
            [0, 8, 4, 12, 14, 6, 10, 2, 7, 15, 3, 11, 9, 1, 13, 5],
            [0, 8, 12, 4, 6, 14, 10, 2, 9, 1, 5, 13, 15, 7, 3, 11],
            [0, 8, 12, 4, 2, 10, 14, 6, 5, 13, 9, 1, 7, 15, 11, 3],
        ];
        let points = points(Sequence::Sobol, Scramble::None, sobol::DIMENSIONS, 0);
        let stream = points.stream(3, 1);
        let got = rows(lane, &points, stream, 0, 16, 0..6);
        for (d, (got, known)) in got.iter().zip(&known).enumerate() {
            assert_eq!(*got, known.map(|x| x << 28), "dimension {d}");
        }

        // Dimensions 1, 2, 3, 4, 10, 100, 1000 of SciPy, which counts from 1.
        let dimensions = [1, 2, 3, 4, 10, 100, 1000];
        for (point, wanted) in [
            (
                100,
                [0x6a00_0000, 0x4200_0000, 0xc600_0000, 0xba00_0000, 0xb200_0000, 0xe200_0000, 0xea00_0000],
            ),
            (
                1023,
                [0x0040_0000, 0xc0c0_0000, 0x9cc0_0000, 0x2540_0000, 0xd9c0_0000, 0x87c0_0000, 0xdb40_0000],
            ),
            (
                4095,
                [0x0010_0000, 0xf0f0_0000, 0x5590_0000, 0xe6d0_0000, 0x3f10_0000, 0xf670_0000, 0x4ef0_0000],
            ),
        ] {
            for (d, wanted) in dimensions.into_iter().zip(wanted) {
                assert_eq!(rows(lane, &points, stream, point, 1, d - 1..d), [[wanted]], "{point} in {d}");
            }
        }
        for (point, wanted) in
            [(1, 0x8000_0000), (2, 0xc000_0000), (3, 0x4000_0000), (5, 0x2000_0000), (63, 0x1c00_0000)]
        {
            let got = rows(lane, &points, stream, point, 1, 21_200..21_201);
            assert_eq!(got, [[wanted]], "{point} in the last dimension");
        }
    }

    /// Point i of dimension 0 is the bit-reversed Gray code of i, so that every bit of i matters.
    pub(super) fn sobol_reaches_the_last_point(machine: &Opened) {
        let lane = &machine.lanes[0];
        let points = points(Sequence::Sobol, Scramble::None, 1, 0);
        for first in [0, 12_345, 0x7fff_ffff, 0xffff_ff00] {
            let got = rows(lane, &points, points.stream(0, 0), first, 256, 0..1);
            let wanted = (first..=first + 255).map(|i| (i ^ i >> 1).reverse_bits());
            assert!(got[0].iter().copied().eq(wanted), "256 points from {first} on");
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

    /// Sequences in base b are balanced.
    ///
    /// Of the first b² points, in each pair of dimensions of Faure's sequence, one is in each of b
    /// × b cells, a (0, 2, 2)-net. In one dimension of Halton's sequence, one is in each of b²
    /// intervals.
    pub(super) fn halton_and_faure_points_are_balanced(machine: &Opened) {
        let lane = &machine.lanes[0];
        const B: u32 = 11;
        // A fraction at the lower edge of a cell is rounded down, below the edge unless it is 0.
        // Its upper end is inside the cell.
        let cell = |x: u32, cells: u32| ((u64::from(x) + 1) * u64::from(cells) - 1) >> 32;
        let faure = points(Sequence::Faure, Scramble::None, B, 2026);
        let got = rows(lane, &faure, faure.stream(1, 2), 0, B * B, 0..B);
        for first in 0..B as usize {
            for second in 0..first {
                let mut cells = [0; (B * B) as usize];
                for (&x, &y) in got[first].iter().zip(&got[second]) {
                    cells[(cell(x, B) * u64::from(B) + cell(y, B)) as usize] += 1;
                }
                assert!(cells.iter().all(|&n| n == 1), "{second} and {first}: {cells:?}");
            }
        }
        let halton = points(Sequence::Halton, Scramble::None, 5, 2026);
        let got = rows(lane, &halton, halton.stream(1, 2), 0, B * B, 4..5);
        let mut cells = [0; (B * B) as usize];
        got[0].iter().for_each(|&x| cells[cell(x, B * B) as usize] += 1);
        assert!(cells.iter().all(|&n| n == 1), "{cells:?}");
    }

    /// Compares Owen scrambling and shifts of the lane with the host's functions.
    pub(super) fn scrambles_are_those_of_the_host(machine: &Opened) {
        let lane = &machine.lanes[0];
        for scramble in [Scramble::Owen, Scramble::Shift] {
            let points = points(Sequence::Sobol, scramble, 40, 7);
            let stream = points.stream(11, 5);
            let got = rows(lane, &points, stream, 77, 300, 0..40);
            for (d, row) in (0..).zip(&got) {
                for (i, &x) in (77..).zip(row) {
                    let plain = sobol::sobol_reversed(&sobol::table(40)[32 * d as usize..], i);
                    let key = kolmo::walk::sequence::dimension_key(stream.key, d);
                    let wanted = match scramble {
                        Scramble::Owen => sobol::owen_reversed(plain, key).reverse_bits(),
                        _ => plain.reverse_bits() ^ key,
                    };
                    assert_eq!(x, wanted, "{scramble}: coordinate {d} of point {i}");
                }
            }
        }
    }

    /// Known answers of the authors, as four dimensions of one point.
    pub(super) fn philox_gives_the_published_words(machine: &Opened) {
        let lane = &machine.lanes[0];
        // Word 1 of a counter is a block of four dimensions. There are 2³⁰ blocks, so the lane can
        // compute one of the three known answers.
        let philox = points(Sequence::Philox, Scramble::None, 4, 0);
        let got = rows(lane, &philox, philox.stream(0, 0), 0, 1, 0..4);
        assert_eq!(got, [[0x6627_e8d5], [0xe169_c58d], [0xbc57_ac4c], [0x9b00_dbd8]]);
        // The host's function, which passes the other known answers, is the reference for another
        // counter.
        let known = kolmo::walk::sequence::philox::philox(
            [0x243f_6a88, 0x05a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        let philox = points(Sequence::Philox, Scramble::None, 4, 0x299f_31d0_a409_3822);
        let block = 0x05a3_08d3u32 << 2;
        let got =
            rows(lane, &philox, philox.stream(0x1319_8a2e, 0x0370_7344), 0x243f_6a88, 1, block..block + 4);
        assert_eq!(got.concat(), known);
    }

    /// Fractions of J. Burkardt's `halton_advanced_test`, and its six printed digits of later
    /// points.
    pub(super) fn halton_gives_the_published_points(machine: &Opened) {
        let lane = &machine.lanes[0];
        let points = points(Sequence::Halton, Scramble::None, 2, 0);
        let stream = points.stream(0, 0);
        let got = rows(lane, &points, stream, 1, 10, 0..2);
        let twos = [(1, 2), (1, 4), (3, 4), (1, 8), (5, 8), (3, 8), (7, 8), (1, 16), (9, 16), (5, 16)];
        let threes = [(1, 3), (2, 3), (1, 9), (4, 9), (7, 9), (2, 9), (5, 9), (8, 9), (1, 27), (10, 27)];
        for (got, known) in got.iter().zip([twos, threes]) {
            assert_eq!(*got, known.map(|(n, d)| fraction(n, d)));
        }
        for (point, known) in [(1000, [0.0927734, 0.347508]), (1_000_000, [0.00883389, 0.361066])] {
            for (d, known) in (0..).zip(known) {
                let got = f64::from(rows(lane, &points, stream, point, 1, d..d + 1)[0][0]) / 4294967296.0;
                assert!((got - known).abs() <= 5e-6 * known, "{point}: {got}, {known} is published");
            }
        }
    }

    /// Fractions of base 3 by hand, and of base 17 from R's DiceDesign.
    pub(super) fn faure_gives_the_published_points(machine: &Opened) {
        let lane = &machine.lanes[0];
        let three = points(Sequence::Faure, Scramble::None, 3, 0);
        let got = rows(lane, &three, three.stream(0, 0), 0, 10, 0..3);
        let known = [
            [(0, 1), (1, 3), (2, 3), (1, 9), (4, 9), (7, 9), (2, 9), (5, 9), (8, 9), (1, 27)],
            [(0, 1), (1, 3), (2, 3), (4, 9), (7, 9), (1, 9), (8, 9), (2, 9), (5, 9), (16, 27)],
            [(0, 1), (1, 3), (2, 3), (7, 9), (1, 9), (4, 9), (5, 9), (8, 9), (2, 9), (13, 27)],
        ];
        for (d, (got, known)) in got.iter().zip(known).enumerate() {
            assert_eq!(*got, known.map(|(n, d)| fraction(n, d)), "dimension {d}");
        }
        let seventeen = points(Sequence::Faure, Scramble::None, 17, 0);
        for (point, known) in [(17, &[1, 18, 35, 52, 69][..]), (34, &[2, 36, 70])] {
            let got = rows(lane, &seventeen, seventeen.stream(0, 0), point, 1, 0..known.len() as u32);
            let known: Vec<u32> = known.iter().map(|&n| fraction(n, 289)).collect();
            assert_eq!(got.concat(), known, "point {point}");
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
        sobol_gives_the_published_points,
        sobol_reaches_the_last_point,
        sobol_points_are_a_net,
        halton_and_faure_points_are_balanced,
        scrambles_are_those_of_the_host,
        philox_gives_the_published_words,
        halton_gives_the_published_points,
        faure_gives_the_published_points,
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
