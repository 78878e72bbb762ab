//! `kolmo completions` and `kolmo manual`.

use std::io::Write;

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::output::{finish, written};
use crate::cli::prelude::*;
use crate::cli::terminal::help;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that the script is for
    shell: Shell,
    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Existing folder for the pages: kolmo.1 and one page per command
    folder: PathBuf,
}

pub(crate) fn completions(args: &Completions, mut command: clap::Command) -> Result<Status> {
    let out = args.output.as_ref().map_or_else(|| Ok(OutputFile::stdout()), OutputFile::create)?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "kolmo", &mut script);
    complete(out, |out| out.write_all(&script)).map(|()| Status::Met)
}

pub(crate) fn manual(args: &Manual, command: clap::Command) -> Result<Status> {
    if !args.folder.is_dir() {
        let reason = "there is no such folder for the pages; create it first".to_owned();
        return Err(Error::File { path: args.folder.clone(), reason });
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    page(&args.folder, &command, "kolmo", &mut pages)?;
    finish(pages).map(|()| Status::Met)
}

/// Writes the page of a command and those of its subcommands.
fn page(folder: &Path, command: &clap::Command, name: &str, pages: &mut Vec<OutputFile>) -> Result<()> {
    let text = text(command, name);
    pages.push(written(&folder.join(format!("{name}.1")), &|file| file.write_all(text.as_bytes()))?);
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        page(folder, inner, &format!("{name}-{}", inner.get_name()), pages)?;
    }
    Ok(())
}

/// The page of a command in roff.
fn text(command: &clap::Command, name: &str) -> String {
    let words =
        name.strip_prefix("kolmo-").map_or("kolmo".to_owned(), |rest| match rest.strip_prefix("bench-") {
            Some(inner) => format!("bench {inner}"),
            None => rest.to_owned(),
        });
    // The page includes the options that only the long help shows.
    let whole = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let operands: String = command.get_positionals().map(|arg| format!(" {arg}")).collect();
    let rest = if command.has_subcommands() { " COMMAND" } else { &operands };
    let called = command.get_bin_name().unwrap_or("kolmo");
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let date: Vec<&str> = date.split_whitespace().collect();
    let months = "January February March April May June July August September October November December";
    let month = months.split(' ').find(|month| month.starts_with(date[2])).unwrap_or(date[2]);
    let date = format!("{month} {}, {}", date[1].trim_start_matches('0'), date[3]);
    let man = Man::new(whole.override_usage(format!("{called} [OPTIONS]{rest}")))
        .title(name.to_uppercase())
        .date(&date)
        .source(concat!("kolmo ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    let mut sections = || -> std::io::Result<()> {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut page)?;
        }
        Ok(())
    };
    sections().expect("memory takes it");
    tidy(&String::from_utf8_lossy(&page)) + &appendix(&words, name)
}

/// The sections after the options: exit status, environment, files, examples, see also.
fn appendix(words: &str, name: &str) -> String {
    let mut roff = Roff::new();
    let sections = [
        ("EXIT STATUS", help::codes(words).collect::<Vec<_>>()),
        ("ENVIRONMENT", help::section("environment").collect()),
        ("FILES", help::section("files").collect()),
        ("EXAMPLES", help::section(words).collect()),
    ];
    for (heading, entries) in sections.iter().filter(|(_, entries)| !entries.is_empty()) {
        roff.control("SH", [*heading]);
        for (term, text) in entries {
            roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let also = if name == "kolmo" { "kolmo\\-transient" } else { "kolmo" };
    roff.control("BR", [also, "(1)"]);
    tidy(&roff.render())
}

/// Maximum bytes of a line. `mandoc` accepts 80, but a non-ASCII letter has several bytes.
const LINE: usize = 70;

/// Removes everything that `mandoc -Tlint` warns about, and keeps paragraphs apart.
///
/// Warnings are about blanks at line ends, blank lines, lines of more than 80 bytes, and breaks
/// next to vertical space.
fn tidy(page: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut blank = false;
    for line in page.lines().map(str::trim_end) {
        if line.is_empty() {
            blank = true;
            continue;
        }
        // A blank line between two lines of text separates paragraphs of a long help.
        let is_text = |line: &str| !line.starts_with('.');
        if std::mem::take(&mut blank) && is_text(line) && lines.last().is_some_and(|last| is_text(last)) {
            lines.push(".sp".to_owned());
        }
        let space = |line: &str| line == ".sp";
        match lines.last() {
            Some(last) if line == ".br" && (space(last) || last == ".br") => continue,
            Some(last) if space(line) && last == ".br" => drop(lines.pop()),
            _ => {}
        }
        let mut rest = line;
        while rest.len() > LINE && !line.starts_with('.') {
            // A line that begins with a dot or an apostrophe would be a roff command.
            let fits = |at: &usize| *at <= LINE && !rest[at + 1..].starts_with(['.', '\'']);
            let Some(at) = rest.match_indices(' ').map(|(at, _)| at).rfind(fits) else { break };
            lines.push(rest[..at].trim_end().to_owned());
            rest = &rest[at + 1..];
        }
        lines.push(rest.to_owned());
    }
    lines.join("\n") + "\n"
}
