//! The command line: parses arguments, calls the library, writes the report.

mod bench;
mod bench_compare;
mod bench_transfer;
mod bench_tridiagonal;
mod bench_walk;
mod check;
mod completions;
mod curves;
mod devices;
mod dry_run;
mod explore;
mod faster;
mod files;
mod forecast;
mod generate;
mod graph;
mod help;
mod interrupt;
mod lanes;
mod meant;
mod option_names;
mod output;
mod progress;
mod seed_table;
mod shared_file;
mod stdin;
mod transient;
mod tridiagonal;
mod tune;
mod tuned;
mod walk;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use kolmo::internals::count;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::ranks::{Ranks, Session};
use kolmo::{Error, Machine, Result, Status};

use crate::report::{Summary, painted};

use files::Files;
use option_names::with_options;

/// Solve Markov chains, linear systems (by random walks) and tridiagonal systems on GPU or CPU
///
/// Every answer comes with an error bound. Data goes to stdout or to a file, the summary to stderr.
/// `kolmo COMMAND -h` lists the common options, `kolmo COMMAND --help` all of them.
#[derive(Debug, Parser)]
#[command(name = "kolmo", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compute transient and steady-state probabilities of a Markov chain
    ///
    /// The chain has continuous time. At each time the sum of the absolute errors of all
    /// probabilities is at most --epsilon, or the exit code is 1. Without -o the probabilities go
    /// to stdout: the ten largest on a terminal, otherwise all of them as CSV.
    Transient(Box<transient::Transient>),
    /// Check CSL properties of a PRISM model or a chain
    ///
    /// Each line of stdout has a property, its value, and a bound on the error of the value.
    Check(check::Check),
    /// Estimate components of x in A x = b by random walks, or compute PageRank
    ///
    /// Each component has a confidence interval. The system is written as x = L x + f. Walks
    /// converge if the spectral radius of |L| is below 1, which is proved before the first step.
    Walk(Box<walk::Walk>),
    /// Solve tridiagonal, pentadiagonal and block tridiagonal systems
    ///
    /// The relative residual of every answer is computed on the host in double precision. Without
    /// -o the unknowns go to stdout: the ten largest on a terminal, otherwise all of them as CSV.
    Tridiagonal(Box<tridiagonal::Tridiagonal>),
    /// List the devices that this build can use on this machine
    Devices(devices::Devices),
    /// Measure the best settings for this machine's devices and store them
    ///
    /// Measured are the number of lanes for `tridiagonal`, the matrix formats of `transient`, and
    /// the grids of `walk`. Later runs use these results for options with the value auto. The
    /// default sizes take many minutes; the predicted time is printed first.
    Tune(tune::Tune),
    /// Run benchmarks and compare devices
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write a built-in model, or the chain of a PRISM model, to a file
    Generate(generate::Generate),
    /// Generate a completion script for a shell
    Completions(completions::Completions),
    /// Generate manual pages
    Manual(completions::Manual),
}

/// Options of the commands that solve one problem.
#[derive(Debug, Clone, Args)]
struct Solving {
    /// Print all details in the summary
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Predict memory and run time instead of solving
    ///
    /// `transient` predicts from the rows of the chain. `walk` and `tridiagonal` solve a small part
    /// of the problem first.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

/// Options of all commands that compute: devices, precision, memory, reports.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Devices: auto, cpu, wgpu:N, wgpu:all, cuda:N, or a comma-separated list
    ///
    /// auto is a CUDA device if the build supports CUDA, else a GPU with the required precision,
    /// else the CPU. Small chains run on the CPU, which needs no start-up time. `kolmo devices`
    /// lists the names.
    #[arg(long, value_name = "LIST", default_value = "auto")]
    device: Devices,
    /// Precision of the computation
    #[arg(long, value_name = "P", default_value = "auto")]
    precision: PrecisionArg,
    /// Lanes (in-order queues) per device: auto, or 1 to 64
    ///
    /// auto is 1, except for `tridiagonal`: there it is the number that `kolmo tune` measured, or a
    /// default.
    #[arg(long, value_name = "N", default_value = "auto")]
    lanes: Lanes,
    /// Check every array index in the kernels at run time (not available on CUDA)
    #[arg(long)]
    checked: bool,
    /// Compute q64 with 32-bit words on wgpu, as on adapters without 64-bit integers
    #[arg(long, hide = true)]
    limbs: bool,
    /// Precision of `auto` on devices without f64; `None` is f32.
    #[arg(skip)]
    without_f64: Option<Precision>,
    /// Memory limit of each lane, such as 3GiB
    ///
    /// On the CPU this is host memory. The limit also applies to the exploration of PRISM models
    /// and to compressed input once it is unpacked. Units: KiB, MiB, GiB, TiB (also K, M, G, T),
    /// kB, MB, GB, TB; a number without a unit is in bytes.
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<Size>,
    /// File for a report with all results, as one JSON object
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Suppress the summary, notes and the progress display
    ///
    /// A bound that is not met is still reported, in one line.
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
    /// f64; if a device lacks it, q64 for `transient` and `check`, f32 for other commands
    Auto,
    /// Double precision
    F64,
    /// Single precision
    F32,
    /// 64-bit fixed point, on every GPU; for `transient` and `check` only
    Q64,
}

