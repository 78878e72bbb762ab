//! The command line: arguments in, library call, report out.

mod bench;
mod bench_lanes;
mod bench_transfer;
mod bench_walk;
mod devices;
mod generate;
mod interrupt;
mod lanes;
mod output;
mod progress;
mod seed_table;
mod transient;
mod tridiagonal;
mod tune;
mod walk;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::kernel::Precision;
use crate::lane::{DeviceSpec, Lane, OpenOptions, open};
use crate::{Error, Result};

/// Transient probabilities of continuous-time Markov chains on any GPU, and on the CPU where there is none.
#[derive(Debug, Parser)]
#[command(name = "kolmo", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Probabilities of a continuous-time Markov chain at given times
    Transient(Box<transient::Transient>),
    /// Chosen components of x in A x = b, by quasi-random walks
    Walk(Box<walk::Walk>),
    /// Solve tridiagonal systems
    Tridiagonal(Box<tridiagonal::Tridiagonal>),
    /// What this build can run on here
    Devices(devices::Devices),
    /// Measure how many lanes this machine's devices should use, and keep it
    Tune(tune::Tune),
    /// Compare devices on the same work
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write a built-in model to a file
    Generate(generate::Generate),
}

/// Where and how a command computes.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Devices: auto, cpu, wgpu:N, wgpu:all, or a comma list of them
    #[arg(long, value_name = "LIST", default_value = "auto")]
    device: Devices,
    /// auto is f64, unless a device named here lacks it
    #[arg(long, value_name = "P", default_value = "auto")]
    precision: PrecisionArg,
    /// Lanes per device
    #[arg(long, value_name = "N", default_value = "auto")]
    lanes: Lanes,
    /// Check every index in the kernels at run time
    #[arg(long)]
    checked: bool,
    /// Memory that a device may take, such as 3GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<Size>,
    /// Write one JSON object with the results
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// No summary and no progress bar
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct Devices(Vec<DeviceSpec>);

impl FromStr for Devices {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        s.split(',').map(|d| d.trim().parse()).collect::<Result<_>>().map(Self)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PrecisionArg {
    Auto,
    F64,
    F32,
}

#[derive(Debug, Clone, Copy)]
struct Lanes(Option<usize>);

impl FromStr for Lanes {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(None)),
            s => match s.parse() {
                Ok(n @ 1..=64) => Ok(Self(Some(n))),
                _ => Err(Error::Invalid(format!("'{s}' is no number of lanes; give auto or 1 to 64"))),
            },
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Size(u64);

impl FromStr for Size {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let digits = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
        let factor = match s[digits..].trim() {
            "" | "B" => 1.0,
            "K" | "KiB" => 1024.0,
            "kB" | "KB" => 1e3,
            "M" | "MiB" => 1048576.0,
            "MB" => 1e6,
            "G" | "GiB" => 1073741824.0,
            "GB" => 1e9,
            "T" | "TiB" => 1099511627776.0,
            "TB" => 1e12,
            _ => f64::NAN,
        };
        match s[..digits].parse::<f64>() {
            Ok(n) if n * factor >= 1.0 => Ok(Self((n * factor) as u64)),
            _ => Err(Error::Invalid(format!("'{s}' is no size; give a number with KiB, MiB, GiB or TiB"))),
        }
    }
}

impl Common {
    fn open(&self) -> Result<(Vec<Lane>, Precision)> {
        self.open_all(&self.device.0)
    }

    fn open_all(&self, specs: &[DeviceSpec]) -> Result<(Vec<Lane>, Precision)> {
        self.open_lanes(specs, self.lanes.0.unwrap_or(1))
    }

    /// As [`open_all`](Self::open_all), with this number of lanes per device.
    fn open_lanes(&self, specs: &[DeviceSpec], lanes: usize) -> Result<(Vec<Lane>, Precision)> {
        let precision = match self.precision {
            PrecisionArg::Auto => None,
            PrecisionArg::F64 => Some(Precision::F64),
            PrecisionArg::F32 => Some(Precision::F32),
        };
        let memory_limit = self.memory_limit.map(|s| s.0);
        let options =
            OpenOptions { precision, lanes, checked: self.checked, memory_limit, cpu_threads: None };
        open(specs, &options)
    }
}

/// Writes a line for people to stderr. That nobody reads it any more is no error.
fn say(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// How a command that did its work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The requested bound is met.
    Met,
    /// Done, but it is not.
    NotMet,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    crate::lane::quiet_drivers();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and versions go to stdout and are no failure.
            let _ = e.print();
            return ExitCode::from(e.exit_code() as u8);
        }
    };
    interrupt::listen();
    let done = match cli.command {
        Command::Transient(args) => transient::run(&args),
        Command::Walk(args) => walk::run(&args),
        Command::Tridiagonal(args) => tridiagonal::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Generate(args) => generate::run(&args),
    };
    match done {
        Ok(Outcome::Met) => ExitCode::SUCCESS,
        Ok(Outcome::NotMet) => ExitCode::from(1),
        Err(Error::Interrupted) => {
            say("interrupted");
            ExitCode::from(130)
        }
        // A reader that went away has read what it wanted.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            say(format_args!("error: {e}"));
            ExitCode::from(2)
        }
    }
}
