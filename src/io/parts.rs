//! A chain's file read by ranks, each its part: `.tra`, `.mtx` and `.drn` by bytes, `.npz` and `.umb` by states.
//!
//! A rank holds a piece of the text of its part while it reads, and then the transitions into and out of its share of
//! the states, and their rewards; sets of labelled states all hold whole. Labels, rewards and distributions in files of
//! their own are read whole by all. What one rank cannot make sense of all read whole, as one process does, for the
//! message that this has.

use std::path::Path;

use super::generator::{self, RowSums};
use super::model::{Format, RewardFiles, dressed, labelled, names, numbers, twice};
use super::{drn, mtx, npz, read_chain, tra, umb};
use crate::Result;
use crate::lane::cpu::expect_memory;
use crate::ranks::Ranks;
use crate::sparse::Coo;
use crate::transient::chain::csr::Duplicate;
use crate::transient::chain::distributed::Shared;
use crate::transient::chain::distributed_rewards::{home_reward, move_to_home};
use crate::transient::chain::transitions::TransitionList;
use crate::transient::chain::{Chain, ChainFile, Labels, Reward};

/// The content of a rank's part.
#[derive(Default)]
struct Part {
    /// States by the file; none where the highest index says how many they are.
    states: Option<u64>,
    highest: u64,
    /// Entries that this part of the file lists, and all of them by the file's head, if it says how many.
    listed: u64,
    promised: Option<u64>,
    transitions: TransitionList,
    labels: Labels,
    facts: Facts,
    /// Of states from the first on.
    rewards: Vec<Reward>,
    first: u64,
    /// Number of the file's first state.
    counted_from: u64,
    warnings: Vec<String>,
    /// Facts that have to be brought together first.
    blocks: Option<drn::Part>,
}

/// The signs that tell a generator from rates.
#[derive(Default)]
enum Facts {
    /// The file has no generators.
    #[default]
    Rates,
    /// Of this part, which has whole rows of the matrix.
    Rows(generator::RowFacts),
    /// Rows may be spread over parts, entries of which have these columns in all.
    Anywhere { columns: usize },
    /// The same of a file that has no generators, but may be one of a discrete-time chain.
    Unsaid,
}

/// Reads a chain as [`read_chain`] does, each rank its part of it where the format allows that. Every rank calls this at
/// once.
///
/// # Errors
/// Those of [`read_chain`], which all ranks have.
pub fn read_chain_on(path: &Path, labels: Option<&Path>, ranks: Ranks) -> Result<Chain> {
    if ranks.is_distributed() {
        let part = match Format::of(path) {
            // What is earned at transitions needs them as the file lists them, whole.
            Ok(format) if path.exists() && RewardFiles::beside(path).transitions.is_empty() => {
                part(path, format, ranks).map(|part| (part, format))
            }
            _ => None,
        };
        // What one has to read whole all do.
        if ranks.all_reduce_min(u64::from(part.is_some())) == 1
            && let Some((part, format)) = part
            && let Some(chain) = together(path, part, format, labels, ranks)?
        {
            return Ok(chain);
        }
    }
    ranks.all_ok(read_chain(path, labels))
}

/// This rank's part; none where the file has to be read whole.
fn part(path: &Path, format: Format, ranks: Ranks) -> Option<Part> {
    match format {
        Format::Tra => {
            let lines = tra::lines(path, ranks).ok()??;
            let tra::Lines { transitions, states, highest, promised, first, says_ctmc, warnings } = lines;
            let listed = transitions.rate.len() as u64;
            let facts = if says_ctmc { Facts::Rates } else { Facts::Unsaid };
            let counted_from = first;
            Some(Part {
                states,
                highest,
                listed,
                promised,
                transitions,
                facts,
                counted_from,
                warnings,
                ..Part::default()
            })
        }
        Format::Npz => {
            let (entries, rows) = npz::rows(path, ranks).ok()?;
            let facts = Facts::Rows(generator::row_facts(&entries, &rows)?);
            Some(Part {
                states: Some(entries.rows as u64),
                transitions: listed(entries),
                facts,
                ..Part::default()
            })
        }
        Format::MatrixMarket => {
            let mtx::Share { matrix, listed: own, promised } = mtx::share(path, ranks).ok()??;
            let (states, facts) = (Some(matrix.rows as u64), Facts::Anywhere { columns: matrix.columns });
            let transitions = listed(matrix);
            Some(Part {
                states,
                listed: own,
                promised: Some(promised),
                transitions,
                facts,
                ..Part::default()
            })
        }
        Format::Umb => {
            let umb::Share { states, transitions, labels, rewards, first } =
                umb::share(path, ranks).ok()??;
            Some(Part { states: Some(states), transitions, labels, rewards, first, ..Part::default() })
        }
        // A dense array is no long one.
        Format::Npy => None,
        Format::Drn => {
            let mut blocks = drn::part(path, ranks).ok()??;
            let (states, transitions) = (Some(blocks.states()), std::mem::take(&mut blocks.transitions));
            Some(Part { states, transitions, blocks: Some(blocks), ..Part::default() })
        }
    }
}

fn listed(entries: Coo) -> TransitionList {
    TransitionList { from: entries.row, to: entries.column, rate: entries.value }
}

