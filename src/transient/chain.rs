//! What a chain is to the solver: a source of rows of the transposed rate matrix, and what its files say beside it.

use std::ops::Range;

/// A source of a chain's transitions. Rows are asked for in any order and from several threads.
///
/// A transition is (state, rate) with rate > 0; there are no self-loops and no duplicates.
pub trait Transitions: Send + Sync {
    /// Number of states n.
    fn states(&self) -> usize;

    /// Appends the transitions *into* `state` to `row`, as (source, rate), sources ascending: row `state` of Rᵀ.
    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Appends the transitions *out of* `state` to `row`, as (target, rate), targets ascending: row `state` of R.
    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Writes the exit rates of `states` (their rates summed by [`exit_rate`] in ascending order of targets).
    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        let mut row = Vec::new();
        for (state, rate) in states.zip(out) {
            row.clear();
            self.outgoing(state, &mut row);
            *rate = exit_rate(row.iter().map(|&(_, r)| r));
        }
    }
}

/// The sum of a state's rates, with Neumaier's compensation, in the order given (ascending targets), so that
/// every source of the same chain gives the same bits.
pub fn exit_rate(rates: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for rate in rates {
        let next = sum + rate;
        lost += if sum >= rate {
            (sum - next) + rate
        } else {
            (rate - next) + sum
        };
        sum = next;
    }
    sum + lost
}

/// Sets of states by name, states ascending in each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// (name, states with that label), in the file's order of names.
    pub sets: Vec<(String, Vec<u32>)>,
}

impl Labels {
    /// The states with that label.
    pub fn get(&self, name: &str) -> Option<&[u32]> {
        self.sets.iter().find(|(n, _)| n == name).map(|(_, s)| &s[..])
    }
}

/// A rate reward: what a state earns per unit of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    /// Name as in the file, or its stem.
    pub name: String,
    /// One value a state.
    pub values: Vec<f64>,
}

/// Transitions as a file lists them: rates R, in the file's order. Self-loops and zero rates may be present;
/// duplicates not yet looked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransitionList {
    /// Source state of each transition.
    pub from: Vec<u32>,
    /// Target state of each transition.
    pub to: Vec<u32>,
    /// Rate of each transition, finite and ≥ 0.
    pub rate: Vec<f64>,
}

/// A chain as read from files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainFile {
    /// Number of states.
    pub states: usize,
    /// Its transitions.
    pub transitions: TransitionList,
    /// Labels, from the same file or a `.lab` beside it.
    pub labels: Labels,
    /// Rewards that the same file holds (DRN, UMB).
    pub rewards: Vec<Reward>,
    /// Things the user should know: ignored parts, mismatched exit rates, matrices that look transposed.
    pub warnings: Vec<String>,
}
