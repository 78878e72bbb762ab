//! `--lanes auto` of `kolmo tridiagonal`.

use super::{Common, say};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::report::grouped;
use crate::tridiagonal::lane_count::store::{self, Found, Key};
use crate::tridiagonal::lane_count::untuned;

/// Lanes for each of the devices of `lanes`, one lane each, that share `rows` rows solved together: the largest number
/// that any of them asks for.
pub(super) fn predict(common: &Common, lanes: &[Lane], precision: Precision, rows: usize) -> usize {
    let share = rows.div_ceil(lanes.len());
    let one = |lane: &Lane| {
        let device = lane.device();
        let what = format!("{} rows on {}", grouped(share as u64), device.spec);
        let found = match store::folder() {
            Some(folder) => store::load(&folder, &Key::new(device, precision)),
            None => Found::Absent,
        };
        let default = untuned(device.backend, device.software, share);
        let (count, why) = match found {
            Found::Tuned(tuned) => (tuned.lanes(share), "as `kolmo tune` measured".to_owned()),
            Found::Absent => {
                (default, format!("by default; `kolmo tune --device {}` measures it", device.spec))
            }
            Found::Unusable(why) => {
                (default, format!("by default; `kolmo tune --device {}` renews {why}", device.spec))
            }
        };
        if !common.quiet {
            let lanes = if count == 1 { "lane" } else { "lanes" };
            say(format_args!("{count} {lanes} for {what}, {why}"));
        }
        count
    };
    lanes.iter().map(one).max().unwrap_or(1)
}
