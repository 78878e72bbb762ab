//! Properties of random chains and of models, compared with independent reference solutions.
//!
//! `KOLMO_SEEDS=2000` sets the number of seeds of each kind, and `KOLMO_FIRST_SEED=17` the first
//! one. A failure names its seed.

mod continuous;
mod discrete;
#[path = "../../../tests/library/adversarial/double_word.rs"]
mod double_word;

use fastrand::Rng;
use kolmo::Machine;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::transient::{Chain, Initial, Labels, Options, Reward};
use kolmo_check::{Case, ChainRef, PropertyAnswer, Questions, Subject};

/// Runs a test for each of its seeds.
fn each_seed(usual: u64, case: impl Fn(&mut Rng) -> Result<(), String>) {
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = asked("KOLMO_FIRST_SEED").unwrap_or(0);
    let seeds = first..first + asked("KOLMO_SEEDS").unwrap_or(usual);
    let failed = |seed| case(&mut Rng::with_seed(seed)).err().map(|why| format!("seed {seed}: {why}"));
    let failures: Vec<String> = seeds.filter_map(failed).collect();
    let shown = failures[..failures.len().min(10)].join("\n");
    assert!(failures.is_empty(), "{} failures:\n{shown}", failures.len());
}

fn machine(precision: Precision) -> Machine {
    let options = OpenOptions::default().precision(Some(precision));
    Machine::open(&[DeviceSpec::Cpu], &options).expect("the CPU opens")
}

/// Chain of these rates, or probabilities, with labels "a" and "b" and the reward "r".
fn chain(rows: &[Vec<f64>], discrete: bool, [a, b]: [&[bool]; 2], reward: Vec<f64>) -> Chain {
    let (mut starts, mut to, mut rates) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        for (j, rate) in row.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            to.push(j as u32);
            rates.push(*rate);
        }
        starts.push(to.len());
    }
    let chain = match discrete {
        true => Chain::from_probabilities(rows.len(), &starts, &to, &rates),
        false => Chain::from_csr(rows.len(), &starts, &to, &rates),
    };
    let states = |set: &[bool]| (0u32..).zip(set).filter(|(_, member)| **member).map(|(s, _)| s).collect();
    let sets = vec![("a".to_owned(), states(a)), ("b".to_owned(), states(b))];
    let rewards = vec![Reward { name: "r".to_owned(), values: reward }];
    Chain { labels: Labels { sets }, rewards, ..chain.expect("a chain") }
}

/// Answers of properties of a chain from an initial state.
fn ask(
    chain: Chain,
    initial: usize,
    properties: &[String],
    machine: &Machine,
    options: &Options,
) -> Vec<PropertyAnswer> {
    let subject = Subject::Chain(Chain { initial: Initial::State(initial), ..chain });
    let mut questions = Questions::read(properties, &subject).expect("properties");
    questions.epsilon = options.epsilon;
    let Subject::Chain(chain) = subject else { unreachable!("a chain was given") };
    let asked = questions.plan(ChainRef::File(&chain), &Case::of(&[]), &mut ()).expect("a plan");
    asked.answer(chain, machine, options, &mut ()).expect("answers").rows
}
