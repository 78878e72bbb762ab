//! `kolmo generate`.

use crate::cli::arguments::size;
use crate::cli::input::explore::{self, Constants, expect_no_constants};
use crate::cli::input::suggest;
use crate::cli::output::{finish, npy, written};
use crate::cli::prelude::*;
use kolmo::io::tridiagonal::{write_banded, write_system};
use kolmo::io::{drn, edge_list, lab, mtx, npz, srew, sta, write};
use kolmo::models;
use kolmo::transient::{Chain, Initial};
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
    /// Chains: .tra, .drn, .mtx, .npz. Linear systems: .mtx, .npz. Graphs: .txt, .mtx.
    /// Tridiagonal systems: .npz, .csv, .mtx. Pentadiagonal and block tridiagonal systems: .npz.
    ///
    /// The labels, state names and rewards of a chain are written next to it (.lab, .sta, .srew),
    /// unless the format is .drn, which contains them.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Values of a PRISM model's constants, such as N=64,MU=0.5
    #[arg(long = "const", value_name = "NAME=V,…", value_parser = explore::constants)]
    constants: Option<Constants>,
    /// Memory limit of the exploration of a PRISM model, such as 3GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_limit: Option<u64>,
    /// Seed of random systems, graphs and right-hand sides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Also write the right-hand side of a linear system: .npy or .txt
    #[arg(long = "rhs", value_name = "FILE")]
    rhs_file: Option<PathBuf>,
    /// Suppress the summary and notes
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &Generate) -> Result<Status> {
    let (spec, output) = (&args.spec[..], &args.output);
    if let Some(system) = models::system(spec, args.seed) {
        return linear_system(args, &system?);
    }
    if let Some(graph) = models::graph(spec, args.seed) {
        let (name, graph) = graph?;
        let why = format_args!("{name}: a graph has no right-hand side; leave out --rhs");
        expect(args.rhs_file.is_none(), why)?;
        let matrix = extension(output, "graphs", ".txt or .mtx")? == "mtx";
        let (nodes, links) = (counted(graph.nodes() as u64, "node"), counted(graph.links() as u64, "link"));
        finish(vec![written(output, &|file| edge_list::write(file, &graph, matrix))?])?;
        summary(args, &name, &format!("{nodes}, {links}"));
        if !args.quiet && !matrix {
            say("note: a list of links names no node without one; .mtx keeps them");
        }
        return Ok(Status::Met);
    }
    let why = format_args!(
        "{spec}: a chain or tridiagonal system has no right-hand side of its own file; leave out --rhs"
    );
    expect(args.rhs_file.is_none(), why)?;
    if let Some(made) = models::tridiagonal(spec, args.seed) {
        return tridiagonal(args, &made?);
    }
    if let Some(system) = models::banded(spec, args.seed) {
        let (name, system) = system?;
        extension(output, "pentadiagonal and block tridiagonal systems", ".npz")?;
        finish(vec![written(output, &|file| write_banded(file, &system))?])?;
        summary(args, &name, &format!("n = {}", grouped(system.n() as u64)));
        return Ok(Status::Met);
    }
    if language::is_model(spec) {
        chain_format(output)?;
        let explored = explore::chain(spec, (args.constants.as_ref(), &[]), args.memory_limit, args.quiet)?;
        return chain(args, explored);
    }
    expect_no_constants(spec, args.constants.as_ref())?;
    let Some(model) = models::parse(spec) else {
        let all = [&suggest::CHAINS[..], &suggest::SYSTEMS, &suggest::GRAPHS, &suggest::TRIDIAGONAL].concat();
        suggest::expect_file(spec, &all)?;
        return fail(format!(
            "'{spec}' is no built-in model; there are wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O1,O2,…, the \
             systems {}, the graphs {}, the tridiagonal systems {} and {}; a model in PRISM's language is a file .sm, .prism, \
             .pm or .nm: rename one that has another extension",
            models::SYSTEMS,
            models::GRAPHS,
            models::TRIDIAGONAL,
            models::BANDED
        ));
    };
    let model = model?;
    chain_format(output)?;
    chain(args, model.into())
}

