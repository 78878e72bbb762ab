//! `kolmo completions` and `kolmo manual`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, Outcome};
use kolmo::io::output::OutputFile;
use kolmo::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell: bash, elvish, fish, powershell or zsh
    shell: Shell,
    /// Output file, in place of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Manual {
    /// Folder for the pages, which exists; kolmo.1 and one page a command
    folder: PathBuf,
}

pub(super) fn completions(args: &Completions) -> Result<Outcome> {
    let mut out = match &args.output {
        Some(path) => OutputFile::create(path)?,
        None => OutputFile::stdout(),
    };
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kolmo", &mut script);
    out.write_all(&script).map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

pub(super) fn manual(args: &Manual) -> Result<Outcome> {
    if !args.folder.is_dir() {
        return Err(Error::File {
            path: args.folder.clone(),
            reason: "there is no such folder for the pages; create it first".to_owned(),
        });
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    page(&args.folder, &command, "kolmo", &mut pages)?;
    // All get their names, or none does.
    for page in &mut pages {
        page.flush().map_err(|e| page.error(e))?;
    }
    pages.into_iter().try_for_each(OutputFile::commit)?;
    Ok(Outcome::Met)
}

/// Writes the page of a command and those of its own commands.
fn page(folder: &Path, command: &clap::Command, name: &str, pages: &mut Vec<OutputFile>) -> Result<()> {
    let mut file = OutputFile::create(folder.join(format!("{name}.1")))?;
    Man::new(command.clone()).render(&mut file).map_err(|e| file.error(e))?;
    pages.push(file);
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        page(folder, inner, &format!("{name}-{}", inner.get_name()), pages)?;
    }
    Ok(())
}
