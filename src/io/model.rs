//! Reading of a chain from a path: its format, and further files with the same stem.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{csv, drn, lab, mtx, npy, npz, srew, sta, text, tra, trew, umb};
use crate::lane::cpu::expect_memory;
use crate::parallel::join;
use crate::transient::chain::csr::{Csr, Duplicate};
use crate::transient::chain::transitions::{TransitionList, Transitions};
use crate::transient::chain::{Chain, ChainFile, Initial, Labels, Reward};
use crate::{Error, Result};

/// Format of a chain's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Tra,
    Drn,
    Umb,
    MatrixMarket,
    Npz,
    Npy,
}

/// Returns the path without `.gz`.
fn bare(path: &Path) -> PathBuf {
    match path.extension() {
        Some(e) if e.eq_ignore_ascii_case("gz") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let bare = bare(path);
        let extension = bare.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        Ok(match &extension[..] {
            "tra" => Self::Tra,
            "drn" => Self::Drn,
            "umb" => Self::Umb,
            "mtx" => Self::MatrixMarket,
            "npz" => Self::Npz,
            "npy" => Self::Npy,
            other => return Err(Error::File { path: path.into(), reason: no_chain(other, path != bare) }),
        })
    }
}

/// Returns the reason why a file with this extension is not a chain, with a suggestion.
fn no_chain(extension: &str, zipped: bool) -> String {
    let export = "and give out.tra";
    match extension {
        "sm" | "prism" | "pm" | "nm" if zipped => {
            "is a compressed model in PRISM's language; unpack it with `gzip -d`, and give it without .gz"
                .to_owned()
        }
        "sm" | "prism" | "pm" | "nm" => format!(
            "is a model in PRISM's language: expected a chain; write it with `prism MODEL \
             -exportmodel out.tra,lab` {export}"
        ),
        "pepa" => format!(
            "is a model in PEPA; write its chain with `prism MODEL -exportmodel out.tra,lab` {export}"
        ),
        "jani" => "is a model in JANI, which is not supported; write its chain with \
                   `storm --jani MODEL --buildfull --exportbuild out.drn`, and give out.drn"
            .to_owned(),
        "dft" => "is a fault tree, which is not supported; write its chain with Storm's \
                  `--exportbuild out.drn`, and give out.drn"
            .to_owned(),
        _ => "has an unknown extension: expected a chain (.tra, .drn, .umb, .mtx, .npz or .npy, \
              .gz of the text formats) or a model in PRISM's language (.sm, .prism, .pm or .nm); \
              rename the file, or give a built-in such as wlan:12,6, tandem:15, \
              birth-death:100,1,2"
            .to_owned(),
    }
}

/// Finds a file with the same stem and another extension, plain or gzipped.
fn beside(path: &Path, extension: &str) -> Option<PathBuf> {
    let plain = bare(path).with_extension(extension);
    let mut zipped = plain.clone().into_os_string();
    zipped.push(".gz");
    [plain, zipped.into()].into_iter().find(|p| p.is_file())
}

/// Reward files next to a model.
#[derive(Debug, Default)]
struct RewardFiles {
    states: Vec<PathBuf>,
    transitions: Vec<PathBuf>,
}

impl RewardFiles {
    /// Finds the reward files of a model.
    ///
    /// For `m.tra` these are `m.srew` and `m.trew`, or `m1.srew`, `m1.trew`, `m2.srew` …, as PRISM
    /// numbers several structures. MRMC's names are `m.rew` and `m.rewi`.
    fn beside(path: &Path) -> Self {
        let find = |path: &Path, names: [&str; 2]| names.iter().find_map(|extension| beside(path, extension));
        let of = |path: &Path| (find(path, ["srew", "rew"]), find(path, ["trew", "rewi"]));
        let mut found = vec![of(path)];
        if found[0] == (None, None) {
            let stem = bare(path).with_extension("").into_os_string();
            found = (1..)
                .map(|number| {
                    let mut numbered = stem.clone();
                    numbered.push(format!("{number}.tra"));
                    PathBuf::from(numbered)
                })
                // Files next to an existing `m1.tra` belong to that model.
                .map(|path| if beside(&path, "tra").is_some() { (None, None) } else { of(&path) })
                .take_while(|found| *found != (None, None))
                .collect();
        }
        let (states, transitions): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Self {
            states: states.into_iter().flatten().collect(),
            transitions: transitions.into_iter().flatten().collect(),
        }
    }

    /// Reads the rate rewards of states; adds transition rewards of structures with equal names.
    fn read(&self, numbers: &Range<u64>, list: &TransitionList) -> Result<Vec<Reward>> {
        let states = (numbers.end - numbers.start) as usize;
        let mut rewards = Vec::new();
        for file in &self.states {
            rewards.extend(srew::read(file, numbers.clone())?);
        }
        for file in &self.transitions {
            for structure in trew::read(file, numbers.clone())? {
                let more = structure.per_time(states, list, file)?;
                match rewards.iter_mut().find(|reward| reward.name == more.name) {
                    Some(known) => known.values.iter_mut().zip(&more.values).for_each(|(v, more)| *v += more),
                    None => rewards.push(more),
                }
            }
        }
        Ok(rewards)
    }
}

