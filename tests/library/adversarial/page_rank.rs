//! PageRank against elimination in double-word arithmetic, at damping factors from 0 to nearly 1.

use kolmo::Status;
use kolmo::pagerank::{Graph, Options, page_rank};

use super::double_word::DoubleWord;
use super::run_all;
use crate::graph::dense;

kinds! { Random Dangling Ring Bipartite Loops Parallel Tiny }

/// Distances of the damping factor from 1.
const DISTANCES: [f64; 11] =
    [1.0, 0.5, 0.15, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-13, f64::EPSILON, 0.5 * f64::EPSILON];

/// Returns the number of nodes of a graph, and its edges with their multiplicities.
fn links(kind: Kind, random: &mut fastrand::Rng) -> (usize, Vec<(u32, u32, u64)>) {
    let n = match kind {
        Kind::Tiny => random.u32(1..4),
        Kind::Bipartite => 2 * random.u32(1..12),
        _ => random.u32(2..28),
    };
    let count = random.usize(0..4 * n as usize + 1);
    let mut pairs: Vec<(u32, u32)> = (0..count).map(|_| (random.u32(..n), random.u32(..n))).collect();
    match kind {
        Kind::Dangling => pairs.retain(|&(from, _)| from % 3 != 0),
        Kind::Ring => pairs = (0..n).map(|i| (i, (i + 1) % n)).collect(),
        Kind::Bipartite => {
            pairs.iter_mut().for_each(|(from, to)| *to = *to - *to % 2 + 1 - *from % 2);
            pairs.extend((0..n).map(|i| (i, i ^ 1)));
        }
        Kind::Loops => pairs.extend((0..n).filter(|i| i % 2 == 0).map(|i| (i, i))),
        Kind::Random | Kind::Parallel | Kind::Tiny => {}
    }
    let counted = |(from, to)| {
        let most = 1u64 << random.u32(..40);
        let count = if matches!(kind, Kind::Parallel) { 1 + random.u64(..most) } else { 1 };
        (from, to, count)
    };
    (n as usize, pairs.into_iter().map(counted).collect())
}

fn check(kind: Kind, seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed << 3 | kind as u64);
    let (n, links) = links(kind, &mut random);
    let distance = DISTANCES[seed as usize % DISTANCES.len()];
    let d = 1.0 - distance;
    let mut seeds: Vec<u32> = (0..n as u32).collect();
    random.shuffle(&mut seeds);
    seeds.truncate(if (seed / DISTANCES.len() as u64).is_multiple_of(2) { 0 } else { 1 + random.usize(..n) });
    let x: Vec<DoubleWord> = dense(n, &links, d, &seeds);
    let column = |of: fn(&(u32, u32, u64)) -> u32| links.iter().map(of).collect::<Vec<u32>>();
    let counts: Vec<f64> = links.iter().map(|link| link.2 as f64).collect();
    let graph = Graph::counted(n, &column(|link| link.0), &column(|link| link.1), &counts, false);
    let graph = graph.map_err(|error| error.to_string())?;
    let relative = [1e-9, 1e-6, 1e-3][seed as usize % 3];
    // With seeds, iteration goes on for nodes whose interval elimination leaves too wide. It runs
    // to convergence on tiny graphs only.
    let most_products = if matches!(kind, Kind::Tiny) { u32::MAX } else { 1 << 16 };
    let options = Options::default().damping(d).seeds(seeds).relative(relative).most_products(most_products);
    let targets: Vec<u32> = (0..n as u32).collect();
    let solution = page_rank(&graph, &targets, &options, &mut ()).map_err(|e| e.to_string())?;
    // Without seeds the bounds are relative. With seeds the bound is one of the sum of all errors,
    // which can exceed the smallest values. Elimination ends with a residual of at most four times
    // its rounding. That is 16 u² times its operands per operation, with u = ε / 2, and operands
    // sum to 2. The errors are 1 / (1 − d) times as large.
    let operations = (links.len() + n + 16) as f64;
    let errors = 4.0 * 8.0 * operations * f64::EPSILON.powi(2) / distance;
    let smallest = x.iter().map(|x| x.hi).filter(|&x| x > 0.0).fold(1.0, f64::min);
    let attainable = options.seeds.is_empty() || relative * smallest > errors;
    if solution.status != Status::Met && attainable {
        return Err(format!("not met at {d}: {solution:?}"));
    }
    for (node, exact) in solution.nodes.iter().zip(&x) {
        let error = (DoubleWord::from(node.estimate) - *exact).abs().to_f64();
        // The reference has an error of 2⁻¹⁰¹ per operation, multiplied by 1 / (1 − d).
        let slack = (n * n) as f64 * (-98f64).exp2() / distance;
        let wide =
            solution.status == Status::Met && node.half_width > relative * node.estimate && exact.hi != 0.0;
        if error.is_nan() || error > node.half_width + slack || wide {
            return Err(format!("{:e} at {d} is off by {error:e}: {node:?}", exact.hi));
        }
    }
    Ok(())
}

#[test]
fn every_interval_holds_page_rank() {
    run_all(KINDS, 2 * DISTANCES.len() as u64, check);
}