#[derive(Debug, Clone, Copy)]
struct Lanes(Option<usize>);

impl FromStr for Lanes {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(None)),
            s => match count(s) {
                Some(n @ 1..=64) => Ok(Self(Some(n))),
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
        // Longer units first, since shorter ones are suffixes of them.
        let units = [
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
            ("TiB", 1099511627776.0),
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("K", 1024.0),
            ("M", 1048576.0),
            ("G", 1073741824.0),
            ("T", 1099511627776.0),
            ("B", 1.0),
        ];
        let with_unit = units.iter().find_map(|&(unit, factor)| Some((s.strip_suffix(unit)?, factor)));
        let (number, factor) = with_unit.unwrap_or((s, 1.0));
        // A whole number in any notation of `count`, or a decimal fraction.
        let number = number.trim_end();
        match count::<u64>(number).map(|n| n as f64).or(number.parse::<f64>().ok()) {
            Some(n) if n * factor >= 1.0 && (n * factor).is_finite() => Ok(Self((n * factor) as u64)),
            _ => Err(Error::Invalid(format!("'{s}' is no size; give a number with KiB, MiB, GiB or TiB"))),
        }
    }
}

/// Parses a whole number of an option.
fn whole<T: TryFrom<u64>>(s: &str) -> std::result::Result<T, &'static str> {
    count(s).ok_or("give a whole number in range, such as 200000 or 2e5")
}

impl Common {
    /// Opens the machine on every rank and checks that all ranks use one precision. Collective.
    fn open_on(&self, ranks: Ranks) -> Result<Machine> {
        let specs = kolmo::lane::of_place(&self.device.0, ranks.place());
        let machine = ranks.all_ok(self.open_all(&specs))?;
        ranks.expect_same("precision", &machine.precision.to_string())?;
        Ok(machine.on_ranks(ranks))
    }

    fn open(&self) -> Result<Machine> {
        self.open_all(&self.device.0)
    }

    /// True if neither `--device` nor `--lanes` is given.
    fn leaves_device_open(&self) -> bool {
        self.device.0 == [DeviceSpec::Auto] && self.lanes.0.is_none()
    }

    fn open_all(&self, specs: &[DeviceSpec]) -> Result<Machine> {
        self.open_lanes(specs, self.lanes.0.unwrap_or(1))
    }

    /// Opens `lanes` lanes on each of the devices.
    fn open_lanes(&self, specs: &[DeviceSpec], lanes: usize) -> Result<Machine> {
        let precision = match self.precision {
            PrecisionArg::Auto => None,
            PrecisionArg::F64 => Some(Precision::F64),
            PrecisionArg::F32 => Some(Precision::F32),
            PrecisionArg::Q64 => Some(Precision::Q64),
        };
        let memory_limit = self.memory_limit.map(|s| s.0);
        let options = OpenOptions {
            precision,
            without_f64: self.without_f64.unwrap_or(Precision::F32),
            lanes,
            checked: self.checked,
            limbs: self.limbs,
            memory_limit,
            cpu_threads: None,
        };
        Machine::open(specs, &options)
    }
}

/// Writes the lines of `--report` and completes the file; does nothing without a file.
fn write_report(
    file: Option<kolmo::output::OutputFile>,
    lines: impl IntoIterator<Item = impl Display>,
) -> Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    for line in lines {
        writeln!(file, "{line}").map_err(|e| file.error(e))?;
    }
    file.commit()
}

/// Error for an output file with an extension that is not a supported format of `what`.
fn no_format(path: &Path, what: &str, formats: &str) -> Error {
    let reason = match path.extension() {
        Some(extension) => format!("'.{}' is no format of {what}; use {formats}", extension.display()),
        None => format!("has no extension to name the format of {what}; use {formats}"),
    };
    Error::File { path: path.into(), reason }
}

