//! The same jobs of all engines on one device after the other, and the figures of the three papers that kolmo began with.
//!
//! A measurement is a line of a report: a JSON object with the keys of a [`Record`] and with `part` (the engine, or
//! `figures`), `spec` (the device's name on the command line), `flops` where a count is of use, and, where it belongs to a
//! published figure, `figure` (see [`papers`]) with what the figure is drawn from.

mod engines;
mod figures;
pub mod papers;
mod sizes;

pub use sizes::{Jobs, Size};

use serde_json::Value;

use super::{Record, bandwidth};
use kolmo::models::{self, System};
use kolmo::sparse::WidthRule;
use kolmo::transient::{Chain, Options, Problem, solve};
use kolmo::tridiagonal;
use kolmo::{Error, Machine, Result};

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One step of uniformization, in HYB and in the smallest format.
    Step,
    /// Whole transient solutions.
    Transient,
    /// Steps of walks a second, and the time to an interval.
    Walk,
    /// Tridiagonal systems, host to host.
    Tridiagonal,
    /// Host to device and back.
    Transfer,
    /// The papers' figures and tables.
    Figures,
}

impl Part {
    /// All of them, in the order they are measured.
    pub const ALL: [Self; 6] =
        [Self::Step, Self::Transient, Self::Walk, Self::Tridiagonal, Self::Transfer, Self::Figures];

    /// The name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Transient => "transient",
            Self::Walk => "walk",
            Self::Tridiagonal => "tridiagonal",
            Self::Transfer => "transfer",
            Self::Figures => "figures",
        }
    }
}

/// Opens a number of lanes of one device.
pub type Open<'a> = &'a dyn Fn(usize) -> Result<Machine>;

/// Called between two measurements; its error ends the work.
pub type Watch<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// A chain at a time, and what it has to give.
struct Whole {
    chain: Chain,
    time: f64,
    reference: Vec<f64>,
}

/// A system and its solution.
struct Known {
    system: System,
    x: Vec<f64>,
}

/// Jobs, and what their results are held against, made once for all devices.
pub struct Work {
    jobs: Jobs,
    parts: Vec<Part>,
    step: Option<Chain>,
    whole: Vec<Whole>,
    walk: Option<Known>,
    tridiagonal: Option<(String, tridiagonal::System)>,
    figures: Option<figures::Prepared>,
}

impl Work {
    /// Makes models and systems, and computes on the CPU what other devices are held against.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room; what `watch` returns.
    pub fn new(jobs: Jobs, parts: &[Part], cpu: &Machine, watch: Watch<'_>) -> Result<Self> {
        let wanted = |part: Part| parts.contains(&part);
        let step = wanted(Part::Step).then(|| built_in(jobs.step)).transpose()?;
        let mut whole = Vec::new();
        if wanted(Part::Transient) {
            for &(name, time) in jobs.transient {
                watch(&format!("{name} at t = {time}: what others are held against"))?;
                let chain = built_in(name)?;
                let reference = reference(cpu, &chain, &[time])?.swap_remove(0);
                whole.push(Whole { chain, time, reference });
            }
        }
        let walk = wanted(Part::Walk).then(|| known(jobs.walk, 1e-13)).transpose()?;
        let tridiagonal = wanted(Part::Tridiagonal).then(|| bands(jobs.tridiagonal)).transpose()?;
        let figures = wanted(Part::Figures).then(|| figures::Prepared::new(&jobs, cpu, watch)).transpose()?;
        Ok(Self { jobs, parts: parts.to_vec(), step, whole, walk, tridiagonal, figures })
    }

    /// Measures all parts on one device. `spec` is its name on the command line; `first` says whether it is the device
    /// that figures are drawn on which do not depend on the device. What does not fit is told by `note` and left out.
    ///
    /// # Errors
    /// Those of the lanes, memory aside; what `watch` returns.
    pub fn measure(
        &self,
        open: Open<'_>,
        spec: &str,
        first: bool,
        watch: Watch<'_>,
        note: &mut dyn FnMut(String),
    ) -> Result<Vec<Value>> {
        let mut lines = Vec::new();
        let copy = bandwidth(&open(1)?.lanes, 3)?;
        for &part in &self.parts {
            watch(&format!("{spec}: {}", part.name()))?;
            let measured = match part {
                Part::Figures => {
                    self.figures.as_ref().map_or(Ok(Vec::new()), |f| f.measure(open, copy, first, watch))
                }
                part => self.engine(part, open, copy),
            };
            match measured {
                Ok(more) => lines.extend(more.into_iter().map(|mut line| {
                    line["part"] = part.name().into();
                    line["spec"] = spec.into();
                    line
                })),
                Err(e @ Error::OutOfMemory { .. }) => note(format!("{}, left out: {e}", part.name())),
                Err(e) => return Err(e),
            }
        }
        Ok(lines)
    }
}

/// A record as a line, with more keys.
fn line(record: &Record, more: Value) -> Value {
    let mut line = serde_json::json!(record);
    if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
    line
}

fn built_in(name: &str) -> Result<Chain> {
    let model = models::parse(name)
        .unwrap_or_else(|| Err(Error::Invalid(format!("'{name}' is no built-in chain"))))?;
    Ok(model.into())
}

fn bands(name: &str) -> Result<(String, tridiagonal::System)> {
    let made = models::tridiagonal(name, 0)
        .unwrap_or_else(|| Err(Error::Invalid(format!("'{name}' is no built-in tridiagonal system"))))?;
    Ok((made.name, made.system))
}

/// A system and x, by Jacobi's iteration.
fn known(name: &str, tolerance: f64) -> Result<Known> {
    let system = models::system(name, 0)
        .unwrap_or_else(|| Err(Error::Invalid(format!("'{name}' is no built-in system"))))?;
    let (x, _) = super::walk::solution(&system, tolerance)?;
    Ok(Known { system, x })
}

/// Probabilities on the CPU, in f64 and in another width of the ELL part than is measured, within 1e-9 of the truth where
/// rounding lets them.
fn reference(cpu: &Machine, chain: &Chain, times: &[f64]) -> Result<Vec<Vec<f64>>> {
    let options = Options { epsilon: 1e-9, width: WidthRule::Mean, ..Options::default() };
    let mut probabilities = Vec::new();
    solve(cpu, &Problem { rewards: &[], ..chain.at(times) }, &options, &mut probabilities)?;
    Ok(probabilities)
}
