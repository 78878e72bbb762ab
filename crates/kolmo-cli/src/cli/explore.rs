//! Models in the PRISM language where a file of a chain may stand: given constants, explored while people watch.

use std::str::FromStr;
use std::time::Instant;

use super::progress::Progress;
use super::{interrupt, say};
use crate::report::{grouped, seconds};
use kolmo::transient::Chain;
use kolmo::{Error, Result};
use kolmo_check::Assigned;
use kolmo_check::language::{self, refused};
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
    let progress = Progress::new(quiet, "exploring the model");
    let tell = |found: kolmo_model::Progress| {
        progress.found(found.states, found.transitions);
        interrupt::check().is_ok()
    };
    let space = language::explore(model, values, limit, &tell);
    drop(progress);
    let space = space?;
    if !quiet {
        let (others, all) = space.transitions();
        let took = began.elapsed().as_secs_f64();
        say(format_args!(
            "explored {} states, {} transitions ({} with self-loops) in {}, {} states a second",
            grouped(space.states() as u64),
            grouped(others),
            grouped(all),
            seconds(took),
            grouped((space.states() as f64 / took) as u64),
        ));
    }
    Ok(space)
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