/// Writes a line of text to stderr. Errors of writing are ignored.
fn say(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{}", painted(&with_options(&text.to_string())));
}

/// Outcome of a command that completed without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The requested bound is met.
    Met,
    /// Done, but the requested bound is not met.
    NotMet,
}

/// Prints the summary of a run; with `--quiet` only the line of a bound that is not met.
fn conclude(run: &dyn Summary, status: Status, common: &Common, verbose: bool, ranks: Ranks) -> Outcome {
    match (status, common.quiet) {
        _ if !ranks.is_root() => {}
        (_, false) => say(run.text(verbose).trim_end()),
        (Status::NotMet, true) => say(run.bound()),
        (Status::Met, true) => {}
    }
    match status {
        Status::Met => Outcome::Met,
        Status::NotMet => Outcome::NotMet,
    }
}

/// Accepts negative numbers as values of options.
///
/// The option's own error message is clearer than that of an unknown option `-1`.
fn lenient(command: clap::Command) -> clap::Command {
    let number = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(number).mut_subcommands(lenient)
}

/// The parser of the command line, with all help texts.
fn command() -> clap::Command {
    help::lay_out(lenient(Cli::command()))
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    interrupt::answer_for_limits();
    let session = match Session::begin() {
        Ok(session) => session,
        Err(e) => {
            say(format_args!("error: {e}"));
            return ExitCode::from(2);
        }
    };
    let ranks = session.ranks();
    interrupt::listen(ranks);
    let parse = || {
        let words: Vec<OsString> = std::env::args_os().collect();
        let all = words.iter().any(|word| word == help::ALL);
        let command = if all { help::show_all(command()) } else { command() };
        let words = words.into_iter().map(|word| if word == help::ALL { "--help".into() } else { word });
        command.try_get_matches_from(words).and_then(|found| Cli::from_arg_matches(&found))
    };
    let done = alike(ranks).and_then(|()| match parse() {
        Ok(cli) => run(cli.command, ranks).map(ended),
        Err(e) if e.kind() == clap::error::ErrorKind::InvalidUtf8 => Err(not_unicode()),
        Err(e) => {
            // Help and version go to stdout and are not a failure. All ranks return the same exit
            // code.
            let printed = if ranks.is_root() { e.print() } else { Ok(()) };
            match printed {
                // A failed write to stderr is ignored. Help is the requested output, so a failed
                // write to stdout is an error.
                Err(source) if !e.use_stderr() => Err(Error::Io { path: "stdout".into(), source }),
                _ => Ok(ExitCode::from(e.exit_code() as u8)),
            }
        }
    });
    match done {
        Ok(code) => code,
        // The other ranks do not know of a local error: abort them.
        Err(e) if ranks.is_distributed() && !matches!(e, Error::OnRank { .. } | Error::Elsewhere) => ranks
            .abort_all(&match e {
                Error::Interrupted => e,
                e => Error::Invalid(with_options(&e.to_string())),
            }),
        Err(Error::Elsewhere) => ExitCode::from(2),
        Err(Error::Interrupted) => {
            say("interrupted");
            ExitCode::from(130)
        }
        // The reader of a pipe has closed it: it needs no more output.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            say(format_args!("error: {e}"));
            ExitCode::from(2)
        }
    }
}

/// Error for arguments that are not UTF-8 where text is required.
fn not_unicode() -> Error {
    let words = std::env::args_os().enumerate().skip(1).filter(|(_, word)| word.to_str().is_none());
    let named: Vec<String> =
        words.map(|(k, word)| format!("argument {k}, '{}',", word.to_string_lossy())).collect();
    Error::Invalid(format!(
        "{} is not UTF-8; rename the file, or make a link to it that has another name",
        named.join(" and ")
    ))
}

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Met => ExitCode::SUCCESS,
        Outcome::NotMet => ExitCode::from(1),
    }
}

/// True if a single CUDA stream suffices: `transient` or `check` on one lane of one CUDA device.
pub fn has_one_stream() -> bool {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let chains = words.next().is_some_and(|command| command == "transient" || command == "check");
    chains && !words.any(|word| word.starts_with("--lanes") || word.matches("cuda").count() > 1)
}

