//! `kolmo generate`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::files::Files;
use super::meant;
use super::{Outcome, no_format, whole};
use crate::report::grouped;
use kolmo::io::npy::NpyWriter;
use kolmo::io::output::OutputFile;
use kolmo::io::{mtx, npz, write};
use kolmo::models::{self, System};
use kolmo::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Generate {
    /// A built-in model: wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O,…; system: poisson2d:SIDE,RHO,
    /// poisson3d:SIDE,RHO, random-dominant:N,PER_ROW,RHO,positive or …,signed; or tridiagonal system: random:N,
    /// toeplitz:N,DL,D,DU, laplace:N
    spec: String,
    /// File to write; its extension is the format: .tra, .mtx or .npz (of systems .npz, .csv or .mtx)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Seed of random systems and right-hand sides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Also write a system's right-hand side: .npy or .txt
    #[arg(long, value_name = "FILE")]
    rhs: Option<PathBuf>,
    /// No summary
    #[arg(long, short)]
    quiet: bool,
}

impl Generate {
    /// The files that are named.
    pub(super) fn files<'a>(&'a self, files: Files<'a>) -> Files<'a> {
        files.written("-o", Some(&self.output)).written("--rhs", self.rhs.as_deref())
    }
}

pub(super) fn run(args: &Generate) -> Result<Outcome> {
    if let Some(system) = models::system(&args.spec, args.seed) {
        return write_system(args, &system?);
    }
    if args.rhs.is_some() {
        return Err(Error::Invalid(format!(
            "{}: a chain or tridiagonal system has no right-hand side of its own file; leave out --rhs",
            args.spec
        )));
    }
    if let Some(system) = models::tridiagonal(&args.spec, args.seed) {
        return tridiagonal(args, &system?);
    }
    let Some(model) = models::parse(&args.spec) else {
        let all = [&meant::CHAINS[..], &meant::SYSTEMS, &meant::TRIDIAGONAL].concat();
        meant::expect_file(&args.spec, &all)?;
        return Err(Error::Invalid(format!(
            "'{}' is no built-in model; there are wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O1,O2,…, the \
             systems {} and the tridiagonal systems {}",
            args.spec,
            models::SYSTEMS,
            models::TRIDIAGONAL
        )));
    };
    let model = model?;
    let chain = &*model.transitions;
    let extension = args.output.extension().and_then(|e| e.to_str()).unwrap_or("");
    if !["tra", "mtx", "npz"].contains(&extension) {
        return Err(no_format(&args.output, "chains", ".tra, .mtx or .npz"));
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

/// Writes A, and b where it is asked for.
fn write_system(args: &Generate, system: &System) -> Result<Outcome> {
    let extension = |path: &Path| path.extension().and_then(|e| e.to_str()).unwrap_or("").to_owned();
    if !["mtx", "npz"].contains(&&extension(&args.output)[..]) {
        return Err(no_format(&args.output, "systems", ".mtx or .npz"));
    }
    if let Some(rhs) = &args.rhs
        && !["npy", "txt"].contains(&&extension(rhs)[..])
    {
        return Err(no_format(rhs, "right-hand sides", ".npy or .txt"));
    }
    let mut out = OutputFile::create(&args.output)?;
    let rhs = args.rhs.as_deref().map(OutputFile::create).transpose()?;
    match &extension(&args.output)[..] {
        "mtx" => mtx::write_matrix(&mut out, &system.matrix),
        _ => npz::write_matrix(&mut out, &system.matrix),
    }
    .map_err(|e| out.error(e))?;
    out.flush().map_err(|e| out.error(e))?;
    let mut files = vec![out];
    if let (Some(mut file), Some(path)) = (rhs, &args.rhs) {
        let b = &system.rhs;
        if extension(path) == "npy" {
            let io = |source| Error::Io { path: path.clone(), source };
            let mut writer = NpyWriter::new(file, &[b.len()]).map_err(io)?;
            writer.write(b).map_err(io)?;
            file = writer.finish().map_err(io)?;
        } else {
            write::write_text(&mut file, b).map_err(|e| file.error(e))?;
        }
        file.flush().map_err(|e| file.error(e))?;
        files.push(file);
    }
    // Both get their names, or none does.
    files.into_iter().try_for_each(OutputFile::commit)?;
    if !args.quiet {
        super::say(format_args!(
            "{}  n = {}, nnz = {}, written to {}",
            system.name,
            grouped(system.matrix.rows() as u64),
            grouped(system.matrix.nnz() as u64),
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}

/// Writes a tridiagonal system.
fn tridiagonal(args: &Generate, made: &models::Tridiagonal) -> Result<Outcome> {
    let format = match args.output.extension().and_then(|e| e.to_str()) {
        Some(format @ ("npz" | "csv" | "mtx")) => format,
        _ => return Err(no_format(&args.output, "tridiagonal systems", ".npz, .csv or .mtx")),
    };
    if made.system.batch > 1 && format != "npz" {
        return Err(Error::File {
            path: args.output.clone(),
            reason: format!(
                "'.{format}' holds one system, and {} has {}; use .npz",
                made.name, made.system.batch
            ),
        });
    }
    let mut out = OutputFile::create(&args.output)?;
    kolmo::io::tridiagonal::write_system(&mut out, format, &made.system).map_err(|e| out.error(e))?;
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
