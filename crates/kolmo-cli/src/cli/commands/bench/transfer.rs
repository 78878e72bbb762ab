//! `kolmo bench transfer`.

use super::finish;
use crate::cli::arguments::{expect_some, size};
use crate::cli::planning::lanes::LaneSets;
use crate::cli::prelude::*;
use kolmo::tridiagonal::lane_count::LANE_COUNTS;
use kolmo_bench::{self as bench, Record};

#[derive(Debug, Args)]
pub(crate) struct Transfer {
    /// Bytes moved one way, shared by the lanes, at least 4KiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    size: u64,
    /// Number of measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(args: &Transfer) -> Result<Outcome> {
    expect_some("--repeat", args.repeat as u64)?;
    let why = format_args!("--size {} B is too little to time; give 4KiB or more", args.size);
    expect(args.size >= 4096, why)?;
    let report = args.common.report_file(Ranks::ALONE)?;
    let counts = args.common.lanes.map_or(LANE_COUNTS.to_vec(), |lanes| vec![lanes]);
    let mut records: Vec<Record> = Vec::new();
    let mut rows = Vec::new();
    for spec in &args.common.device {
        let lanes = LaneSets::open(&args.common, spec, &counts)?;
        let mut own: Vec<Record> = Vec::new();
        for set in &lanes.sets {
            interrupt::check()?;
            for &locked in bench::kinds_of_memory(&set.lanes[0]) {
                own.extend(bench::transfer(set, args.size, args.repeat, locked)?);
            }
        }
        for case in bench::TRANSFERS {
            let of_case: Vec<&Record> = own.iter().filter(|r| r.case == case).collect();
            // Relative to the smallest number of lanes on this device.
            let speed = |r: &Record| of_case[0].seconds.median / r.seconds.median;
            rows.extend(of_case.iter().map(|r| ((*r).clone(), speed(r))));
        }
        records.extend(own);
    }
    let table = report::table(
        &rows,
        &[
            ("case", &|(r, _)| r.case.clone()),
            ("memory", &|(r, _)| if locked(r) { "page-locked" } else { "pageable" }.to_owned()),
            ("device", &|(r, _)| format!("{} ({})", r.device, r.backend)),
            ("lanes", &|(r, _)| r.lanes.to_string()),
            ("bytes", &|(r, _)| bytes(r.bytes)),
            ("median", &|(r, _)| seconds(r.seconds.median)),
            ("least", &|(r, _)| seconds(r.seconds.min)),
            ("GB/s", &|(r, _)| format!("{:.1}", r.gb_per_s)),
            ("speed", &|(_, speed)| format!("{speed:.2} x")),
        ],
    );
    finish(report, &records, format_args!("{table}\n"))
}

fn locked(record: &Record) -> bool {
    record.more.as_ref().is_some_and(|more| more["locked"] == true)
}
