//! PageRank of graphs against a dense solution.

use kolmo::walk::graph::{Graph, Node, Options, Solution, Walks, local_page_rank, page_rank};
use kolmo::{Error, Status};

/// A graph's nodes, links, and seeds.
type Case = (&'static str, usize, Vec<(u32, u32)>, Vec<u32>);

/// x of (I − d Pᵀ) x = (1 − d) s by elimination; the columns of Pᵀ sum to 1, so that no pivot is small.
fn dense(n: usize, links: &[(u32, u32)], d: f64, seeds: &[u32]) -> Vec<f64> {
    let start = |i: usize| match seeds {
        [] => 1.0 / n as f64,
        seeds if seeds.contains(&(i as u32)) => 1.0 / seeds.len() as f64,
        _ => 0.0,
    };
    let mut a = vec![vec![0.0; n + 1]; n];
    let mut degree = vec![0.0; n];
    links.iter().for_each(|link| degree[link.0 as usize] += 1.0);
    links.iter().for_each(|&(j, i)| a[i as usize][j as usize] -= d / degree[j as usize]);
    for (i, row) in a.iter_mut().enumerate() {
        let ends = row.iter_mut().zip(&degree).filter(|(_, degree)| **degree == 0.0);
        ends.for_each(|(entry, _)| *entry -= d * start(i));
        row[i] += 1.0;
        row[n] = (1.0 - d) * start(i);
    }
    // Column diagonally dominant: elimination needs no exchange of rows.
    for k in 0..n {
        let (above, below) = a.split_at_mut(k + 1);
        let pivot = &above[k];
        for row in below {
            let factor = row[k] / pivot[k];
            row.iter_mut().zip(pivot).skip(k).for_each(|(entry, pivot)| *entry -= factor * pivot);
        }
    }
    let mut x = vec![0.0; n];
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[k][j] * x[j]).sum();
        x[k] = (a[k][n] - known) / a[k][k];
    }
    x
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
        ("no link", 6, vec![], vec![]),
        ("no link, one seed", 6, vec![], vec![4]),
        ("one node", 1, vec![], vec![]),
        ("a seed without a link", 4, vec![(0, 1), (1, 2)], vec![2]),
        ("a star: iterates of period 2", 30, star, vec![]),
        ("a ring from one node: period 7", 7, ring(7), vec![0]),
        (
            "a ring and what leads there: period 3",
            5,
            [ring(3), vec![(3, 0), (4, 3), (4, 1)]].concat(),
            vec![],
        ),
        ("a path", 50, (0..49).map(|i| (i, i + 1)).collect(), vec![]),
        ("a path from its end", 50, (0..49).map(|i| (i, i + 1)).collect(), vec![0]),
    ]
}

fn graph(n: usize, links: &[(u32, u32)]) -> Graph {
    let (from, to): (Vec<u32>, Vec<u32>) = links.iter().copied().unzip();
    Graph::new(n, &from, &to).expect("a sound graph")
}

fn solve(graph: &Graph, targets: &[u32], options: &Options) -> Solution {
    page_rank(graph, targets, options, &mut |_, _| Ok(())).expect("a sound question")
}

