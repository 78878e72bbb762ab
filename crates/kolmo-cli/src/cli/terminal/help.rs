//! Layout of the help: option groups, short help, examples, exit codes.

use clap::{Arg, Command};

/// Headings of the options of `transient`, `check`, `walk` and `tridiagonal`; others are `Expert`.
const GROUPS: [(&str, &str); 4] = [
    (
        "Problem",
        "constants values prop time times steps discrete epsilon truncate initial labels rewards absorbing until within rhs component \
         functional pagerank seeds undirected relative confidence b tolerance cyclic transpose layout seed",
    ),
    ("Output", "output all_states format states label top plot report quiet verbose"),
    ("Long runs", "dry_run time_limit checkpoint checkpoint_every resume"),
    ("Device", "device precision lanes memory_limit"),
];

/// Options that `-h` shows.
const SHORT: &str = "values prop time times steps epsilon initial rewards until states label top rhs b component functional \
                     pagerank seeds tolerance output all_states plot dry_run checkpoint device";

/// True if a list of options has the option with this name.
fn lists(options: &str, id: &str) -> bool {
    options.split_whitespace().any(|option| option == id)
}

/// Commands with a bound to meet, and therefore exit code 1.
const SOLVING: [&str; 4] = ["transient", "check", "walk", "tridiagonal"];

/// Examples by command, exit codes, environment variables, and files that are read and written
/// without being named on the command line: terms and their descriptions.
const TEXTS: &str = include_str!("help.txt");

/// Returns the terms and descriptions of a section of the texts, such as the examples of a command.
pub(crate) fn section(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TEXTS.lines().skip_while(move |line| *line != name).skip(1);
    let mut lines = lines.map_while(|line| line.strip_prefix("  "));
    std::iter::from_fn(move || Some((lines.next()?, lines.next()?.trim_start())))
}

/// Returns the exit codes of a command.
pub(crate) fn codes(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let solves = SOLVING.contains(&name) || name == "kolmo";
    let codes = section("exit codes").filter(move |(code, _)| solves || *code != "1");
    codes.map(move |(code, text)| if code == "0" && !solves { (code, "done") } else { (code, text) })
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
    for (k, (line, what)) in section(name).enumerate() {
        let heading = if k == 0 { "Examples:\n" } else { "" };
        text += &format!("{heading}  {line}\n      {what}\n");
    }
    text += "\nExit codes:\n";
    for (code, what) in codes(name) {
        text += &format!("  {code:<5}{what}\n");
    }
    let command = if solves { command.mut_args(grouped) } else { command };
    // Commands that measure several numbers of lanes reject `--lanes`.
    let command = match name {
        "tune" | "bench tridiagonal" => command.mut_arg("lanes", |arg| arg.hide(true)),
        _ => command,
    };
    let command = match name.starts_with("bench ") {
        true => command.mut_arg("report", |arg| {
            arg.help("File for a report as JSON lines, one object per case and device")
        }),
        false => command,
    };
    command.after_long_help(text.trim().to_owned())
}

fn grouped(arg: Arg) -> Arg {
    let id = arg.get_id().to_string();
    if arg.is_positional() {
        return arg;
    }
    let heading = GROUPS.iter().find(|(_, ids)| lists(ids, &id)).map_or("Expert", |(heading, _)| heading);
    arg.help_heading(heading).hide_short_help(!lists(SHORT, &id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_command_line() {
        let command = crate::cli::command();
        let mut count = 0;
        let lines = TEXTS.lines().filter_map(|line| line.strip_prefix("  "));
        for line in lines.filter(|line| line.starts_with("kolmo ")) {
            let words = line.split_whitespace().take_while(|word| *word != ">");
            command.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{line}\n{e}"));
            count += 1;
        }
        assert!(count > 20, "{count} examples");
    }

    #[test]
    fn groups_of_the_help_name_existing_options() {
        let command = crate::cli::command();
        let known: Vec<String> = SOLVING
            .iter()
            .flat_map(|name| command.find_subcommand(name).expect("a command").get_arguments())
            .map(|arg| arg.get_id().to_string())
            .collect();
        let lists = GROUPS.iter().map(|(_, ids)| *ids).chain([SHORT]);
        for id in lists.flat_map(str::split_whitespace) {
            assert!(known.iter().any(|known| known == id), "no option {id}");
        }
    }
}
