//! Reading of a chain from a path: its format, and further files with the same stem.

use std::path::PathBuf;
use std::sync::Arc;

use super::system::{bare, extension};
use super::*;
use crate::parallel::join;
use crate::transient::chain::csr::Duplicate;
use crate::transient::chain::{Chain, Initial};

/// Format of a chain's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChainFormat {
    Tra,
    Drn,
    MatrixMarket,
    Npz,
    Npy,
}

impl ChainFormat {
    fn of(path: &Path) -> Result<Self> {
        Ok(match &extension(path)[..] {
            "tra" => Self::Tra,
            "drn" => Self::Drn,
            "mtx" => Self::MatrixMarket,
            "npz" => Self::Npz,
            "npy" => Self::Npy,
            other => return fail(path, no_chain(other, path != bare(path))),
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
        "umb" => "is a UMB file, which is not supported; write its chain with `prism MODEL -exportmodel \
                  out.tra,lab`, or with Storm's `--exportbuild out.drn`, and give that"
            .to_owned(),
        "dft" => "is a fault tree, which is not supported; write its chain with Storm's \
                  `--exportbuild out.drn`, and give out.drn"
            .to_owned(),
        _ => "has an unknown extension: expected a chain (.tra, .drn, .mtx, .npz or .npy, \
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

/// Finds the files of state and of transition rewards next to a model.
///
/// For `m.tra` these are `m.srew` and `m.trew`, or `m1.srew`, `m1.trew`, `m2.srew` …, as PRISM
/// numbers several structures.
fn reward_files(path: &Path) -> [Vec<PathBuf>; 2] {
    let of = |path: &Path| (beside(path, "srew"), beside(path, "trew"));
    let mut found = vec![of(path)];
    if found[0] == (None, None) {
        let stem = bare(path).with_extension("").into_os_string();
        let numbered = |number: u32| {
            let mut numbered = stem.clone();
            numbered.push(format!("{number}.tra"));
            let path = PathBuf::from(numbered);
            // Files next to an existing `m1.tra` belong to that model.
            if beside(&path, "tra").is_some() { (None, None) } else { of(&path) }
        };
        found = (1..).map(numbered).take_while(|found| *found != (None, None)).collect();
    }
    let (states, transitions): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    [states, transitions].map(|files| files.into_iter().flatten().collect())
}

/// Reads the rate rewards of states; adds transition rewards of structures with equal names.
///
/// A structure with a reward that is not finite is left out, with a warning.
fn read_rewards(
    files: &[Vec<PathBuf>; 2],
    states: usize,
    list: &TransitionList,
    read: &mut ChainFile,
) -> Result<()> {
    let mut rewards = Vec::new();
    for file in &files[0] {
        rewards.extend(srew::parse(&text::read(file)?, file, states, true)?);
    }
    for file in &files[1] {
        for structure in trew::parse(&text::read(file)?, file, states, true)? {
            let more = structure.sums(states, list, file)?;
            match rewards.iter_mut().find(|reward| reward.name == more.name) {
                Some(known) => known.values.iter_mut().zip(&more.values).for_each(|(v, more)| *v += more),
                None => rewards.push(more),
            }
        }
    }
    rewards.retain(|Reward { name, values }| {
        let infinite = values.iter().position(|value| !value.is_finite());
        read.left_out.extend(infinite.map(|state| {
            let why =
                format!("the rewards \"{name}\" are left out: the reward in state {state} is not finite");
            (name.clone(), why)
        }));
        infinite.is_none()
    });
    read.rewards.append(&mut rewards);
    Ok(())
}

/// Reads a chain in any supported format; with `discrete`, entries are probabilities of a step.
///
/// DRN and `.tra` may declare discrete time themselves. Rows are then divided by their sums,
/// unless these are 1. Files `.lab`, `.sta`, `.srew` and `.trew` with the same stem are read, too.
/// `labels` replaces the model's `.lab` file.
///
/// # Errors
/// Errors of the format's reader; transitions listed twice, with their lines; a file that is not a
/// chain's; in discrete time, a row that does not sum to 1, within 10⁻⁶.
pub fn read_chain(path: &Path, labels: Option<&Path>, discrete: bool) -> Result<Chain> {
    let format = ChainFormat::of(path)?;
    if !path.exists() {
        let reason = "there is no such file; give a chain's file, or a built-in such as tandem:15";
        return fail(path, reason);
    }
    let rewards = reward_files(path);
    let mut rows = None;
    let mut file = match format {
        // Transition rewards need the list of transitions in the file's order.
        ChainFormat::Tra if rewards[1].is_empty() && !discrete => {
            let file;
            (file, rows) = tra::read_numbered(path)?;
            file
        }
        ChainFormat::Tra => tra::read(path)?,
        ChainFormat::Drn => drn::read(path)?,
        ChainFormat::MatrixMarket | ChainFormat::Npz | ChainFormat::Npy => {
            rate_matrix_kind::read_chain(path)?
        }
    };
    let (states, mut transitions) = (file.states, std::mem::take(&mut file.transitions));
    let discrete = discrete || file.discrete;
    if discrete {
        let suspicion = rate_matrix_kind::looks_stochastic(path);
        file.warnings.retain(|warning| *warning != suspicion);
        transitions.normalise(states).map_err(in_file(path))?;
    }
    read_rewards(&rewards, states, &transitions, &mut file)?;
    file.warnings.extend(file.left_out.iter().map(|(_, warning)| warning.clone()));
    // Sorting allocates some tens of bytes per state before the first transition is stored. A file
    // may name more states than fit into memory.
    let (count, bytes) = rows.as_ref().map_or((transitions.rate.len(), 28), |rows| (rows.len(), 4));
    expect_memory(states as u64 * 48 + count as u64 * bytes, || {
        format!("{}: a chain of {states} states and {count} transitions", path.display())
    })?;
    let sorted = || match (rows, format) {
        (Some(rows), _) => Ok(Csr::of_rows(states, rows)),
        // SciPy's format adds duplicate entries.
        (None, ChainFormat::Npz) => Ok(Csr::added_up(states, transitions)),
        (None, _) => Csr::new(states, transitions),
    };
    let labels = labels.map(Path::to_path_buf).or_else(|| beside(path, "lab"));
    let read_labels = || labels.map(|file| lab::read(&file, states)).transpose();
    let (chain, labels) = join(sorted, read_labels);
    let chain = chain.map_err(|duplicate| twice(path, format, duplicate))?;
    if let Some(names) = beside(path, "sta") {
        file.names = Some(sta::read(&names, states)?);
    }
    let labels = labels?.unwrap_or(file.labels);
    let initial = match labels.get("init") {
        Some([state]) => Initial::State(*state as usize),
        Some(many) if !many.is_empty() => Initial::Uniform(many.to_vec()),
        _ => Initial::State(0),
    };
    let ChainFile { rewards, left_out, warnings, .. } = file;
    let names = file.names.map(Arc::new);
    let mut chain = Chain::new(path.display().to_string(), Box::new(chain)).starting(initial);
    if discrete {
        chain = chain.discrete();
    }
    Ok(Chain { labels, rewards, left_out, names, warnings, ..chain })
}

/// Returns the error about a transition listed twice, with its lines if the format has lines.
fn twice(path: &Path, format: ChainFormat, Duplicate { from, to }: Duplicate) -> Error {
    let lines = text::read(path).and_then(|bytes| match format {
        ChainFormat::Tra => tra::lines_of(&bytes, path, from, to),
        ChainFormat::Drn => drn::lines_of(&bytes, path, from, to),
        ChainFormat::MatrixMarket => mtx::lines_of(&bytes, path, from, to),
        _ => Ok(Vec::new()),
    });
    let remedy = match format {
        ChainFormat::MatrixMarket => "add its rates into one, or list one triangle of a symmetric matrix",
        _ => "add its rates into one",
    };
    let reason = |also: &str| format!("the transition {from} -> {to} is listed twice{also}; {remedy}");
    match lines.as_deref() {
        Ok([first, second, ..]) => Error::Parse {
            path: path.into(),
            line: *second,
            reason: reason(&format!(" (first in line {first})")),
        },
        _ => Error::file(path, reason("")),
    }
}

/// Reads an initial distribution: `.npy`, or text with one number per line.
///
/// # Errors
/// Errors of the format's reader.
pub fn read_distribution(path: &Path) -> Result<Vec<f64>> {
    match path.extension() {
        Some(e) if e.eq_ignore_ascii_case("npy") => npy::read_vector(path),
        Some(e) if e.eq_ignore_ascii_case("csv") => {
            fail(path, "is a table; write the probabilities as .npy, or as text (.txt)")
        }
        _ => text::read_vector(path),
    }
}
