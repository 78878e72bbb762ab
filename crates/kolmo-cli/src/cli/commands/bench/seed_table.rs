//! `kolmo bench seed-table`.

use std::io::Write;

use clap::Args;

use crate::cli::arguments::{Common, PrecisionArg, whole};
use crate::cli::commands::transient;
use crate::cli::outcome::Outcome;
use crate::cli::output::write_report;
use crate::cli::planning::estimate;
use crate::cli::terminal::{interrupt, say};
use crate::report::{bytes, grouped, seconds};
use kolmo::internals::ActivitySeconds;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::output::OutputFile;
use kolmo::transient::Observer;
use kolmo::{Error, Machine, Result};
use kolmo_bench::seed_table::{
    Cell, Column, GPU_BYTES, MACHINE, Published, Row, SIZES, Solved, Wanted, published,
};

#[derive(Debug, Args)]
pub(crate) struct SeedTable {
    /// Sizes K of the chains wlan:K,6, comma-separated
    #[arg(long, value_name = "K[,K…]", value_delimiter = ',', default_values_t = SIZES, value_parser = whole::<usize>)]
    sizes: Vec<usize>,
    /// Times t > 0 in milliseconds, comma-separated
    #[arg(long, value_name = "T[,T…]", value_delimiter = ',', default_values_t = [10.0, 40.0])]
    times: Vec<f64>,
    /// Bound on the l1 error, 0 < E < 1
    #[arg(long, value_name = "E", default_value = "1e-5")]
    epsilon: f64,
    /// Largest alpha t of an interval of the subdivided method, above 0, at most 700
    #[arg(long, value_name = "THETA", default_value_t = 100.0)]
    theta: f64,
    /// Seconds above which results of the subdivided method are extrapolated from a few products
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    #[command(flatten)]
    pub(crate) common: Common,
}

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        interrupt::check()
    }

    fn result(&mut self, _: usize, _: &[f64]) -> Result<()> {
        Ok(())
    }
}

/// Columns of the table, in order.
const COLUMNS: [Column; 5] =
    [Column::Cpu, Column::OneSubdivided, Column::One, Column::SeveralFull, Column::Several];

