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
    /// A built-in model: wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU; or tridiagonal system: random:N,
    /// toeplitz:N,DL,D,DU, laplace:N
    spec: String,
    /// File to write; its extension is the format: .tra, .mtx or .npz (of systems .npz, .csv or .mtx)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Seed of a tridiagonal system's random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// No summary
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(args: &Generate) -> Result<Outcome> {
    if let Some(system) = models::tridiagonal(&args.spec, args.seed) {
        return tridiagonal(args, &system?);
    }
    let Some(model) = models::parse(&args.spec) else {
        return Err(Error::Invalid(format!(
            "'{}' is no built-in model; there are wlan:K,S, tandem:C and birth-death:N,LAMBDA,MU, and the tridiagonal systems {}",
            args.spec,
            models::TRIDIAGONAL
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

/// Writes a tridiagonal system.
fn tridiagonal(args: &Generate, made: &models::Tridiagonal) -> Result<Outcome> {
    let format = match args.output.extension().and_then(|e| e.to_str()) {
        Some(format @ ("npz" | "csv" | "mtx")) => format,
        other => {
            return Err(Error::File {
                path: args.output.clone(),
                reason: format!(
                    "'.{}' is no format that tridiagonal systems are written in; use .npz, .csv or .mtx",
                    other.unwrap_or("")
                ),
            });
        }
    };
    let mut out = OutputFile::create(&args.output)?;
    crate::io::tridiagonal::write_system(&mut out, format, &made.system).map_err(|e| out.error(e))?;
    out.commit()?;
    if !args.quiet {
        super::say(format_args!(
            "{}  n = {}{}, written to {}",
            made.name,
            grouped(made.system.n as u64),
            if format == "mtx" { ", without its right-hand side" } else { "" },
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}
