//! The command line: parses arguments, calls the library, writes the report.

mod arguments;
mod commands;
mod input;
mod outcome;
mod output;
mod planning;
mod prelude;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use kolmo::ranks::{Ranks, Session};
use kolmo::{Error, Result, Status};

use arguments::expect;
use commands::{bench, check, completions, devices, doctor, generate, transient, tridiagonal, tune, walk};
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
    /// Time is continuous, or discrete if the model says so. At each time the sum of the absolute
    /// errors of all probabilities is at most --epsilon, or the exit code is 1. Without -o the
    /// probabilities go to stdout: the ten largest on a terminal, otherwise all of them as CSV.
    Transient(Box<transient::Transient>),
    /// Check CSL properties of a PRISM model or a chain
    ///
    /// Each line of stdout has a property, its value, and a bound on the error of the value.
    Check(check::CheckArgs),
    /// Estimate components of x in A x = b by random walks, or compute PageRank
    ///
    /// Each component has a confidence interval. The system is written as x = L x + f. Walks
    /// converge if the spectral radius of |L| is below 1, which is proved before the first step.
    Walk(Box<walk::WalkArgs>),
    /// Solve tridiagonal, pentadiagonal and block tridiagonal systems
    ///
    /// The relative residual of every answer is computed on the host in double precision. Without
    /// -o the unknowns go to stdout: the ten largest on a terminal, otherwise all of them as CSV.
    Tridiagonal(Box<tridiagonal::TridiagonalArgs>),
    /// List the devices that this build can use on this machine
    Devices(devices::Devices),
    /// Report the build, the machine, drivers and folders, and how to get what is missing
    ///
    /// The report fits on a screen. Paste it into an issue.
    Doctor,
    /// Measure the best settings for this machine's devices and store them
    ///
    /// Measured are the number of lanes for `tridiagonal`, and the bandwidth and start of each
    /// device. Later runs use these results for options with the value auto. The default sizes take
    /// many minutes; the predicted time is printed first.
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

/// Translates PRISM's options of `kolmo check`, which have one dash.
///
/// Options that select PRISM's engine are left out.
fn of_prism(
    command: &mut clap::Command,
    words: Vec<OsString>,
) -> std::result::Result<Vec<OsString>, clap::Error> {
    if words.get(1).is_none_or(|word| word != "check") {
        return Ok(words);
    }
    let mut all = Vec::new();
    for word in words {
        let own = word.to_str().and_then(|word| word.strip_prefix('-')).unwrap_or_default();
        match own {
            "pf" | "pctl" | "csl" | "s" | "m" | "ex" | "sparse" | "mtbdd" | "hybrid" | "explicit" => {}
            "const" | "prop" | "epsilon" => all.push(format!("--{own}").into()),
            "property" => all.push("--prop".into()),
            _ if own.starts_with("exportresults") => {
                let why = "-exportresults is not taken: results go to stdout, so write > FILE; \
                           --format prism is their format in PRISM\n";
                return Err(command.error(clap::error::ErrorKind::UnknownArgument, why));
            }
            _ => all.push(word),
        }
    }
    Ok(all)
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
        let mut command = command();
        let words = of_prism(&mut command, std::env::args_os().collect())?;
        let given = command.try_get_matches_from_mut(words)?;
        Cli::from_arg_matches(&given).map(|cli| (cli.command, given, command))
    };
    let done = alike(ranks).and_then(|()| match parse() {
        Ok((command, given, parser)) => run(command, &given, &parser, ranks)
            .map(|outcome| ExitCode::from(u8::from(outcome == Status::NotMet))),
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
                e => Error::invalid(with_options(&e.to_string())),
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
    Error::invalid(format!(
        "{} is not UTF-8; rename the file, or make a link to it that has another name",
        named.join(" and ")
    ))
}

/// Returns the number of hardware queues that a `transient` or `check` on one CUDA device needs.
///
/// A parameter study uses several lanes, and needs two. It has `--samples`, or `--const` with a
/// list (`|`) or range (`:`). `None` for other commands, for several devices, and with `--lanes`.
pub fn cuda_queues() -> Option<u32> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let chains = words.next().is_some_and(|command| command == "transient" || command == "check");
    let (mut constants, mut study) = (false, false);
    let several = |word: String| {
        let values = std::mem::replace(&mut constants, word == "--const") || word.starts_with("--const=");
        study |= values && word.contains(['|', ':']) || word.starts_with("--samples");
        word.starts_with("--lanes") || word.matches("cuda").count() > 1
    };
    (chains && !words.any(several)).then_some(if study { 2 } else { 1 })
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

fn run(mut command: Command, given: &ArgMatches, parser: &clap::Command, ranks: Ranks) -> Result<Status> {
    let name = given.subcommand_name().unwrap_or_default();
    let (mut given, mut parser) = (given, parser);
    while let Some((inner, more)) = given.subcommand() {
        (given, parser) = (more, parser.find_subcommand(inner).expect("a command that was parsed"));
    }
    let solving = match &mut command {
        Command::Transient(args) => Some(&mut args.solving),
        Command::Walk(args) => Some(&mut args.solving),
        Command::Tridiagonal(args) => Some(&mut args.solving),
        _ => None,
    };
    let shared = solving.is_some();
    // Only rank 0 prints.
    solving.into_iter().for_each(|solving| solving.common.quiet |= !ranks.is_root());
    let instead = match name {
        "check" => {
            "; ranks share `kolmo transient MODEL`, which takes --until, --within, --label and --rewards, and MODEL in \
             PRISM's language, too"
        }
        _ => "",
    };
    let why = format_args!("kolmo {name} is the work of one process; start it without mpirun{instead}");
    ranks.all_ok(expect(shared || !ranks.is_distributed(), why))?;
    let files = Files::of(parser, given);
    ranks.all_ok(files.check())?;
    if let Ok(Some(limit)) = given.try_get_one("memory_limit") {
        kolmo::io::text::limit_unpacked(*limit);
    }
    if matches!(command, Command::Tune(_) | Command::Bench(_)) {
        kolmo_model::start_threads();
    }
    let done = match command {
        Command::Transient(args) => transient::run(&args, ranks),
        Command::Walk(args) => walk::run(&args, ranks),
        Command::Tridiagonal(args) => tridiagonal::run(&args, ranks),
        Command::Check(args) => check::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Doctor => doctor::run(),
        Command::Tune(args) => tune::run(&args),
        Command::Bench(args) => bench::run(&args, ranks),
        Command::Generate(args) => generate::run(&args),
        Command::Completions(args) => completions::completions(&args, self::command()),
        Command::Manual(args) => completions::manual(&args, self::command()),
    };
    done.map_err(|e| files.explain(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_epsilon_of_the_command_is_that_of_the_library() {
        let cli = Cli::try_parse_from(["kolmo", "transient", "m.tra", "--time", "1"]).expect("a sound line");

        let Command::Transient(args) = cli.command else { panic!("it is transient") };
        assert_eq!(args.epsilon, kolmo::transient::EPSILON);
        assert_eq!(kolmo::transient::Options::default().epsilon, kolmo::transient::EPSILON);
    }
}
