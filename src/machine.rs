//! Computing resources of a solver.

use crate::kernel::Precision;
use crate::lane::{self, DeviceSpec, Lane, OpenOptions};
use crate::parallel::AtHand;
use crate::ranks::Ranks;
use crate::{Error, Invalid, Result};

/// Lanes of a run, their common precision, and the ranks that share the work.
///
/// Threads may share a machine, including rayon's tasks: each call blocks until a lane is free.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::lane::{DeviceSpec, OpenOptions};
///
/// // Two lanes of the CPU, which divide its threads.
/// let machine = Machine::open(&[DeviceSpec::Cpu, DeviceSpec::Cpu], &OpenOptions::default())?;
/// assert_eq!((machine.lanes.len(), machine.precision), (2, kolmo::kernel::Precision::F64));
/// # Ok::<(), kolmo::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Machine {
    /// Lanes that share the work: at least one, and each only once.
    pub lanes: Vec<Lane>,
    /// Precision of numbers on the lanes.
    pub precision: Precision,
    /// Rank of this process in the run.
    pub ranks: Ranks,
}

impl Machine {
    /// Creates a machine with these lanes, for a single process.
    ///
    /// # Panics
    /// Without a lane, or if a lane occurs twice.
    pub fn new(lanes: impl Into<Vec<Lane>>, precision: Precision) -> Self {
        let lanes = lanes.into();
        let mut numbers: Vec<u32> = lanes.iter().map(Lane::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(!lanes.is_empty(), "a machine has at least one lane");
        assert!(numbers.len() == lanes.len(), "{} lanes, {} of them different", lanes.len(), numbers.len());
        Self { lanes, precision, ranks: Ranks::ALONE }
    }

    /// Opens the lanes of some devices.
    ///
    /// # Errors
    /// [`Error::Device`] for a device that does not exist, computes incorrectly or lacks the
    /// precision.
    pub fn open(devices: &[DeviceSpec], options: &OpenOptions) -> Result<Self> {
        if devices.is_empty() {
            return Err(Error::Device("no device given: expected at least one, such as auto".to_owned()));
        }
        let (lanes, precision) = lane::open(devices, options)?;
        Ok(Self::new(lanes, precision))
    }

    /// Opens the best available device, [`DeviceSpec::Auto`].
    ///
    /// # Errors
    /// Errors of [`Machine::open`].
    pub fn best() -> Result<Self> {
        Self::open(&[DeviceSpec::Auto], &OpenOptions::default())
    }

    /// Returns a machine with a CPU queue of its own, if this thread runs loops alone.
    ///
    /// Runs side by side then do not wait for each other; a GPU lane remains shared. `None` for
    /// other threads, and for several lanes.
    pub(crate) fn of_thread(&self) -> Option<Self> {
        match &self.lanes[..] {
            [lane] if AtHand::now().alone => Some(Self { lanes: vec![lane.beside()], ..*self }),
            _ => None,
        }
    }

    /// Returns this machine for a run that several ranks share.
    pub fn on_ranks(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }

    /// Checks that numbers are floating-point; fixed point only represents probabilities.
    /// Fails with [`Error::Invalid`]; the message names `what`, which needs floating point.
    pub fn expect_floating(&self, what: &str) -> Result<()> {
        match self.precision {
            Precision::Q64 => Invalid::Argument("precision")
                .fail(format!("`precision` q64 is not supported for {what}: expected f64 or f32")),
            Precision::F32 | Precision::F64 => Ok(()),
        }
    }

    /// Returns a machine with all CPU lanes and one lane of each GPU.
    pub fn one_lane_per_gpu(&self) -> Self {
        let spec = |lane: &Lane| lane.device().spec.clone();
        let first = |l: &usize| self.lanes[..*l].iter().all(|other| spec(other) != spec(&self.lanes[*l]));
        let kept = (0..self.lanes.len()).filter(|l| self.lanes[*l].device().host || first(l));
        Self { lanes: kept.map(|l| self.lanes[l].clone()).collect(), ..*self }
    }

    /// Returns a machine with the first `count` lanes.
    pub fn first(&self, count: usize) -> Self {
        Self { lanes: self.lanes[..count].to_vec(), ..*self }
    }
}
