//! Stored measurements: measuring them, and passing them to lanes.

use std::collections::BTreeSet;

use crate::cli::prelude::*;
use kolmo::lane::Device;
use kolmo::settings::{self, Key, StoredTuning, Tuned};
use kolmo::transient::estimate;

/// Loads the stored measurements of a device; warns about a damaged file and unknown keys.
pub(crate) fn of(device: &Device, precision: Precision, quiet: bool) -> Option<Box<Tuned>> {
    let folder = settings::folder()?;
    match settings::load(&folder, &Key::new(device, precision)) {
        StoredTuning::Tuned(tuned) => {
            if !tuned.unknown.is_empty() && !quiet {
                let (path, keys) = (settings::path(&folder, &tuned.key), tuned.unknown.join(", "));
                say(format_args!(
                    "warning: {}: unknown keys {keys} are ignored; `kolmo tune --device {}` rewrites the file",
                    path.display(),
                    device.spec
                ));
            }
            Some(tuned)
        }
        StoredTuning::Absent => None,
        StoredTuning::Unusable(why) => {
            let spec = &device.spec;
            if !quiet {
                say(format_args!("warning: not used: {why}; `kolmo tune --device {spec}` renews it"));
            }
            None
        }
    }
}

/// Start-up time of a GPU in seconds: the shortest one measured on this machine, else a default.
pub(crate) fn gpu_start() -> f64 {
    let files = settings::folder().and_then(|folder| settings::all(&folder).ok()).unwrap_or_default();
    let tuned = files.into_iter().filter_map(|(_, tuned)| tuned.ok());
    let start = tuned.filter(|tuned| tuned.key.backend != "cpu").filter_map(|tuned| tuned.start);
    start.reduce(f64::min).map_or(estimate::GPU_START, |start| 1e-3 * start)
}

/// Passes the stored measurements of their devices to the lanes.
pub(crate) fn recall(machine: &Machine, quiet: bool) {
    let mut told = BTreeSet::new();
    for lane in &machine.lanes {
        let first = told.insert(lane.device().spec.clone());
        let tuned = of(lane.device(), machine.precision, quiet || !first);
        tuned.and_then(|tuned| tuned.bytes_per_second).into_iter().for_each(|speed| lane.remember(speed));
    }
}
