//! `kolmo bench walk`.

use super::{finish, table};
use crate::cli::arguments::expect_some;
use crate::cli::commands::walk;
use crate::cli::prelude::*;
use crate::report::TableColumn;
use kolmo::bench::{self, Record};
use kolmo::lane::OpenOptions;
use kolmo::models::System;
use kolmo::walk::sequence::Sequence;

#[derive(Debug, Clone, Args)]
pub(crate) struct WalkBench {
    /// Systems, as for `kolmo walk`
    #[arg(value_name = "MATRIX", default_value = "random-dominant:100000,10,0.8,positive")]
    pub(crate) matrix: Vec<String>,
    /// Chains over all replicates, at least 16
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = whole::<u32>)]
    chains: u32,
    /// Steps per chain
    #[arg(long, value_name = "T", default_value_t = 73, value_parser = whole::<u32>)]
    length: u32,
    /// Sequences of points, comma-separated: sobol, philox
    #[arg(long, value_name = "S", value_delimiter = ',', default_value = "sobol")]
    sequence: Vec<Sequence>,
    /// Number of measurements
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    /// Also measure a single core of the CPU
    #[arg(long)]
    one_core: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(args: &WalkBench) -> Result<Status> {
    expect_some("--repeat", args.repeat as u64)?;
    expect(args.chains >= 16 && args.length > 0, "--chains must be 16 or more and --length 1 or more")?;
    let report = args.common.report_file(Ranks::ALONE)?;
    let mut records: Vec<Record> = Vec::new();
    for spec in &args.matrix {
        let (system, mut rhs) = walk::read(spec, &[], 0, true)?;
        let system = System { rhs: rhs.swap_remove(0), ..system };
        // The error of a rate needs no accurate reference.
        let reference = bench::walk::solution(&system, 1e-9)?;
        interrupt::check()?;
        for device in args.common.device.chunks(1) {
            let machine = args.common.open(device)?;
            measure(args, &system, &reference, &machine, &mut records)?;
        }
        if args.one_core {
            let options = OpenOptions::default().cpu_threads(Some(1));
            let machine = Machine::open(&[DeviceSpec::Cpu], &options)?;
            // Rates do not depend on the number of chains; fewer chains save time on one core.
            let args = &WalkBench { chains: (args.chains / 16).max(16), ..args.clone() };
            measure(args, &system, &reference, &machine, &mut records)?;
        }
    }
    let own: [TableColumn<'_, Record>; 1] =
        [("Msteps/s", &|r| r.steps_per_s.map_or(String::new(), |s| format!("{:.1}", s / 1e6)))];
    let table = table(&records, &[], &own);
    finish(report, &records, format_args!("{table}\n"))
}

fn measure(
    args: &WalkBench,
    system: &System,
    reference: &[f64],
    machine: &Machine,
    records: &mut Vec<Record>,
) -> Result<()> {
    let &WalkBench { chains, length, repeat, .. } = args;
    for &sequence in &args.sequence {
        interrupt::check()?;
        let what = bench::walk::Rate { chains, length, sequence, replicates: 16 };
        records.push(bench::walk::rate(machine, system, reference, what, repeat)?);
    }
    Ok(())
}
