//! A rank's part of a UMB model: a range of states, read piece by piece.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use tar::Archive;

use super::index::{Index, System};
use super::{Files, Jumps, labels};
use crate::io::rate_matrix_kind::MOST_STATES;
use crate::ranks::Ranks;
use crate::transient::chain::transitions::TransitionList;
use crate::transient::chain::{Labels, Reward};

/// Number of states with arrays in memory at a time.
const PIECE: u64 = 1 << 16;

/// Transitions and rewards of some states, and all labels.
pub(in crate::io) struct Share {
    pub(in crate::io) states: u64,
    pub(in crate::io) transitions: TransitionList,
    pub(in crate::io) labels: Labels,
    /// State rewards; the values begin with state `first`.
    pub(in crate::io) rewards: Vec<Reward>,
    pub(in crate::io) first: u64,
}

/// Reads a rank's part of a model: the transitions out of its share of the states.
///
/// Returns `None` for an archive that has to be read whole: a compressed one, or one with warnings.
///
/// # Errors
/// Errors of [`read`](super::read), with other messages.
pub(in crate::io) fn share(path: &Path, ranks: Ranks) -> Result<Option<Share>, String> {
    share_by(path, ranks, PIECE)
}

/// Reads a rank's part like [`share`], `piece` states at a time.
pub(super) fn share_by(path: &Path, ranks: Ranks, piece: u64) -> Result<Option<Share>, String> {
    let Some(members) = Members::open(path)? else { return Ok(None) };
    let index = members.places.get("index.json").ok_or("no index.json")?.clone();
    let index = Index::parse(&members.bytes(index)?)?;
    let system = &index.system;
    let known = (&system.time[..], system.players) == ("stochastic", 0);
    if !known || system.states == 0 || system.states > MOST_STATES {
        return Ok(None);
    }
    let mine = ranks.share(system.states);
    let mut warnings = Vec::new();
    let labels = labels(&members.labels()?, &index, &mut warnings)?;
    // The file's length limits the number of branches given by the index.
    let about = system.branches.min(members.length / 8) / ranks.size() as u64;
    let mut transitions = TransitionList::with_capacity(about as usize);
    let mut rewards: Vec<Reward> = Vec::new();
    // Also reads one empty piece if the share is empty.
    let mut from = mine.start;
    loop {
        let states = from..mine.end.min(from + piece);
        from = states.end;
        let (files, part) = members.of(&index, states.clone())?;
        let jumps = Jumps { all: system.states, first: states.start as usize, ..Jumps::new(&files, &part)? };
        let (more, warning) = jumps.transitions()?;
        transitions.append(&more);
        warnings.extend(warning);
        for (number, (id, annotation)) in index.annotations.rewards.0.iter().enumerate() {
            let reward = jumps.named_reward(&files, id, annotation)?;
            match rewards.get_mut(number) {
                Some(known) => known.values.extend(reward.values),
                None => rewards.push(reward),
            }
        }
        if from == mine.end {
            break;
        }
    }
    let share = Share { states: system.states, transitions, labels, rewards, first: mine.start };
    Ok(warnings.is_empty().then_some(share))
}

/// An archive in a file, with uncompressed members.
struct Members {
    file: File,
    /// Bytes of the file.
    length: u64,
    /// Byte range of each member.
    places: HashMap<String, Range<u64>>,
}

impl Members {
    /// Opens an archive; `None` if it is compressed.
    fn open(path: &Path) -> Result<Option<Self>, String> {
        let failed = |e: io::Error| e.to_string();
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        file.by_ref().take(512).read_to_end(&mut start).map_err(failed)?;
        if start.get(257..262) != Some(b"ustar") {
            return Ok(None);
        }
        let length = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut places = HashMap::new();
        for entry in Archive::new(&file).entries_with_seek().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.header().entry_type().is_file() {
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                let name = name.trim_start_matches("./").trim_start_matches('/').to_owned();
                let at = entry.raw_file_position();
                places.insert(name, at..at + entry.size());
            }
        }
        Ok(Some(Self { file, length, places }))
    }

    fn bytes(&self, place: Range<u64>) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; (place.end - place.start) as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(place.start))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    /// Reads some 8-byte elements of a member of `len` elements; `None` if it does not exist.
    fn window(&self, name: &str, len: u64, range: Range<u64>) -> Result<Option<Vec<u8>>, String> {
        let Some(place) = self.places.get(name) else { return Ok(None) };
        if Some(place.end - place.start) != len.checked_mul(8) || range.start > range.end || range.end > len {
            return Err(format!("{name} has a wrong length"));
        }
        self.bytes(place.start + 8 * range.start..place.start + 8 * range.end).map(Some)
    }

    /// Reads all labels; they take one bit per state.
    fn labels(&self) -> Result<Files, String> {
        let label = |name: &str| name.starts_with("annotations/aps/") || name == "state-is-initial.bin";
        let members = self.places.iter().filter(|(name, _)| label(name));
        members.map(|(name, place)| Ok((name.clone(), self.bytes(place.clone())?))).collect()
    }

    /// Returns the arrays of some states, as a model of these states only.
    fn of(&self, index: &Index, states: Range<u64>) -> Result<(Files, System), String> {
        let system = &index.system;
        let mut files = Files::new();
        // Offsets lead from states to choices and from choices to branches; each range is
        // renumbered.
        let mut range = states.clone();
        let mut entities = vec![("states", system.states, range.clone())];
        for (name, count, all, behind) in [
            ("state-to-choices.bin", system.states, system.choices, "choices"),
            ("choice-to-branches.bin", system.choices, system.branches, "branches"),
        ] {
            let one_more = count.checked_add(1).ok_or("the number of states or choices is out of range")?;
            match self.window(name, one_more, range.start..range.end + 1)? {
                None if count != all => return Err(format!("{name} is missing")),
                None => {}
                Some(bytes) => {
                    let offsets: Vec<u64> =
                        bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
                    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
                    let begins = range.start > 0 || first == 0;
                    let ends = range.end < count || last == all;
                    if !offsets.is_sorted() || last > all || !begins || !ends {
                        return Err(format!(
                            "{name}: expected ascending numbers from 0 to {all}, the number of \
                             {behind}"
                        ));
                    }
                    let counted = offsets.iter().flat_map(|at| (at - first).to_le_bytes()).collect();
                    files.insert(name.to_owned(), counted);
                    range = first..last;
                }
            }
            entities.push((behind, all, range.clone()));
        }
        for (id, annotation) in &index.annotations.rewards.0 {
            for (entity, len, range) in &entities {
                let name = format!("annotations/rewards/{id}/{entity}/values.bin");
                if annotation.applies_to.iter().any(|applied| applied == entity)
                    && let Some(bytes) = self.window(&name, *len, range.clone())?
                {
                    files.insert(name, bytes);
                }
            }
        }
        for (name, len, range) in [
            ("state-to-exit-rate.bin", system.states, &states),
            ("branch-to-target.bin", system.branches, &range),
            ("branch-to-probability.bin", system.branches, &range),
        ] {
            if let Some(bytes) = self.window(name, len, range.clone())? {
                files.insert(name.to_owned(), bytes);
            }
        }
        let count = |range: &Range<u64>| range.end - range.start;
        let [(.., states), (.., choices), (.., branches)] = &entities[..] else {
            unreachable!("states, choices and branches")
        };
        let (states, choices, branches) = (count(states), count(choices), count(branches));
        Ok((files, System { states, choices, branches, ..system.clone() }))
    }
}
