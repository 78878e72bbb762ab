//! A chain from a path: its format, and the files of the same stem beside it.

use std::path::{Path, PathBuf};

use super::{drn, lab, mtx, npy, npz, srew, text, tra, umb};
use crate::lane::cpu::expect_memory;
use crate::transient::chain::{Chain, ChainFile, Initial, Reward, Transitions};
use crate::transient::csr::{Csr, Duplicate};
use crate::{Error, Result};

/// The format of a chain's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Tra,
    Drn,
    Umb,
    MatrixMarket,
    Npz,
}

/// The path without `.gz`.
fn bare(path: &Path) -> PathBuf {
    match path.extension() {
        Some(e) if e.eq_ignore_ascii_case("gz") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

impl Format {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let bare = bare(path);
        let extension = bare.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        Ok(match &extension[..] {
            "tra" => Self::Tra,
            "drn" => Self::Drn,
            "umb" => Self::Umb,
            "mtx" => Self::MatrixMarket,
            "npz" => Self::Npz,
            "sm" | "prism" | "pm" | "nm" | "pepa" => {
                return Err(Error::File {
                    path: path.into(),
                    reason: "is a model in PRISM's language; write its chain with 'prism MODEL -exportmodel \
                             out.tra,lab' and give out.tra"
                        .to_owned(),
                });
            }
            _ => {
                return Err(Error::File {
                    path: path.into(),
                    reason:
                        "has no extension of a chain's format: .tra, .drn, .umb, .mtx or .npz (.gz of the \
                             text ones), or give a built-in such as wlan:12,6, tandem:15, birth-death:100,1,2"
                            .to_owned(),
                });
            }
        })
    }
}

/// A file of the same stem with another extension, plain or gzipped, if there is one.
fn beside(path: &Path, extension: &str) -> Option<PathBuf> {
    let plain = bare(path).with_extension(extension);
    let mut zipped = plain.clone().into_os_string();
    zipped.push(".gz");
    [plain, zipped.into()].into_iter().find(|p| p.is_file())
}

/// Reads a chain in any of the formats, with `.lab` and `.srew` of the same stem beside it.
///
/// `labels` replaces the `.lab` beside the model.
///
/// # Errors
/// Whatever the format's reader finds, transitions listed twice with both lines, and a file that is no chain's.
pub fn read_chain(path: &Path, labels: Option<&Path>) -> Result<Chain> {
    let format = Format::of(path)?;
    if !path.exists() {
        return Err(Error::File {
            path: path.into(),
            reason: "there is no such file; give a chain's file, or a built-in such as tandem:15".to_owned(),
        });
    }
    let mut file = match format {
        Format::Tra => tra::read(path)?,
        Format::Drn => drn::read(path)?,
        Format::Umb => umb::read(path)?,
        Format::MatrixMarket => mtx::read_chain(path)?,
        Format::Npz => npz::read_chain(path)?,
    };
    let (states, transitions) = (file.states, std::mem::take(&mut file.transitions));
    // Each state takes some tens of bytes before the first transition is sorted in: a file may name more states
    // than there is memory for.
    let count = transitions.rate.len();
    expect_memory(states as u64 * 48 + count as u64 * 28, || {
        format!("{}: a chain of {states} states and {count} transitions", path.display())
    })?;
    let chain = Csr::new(states, &transitions).map_err(|duplicate| twice(path, format, duplicate))?;
    drop(transitions);
    dressed(path, file, Box::new(chain), labels, |reward| reward)
}

/// A chain with what its file and those beside it say, `keep` giving the part that is kept of a reward beside it.
pub(super) fn dressed(
    path: &Path,
    file: ChainFile,
    transitions: Box<dyn Transitions>,
    labels: Option<&Path>,
    keep: impl Fn(Reward) -> Reward,
) -> Result<Chain> {
    let ChainFile { states, labels: own, mut rewards, warnings, .. } = file;
    let labels = match labels.map(Path::to_path_buf).or_else(|| beside(path, "lab")) {
        Some(file) => lab::read(&file, states)?,
        None => own,
    };
    if let Some(file) = beside(path, "srew") {
        rewards.extend(srew::read(&file, states)?.into_iter().map(keep));
    }
    let initial = match labels.get("init") {
        Some([state]) => Initial::State(*state as usize),
        Some(many) if !many.is_empty() => Initial::Uniform(many.to_vec()),
        _ => Initial::State(0),
    };
    Ok(Chain { name: path.display().to_string(), transitions, initial, labels, rewards, warnings })
}

/// The error of a transition that is listed twice, with its lines where the format has some.
pub(super) fn twice(path: &Path, format: Format, Duplicate { from, to }: Duplicate) -> Error {
    let lines = match format {
        Format::Tra => tra::line_of(path, from, to),
        Format::Drn => drn::line_of(path, from, to),
        Format::MatrixMarket => mtx::line_of(path, from, to),
        _ => Ok(Vec::new()),
    };
    let reason =
        |also: &str| format!("the transition {from} -> {to} is listed twice{also}; add its rates into one");
    match lines.as_deref() {
        Ok([first, second, ..]) => Error::Parse {
            path: path.into(),
            line: *second,
            reason: reason(&format!(" (first in line {first})")),
        },
        _ => Error::File { path: path.into(), reason: reason("") },
    }
}

/// Reads an initial distribution: `.npy`, or text with one number a line.
///
/// # Errors
/// Whatever the format's reader finds.
pub fn read_distribution(path: &Path) -> Result<Vec<f64>> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => npy::read_vector(path),
        _ => text::read_vector(path),
    }
}