/// Checks that all ranks have the same version and, except for per-rank options, the same
/// arguments.
fn alike(ranks: Ranks) -> Result<()> {
    if !ranks.is_distributed() {
        return Ok(());
    }
    const OWN: [&str; 3] = ["--device", "--lanes", "--memory-limit"];
    let mut shared = Vec::new();
    let mut args = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        if OWN.contains(&&arg[..]) {
            args.next();
        } else if !OWN.iter().any(|own| arg.strip_prefix(own).is_some_and(|rest| rest.starts_with('='))) {
            shared.push(arg);
        }
    }
    ranks.expect_same("version", env!("CARGO_PKG_VERSION"))?;
    ranks.expect_same("command line", &shared.join(" "))
}

/// Collects the input and output files of a command.
fn files(command: &Command) -> Files<'_> {
    let files = Files::default();
    match command {
        Command::Transient(args) => args.files(files),
        Command::Check(args) => args.files(files),
        Command::Walk(args) => args.files(files),
        Command::Tridiagonal(args) => args.files(files),
        Command::Tune(args) => args.files(files),
        Command::Bench(args) => args.files(files),
        Command::Generate(args) => args.files(files),
        // These commands read no file and name one output at most.
        Command::Devices(_) | Command::Completions(_) | Command::Manual(_) => files,
    }
}

/// The value of `--memory-limit` for commands that read files.
fn memory_limit(command: &Command) -> Option<u64> {
    let limit = match command {
        Command::Transient(args) => args.solving.common.memory_limit,
        Command::Check(args) => args.common.memory_limit,
        Command::Walk(args) => args.solving.common.memory_limit,
        Command::Tridiagonal(args) => args.solving.common.memory_limit,
        Command::Generate(args) => args.memory_limit,
        _ => None,
    };
    limit.map(|size| size.0)
}

fn run(command: Command, ranks: Ranks) -> Result<Outcome> {
    let alone = match command {
        Command::Transient(_) | Command::Walk(_) | Command::Tridiagonal(_) => None,
        Command::Bench(bench::Bench::Transfer(_)) => None,
        Command::Check(_) => Some("check"),
        Command::Devices(_) => Some("devices"),
        Command::Tune(_) => Some("tune"),
        Command::Bench(_) => Some("bench"),
        Command::Generate(_) => Some("generate"),
        Command::Completions(_) => Some("completions"),
        Command::Manual(_) => Some("manual"),
    };
    if let Some(name) = alone.filter(|_| ranks.is_distributed()) {
        let shared = match command {
            Command::Check(_) => {
                "; ranks share `kolmo transient MODEL`, which takes --until, --within, --label and --rewards, and MODEL in PRISM's language,                  too"
            }
            _ => "",
        };
        return ranks.all_ok(Err(Error::Invalid(format!(
            "kolmo {name} is the work of one process; start it without mpirun{shared}"
        ))));
    }
    let files = files(&command);
    ranks.all_ok(files.check())?;
    let roles = files.roles();
    if let Some(limit) = memory_limit(&command) {
        kolmo::io::text::limit_unpacked(limit);
    }
    let done = match command {
        Command::Transient(args) => transient::run(&args, ranks),
        Command::Check(args) => check::run(&args),
        Command::Walk(args) => walk::run(&args, ranks),
        Command::Tridiagonal(args) => tridiagonal::run(&args, ranks),
        Command::Devices(args) => devices::run(&args),
        Command::Tune(args) => {
            kolmo_model::start_threads();
            tune::run(&args)
        }
        Command::Bench(args) => {
            kolmo_model::start_threads();
            bench::run(&args, ranks)
        }
        Command::Generate(args) => generate::run(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Manual(args) => completions::manual(&args),
    };
    done.map_err(|e| roles.explain(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("7", 7),
            ("1e9", 1_000_000_000),
            ("1_000 B", 1000),
            ("1.5GiB", 3 << 29),
            ("64 MiB", 64 << 20),
            ("2e3KB", 2_000_000),
        ] {
            assert_eq!(text.parse::<Size>().expect(text).0, bytes, "{text}");
        }
        for text in ["", "0", "B", "-1", "1e999", "inf", "nan", "12XB", "0.5B", "1 2"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_asks_for_as_much_as_the_library() {
        let cli = Cli::try_parse_from(["kolmo", "transient", "m.tra", "--time", "1"]).expect("a sound line");

        let Command::Transient(args) = cli.command else { panic!("it is transient") };
        assert_eq!(args.epsilon, kolmo::transient::EPSILON);
        assert_eq!(kolmo::transient::Options::default().epsilon, kolmo::transient::EPSILON);
    }
}
