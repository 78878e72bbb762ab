//! Rewards of a distributed chain.
//!
//! Each rank first stores the rewards of its home states, the states of its blocks in the file.
//! Once the rows are shared over the devices, the rewards are redistributed to them.

use std::borrow::Cow;
use std::ops::Range;

use super::Reward;
use super::transitions::Transitions;
use crate::ranks::Ranks;
use crate::sparse::BLOCK;

/// Largest number of values that a rank receives at once.
const AT_ONCE: usize = 1 << 26;

/// Returns the home states of this rank among `n`: the blocks that [`Ranks::share`] assigns to it.
pub(crate) fn home(n: usize, ranks: Ranks) -> Range<usize> {
    let mine = ranks.share(n.div_ceil(BLOCK) as u64);
    (mine.start as usize * BLOCK).min(n)..(mine.end as usize * BLOCK).min(n)
}

/// Restricts a reward of all states to this rank's home states if the chain is distributed.
pub fn local_reward(reward: Reward, transitions: &dyn Transitions, ranks: Ranks) -> Reward {
    match transitions.is_whole() {
        true => reward,
        false => home_reward(reward, transitions.states(), ranks),
    }
}

/// Restricts a reward of all states to this rank's home states.
pub(crate) fn home_reward(reward: Reward, n: usize, ranks: Ranks) -> Reward {
    let mut values = reward.values;
    assert_eq!(values.len(), n, "a value for each state");
    let home = home(n, ranks);
    values.truncate(home.end);
    values.drain(..home.start);
    values.shrink_to_fit();
    Reward { values, ..reward }
}

/// Sends values to the ranks on which their states are at [`home`]. Collective.
///
/// `values` are those of the states from `first` on. States without a value on any rank get 0.
pub(crate) fn move_to_home(n: usize, first: usize, values: &[f64], ranks: Ranks) -> Vec<f64> {
    redistribute(values, first..first + values.len(), home(n, ranks), ranks)
}

/// Returns the rewards restricted to `rows`, from all states or from the home states. Collective.
pub(crate) fn redistributed<'a>(
    rewards: &'a [Reward],
    rows: &Range<usize>,
    n: usize,
    ranks: Ranks,
) -> Cow<'a, [Reward]> {
    if !ranks.is_distributed() {
        return Cow::Borrowed(rewards);
    }
    let own = |reward: &Reward| {
        let whole = ranks.all_reduce_min(u64::from(reward.values.len() == n)) == 1;
        let values = match whole {
            true => reward.values[rows.clone()].to_vec(),
            false => redistribute(&reward.values, home(n, ranks), rows.clone(), ranks),
        };
        Reward { name: reward.name.clone(), values }
    };
    rewards.iter().map(own).collect()
}

/// Redistributes values of the states `from` on each rank as values of the states `to`.
fn redistribute(values: &[f64], from: Range<usize>, to: Range<usize>, ranks: Ranks) -> Vec<f64> {
    let ends = ranks.all_gather(&[from.start as u64, from.end as u64, to.start as u64, to.end as u64]);
    let range = |rank: usize, at: usize| ends[rank][at] as usize..ends[rank][at + 1] as usize;
    let piece = (AT_ONCE / ranks.size()).max(1);
    let of_round = |rank: usize, round: usize| {
        let from = range(rank, 0);
        let start = (from.start + round * piece).min(from.end);
        start..(start + piece).min(from.end)
    };
    let rounds = (0..ranks.size()).map(|rank| range(rank, 0).len().div_ceil(piece)).max().unwrap_or(0);
    let mut arrived = vec![0.0; to.len()];
    for round in 0..rounds {
        let leaving = |rank: usize| -> Vec<u32> {
            let states = common(&of_round(ranks.rank(), round), &range(rank, 2));
            let leaving = states.map(|state| values[state - from.start]);
            leaving.flat_map(|v| [v.to_bits() as u32, (v.to_bits() >> 32) as u32]).collect()
        };
        let arriving = ranks.all_to_all((0..ranks.size()).map(leaving).collect());
        for (rank, words) in arriving.iter().enumerate() {
            let states = common(&of_round(rank, round), &to);
            for (state, &[low, high]) in states.zip(words.as_chunks().0) {
                arrived[state - to.start] = f64::from_bits(u64::from(low) | u64::from(high) << 32);
            }
        }
    }
    arrived
}

/// Returns the intersection of two ranges.
fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_blocks() {
        let homes = |n, size| -> Vec<Range<usize>> {
            (0..size).map(|rank| home(n, Ranks::simulated(rank, size))).collect()
        };
        assert_eq!(homes(600, 2), [0..256, 256..600]);
        assert_eq!(homes(3, 3), [0..0, 0..0, 0..3]);
        let reward = Reward { name: "r".to_owned(), values: (0..600).map(f64::from).collect() };
        assert_eq!(home_reward(reward, 600, Ranks::simulated(1, 2)).values[..2], [256.0, 257.0]);
    }

    #[test]
    fn values_of_a_single_rank_do_not_move() {
        assert_eq!(move_to_home(5, 2, &[7.0, -0.0], Ranks::ALONE), [0.0, 0.0, 7.0, 0.0, 0.0]);
        assert_eq!(redistribute(&[1.0, 2.0, 3.0], 4..7, 5..9, Ranks::ALONE), [2.0, 3.0, 0.0, 0.0]);
        assert_eq!(redistribute(&[1.0], 4..5, 8..9, Ranks::ALONE), [0.0]);
        assert_eq!(redistribute(&[], 9..9, 0..1, Ranks::ALONE), [0.0]);
    }
}
