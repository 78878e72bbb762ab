//! `--lanes auto` of `kolmo tridiagonal`, and lanes in several numbers for what measures them.

use super::{Common, say};
use crate::report::grouped;
use kolmo::lane::{DeviceSpec, Lane};
use kolmo::tridiagonal::lane_count::untuned;
use kolmo::{Machine, Result};

/// Rows from which on the number of a device's lanes shows.
const MATTERS: usize = 1_000_000;

/// Lanes for each of the devices of `machine`, one lane each, that share `rows` rows solved together: the largest number
/// that any of them asks for. Says why to those who want to know all, and that measuring may help where it may.
pub(super) fn predict(common: &Common, verbose: bool, machine: &Machine, rows: usize) -> usize {
    let share = rows.div_ceil(machine.lanes.len());
    let one = |lane: &Lane| {
        let device = lane.device();
        let what = format!("{} rows on {}", grouped(share as u64), device.spec);
        let tuned = super::tuned::of(device, machine.precision, common.quiet);
        // A second lane neither widens the cores' memory nor helps systems that are solved in a moment.
        let matters = tuned.is_none() && !device.on_host_cores() && share >= MATTERS;
        let (count, why) = match tuned {
            Some(tuned) => (tuned.lanes(share), "as `kolmo tune` measured".to_owned()),
            None => {
                let default = untuned(device.on_host_cores(), device.queued_copies, share);
                (default, format!("by default; `kolmo tune --device {}` measures it", device.spec))
            }
        };
        if verbose || (matters && !common.quiet) {
            let lanes = if count == 1 { "lane" } else { "lanes" };
            say(format_args!("{count} {lanes} for {what}, {why}"));
        }
        count
    };
    machine.lanes.iter().map(one).max().unwrap_or(1)
}

/// Machines of one device, with several numbers of lanes.
pub(super) struct LaneSets {
    pub(super) sets: Vec<Machine>,
    /// Number of lanes that are open.
    pub(super) opened: usize,
}

impl LaneSets {
    /// Opens each of `counts`, ascending. Lanes of the CPU divide its threads, so each number of them has its own; of
    /// other devices the fewer are the first of the most.
    pub(super) fn open(common: &Common, spec: &DeviceSpec, counts: &[usize]) -> Result<Self> {
        let own = if *spec == DeviceSpec::Cpu { counts } else { &counts[counts.len() - 1..] };
        let open = |&count: &usize| common.open_lanes(std::slice::from_ref(spec), count);
        let opened = own.iter().map(open).collect::<Result<Vec<_>>>()?;
        let number = opened.iter().map(|machine| machine.lanes.len()).sum();
        let sets = match &opened[..] {
            [most] => counts.iter().map(|&count| most.first(count)).collect(),
            _ => opened,
        };
        Ok(Self { sets, opened: number })
    }
}