pub(crate) fn run(args: &SeedTable) -> Result<Outcome> {
    if matches!(args.common.precision, PrecisionArg::F32) {
        return Err(Error::Invalid(
            "the table of 2012 is in double precision; leave out --precision f32".to_owned(),
        ));
    }
    for &t in &args.times {
        if !(t > 0.0 && t.is_finite()) {
            return Err(Error::Invalid(format!("--times: {t} is no time; give numbers above 0")));
        }
    }
    if args.sizes.is_empty() || args.times.is_empty() {
        return Err(Error::Invalid("--sizes and --times name one number or more each".to_owned()));
    }
    if !(args.epsilon > 0.0 && args.epsilon < 1.0 && args.theta > 0.0 && args.theta <= 700.0) {
        return Err(Error::Invalid(format!(
            "--epsilon {} must lie between 0 and 1, and --theta {} between 0 and 700",
            args.epsilon, args.theta
        )));
    }
    let report = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let wanted =
        Wanted { times: &args.times, epsilon: args.epsilon, theta: args.theta, seconds: args.seconds };
    // Opens every device once before the measurements, so that errors show early.
    let common = &Common { precision: PrecisionArg::F64, ..args.common.clone() };
    let all = common.open()?.lanes;
    let several = all.len() > 1;
    let specs: Vec<String> = all.iter().map(|lane| lane.device().spec.clone()).collect();
    drop(all);
    let first = &args.common.device.0[..1];
    let one = || Ok(common.open_all(first)?.first(1));
    let name = |machine: Result<Machine>| machine.map(|machine| machine.lanes[0].device().name.clone());
    let names = [name(cpu(common))?, name(one())?];
    let (mut cells, mut notes): (Vec<Cell>, Vec<String>) = (Vec::new(), Vec::new());
    for &k in &args.sizes {
        let case = format!("wlan:{k},6");
        let chain = transient::model(&case, None)?;
        let row = Row::new(&cpu(common)?, case.clone(), k, &*chain.transitions)?;
        if !args.common.quiet {
            let (mut time, mut most) = (0.0, 0);
            for machine in [cpu(common)?, one()?] {
                if let Some((_, all, bytes)) =
                    estimate::of_chain(&machine, &chain, &args.times, args.epsilon)?
                {
                    // Algorithm 1 takes three kernels per term, and is extrapolated above a time
                    // limit.
                    time += all + (3.0 * all).min(args.seconds * args.times.len() as f64);
                    most = most.max(bytes);
                }
            }
            estimate::forecast(common, &case, time, most);
        }
        let mut measure = |open: &dyn Fn() -> Result<Machine>, column: Column| -> Result<()> {
            interrupt::check()?;
            match open().and_then(|machine| row.measure(&machine, column, &wanted, &mut Silent)) {
                Ok(measured) => cells.extend(measured),
                Err(e @ Error::OutOfMemory { .. }) => notes.push(format!("{case}, {}: {e}", column.name())),
                Err(e) => return Err(e),
            }
            if !args.common.quiet {
                say(format_args!("{case}: {}", column.name()));
            }
            Ok(())
        };
        measure(&|| cpu(common), Column::Cpu)?;
        measure(&one, Column::OneSubdivided)?;
        measure(&one, Column::One)?;
        if several {
            measure(&|| common.open(), Column::SeveralFull)?;
            measure(&|| common.open(), Column::Several)?;
        }
    }
    write_report(report, cells.iter().map(|cell| serde_json::json!(cell)))?;
    let mut out = OutputFile::stdout();
    let text = text(args, &cells, &notes, &specs, &names);
    writeln!(out, "{text}").map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

/// Opens the CPU with all its threads.
fn cpu(common: &Common) -> Result<Machine> {
    let memory_limit = common.memory_limit.map(|size| size.0);
    Machine::open(
        &[DeviceSpec::Cpu],
        &OpenOptions { memory_limit, checked: common.checked, ..OpenOptions::default() },
    )
}

fn table(head: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(head.iter().copied());
    table
}

fn text(args: &SeedTable, cells: &[Cell], notes: &[String], specs: &[String], names: &[String; 2]) -> String {
    let mut out = format!(
        "CPU: {}\none: {} ({})\nall: {}\nseed: Algorithms 1 and 2 of Karwacki, Bylina, Bylina (FedCSIS 2012); ours: one sweep, \
         halos. epsilon = {:e}; seconds of all products, ~ where they are in proportion to fewer; in brackets their \
         number, % the exchange's share.\n",
        names[0],
        specs[0],
        names[1],
        specs.join(", "),
        args.epsilon
    );
    for &t in &args.times {
        let mut head = vec!["n", "nnz"];
        head.extend(COLUMNS.map(Column::name));
        head.extend(["CPU/one", "CPU/all seed", "CPU/all ours", "one/all ours"]);
        let mut table = table(&head);
        let mut alpha_t = 0.0;
        for &k in &args.sizes {
            let own: Vec<&Cell> =
                cells.iter().filter(|c| c.t == t && c.case == format!("wlan:{k},6")).collect();
            let Some(first) = own.first() else { continue };
            alpha_t = first.alpha_t;
            let of = |column: Column| own.iter().find(|c| c.column == column);
            let mut line = vec![grouped(first.n as u64), grouped(first.nnz)];
            line.extend(COLUMNS.map(|column| of(column).map_or("–".to_owned(), |c| cell(c))));
            let ratio = |a: Column, b: Column| match (of(a), of(b)) {
                (Some(a), Some(b)) => format!("{:.2}", a.seconds / b.seconds),
                _ => "–".to_owned(),
            };
            line.push(ratio(Column::Cpu, Column::OneSubdivided));
            line.push(ratio(Column::Cpu, Column::SeveralFull));
            line.push(ratio(Column::Cpu, Column::Several));
            line.push(ratio(Column::One, Column::Several));
            table.add_row(line);
        }
        out.push_str(&format!("\nt = {t} ms, alpha t = {alpha_t:.1}\n{table}\n"));
    }
    out.push_str(&format!(
        "\nSeconds of whole solutions, ours: from a matrix on the devices to probabilities on the host\n{}\n",
        solutions(args, cells)
    ));
    out.push_str(&format!("\nPublished in 2012, t = 10: {MACHINE}\n{}\n", published_table()));
    out.push_str(&format!(
        "\nMemory of one device, and the largest of each of all\n{}\n",
        capacity(args, cells)
    ));
    for note in notes {
        out.push_str(&format!("does not fit: {note}\n"));
    }
    if specs.len() == 1 {
        out.push_str(
            "one device was named: the columns of all need two or more, such as --device cuda:0,cuda:1\n",
        );
    }
    out.trim_end().to_owned()
}

fn cell(c: &Cell) -> String {
    let about = if c.timed < c.products { "~" } else { "" };
    let share = c.communication_share.map_or(String::new(), |s| format!(" {:.0} %", 100.0 * s));
    format!("{about}{} [{}]{share}", seconds(c.seconds), c.products)
}

/// Table of the phases of whole uniformization runs. The rest is mostly freeing memory.
fn solutions(args: &SeedTable, cells: &[Cell]) -> comfy_table::Table {
    let mut table =
        table(&["n", "t", "", "whole", "start", "products", "looks", "results", "rest", "one/all whole"]);
    for (&k, &t) in args.sizes.iter().flat_map(|k| args.times.iter().map(move |t| (k, t))) {
        let of = |column: Column| {
            let own = |c: &&Cell| c.column == column && c.t == t && c.case == format!("wlan:{k},6");
            cells.iter().find(own).and_then(|c| Some((c.n, c.solution?)))
        };
        let one = of(Column::One);
        for (column, of) in [(Column::One, one), (Column::Several, of(Column::Several))] {
            let Some((n, Solved { whole, activities })) = of else { continue };
            let ActivitySeconds { start, products, checks, results } = activities;
            let rest = whole - start - products - checks - results;
            let mut line = vec![grouped(n as u64), t.to_string(), column.name().to_owned()];
            line.extend([whole, start, products, checks, results, rest].map(seconds));
            line.push(match one {
                Some((_, one)) if column == Column::Several => format!("{:.2}", one.whole / whole),
                _ => "–".to_owned(),
            });
            table.add_row(line);
        }
    }
    table
}

fn published_table() -> comfy_table::Table {
    let mut table = table(&["n/1e6", "nnz/1e6", "CPU s", "one GPU s", "two GPUs s", "CPU/one", "CPU/two"]);
    for row in SIZES.iter().filter_map(|&k| published(k)) {
        let Published { n, nnz, cpu, gpu, two_gpus } = row;
        table.add_row([
            n.to_string(),
            nnz.to_string(),
            cpu.to_string(),
            gpu.map_or("–".to_owned(), |s| s.to_string()),
            two_gpus.to_string(),
            gpu.map_or("–".to_owned(), |s| format!("{:.2}", cpu / s)),
            format!("{:.2}", cpu / two_gpus),
        ]);
    }
    table
}

/// Table of the memory of one device, in 2012 and on this machine.
///
/// In 2012 a row of six entries took 8n elements on one GPU and 5n on each of two, not counting
/// column numbers of 4 bytes: the matrix and two vectors.
fn capacity(args: &SeedTable, cells: &[Cell]) -> comfy_table::Table {
    let mut table = table(&[
        "n",
        "2012: one",
        "2012: each of two",
        "here: one, seed",
        "here: one, ours",
        "here: each of all, ours",
        "a state: one, each of all",
    ]);
    let fits = |b: u64| format!("{}{}", bytes(b), if b > GPU_BYTES { " > 3 GiB" } else { "" });
    for &k in &args.sizes {
        let of =
            |column: Column| cells.iter().find(|c| c.column == column && c.case == format!("wlan:{k},6"));
        let Some(any) = COLUMNS.iter().find_map(|&c| of(c)) else { continue };
        let n = any.n as u64;
        let held = |column: Column| of(column).map_or("–".to_owned(), |c| fits(c.device_bytes));
        let a_state = |column: Column| {
            of(column).map_or("–".to_owned(), |c| format!("{:.1} B", c.device_bytes as f64 / n as f64))
        };
        table.add_row([
            grouped(n),
            fits(n * (6 * 12 + 2 * 8)),
            fits(n * (3 * 12 + 2 * 8)),
            held(Column::OneSubdivided),
            held(Column::One),
            held(Column::Several),
            format!("{}, {}", a_state(Column::One), a_state(Column::Several)),
        ]);
    }
    table
}
