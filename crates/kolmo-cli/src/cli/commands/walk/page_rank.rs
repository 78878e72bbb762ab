//! `kolmo walk --pagerank`: PageRank of a graph's nodes.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::arguments::Walk;
use super::components::{is_npz, listed, open, time_limit};
use crate::cli::arguments::PrecisionArg;
use crate::cli::input::suggest;
use crate::cli::outcome::{Outcome, conclude};
use crate::cli::output::write_report;
use crate::cli::terminal::progress::Progress;
use crate::cli::terminal::{interrupt, say};
use crate::report::graph::Run;
use crate::report::{bytes, grouped, seconds};
use kolmo::io::npz::{self, Values};
use kolmo::io::read_graph;
use kolmo::io::write::{push_integer, push_number, write_lines};
use kolmo::lane::{DeviceSpec, available_memory};
use kolmo::models;
use kolmo::output::OutputFile;
use kolmo::pagerank::{Graph, Node, Options, Walks, local_page_rank, most_products, page_rank, peak_bytes};
use kolmo::ranks::Ranks;
use kolmo::{Error, Result};

/// Default number of listed nodes.
const LISTED: usize = 10;

pub(crate) fn run(args: &Walk, damping: f64, ranks: Ranks) -> Result<Outcome> {
    let started = Instant::now();
    ranks.all_ok(expect_host(args, ranks))?;
    let limit = args.time_limit.map(time_limit).transpose()?;
    let (asked, common) = (&args.graph, &args.solving.common);
    let (quiet, dry_run) = (common.quiet, args.solving.dry_run);
    let output = match dry_run {
        true => None,
        false => Some(open(args.output.as_deref())?),
    };
    let report_file = common.report.as_deref().map(OutputFile::create).transpose()?;
    let reading = Progress::new(quiet, "reading the graph");
    let (name, graph) = read(&args.matrix, asked.undirected, args.seed)?;
    drop(reading);
    interrupt::check()?;
    let node = |name: u64| {
        graph.node(name).ok_or_else(|| {
            let last = graph.name(graph.nodes() as u32 - 1);
            format!(
                "{name} is none of the graph's {} nodes; the last one is {last}",
                grouped(graph.nodes() as u64)
            )
        })
    };
    let targets = match &args.component {
        Some(list) => listed(list, "--component", node)?,
        None => (0..graph.nodes() as u32).collect(),
    };
    let seeds = asked.seeds.as_deref().map(|list| listed(list, "--seeds", node)).transpose()?;
    let options = Options {
        damping,
        seeds: seeds.unwrap_or_default(),
        relative: asked.relative.unwrap_or(if args.epsilon.is_some() { 0.0 } else { 1e-6 }),
        epsilon: args.epsilon.unwrap_or(0.0),
        time_limit: limit.map(|limit| limit.saturating_sub(started.elapsed())),
        ..Options::default()
    };
    let load = started.elapsed().as_secs_f64();
    if dry_run {
        return forecast(&name, &graph, &targets, options, load, report_file);
    }
    let progress = Progress::new(quiet, "multiplying");
    let mut watch = |done, all| {
        interrupt::check()?;
        progress.at(done, all, if args.lazy { "nodes" } else { "products at most" });
        Ok(())
    };
    let mut solution = match args.lazy {
        true => local_page_rank(&graph, &targets, &options, &walks(args), &mut watch)?,
        false => page_rank(&graph, &targets, &options, &mut watch)?,
    };
    drop(progress);
    let all = args.component.is_none() && args.output.is_some();
    let top = asked.top.or_else(|| (args.component.is_none() && !all).then_some(LISTED));
    let certain = top.map(|top| solution.rank(top));
    if let Some(mut output) = output {
        let written = match args.output.as_deref().is_some_and(is_npz) {
            true => npz::write_arrays(&mut output, &arrays(&graph, &solution.nodes)),
            false => write_table(&mut output, &graph, &solution.nodes),
        };
        written.map_err(|e| output.error(e))?;
        output.commit()?;
    }
    (solution.seconds.load, solution.seconds.total) = (load, started.elapsed().as_secs_f64());
    let confidence = args.lazy.then_some(args.confidence);
    let run = Run {
        name: &name,
        graph: &graph,
        options: &options,
        time_limit: args.time_limit,
        confidence,
        certain,
        solution: &solution,
    };
    write_report(report_file, [format_args!("{:#}", run.json())])?;
    Ok(conclude(&run, solution.status, common, args.solving.verbose, ranks))
}

/// Settings of the walks that follow a local push.
fn walks(args: &Walk) -> Walks {
    let most = args.max_chains.unwrap_or(Walks::default().most);
    Walks { confidence: args.confidence, seed: args.seed, most }
}

