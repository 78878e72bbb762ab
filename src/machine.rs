//! What a solver is given to run on.

use crate::kernel::Precision;
use crate::lane::{self, DeviceSpec, Lane, OpenOptions};
use crate::ranks::Ranks;
use crate::{Error, Result};

/// The lanes of a run, their one precision, and the processes that share the work. Threads may share a machine, tasks of
/// rayon among them: each call waits asleep until a lane is free.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::lane::{DeviceSpec, OpenOptions};
///
/// // Two lanes of the CPU, which share out its threads.
/// let machine = Machine::open(&[DeviceSpec::Cpu, DeviceSpec::Cpu], &OpenOptions::default())?;
/// assert_eq!((machine.lanes.len(), machine.precision), (2, kolmo::kernel::Precision::F64));
/// # Ok::<(), kolmo::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Machine {
    /// At least one lane, each once.
    pub lanes: Vec<Lane>,
    /// Precision of numbers on the lanes.
    pub precision: Precision,
    /// This process among those that share the work.
    pub ranks: Ranks,
}

impl Machine {
    /// The lanes of this process alone.
    ///
    /// # Panics
    /// Without a lane, and with a lane twice.
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
    /// [`Error::Device`] for a device that is not there, computes wrongly or lacks the precision.
    pub fn open(devices: &[DeviceSpec], options: &OpenOptions) -> Result<Self> {
        if devices.is_empty() {
            return Err(Error::Device("no device is named; give one, such as auto".to_owned()));
        }
        let (lanes, precision) = lane::open(devices, options)?;
        Ok(Self::new(lanes, precision))
    }

    /// The best device that there is, [`DeviceSpec::Auto`].
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn best() -> Result<Self> {
        Self::open(&[DeviceSpec::Auto], &OpenOptions::default())
    }

    /// The same lanes in a run that other processes share.
    pub fn on_ranks(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }

    /// Makes sure that numbers are floating-point, which probabilities alone can do without.
    ///
    /// # Errors
    /// [`Error::Invalid`], which begins to say `what` needs them.
    pub fn expect_floating(&self, what: &str) -> Result<()> {
        match self.precision {
            Precision::Q64 => Err(Error::Invalid(format!(
                "--precision q64 is for probabilities of transient analysis; {what} f64 or f32"
            ))),
            Precision::F32 | Precision::F64 => Ok(()),
        }
    }

    /// The first `count` lanes.
    pub fn first(&self, count: usize) -> Self {
        Self { lanes: self.lanes[..count].to_vec(), ..*self }
    }
}
