//! Coverage: the share of intervals that contain the exact result, over many seeds.

use super::*;
use kolmo::models::{graph, system};
use kolmo::pagerank::{self, Walks, local_page_rank, page_rank};
use kolmo::sparse::CsrMatrix;
use kolmo::walk::{Count, Length, Problem, solve};

/// Six systems: positive; signed; a grid; row sums of 1; long rows; L given directly.
pub const COVERED: [&str; 6] = [
    "random-dominant:400,6,0.8,positive",
    "random-dominant:300,5,0.75,signed",
    "poisson2d:14,0.9",
    "poisson2d:7,1",
    "random-dominant:200,40,0.8,signed",
    "pages",
];
/// Graph for PageRank by a local push and walks.
const GRAPH: &str = "barabasi:10000,6";
/// Chains per component in the first round of `kolmo walk`, over 16 replicates.
const CHAINS: u64 = 16 << 10;

/// Returns a system of [`COVERED`] and its splitting.
pub fn covered(name: &str) -> Result<(System, Splitting)> {
    if let Some(built) = system(name, 3) {
        return Ok((built?, Splitting::Auto));
    }
    // A web graph: 0.85 of a page's weight goes to the pages that it links to. Most pages link to
    // page 0, page 7 has no links, page 8 links to itself, page 0 has very many links.
    let n = 120;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| {
        let mut links: Vec<u32> = match i {
            0 => (1..60).collect(),
            7 => Vec::new(),
            8 => vec![8, 9],
            _ => vec![0, ((i * i + 1) % n) as u32, ((i * 7 + 3) % n) as u32],
        };
        links.sort_unstable();
        links.dedup();
        let share = 0.85 / links.len().max(1) as f64;
        row.extend(links.into_iter().map(|j| (j, share)));
    });
    let rhs = (0..n).map(|i| (1 + i % 5) as f64).collect();
    Ok((System { name: name.to_owned(), matrix, rhs }, Splitting::Given))
}

/// Statistics over runs with one seed each.
#[derive(Default)]
struct Tally {
    /// Runs with an error within the half-width.
    whole: u32,
    /// Runs with an error within the statistical part of the half-width.
    statistical: u32,
    /// Sum of the squared errors.
    squares: f64,
    half_widths: Vec<f64>,
}

impl Tally {
    fn add(&mut self, error: f64, half_width: f64, statistical: f64) {
        self.whole += u32::from(error <= half_width);
        self.statistical += u32::from(error <= statistical);
        self.squares += error * error;
        self.half_widths.push(half_width);
    }

    fn record(mut self, machine: &Machine, system: &System, method: &str, size: f64, at: Instant) -> Record {
        let seeds = self.half_widths.len();
        self.half_widths.sort_by(f64::total_cmp);
        let (half_width, rmse) = (self.half_widths[seeds / 2], (self.squares / seeds as f64).sqrt());
        let more = json!({
            "method": method, "seeds": seeds, "covered": self.whole, "covered_statistically": self.statistical,
            "half_width": half_width, "half_width_over_rmse": half_width / rmse,
        });
        let seconds = Spread::of(vec![at.elapsed().as_secs_f64() / seeds as f64]);
        let case = format!("{} coverage", system.name);
        Record { relative_error: rmse / size, ..record(machine, system, case, seconds, more) }
    }
}

/// Counts the runs with an interval that contains the exact component.
///
/// It counts the whole half-width and its statistical part. The component differs from seed to
/// seed. BiCGSTAB ends early here, since a converged solution leaves no walks.
pub fn coverage(
    machine: &Machine,
    (system, splitting): (&System, Splitting),
    control: ControlVariate,
    seeds: u64,
) -> Result<Record> {
    let (x, _) = fixed_point(system, splitting, 1e-15)?;
    let size = largest(&x);
    let base = Options::default().chains(Count::Number(CHAINS)).control(control).splitting(splitting);
    // The truncation error is far below the statistical part.
    let base = match control {
        ControlVariate::Krylov => base.epsilon(Some(0.5 * size)).length(Length::Steps(150)),
        ControlVariate::Sweeps(0) => base.epsilon(Some(1e-9 * size)).delta(Some(1e-6 * size)),
        _ => base.epsilon(Some(1e-9 * size)).delta(Some(1e-11 * size)),
    };
    let (at, mut tally) = (Instant::now(), Tally::default());
    for seed in 0..seeds {
        let component = (seed * 31 % x.len() as u64) as u32;
        let (components, rhs) = (&[component][..], std::slice::from_ref(&system.rhs));
        let problem = Problem::new(&system.matrix, rhs, components);
        let solution = solve(machine, &problem, &base.clone().seed(seed), &mut ())?;
        let c = &solution.components[0];
        let error = (c.estimate - x[component as usize]).abs();
        tally.add(error, c.half_width, c.bound.statistical);
    }
    Ok(tally.record(machine, system, &control.to_string(), size, at))
}

/// Counts the runs with an interval that contains a node's PageRank, from a local push and walks.
pub fn push_coverage(machine: &Machine, seeds: u64) -> Result<Record> {
    let (name, graph) = graph(GRAPH, 3).expect("a built-in")?;
    let all: Vec<u32> = (0..50).collect();
    let options = pagerank::Options::default().relative(1e-11);
    let exact = page_rank(&graph, &all, &options, &mut ())?;
    // A bound that nodes with many links reach only by walks after the push.
    let options = options.relative(0.0).epsilon(1e-6);
    let (at, mut tally) = (Instant::now(), Tally::default());
    for seed in 0..seeds {
        let target = (seed * 31 % 50) as u32;
        let walks = Walks::default().seed(seed);
        let found = local_page_rank(&graph, &[target], &options, &walks, &mut ())?.nodes[0];
        let error = (found.estimate - exact.nodes[target as usize].estimate).abs();
        tally.add(error, found.half_width, found.statistical);
    }
    let system = System { name, matrix: CsrMatrix::default(), rhs: Vec::new() };
    let size = exact.nodes.iter().fold(0.0f64, |m, node| m.max(node.estimate));
    Ok(tally.record(machine, &system, "push", size, at))
}