/// Error for options that PageRank lacks: it runs in one process, on the CPU, in f64.
fn expect_host(args: &Walk, ranks: Ranks) -> Result<()> {
    let common = &args.solving.common;
    let fail = |option: &str| {
        Err(Error::Invalid(format!("PageRank is computed on the host's cores in f64; leave out {option}")))
    };
    if ranks.is_distributed() {
        return Err(Error::Invalid(
            "--pagerank is the work of one process; start it without mpirun".to_owned(),
        ));
    }
    if common.device.0.iter().any(|device| !matches!(device, DeviceSpec::Auto | DeviceSpec::Cpu)) {
        return fail("--device");
    }
    if !matches!(common.precision, PrecisionArg::Auto | PrecisionArg::F64) {
        return fail("--precision");
    }
    if !args.lazy && args.max_chains.is_some() {
        return Err(Error::Invalid(
            "--max-chains limits walks, of which --pagerank has none; leave it out, or give --lazy"
                .to_owned(),
        ));
    }
    if args.lazy && args.component.is_none() {
        return Err(Error::Invalid("--lazy answers node by node; name some with --component".to_owned()));
    }
    if args.lazy && args.solving.dry_run {
        return Err(Error::Invalid("--dry-run says what products take; leave out --lazy".to_owned()));
    }
    if common.lanes.0.is_some() || common.memory_limit.is_some() {
        return fail("--lanes and --memory-limit");
    }
    Ok(())
}

/// Reads a graph from a file, or builds a built-in one.
fn read(spec: &str, undirected: bool, seed: u64) -> Result<(String, Graph)> {
    if let Some(made) = models::links(spec, seed) {
        let made = made?;
        return Ok((made.name, Graph::counted(made.nodes, &made.from, &made.to, &[], undirected)?));
    }
    let path = Path::new(spec);
    suggest::expect_file(spec, &suggest::GRAPHS)?;
    if !path.exists() {
        let reason = format!(
            "there is no such file; give a list of links, a graph in .mtx or .npz, or a built-in: {}",
            models::GRAPHS
        );
        return Err(Error::File { path: path.into(), reason });
    }
    Ok((spec.to_owned(), read_graph(path, undirected)?))
}

/// Matrix-vector products of a pilot run.
const PILOT: u32 = 3;

/// Predicts memory and time from a pilot run.
fn forecast(
    name: &str,
    graph: &Graph,
    targets: &[u32],
    options: Options,
    load: f64,
    report: Option<OutputFile>,
) -> Result<Outcome> {
    let most = most_products(graph, &options);
    let pilot = Options { most_products: PILOT, ..options };
    let solution = page_rank(graph, targets, &pilot, &mut |_, _| interrupt::check())?;
    let product = solution.seconds.solve / f64::from(solution.products);
    let (needed, free) = (peak_bytes(graph, targets.len()), available_memory());
    let solve = most.map(|most| product * most as f64);
    let object = json!({
        "command": "walk",
        "version": env!("CARGO_PKG_VERSION"),
        "dry_run": true,
        "model": name,
        "damping": pilot.damping,
        "n": graph.nodes(),
        "links": graph.links(),
        "components": targets.len(),
        "products": most,
        "product": product,
        "host": {"device": "the host", "needed": needed, "free": free},
        "seconds": {"load": load, "solve": solve},
    });
    write_report(report, [format_args!("{object:#}")])?;
    say(format_args!(
        "graph    {name}  {} nodes, {} links, damping {}",
        grouped(graph.nodes() as u64),
        grouped(graph.links() as u64),
        pilot.damping
    ));
    say(format_args!("memory   the host  graph and iterates {}; {} free", bytes(needed), bytes(free)));
    say(format_args!("pilot    {} products, {} each", solution.products, seconds(product)));
    say(match solve.zip(most) {
        Some((time, most)) => {
            format!("time     load {}, at most {most} products, {}", seconds(load), seconds(time))
        }
        None => {
            format!("time     load {}, products as the seeds need; most graphs, some dozens", seconds(load))
        }
    });
    Ok(Outcome::Met)
}

/// The columns of [`write_table`] as arrays.
fn arrays(graph: &Graph, nodes: &[Node]) -> [(&'static str, Vec<u64>, Values<'static>); 3] {
    let shape = || vec![nodes.len() as u64];
    let floats = |of: fn(&Node) -> f64| Values::Floats(nodes.iter().map(of).collect());
    let names = nodes.iter().map(|node| graph.name(node.node) as i64).collect();
    [
        ("component", shape(), Values::Integers(names)),
        ("estimate", shape(), floats(|node| node.estimate)),
        ("half_width", shape(), floats(|node| node.half_width)),
    ]
}

/// Writes the nodes as CSV: `component,estimate,half_width`.
fn write_table(output: &mut OutputFile, graph: &Graph, nodes: &[Node]) -> io::Result<()> {
    output.write_all(b"component,estimate,half_width\n")?;
    write_lines(output, nodes.len(), &|k, text| {
        push_integer(text, graph.name(nodes[k].node));
        text.push(b',');
        push_number(text, nodes[k].estimate);
        text.push(b',');
        push_number(text, nodes[k].half_width);
        text.push(b'\n');
    })
}
