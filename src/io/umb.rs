//! Unified Markov binary format (UMB) of PRISM and Storm: <https://github.com/pmc-tools/umb>.
//!
//! A file is a tar archive, plain or gzip, of an index and of arrays in little-endian byte order.

mod arrays;
mod index;
#[cfg(test)]
mod tests;
mod valuations;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tar::Archive;

use self::arrays::{Array, Csr, bits, words};
use self::index::{Annotation, Index, System, Type, kind};
use super::text::Bounded;
use crate::parallel::*;
use crate::transient::chain::MOST_STATES;
use crate::transient::chain::transitions::TransitionList;
use crate::transient::chain::{ChainFile, Labels, Reward};
use crate::{Error, Result};

/// Deviation from 1 of a state's total probability above which there is a warning.
const PROBABILITY_TOLERANCE: f64 = 1e-6;

/// States processed by one thread at a time.
const BLOCK: usize = 1 << 13;

/// Transitions of some states, and statistics of their probabilities; see [`Jumps::block`].
type Block = (TransitionList, u64, Option<(usize, f64)>);

/// Label of the initial states.
const INITIAL: &str = "init";

/// Reads a continuous-time Markov chain.
///
/// Rates are exit rate · probability; branches with equal targets are added. Atomic propositions
/// become labels (by alias, if there is one), the initial states the label `init`. Rewards of
/// states are rate rewards. Rewards r of choices and branches are earned at a jump; they add E(s) ·
/// Σ p · r per unit of time. Valuations of states become their names. Actions and observations are
/// ignored. An annotation that cannot be used is omitted with a warning.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened. [`Error::File`] for other compressions, models other
/// than continuous-time chains, numbers that are not doubles, and inconsistent arrays.
pub fn read(path: impl AsRef<Path>) -> Result<ChainFile> {
    let path = path.as_ref();
    let failed = Error::io(path);
    let mut file = File::open(path).map_err(failed)?;
    let mut start = Vec::new();
    file.by_ref().take(512).read_to_end(&mut start).map_err(failed)?;
    let all = BufReader::new(io::Cursor::new(start.clone()).chain(file));
    archive(&start, Bounded::new(all))
        .and_then(|files| chain(&files))
        .map(|mut chain| {
            for warning in chain.left_out.iter_mut().map(|(_, warning)| warning).chain(&mut chain.warnings) {
                *warning = format!("{}: {warning}", path.display());
            }
            chain
        })
        .map_err(|reason| Error::file(path, reason))
}

/// Relevant members of an archive, by name.
type Files = HashMap<String, Vec<u8>>;

const GZIP: &[u8] = &[0x1f, 0x8b];

fn is_tar(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

fn archive(start: &[u8], all: impl Read) -> Result<Files, String> {
    if start.starts_with(GZIP) {
        let (mut inside, mut start) = (Bounded::new(MultiGzDecoder::new(all)), Vec::new());
        let unpacked = inside.by_ref().take(512).read_to_end(&mut start);
        unpacked.map_err(|e| format!("not a complete gzip stream: {e}"))?;
        if start.starts_with(GZIP) {
            Err("compressed with gzip twice: unpack it once with `gzip -d`".into())
        } else if is_tar(&start) {
            members(io::Cursor::new(start).chain(inside))
        } else {
            Err("the gzip stream does not contain a tar archive: expected a UMB model".into())
        }
    } else if start.starts_with(b"\xfd7zXZ\0") {
        Err("compressed with xz; recompress it with gzip: xz -dc FILE | gzip > NEW.umb".into())
    } else if is_tar(start) {
        members(all)
    } else {
        Err("not a UMB file: expected a tar archive, plain or compressed with gzip".into())
    }
}

fn members(reader: impl Read) -> Result<Files, String> {
    let damaged = |e: io::Error| match e.kind() {
        io::ErrorKind::OutOfMemory => e.to_string(),
        _ => format!("not a complete tar archive: {e}"),
    };
    let mut files = Files::new();
    for entry in Archive::new(reader).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        // Only regular files: a sparse file can claim any size without containing the bytes.
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = name.trim_start_matches("./").trim_start_matches('/');
        let wanted = name == "index.json"
            || [
                "state-",
                "choice-",
                "branch-",
                "annotations/aps/",
                "annotations/rewards/",
                "valuations/states/",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if wanted {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(damaged)?;
            if bytes.len() as u64 != entry.size() {
                return Err(format!("{name}: ends after {} of {} bytes", bytes.len(), entry.size()));
            }
            files.insert(name.to_string(), bytes);
        }
    }
    Ok(files)
}

fn chain(files: &Files) -> Result<ChainFile, String> {
    let index = Index::parse(files.get("index.json").ok_or("no index.json; not a UMB file")?)?;
    let system = &index.system;
    let discrete = system.time == "discrete";
    if !(discrete || system.time == "stochastic") || system.players != 0 {
        return Err(format!("{} is not supported: expected a Markov chain", kind(system)));
    }
    if system.states == 0 || system.states > MOST_STATES {
        return Err(format!("{} states are out of range: expected 1 to {MOST_STATES}", system.states));
    }
    let jumps = Jumps::new(files, system)?;
    let (transitions, mut warnings) = jumps.transitions()?;
    let labels = labels(files, &index, &mut warnings)?;
    let (mut rewards, mut left_out) = (Vec::new(), Vec::new());
    for (id, annotation) in &index.annotations.rewards {
        let name = annotation.alias.as_ref().unwrap_or(id).clone();
        match jumps.reward(files, id, annotation) {
            Ok(values) => rewards.push(Reward { name, values }),
            Err(reason) => left_out.push((name, format!("the reward {id:?} is left out: {reason}"))),
        }
    }
    let names = index.valuations.as_ref().map_or(Ok(None), |all| valuations::names(files, all, jumps.states));
    let names = names.unwrap_or_else(|reason| {
        warnings.push(format!("the valuations of states are left out: {reason}"));
        None
    });
    let states = jumps.states;
    Ok(ChainFile { states, discrete, transitions, labels, rewards, left_out, names, warnings })
}

/// Arrays of the chain: each state has at most one choice, which branches at random.
struct Jumps<'a> {
    states: usize,
    /// `None` in discrete time.
    exit_rate: Option<Array<'a>>,
    choices: Csr<'a>,
    branches: Csr<'a>,
    target: &'a [[u8; 8]],
    /// Probabilities of branches; `None` if each choice has one branch.
    probability: Option<Array<'a>>,
}

