//! Exploration of PRISM models, with the constants of `--const` and a progress display.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::prelude::*;
use kolmo::transient::Chain;
use kolmo_check::language::{self, refused};
use kolmo_check::{Truncation, meant};
use kolmo_model::constants::{self, ConstValues};
use kolmo_model::{Instance, PrismModel, StateSpace, Value, decoded};

/// Values of constants given by `--const`.
pub(crate) type Constants = Vec<ConstValues>;

pub(crate) fn constants(text: &str) -> Result<Constants> {
    constants::parse(text).map_err(refused)
}

/// Reads the records of a .csv file with their line numbers; empty records are skipped.
pub(crate) fn records(path: &Path) -> Result<Vec<(u64, Vec<String>)>> {
    let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let text = decoded(bytes);
    let mut options = csv::ReaderBuilder::new();
    let options = options.has_headers(false).flexible(true).trim(csv::Trim::All);
    let (mut all, mut line, mut counted) = (Vec::new(), 1, 0);
    for record in options.from_reader(text.as_bytes()).records() {
        let record = record.expect("decoded text is UTF-8");
        // The position of a record is before the empty lines that precede it.
        let begin = record.position().map_or(counted, |position| position.byte() as usize);
        let begin = text.len() - text[begin..].trim_start_matches(['\r', '\n']).len();
        line += text[counted..begin].matches('\n').count() as u64;
        counted = begin;
        if record.iter().any(|field| !field.is_empty()) {
            all.push((line, record.iter().map(str::to_owned).collect()));
        }
    }
    Ok(all)
}

/// Samples of constants.
pub(crate) struct Samples {
    /// Names of the constants.
    pub(crate) names: Vec<String>,
    /// Line number of each sample, its constants, and the reason if the line is invalid.
    pub(crate) all: Vec<(u64, Constants, Option<String>)>,
}

