//! Options of the command in messages of the library.

use std::collections::HashMap;
use std::sync::LazyLock;

use clap::CommandFactory;

use crate::cli::Cli;

/// Options of all subcommands by the names of the library: `memory_limit` for `--memory-limit`.
static OPTIONS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut options = HashMap::new();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        for arg in command.get_arguments() {
            if let Some(long) = arg.get_long() {
                options.insert(arg.get_id().to_string(), format!("--{long}"));
                options.insert(long.replace('-', "_"), format!("--{long}"));
            }
        }
        commands.extend(command.get_subcommands().cloned());
    }
    options
});

/// Replaces names of settings in backquotes by the options of the command.
pub(in crate::cli) fn with_options(text: &str) -> String {
    // The list of options is built for messages that need it only.
    if !text.contains('`') {
        return text.to_owned();
    }
    let parts: Vec<&str> = text.split('`').collect();
    let mut replaced = String::with_capacity(text.len());
    for (number, part) in parts.iter().enumerate() {
        if number % 2 == 0 {
            replaced.push_str(part);
            continue;
        }
        let closing = if number + 1 < parts.len() { "`" } else { "" };
        match OPTIONS.get(*part) {
            Some(option) if !closing.is_empty() => replaced.push_str(option),
            _ => replaced.extend(["`", part, closing]),
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_options_of_the_command() {
        for (library, command) in [
            ("`memory_limit` is 1.0 KiB", "--memory-limit is 1.0 KiB"),
            ("invalid `epsilon` 0; use `precision` f64", "invalid --epsilon 0; use --precision f64"),
            ("`constants`: no value", "--const: no value"),
            ("unpack it with `gzip -d`", "unpack it with `gzip -d`"),
            ("expected `rows columns`", "expected `rows columns`"),
            ("the name `epsilon", "the name `epsilon"),
            ("epsilon ` lazy", "epsilon ` lazy"),
            ("", ""),
        ] {
            assert_eq!(with_options(library), command);
        }
    }
}
