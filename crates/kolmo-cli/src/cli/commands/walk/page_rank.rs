//! `kolmo walk --pagerank`: PageRank of a graph's nodes.

use std::io::{self, Write};

use super::arguments::WalkArgs;
use super::{components, open, time_limit};
use crate::cli::input::suggest;
use crate::cli::prelude::*;
use crate::report::graph::PageRankReport;
use kolmo::io::read_graph;
use kolmo::io::write::{push_integer, push_number, write_lines};
use kolmo::lane::available_memory;
use kolmo::models;
use kolmo::pagerank::{Graph, Node, Options, most_products, page_rank, peak_bytes};

/// Default number of listed nodes.
const LISTED: usize = 10;

pub(crate) fn run(args: &WalkArgs, damping: f64, ranks: Ranks) -> Result<Status> {
    let started = Instant::now();
    ranks.all_ok(expect_host(args, ranks))?;
    let limit = time_limit(args.time_limit)?;
    let (asked, common) = (&args.graph, &args.solving.common);
    let (quiet, dry_run) = (common.quiet, args.dry_run);
    let output = (!dry_run).then(|| open(args.output.as_deref())).transpose()?;
    let report_file = common.report_file(ranks)?;
    let reading = ProgressDisplay::new(quiet, "reading the graph");
    let (name, graph) = read(&args.matrix, asked.undirected, args.seed)?;
    drop(reading);
    interrupt::check()?;
    let node = |name: u64| {
        graph.node(name).ok_or_else(|| {
            let (nodes, last) = (grouped(graph.nodes() as u64), graph.name(graph.nodes() as u32 - 1));
            format!("{name} is not in the graph: expected one of its {nodes} nodes, the last is {last}")
        })
    };
    let targets = match &args.component {
        Some(list) => components(list, "--component", node)?,
        None => (0..graph.nodes() as u32).collect(),
    };
    let seeds = asked.seeds.as_deref().map(|list| components(list, "--seeds", node)).transpose()?;
    let options = Options::default()
        .damping(damping)
        .seeds(seeds.unwrap_or_default())
        .relative(asked.relative.unwrap_or(if args.epsilon.is_some() { 0.0 } else { 1e-6 }))
        .epsilon(args.epsilon.unwrap_or(0.0))
        .time_limit(limit.map(|limit| limit.saturating_sub(started.elapsed())));
    let load = started.elapsed().as_secs_f64();
    if dry_run {
        return forecast(&name, &graph, &targets, options, load, report_file);
    }
    let progress = ProgressDisplay::new(quiet, "multiplying");
    let mut watch = |done, all| {
        interrupt::check()?;
        progress.at(done, all, "products at most");
        Ok(())
    };
    let mut solution = page_rank(&graph, &targets, &options, &mut watch)?;
    drop(progress);
    let all = args.component.is_none() && args.output.is_some();
    let top = asked.top.or_else(|| (args.component.is_none() && !all).then_some(LISTED));
    let certain = top.map(|top| solution.rank(top));
    if let Some(output) = output {
        complete(output, |output| write_table(output, &graph, &solution.nodes))?;
    }
    (solution.seconds.load, solution.seconds.total) = (load, started.elapsed().as_secs_f64());
    let run = PageRankReport {
        name: &name,
        graph: &graph,
        options: &options,
        time_limit: args.time_limit,
        certain,
        solution: &solution,
    };
    conclude(&run, report_file, &args.solving, ranks)
}

/// Error for options that PageRank lacks: it runs in one process, on the CPU, in f64.
fn expect_host(args: &WalkArgs, ranks: Ranks) -> Result<()> {
    let common = &args.solving.common;
    let on_host = |device: &DeviceSpec| matches!(device, DeviceSpec::Auto | DeviceSpec::Cpu);
    let in_f64 = matches!(common.precision, None | Some(Precision::F64));
    let cores = |option: &str| format!("PageRank is computed on the host's cores in f64; leave out {option}");
    let why = "--pagerank is the work of one process; start it without mpirun";
    expect(!ranks.is_distributed(), why)?;
    expect(common.device.iter().all(on_host), cores("--device"))?;
    expect(in_f64, cores("--precision"))?;
    expect(common.lanes.is_none() && common.memory_limit.is_none(), cores("--lanes and --memory-limit"))
}

/// Reads a graph from a file, or builds a built-in one.
fn read(spec: &str, undirected: bool, seed: u64) -> Result<(String, Graph)> {
    if let Some(made) = models::links(spec, seed) {
        let made = made?;
        return Ok((made.name, Graph::counted(made.nodes, &made.from, &made.to, &[], undirected)?));
    }
    let readable = ("a list of links, a graph in .mtx or .npz", models::GRAPHS);
    let path = suggest::existing(spec, &suggest::GRAPHS, readable)?;
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
) -> Result<Status> {
    let most = most_products(graph, &options);
    let pilot = options.most_products(PILOT);
    let solution = page_rank(graph, targets, &pilot, &mut |_, _| interrupt::check())?;
    let product = solution.seconds.solve / f64::from(solution.products);
    let (needed, free) = (peak_bytes(graph, targets.len()), available_memory());
    let solve = most.map(|most| product * most as f64);
    let object = json!({
        "command": "walk",
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
    write_object(report, &object)?;
    let ([nodes, links], damping) =
        ([graph.nodes(), graph.links()].map(|k| grouped(k as u64)), pilot.damping);
    say(format_args!("graph    {name}  {nodes} nodes, {links} links, damping {damping}"));
    say(format_args!("memory   the host  graph and iterates {}; {} free", bytes(needed), bytes(free)));
    say(format_args!("pilot    {} products, {} each", solution.products, seconds(product)));
    let products = match solve.zip(most) {
        Some((time, most)) => format!("at most {most} products, {}", seconds(time)),
        None => "products as the seeds need; most graphs, some dozens".to_owned(),
    };
    say(format_args!("time     load {}, {products}", seconds(load)));
    Ok(Status::Met)
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
