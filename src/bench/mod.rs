//! Benchmarks of steps, random walks and tridiagonal systems.

mod banded;
mod lanes;
mod spmv;
mod together;
pub mod walk;

use std::time::Instant;

use crate::kernel::Precision;
use crate::lane::bandwidth::{copy_bandwidth, triad_bandwidth};
use crate::lane::{Device, Lane};
use crate::parallel::*;
use crate::transient::chain::scan::statistics;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::exchange::parts::ChainParts;
use crate::transient::iteration::Iteration;
use crate::transient::memory::expect_chain_memory;
use crate::transient::{Options, Transitions};
use crate::tridiagonal::lane_count::LaneTime;
use crate::tridiagonal::{Number, System};
use crate::{Error, Machine, Result};
use serde::Serialize;

pub use banded::{BandedTimes, banded_times};
pub use lanes::{HostTimes, ResidentTimes, lane_times, largest_system, resident_times, system_lane_times};
pub use spmv::spmv;
pub use together::ExchangeMeasurement;

/// Total memory bandwidth of the lanes in GB/s: a copy, or a triad on the CPU.
pub fn bandwidth(lanes: &[Lane], repeat: usize) -> Result<f64> {
    let one = |lane: &Lane| match lane.device().host {
        true => triad_bandwidth(lane, TRIAD, repeat),
        false => copy_bandwidth(lane, repeat),
    };
    lanes.iter().map(one).sum()
}

/// Bytes of each array of the triad on the CPU.
const TRIAD: u64 = 512 << 20;

/// Minimum and median of several times, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// Minimum time in seconds.
    pub min: f64,
    /// Median time in seconds.
    pub median: f64,
}

impl Spread {
    /// Returns the spread of one or more times.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        assert!(!seconds.is_empty(), "a spread of no measurement");
        Self { min: seconds[0], median: seconds[seconds.len() / 2] }
    }

    /// Returns the spread of `repeat` times.
    fn measure<E>(repeat: usize, mut once: impl FnMut() -> Result<f64, E>) -> Result<Self, E> {
        (0..repeat).map(|_| once()).collect::<Result<_, E>>().map(Self::of)
    }
}

impl From<&LaneTime> for Spread {
    fn from(run: &LaneTime) -> Self {
        Self { min: 1e-3 * run.min, median: 1e-3 * run.median }
    }
}

/// One line of a benchmark's report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    /// Benchmark: `spmv`, `walk` or `tridiagonal`.
    pub bench: &'static str,
    /// Name of the model, with the details of the case.
    pub case: String,
    /// Name of the device.
    pub device: String,
    /// Backend of the device.
    pub backend: &'static str,
    /// Precision of the computation.
    pub precision: String,
    /// Number of states or unknowns.
    pub n: usize,
    /// Entries of the matrix; those of a generator include its diagonal.
    pub nnz: u64,
    /// Storage format of the matrix.
    pub format: String,
    /// Number of lanes.
    pub lanes: usize,
    /// For `spmv`: true if the step adds to the accumulator of a time point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<bool>,
    /// Useful bytes. One step: 12·nnz + 32·n in f64, 8·nnz + 16·n in f32; without an accumulator
    /// 16·n or 8·n less.
    pub bytes: u64,
    /// Bytes that the format moves: with padding, gathers counted once.
    pub bytes_moved: u64,
    /// Time of one step (`spmv`) or one run, in seconds.
    pub seconds: Spread,
    /// Useful bytes per median time, in GB/s.
    pub gb_per_s: f64,
    /// Bandwidth of a copy, or a triad on the CPU, on these lanes in this run, in GB/s.
    pub copy_gb_per_s: f64,
    /// Error of the result. For `spmv` the largest one against a plain evaluation in f64, relative
    /// to the largest element; other benchmarks define theirs.
    pub relative_error: f64,
    /// Number of measurements.
    pub repetitions: usize,
    /// Steps of walks per second, from the median time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_s: Option<f64>,
    /// Further values of this benchmark.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub more: Option<serde_json::Value>,
    /// Cost of the exchange between several lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<ExchangeMeasurement>,
}

impl Record {
    /// Returns a record of a device, with one lane, in which the caller sets sizes and errors.
    fn new(
        bench: &'static str,
        case: String,
        device: &Device,
        precision: Precision,
        seconds: Spread,
    ) -> Self {
        Self {
            bench,
            case,
            device: device.name.clone(),
            backend: device.backend,
            precision: precision.to_string(),
            lanes: 1,
            seconds,
            ..Self::default()
        }
    }

    /// Sets the useful bytes and those that the format moves.
    pub fn moving(self, bytes: u64, moved: u64) -> Self {
        let gb_per_s = bytes as f64 / self.seconds.median / 1e9;
        Self { bytes, bytes_moved: moved, gb_per_s, ..self }
    }

    /// Returns a record of solving `batch` tridiagonal systems of `n` rows with `rhs` right-hand
    /// sides.
    ///
    /// Bytes count reading dl, d, du and b, and writing x.
    pub fn tridiagonal(
        case: String,
        device: &Device,
        precision: Precision,
        (n, batch, rhs): (usize, usize, usize),
        seconds: Spread,
        relative_error: f64,
    ) -> Self {
        let rows = n * batch;
        let bytes = (3 + 2 * rhs as u64) * precision.bytes() * rows as u64;
        let record = Self::new("tridiagonal", case, device, precision, seconds);
        let (nnz, format) = ((3 * rows - 2 * batch) as u64, "tridiagonal".to_owned());
        Self { n, nnz, format, relative_error, ..record }.moving(bytes, bytes)
    }
}

fn names(lanes: &[Lane]) -> String {
    lanes.iter().map(|lane| &lane.device().name[..]).collect::<Vec<_>>().join(" + ")
}