impl<'a> Jumps<'a> {
    fn new(files: &'a Files, system: &System) -> Result<Self, String> {
        let doubles = |name: &str, what: &str, element: &Option<Type>, len| {
            let element = element.as_ref().ok_or_else(|| format!("index.json: no type of the {what}"))?;
            if element.name != "double" {
                return Err(format!(
                    "{what} of type {element} are not supported: expected doubles; export them as \
                     floating-point numbers"
                ));
            }
            Array::new(files, name, element, len)?.ok_or_else(|| format!("{name} is missing"))
        };
        // Exit rates come first: the length of their file limits the number of states.
        let exit_rate = match system.time == "discrete" {
            true if system.states > system.branches => {
                return Err(format!("{} states have {} branches", system.states, system.branches));
            }
            true => None,
            false => Some(doubles("state-to-exit-rate.bin", "exit rates", &system.exit_rate, system.states)?),
        };
        let choices =
            Csr::new(files, "state-to-choices.bin", ["states", "choices"], system.states, system.choices)?;
        let branches = Csr::new(
            files,
            "choice-to-branches.bin",
            ["choices", "branches"],
            system.choices,
            system.branches,
        )?;
        let target = words(files, "branch-to-target.bin", system.branches)?;
        if target.is_none() && system.branches > 0 {
            return Err("branch-to-target.bin is missing".into());
        }
        let probability = match &system.probability {
            None => None,
            element => {
                Some(doubles("branch-to-probability.bin", "branch probabilities", element, system.branches)?)
            }
        };
        let states = system.states as usize;
        let target = target.unwrap_or(&[]);
        Ok(Self { states, exit_rate, choices, branches, target, probability })
    }

    /// Returns the index of a state's choice, and the indices of the choice's branches.
    fn of(&self, state: usize) -> (Option<usize>, Range<usize>) {
        let choices = self.choices.range(state);
        match choices.clone().next() {
            Some(choice) => (Some(choice), self.branches.range(choice)),
            None => (None, 0..0),
        }
    }

    fn exit_rate(&self, state: usize) -> f64 {
        self.exit_rate.as_ref().map_or(1.0, |rates| rates.get(state))
    }

    fn probability(&self, branch: usize) -> f64 {
        self.probability.as_ref().map_or(1.0, |values| values.get(branch))
    }

    fn transitions(&self) -> Result<(TransitionList, Vec<String>), String> {
        let blocks = (0..self.states.div_ceil(BLOCK)).into_par_iter();
        let found: Vec<_> = blocks.map(|k| self.block(k * BLOCK..self.states.min((k + 1) * BLOCK))).collect();
        let mut list = TransitionList::with_capacity(self.target.len());
        let (mut off, mut first_off) = (0, None);
        for block in found {
            let (more, more_off, first) = block?;
            list.append(&more);
            off += more_off;
            first_off = first_off.or(first);
        }
        let warning = first_off.map(|(state, total)| {
            format!(
                "the branch probabilities of {off} states do not add up to 1 (those of state {state} give {total}); rates are exit rate · probability"
            )
        });
        Ok((list, warning.into_iter().collect()))
    }

