//! PageRank of graphs against a dense solution.

use crate::support::{Real, eliminate};
use kolmo::pagerank::{Graph, Node, Options, Solution, Walks, local_page_rank, page_rank};
use kolmo::{Error, Status};

/// Name, number of nodes, edges, and seeds of a graph.
type Case = (&'static str, usize, Vec<(u32, u32)>, Vec<u32>);

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

/// Returns each link with the multiplicity 1; a multiple link is listed several times.
fn counted(links: &[(u32, u32)]) -> Vec<(u32, u32, u64)> {
    links.iter().map(|&(from, to)| (from, to, 1)).collect()
}

fn cases() -> Vec<Case> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut links =
        |n: u32, count: usize| (0..count).map(|_| (random.u32(..n), random.u32(..n))).collect::<Vec<_>>();
    let ring = |n: u32| (0..n).map(|i| (i, (i + 1) % n)).collect::<Vec<_>>();
    let star: Vec<(u32, u32)> = (1..30).flat_map(|i| [(0, i), (i, 0)]).collect();
    vec![
        ("random with loops and dangling nodes", 40, links(40, 90), vec![]),
        ("random, from seeds", 40, links(40, 90), vec![3, 17, 39]),
        ("sparse, from a seed that reaches little", 60, links(60, 50), vec![5]),
        ("dense", 12, links(12, 400), vec![]),
        ("links that are there twice", 5, vec![(0, 1), (0, 1), (0, 2), (1, 0), (2, 2), (2, 2)], vec![]),
        ("isolated nodes", 9, vec![(0, 1), (1, 0)], vec![]),
        ("isolated nodes, some of which are seeds", 9, vec![(7, 1), (1, 7), (1, 1)], vec![1, 4, 5]),
        ("isolated nodes, one of which is the seed", 9, vec![(0, 1), (1, 0)], vec![5]),
        ("no edge", 6, vec![], vec![]),
        ("no edge, one seed", 6, vec![], vec![4]),
        ("one node", 1, vec![], vec![]),
        ("a seed without a link", 4, vec![(0, 1), (1, 2)], vec![2]),
        ("a star: iterates of period 2", 30, star, vec![]),
        ("a ring from one node: period 7", 7, ring(7), vec![0]),
        ("a ring and its inflow: period 3", 5, [ring(3), vec![(3, 0), (4, 3), (4, 1)]].concat(), vec![]),
        ("a path", 50, (0..49).map(|i| (i, i + 1)).collect(), vec![]),
        ("a path from its end", 50, (0..49).map(|i| (i, i + 1)).collect(), vec![0]),
    ]
}

fn graph(n: usize, links: &[(u32, u32)]) -> Graph {
    let (from, to): (Vec<u32>, Vec<u32>) = links.iter().copied().unzip();
    Graph::new(n, &from, &to).expect("a sound graph")
}

fn solve(graph: &Graph, targets: &[u32], options: &Options) -> Solution {
    page_rank(graph, targets, options, &mut ()).expect("a sound question")
}

fn solve_locally(graph: &Graph, targets: &[u32], options: &Options, walks: &Walks) -> Solution {
    local_page_rank(graph, targets, options, walks, &mut ()).expect("a sound question")
}

fn built_in(name: &str) -> Graph {
    kolmo::models::graph(name, 1).expect("a built-in").expect("sound parameters").1
}

