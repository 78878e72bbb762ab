//! Layout of the help: option groups, short help, examples, exit codes.

use clap::{Arg, ArgAction, Command};

/// Headings of the options of `transient`, `check`, `walk` and `tridiagonal`; others are `Expert`.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Problem",
        &[
            "constants",
            "values",
            "prop",
            "time",
            "times",
            "epsilon",
            "truncate",
            "initial",
            "labels",
            "rewards",
            "absorbing",
            "until",
            "within",
            "rhs",
            "component",
            "functional",
            "pagerank",
            "seeds",
            "undirected",
            "relative",
            "confidence",
            "b",
            "tolerance",
            "cyclic",
            "transpose",
            "layout",
            "seed",
        ],
    ),
    ("Output", &["output", "format", "states", "label", "top", "plot", "report", "quiet", "verbose"]),
    ("Long runs", &["dry_run", "time_limit", "ranks", "checkpoint", "checkpoint_every", "resume"]),
    ("Device", &["device", "precision", "lanes", "memory_limit"]),
];

/// Options that `-h` shows.
const SHORT: [&str; 23] = [
    "values",
    "prop",
    "time",
    "times",
    "epsilon",
    "initial",
    "rewards",
    "until",
    "states",
    "label",
    "top",
    "rhs",
    "b",
    "component",
    "functional",
    "pagerank",
    "seeds",
    "tolerance",
    "output",
    "plot",
    "dry_run",
    "checkpoint",
    "device",
];

/// Options that reproduce published methods; only `--help-all` shows them.
const PUBLISHED: [&str; 11] = [
    "method",
    "theta",
    "ell_width",
    "exchange",
    "row_order",
    "groups",
    "group_size",
    "points_ahead",
    "shared_sequence",
    "block",
    "interface",
];

/// Option that shows the help with all options.
pub(crate) const ALL: &str = "--help-all";

/// Commands with a bound to meet, and therefore exit code 1.
const SOLVING: [&str; 4] = ["transient", "check", "walk", "tridiagonal"];

/// Exit codes and their meanings.
const CODES: [(&str, &str); 4] = [
    ("0", "done, and the bound is met"),
    ("1", "done, but the bound is not met; the line `bound` of the summary has the reason"),
    ("2", "invalid usage or input, no such device, out of memory, or a file cannot be written"),
    ("130", "interrupted; no incomplete file is left"),
];

/// Environment variables.
pub(crate) const ENVIRONMENT: [(&str, &str); 3] = [
    ("KOLMO_CONFIG_DIR", "Folder for the results of kolmo tune."),
    ("KOLMO_CACHE_DIR", "Folder for kernels compiled for CUDA."),
    ("NO_COLOR", "If set to any value, output has no colours."),
];

/// Files that are read and written without being named on the command line.
pub(crate) const FILES: [(&str, &str); 2] = [
    (
        "~/.config/kolmo/lanes-*.json",
        "Results of kolmo tune, one file per device (on Linux); kolmo tune --show prints the path.",
    ),
    (".lab, .srew", "Labels and rewards of a .tra file with the same stem."),
];

/// Example command lines and descriptions, by command.
const EXAMPLES: [(&str, &[(&str, &str)]); 15] = [
    (
        "kolmo",
        &[
            ("kolmo transient tandem:15 --time 10 --top 5", "the five most likely states at time 10"),
            ("kolmo walk poisson2d:100,0.9 --component 5050", "one of 10 000 unknowns"),
            ("kolmo tridiagonal random:1e6 -o x.npy", "a system of a million rows"),
            ("kolmo devices", "the available devices"),
        ],
    ),
    (
        "transient",
        &[
            ("kolmo transient tandem:15 --time 10 --top 5", "the five most likely states at time 10"),
            (
                "kolmo transient m.tra --times 0:0.5:10 --label down --plot down.svg",
                "the probability of a label over time, as a table and as a chart",
            ),
            ("kolmo transient m.tra --time inf --rewards power", "a reward in the steady state"),
            (
                "kolmo transient m.tra --time 1e4 -o p.npy --checkpoint run.kept --resume",
                "all probabilities; started again, an interrupted run continues",
            ),
        ],
    ),
    (
        "check",
        &[
            ("kolmo check queue.sm queue.csl --const N=64", "all properties of a file"),
            (
                "kolmo check cell.sm 'P=? [ F<=10 a>50 ]' --truncate 1e-10",
                "a model with infinitely many states, truncated",
            ),
            (
                "kolmo check queue.sm queue.csl --const N=64,T=1:1:10 --prop 1,full",
                "two of the properties, at ten times each",
            ),
            (
                "kolmo check m.tra m.csl --report r.json",
                "properties of a chain in a file, with a report in JSON",
            ),
        ],
    ),
    (
        "walk",
        &[
            ("kolmo walk poisson2d:100,0.9 --component 5050", "one of 10 000 unknowns"),
            ("kolmo walk a.npz -b b.npy --component 0,7,20-29 -o x.csv", "12 unknowns of a system in files"),
            ("kolmo walk a.npz -b b.npy --functional mean.npy", "the scalar product <h, x>, such as a mean"),
            (
                "kolmo walk links.txt --pagerank 0.85 --seeds 5,17 --top 20",
                "personalised PageRank: the 20 nodes closest to nodes 5 and 17",
            ),
        ],
    ),
    (
        "tridiagonal",
        &[
            ("kolmo tridiagonal random:1e6 -o x.npy", "a system of a million rows"),
            ("kolmo tridiagonal s.npz -b b.npy -o x.npy", "arrays dl, d, du and right-hand sides from NumPy"),
            ("kolmo tridiagonal laplace:1000,5000 -o x.npy", "5000 systems of 1000 rows each"),
            ("kolmo tridiagonal s.npz --dry-run", "predicted memory and time"),
        ],
    ),
    ("devices", &[("kolmo devices", "a table"), ("kolmo devices --format json", "as JSON, for programs")]),
    (
        "tune",
        &[
            ("kolmo tune --device cpu --max-size 1e6", "takes about a minute"),
            ("kolmo tune --device cuda:0", "takes some minutes"),
            ("kolmo tune --show", "the stored results, and whether they are still valid"),
            ("kolmo tune --device cpu --plot lanes.svg", "also draws a chart of the times"),
        ],
    ),
    (
        "generate",
        &[
            ("kolmo generate tandem:15 -o tandem.tra", "a chain of 496 states"),
            ("kolmo generate poisson2d:30,0.9 -o a.npz --rhs b.npy", "a system and its right-hand side"),
            ("kolmo generate random:1e5 -o s.npz", "a tridiagonal system"),
        ],
    ),
    (
        "completions",
        &[(
            "kolmo completions bash > ~/.local/share/bash-completion/completions/kolmo",
            "completions for bash",
        )],
    ),
    (
        "manual",
        &[("kolmo manual ~/.local/share/man/man1", "manual pages; read one with man kolmo-transient")],
    ),
    ("bench", &[("kolmo bench spmv wlan:12,6 --device cpu", "one step of a chain")]),
    (
        "bench spmv",
        &[(
            "kolmo bench spmv wlan:12,6 --device cpu --matrix-format all",
            "all matrix formats that the chain fits",
        )],
    ),
    ("bench transfer", &[("kolmo bench transfer --device cpu --size 64MiB", "64 MiB on 1, 2, 4, … lanes")]),
    (
        "bench seed-table",
        &[(
            "kolmo bench seed-table --device cpu --sizes 10 --times 1",
            "a size smaller than those of the table",
        )],
    ),
    (
        "bench compare",
        &[
            ("kolmo bench compare --device cpu --size tiny --html here.html", "takes seconds"),
            (
                "kolmo bench compare --device cpu,cuda:0 --size medium --report here.json",
                "takes many minutes",
            ),
            ("kolmo bench compare --from here.json --html here.html", "a page from an earlier report"),
        ],
    ),
];

