//! Measurements: one job, one lane, both sides in one run.

mod banded;
pub mod compare;
mod lanes;
#[cfg(feature = "peers")]
pub mod peers;
mod ranks;
pub mod seed_table;
mod spmv;
mod together;
mod transfer;
mod transient;
pub mod walk;

use kolmo::lane::bandwidth::{copy_bandwidth, triad_bandwidth};
use serde::Serialize;

pub use banded::{BandedTimes, banded_times};
pub use lanes::{HostTimes, ResidentTimes, lane_times, largest_system, resident_times, system_lane_times};
pub use ranks::{CASES as BETWEEN_RANKS, between_ranks};
pub use spmv::spmv;
pub use together::{PhaseTime, Together};
pub use transfer::{CASES as TRANSFERS, kinds_of_memory, transfer};
pub use transient::{Case, transient};

/// GB/s that the lanes' memory can do, added up: a copy, or on the CPU a triad.
///
/// # Errors
/// Those of the lanes.
pub fn bandwidth(lanes: &[kolmo::lane::Lane], repeat: usize) -> kolmo::Result<f64> {
    let one = |lane: &kolmo::lane::Lane| match lane.device().host {
        true => triad_bandwidth(lane, TRIAD, repeat),
        false => copy_bandwidth(lane, repeat),
    };
    lanes.iter().map(one).sum()
}

/// Bytes of an array of the CPU's triad.
const TRIAD: u64 = 512 << 20;

/// GB/s from smaller arrays, and seconds and bytes that [`bandwidth`] is to take.
///
/// # Errors
/// Those of the lane.
pub fn bandwidth_forecast(lane: &kolmo::lane::Lane) -> kolmo::Result<(f64, f64, u64)> {
    const LESS: u64 = 16;
    let at = std::time::Instant::now();
    let found = triad_bandwidth(lane, TRIAD / LESS, 3)?;
    let scale = if lane.device().host { LESS } else { 1 };
    Ok((found, scale as f64 * at.elapsed().as_secs_f64(), scale * 4 * TRIAD / LESS))
}

/// An observer that has nothing to say.
struct Silent;

impl kolmo::transient::Observer for Silent {
    fn progress(&mut self, _: u64, _: u64) -> kolmo::Result<()> {
        Ok(())
    }

    fn result(&mut self, _: usize, _: &[f64]) -> kolmo::Result<()> {
        Ok(())
    }
}

/// The least and the median of some seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
}

impl Spread {
    /// Of one measurement or more.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        assert!(!seconds.is_empty(), "a spread of no measurement");
        Self { min: seconds[0], median: seconds[seconds.len() / 2] }
    }
}

/// One line of a benchmark's report.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// `spmv`, `transient`.
    pub bench: &'static str,
    /// The model.
    pub case: String,
    /// Name of the device.
    pub device: String,
    /// Backend.
    pub backend: &'static str,
    /// Precision.
    pub precision: String,
    /// States.
    pub n: usize,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Format of the matrix.
    pub format: String,
    /// Lanes.
    pub lanes: usize,
    /// True where the step serves a time point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<bool>,
    /// Useful bytes: f64 12·nnz + 32·n with the accumulator, f32 8·nnz + 16·n; 16 and 8 less a row without.
    pub bytes: u64,
    /// Bytes that the format in fact moves, padding included, gathers counted once.
    pub bytes_moved: u64,
    /// Seconds of one step (spmv) or one run (transient).
    pub seconds: Spread,
    /// Useful bytes a second, from the median.
    pub gb_per_s: f64,
    /// The rate of a copy (on the CPU a triad) on the same lane in the same run.
    pub copy_gb_per_s: f64,
    /// Largest error of the result, relative to its largest element, against a plain evaluation in f64.
    pub relative_error: f64,
    /// Measurements that the spread is of.
    pub repetitions: usize,
    /// Multiplications of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<u64>,
    /// Steps of walks a second, from the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_s: Option<f64>,
    /// Further measurements.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub more: Option<serde_json::Value>,
    /// Time that several lanes spend on each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
}

impl Record {
    /// Solutions of `batch` tridiagonal systems of `n` rows each: dl, d, du and b are read, x is written.
    pub fn tridiagonal(
        case: String,
        device: &kolmo::lane::Device,
        precision: kolmo::kernel::Precision,
        (n, batch, rhs): (usize, usize, usize),
        seconds: Spread,
        relative_error: f64,
    ) -> Self {
        let rows = n * batch;
        let bytes = (3 + 2 * rhs as u64) * precision.bytes() * rows as u64;
        Self {
            bench: "tridiagonal",
            case,
            device: device.name.clone(),
            backend: device.backend,
            precision: precision.to_string(),
            n,
            nnz: (3 * rows - 2 * batch) as u64,
            format: "tridiagonal".to_owned(),
            lanes: 1,
            accumulate: None,
            bytes,
            bytes_moved: bytes,
            seconds,
            gb_per_s: bytes as f64 / seconds.median / 1e9,
            copy_gb_per_s: 0.0,
            relative_error,
            repetitions: 0,
            terms: None,
            steps_per_s: None,
            more: None,
            together: None,
        }
    }
}
