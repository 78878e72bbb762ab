//! `kolmo generate`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::arguments::{Size, whole};
use crate::cli::input::explore::{self, Constants};
use crate::cli::input::suggest;
use crate::cli::outcome::Outcome;
use crate::cli::output::no_format;
use crate::cli::output::output_conflicts::Files;
use crate::cli::terminal::say;
use crate::report::{counted, grouped};
use kolmo::io::npy::NpyWriter;
use kolmo::io::{drn, edge_list, lab, mtx, npz, srew, sta, umb, write};
use kolmo::models::{self, System};
use kolmo::output::OutputFile;
use kolmo::pagerank::Graph;
use kolmo::transient::{Chain, Initial};
use kolmo::tridiagonal::BandedSystem;
use kolmo::{Error, Result};
use kolmo_check::language;

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// PRISM model (.sm, .prism) or built-in (tandem:15, poisson2d:100,0.9, random:1e6, rmat:16,8)
    ///
    /// Chains: wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O1,O2,…
    ///
    /// Linear systems: poisson2d:SIDE,RHO, poisson3d:SIDE,RHO,
    /// random-dominant:N,PER_ROW,RHO,positive and random-dominant:N,PER_ROW,RHO,signed
    ///
    /// Graphs: rmat:SCALE,EDGES, barabasi:N,EDGES
    ///
    /// Tridiagonal systems: random:N, toeplitz:N,DL,D,DU, laplace:N
    ///
    /// Pentadiagonal systems: pentadiagonal:N, biharmonic:N. Systems with blocks of 2 x 2: blocks:N
    spec: String,
    /// Output file; the extension selects the format
    ///
    /// Chains: .tra, .drn, .umb, .mtx, .npz. Linear systems: .mtx, .npz. Graphs: .txt, .mtx.
    /// Tridiagonal systems: .npz, .csv, .mtx. Pentadiagonal and block tridiagonal systems: .npz.
    ///
    /// The labels, state names and rewards of a chain are written next to it (.lab, .sta, .srew),
    /// unless the format is .drn or .umb, which contain them.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Values of a PRISM model's constants, such as N=64,MU=0.5
    #[arg(long = "const", value_name = "NAME=V,…")]
    constants: Option<Constants>,
    /// Memory limit of the exploration of a PRISM model, such as 3GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<Size>,
    /// Seed of random systems, graphs and right-hand sides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Also write the right-hand side of a linear system: .npy or .txt
    #[arg(long, value_name = "FILE")]
    rhs: Option<PathBuf>,
    /// Suppress the summary and notes
    #[arg(long, short)]
    quiet: bool,
}

impl Generate {
    /// Adds the input and output files of these arguments to `files`.
    pub(crate) fn files<'a>(&'a self, files: Files<'a>) -> Files<'a> {
        let model = Some(Path::new(&self.spec)).filter(|_| language::is_model(&self.spec));
        files.read("MODEL", model).written("-o", Some(&self.output)).written("--rhs", self.rhs.as_deref())
    }
}