/// Reads a chain in any supported format.
///
/// Files `.lab`, `.sta`, `.srew` and `.trew` with the same stem are read, too. `labels` replaces
/// the model's `.lab` file.
///
/// # Errors
/// Errors of the format's reader; transitions listed twice, with their lines; a file that is not a
/// chain's.
pub fn read_chain(path: &Path, labels: Option<&Path>) -> Result<Chain> {
    let format = Format::of(path)?;
    if !path.exists() {
        return Err(Error::File {
            path: path.into(),
            reason: "there is no such file; give a chain's file, or a built-in such as tandem:15".to_owned(),
        });
    }
    let rewards = RewardFiles::beside(path);
    let mut rows = None;
    let mut file = match format {
        // Transition rewards need the list of transitions in the file's order.
        Format::Tra if rewards.transitions.is_empty() => {
            let file;
            (file, rows) = tra::read_numbered(path)?;
            file
        }
        Format::Tra => tra::read(path)?,
        Format::Drn => drn::read(path)?,
        Format::Umb => umb::read(path)?,
        Format::MatrixMarket => mtx::read_chain(path)?,
        Format::Npz => npz::read_chain(path)?,
        Format::Npy => npy::read_chain(path)?,
    };
    let (states, transitions) = (file.states, std::mem::take(&mut file.transitions));
    file.rewards.extend(rewards.read(&numbers(&file), &transitions)?);
    // Sorting allocates some tens of bytes per state before the first transition is stored. A file
    // may name more states than fit into memory.
    let (count, bytes) = match &rows {
        Some(rows) => (rows.len(), 4),
        None => (transitions.rate.len(), 28),
    };
    expect_memory(states as u64 * 48 + count as u64 * bytes, || {
        format!("{}: a chain of {states} states and {count} transitions", path.display())
    })?;
    let sorted = || match (rows, format) {
        (Some(rows), _) => Ok(Csr::of_rows(states, rows)),
        // SciPy's format adds duplicate entries.
        (None, Format::Npz) => Ok(Csr::added_up(states, transitions)),
        (None, _) => Csr::new(states, transitions),
    };
    let numbers = numbers(&file);
    let (chain, labels) = join(sorted, || labelled(path, labels, numbers));
    let chain = chain.map_err(|duplicate| twice(path, format, duplicate))?;
    if let Some(states) = beside(path, "sta") {
        file.names = Some(sta::read(&states, file.states)?);
    }
    Ok(dressed(path, file, Box::new(chain), labels?))
}

/// Reads the labels in `labels`, or else in the model's `.lab` file, if there is one.
fn labelled(path: &Path, labels: Option<&Path>, numbers: Range<u64>) -> Result<Option<Labels>> {
    let file = labels.map(Path::to_path_buf).or_else(|| beside(path, "lab"));
    file.map(|file| lab::read(&file, numbers)).transpose()
}

/// Returns the range of the states' numbers in a chain's files.
fn numbers(file: &ChainFile) -> Range<u64> {
    file.first..file.first + file.states as u64
}

/// Assembles a chain from a file's content; `labels` replaces the file's own labels.
fn dressed(path: &Path, file: ChainFile, transitions: Box<dyn Transitions>, labels: Option<Labels>) -> Chain {
    let numbers = numbers(&file);
    let ChainFile { labels: own, rewards, names, warnings, .. } = file;
    let labels = labels.unwrap_or(own);
    let initial = match labels.get("init") {
        Some([state]) => Initial::State(*state as usize),
        Some(many) if !many.is_empty() => Initial::Uniform(many.to_vec()),
        _ => Initial::State(0),
    };
    let name = path.display().to_string();
    let names = names.map(Arc::new);
    Chain { labels, rewards, names, warnings, numbers, ..Chain::new(name, transitions).starting(initial) }
}

/// Returns the error about a transition listed twice, with its lines if the format has lines.
fn twice(path: &Path, format: Format, Duplicate { from, to }: Duplicate) -> Error {
    let lines = match format {
        Format::Tra => tra::line_of(path, from, to),
        Format::Drn => drn::line_of(path, from, to),
        Format::MatrixMarket => mtx::line_of(path, from, to),
        _ => Ok(Vec::new()),
    };
    let remedy = match format {
        Format::MatrixMarket => "add its rates into one, or list one triangle of a symmetric matrix",
        _ => "add its rates into one",
    };
    let reason = |also: &str| format!("the transition {from} -> {to} is listed twice{also}; {remedy}");
    match lines.as_deref() {
        Ok([first, second, ..]) => Error::Parse {
            path: path.into(),
            line: *second,
            reason: reason(&format!(" (first in line {first})")),
        },
        _ => Error::File { path: path.into(), reason: reason("") },
    }
}

/// Reads an initial distribution: `.npy`, text with one number per line, or kolmo's `.csv`.
///
/// # Errors
/// Errors of the format's reader.
pub fn read_distribution(path: &Path) -> Result<Vec<f64>> {
    match path.extension() {
        Some(e) if e.eq_ignore_ascii_case("npy") => npy::read_vector(path),
        Some(e) if e.eq_ignore_ascii_case("csv") => csv::read_vector(path),
        _ => text::read_vector(path),
    }
}
