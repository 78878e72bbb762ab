//! Compares steps of several vectors with runs of one vector.
//!
//! `cargo bench --bench columns -- tandem:2350 1000 rounds.json` takes a built-in chain, αt, and a
//! file for all rounds. `KOLMO_BENCH_DEVICE=cuda:0` selects a device.

mod machine;

use std::time::Instant;

use kolmo::Result;
use kolmo_core::sparse::MatrixFormat;
use kolmo_core::transient::{Direction, Initial, Options, Problem, exponential_action, solve};

use machine::machine;

/// Returns nanoseconds per state and product, from the first to the last progress report.
fn rate(n: usize, work: impl FnOnce(&mut (dyn FnMut(u64, u64) -> Result<()> + Send)) -> Result<()>) -> f64 {
    let (mut first, mut last) = (None, (Instant::now(), 0));
    work(&mut |done, _| {
        last = (Instant::now(), done);
        first.get_or_insert(last);
        Ok(())
    })
    .expect("a run");
    let (began, before) = first.expect("a long run reports its progress");
    (last.0 - began).as_secs_f64() * 1e9 / (last.1 - before) as f64 / n as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let text = |at: usize, default: &'static str| arguments.get(at).map_or(default, String::as_str);
    let (spec, machine) = (text(0, "tandem:255"), machine());
    let chain = kolmo::models::parse(spec).expect("a built-in").expect("sound parameters").transitions;
    let n = chain.states();
    let mut exit = vec![0.0; n];
    chain.exit_rates(0..n, &mut exit);
    let steps: f64 = text(1, "1000").parse().expect("αt is a number");
    let times = [steps / exit.iter().copied().fold(0.0, f64::max)];
    let initial = Initial::Distribution(vec![1.0 / n as f64; n]);
    let single = || {
        let options = Options::default().format(MatrixFormat::Hyb);
        rate(n, |mut told| {
            let problem = Problem::new(&*chain, &initial, &times);
            solve(&machine, &problem, &options, &mut (&mut told, |_, _: &[f64]| Ok(()))).map(drop)
        })
    };
    let columns = |direction, k: usize| {
        let uneven = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 - 9.2e18;
        let block: Vec<f64> = (0..n * k).map(uneven).collect();
        let options = Options::default().epsilon(1e-10);
        rate(n, |mut told| {
            exponential_action(&machine, &*chain, direction, &block, &times, &options, &mut told).map(drop)
        })
    };
    println!("{spec}: {n} states on {}; ns per state and vector of a step", machine.lanes[0].device().name);
    println!("| solve, hyb | k = 1 | 2 | 4 | 8 | solve / k = 8 | backward / forward, k = 1 | k = 8 |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let one = single();
        let [a, b, c, d] = [1, 2, 4, 8].map(|k| columns(Direction::Forward, k));
        let [back, backs] = [1, 8].map(|k| columns(Direction::Backward, k));
        let round = [one, a, b, c, d, one / d, back / a, backs / d];
        println!("| {} |", round.map(|number| format!("{number:.3}")).join(" | "));
        rounds.push(round);
    }
    if let Some(path) = arguments.get(2) {
        std::fs::write(path, format!("{rounds:?}\n")).expect("the file is written");
    }
}
