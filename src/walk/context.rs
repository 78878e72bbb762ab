//! State of a run: problem, options, times and warnings, from which the solution is assembled.

use std::time::Instant;

use super::convergence::certificate::Certificate;
use super::options::{Options, Problem, points, replicates};
use super::sequence::Scramble;
use super::solution::{Component, Jacobi, Quantity, Seconds, Solution, largest, met};
use crate::Machine;
use crate::lane::Lane;

pub(crate) struct WalkRun<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) options: &'a Options,
    pub(crate) scramble: Scramble,
    pub(crate) replicates: u32,
    pub(crate) seconds: Seconds,
    warnings: Vec<String>,
    started: Instant,
    /// Time at which the time limit is reached; `None` without a limit.
    end: Option<Instant>,
    /// Seconds of the lanes' downloads before the run.
    before: f64,
}

impl<'a> WalkRun<'a> {
    pub(crate) fn start(machine: &'a Machine, problem: &'a Problem<'a>, options: &'a Options) -> Self {
        let mut warnings = Vec::new();
        let (scramble, replicates) = replicates(options, &mut warnings);
        let (seconds, started, before) = (Seconds::default(), Instant::now(), downloads(&machine.lanes));
        let end = options.time_limit.and_then(|limit| started.checked_add(limit));
        Self { machine, problem, options, scramble, replicates, seconds, warnings, started, end, before }
    }

    /// True if the time limit has passed.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the number of points per replicate: in the first round, and at most in all.
    pub(crate) fn points(&mut self) -> (u64, u64) {
        points(self.options, self.replicates, &mut self.warnings)
    }

    pub(crate) fn finish(self, certificate: &Certificate, result: BatchResult) -> Solution {
        let Self { problem, options, mut seconds, .. } = self;
        seconds.upload = result.upload;
        seconds.solve = result.solve;
        seconds.download = downloads(&self.machine.lanes) - self.before;
        seconds.total = self.started.elapsed().as_secs_f64();
        seconds.build = (seconds.total - seconds.certificate - seconds.upload - seconds.solve).max(0.0);
        let worst = largest(&result.components);
        let (status, bound, epsilon) = (met(&result.components), worst.bound, worst.epsilon);
        let (components, functionals) =
            result.components.into_iter().partition(|c| c.quantity == Quantity::Component);
        Solution {
            status,
            bound,
            epsilon,
            components,
            functionals,
            rounds: result.rounds,
            n: problem.matrix.rows(),
            nnz: problem.matrix.nnz(),
            splitting: certificate.splitting,
            norm: certificate.norm,
            row_norm: (certificate.row_norm, certificate.worst_row),
            products: certificate.products,
            sweeps: result.sweeps,
            krylov: result.krylov,
            sequence: (options.sequence, self.scramble),
            tabled: result.tabled,
            replicates: self.replicates,
            steps: result.steps,
            table_bytes: result.table_bytes,
            jacobi: result.jacobi,
            warnings: self.warnings,
            seconds,
        }
    }
}

/// Seconds of all downloads from the lanes so far.
fn downloads(lanes: &[Lane]) -> f64 {
    lanes.iter().map(|lane| lane.transfer_seconds().1).sum()
}

/// Result of the walks for a batch of right-hand sides.
#[derive(Default)]
pub(crate) struct BatchResult {
    pub(crate) components: Vec<Component>,
    pub(crate) rounds: Vec<Component>,
    pub(crate) sweeps: u32,
    pub(crate) krylov: usize,
    pub(crate) steps: u64,
    pub(crate) table_bytes: u64,
    pub(crate) tabled: u32,
    pub(crate) jacobi: Option<Jacobi>,
    /// Seconds of the uploads of tables; `solve` has those of the walks.
    pub(crate) upload: f64,
    pub(crate) solve: f64,
}

impl BatchResult {
    /// Appends the lists of another batch, adds its costs, and takes maxima of sweeps and sizes.
    pub(crate) fn add(&mut self, other: Self) {
        self.components.extend(other.components);
        self.rounds.extend(other.rounds);
        self.sweeps = self.sweeps.max(other.sweeps);
        self.krylov += other.krylov;
        self.steps += other.steps;
        self.table_bytes = self.table_bytes.max(other.table_bytes);
        self.tabled = self.tabled.max(other.tabled);
        self.jacobi = self.jacobi.into_iter().chain(other.jacobi).reduce(Jacobi::and);
        self.upload += other.upload;
        self.solve += other.solve;
    }
}