    /// Returns the transitions out of a range of states.
    ///
    /// Also returns the number of states with total probability other than 1, and the first such
    /// state with its total.
    fn block(&self, states: Range<usize>) -> Result<Block, String> {
        let mut list = TransitionList::default();
        let mut row: Vec<(u32, f64)> = Vec::new();
        let (mut off, mut first_off) = (0u64, None);
        for state in states {
            let exit_rate = self.exit_rate(state);
            if !(exit_rate.is_finite() && exit_rate >= 0.0) {
                return Err(format!(
                    "invalid exit rate {exit_rate} of state {state}: expected a finite number ≥ 0"
                ));
            }
            let choices = self.choices.range(state);
            if choices.len() > 1 {
                return Err(format!("state {state} has {} choices: expected one", choices.len()));
            }
            let (_, branches) = self.of(state);
            if self.probability.is_none() && branches.len() > 1 {
                return Err(format!(
                    "branch probabilities are missing: state {state} has {} branches",
                    branches.len()
                ));
            }
            row.clear();
            let mut total = 0.0;
            for branch in branches {
                let target = u64::from_le_bytes(self.target[branch]);
                if target >= self.states as u64 {
                    return Err(format!(
                        "target {target} of branch {branch} of state {state} is out of range: \
                         there are {} states, from 0",
                        self.states
                    ));
                }
                let p = self.probability(branch);
                if !(p.is_finite() && p >= 0.0) {
                    return Err(format!(
                        "invalid probability {p} of branch {branch} of state {state}: expected a \
                         finite number ≥ 0"
                    ));
                }
                total += p;
                row.push((target as u32, exit_rate * p));
            }
            if exit_rate > 0.0 && (total - 1.0f64).abs() > PROBABILITY_TOLERANCE {
                off += 1;
                first_off.get_or_insert((state, total));
            }
            // A target may occur several times.
            row.sort_by_key(|&(target, _)| target);
            row.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1 += next.1;
                }
                same
            });
            for &(target, rate) in &row {
                if !rate.is_finite() {
                    return Err(format!(
                        "the rate {rate} from state {state} to state {target} is out of range: \
                         expected a finite number"
                    ));
                }
                list.from.push(state as u32);
                list.to.push(target);
                list.rate.push(rate);
            }
        }
        Ok((list, off, first_off))
    }

    /// Computes the rate reward of each state.
    fn reward(&self, files: &Files, id: &str, annotation: &Annotation) -> Result<Vec<f64>, String> {
        if annotation.probability.is_some() {
            return Err("its values are distributions".into());
        }
        let mut values = Vec::new();
        super::npy::grow(&mut values, self.states)?;
        values.resize(self.states, 0.0);
        for entity in &annotation.applies_to {
            let len = match &entity[..] {
                "states" => self.states,
                "choices" => self.choices.targets,
                "branches" => self.target.len(),
                _ => return Err(format!("it applies to {entity}")),
            };
            let name = format!("annotations/rewards/{id}/{entity}/values.bin");
            // A missing file means zeros.
            let Some(rewards) = Array::new(files, &name, &annotation.element, len as u64)? else {
                continue;
            };
            for (state, value) in values.iter_mut().enumerate() {
                let (choice, branches) = self.of(state);
                *value += match &entity[..] {
                    "states" => rewards.get(state),
                    "choices" => choice.map_or(0.0, |choice| self.exit_rate(state) * rewards.get(choice)),
                    _ => {
                        let a_jump: f64 = branches.map(|b| self.probability(b) * rewards.get(b)).sum();
                        self.exit_rate(state) * a_jump
                    }
                };
            }
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(state) => {
                Err(format!("the reward of state {state} is {}: expected a finite number", values[state]))
            }
            None => Ok(values),
        }
    }
}

/// Reads initial states and atomic propositions as labels.
fn labels(files: &Files, index: &Index, warnings: &mut Vec<String>) -> Result<Labels, String> {
    let states = index.system.states as usize;
    let mut labels = Labels::default();
    let mut known: HashMap<&str, usize> = HashMap::new();
    if let Some(initial) = bits(files, "state-is-initial.bin", states)? {
        labels.sets.push((INITIAL.into(), initial));
        known.insert(INITIAL, 0);
    }
    for (id, annotation) in &index.annotations.aps {
        let name = annotation.alias.as_ref().unwrap_or(id);
        let set = match (&annotation.element.name[..], &annotation.applies_to[..]) {
            ("bool", [entity]) if entity == "states" => {
                bits(files, &format!("annotations/aps/{id}/states/values.bin"), states)
            }
            ("bool", applies_to) => Err(format!("it applies to {applies_to:?}: expected states alone")),
            _ => Err(format!("it is of type {}: expected bool", annotation.element)),
        };
        match (set, known.get(&name[..])) {
            (Err(reason), _) => warnings.push(format!("the label {name:?} is left out: {reason}")),
            // A missing file means the empty set.
            (Ok(set), None) => {
                known.insert(name, labels.sets.len());
                labels.sets.push((name.clone(), set.unwrap_or_default()));
            }
            (Ok(set), Some(&at)) if set.as_deref().unwrap_or_default() == labels.sets[at].1 => {}
            (Ok(_), Some(_)) => {
                warnings.push(format!("the label {name:?} is left out: another set of states has that name"));
            }
        }
    }
    Ok(labels)
}
