//! `kolmo tridiagonal`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use clap::{Args, ValueEnum};

use super::progress::Waiting;
use super::{Common, Outcome, interrupt, say};
use crate::io::output::OutputFile;
use crate::io::tridiagonal::{SystemFile, read, read_array, right_hand_sides, write};
use crate::models;
use crate::report;
use crate::report::tridiagonal::{Run, Seconds};
use crate::tridiagonal::{Interface, Options, Pivot, Refine, Status, solve};
use crate::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Tridiagonal {
    /// A file (.npz, .csv, .mtx) or a built-in: random:N, toeplitz:N,DL,D,DU, laplace:N, each with ,BATCH
    system: String,
    /// Right-hand sides: .npy, .mtx, or text with one number a line
    #[arg(short, long, value_name = "FILE")]
    b: Option<PathBuf>,
    /// Rows of a block that one thread eliminates (the seed: 10); auto: units of 128 rows that 32 threads share
    #[arg(long, value_name = "M", default_value = "auto")]
    block: Block,
    /// Where the interface system is solved
    #[arg(long, value_name = "W", default_value = "auto")]
    interface: InterfaceArg,
    /// Exchange of rows: auto is none where every row is dominant, else scaled
    #[arg(long, value_name = "P", default_value = "auto")]
    pivot: PivotArg,
    /// Corrections by the residual: auto or a number
    #[arg(long, value_name = "K", default_value = "auto")]
    refine: RefineArg,
    /// Relative residual that counts as met
    #[arg(long, value_name = "E", default_value_t = 1e-12, allow_hyphen_values = true)]
    tolerance: f64,
    /// The first and the last unknown are neighbours: dl[0] and du[n-1] count
    #[arg(long)]
    cyclic: bool,
    /// Solve with the transposed matrix
    #[arg(long)]
    transpose: bool,
    /// How several systems lie in arrays of two dimensions: a system a row, or a system a column
    #[arg(long, value_name = "L", default_value = "strided")]
    layout: LayoutArg,
    /// Say what it would take, memory and time, by a pilot of some rows
    #[arg(long)]
    dry_run: bool,
    /// Seed of a built-in's random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Output file; its extension is the format: .npy, .csv or .txt
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy)]
struct Block(Option<usize>);

impl FromStr for Block {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(None)),
            s => match s.parse() {
                Ok(m @ 3..=1024) => Ok(Self(Some(m))),
                _ => Err(Error::Invalid(format!(
                    "'{s}' is no block: a block has 3 to 1024 rows, so that something lies between its ends; or auto"
                ))),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum InterfaceArg {
    Host,
    Device,
    Auto,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutArg {
    Strided,
    Interleaved,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PivotArg {
    None,
    Scaled,
    Auto,
}

#[derive(Debug, Clone, Copy)]
struct RefineArg(Refine);

impl FromStr for RefineArg {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(Refine::Auto)),
            s => match s.parse() {
                Ok(k @ 0..=100) => Ok(Self(Refine::Steps(k))),
                _ => Err(Error::Invalid(format!("'{s}' is no number of corrections; give auto or 0 to 100"))),
            },
        }
    }
}

/// Reads a system from a file, or makes a built-in one; and its name.
pub(super) fn system(
    spec: &str,
    cyclic: bool,
    interleaved: bool,
    b: Option<&Path>,
    seed: u64,
) -> Result<(String, SystemFile)> {
    let b = b.map(read_array).transpose()?;
    let Some(made) = models::tridiagonal(spec, seed) else {
        return Ok((spec.to_owned(), read(Path::new(spec), cyclic, interleaved, b)?));
    };
    let models::Tridiagonal { name, mut system } = made?;
    system.cyclic = cyclic;
    let d = [system.batch, system.n];
    let (b, shape, order) = right_hand_sides(&d[usize::from(system.batch == 1)..], b, interleaved)?;
    if !b.is_empty() {
        system.b = b;
    }
    Ok((name, SystemFile { system, shape, order, has_b: true }))
}

