//! `--lanes auto` of `kolmo tridiagonal`, and lanes in several numbers for what measures them.

use super::{Common, say};
use crate::report::grouped;
use kolmo::Result;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, Lane};
use kolmo::tridiagonal::lane_count::untuned;

/// Rows from which on the number of a device's lanes shows.
const MATTERS: usize = 1_000_000;

/// Lanes for each of the devices of `lanes`, one lane each, that share `rows` rows solved together: the largest number
/// that any of them asks for. Says why to those who want to know all, and that measuring may help where it may.
pub(super) fn predict(
    common: &Common,
    verbose: bool,
    lanes: &[Lane],
    precision: Precision,
    rows: usize,
) -> usize {
    let share = rows.div_ceil(lanes.len());
    let one = |lane: &Lane| {
        let device = lane.device();
        let what = format!("{} rows on {}", grouped(share as u64), device.spec);
        let tuned = super::tuned::of(device, precision, common.quiet);
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
    lanes.iter().map(one).max().unwrap_or(1)
}

/// Lanes of one device, in several numbers.
pub(super) struct LaneSets {
    lanes: Vec<Vec<Lane>>,
    counts: Vec<usize>,
    pub(super) precision: Precision,
}

impl LaneSets {
    /// Opens each of `counts`, ascending. Lanes of the CPU divide its threads, so each number of them has its own; of
    /// other devices the fewer are the first of the most.
    pub(super) fn open(common: &Common, spec: &DeviceSpec, counts: &[usize]) -> Result<Self> {
        let own = if *spec == DeviceSpec::Cpu { counts } else { &counts[counts.len() - 1..] };
        let mut opened = own.iter().map(|&count| common.open_lanes(std::slice::from_ref(spec), count));
        let (first, precision) = opened.next().expect("a number of lanes")?;
        let rest = opened.map(|lanes| lanes.map(|(lanes, _)| lanes)).collect::<Result<Vec<_>>>()?;
        let lanes = std::iter::once(first).chain(rest).collect();
        Ok(Self { lanes, counts: counts.to_vec(), precision })
    }

    /// A set for each number.
    pub(super) fn sets(&self) -> Vec<&[Lane]> {
        let most = &self.lanes[self.lanes.len() - 1];
        match self.lanes.len() {
            1 => self.counts.iter().map(|&count| &most[..count]).collect(),
            _ => self.lanes.iter().map(|lanes| &lanes[..]).collect(),
        }
    }

    /// How many lanes are open.
    pub(super) fn opened(&self) -> usize {
        self.lanes.iter().map(Vec::len).sum()
    }

    /// The first lane of the fewest.
    pub(super) fn first(&self) -> &Lane {
        &self.lanes[0][0]
    }
}