pub(crate) fn run(args: &Generate) -> Result<Outcome> {
    if let Some(system) = models::system(&args.spec, args.seed) {
        return write_system(args, &system?);
    }
    if let Some(graph) = models::graph(&args.spec, args.seed) {
        return write_graph(args, &graph?);
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
    if let Some(system) = models::banded(&args.spec, args.seed) {
        return banded(args, &system?);
    }
    if language::is_model(&args.spec) {
        expect_format(&args.output)?;
        let limit = args.memory_limit.map(|size| size.0);
        return write_chain(args, &explore::chain(&args.spec, args.constants.as_ref(), limit, args.quiet)?);
    }
    if args.constants.is_some() {
        return Err(Error::Invalid(format!(
            "--const is for models in PRISM's language, and {} is none; leave it out",
            args.spec
        )));
    }
    let Some(model) = models::parse(&args.spec) else {
        let all = [&suggest::CHAINS[..], &suggest::SYSTEMS, &suggest::GRAPHS, &suggest::TRIDIAGONAL].concat();
        suggest::expect_file(&args.spec, &all)?;
        return Err(Error::Invalid(format!(
            "'{}' is no built-in model; there are wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O1,O2,…, the \
             systems {}, the graphs {}, the tridiagonal systems {} and {}; a model in PRISM's language is a file .sm, .prism, \
             .pm or .nm: rename one that has another extension",
            args.spec,
            models::SYSTEMS,
            models::GRAPHS,
            models::TRIDIAGONAL,
            models::BANDED
        )));
    };
    let model = model?;
    expect_format(&args.output)?;
    write_chain(args, &model.into())
}

/// Returns the extension of a chain's output file; an error if it is not supported.
fn expect_format(path: &Path) -> Result<&str> {
    match path.extension().and_then(|e| e.to_str()) {
        Some(format @ ("tra" | "drn" | "umb" | "mtx" | "npz")) => Ok(format),
        _ => Err(no_format(path, "chains", ".tra, .drn, .umb, .mtx or .npz")),
    }
}

/// Writes a chain and, in files next to it, its labels, state names and rewards.
fn write_chain(args: &Generate, chain: &Chain) -> Result<Outcome> {
    let transitions = &*chain.transitions;
    let mut out = OutputFile::create(&args.output)?;
    let written = match expect_format(&args.output)? {
        "tra" => write::write_tra(&mut out, transitions),
        "drn" => drn::write(&mut out, chain).and_then(|()| out.flush()),
        "umb" => umb::write(&mut out, chain).and_then(|()| out.flush()),
        "mtx" => mtx::write_chain(&mut out, transitions),
        _ => npz::write_chain(&mut out, transitions),
    };
    written.map_err(|e| out.error(e))?;
    let mut files = vec![out];
    let inside = args.output.extension().is_some_and(|extension| extension == "drn" || extension == "umb");
    let mut beside = |extension: &str, write: &dyn Fn(&mut OutputFile) -> io::Result<()>| -> Result<()> {
        let mut file = OutputFile::create(args.output.with_extension(extension))?;
        write(&mut file).and_then(|()| file.flush()).map_err(|e| file.error(e))?;
        files.push(file);
        Ok(())
    };
    if !chain.labels.sets.is_empty() && !inside {
        beside("lab", &|file| lab::write(file, &chain.labels))?;
    }
    if let Some(names) = chain.names.as_ref().filter(|_| !inside) {
        beside("sta", &|file| sta::write(file, names))?;
    }
    if !chain.rewards.is_empty() && !inside {
        beside("srew", &|file| srew::write(file, &chain.rewards))?;
    }
    // No file gets its name before all are complete.
    files.into_iter().try_for_each(OutputFile::commit)?;
    if !args.quiet {
        for warning in &chain.warnings {
            say(format_args!("warning: {warning}"));
        }
        let initial = match &chain.initial {
            Initial::State(state) => format!("initial state {state}"),
            Initial::Uniform(states) => format!("{} initial states", grouped(states.len() as u64)),
            Initial::Distribution(_) => "an initial distribution".to_owned(),
        };
        say(format_args!(
            "{}  n = {}, {initial}, written to {}",
            chain.name,
            grouped(transitions.states() as u64),
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}

/// Writes A and, with `--rhs`, b.
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
    // No file gets its name before both are complete.
    files.into_iter().try_for_each(OutputFile::commit)?;
    if !args.quiet {
        say(format_args!(
            "{}  n = {}, nnz = {}, written to {}",
            system.name,
            grouped(system.matrix.rows() as u64),
            grouped(system.matrix.nnz() as u64),
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}

/// Writes the edges of a graph.
fn write_graph(args: &Generate, (name, graph): &(String, Graph)) -> Result<Outcome> {
    if args.rhs.is_some() {
        return Err(Error::Invalid(format!("{name}: a graph has no right-hand side; leave out --rhs")));
    }
    let matrix = match args.output.extension().and_then(|e| e.to_str()) {
        Some("mtx") => true,
        Some("txt") => false,
        _ => return Err(no_format(&args.output, "graphs", ".txt or .mtx")),
    };
    let mut out = OutputFile::create(&args.output)?;
    edge_list::write(&mut out, graph, matrix).map_err(|e| out.error(e))?;
    out.commit()?;
    if !args.quiet {
        let (nodes, links) = (counted(graph.nodes() as u64, "node"), counted(graph.links() as u64, "link"));
        say(format_args!("{name}  {nodes}, {links}, written to {}", args.output.display()));
        if !matrix {
            say("note: a list of links names no node without one; .mtx keeps them");
        }
    }
    Ok(Outcome::Met)
}

/// Writes a pentadiagonal or block tridiagonal system.
fn banded(args: &Generate, (name, system): &(String, BandedSystem)) -> Result<Outcome> {
    if args.output.extension().is_none_or(|e| e != "npz") {
        return Err(no_format(&args.output, "pentadiagonal and block tridiagonal systems", ".npz"));
    }
    let mut out = OutputFile::create(&args.output)?;
    kolmo::io::tridiagonal::write_banded(&mut out, system).map_err(|e| out.error(e))?;
    out.commit()?;
    if !args.quiet {
        let n = grouped(system.n() as u64);
        say(format_args!("{name}  n = {n}, written to {}", args.output.display()));
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
        say(format_args!(
            "{}  n = {}{}, written to {}",
            made.name,
            grouped(made.system.n as u64),
            if format == "mtx" { ", without its right-hand side" } else { "" },
            args.output.display()
        ));
    }
    Ok(Outcome::Met)
}