pub(super) fn run(args: &Tridiagonal) -> Result<Outcome> {
    let started = Instant::now();
    if !(args.tolerance > 0.0 && args.tolerance < 1.0) {
        return Err(Error::Invalid(format!(
            "--tolerance {} must lie between 0 and 1, both excluded",
            args.tolerance
        )));
    }
    let report = args.common.report.as_deref();
    if let (Some(output), Some(report)) = (args.output.as_deref(), report)
        && output == report
    {
        return Err(Error::Invalid(format!(
            "-o and --report both name {}; give them two files",
            output.display()
        )));
    }
    let format = match &args.output {
        None => "csv".to_owned(),
        Some(path) => match path.extension().and_then(|e| e.to_str()) {
            Some(e @ ("npy" | "csv" | "txt")) => e.to_owned(),
            other => {
                return Err(Error::File {
                    path: path.clone(),
                    reason: format!(
                        "'.{}' is no format of unknowns; use .npy, .csv or .txt",
                        other.unwrap_or("")
                    ),
                });
            }
        },
    };
    // Opened before the system is read: a mistyped name should not cost the reading of a large file.
    let output = args.output.as_deref().filter(|_| !args.dry_run).map(OutputFile::create).transpose()?;
    let report_file = report.map(OutputFile::create).transpose()?;
    let (mut lanes, precision) = args.common.open()?;
    let interleaved = matches!(args.layout, LayoutArg::Interleaved);
    let waiting = Waiting::new(args.common.quiet, "reading the system");
    let (name, mut file) = system(&args.system, args.cyclic, interleaved, args.b.as_deref(), args.seed)?;
    drop(waiting);
    interrupt::check()?;
    if args.transpose {
        file.system = file.system.transposed();
    }
    let system = &file.system;
    if format == "txt" && system.b.len() > 1 {
        return Err(Error::Invalid(format!(
            ".txt holds one right-hand side, and there are {}; use .csv or .npy",
            system.b.len()
        )));
    }
    if !file.has_b && !args.common.quiet {
        say(format_args!(
            "note: {name} has no right-hand side; it is 1 in every row (-b FILE gives another)"
        ));
    }
    let lanes_predicted = match args.common.lanes.0 {
        Some(_) => None,
        None => {
            let together = if system.cyclic { system.n } else { system.rows() };
            Some(super::lanes::predict(&args.common, &lanes, precision, together))
        }
    };
    if let Some(count) = lanes_predicted.filter(|&count| count > 1) {
        drop(lanes);
        lanes = args.common.open_lanes(&args.common.device.0, count)?.0;
    }
    let load = started.elapsed().as_secs_f64();

    let options = Options {
        block: args.block.0,
        interface: match args.interface {
            InterfaceArg::Host => Interface::Host,
            InterfaceArg::Device => Interface::Device,
            InterfaceArg::Auto => Interface::Auto,
        },
        pivot: match args.pivot {
            PivotArg::None => Pivot::None,
            PivotArg::Scaled => Pivot::Scaled,
            PivotArg::Auto => Pivot::Auto,
        },
        refine: args.refine.0,
        tolerance: args.tolerance,
    };
    if args.dry_run {
        return super::dry_run::tridiagonal(&lanes, precision, system, &options, &name, load, report_file);
    }
    let at = Instant::now();
    let waiting = Waiting::new(args.common.quiet, "solving");
    let solution = solve(&lanes, precision, system, &options)?;
    drop(waiting);
    let solved = at.elapsed().as_secs_f64();
    interrupt::check()?;
    match output {
        Some(out) => write(out, &format, &file, &solution.x)?,
        None if std::io::stdout().is_terminal() => glance(system, &solution.x)?,
        None => write(OutputFile::stdout(), &format, &file, &solution.x)?,
    }
    let run = Run {
        name: &name,
        system,
        tolerance: args.tolerance,
        devices: report::devices(&lanes, precision),
        lanes: lanes.len(),
        lanes_predicted,
        solution: &solution,
        seconds: Seconds { load, solve: solved, total: started.elapsed().as_secs_f64() },
    };
    if let Some(mut file) = report_file {
        writeln!(file, "{:#}", run.json()).map_err(|e| file.error(e))?;
        file.commit()?;
    }
    if !args.common.quiet {
        say(run.text().trim_end());
    }
    Ok(match solution.status {
        Status::Met => Outcome::Met,
        Status::NotMet => Outcome::NotMet,
    })
}

/// The ten largest unknowns, for a terminal.
fn glance(system: &crate::tridiagonal::System, x: &[Vec<f64>]) -> Result<()> {
    const GLANCE: usize = 10;
    let mut out = OutputFile::stdout();
    let mut order: Vec<(usize, usize)> =
        x.iter().enumerate().flat_map(|(k, x)| (0..x.len()).map(move |i| (k, i))).collect();
    let larger = |a: &(usize, usize), b: &(usize, usize)| x[b.0][b.1].abs().total_cmp(&x[a.0][a.1].abs());
    let all = order.len();
    if all > GLANCE {
        order.select_nth_unstable_by(GLANCE - 1, larger);
        order.truncate(GLANCE);
    }
    order.sort_by(larger);
    let mut text = String::new();
    for (k, i) in order {
        let system_ = if system.batch > 1 { format!("system {} ", i / system.n) } else { String::new() };
        let column = if x.len() > 1 { format!("right-hand side {k} ") } else { String::new() };
        text += &format!("{system_}{column}row {}  {}\n", i % system.n, x[k][i]);
    }
    if all > GLANCE {
        text += &format!("the {GLANCE} largest of {all}; -o FILE.npy, .csv or .txt writes all\n");
    }
    out.write_all(text.as_bytes()).map_err(|e| out.error(e))?;
    out.commit()
}
