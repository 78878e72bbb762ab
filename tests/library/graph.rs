//! PageRank of graphs against a dense solution.

use crate::support::{Real, eliminate, expect_error};
use kolmo::pagerank::{Graph, Node, Options, Solution, page_rank};
use kolmo::{Error, Status};

/// Solves (I − d Pᵀ) x = (1 − d) s by elimination, for links with their multiplicities.
///
/// The columns of Pᵀ sum to 1, so that no pivot is small.
pub(crate) fn dense<T: Real>(n: usize, links: &[(u32, u32, u64)], d: f64, seeds: &[u32]) -> Vec<T> {
    let number = |k: u64| T::from(k as f64);
    let (zero, one) = (number(0), number(1));
    let start = |i: usize| match seeds {
        [] => one / number(n as u64),
        seeds if seeds.contains(&(i as u32)) => one / number(seeds.len() as u64),
        _ => zero,
    };
    let mut degree = vec![0u64; n];
    links.iter().for_each(|link| degree[link.0 as usize] += link.2);
    let d = T::from(d);
    let mut a = vec![vec![zero; n + 1]; n];
    for &(from, to, count) in links {
        let entry = &mut a[to as usize][from as usize];
        *entry = *entry - d * number(count) / number(degree[from as usize]);
    }
    for (i, row) in a.iter_mut().enumerate() {
        for (entry, _) in row.iter_mut().zip(&degree).filter(|(_, degree)| **degree == 0) {
            *entry = *entry - d * start(i);
        }
        row[i] = row[i] + one;
        row[n] = (one - d) * start(i);
    }
    eliminate(a).expect("a regular matrix")
}

fn graph(n: usize, links: &[(u32, u32)]) -> Graph {
    let (from, to): (Vec<u32>, Vec<u32>) = links.iter().copied().unzip();
    Graph::new(n, &from, &to).expect("a sound graph")
}

fn solve(graph: &Graph, targets: &[u32], options: &Options) -> Solution {
    page_rank(graph, targets, options, &mut ()).expect("a sound question")
}

fn built_in(name: &str) -> Graph {
    kolmo::models::graph(name, 1).expect("a built-in").expect("sound parameters").1
}

#[test]
fn fast_mixing_graphs_take_few_products() {
    let graph = built_in("rmat:10,8");
    let all: Vec<u32> = (0..1024).collect();
    let exact = solve(&graph, &all, &Options::default().relative(1e-12));
    let [sum, within] = [|node: &Node| node.estimate, |node: &Node| node.half_width]
        .map(|of| exact.nodes.iter().map(of).sum::<f64>());
    assert!((sum - 1.0).abs() <= within && within < 1e-10, "{sum} ± {within}");
    let solution = solve(&graph, &all, &Options::default().relative(1e-4));
    // The sum of the remaining terms alone would need ln(1e-4 · 0.15 / 1024) / ln 0.85 = 111.
    assert!(solution.products <= 40, "{}", solution.products);
}

#[test]
fn products_end_at_their_limit_and_when_only_rounding_remains() {
    let graph = built_in("barabasi:300,3");
    let options = Options::default().most_products(3);
    let solution = solve(&graph, &[0, 7], &options);
    assert_eq!((solution.status, solution.products), (Status::NotMet, 3));
    let solution = solve(&graph, &[0, 7], &Options::default().relative(0.0));
    assert_eq!(solution.status, Status::NotMet);
    assert!(solution.nodes.iter().all(|node| node.truncation <= node.rounding), "{:?}", solution.nodes);
    let solution = solve(&graph, &[7], &Options::default().relative(0.0).epsilon(1e-5));
    assert!(solution.status == Status::Met && solution.nodes[0].half_width <= 1e-5);
}

#[test]
fn undirected_graphs_have_links_both_ways() {
    // A path of two edges: the middle node has twice the edges of the others.
    let graph = Graph::undirected(3, &[0, 1, 2], &[1, 2, 2]).expect("a sound graph");
    assert_eq!(graph.links(), 5);
    let mut pairs: Vec<(u64, u64)> = graph.pairs().collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]);
    let named = graph.named(vec![7, 30, 500]).expect("names that ascend");
    assert_eq!((named.node(30), named.node(8), named.name(2)), (Some(1), None, 500));
}

