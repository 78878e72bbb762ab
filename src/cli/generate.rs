//! `kolmo generate`.

use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use crate::io::output::OutputFile;
use crate::io::{mtx, npz, write};
use crate::models;
use crate::report::grouped;
use crate::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Generate {
    /// A built-in model: wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O,…
    spec: String,
    /// File to write; its extension is the format: .tra, .mtx or .npz
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// No summary
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(args: &Generate) -> Result<Outcome> {
    let Some(model) = models::parse(&args.spec) else {
        return Err(Error::Invalid(format!(
            "'{}' is no built-in model; there are wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU and circulant:N,O1,O2,…",
            args.spec
        )));
    };
    let model = model?;
    let chain = &*model.transitions;
    let extension = args.output.extension().and_then(|e| e.to_str()).unwrap_or("");
    if !["tra", "mtx", "npz"].contains(&extension) {
        return Err(Error::File {
            path: args.output.clone(),
            reason: format!("'.{extension}' is no format that chains are written in; use .tra, .mtx or .npz"),
        });
    }
    let mut out = OutputFile::create(&args.output)?;
    let written = match extension {
        "tra" => write::write_tra(&mut out, chain),
        "mtx" => mtx::write_chain(&mut out, chain),
        _ => npz::write_chain(&mut out, chain),
    };
    written.map_err(|e| out.error(e))?;
    out.commit()?;
    if !args.quiet {
        super::say(format_args!(
            "{}  n = {}, initial state {}, written to {}",
            model.name,
            grouped(chain.states() as u64),
            model.initial,
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}
