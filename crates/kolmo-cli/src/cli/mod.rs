//! The command line: parses arguments, calls the library, writes the report.

mod arguments;
mod commands;
mod input;
mod outcome;
mod output;
mod planning;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use kolmo::ranks::{Ranks, Session};
use kolmo::{Error, Result};

use commands::{bench, check, completions, devices, generate, transient, tridiagonal, tune, walk};
use outcome::Outcome;
use output::output_conflicts::Files;
use terminal::option_names::with_options;
use terminal::{help, interrupt, say};

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
        Command::Completions(args) => completions::completions(&args, self::command()),
        Command::Manual(args) => completions::manual(&args, self::command()),
    };
    done.map_err(|e| roles.explain(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_asks_for_as_much_as_the_library() {
        let cli = Cli::try_parse_from(["kolmo", "transient", "m.tra", "--time", "1"]).expect("a sound line");

        let Command::Transient(args) = cli.command else { panic!("it is transient") };
        assert_eq!(args.epsilon, kolmo::transient::EPSILON);
        assert_eq!(kolmo::transient::Options::default().epsilon, kolmo::transient::EPSILON);
    }
}
