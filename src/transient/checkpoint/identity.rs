//! Identity of the run that a checkpoint belongs to.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::BLOCK;
use crate::transient::chain::Initial;
use crate::transient::chain::transitions::Transitions;
use crate::transient::problem::{Method, Options, Problem};
use crate::{Machine, Result};

/// All inputs that determine the bits of a result, except the devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) precision: String,
    pub(super) states: u64,
    /// Hash of all transitions by states in the model's own order.
    ///
    /// It is the sum of the hashes of blocks, so that each rank can hash its own blocks.
    chain: u128,
    initial: u128,
    times: Vec<f64>,
    epsilon: f64,
    method: String,
    width: String,
    /// Names and hashes; each hash is the sum of those of blocks.
    rewards: Vec<(String, u128)>,
    vectors: bool,
}

impl Identity {
    /// Computes the identity of a run; each rank hashes its part of the chain. Collective.
    pub(super) fn of(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<Self> {
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
        Ok(Self {
            precision: machine.precision.to_string(),
            states: n as u64,
            chain: transitions(problem.transitions, machine.ranks),
            initial,
            times: problem.times.to_vec(),
            epsilon: options.epsilon,
            method: match options.method {
                Method::Auto => "auto".to_owned(),
                Method::Uniformization => "uniformization".to_owned(),
                Method::Chebyshev { .. } => "chebyshev".to_owned(),
                Method::Krylov { .. } => "krylov".to_owned(),
                Method::Subdivided { theta } => format!("subdivided with theta = {theta}"),
            },
            width: format!("{:?}", options.width).to_lowercase(),
            rewards: (problem.rewards.iter())
                .map(|r| (r.name.clone(), reward(&r.values, machine.ranks)))
                .collect(),
            vectors: problem.vectors,
        })
    }

    /// Lists the differences between this identity of a checkpoint and that of the run to resume.
    pub(super) fn differences(&self, run: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut differ = |what: &str, of: &dyn Fn(&Self) -> String| {
            all.push(format!("{what} (there {}, here {})", of(self), of(run)));
        };
        if self.states != run.states {
            differ("the chain", &|one| format!("{} states", one.states));
        } else if self.chain != run.chain {
            differ("the chain's rates", &|one| format!("hash {:032x}", one.chain));
        } else if self.initial != run.initial {
            differ("the initial distribution", &|one| format!("hash {:032x}", one.initial));
        }
        if self.precision != run.precision {
            differ("the precision", &|one| one.precision.clone());
        }
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        if bits(&self.times) != bits(&run.times) {
            differ("the times", &|one| few(&one.times));
        }
        if self.epsilon.to_bits() != run.epsilon.to_bits() {
            differ("epsilon", &|one| format!("{:e}", one.epsilon));
        }
        if self.method != run.method {
            differ("the method", &|one| one.method.clone());
        }
        if self.width != run.width {
            differ("the ELL width", &|one| one.width.clone());
        }
        // Rewards of a different chain differ anyway.
        if self.states == run.states && self.rewards != run.rewards {
            differ("the rewards", &|one| match &one.rewards[..] {
                [] => "none".to_owned(),
                some => {
                    let named: Vec<String> =
                        some.iter().map(|(name, hash)| format!("{name} {:08x}", *hash as u32)).collect();
                    named.join(", ")
                }
            });
        }
        if self.vectors != run.vectors {
            let wanted = |one: &Self| if one.vectors { "probabilities" } else { "rewards alone" }.to_owned();
            differ("what is computed", &wanted);
        }
        all
    }
}

/// Formats the times for a message, by first and last one if there are many.
fn few(times: &[f64]) -> String {
    match times {
        [first, .., last] if times.len() > 6 => format!("{} from {first} to {last}", times.len()),
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
