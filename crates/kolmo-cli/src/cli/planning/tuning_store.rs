//! Stored measurements: showing them, and passing them to lanes.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::cli::prelude::*;
use kolmo::lane::Device;
use kolmo::settings::{self, Found, Key, Tuned};
use kolmo::transient::estimate;

/// Loads the stored measurements of a device; warns about a damaged file.
pub(crate) fn of(device: &Device, precision: Precision, quiet: bool) -> Option<Box<Tuned>> {
    let folder = settings::folder()?;
    match settings::load(&folder, &Key::new(device, precision)) {
        Found::Tuned(tuned) => {
            note_unknown(&folder, &tuned, &device.spec, quiet);
            Some(tuned)
        }
        Found::Absent => None,
        Found::Unusable(why) => {
            let spec = &device.spec;
            if !quiet {
                say(format_args!("warning: not used: {why}; `kolmo tune --device {spec}` renews it"));
            }
            None
        }
    }
}

/// Returns the reason for a setting: measured by `kolmo tune`, or a default.
pub(crate) fn reason(measured: bool, device: &Device) -> String {
    match measured {
        true => "as `kolmo tune` measured".to_owned(),
        false => format!("by default; `kolmo tune --device {}` measures it", device.spec),
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

/// Warns about unknown keys in a file of measurements.
pub(crate) fn note_unknown(folder: &Path, tuned: &Tuned, spec: &str, quiet: bool) {
    if !tuned.unknown.is_empty() && !quiet {
        let (path, keys) = (settings::path(folder, &tuned.key), tuned.unknown.join(", "));
        say(format_args!(
            "warning: {}: unknown keys {keys} are ignored; `kolmo tune --device {spec}` writes the file anew",
            path.display()
        ));
    }
}

/// Prints every file of the folder and whether it is valid for a device of this machine.
pub(crate) fn show(folder: &Path, report: Option<&Path>) -> Result<Outcome> {
    let report = report.map(OutputFile::create).transpose()?;
    let mut text = String::new();
    let devices = kolmo::lane::list();
    let mut shown = Vec::new();
    let files = settings::all(folder)?;
    if files.is_empty() {
        say(format_args!("nothing is stored in {}; `kolmo tune --device LIST` measures", folder.display()));
    }
    for (path, found) in files {
        let mut lines = Vec::new();
        let state = match &found {
            Err(why) => format!("cannot be used: {why}; `kolmo tune` of its device writes it anew"),
            Ok(tuned) => {
                let Key { backend, device, precision, .. } = &tuned.key;
                lines.push(format!("{device} ({backend}, {precision})"));
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
                let days = now.saturating_sub(tuned.measured_at) / 86_400;
                let driver = if tuned.driver.is_empty() { "none" } else { &tuned.driver };
                let (version, days) = (&tuned.version, counted(days, "day"));
                lines.push(format!("measured by kolmo {version} {days} ago; driver {driver}"));
                let lanes =
                    [10_000, 1_000_000, 100_000_000].map(|n| format!("{} for {n} rows", tuned.lanes(n)));
                lines.push(format!("lanes of tridiagonal systems: {}", lanes.join(", ")));
                lines.extend(tuned.bytes_per_second.map(|speed| format!("copies {:.1} GB/s", speed / 1e9)));
                if !tuned.unknown.is_empty() {
                    lines.push(format!("unknown keys: {}", tuned.unknown.join(", ")));
                }
                // Looks the file up like a run, for the device of this name if there is one.
                let here = devices.iter().find(|l| l.device.name == *device && l.device.backend == *backend);
                let key = |driver: &str| Key { driver: driver.to_owned(), ..tuned.key.clone() };
                match here {
                    None => "no such device is here now".to_owned(),
                    Some(listing) => match settings::load(folder, &key(&listing.device.driver)) {
                        Found::Tuned(_) => format!("holds for {}", listing.device.spec),
                        Found::Unusable(why) => format!("expired: {why}"),
                        Found::Absent => "not under the name that a run looks for".to_owned(),
                    },
                }
            }
        };
        text += &format!("{}\n  {state}\n", path.display());
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
        shown.push(json!({ "file": path, "state": state, "tuned": found.ok() }));
    }
    print(text)?;
    write_object(report, &json!({ "command": "tune", "status": "met", "shown": shown }))
        .map(|()| Outcome::Met)
}
