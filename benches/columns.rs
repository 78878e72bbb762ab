//! Products of a matrix and several vectors per second, next to runs of one vector.
//!
//! `cargo bench --bench columns -- tandem:2047 1000 out.json`: a built-in chain, αt, and a file for
//! the table as JSON. `KOLMO_BENCH_DEVICE=cuda:0` selects a device.

mod machine;

use std::time::Instant;

use kolmo_core::sparse::MatrixFormat;
use kolmo_core::transient::{Direction, Initial, Options, Problem, Transitions, exponential_action, solve};

use machine::machine;

/// Returns nanoseconds per state and product, from the first to the last progress report.
fn rate(n: usize, work: impl FnOnce(&mut dyn FnMut(u64))) -> f64 {
    let (mut first, mut last) = (None, (Instant::now(), 0));
    work(&mut |done| {
        last = (Instant::now(), done);
        first.get_or_insert(last);
    });
    let (began, before) = first.expect("a long run reports its progress");
    (last.0 - began).as_secs_f64() * 1e9 / (last.1 - before) as f64 / n as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let text = |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
    let (spec, machine) = (text(0, "tandem:255"), machine());
    let steps: f64 = text(1, "1000").parse().expect("αt is a number");
    let model = kolmo::models::parse(&spec).expect("a built-in").expect("sound parameters");
    let transitions: &dyn Transitions = &*model.transitions;
    let n = transitions.states();
    let mut exit = vec![0.0; n];
    transitions.exit_rates(0..n, &mut exit);
    let times = [steps / exit.iter().copied().fold(0.0, f64::max)];
    let uneven = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 - 9.2e18;
    let single = || {
        rate(n, |told| {
            let initial = Initial::Distribution(vec![1.0 / n as f64; n]);
            let options = Options::default().format(MatrixFormat::Hyb);
            let mut watch = |done, _| {
                told(done);
                Ok(())
            };
            let problem = Problem::new(transitions, &initial, &times);
            solve(&machine, &problem, &options, &mut (&mut watch, |_, _: &[f64]| Ok(()))).expect("a run");
        })
    };
    let columns = |direction, k: usize| {
        let block: Vec<f64> = (0..n * k).map(uneven).collect();
        rate(n, |told| {
            let mut watch = |done, _| {
                told(done);
                Ok(())
            };
            exponential_action(&machine, transitions, direction, &block, &times, 1e-10, &mut watch)
                .expect("an action");
        })
    };
    let device = &machine.lanes[0].device().name;
    println!("{spec}: {n} states on {device}; ns per state and vector of a step");
    println!(
        "| round | solve, hyb | k = 1 | k = 2 | k = 4 | k = 8 | k = 8 against 8 of solve | backward / forward, k = 1 | k = 8 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut rounds = Vec::new();
    for round in 1..=3 {
        let one = single();
        let forward = [1, 2, 4, 8].map(|k| columns(Direction::Forward, k));
        let backward = [1, 8].map(|k| columns(Direction::Backward, k));
        let [a, b, c, d] = forward;
        let (gain, back) = (one / d, [backward[0] / a, backward[1] / d]);
        println!(
            "| {round} | {one:.4} | {a:.4} | {b:.4} | {c:.4} | {d:.4} | {gain:.2} | {:.2} | {:.2} |",
            back[0], back[1]
        );
        rounds.push(format!(
            "{{\"solve\":{one},\"forward\":{forward:?},\"backward\":{backward:?},\"gain\":{gain}}}"
        ));
    }
    if let Some(path) = arguments.get(2) {
        let rounds = rounds.join(",");
        let all =
            format!("{{\"chain\":\"{spec}\",\"n\":{n},\"device\":\"{device}\",\"rounds\":[{rounds}]}}\n");
        std::fs::write(path, all).expect("the file is written");
    }
}
