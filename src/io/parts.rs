//! Distributed reading of a chain's file: each rank reads its part.
//!
//! `.tra`, `.mtx` and `.drn` files are split by bytes, `.npz` and `.umb` by states.
//!
//! While reading, a rank holds one piece of the text of its part. Afterwards it holds the
//! transitions into and out of its share of the states, and the rewards of these states. Every rank
//! holds all sets of labelled states. Labels, rewards and distributions in separate files are read
//! by every rank. If any rank cannot read its part, all ranks read the whole file; the serial
//! reader then reports the error.

use std::path::Path;

use super::model::{Format, RewardFiles, dressed, labelled, names, numbers, twice};
use super::rate_matrix_kind::{self, RowSums};
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

/// Data of one rank's part of a file.
#[derive(Default)]
struct Part {
    /// Number of states given by the file; `None` if it follows from the highest index.
    states: Option<u64>,
    /// Highest index in this part + 1.
    highest: u64,
    /// Number of entries listed in this part.
    listed: u64,
    /// Number of entries of the whole file, from its header.
    promised: Option<u64>,
    transitions: TransitionList,
    labels: Labels,
    facts: Facts,
    /// State rewards; the values begin with state `first`.
    rewards: Vec<Reward>,
    first: u64,
    /// Number of the file's first state: 0 or 1.
    counted_from: u64,
    warnings: Vec<String>,
    /// Labels and rewards of a `.drn` file, not yet exchanged between the ranks.
    blocks: Option<drn::Part>,
}

/// Signs that distinguish a generator from rates.
#[derive(Default)]
enum Facts {
    /// The format only stores rates.
    #[default]
    Rates,
    /// Facts about this part, which consists of whole rows of the matrix.
    Rows(rate_matrix_kind::RowFacts),
    /// Entries of a row may be in several parts; `columns` is the number of columns.
    Anywhere { columns: usize },
    /// The file holds rates without stating the type of chain; it may be a discrete-time chain.
    Unsaid,
}

/// Reads a chain like [`read_chain`]; each rank reads its part where the format allows it.
///
/// Collective.
///
/// # Errors
/// Errors of [`read_chain`], on all ranks.
pub fn read_chain_on(path: &Path, labels: Option<&Path>, ranks: Ranks) -> Result<Chain> {
    if ranks.is_distributed() {
        let part = match Format::of(path) {
            // Transition rewards need the complete list of transitions in the file's order.
            Ok(format) if path.exists() && RewardFiles::beside(path).transitions.is_empty() => {
                part(path, format, ranks).map(|part| (part, format))
            }
            _ => None,
        };
        // If one rank has to read the whole file, all do.
        if ranks.all_reduce_min(u64::from(part.is_some())) == 1
            && let Some((part, format)) = part
            && let Some(chain) = together(path, part, format, labels, ranks)?
        {
            return Ok(chain);
        }
    }
    ranks.all_ok(read_chain(path, labels))
}

/// Reads this rank's part; `None` if the file has to be read whole.
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
            let facts = Facts::Rows(rate_matrix_kind::row_facts(&entries, &rows)?);
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
        // A dense array is short.
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

/// Computes facts of rows with entries that are spread over all ranks.
///
/// Entries are sent to the rank that holds the share of their row. Returns `None` on all ranks if
/// the matrix cannot be a chain's on some rank. Collective.
fn gathered(
    list: &TransitionList,
    states: usize,
    columns: usize,
    ranks: Ranks,
) -> Option<rate_matrix_kind::RowFacts> {
    let share = |rank: usize| states * rank / ranks.size()..states * (rank + 1) / ranks.size();
    let entries = list.from.iter().zip(&list.to).zip(&list.rate).map(|((&i, &j), &x)| {
        // The share that contains row i, or the one before it.
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

/// Builds a chain from the parts of all ranks; `None` if the file has to be read whole.
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
            match rate_matrix_kind::may_be_stochastic(states as usize, sum) {
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
            warnings.push(rate_matrix_kind::looks_stochastic(path));
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
    // Memory of this rank's share, sorted by source and by target; the list is already allocated.
    let share = (states / ranks.size() as u64) * 16 + listed / ranks.size() as u64 * 24;
    ranks.all_ok(expect_memory(share, || {
        format!("{}: a part of a chain of {states} states and {listed} transitions", path.display())
    }))?;
    let (chain, duplicate) = Shared::new(states as usize, part.transitions, ranks);
    // The duplicate found by the lowest rank. SciPy's format adds duplicates; the serial reader
    // does.
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
    // The first rank writes all names, so only it reads them.
    let named = if ranks.is_root() { names(path, format, file.states) } else { Ok(None) };
    file.names = ranks.all_ok(named)?;
    let labels = ranks.all_ok(labelled(path, labels, numbers(&file)))?;
    Ok(Some(dressed(path, file, Box::new(chain), labels)))
}
