//! Components of A x = b by random walks, and PageRank.
//!
//! `cargo bench --bench walk`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

mod machine;

use divan::Bencher;
use kolmo::models;
use kolmo::pagerank::{self, Graph, page_rank};
use kolmo::walk::{Options, Problem, solve};

use machine::machine;

fn main() {
    divan::main();
}

/// One component, with the preparation of the matrix.
#[divan::bench(args = ["poisson2d:200,0.9", "random-dominant:20000,10,0.8,positive"], sample_count = 10)]
fn component(bencher: Bencher<'_, '_>, spec: &str) {
    components(bencher, spec, 1);
}

/// One hundred components.
#[divan::bench(args = ["poisson2d:200,0.9"], sample_count = 10)]
fn hundred_components(bencher: Bencher<'_, '_>, spec: &str) {
    components(bencher, spec, 100);
}

/// PageRank of all nodes of a graph with 2^16 nodes.
#[divan::bench(args = ["rmat:16,8"], sample_count = 10)]
fn pagerank(bencher: Bencher<'_, '_>, spec: &str) {
    let made = models::links(spec, 0).expect("a built-in").expect("sound parameters");
    let graph = Graph::counted(made.nodes, &made.from, &made.to, &[], false).expect("a graph");
    let targets: Vec<u32> = (0..graph.nodes() as u32).collect();
    let options = pagerank::Options::default().damping(0.85).relative(1e-6);
    bencher.bench_local(|| page_rank(&graph, &targets, &options, &mut ()).expect("a solution"));
}

fn components(bencher: Bencher<'_, '_>, spec: &str, count: u32) {
    let machine = machine();
    let system = models::system(spec, 0).expect("a built-in").expect("sound parameters");
    let (rhs, components) = ([system.rhs], (0..count).collect::<Vec<u32>>());
    let problem = Problem::new(&system.matrix, &rhs, &components);
    let options = Options::default().epsilon(Some(1e-3));
    bencher.bench_local(|| solve(&machine, &problem, &options, &mut ()).expect("a solution"));
}
