//! Faults on request, for tests, in builds with debug assertions: what a device does on its worst day, at a chosen
//! moment.
//!
//! With `KOLMO_FAULT=allocation:K` the K-th allocation of the process fails; with `launch:K` the device is lost in the
//! K-th step that it is given, with `copy:K` in the K-th copy from or to the host. All lanes count together, from 1. A
//! lost device stays lost. Other builds never ask.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Device;
use crate::{Error, Result};

/// What is to fail, and at which event.
struct Fault {
    kind: Kind,
    at: u64,
    events: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allocation,
    Launch,
    Copy,
}

fn asked() -> Option<&'static Fault> {
    static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
    let read = || {
        let asked = std::env::var("KOLMO_FAULT").ok()?;
        let (kind, at) = asked.split_once(':')?;
        let kind = match kind {
            "allocation" => Kind::Allocation,
            "launch" => Kind::Launch,
            "copy" => Kind::Copy,
            _ => return None,
        };
        Some(Fault { kind, at: at.parse().ok()?, events: AtomicU64::new(0) })
    };
    if cfg!(debug_assertions) { FAULT.get_or_init(read).as_ref() } else { None }
}

/// Counts `count` events; says how many of them come to pass before the fault, if that is among them or before.
fn passed(kind: Kind, count: u64) -> Option<u64> {
    let fault = asked()?;
    // Whatever was lost is so for everything.
    let lost = fault.kind != Kind::Allocation && fault.events.load(Ordering::Acquire) >= fault.at;
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
    Error::DeviceLost {
        device: device.name.clone(),
        during: during.to_owned(),
        reason: "KOLMO_FAULT asked for it".to_owned(),
    }
}

/// An error if this allocation is to fail.
pub(super) fn allocation(device: &Device, what: &str, bytes: u64) -> Result<()> {
    if passed(Kind::Allocation, 1).is_none() {
        return Ok(());
    }
    Err(match asked().map(|fault| fault.kind) {
        Some(Kind::Allocation) => Error::OutOfMemory {
            device: device.name.clone(),
            what: what.to_owned(),
            asked: bytes,
            limit: "KOLMO_FAULT asked for a failure".to_owned(),
        },
        _ => lost(device, "an allocation"),
    })
}

/// An error if the device is lost before this copy, or in it.
pub(super) fn copy(device: &Device) -> Result<()> {
    passed(Kind::Copy, 1).map_or(Ok(()), |_| Err(lost(device, "a copy")))
}

/// If the device is to be lost in these steps: how many it takes before, and the error.
pub(super) fn steps(device: &Device, count: u64) -> Option<(u64, Error)> {
    passed(Kind::Launch, count).map(|before| (before, lost(device, "a launch")))
}
