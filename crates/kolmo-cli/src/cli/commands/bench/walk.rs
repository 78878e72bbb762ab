//! `kolmo bench walk`.

use super::finish;
use crate::cli::arguments::expect_some;
use crate::cli::commands::walk;
use crate::cli::prelude::*;
use kolmo::lane::OpenOptions;
use kolmo::models::System;
use kolmo::walk::ControlVariate;
use kolmo::walk::sequence::Sequence;
use kolmo_bench::{self as bench, Record};

#[derive(Debug, Clone, Args)]
pub(crate) struct Walk {
    /// Systems, as for `kolmo walk`
    #[arg(value_name = "MATRIX", default_value = MATRIX)]
    pub(crate) matrix: Vec<String>,
    /// Cases to measure, comma-separated
    #[arg(long, value_name = "C", value_delimiter = ',', default_value = "rate", value_parser = named(&CASES))]
    case: Vec<Case>,
    /// Chains per component, at least 16; in the case `rate` over all replicates
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = whole::<u32>)]
    chains: u32,
    /// Steps per chain
    #[arg(long, value_name = "T", default_value_t = 73, value_parser = whole::<u32>)]
    length: u32,
    /// Sequences of points for `rate`, comma-separated: sobol, halton, faure, philox, mtgp32
    #[arg(long, value_name = "S", value_delimiter = ',', default_value = "sobol")]
    sequence: Vec<Sequence>,
    /// Number of measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    /// Exponents K of the numbers of chains 2^K for `accuracy`, comma-separated, 0 to 24
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "8,10,12,14", value_parser = clap::value_parser!(u32).range(0..=24))]
    exponents: Vec<u32>,
    /// Control variates for `accuracy`, comma-separated, as for `kolmo walk`
    #[arg(long, alias = "control", value_name = "C", value_delimiter = ',', default_value = "jacobi")]
    sweeps: Vec<ControlVariate>,
    /// Number of components for `sharing`
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<u32>)]
    components: u32,
    /// Also measure a single core of the CPU
    #[arg(long)]
    one_core: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    Rate,
    Accuracy,
    Sharing,
    Grids,
}

const CASES: [(&str, &str, Case); 4] = [
    ("rate", "Steps per second", Case::Rate),
    ("accuracy", "Error of each sequence over the number of chains", Case::Accuracy),
    ("sharing", "New points for each component, compared with one set for all components", Case::Sharing),
    ("grids", "Grids of different shapes, and one thread per unknown", Case::Grids),
];

/// Default system.
const MATRIX: &str = "random-dominant:100000,10,0.8,positive";

pub(crate) fn run(args: &Walk) -> Result<Outcome> {
    expect_some("--repeat", args.repeat as u64)?;
    expect(args.chains >= 16 && args.length > 0, "--chains must be 16 or more and --length 1 or more")?;
    let report = args.common.report_file(Ranks::ALONE)?;
    let mut records: Vec<Record> = Vec::new();
    for spec in &args.matrix {
        let system = read(spec)?;
        // The error of a rate needs no accurate reference.
        let fine = args.case.contains(&Case::Accuracy);
        let reference = match args.case.iter().any(|&case| case != Case::Grids) {
            true => bench::walk::solution(&system, if fine { 1e-14 } else { 1e-9 })?.0,
            false => Vec::new(),
        };
        interrupt::check()?;
        for device in args.common.device.chunks(1) {
            let machine = args.common.open(device)?;
            measure(args, &system, &reference, &machine, &mut records)?;
        }
        if args.one_core {
            let options = OpenOptions::default().cpu_threads(Some(1));
            let machine = Machine::open(&[DeviceSpec::Cpu], &options)?;
            // Rates do not depend on the number of chains; fewer chains save time on one core.
            let args = &Walk { chains: (args.chains / 16).max(16), ..args.clone() };
            measure(args, &system, &reference, &machine, &mut records)?;
        }
    }
    let table = table(&records);
    finish(report, &records, format_args!("{table}\n"))
}

fn read(spec: &str) -> Result<System> {
    let (system, mut rhs) = walk::read(spec, &[], 0, true)?;
    Ok(System { rhs: rhs.swap_remove(0), ..system })
}

fn measure(
    args: &Walk,
    system: &System,
    reference: &[f64],
    machine: &Machine,
    records: &mut Vec<Record>,
) -> Result<()> {
    let &Walk { chains, length, components, repeat, .. } = args;
    for case in &args.case {
        interrupt::check()?;
        match case {
            Case::Rate => {
                for &sequence in &args.sequence {
                    let what = bench::walk::Rate { chains, length, sequence, replicates: 16 };
                    records.push(bench::walk::rate(machine, system, reference, what, repeat)?);
                }
            }
            Case::Accuracy => {
                let (exponents, sweeps) = (&args.exponents, &args.sweeps);
                records.extend(bench::walk::accuracy(machine, system, reference, exponents, sweeps)?);
            }
            Case::Sharing => {
                let what = bench::walk::Sharing { components, chains, length };
                records.extend(bench::walk::sharing(machine, system, reference, what, repeat)?);
            }
            Case::Grids => records.extend(bench::walk::grids(machine, system, chains, length, repeat)?),
        }
    }
    Ok(())
}

fn table(records: &[Record]) -> comfy_table::Table {
    let first =
        |r: &Record| records.iter().find(|f| f.case == r.case).map_or(f64::NAN, |first| first.seconds.median);
    report::table(
        records,
        &[
            ("case", &|r| r.case.clone()),
            ("device", &|r| format!("{} ({})", r.device, r.backend)),
            ("precision", &|r| r.precision.clone()),
            ("median", &|r| seconds(r.seconds.median)),
            ("least", &|r| seconds(r.seconds.min)),
            ("Msteps/s", &|r| r.steps_per_s.map_or(String::new(), |s| format!("{:.1}", s / 1e6))),
            ("speed", &|r| format!("{:.2} x", first(r) / r.seconds.median)),
            ("error", &|r| format!("{:.1e}", r.relative_error)),
            ("", &remarks),
        ],
    )
}

fn remarks(r: &Record) -> String {
    let more = |key: &str| r.more.as_ref().and_then(|m| m.get(key));
    let number = |key: &str| more(key).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let method = more("method").and_then(|m| m.as_str()).unwrap_or("");
    if more("rmse").is_some() {
        let sweeps = match number("sweeps") {
            sweeps if sweeps > 0.0 => format!(" {sweeps}"),
            _ => String::new(),
        };
        let chains = more("chains").map_or(String::new(), ToString::to_string);
        let gain = number("times_smaller_than_philox");
        format!("{method}{sweeps} N={chains}: {gain:.2} x smaller than philox")
    } else {
        String::new()
    }
}