/// Facts of rows whose entries are anywhere: each rank is brought those of its share of the rows. None if they are no
/// chain's, on one rank at least.
fn gathered(
    list: &TransitionList,
    states: usize,
    columns: usize,
    ranks: Ranks,
) -> Option<generator::RowFacts> {
    let share = |rank: usize| states * rank / ranks.size()..states * (rank + 1) / ranks.size();
    let entries = list.from.iter().zip(&list.to).zip(&list.rate).map(|((&i, &j), &x)| {
        // The share that row i lies in, or the one before it.
        let mut rank = (i as usize * ranks.size() / states.max(1)).min(ranks.size() - 1);
        while share(rank).end <= i as usize {
            rank += 1;
        }
        let bits = x.to_bits();
        (rank, [i, j, bits as u32, (bits >> 32) as u32])
    });
    let mut sums = RowSums::new(states, columns, &share(ranks.rank()));
    ranks.all_to_all_in_rounds(list.rate.len(), entries, |&[i, j, low, high]| {
        sums.add(i, j, f64::from_bits(u64::from(high) << 32 | u64::from(low)));
    });
    let facts = sums.facts();
    (ranks.all_reduce_min(u64::from(facts.is_some())) == 1).then_some(facts).flatten()
}

/// Makes a chain of all ranks' parts; none where there is something to say that one process knows how to.
fn together(
    path: &Path,
    part: Part,
    format: Format,
    labels: Option<&Path>,
    ranks: Ranks,
) -> Result<Option<Chain>> {
    let mut warnings = part.warnings;
    let highest = ranks.all_reduce_max(part.highest as f64) as u64;
    let states = part.states.unwrap_or(highest);
    let facts = match part.facts {
        Facts::Rates => None,
        Facts::Rows(facts) => Some(facts),
        Facts::Anywhere { columns } => {
            let Some(facts) = gathered(&part.transitions, states as usize, columns, ranks) else {
                return Ok(None);
            };
            Some(facts)
        }
        Facts::Unsaid => {
            let sum = ranks.all_gather(&[part.transitions.rate.iter().sum::<f64>()]).concat().iter().sum();
            match generator::may_be_stochastic(states as usize, sum) {
                true => gathered(&part.transitions, states as usize, states as usize, ranks),
                false => None,
            }
        }
    };
    if let Some(facts) = facts {
        let all = ranks.all_gather(&[facts.negative, facts.balanced, facts.stochastic].map(u8::from));
        let (any, every) =
            (|k: usize| all.iter().any(|f| f[k] == 1), |k: usize| all.iter().all(|f| f[k] == 1));
        if any(0) && !every(1) {
            return Ok(None);
        }
        if !any(0) && every(2) && states > 1 {
            warnings.push(generator::looks_stochastic(path));
        }
    }
    let (found, listed) =
        (ranks.all_reduce_sum(part.listed), ranks.all_reduce_sum(part.transitions.rate.len() as u64));
    if part.promised.is_some_and(|promised| promised != found) || states == 0 {
        return Ok(None);
    }
    let (labels_inside, rewards, more) = match part.blocks {
        None => {
            let home = |r: Reward| Reward {
                values: move_to_home(states as usize, part.first as usize, &r.values, ranks),
                ..r
            };
            (part.labels, part.rewards.into_iter().map(home).collect(), Vec::new())
        }
        Some(blocks) => {
            let Some(drn::Beside { labels, rewards, warnings }) = blocks.beside(path, ranks) else {
                return Ok(None);
            };
            (labels, rewards, warnings)
        }
    };
    warnings.extend(more);
    // Both orders of this rank's share. The list is there already.
    let share = (states / ranks.size() as u64) * 16 + listed / ranks.size() as u64 * 24;
    ranks.all_ok(expect_memory(share, || {
        format!("{}: a part of a chain of {states} states and {listed} transitions", path.display())
    }))?;
    let (chain, duplicate) = Shared::new(states as usize, part.transitions, ranks);
    // The first of all. SciPy means the sum, which one process makes.
    let mine = duplicate.map_or(Vec::new(), |Duplicate { from, to }| vec![to, from]);
    if let Some(&[to, from]) = ranks.all_gather(&mine).concat().as_chunks::<2>().0.first() {
        if format == Format::Npz {
            return Ok(None);
        }
        return ranks.all_ok(Err(twice(path, format, Duplicate { from, to })));
    }
    let mut file = ChainFile {
        states: states as usize,
        first: part.counted_from,
        labels: labels_inside,
        rewards,
        warnings,
        ..ChainFile::default()
    };
    let beside = RewardFiles::beside(path).read(&numbers(&file), &TransitionList::default());
    let own = |reward| home_reward(reward, states as usize, ranks);
    file.rewards.extend(ranks.all_ok(beside)?.into_iter().map(own));
    // The first writes what others know.
    let named = if ranks.is_root() { names(path, format, file.states) } else { Ok(None) };
    file.names = ranks.all_ok(named)?;
    let labels = ranks.all_ok(labelled(path, labels, numbers(&file)))?;
    Ok(Some(dressed(path, file, Box::new(chain), labels)))
}
