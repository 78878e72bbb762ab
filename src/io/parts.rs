//! A chain's file read by ranks, each its part: `.tra` by bytes, `.npz` and `.umb` by states.
//!
//! A rank holds the text or arrays of its part while it reads, and then the transitions into and out of its share of
//! the states; labels, rewards and distributions are read whole by all. What one rank cannot make sense of all read
//! whole, as one process does, for the message that this has.

use std::path::Path;

use super::model::{Format, dressed, twice};
use super::{generator, npz, read_chain, tra, umb};
use crate::Result;
use crate::lane::cpu::expect_memory;
use crate::ranks::Ranks;
use crate::transient::chain::{Chain, ChainFile, Labels, TransitionList};
use crate::transient::csr::Duplicate;
use crate::transient::shared::Shared;

/// What a rank found in its part.
#[derive(Default)]
struct Part {
    /// States by the file; none where the highest index says how many they are.
    states: Option<u64>,
    highest: u64,
    /// Transitions by the file's head.
    promised: Option<u64>,
    transitions: TransitionList,
    labels: Labels,
    facts: Option<generator::RowFacts>,
}

/// Reads a chain as [`read_chain`] does, each rank its part of it where the format allows that. Every rank calls this at
/// once.
///
/// # Errors
/// Those of [`read_chain`], which all ranks have.
pub fn read_chain_on(path: &Path, labels: Option<&Path>, ranks: Ranks) -> Result<Chain> {
    if ranks.several() {
        let part = match Format::of(path) {
            Ok(format) if path.exists() => part(path, format, ranks).map(|part| (part, format)),
            _ => None,
        };
        // What one has to read whole all do.
        if ranks.least(u64::from(part.is_some())) == 1
            && let Some((part, format)) = part
            && let Some(chain) = together(path, part, format, labels, ranks)?
        {
            return Ok(chain);
        }
    }
    ranks.agree(read_chain(path, labels))
}

/// This rank's part; none where the file has to be read whole.
fn part(path: &Path, format: Format, ranks: Ranks) -> Option<Part> {
    match format {
        Format::Tra => {
            let lines = tra::lines(path, ranks).ok()??;
            let tra::Lines { transitions, states, highest, promised } = lines;
            Some(Part { states, highest, promised, transitions, ..Part::default() })
        }
        Format::Npz => {
            let (entries, rows) = npz::rows(path, ranks).ok()?;
            let facts = Some(generator::row_facts(&entries, &rows)?);
            let states = Some(entries.rows as u64);
            let transitions = TransitionList { from: entries.row, to: entries.column, rate: entries.value };
            Some(Part { states, transitions, facts, ..Part::default() })
        }
        Format::Umb => {
            let umb::Share { states, transitions, labels } = umb::share(path, ranks).ok()??;
            Some(Part { states: Some(states), transitions, labels, ..Part::default() })
        }
        Format::Drn | Format::MatrixMarket => None,
    }
}

/// Makes a chain of all ranks' parts; none where there is something to say that one process knows how to.
fn together(
    path: &Path,
    part: Part,
    format: Format,
    labels: Option<&Path>,
    ranks: Ranks,
) -> Result<Option<Chain>> {
    let mut warnings = Vec::new();
    if let Some(facts) = part.facts {
        let all =
            ranks.all(&[facts.negative, facts.balanced, facts.stochastic, facts.diagonal].map(u8::from));
        let (any, every) =
            (|k: usize| all.iter().any(|f| f[k] == 1), |k: usize| all.iter().all(|f| f[k] == 1));
        if any(0) && !every(1) {
            return Ok(None);
        }
        if !any(0) && every(2) && any(3) && part.states > Some(1) {
            warnings.push(generator::looks_stochastic(path));
        }
    }
    let listed = ranks.sum(part.transitions.rate.len() as u64);
    let highest = ranks.most(part.highest as f64) as u64;
    let states = part.states.unwrap_or(highest);
    if part.promised.is_some_and(|promised| promised != listed) || states == 0 {
        return Ok(None);
    }
    // The list, what travels, and both orders: of this rank's share.
    let share = (states / ranks.size() as u64) * 48 + listed / ranks.size() as u64 * 56;
    ranks.agree(expect_memory(share, || {
        format!("{}: a part of a chain of {states} states and {listed} transitions", path.display())
    }))?;
    let (chain, duplicate) = Shared::new(states as usize, part.transitions, ranks);
    // The first of all.
    let mine = duplicate.map_or(Vec::new(), |Duplicate { from, to }| vec![to, from]);
    if let Some(&[to, from]) = ranks.all(&mine).concat().as_chunks::<2>().0.first() {
        return ranks.agree(Err(twice(path, format, Duplicate { from, to })));
    }
    let file = ChainFile { states: states as usize, labels: part.labels, warnings, ..ChainFile::default() };
    ranks.agree(dressed(path, file, Box::new(chain), labels)).map(Some)
}
