//! `kolmo bench walk`.

use std::io::Write;

use clap::{Args, ValueEnum};

use super::{Common, Outcome, interrupt};
use crate::bench::{self, Record};
use crate::io::output::OutputFile;
use crate::kernel::Precision;
use crate::lane::{DeviceSpec, Lane, OpenOptions, open};
use crate::models::System;
use crate::report::seconds;
use crate::walk::sequence::Sequence;
use crate::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Walk {
    /// Systems, as in `kolmo walk`
    #[arg(value_name = "MATRIX", default_value = "random-dominant:100000,10,0.8,positive")]
    matrix: Vec<String>,
    /// What to measure
    #[arg(long, value_name = "C", value_delimiter = ',', default_value = "rate")]
    case: Vec<Case>,
    /// Chains of a measurement of the rate
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    chains: u32,
    /// Steps of a chain
    #[arg(long, value_name = "T", default_value_t = 73)]
    length: u32,
    /// Where the points come from
    #[arg(long, value_name = "S", value_delimiter = ',', default_value = "sobol")]
    sequence: Vec<Sequence>,
    /// Measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10)]
    repeat: usize,
    /// Also measure one core of the CPU
    #[arg(long)]
    one_core: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Steps a second
    Rate,
}

pub(super) fn run(args: &Walk) -> Result<Outcome> {
    if args.repeat == 0 {
        return Err(Error::Invalid("--repeat 0 measures nothing; give 1 or more".to_owned()));
    }
    let mut report = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let mut records: Vec<Record> = Vec::new();
    for spec in &args.matrix {
        let (mut system, mut rhs) = super::walk::read(spec, &[], 0)?;
        system.rhs = rhs.swap_remove(0);
        let (reference, _) = bench::walk::solution(&system)?;
        interrupt::check()?;
        for device in args.common.device.0.chunks(1) {
            let (lanes, precision) = args.common.open_all(device)?;
            rates(args, &system, &reference, &lanes, precision, &mut records)?;
        }
        if args.one_core {
            let options = OpenOptions { cpu_threads: Some(1), ..OpenOptions::default() };
            let (lanes, precision) = open(&[DeviceSpec::Cpu], &options)?;
            rates(args, &system, &reference, &lanes, precision, &mut records)?;
        }
    }
    if let Some(mut file) = report.take() {
        for record in &records {
            writeln!(file, "{}", serde_json::json!(record)).map_err(|e| file.error(e))?;
        }
        file.commit()?;
    }
    let mut out = OutputFile::stdout();
    writeln!(out, "{}", table(&records)).map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

fn rates(
    args: &Walk,
    system: &System,
    reference: &[f64],
    lanes: &[Lane],
    precision: Precision,
    records: &mut Vec<Record>,
) -> Result<()> {
    for case in &args.case {
        match case {
            Case::Rate => {
                for &sequence in &args.sequence {
                    let what =
                        bench::walk::Rate { chains: args.chains, length: args.length, sequence, replicates: 16 };
                    records.push(bench::walk::rate(lanes, precision, system, reference, what, args.repeat)?);
                    interrupt::check()?;
                }
            }
        }
    }
    Ok(())
}

fn table(records: &[Record]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(["case", "device", "precision", "median", "least", "Msteps/s", "speed", "error"]);
    for r in records {
        let first = records.iter().find(|f| f.case == r.case).unwrap_or(r);
        table.add_row([
            r.case.clone(),
            format!("{} ({})", r.device, r.backend),
            r.precision.clone(),
            seconds(r.seconds.median),
            seconds(r.seconds.min),
            r.steps_per_s.map_or(String::new(), |s| format!("{:.1}", s / 1e6)),
            format!("{:.2} x", first.seconds.median / r.seconds.median),
            format!("{:.1e}", r.relative_error),
        ]);
    }
    table
}
