//! Machines, which stay open between calls.

use crate::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kolmo::kernel::Precision;
use kolmo::lane::{self, DeviceSpec, Listing, OpenOptions};

/// Device and precision, as the user names them.
#[derive(FromPyObject)]
pub(crate) struct DeviceChoice {
    device: String,
    precision: Option<String>,
}

impl DeviceChoice {
    /// Parses devices and precision.
    ///
    /// Fails in a forked process, so that it is called before any use of threads.
    pub(crate) fn wanted(&self) -> Result<Wanted> {
        expect_own_process()?;
        let precision = match self.precision.as_deref() {
            None => None,
            Some(name) => Some(name.parse().map_err(|_| {
                Error::invalid(format!("precision is '{name}'; give 'f64', 'f32', 'q64' or None"))
            })?),
        };
        let devices = self.device.split(',').map(|name| name.trim().parse()).collect::<Result<_>>()?;
        Ok(Wanted { devices, precision })
    }
}

/// Devices, and a precision if one is requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    devices: Vec<DeviceSpec>,
    precision: Option<Precision>,
}

/// Machines that no call uses at the moment. Concurrent calls use one each.
static IDLE: Mutex<Vec<(Wanted, Machine)>> = Mutex::new(Vec::new());

/// Process that first used the library.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Fails in a process that was forked after the library was used.
///
/// Threads and devices stay with the parent process.
pub(crate) fn expect_own_process() -> Result<()> {
    let (owner, own) = (*OWNER.get_or_init(std::process::id), std::process::id());
    if owner == own {
        return Ok(());
    }
    Err(Error::Device(format!(
        "process {own} was forked from {owner} after that had used kolmo, whose threads and devices stay there; start \
         processes with multiprocessing.get_context('spawn'), or use kolmo in the children alone"
    )))
}

impl Wanted {
    /// True if `device` is the only device.
    pub(crate) fn is(&self, device: &DeviceSpec) -> bool {
        self.devices == [device.clone()]
    }

    pub(crate) fn on(self, device: DeviceSpec) -> Self {
        Self { devices: vec![device], ..self }
    }

    /// Replaces `auto` by the CPU for a short run; also returns true for a short run on the CPU.
    pub(crate) fn briefly(self, short: bool) -> (Self, bool) {
        let wanted = if short && self.is(&DeviceSpec::Auto) { self.on(DeviceSpec::Cpu) } else { self };
        let short = short && wanted.is(&DeviceSpec::Cpu);
        (wanted, short)
    }

    /// Opens a new machine with these devices and this precision.
    pub(crate) fn open(&self) -> Result<Machine> {
        let options = OpenOptions::default().precision(self.precision);
        Machine::open(&self.devices, &options)
    }

    /// Takes an idle machine with these devices and this precision, or opens one.
    fn take(&self) -> Result<Machine> {
        self.take_idle().map_or_else(|| self.open(), Ok)
    }

    fn take_idle(&self) -> Option<Machine> {
        let mut idle = idle();
        let place = idle.iter().position(|(wanted, _)| wanted == self)?;
        Some(idle.swap_remove(place).1)
    }

    /// Runs `work` on a machine with these devices, which then stays open for later calls.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Machine) -> Result<R>) -> Result<R> {
        let machine = self.take()?;
        let done = work(&machine);
        if !matches!(done, Err(Error::DeviceLost { .. })) {
            idle().push((self.clone(), machine));
        }
        done
    }

    /// Takes a machine with these devices for as long as the result is held.
    pub(crate) fn hold(&self) -> Result<Held> {
        Ok(self.held(self.take()?))
    }

    /// Takes an idle machine with these devices, if there is one.
    pub(crate) fn hold_idle(&self) -> Option<Held> {
        Some(self.held(self.take_idle()?))
    }

    fn held(&self, machine: Machine) -> Held {
        Held(Arc::new(Loan { machine: Some(machine), wanted: self.clone(), lost: AtomicBool::new(false) }))
    }
}

fn idle() -> MutexGuard<'static, Vec<(Wanted, Machine)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Machine that several objects share; reused after the last of them, unless a device was lost.
#[derive(Clone)]
pub(crate) struct Held(Arc<Loan>);

struct Loan {
    machine: Option<Machine>,
    wanted: Wanted,
    /// True after a device was lost: the machine is not used again.
    lost: AtomicBool,
}

impl Held {
    pub(crate) fn machine(&self) -> &Machine {
        self.0.machine.as_ref().expect("it is given back when this is gone")
    }

    /// Records a lost device, and returns the result.
    pub(crate) fn ended<R>(&self, done: Result<R>) -> Result<R> {
        if matches!(done, Err(Error::DeviceLost { .. })) {
            self.0.lost.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(machine) = self.machine.take() else { return };
        if expect_own_process().is_err() {
            // The machine belongs to the parent process.
            std::mem::forget(machine);
        } else if !self.lost.load(Ordering::Relaxed) {
            idle().push((self.wanted.clone(), machine));
        }
    }
}

/// Names of a machine's devices, with commas between them.
pub(crate) fn names(machine: &Machine) -> String {
    let names: Vec<&str> = machine.lanes.iter().map(|lane| &lane.device().spec[..]).collect();
    names.join(",")
}

/// List the devices of this computer, as dicts.
///
/// ``spec`` is the name for the argument ``device``. Further keys are ``name``, ``backend``,
/// ``driver``, ``memory`` (bytes, None if unknown), ``f64`` (True with double precision),
/// ``software`` (True if a CPU emulates it) and ``unusable`` (a reason or None).
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    expect_own_process().map_err(|error| exception(py, &error))?;
    let told = |Listing { device, driver, unusable, .. }: Listing| {
        let entry = PyDict::new(py);
        entry.set_item("spec", device.spec)?;
        entry.set_item("name", device.name)?;
        entry.set_item("backend", device.backend)?;
        entry.set_item("driver", driver)?;
        entry.set_item("memory", device.limits.memory)?;
        entry.set_item("f64", device.f64)?;
        entry.set_item("software", device.software)?;
        entry.set_item("unusable", unusable)?;
        Ok(entry)
    };
    py.detach(lane::list).into_iter().map(told).collect()
}
