//! Fault injection for tests: failing allocations and lost devices. Only in builds with debug
//! assertions.
//!
//! The environment variable `KOLMO_FAULT` selects the fault. Events of all lanes are counted
//! together, from 1.
//!
//! * `allocation:K`: the K-th allocation of the process fails.
//! * `launch:K`: the device is lost in the K-th step.
//! * `copy:K`: the device is lost in the K-th copy from or to the host.
//!
//! A lost device stays lost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Device;
use crate::{Error, Limit, Result};

/// The fault to inject: the kind of event, its number and the events so far.
struct InjectedFault {
    kind: &'static str,
    at: u64,
    events: AtomicU64,
}

const ALLOCATION: &str = "allocation";
const LAUNCH: &str = "launch";
const COPY: &str = "copy";

fn asked() -> Option<&'static InjectedFault> {
    static FAULT: OnceLock<Option<InjectedFault>> = OnceLock::new();
    let read = || {
        let asked = std::env::var("KOLMO_FAULT").ok()?;
        let (kind, at) = asked.split_once(':')?;
        let kind = [ALLOCATION, LAUNCH, COPY].into_iter().find(|known| *known == kind)?;
        Some(InjectedFault { kind, at: at.parse().ok()?, events: AtomicU64::new(0) })
    };
    if cfg!(debug_assertions) { FAULT.get_or_init(read).as_ref() } else { None }
}

/// Counts `count` further events, and returns the number of them that precede the fault.
///
/// `None` if the fault is later or of another kind.
fn passed(kind: &str, count: u64) -> Option<u64> {
    let fault = asked()?;
    // A lost device fails in events of every kind.
    let lost = fault.kind != ALLOCATION && fault.events.load(Ordering::Acquire) >= fault.at;
    if lost {
        return Some(0);
    }
    if fault.kind != kind {
        return None;
    }
    let before = fault.events.fetch_add(count, Ordering::AcqRel);
    (before < fault.at && fault.at <= before + count).then(|| fault.at - before - 1)
}

fn lost(device: &Device, during: &str) -> Error {
    Error::lost(&device.name, during, "KOLMO_FAULT requests it")
}

/// Returns an error if this allocation is to fail.
pub(super) fn allocation(device: &Device, what: &str, bytes: u64) -> Result<()> {
    if passed(ALLOCATION, 1).is_none() {
        return Ok(());
    }
    Err(match asked().map(|fault| fault.kind) {
        Some(ALLOCATION) => {
            let limit = Limit::User("KOLMO_FAULT requests a failure".to_owned());
            Error::memory(&device.name, what, bytes, limit)
        }
        _ => lost(device, "an allocation"),
    })
}

/// Returns an error if the device is lost before or during this copy.
pub(super) fn copy(device: &Device) -> Result<()> {
    passed(COPY, 1).map_or(Ok(()), |_| Err(lost(device, "a copy")))
}

/// Counts `count` steps. If the device is lost in one: the steps before it, and the error.
pub(super) fn steps(device: &Device, count: u64) -> Option<(u64, Error)> {
    passed(LAUNCH, count).map(|before| (before, lost(device, "a launch")))
}