fn chain_format(path: &Path) -> Result<&str> {
    extension(path, "chains", ".tra, .drn, .mtx or .npz")
}

fn summary(args: &Generate, name: &str, what: &str) {
    if !args.quiet {
        say(format_args!("{name}  {what}, written to {}", args.output.display()));
    }
}

/// Writes a chain and, in files next to it, its labels, state names and rewards.
fn chain(args: &Generate, chain: Chain) -> Result<Status> {
    let chain = &if chain.transitions.is_discrete() { chain.with_loops() } else { chain };
    let (transitions, output) = (&*chain.transitions, &args.output);
    let format = chain_format(output)?;
    let mut files = vec![written(output, &|file| match format {
        "tra" => write::write_tra(file, transitions),
        "drn" => drn::write(file, chain),
        "mtx" => mtx::write_chain(file, transitions),
        _ => npz::write_chain(file, transitions),
    })?];
    let beside = |extension: &str| output.with_extension(extension);
    if format != "drn" {
        if !chain.labels.sets.is_empty() {
            files.push(written(&beside("lab"), &|file| lab::write(file, &chain.labels))?);
        }
        if let Some(names) = &chain.names {
            files.push(written(&beside("sta"), &|file| sta::write(file, names))?);
        }
        if !chain.rewards.is_empty() {
            files.push(written(&beside("srew"), &|file| srew::write(file, &chain.rewards))?);
        }
    }
    finish(files)?;
    chain.warnings.iter().filter(|_| !args.quiet).for_each(|text| say(format_args!("warning: {text}")));
    let initial = match &chain.initial {
        Initial::State(state) => format!("initial state {state}"),
        Initial::Uniform(states) => format!("{} initial states", grouped(states.len() as u64)),
        Initial::Distribution(_) => "an initial distribution".to_owned(),
    };
    summary(args, &chain.name, &format!("n = {}, {initial}", grouped(transitions.states() as u64)));
    Ok(Status::Met)
}

/// Writes A and, with `--rhs`, b.
fn linear_system(args: &Generate, system: &models::System) -> Result<Status> {
    let (matrix, rhs) = (&system.matrix, args.rhs_file.as_deref());
    let format = extension(&args.output, "systems", ".mtx or .npz")?;
    let rhs_format = rhs.map(|rhs| extension(rhs, "right-hand sides", ".npy or .txt")).transpose()?;
    let mut files = vec![written(&args.output, &|file| match format {
        "mtx" => mtx::write_matrix(file, matrix),
        _ => npz::write_matrix(file, matrix),
    })?];
    if let Some(path) = rhs {
        files.push(written(path, &|file| match rhs_format {
            Some("npy") => npy(file, &[system.rhs.len()], [&system.rhs[..]]),
            _ => write::write_text(file, &system.rhs),
        })?);
    }
    finish(files)?;
    let [n, nnz] = [matrix.rows(), matrix.nnz()].map(|k| grouped(k as u64));
    summary(args, &system.name, &format!("n = {n}, nnz = {nnz}"));
    Ok(Status::Met)
}

fn tridiagonal(
    args: &Generate,
    models::Tridiagonal { name, system }: &models::Tridiagonal,
) -> Result<Status> {
    let format = extension(&args.output, "tridiagonal systems", ".npz, .csv or .mtx")?;
    if system.batch > 1 && format != "npz" {
        let reason = format!("'.{format}' holds one system, and {name} has {}; use .npz", system.batch);
        return Err(Error::File { path: args.output.clone(), reason });
    }
    finish(vec![written(&args.output, &|file| write_system(file, format, system))?])?;
    let without = if format == "mtx" { ", without its right-hand side" } else { "" };
    summary(args, name, &format!("n = {}{without}", grouped(system.n as u64)));
    Ok(Status::Met)
}
