//! Identity of the run that a checkpoint belongs to.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::Machine;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::BLOCK;
use crate::transient::chain::Initial;
use crate::transient::chain::transitions::Transitions;
use crate::transient::problem::{Method, Options, Problem};

/// All inputs that determine the bits of a result, except the devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) precision: String,
    pub(super) states: u64,
    /// Name and text of each input; hashes stand for long ones.
    inputs: Vec<(String, String)>,
}

impl Identity {
    /// Computes the identity of a run; each rank hashes its part of the chain. Collective.
    pub(super) fn of(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Self {
        let n = problem.transitions.states();
        let initial = match problem.initial {
            // Some runs do not need the vector here, but a change of one bit must be detected.
            Initial::Distribution(values) => entries(values.iter().copied().enumerate()),
            Initial::State(state) => entries([(*state, 1.0)]),
            Initial::Uniform(among) => {
                let each = 1.0 / among.len() as f64;
                let mut among = among.clone();
                among.sort_unstable();
                among.dedup();
                entries(among.iter().map(|&state| (state as usize, each)))
            }
        };
        let method = match options.method {
            Method::Auto => "auto".to_owned(),
            Method::Uniformization => "uniformization".to_owned(),
            Method::Chebyshev { .. } => "chebyshev".to_owned(),
            Method::Krylov { .. } => "krylov".to_owned(),
        };
        let rewards = problem.rewards.iter();
        let rewards = rewards.map(|r| format!("{} {:016x}", r.name, reward(&r.values, machine.ranks) as u64));
        let rewards = rewards.reduce(|all, next| format!("{all}, {next}"));
        let precision = machine.precision.to_string();
        let inputs = [
            (
                "the chain",
                format!(
                    "{n} states{}",
                    if problem.transitions.is_discrete() { " in discrete time" } else { "" }
                ),
            ),
            ("the chain's rates", format!("hash {:032x}", transitions(problem.transitions, machine.ranks))),
            ("the initial distribution", format!("hash {initial:032x}")),
            ("the rewards", rewards.unwrap_or("none".to_owned())),
            ("the precision", precision.clone()),
            ("the times", few(problem.times)),
            ("epsilon", format!("{:e}", options.epsilon)),
            ("the method", method),
            ("what is computed", if problem.vectors { "probabilities" } else { "rewards alone" }.to_owned()),
        ];
        let inputs = inputs.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        Self { precision, states: n as u64, inputs }
    }

    /// Lists the differences between this identity of a checkpoint and that of the run to resume.
    pub(super) fn differences(&self, run: &Self) -> Vec<String> {
        let differ = |(there, here): &(&(String, String), &(String, String))| there != here;
        let both = || self.inputs.iter().zip(&run.inputs);
        // Rates, initial distribution and rewards of different chains differ anyway.
        let first = both().take(3).find(differ);
        let rest = both().skip(if self.states == run.states { 3 } else { 4 });
        let all = first.into_iter().chain(rest.filter(differ));
        all.map(|((name, there), (_, here))| format!("{name} (there {there}, here {here})")).collect()
    }
}

/// Formats times for a message: all of them, or if many first, last and a hash.
fn few(times: &[f64]) -> String {
    match times {
        [first, .., last] if times.len() > 6 => {
            let hash = entries(times.iter().copied().enumerate()) as u64;
            format!("{} from {first} to {last}, hash {hash:016x}", times.len())
        }
        some => some.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the sum of the hashes of the blocks of `n` states; each rank hashes its share.
/// Collective.
fn of_blocks(n: usize, ranks: Ranks, append: impl Fn(Range<usize>, &mut Vec<u8>) + Sync) -> u128 {
    let block = |block: usize| {
        let mut bytes = (block as u64).to_le_bytes().to_vec();
        append(block * BLOCK..((block + 1) * BLOCK).min(n), &mut bytes);
        XxHash3_128::oneshot(&bytes)
    };
    let mine = ranks.share(n.div_ceil(BLOCK) as u64);
    let mine = (mine.start as usize..mine.end as usize).into_par_iter().map(block);
    let sum = mine.reduce(|| 0, u128::wrapping_add);
    ranks.all_gather(&[sum]).concat().into_iter().fold(0, u128::wrapping_add)
}

fn reward(values: &[f64], ranks: Ranks) -> u128 {
    of_blocks(values.len(), ranks, |states, bytes| {
        bytes.extend(values[states].iter().flat_map(|v| v.to_le_bytes()));
    })
}

/// Hashes a vector that is given by its nonzero entries.
fn entries(entries: impl IntoIterator<Item = (usize, f64)>) -> u128 {
    let mut hasher = XxHash3_128::new();
    for (state, value) in entries.into_iter().filter(|(_, value)| value.to_bits() != 0) {
        hasher.write(&(state as u64).to_le_bytes());
        hasher.write(&value.to_le_bytes());
    }
    hasher.finish_128()
}

fn transitions(chain: &dyn Transitions, ranks: Ranks) -> u128 {
    of_blocks(chain.states(), ranks, |states, bytes| {
        chain.each_outgoing(states, |_, row| {
            bytes.extend((row.len() as u32).to_le_bytes());
            for (to, rate) in row {
                bytes.extend(to.to_le_bytes());
                bytes.extend(rate.to_le_bytes());
            }
        });
    })
}
