//! The merge tree of units gives equal bits for any number of levels and ranks.

use std::sync::Arc;

use crate::support::{Numbers, Opened};
use kolmo::kernel::Precision::F32;
use kolmo::lane::Lane;
use kolmo::tridiagonal::Number;
use kolmo::tridiagonal::reduction::levels::{Level, Shape};
use kolmo::tridiagonal::reduction::merge_tree::RootSolve;
use kolmo::tridiagonal::reduction::rank_reduction::{Subtrees, depth, largest};

/// Returns six random coefficients and a flag word for each of `count` reduced blocks (units).
///
/// Some coefficients are 0 or −0, and all are small enough for every merge.
fn units<T: Number>(count: usize) -> (Vec<T>, Vec<u32>) {
    let mut random = Numbers(0x9e37_79b9_7f4a_7c15 ^ count as u64);
    let number = |bits: u64| match bits % 11 {
        0 => T::of(0.0),
        1 => T::of(-0.0),
        _ => T::of(1.2 * (bits as f64 / (1u64 << 53) as f64 - 0.5)),
    };
    let numbers = (0..6 * count).map(|_| number(random.bits())).collect();
    (numbers, (0..count).map(|_| (random.bits() % 3) as u32).collect())
}

fn bits<T: Number>(numbers: &[T]) -> Vec<u64> {
    numbers.iter().map(|v| v.wide().to_bits()).collect()
}

fn download<T: Number>(lane: &Lane, from: &kolmo::lane::Buffer<T>, count: usize) -> Vec<T> {
    let mut to = vec![T::ZERO; count];
    lane.download(from, 0, &mut to).expect("the device is there");
    to
}

/// Returns the bits of the two unknowns next to each unit, and the flags, from stage 2 on one rank.
fn at_once<T: Number>(lane: &Lane, (numbers, flags): &(Vec<T>, Vec<u32>), ring: bool) -> (Vec<u64>, u32) {
    let level = Level::<T>::new(lane, Shape::REDUCED_BLOCKS, flags.len()).expect("memory");
    let level = Arc::new(level);
    let top = RootSolve::new(lane, level.clone(), ring).expect("memory");
    lane.upload(numbers, &level.equations, 0).expect("the device is there");
    lane.upload(flags, &level.flags, 0).expect("the device is there");
    lane.launch(&top.launches().collect::<Vec<_>>(), 0).expect("the device is there");
    let outer = download(lane, &level.values, 2 * flags.len());
    (bits(&outer), top.flags(lane).expect("the device is there"))
}

/// Returns the result of [`at_once`] with the units distributed to ranks.
///
/// Rank boundaries are at `cuts`. Each rank merges groups of 2^`below` units, then the groups to
/// the largest complete subtrees, and sends their roots.
fn on_ranks<T: Number>(
    lane: &Lane,
    (numbers, flags): &(Vec<T>, Vec<u32>),
    ring: bool,
    below: u32,
    cuts: &[usize],
) -> (Vec<u64>, u32) {
    let (count, there) = (flags.len(), "the device is there");
    let all = count.div_ceil(1 << below);
    let ends: Vec<usize> = cuts.iter().copied().chain([count]).collect();
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ranges: Vec<_> = starts.zip(ends).map(|(start, end)| start..end).collect();
    let (mut sent, mut sent_flags, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    let mut ranks: Vec<(Subtrees<T>, usize)> = Vec::new();
    for here in &ranges {
        let (start, end) = (here.start >> below, here.end.div_ceil(1 << below));
        runs.extend(largest(start..end, all, depth(all)));
        let rank = Subtrees::of_rank(lane, here.len(), below, start, all).expect("memory");
        let mut own = numbers[6 * here.start..6 * here.end].to_vec();
        let mut own_flags = flags[here.clone()].to_vec();
        rank.reduce_levels(lane, &mut own, &mut own_flags).expect(there);
        lane.launch(&[], 0).expect(there);
        sent.extend(&own[..6 * rank.count()]);
        sent_flags.extend(&own_flags[..rank.count()]);
        ranks.push((rank, here.len()));
    }
    let subtrees = Subtrees::of_all(lane, all, runs).expect("memory");
    let top = RootSolve::new(lane, subtrees.top().clone(), ring).expect("memory");
    subtrees.gather(lane, &sent, &sent_flags).expect(there);
    lane.launch(&top.launches().collect::<Vec<_>>(), 0).expect(there);
    let mut answers = vec![T::ZERO; 2 * subtrees.count()];
    subtrees.scatter(lane, &mut answers).expect(there);
    lane.launch(&[], 0).expect(there);
    let (mut outer, mut at) = (Vec::<T>::new(), 0);
    for (rank, units) in &ranks {
        let mut own = vec![T::ZERO; 2 * units.max(&rank.count())];
        own[..2 * rank.count()].copy_from_slice(&answers[2 * at..2 * (at + rank.count())]);
        at += rank.count();
        rank.back_substitute(lane, &mut own).expect(there);
        lane.launch(&[], 0).expect(there);
        outer.extend(&own[..2 * units]);
    }
    (bits(&outer), top.flags(lane).expect(there))
}

fn the_tree_is_one<T: Number>(machine: &Opened) {
    let lane = &machine.lanes[0];
    // Allocating a buffer takes milliseconds on devices other than the CPU.
    let counts: &[usize] = match machine.spec {
        "cpu" => &[1, 2, 3, 130, 255, 256, 257, 511, 782, 1025, 2048, 2049, 70_001],
        _ => &[1, 257, 2049, 70_001],
    };
    for &count in counts {
        let given = units::<T>(count);
        // Many units take long, and cover no further boundaries.
        let (all_levels, shares): (&[u32], &[usize]) = match count {
            0..1024 => (&[0, 1, 3, 4, 7, 8, 9], &[1, 2, 5]),
            1024..10_000 => (&[0, 4, 9, 11], &[1, 3, 7]),
            _ => (&[0, 9], &[3]),
        };
        for ring in [false, true] {
            let wanted = at_once(lane, &given, ring);
            assert!(count < 256 || wanted.1 > 0);
            for &levels in all_levels {
                let grain = 1 << levels;
                // No deeper than the tree.
                if grain > count.next_power_of_two() {
                    continue;
                }
                for &share in shares {
                    let cut = |k: usize| count.div_ceil(grain) * k / share * grain;
                    let mut cuts: Vec<usize> = (1..share).map(cut).filter(|&c| c > 0 && c < count).collect();
                    cuts.dedup();
                    let got = on_ranks(lane, &given, ring, levels, &cuts);
                    assert!(got == wanted, "{count} units in {levels} levels, cut at {cuts:?}; ring: {ring}");
                }
            }
        }
    }
}

fn bits_do_not_depend_on_levels_and_ranks(machine: &Opened) {
    let of = if machine.precision == F32 { the_tree_is_one::<f32> } else { the_tree_is_one::<f64> };
    of(machine);
}

instances! {
    [bits_do_not_depend_on_levels_and_ranks]
    cpu_f64("cpu", F64);
    cpu_f32("cpu", F32);
    #[cfg(feature = "wgpu")] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
}
