//! What a chain takes, and what its lanes have, before any work is done.

use super::bound::{Survey, expect_room, survey};
use super::parts::with_source;
use super::solve::{Method, Options, Problem, check, windows};
use super::split::{LanePlan, Path, row_bytes, split};
use super::subdivided;
use crate::kernel::{Precision, Real};
use crate::lane::Lane;
use crate::sparse::Layout;
use crate::{Error, Result};

/// What a lane is to hold, in bytes.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Need {
    /// The lane's device.
    pub device: String,
    /// Its name.
    pub name: String,
    /// Rows.
    pub rows: usize,
    /// Entries of the rows, without the diagonal.
    pub entries: u64,
    /// Format of the matrix.
    pub format: &'static str,
    /// The matrix, exit rates included.
    pub matrix: u64,
    /// Two iterates with their halos, and one accumulator.
    pub vectors: u64,
    /// What is free, if that is known.
    pub free: Option<u64>,
}

impl Need {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.matrix + self.vectors
    }

    /// Whether it is there.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }

    fn add(&mut self, more: Self) {
        self.rows += more.rows;
        self.entries += more.entries;
        self.matrix += more.matrix;
        self.vectors += more.vectors;
    }

    /// An error where it is not.
    pub fn expect(&self) -> Result<()> {
        if self.fits() {
            return Ok(());
        }
        Err(Error::OutOfMemory {
            device: format!("{} ({})", self.device, self.name),
            what: format!(
                "{} rows of the chain (matrix {} bytes, vectors {} bytes)",
                self.rows, self.matrix, self.vectors
            ),
            asked: self.total(),
            limit: format!(
                "{} bytes are free; share the rows over more devices (--device LIST), use --precision f32 where that \
                 is enough, or --device cpu",
                self.free.unwrap_or(0)
            ),
        })
    }
}

/// What a run would take.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Plan {
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Uniformization rate.
    pub alpha: f64,
    /// What each lane is to hold.
    pub lanes: Vec<Need>,
    /// How rows are shared out over lanes; empty for one lane.
    pub plan: Vec<LanePlan>,
    /// Steps between two exchanges.
    pub hops: usize,
    /// How lanes exchange.
    pub exchange: Path,
    /// Multiplications, at most; none where that shows only on the way, as for the steady state.
    pub terms: Option<u64>,
    /// Predicted seconds of a multiplication, from measured bandwidth.
    pub step: f64,
}

impl Plan {
    /// Whether every lane has room.
    pub fn fits(&self) -> bool {
        self.lanes.iter().all(Need::fits)
    }
}

/// Looks at a chain and at the lanes, and says what solving the problem there would take.
///
/// # Errors
/// As [`super::solve()`], but for lack of memory on a lane, which the plan tells.
pub fn plan(lanes: &[Lane], precision: Precision, problem: &Problem<'_>, options: &Options) -> Result<Plan> {
    check(problem, options)?;
    match precision {
        Precision::F32 => plan_in::<f32>(lanes, problem, options),
        Precision::F64 => plan_in::<f64>(lanes, problem, options),
    }
}

fn plan_in<T: Real>(lanes: &[Lane], problem: &Problem<'_>, options: &Options) -> Result<Plan> {
    let (transitions, real) = (problem.transitions, T::PRECISION.bytes());
    // The host's memory is needed now; a lane's is what the plan is about.
    expect_room::<T>(&[], transitions)?;
    let survey = lanes[0].host(|| survey::<T>(transitions));
    let split = split(lanes, transitions, &survey.lengths, real, options.how())?;
    let layout = lanes[0].host(|| Layout::new(&survey.lengths, options.width, real));
    let (mut needs, mut at): (Vec<Need>, usize) = (Vec::new(), 0);
    for region in &split.regions {
        let lane = &lanes[region.lane];
        let need = with_source(lane, transitions, &survey, &layout, region, &split.regions, |source| {
            source.plan(options.format)
        })?;
        // Parts of one lane add up.
        match needs.last_mut() {
            Some(last) if region.lane == at => last.add(need),
            _ => needs.push(need),
        }
        at = region.lane;
    }
    let step = match &split.plan[..] {
        [] => {
            let bytes: u64 = survey.lengths.iter().map(|&length| row_bytes(length, real)).sum();
            bytes as f64 / lanes[0].bandwidth()?
        }
        plan => plan.iter().map(|lane| lane.step).fold(0.0, f64::max),
    };
    Ok(Plan {
        n: transitions.states(),
        nnz: survey.nnz,
        alpha: survey.alpha,
        lanes: needs,
        plan: split.plan,
        hops: split.hops,
        exchange: split.path,
        terms: terms(&survey, problem, options),
        step,
    })
}

fn terms<T: Real>(survey: &Survey<T>, problem: &Problem<'_>, options: &Options) -> Option<u64> {
    if survey.alpha == 0.0 {
        return Some(0);
    }
    let lambdas = problem.times.iter().map(|&t| survey.lambda(t));
    match options.method {
        _ if problem.times.iter().any(|t| t.is_infinite()) => None,
        Method::Subdivided { theta } => {
            Some(lambdas.map(|lambda| subdivided::terms(survey, options.epsilon, theta, lambda)).sum())
        }
        Method::Sweep => {
            let last = |lambda: f64| windows(survey, options.epsilon, lambda).0;
            lambdas.map(|lambda| if lambda > 0.0 { last(lambda).right } else { 0 }).max()
        }
    }
}
