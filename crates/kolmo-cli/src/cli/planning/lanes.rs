//! `--lanes auto` of `kolmo tridiagonal`, and sets of lanes for measurements.

use crate::cli::planning::tuning_store;
use crate::cli::prelude::*;
use kolmo::lane::Lane;
use kolmo::tridiagonal::lane_count::untuned;

/// Minimum number of rows for which the number of lanes of a device matters.
const MATTERS: usize = 1_000_000;

/// Predicts the best number of lanes per device for `rows` rows that are solved together.
///
/// `machine` has one lane on each device; the result is the largest number over its devices. Prints
/// the reason if `verbose`, and suggests `kolmo tune` where measuring may help.
pub(crate) fn predict(common: &Common, verbose: bool, machine: &Machine, rows: usize) -> usize {
    let share = rows.div_ceil(machine.lanes.len());
    let one = |lane: &Lane| {
        let device = lane.device();
        let tuned = tuning_store::of(device, machine.precision, common.quiet);
        // A second lane neither adds memory bandwidth on the CPU nor speeds up small systems.
        let matters = tuned.is_none() && !device.on_host_cores() && share >= MATTERS;
        let why = match &tuned {
            Some(_) => "as `kolmo tune` measured".to_owned(),
            None => format!("by default; `kolmo tune --device {}` measures it", device.spec),
        };
        let untuned = || untuned(device.on_host_cores(), device.queued_copies, share);
        let count = tuned.map_or_else(untuned, |tuned| tuned.lanes(share));
        if verbose || (matters && !common.quiet) {
            let (lanes, rows) = (counted(count as u64, "lane"), grouped(share as u64));
            say(format_args!("{lanes} for {rows} rows on {}, {why}", device.spec));
        }
        count
    };
    machine.lanes.iter().map(one).max().unwrap_or(1)
}

/// Machines on one device that differ in their number of lanes.
pub(crate) struct LaneSets {
    pub(crate) sets: Vec<Machine>,
    /// Total number of open lanes.
    pub(crate) opened: usize,
}

impl LaneSets {
    /// Opens a machine for each of `counts`, ascending.
    ///
    /// Lanes of the CPU divide its threads, so each count has its own lanes. On other devices a
    /// smaller set consists of the first lanes of the largest one.
    pub(crate) fn open(common: &Common, spec: &DeviceSpec, counts: &[usize]) -> Result<Self> {
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