/// Returns the examples of a command.
pub(crate) fn examples(name: &str) -> &'static [(&'static str, &'static str)] {
    EXAMPLES.iter().find(|(of, _)| *of == name).map_or(&[], |(_, lines)| lines)
}

/// Returns the exit codes of a command.
pub(crate) fn codes(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let solves = SOLVING.contains(&name) || name == "kolmo";
    CODES.into_iter().filter(move |(code, _)| solves || *code != "1").map(move |(code, text)| match code {
        "0" if !solves => (code, "done"),
        _ => (code, text),
    })
}

/// Adds groups, examples and exit codes to the help of the program and all its commands.
pub(crate) fn lay_out(program: Command) -> Command {
    one(program, "kolmo").mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let below = name.clone();
        one(command, &name).mut_subcommands(move |command| {
            let name = format!("{below} {}", command.get_name());
            one(command, &name)
        })
    })
}

fn one(command: Command, name: &str) -> Command {
    let solves = SOLVING.contains(&name);
    let mut text = String::new();
    if !examples(name).is_empty() {
        text += "Examples:\n";
    }
    for (line, what) in examples(name) {
        text += &format!("  {line}\n      {what}\n");
    }
    text += "\nExit codes:\n";
    for (code, what) in codes(name) {
        text += &format!("  {code:<5}{what}\n");
    }
    let all = Arg::new("help-all").long(&ALL[2..]).action(ArgAction::SetTrue).hide_short_help(true);
    let all = all.help("Print help with all options, including those that reproduce published methods");
    let command = if solves { command.mut_args(grouped).arg(all.help_heading("Expert")) } else { command };
    let command = match name.starts_with("bench ") {
        true => command.mut_arg("report", |arg| {
            arg.help("File for a report as JSON lines, one object per case and device")
        }),
        false => command,
    };
    command.after_long_help(text.trim().to_owned())
}

fn grouped(arg: Arg) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    if arg.is_positional() {
        return arg;
    }
    let found = GROUPS.iter().find(|(_, ids)| ids.contains(&&id[..]));
    let arg = arg.help_heading(found.map_or("Expert", |(heading, _)| heading));
    let arg = if PUBLISHED.contains(&&id[..]) { arg.hide(true) } else { arg };
    arg.hide_short_help(!SHORT.contains(&&id[..]))
}

/// Shows every option in the help of a command and of its subcommands.
pub(crate) fn show_all(command: Command) -> Command {
    command.mut_args(|arg| arg.hide(false)).mut_subcommands(show_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_command_line() {
        let command = crate::cli::command();
        let mut count = 0;
        for (line, _) in EXAMPLES.iter().flat_map(|(_, lines)| *lines) {
            let words = line.split_whitespace().take_while(|word| *word != ">");
            command.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{line}\n{e}"));
            count += 1;
        }
        assert!(count > 20, "{count} examples");
    }

    #[test]
    fn groups_name_options_that_there_are() {
        let command = crate::cli::command();
        let known: Vec<String> = SOLVING
            .iter()
            .flat_map(|name| command.find_subcommand(name).expect("a command").get_arguments())
            .map(|arg| arg.get_id().to_string())
            .collect();
        let named = GROUPS.iter().flat_map(|(_, ids)| *ids).chain(&SHORT).chain(&PUBLISHED);
        for id in named {
            assert!(known.iter().any(|known| known == id), "no option {id}");
        }
    }
}
