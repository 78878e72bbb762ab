//! `kolmo bench seed-table`.

use super::finish;
use crate::cli::commands::transient;
use crate::cli::prelude::*;
use kolmo::lane::OpenOptions;
use kolmo_bench::seed_table::{Cell, Column, MACHINE, Published, Row, SIZES, Wanted, published};

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

/// Columns of the table, in order.
const COLUMNS: [Column; 5] =
    [Column::Cpu, Column::OneSubdivided, Column::One, Column::SeveralFull, Column::Several];

pub(crate) fn run(args: &SeedTable) -> Result<Outcome> {
    let &SeedTable { epsilon, theta, seconds, .. } = args;
    let why = "the table of 2012 is in double precision; leave out --precision f32";
    expect(args.common.precision != Some(Precision::F32), why)?;
    for &t in &args.times {
        let why = format_args!("invalid time {t} in --times: expected finite numbers above 0");
        expect(t > 0.0 && t.is_finite(), why)?;
    }
    let why = "--sizes and --times name one number or more each";
    expect(!args.sizes.is_empty() && !args.times.is_empty(), why)?;
    let within = epsilon > 0.0 && epsilon < 1.0 && theta > 0.0 && theta <= 700.0;
    expect(
        within,
        format_args!("--epsilon {epsilon} must lie between 0 and 1, and --theta {theta} between 0 and 700"),
    )?;
    let report = args.common.report_file(Ranks::ALONE)?;
    let wanted = Wanted { times: &args.times, epsilon, theta, seconds };
    // Opens every device once before the measurements, so that errors show early.
    let common = &Common { precision: Some(Precision::F64), ..args.common.clone() };
    let all = common.open(&common.device)?.lanes;
    let several = all.len() > 1;
    let specs: Vec<String> = all.iter().map(|lane| lane.device().spec.clone()).collect();
    drop(all);
    let first = &common.device[..1];
    let one = || Ok(common.open(first)?.first(1));
    let name = |machine: Result<Machine>| machine.map(|machine| machine.lanes[0].device().name.clone());
    let names = [name(cpu(common))?, name(one())?];
    let (mut cells, mut notes): (Vec<Cell>, Vec<String>) = (Vec::new(), Vec::new());
    for &k in &args.sizes {
        let case = format!("wlan:{k},6");
        let chain = transient::model(&case, None, false)?;
        let row = Row::new(&cpu(common)?, case.clone(), k, &*chain.transitions)?;
        let mut measure = |open: &dyn Fn() -> Result<Machine>, column: Column| -> Result<()> {
            interrupt::check()?;
            match open()
                .and_then(|machine| row.measure(&machine, column, &wanted, &mut |_, _| interrupt::check()))
            {
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
            measure(&|| common.open(&common.device), Column::SeveralFull)?;
            measure(&|| common.open(&common.device), Column::Several)?;
        }
    }
    let text = text(args, &cells, &notes, &specs, &names);
    finish(report, &cells, format_args!("{text}\n"))
}

/// Opens the CPU with all its threads.
fn cpu(common: &Common) -> Result<Machine> {
    let Common { memory_limit, checked, .. } = *common;
    Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default().memory_limit(memory_limit).checked(checked))
}

/// Measured cells of the table that belong to the chain wlan:k,6.
fn of_size(cells: &[Cell], k: usize) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |c| c.case == format!("wlan:{k},6"))
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
        let mut table = report::headed(head);
        let mut alpha_t = 0.0;
        for &k in &args.sizes {
            let own: Vec<&Cell> = of_size(cells, k).filter(|c| c.t == t).collect();
            let Some(first) = own.first() else { continue };
            alpha_t = first.alpha_t;
            let of = |column: Column| own.iter().find(|c| c.column == column);
            let mut line = vec![grouped(first.n as u64), grouped(first.nnz)];
            line.extend(COLUMNS.map(|column| of(column).map_or("–".to_owned(), |c| cell(c))));
            let ratio = |a: Column, b: Column| match (of(a), of(b)) {
                (Some(a), Some(b)) => format!("{:.2}", a.seconds / b.seconds),
                _ => "–".to_owned(),
            };
            let of_cpu = [Column::OneSubdivided, Column::SeveralFull, Column::Several];
            line.extend(of_cpu.map(|column| ratio(Column::Cpu, column)));
            line.push(ratio(Column::One, Column::Several));
            table.add_row(line);
        }
        out.push_str(&format!("\nt = {t} ms, alpha t = {alpha_t:.1}\n{table}\n"));
    }
    out.push_str(&format!("\nPublished in 2012, t = 10: {MACHINE}\n{}\n", published_table()));
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

fn published_table() -> comfy_table::Table {
    let rows: Vec<Published> = SIZES.iter().filter_map(|&k| published(k)).collect();
    let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    report::table(
        &rows,
        &[
            ("n/1e6", &|r| r.n.to_string()),
            ("nnz/1e6", &|r| r.nnz.to_string()),
            ("CPU s", &|r| r.cpu.to_string()),
            ("one GPU s", &|r| known(r.gpu.map(|s| s.to_string()))),
            ("two GPUs s", &|r| r.two_gpus.to_string()),
            ("CPU/one", &|r| known(r.gpu.map(|s| format!("{:.2}", r.cpu / s)))),
            ("CPU/two", &|r| format!("{:.2}", r.cpu / r.two_gpus)),
        ],
    )
}
