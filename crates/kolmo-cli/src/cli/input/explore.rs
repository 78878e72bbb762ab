//! Exploration of PRISM models, with the constants of `--const` and a progress display.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::prelude::*;
use kolmo::transient::Chain;
use kolmo_check::Truncation;
use kolmo_check::language::{self, refused};
use kolmo_model::constants::{self, Given};
use kolmo_model::{Instance, Model, StateSpace, Value};

/// Values of constants given by `--const`.
pub(crate) type Constants = Vec<Given>;

pub(crate) fn constants(text: &str) -> Result<Constants> {
    constants::parse(text).map_err(refused)
}

/// Reads samples of constants: a line of names, then a line of values for each sample.
///
/// Returns the number of each sample's line, and its constants, which follow the `fixed` ones.
pub(crate) fn samples(path: &Path, fixed: &[Given]) -> Result<Vec<(u64, Constants)>> {
    let wrong = |line, reason: String| Error::Parse { path: path.into(), line, reason };
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let fields = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect::<Vec<_>>();
    let mut lines = (1..).zip(text.lines().map(fields)).filter(|(_, fields)| fields != &[""]);
    let names = lines.next().map(|(_, names)| names).unwrap_or_default();
    if let Some(name) = names.iter().find(|name| fixed.iter().any(|given| given.name == **name)) {
        return Err(wrong(1, format!("--const gives '{name}', too; give it once")));
    }
    let mut samples = Vec::new();
    for (line, values) in lines {
        if values.len() != names.len() {
            return Err(wrong(line, format!("expected {} values, one for each name of line 1", names.len())));
        }
        let pairs: Vec<String> = names.iter().zip(&values).map(|(name, v)| format!("{name}={v}")).collect();
        let own = constants::parse(&pairs.join(",")).map_err(|error| wrong(line, error.to_string()))?;
        if own.iter().any(|given| given.range) {
            return Err(wrong(line, "expected one value of each constant, not a range or a list".to_owned()));
        }
        let own = own.into_iter().map(|given| Given { range: true, ..given });
        samples.push((line, fixed.iter().cloned().chain(own).collect()));
    }
    match samples.is_empty() {
        true => Err(wrong(1, "expected a line of names, and a line of values for each sample".to_owned())),
        false => Ok(samples),
    }
}

/// Returns the value of each constant; an error for ranges.
fn single(constants: Option<&Constants>) -> Result<Vec<(String, Value)>> {
    let one = |given: &Given| match given.values[..] {
        [value] => Ok((given.name.clone(), value)),
        _ => Err(Error::invalid(format!(
            "--const gives {} {} values, and this is about one chain; give one, or ask `kolmo check`",
            given.name,
            given.values.len()
        ))),
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

/// Runs a search with a progress display.
///
/// A note warns once about a variable without a range that grows in `model`.
fn watched<T>(
    quiet: bool,
    model: Option<&Model>,
    search: impl FnOnce(&(dyn Fn(kolmo_model::Progress) -> bool + Sync)) -> T,
) -> T {
    let progress = Progress::new(quiet, "exploring the model");
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
pub(crate) fn chain(
    path: &str,
    constants: Option<&Constants>,
    limit: Option<u64>,
    quiet: bool,
) -> Result<Chain> {
    let instance = language::read(path)?.with_constants(&single(constants)?).map_err(refused)?;
    language::chain(path, explore(&instance, limit, quiet)?)
}

/// Reads a model for truncated exploration; nothing is explored yet.
pub(crate) fn truncation(
    path: &str,
    constants: Option<&Constants>,
    allowed: f64,
    epsilon: f64,
) -> Result<Truncation> {
    expect_model(path)?;
    let instance = language::read(path)?.with_constants(&single(constants)?).map_err(refused)?;
    Truncation::new(instance, allowed, epsilon)
}

/// Error if `--truncate` is used with anything but a PRISM model.
pub(crate) fn expect_model(path: &str) -> Result<()> {
    expect_language(language::is_model(path), "--truncate", path)
}

/// Error if `--const` is given for anything but a PRISM model.
pub(crate) fn expect_no_constants(path: &str, constants: Option<&Constants>) -> Result<()> {
    expect_language(constants.is_none(), "--const", path)
}

fn expect_language(holds: bool, option: &str, path: &str) -> Result<()> {
    expect(
        holds,
        format_args!("{option} is for models in PRISM's language, and {path} is none; leave it out"),
    )
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
        truncation.rounds(),
        truncation.lost(),
    ));
}