#[test]
fn symmetric_graphs_are_undirected_already() {
    // A path with a loop at its end, with both directions in any order, and as counts.
    let (from, to) = ([0, 1, 2, 1, 2], [1, 0, 1, 2, 2]);
    let directed = Graph::new(3, &from, &to).expect("a sound graph");
    assert_eq!(Graph::undirected(3, &from, &to).expect("a sound graph"), directed);
    let counted = |counts: &[f64]| Graph::counted(2, &[0, 1, 1], &[1, 0, 0], counts, true).expect("sound");
    assert_eq!((counted(&[5.0, 2.0, 3.0]).links(), counted(&[4.0, 2.0, 3.0]).links()), (10, 18));
    // Equal in-degree and out-degree of every node do not make a graph symmetric.
    let ring = Graph::undirected(3, &[0, 1, 2], &[1, 2, 0]).expect("a sound graph");
    assert_eq!(ring.links(), 6);
}

#[test]
fn parallel_links_take_the_memory_of_one() {
    let (from, to) = ([0, 0, 1, 2], [1, 2, 0, 0]);
    let few = Graph::counted(3, &from, &to, &[3.0, 1.0, 1.0, 1.0], false).expect("a sound graph");
    let listed = graph(3, &[(0, 1), (0, 1), (0, 1), (0, 2), (1, 0), (2, 0)]);
    assert_eq!((few.links(), few.pairs().count()), (listed.links(), 6));
    let options = Options::default().relative(1e-9);
    let [few, listed] = [&few, &listed].map(|graph| solve(graph, &[0, 1, 2], &options).nodes);
    for (few, listed) in few.iter().zip(&listed) {
        assert!((few.estimate - listed.estimate).abs() <= few.half_width + listed.half_width);
    }
    let many = Graph::counted(3, &from, &to, &[1e11, 1.0, 1.0, 1.0], false).expect("a sound graph");
    assert_eq!(many.links(), 100_000_000_003);
    // Node 0 hardly ever leads to node 2.
    let one = graph(3, &[(0, 1), (1, 0), (2, 0)]);
    let both = [&many, &one].map(|graph| solve(graph, &[1], &options).nodes[0]);
    let within = both[0].half_width + both[1].half_width + 1e-10;
    assert!((both[0].estimate - both[1].estimate).abs() <= within, "{both:?}");
    for count in [0.0, 0.5, -1.0, f64::NAN, f64::INFINITY, 1e19] {
        assert!(Graph::counted(2, &[0], &[1], &[count], false).is_err(), "{count}");
    }
    assert!(Graph::counted(2, &[0, 0], &[1, 0], &[9e15, 9e15], false).is_err());
}

#[test]
fn a_time_limit_ends_products_with_bounds() {
    // A ring of 2000 nodes: no elimination, and some 10⁹ iterations to convergence.
    let (from, to): (Vec<u32>, Vec<u32>) = (0..2000).map(|i| (i, (i + 1) % 2000)).unzip();
    let ring = Graph::new(2000, &from, &to).expect("a sound graph");
    let limit = std::time::Duration::from_millis(200);
    let options = Options::default().damping(1.0 - 1e-9).seeds(vec![0]).time_limit(Some(limit));
    let started = std::time::Instant::now();
    let solution = solve(&ring, &[1], &options);
    assert!(solution.status == Status::NotMet && solution.nodes[0].half_width.is_finite());
    assert!(started.elapsed() < limit + std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    let exact = 1e-9 / (1.0 - (1.0 - 1e-9f64).powi(2000)) * (1.0 - 1e-9);
    assert!((solution.nodes[0].estimate - exact).abs() <= solution.nodes[0].half_width);
}

#[test]
fn invalid_problems_are_rejected() {
    let small = graph(3, &[(0, 1)]);
    for (targets, seeds, why) in [
        (&[3][..], vec![], "target 3 of a graph of 3 nodes is out of range"),
        (&[1], vec![9], "seed 9 of a graph of 3 nodes is out of range"),
    ] {
        let options = Options::default().seeds(seeds);
        expect_error(page_rank(&small, targets, &options, &mut ()), why);
    }
    for (nodes, from, to) in [(0, &[][..], &[][..]), (2, &[0], &[2]), (2, &[0], &[]), (2, &[5], &[0])] {
        assert!(Graph::new(nodes, from, to).is_err(), "{nodes} {from:?} {to:?}");
    }
    let stopped = page_rank(&small, &[0], &Options::default(), &mut |_, _| Err(Error::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
