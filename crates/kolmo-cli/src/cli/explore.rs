//! Models in the PRISM language where a file of a chain may stand: given constants, explored while people watch.

use std::str::FromStr;
use std::time::Instant;

use super::progress::Progress;
use super::{interrupt, say};
use crate::report::{counted, grouped, seconds};
use kolmo::transient::Chain;
use kolmo::{Error, Result};
use kolmo_check::language::{self, refused};
use kolmo_check::{Assigned, Truncation};
use kolmo_model::constants::{self, Given};
use kolmo_model::{Model, StateSpace, Value};

/// Values of constants as options give them.
#[derive(Debug, Clone, Default)]
pub(super) struct Constants(pub(super) Vec<Given>);

impl FromStr for Constants {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        constants::parse(text).map(Self).map_err(refused)
    }
}

impl Constants {
    /// The one value of each.
    fn single(&self) -> Result<Vec<(String, Value)>> {
        let one = |given: &Given| match given.values[..] {
            [value] => Ok((given.name.clone(), value)),
            _ => Err(Error::Invalid(format!(
                "--const gives {} {} values, and this is about one chain; give one, or ask `kolmo check`",
                given.name,
                given.values.len()
            ))),
        };
        self.0.iter().map(one).collect()
    }
}

/// Finds the states of a model with these constants, in at most so many bytes.
pub(super) fn explore(
    model: &Model,
    values: &Assigned,
    limit: Option<u64>,
    quiet: bool,
) -> Result<StateSpace> {
    let began = Instant::now();
    let space = watched(quiet, |tell| language::explore(model, values, limit, tell))?;
    if !quiet {
        let (others, all) = space.transitions();
        let took = began.elapsed().as_secs_f64();
        say(format_args!(
            "explored {}, {} ({} with self-loops) in {}, {} states a second",
            counted(space.states() as u64, "state"),
            counted(others, "transition"),
            grouped(all),
            seconds(took),
            grouped((space.states() as f64 / took) as u64),
        ));
    }
    Ok(space)
}

/// Calls a search with what tells people how far it is.
fn watched<T>(quiet: bool, search: impl FnOnce(&(dyn Fn(kolmo_model::Progress) -> bool + Sync)) -> T) -> T {
    let progress = Progress::new(quiet, "exploring the model");
    search(&|found| {
        progress.found(found.states, found.transitions);
        interrupt::check().is_ok()
    })
}

/// The chain of a model, whose states have names.
pub(super) fn chain(
    path: &str,
    constants: Option<&Constants>,
    limit: Option<u64>,
    quiet: bool,
) -> Result<Chain> {
    let values = constants.map(Constants::single).transpose()?.unwrap_or_default();
    language::chain(path, explore(&language::read(path)?, &values, limit, quiet)?)
}

/// A model of which nothing is explored yet.
pub(super) fn truncation(
    path: &str,
    constants: Option<&Constants>,
    allowed: f64,
    epsilon: f64,
) -> Result<Truncation> {
    expect_model(path)?;
    let values = constants.map(Constants::single).transpose()?.unwrap_or_default();
    let instance = language::read(path)?.with_constants(&values).map_err(refused)?;
    Truncation::new(instance, allowed, epsilon)
}

/// An error for what `--truncate` has no use for.
pub(super) fn expect_model(path: &str) -> Result<()> {
    match language::is_model(path) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "--truncate is for models in PRISM's language, and {path} is none; leave it out"
        ))),
    }
}

/// The next part of a model that is truncated.
pub(super) fn part(truncation: &mut Truncation, limit: Option<u64>, quiet: bool) -> Result<StateSpace> {
    watched(quiet, |tell| truncation.explore(limit, tell))
}

/// Tells what was enough.
pub(super) fn say_enough(truncation: &Truncation, states: usize) {
    say(format_args!(
        "explored {} and left {} at their edge (round {}); at most {:.1e} is lost there",
        counted((states - truncation.edge().len()) as u64, "state"),
        grouped(truncation.edge().len() as u64),
        truncation.rounds(),
        truncation.lost(),
    ));
}