#[test]
fn intervals_of_a_push_and_walks_have_their_coverage() {
    let (mut asked, mut held, mut walked) = (0, 0, 0);
    for (name, n, links, seeds) in cases() {
        let graph = graph(n, &links);
        let targets: Vec<u32> = (0..n as u32).step_by(4).collect();
        for (d, epsilon) in [(0.0, 1e-3), (0.5, 1e-2), (0.85, 1e-3), (0.85, 0.05)] {
            let x: Vec<f64> = dense(n, &counted(&links), d, &seeds);
            let options = Options::default().damping(d).seeds(seeds.clone()).epsilon(epsilon);
            let solution = solve_locally(&graph, &targets, &options, &Walks::default());
            assert_eq!(solution.status, Status::Met, "{name}, {d}, {epsilon}");
            walked += solution.steps;
            for (node, &target) in solution.nodes.iter().zip(&targets) {
                let error = (node.estimate - x[target as usize]).abs();
                assert!(error <= node.certain + 1e-15, "{name}, {d}: {error:e} of {node:?}");
                assert!(node.half_width <= epsilon, "{name}, {d}: {node:?}");
                asked += 1;
                held += u32::from(error <= node.half_width + 1e-15);
            }
        }
    }
    // At least 95 %, less three standard deviations.
    let least = 0.95 - 3.0 * (0.95 * 0.05 / f64::from(asked)).sqrt();
    assert!(f64::from(held) >= least * f64::from(asked), "{held} of {asked}");
    assert!(walked > 1_000_000, "{walked} steps");
}

#[test]
fn walks_end_at_their_limit() {
    let graph = built_in("rmat:8,8");
    let options = Options::default().epsilon(1e-9);
    let walks = Walks::default().most(1 << 14);
    let solution = solve_locally(&graph, &[3], &options, &walks);
    let [node] = solution.nodes[..] else { panic!("{solution:?}") };
    assert_eq!(solution.status, Status::NotMet);
    let exact = solve(&graph, &[3], &Options::default().relative(1e-12)).nodes[0];
    assert!((node.estimate - exact.estimate).abs() <= node.certain, "{node:?} {exact:?}");
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
    for (few, listed) in
        solve(&few, &[0, 1, 2], &options).nodes.iter().zip(solve(&listed, &[0, 1, 2], &options).nodes)
    {
        assert!((few.estimate - listed.estimate).abs() <= few.half_width + listed.half_width);
    }
    let many = Graph::counted(3, &from, &to, &[1e11, 1.0, 1.0, 1.0], false).expect("a sound graph");
    assert_eq!(many.links(), 100_000_000_003);
    let solution = solve(&many, &[0, 1, 2], &options);
    let lazily = Options::default().epsilon(1e-3).relative(0.0);
    let walked = solve_locally(&many, &[1], &lazily, &Walks::default());
    assert!((walked.nodes[0].estimate - solution.nodes[1].estimate).abs() <= walked.nodes[0].certain);
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
fn walks_longer_than_products_are_replaced_by_products() {
    let graph = graph(4, &[(0, 1), (1, 0), (2, 0)]);
    let options = Options::default().epsilon(1e-6);
    let solution = solve_locally(&graph, &[0], &options, &Walks::default());
    assert!(solution.steps < 1 << 25 && solution.products > 0, "{solution:?}");
    assert!(solution.status == Status::Met && solution.nodes[0].statistical == 0.0);
}

#[test]
fn invalid_problems_are_rejected() {
    let small = graph(3, &[(0, 1)]);
    for (targets, seeds, why) in [
        (&[3][..], vec![], "target 3 of a graph of 3 nodes is out of range"),
        (&[1], vec![9], "seed 9 of a graph of 3 nodes is out of range"),
    ] {
        let options = Options::default().seeds(seeds);
        let said = page_rank(&small, targets, &options, &mut ()).unwrap_err().to_string();
        assert!(said.contains(why), "{said}, not {why}");
    }
    for (nodes, from, to) in
        [(0, vec![], vec![]), (2, vec![0], vec![2]), (2, vec![0], vec![]), (2, vec![5], vec![0])]
    {
        assert!(Graph::new(nodes, &from, &to).is_err(), "{nodes} {from:?} {to:?}");
    }
    let (options, walks) = (Options::default().epsilon(1e-3), Walks::default().confidence(1.0));
    let said = local_page_rank(&small, &[0], &options, &walks, &mut ()).unwrap_err().to_string();
    assert!(said.contains("`confidence` 1 is out of range"), "{said}");
    let stopped = page_rank(&small, &[0], &Options::default(), &mut |_, _| Err(Error::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