#[test]
fn every_interval_holds_what_elimination_finds() {
    for (name, n, links, seeds) in cases() {
        let graph = graph(n, &links);
        let targets: Vec<u32> = (0..n as u32).rev().collect();
        for d in [0.0, 0.5, 0.85, 0.99] {
            let x = dense(n, &links, d, &seeds);
            for relative in [1e-2, 1e-4, 1e-9] {
                let options = Options { damping: d, seeds: seeds.clone(), relative, ..Options::default() };
                let solution = solve(&graph, &targets, &options);
                assert_eq!(solution.status, Status::Met, "{name}, {d}, {relative:e}");
                for (node, &target) in solution.nodes.iter().zip(&targets) {
                    let exact = x[target as usize];
                    assert_eq!(node.node, target);
                    // The oracle's own rounding: n steps, of which none grows numbers by more than 1 / (1 − d).
                    let slack = 4.0 * n as f64 * f64::EPSILON * exact / (1.0 - d);
                    assert!(
                        (node.estimate - exact).abs() <= node.half_width + slack,
                        "{name}, {d}, {relative:e}: x_{target} = {exact:e} is not in {node:?}"
                    );
                    assert!(
                        node.half_width <= relative * node.estimate || exact == 0.0,
                        "{name}, {d}: {node:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_push_and_walks_hold_what_elimination_finds_as_often_as_they_say() {
    let (mut asked, mut held, mut walked) = (0, 0, 0);
    for (name, n, links, seeds) in cases() {
        let graph = graph(n, &links);
        let targets: Vec<u32> = (0..n as u32).step_by(4).collect();
        for (d, epsilon) in [(0.0, 1e-3), (0.5, 1e-2), (0.85, 1e-3), (0.85, 0.05)] {
            let x = dense(n, &links, d, &seeds);
            let options = Options { damping: d, seeds: seeds.clone(), epsilon, ..Options::default() };
            let solution = local_page_rank(&graph, &targets, &options, &Walks::default(), &mut |_, _| Ok(()));
            let solution = solution.expect("a sound question");
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
    // 95 % at least, and three standard deviations of that.
    let least = 0.95 - 3.0 * (0.95 * 0.05 / f64::from(asked)).sqrt();
    assert!(f64::from(held) >= least * f64::from(asked), "{held} of {asked}");
    assert!(walked > 1_000_000, "{walked} steps");
}

#[test]
fn walks_end_where_they_are_limited() {
    let (_, graph) = kolmo::models::graph("rmat:8,8", 1).expect("a built-in").expect("sound parameters");
    let options = Options { epsilon: 1e-9, ..Options::default() };
    let walks = Walks { most: 1 << 14, ..Walks::default() };
    let solution = local_page_rank(&graph, &[3], &options, &walks, &mut |_, _| Ok(())).expect("an answer");
    let [node] = solution.nodes[..] else { panic!("{solution:?}") };
    assert_eq!(solution.status, Status::NotMet);
    let exact = solve(&graph, &[3], &Options { relative: 1e-12, ..Options::default() }).nodes[0];
    assert!((node.estimate - exact.estimate).abs() <= node.certain, "{node:?} {exact:?}");
}

#[test]
fn what_mixes_well_takes_few_products() {
    let (_, graph) = kolmo::models::graph("rmat:10,8", 1).expect("a built-in").expect("sound parameters");
    let all: Vec<u32> = (0..1024).collect();
    let exact = solve(&graph, &all, &Options { relative: 1e-12, ..Options::default() });
    let [sum, within] = [|node: &Node| node.estimate, |node: &Node| node.half_width]
        .map(|of| exact.nodes.iter().map(of).sum::<f64>());
    assert!((sum - 1.0).abs() <= within && within < 1e-10, "{sum} ± {within}");
    let solution = solve(&graph, &all, &Options { relative: 1e-4, ..Options::default() });
    // ln(1e-4 · 0.15 / 1024) / ln 0.85 = 111 by the sum of what is left out alone.
    assert!(solution.products <= 40, "{}", solution.products);
    for (node, exact) in solution.nodes.iter().zip(&exact.nodes) {
        assert!(
            (node.estimate - exact.estimate).abs() <= node.half_width + exact.half_width,
            "{node:?} {exact:?}"
        );
    }
}

#[test]
fn products_end_where_they_are_limited_and_where_rounding_is_all_that_is_left() {
    let (_, graph) =
        kolmo::models::graph("barabasi:300,3", 1).expect("a built-in").expect("sound parameters");
    let options = Options { most_products: 3, ..Options::default() };
    let solution = solve(&graph, &[0, 7], &options);
    assert_eq!((solution.status, solution.products), (Status::NotMet, 3));
    let solution = solve(&graph, &[0, 7], &Options { relative: 0.0, ..Options::default() });
    assert_eq!(solution.status, Status::NotMet);
    assert!(solution.nodes.iter().all(|node| node.truncation <= node.rounding), "{:?}", solution.nodes);
    let solution = solve(&graph, &[7], &Options { relative: 0.0, epsilon: 1e-5, ..Options::default() });
    assert!(solution.status == Status::Met && solution.nodes[0].half_width <= 1e-5);
}

#[test]
fn undirected_graphs_have_links_both_ways() {
    // A path of two links: the middle node has twice the others' links.
    let graph = Graph::undirected(3, &[0, 1, 2], &[1, 2, 2]).expect("a sound graph");
    assert_eq!(graph.links(), 5);
    let mut pairs: Vec<(u64, u64)> = graph.pairs().collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]);
    let named = graph.named(vec![7, 30, 500]).expect("names that ascend");
    assert_eq!((named.node(30), named.node(8), named.name(2)), (Some(1), None, 500));
}

#[test]
fn questions_without_an_answer_are_refused() {
    let small = graph(3, &[(0, 1)]);
    let ask =
        |targets: &[u32], options: Options| match page_rank(&small, targets, &options, &mut |_, _| Ok(())) {
            Err(Error::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        };
    let damping = |damping| Options { damping, ..Options::default() };
    assert!(ask(&[0], damping(1.0)).contains("--time inf"));
    assert!(ask(&[0], damping(-0.1)).contains("below 1"));
    assert!(ask(&[0], damping(f64::NAN)).contains("below 1"));
    assert!(ask(&[3], Options::default()).contains("target 3 is none of a graph of 3 nodes"));
    assert!(ask(&[1, 1], Options::default()).contains("named twice"));
    assert!(ask(&[1], Options { seeds: vec![9], ..Options::default() }).contains("seed 9 is none"));
    assert!(ask(&[1], Options { relative: -1.0, ..Options::default() }).contains("relative"));
    for (nodes, from, to) in
        [(0, vec![], vec![]), (2, vec![0], vec![2]), (2, vec![0], vec![]), (2, vec![5], vec![0])]
    {
        assert!(Graph::new(nodes, &from, &to).is_err(), "{nodes} {from:?} {to:?}");
    }
    let local = |epsilon, confidence| {
        let (options, walks) =
            (Options { epsilon, ..Options::default() }, Walks { confidence, ..Walks::default() });
        local_page_rank(&small, &[0], &options, &walks, &mut |_, _| Ok(())).unwrap_err().to_string()
    };
    assert!(local(0.0, 0.95).contains("--epsilon") && local(1e-3, 1.0).contains("--confidence 1 must"));
    let stopped = page_rank(&small, &[0], &Options::default(), &mut |_, _| Err(Error::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