/// Reads samples of constants: a line of names, then a line of values for each sample.
///
/// `fixed` constants are added to each sample. `known` are the names of all constants without a
/// value.
pub(crate) fn samples(path: &Path, fixed: &[ConstValues], known: &[&str]) -> Result<Samples> {
    let wrong = |line, reason: String| Error::Parse { path: path.into(), line, reason };
    let mut lines = records(path)?.into_iter();
    let (first, names) = lines.next().unwrap_or((1, Vec::new()));
    if lines.len() == 0 {
        let reason = "expected a line of names, and a line of values for each sample";
        return Err(wrong(first, reason.to_owned()));
    }
    for (column, name) in names.iter().enumerate() {
        let reason = if fixed.iter().any(|given| given.name == *name) {
            format!("--const gives '{name}', too; give it once")
        } else if names[..column].contains(name) {
            "a column before it has this name; give it once".to_owned()
        } else if known.contains(&&**name) {
            continue;
        } else {
            let meant = meant(name, known.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("expected a constant without a value; there are {known}{meant}")
        };
        return Err(wrong(first, format!("column {} is '{name}': {reason}", column + 1)));
    }
    let sample = |(line, fields): (u64, Vec<String>)| {
        let (mut all, mut invalid) = (fixed.to_vec(), None);
        for (name, field) in names.iter().zip(&fields) {
            match constants::number(field) {
                Ok(value) => all.push(ConstValues {
                    name: name.clone(),
                    values: vec![value],
                    range: true,
                    ..ConstValues::default()
                }),
                Err(why) => invalid = invalid.or(Some(format!("column {name}: {why}; give one value"))),
            }
        }
        if fields.len() != names.len() {
            invalid = Some(format!(
                "expected {} values, found {}; give each column one",
                names.len(),
                fields.len()
            ));
        }
        (line, all, invalid.map(|why| wrong(line, why).to_string()))
    };
    let all = lines.map(sample).collect();
    Ok(Samples { names, all })
}

/// Returns the value of each constant; an error for ranges.
pub(crate) fn single(constants: Option<&Constants>) -> Result<Vec<(String, Value)>> {
    let one = |given: &ConstValues| match given.values[..] {
        [value] if given.malformed.is_empty() => Ok((given.name.clone(), value)),
        _ => fail(format!(
            "--const gives {} {} values, and this is about one chain; give one, or ask `kolmo check`",
            given.name,
            given.values.len() + given.malformed.len()
        )),
    };
    constants.into_iter().flatten().map(one).collect()
}

/// Explores the states of a model's instance, within `limit` bytes.
pub(crate) fn explore(instance: &Instance, limit: Option<u64>, quiet: bool) -> Result<StateSpace> {
    let began = Instant::now();
    let space = watched(quiet, Some(instance.model()), |tell| language::explore(instance, limit, tell))?;
    if !quiet {
        let ((others, all), states) = (space.transitions(), space.states());
        let took = began.elapsed().as_secs_f64();
        let (time, rate) = (seconds(took), grouped((states as f64 / took) as u64));
        let (states, others, all) =
            (counted(states as u64, "state"), counted(others, "transition"), grouped(all));
        say(format_args!(
            "explored {states}, {others} ({all} with self-loops) in {time}, {rate} states a second"
        ));
    }
    Ok(space)
}

/// Runs a search with a progress display. With `model`, notes an unlimited growing variable once.
fn watched<T>(
    quiet: bool,
    model: Option<&PrismModel>,
    search: impl FnOnce(&(dyn Fn(kolmo_model::Progress) -> bool + Sync)) -> T,
) -> T {
    let progress = ProgressDisplay::new(quiet, "exploring the model");
    let noted = AtomicBool::new(quiet);
    search(&|found| {
        progress.found(found.states, found.transitions);
        if let (Some(model), Some((variable, value))) = (model, found.reached)
            && !noted.swap(true, Ordering::Relaxed)
        {
            let name = model.variables().nth(variable).unwrap_or_default();
            let bar = if std::io::stderr().is_terminal() { "\n" } else { "" };
            say(format_args!(
                "{bar}note: '{name}' has no range and has reached {value} in {} states; if they have no end, give it a range \
                 or truncate the model (--truncate)",
                grouped(found.states)
            ));
        }
        interrupt::check().is_ok()
    })
}

/// Explores the model of a file and returns its chain, with names of the states.
///
/// The states include those that transitions of the instances `joint` reach.
pub(crate) fn chain(
    path: &str,
    (constants, joint): (Option<&Constants>, &[Instance]),
    limit: Option<u64>,
    quiet: bool,
) -> Result<Chain> {
    let instance = language::read(path)?.with_constants(&single(constants)?).map_err(refused)?;
    language::chain(path, explore(&instance.alongside(joint), limit, quiet)?)
}

/// Reads a model for truncated exploration; nothing is explored yet.
pub(crate) fn truncation(
    path: &str,
    constants: Option<&Constants>,
    allowed: f64,
    epsilon: f64,
) -> Result<Truncation> {
    expect_model("--truncate", path)?;
    let instance = language::read(path)?.with_constants(&single(constants)?).map_err(refused)?;
    Truncation::new(instance, allowed, epsilon)
}

/// Error if an option for PRISM models is used with anything else.
pub(crate) fn expect_model(option: &str, path: &str) -> Result<()> {
    let why = format_args!("{option} is for models in PRISM's language, and {path} is none; leave it out");
    expect(language::is_model(path), why)
}

/// Error if `--const` is given with anything but a PRISM model.
pub(crate) fn expect_no_constants(path: &str, constants: Option<&Constants>) -> Result<()> {
    constants.map_or(Ok(()), |_| expect_model("--const", path))
}

/// Explores the next part of a truncated model.
pub(crate) fn part(truncation: &mut Truncation, limit: Option<u64>, quiet: bool) -> Result<StateSpace> {
    watched(quiet, None, |tell| truncation.explore(limit, tell))
}

/// Prints how many states were explored and how much probability was lost.
pub(crate) fn say_enough(truncation: &Truncation, states: usize) {
    say(format_args!(
        "explored {} and left {} at their edge (round {}); at most {:.1e} is lost there",
        counted((states - truncation.edge().len()) as u64, "state"),
        grouped(truncation.edge().len() as u64),
        truncation.rounds,
        truncation.lost,
    ));
}
