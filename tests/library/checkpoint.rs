//! Checkpoints: an interrupted run returns the bits of an uninterrupted one.
//!
//! A damaged checkpoint, or one of another run, is rejected.

use std::path::Path;
use std::time::Duration;

use crate::support::{self, machine, model, ragged};
use kolmo::Result;
use kolmo::kernel::Precision::{self, F32, F64, Q64};
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::checkpoint::{Checkpoint, inspect};
use kolmo::transient::{
    Chain, Initial, Method, Observer, Options, Order, Problem, Reward, Solution, Transitions, solve,
    solve_resumable,
};
use kolmo::{Error, Machine};

/// A problem and its options.
struct Case {
    name: &'static str,
    chain: Box<dyn Transitions>,
    initial: Initial,
    times: Vec<f64>,
    rewards: Vec<Reward>,
    vectors: bool,
    options: Options,
}

impl Case {
    fn new(name: &'static str, spec: &str, times: &[f64]) -> Self {
        Self {
            name,
            chain: model(spec),
            initial: Initial::State(0),
            times: times.to_vec(),
            rewards: Vec::new(),
            vectors: true,
            // With several lanes, the order depends on measurements unless it is given.
            options: Options { order: Order::Natural, ..Options::default() },
        }
    }

    fn rewarded(mut self, vectors: bool) -> Self {
        let reward = |name: &str, of: fn(usize) -> f64| Reward {
            name: name.to_owned(),
            values: (0..self.chain.states()).map(of).collect(),
        };
        self.rewards = vec![reward("first", |i| i as f64 / 7.0), reward("second", |i| (i % 3) as f64)];
        self.vectors = vectors;
        self
    }

    fn problem(&self) -> Problem<'_> {
        Problem {
            transitions: &*self.chain,
            initial: &self.initial,
            times: &self.times,
            rewards: &self.rewards,
            vectors: self.vectors,
        }
    }
}

fn cases(precision: Precision) -> Vec<Case> {
    // In single precision, rounding hides the steady state, and all steps are taken.
    let late = if precision == F32 { 1.2e4 } else { 1e5 };
    let mut cases = vec![
        Case::new(
            "a small chain in one workgroup, times at rest and twice",
            "wlan:2,2",
            &[0.0, 9.0, 3.0, 3.0],
        ),
        Case::new("several blocks, windows that overlap", "wlan:4,3", &[1.0, 1.1, 2.5]),
        Case::new("rewards beside probabilities", "tandem:25", &[0.5, 2.0]).rewarded(true),
        Case::new("rewards alone", "birth-death:1500,0.9,0.8", &[20.0, 90.0]).rewarded(false),
        Case::new("a steady state that is noticed", "birth-death:300,0.5,1", &[40.0, 9e3, late])
            .rewarded(true),
        Case::new("a steady state that is certified", "tandem:9", &[2.0, f64::INFINITY]),
    ];
    let mut orders = Case::new("another order of the states", "wlan:4,3", &[2.0]);
    orders.options.order = Order::Rcm;
    orders.initial = Initial::Uniform(vec![3, 700]);
    let mut ragged_rows = Case::new("rows of very different lengths", "tandem:3", &[3.0, 7.0]);
    ragged_rows.chain = Box::new(ragged(1500));
    let mut leak = Case::new("a slow way out", "tandem:7", &[300.0, 0.5, 2e3]).rewarded(true);
    leak.chain = Chain::new("tandem", leak.chain).absorbing(&[3]).transitions;
    let mut subdivided = Case::new("intervals", "tandem:12", &[1.5, 3.0]);
    subdivided.options.method = Method::Subdivided { theta: 20.0 };
    cases.extend([orders, ragged_rows, leak]);
    // Q64 does not support subdivision.
    cases.extend((precision != Q64).then_some(subdivided));
    for format in [MatrixFormat::Hyb, MatrixFormat::Packed, MatrixFormat::Pair, MatrixFormat::Pattern] {
        let mut case = Case::new("a format", "wlan:4,3", &[1.5]);
        case.options.format = format;
        cases.push(case);
    }
    cases
}

/// Keeps results, and interrupts after `looks` calls of `progress`.
struct Stop {
    looks: u64,
    results: Vec<Vec<f64>>,
}

impl Observer for Stop {
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        match self.looks {
            0 => Err(Error::Interrupted),
            _ => {
                self.looks -= 1;
                Ok(())
            }
        }
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.results.resize(self.results.len().max(index + 1), Vec::new());
        assert!(self.results[index].is_empty(), "time {index} is delivered once a run");
        self.results[index] = probabilities.to_vec();
        Ok(())
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Returns results, bounds, windows, masses and rewards of a run as bits.
fn answer(results: &[Vec<f64>], solution: &Solution) -> Vec<Vec<u64>> {
    let mut all: Vec<Vec<u64>> = results.iter().map(|p| bits(p)).collect();
    for time in &solution.times {
        let b = time.bound;
        all.push(bits(&[time.time, time.alpha_t, b.truncation, b.steady_state, b.rounding]));
        all.push(vec![time.window.0, time.window.1]);
        all.push(bits(&time.mass.into_iter().collect::<Vec<_>>()));
        all.push(bits(
            &time.rewards.iter().flat_map(|r| [r.instantaneous, r.cumulative]).collect::<Vec<_>>(),
        ));
    }
    all.push(vec![solution.terms]);
    all
}

fn uninterrupted(case: &Case, machine: &Machine) -> Vec<Vec<u64>> {
    let mut stop = Stop { looks: u64::MAX, results: Vec::new() };
    let solution = solve(machine, &case.problem(), &case.options, &mut stop).expect("a sound problem");
    answer(&stop.results, &solution)
}

/// Runs a case that is interrupted repeatedly, until it completes.
///
/// `vary` chooses lanes and options of each attempt; its second argument is true once there is a
/// checkpoint. Returns the result, the number of interruptions and the number of those that left a
/// checkpoint.
fn interrupted<'a>(
    case: &Case,
    random: &mut fastrand::Rng,
    looks: std::ops::Range<u64>,
    mut vary: impl FnMut(&mut fastrand::Rng, bool) -> (&'a Machine, Options),
) -> (Vec<Vec<u64>>, u32, u32) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("c");
    let (mut interruptions, mut kept) = (0, 0);
    loop {
        let (machine, options) = vary(random, kept > 0);
        let pause = Duration::from_millis([0, 0, 1, 10_000][random.usize(..4)]);
        let mut checkpoint = Checkpoint::resume(&path).expect("a checkpoint of this run").every(pause);
        assert!(checkpoint.trouble().is_none());
        // A run of thousands of steps is not interrupted in each of them.
        let looks = if interruptions < 16 { random.u64(looks.clone()) } else { u64::MAX };
        let mut stop = Stop { looks, results: Vec::new() };
        match solve_resumable(machine, &case.problem(), &options, &mut stop, &mut checkpoint) {
            Ok(solution) => {
                return (answer(&stop.results, &solution), interruptions, kept);
            }
            Err(Error::Interrupted) => interruptions += 1,
            Err(e) => panic!("{}: {e}", case.name),
        }
        // No checkpoint is written if a few steps take longer than an interruption waits for them.
        kept += u32::from(checkpoint.written() > 0);
        assert!(interruptions < 3000, "{}: it does not come to an end", case.name);
        let files = std::fs::read_dir(place.path()).expect("the directory").count();
        assert_eq!(files, usize::from(kept > 0), "{}", case.name);
    }
}

fn bits_of_an_uninterrupted_run(spec: &str, precision: Precision, seed: u64) {
    let Some(machine) = machine(spec, precision, false) else { return };
    let mut random = fastrand::Rng::with_seed(seed);
    // Each run rebuilds its matrix, which takes time on a device.
    let looks = if spec.contains("cpu") { 1..6 } else { 4..24 };
    let (mut all, mut kept) = (0, 0);
    // The number of `progress` calls depends on the time that the steps take. A round may therefore
    // bring few interruptions, and another one with shorter runs follows.
    for round in 1.. {
        for case in cases(precision) {
            let wanted = uninterrupted(&case, &machine);
            let looks = if round == 1 { looks.clone() } else { 0..3 };
            let (got, times, with) = interrupted(&case, &mut random, looks, |_, _| (&machine, case.options));
            assert!(got == wanted, "{} on {spec} in {precision}, interrupted {times} times", case.name);
            all += times;
            kept += with;
        }
        if all > 15 && kept > 0 {
            break;
        }
        assert!(round < 6, "{all} interruptions, {kept} with a checkpoint, in {round} rounds");
    }
    println!("{spec} in {precision}: {all} interruptions");
}

#[test]
fn interrupted_on_a_cpu_lane_f64() {
    bits_of_an_uninterrupted_run("cpu", F64, 1);
}

macro_rules! on {
    ($($name:ident: $spec:literal, $precision:ident, $seed:literal;)*) => {
        $(#[test]
        #[ignore = "slow: dozens of interruptions"]
        fn $name() {
            bits_of_an_uninterrupted_run($spec, $precision, $seed);
        })*
    };
}

on! {
    interrupted_on_a_cpu_lane_f32: "cpu", F32, 2;
    interrupted_on_two_cpu_lanes_f64: "cpu,cpu", F64, 3;
    interrupted_on_a_cpu_lane_q64: "cpu", Q64, 11;
}
#[cfg(feature = "wgpu")]
on! {
    interrupted_on_a_wgpu_lane_f64: "wgpu:0", F64, 4;
    interrupted_on_a_wgpu_lane_f32: "wgpu:0", F32, 5;
    interrupted_on_two_wgpu_lanes_f64: "wgpu:0,wgpu:0", F64, 6;
}
#[cfg(feature = "cuda")]
on! {
    interrupted_on_a_cuda_lane_f64: "cuda:0", F64, 7;
    interrupted_on_a_cuda_lane_f32: "cuda:0", F32, 8;
    interrupted_on_two_cuda_lanes_f64: "cuda:0,cuda:0", F64, 9;
}

#[test]
fn lanes_and_formats_may_change_from_one_interruption_to_the_next() {
    [F64, Q64].into_iter().for_each(lanes_and_formats_may_change);
}

fn lanes_and_formats_may_change(precision: Precision) {
    let some =
        ["cpu", "cpu,cpu", "cpu,cpu,cpu"].map(|spec| machine(spec, precision, false).expect("the CPU opens"));
    let case = Case::new("on changing lanes", "wlan:4,3", &[1.0, 2.0, 2.1]);
    let wanted = uninterrupted(&case, &some[0]);
    let mut random = fastrand::Rng::with_seed(10);

    let (got, times, _) = interrupted(&case, &mut random, 0..5, |random, _| {
        let formats = [
            MatrixFormat::Auto,
            MatrixFormat::Hyb,
            MatrixFormat::Packed,
            MatrixFormat::Pair,
            MatrixFormat::Pattern,
        ];
        (&some[random.usize(..3)], Options { format: formats[random.usize(..5)], ..case.options })
    });

    assert!(times > 0);
    assert!(got == wanted, "interrupted {times} times in {precision}");
}

#[test]
fn times_beyond_memory_take_another_run_also_after_resuming() {
    let case = Case::new("little memory", "wlan:4,3", &[2.0, 2.01, 2.02, 2.03, 2.04, 2.05]);
    let n = case.chain.states() as u64;
    let cpu = |memory_limit| {
        let options = OpenOptions { memory_limit, precision: Some(F64), ..OpenOptions::default() };
        Machine::open(&[DeviceSpec::Cpu], &options).expect("the CPU opens")
    };
    let plenty = cpu(None);
    let one = Case { times: vec![2.0], ..Case::new("one time", "wlan:4,3", &[2.0]) };
    let mut stop = Stop { looks: u64::MAX, results: Vec::new() };
    let solution = solve(&plenty, &one.problem(), &one.options, &mut stop).unwrap();
    let little = cpu(Some(solution.device_bytes + 16 * n));

    let wanted = uninterrupted(&case, &little);
    // A resumed run decides as before, regardless of the memory that is free then.
    let mut random = fastrand::Rng::with_seed(11);
    let (got, times, _) = interrupted(&case, &mut random, 1..6, |random, decided| {
        // The decision is that of the run that wrote the first checkpoint.
        let machine = if !decided || random.bool() { &little } else { &plenty };
        (machine, case.options)
    });

    assert!(wanted.last().unwrap()[0] > 3 * solution.terms / 2, "the case needs several sweeps");
    assert!(got == wanted, "interrupted {times} times");
}

/// Writes a checkpoint of a partial run of `case`.
fn middle(case: &Case, path: &Path, machine: &Machine) {
    let mut checkpoint = Checkpoint::create(path).unwrap().every(Duration::ZERO);
    let mut stop = Stop { looks: 5, results: Vec::new() };
    let stopped = solve_resumable(machine, &case.problem(), &case.options, &mut stop, &mut checkpoint);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{}", case.name);
}

#[test]
fn a_checkpoint_of_another_run_is_rejected_with_the_difference() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.kept");
    let cpu = machine("cpu", F64, false).unwrap();
    let case = || Case::new("the run", "tandem:20", &[1.0, 3.0]).rewarded(true);
    middle(&case(), &path, &cpu);
    let refusal = |change: &dyn Fn(&mut Case), precision: Precision| {
        let mut other = case();
        change(&mut other);
        let mut stop = Stop { looks: u64::MAX, results: Vec::new() };
        let mut checkpoint = Checkpoint::resume(&path).unwrap();
        let machine = machine("cpu", precision, false).unwrap();
        let run = solve_resumable(&machine, &other.problem(), &other.options, &mut stop, &mut checkpoint);
        let error = run.map(drop).expect_err("another run is refused").to_string();
        assert!(error.contains("run.kept") && error.contains("afresh"), "{error}");
        error
    };

    type Change = Box<dyn Fn(&mut Case)>;
    let changes: Vec<(&str, Change)> = vec![
        (
            "the chain (there 861 states, here 1891 states)",
            Box::new(|c| {
                *c = Case::new("", "tandem:30", &[1.0, 3.0]).rewarded(true);
            }),
        ),
        (
            "the chain's rates",
            Box::new(|c| {
                let mut list: Vec<(u32, u32, f64)> = Vec::new();
                for from in 0..c.chain.states() {
                    let mut row = Vec::new();
                    c.chain.outgoing(from, &mut row);
                    list.extend(row.into_iter().map(|(to, rate)| (from as u32, to, rate)));
                }
                // One bit of one rate.
                list[777].2 = f64::from_bits(list[777].2.to_bits() ^ 1);
                c.chain = Box::new(support::chain(861, &list));
            }),
        ),
        ("the initial distribution", Box::new(|c| c.initial = Initial::State(1))),
        ("the times (there 1, 3, here 1, 3.5)", Box::new(|c| c.times[1] = 3.5)),
        ("epsilon (there 1e-9, here 1e-7)", Box::new(|c| c.options.epsilon = 1e-7)),
        (
            "the method (there auto, here subdivided with theta = 50)",
            Box::new(|c| {
                c.options.method = Method::Subdivided { theta: 50.0 };
            }),
        ),
        ("the ELL width", Box::new(|c| c.options.width = kolmo::sparse::WidthRule::Max)),
        ("the rewards", Box::new(|c| c.rewards[1].values[800] += 1.0)),
        ("what is computed (there probabilities, here rewards alone)", Box::new(|c| c.vectors = false)),
        ("the order of states (there natural, here bfs)", Box::new(|c| c.options.order = Order::Bfs)),
    ];
    for (said, change) in &changes {
        let error = refusal(change, F64);
        assert!(error.contains(said), "'{said}' in '{error}'");
        assert!(!error.contains(" and "), "nothing else: {error}");
    }
    let error = refusal(&|c| c.options.epsilon = 1e-3, F32);
    assert!(error.contains("the precision (there f64, here f32) and epsilon"), "{error}");
    let state = inspect(&path, &std::fs::read(&path).unwrap()).unwrap();
    assert!(state.terms > 0 && !state.complete && state.states == 861, "{state:?}");
}

#[test]
fn damaged_files_and_other_versions_are_refused_and_never_panic() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("c");
    let cpu = machine("cpu", F64, false).unwrap();
    middle(&Case::new("a run", "tandem:6", &[1.0, 5.0]), &path, &cpu);
    let whole = std::fs::read(&path).unwrap();
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Checkpoint::resume(&path).map(drop).expect_err("damage is noticed").to_string();
        assert!(error.starts_with(&*path.to_string_lossy()) && error.contains("afresh"), "{error}");
        error
    };

    assert!(said(b"").contains("its start is invalid"));
    assert!(said(b"state,probability\n0,1\n").contains("its start is invalid"));
    let mut other = whole.clone();
    other[24] = b'9';
    assert!(said(&other).contains("the checkpoint of kolmo 9"), "{}", said(&other));
    let mut other = whole.clone();
    other[16] = 77;
    assert!(said(&other).contains("layout 77"));
    for end in (0..whole.len()).step_by(7) {
        said(&whole[..end]);
    }
    said(&[&whole[..], b"x"].concat());
    for place in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << (place % 8);
        said(&flipped);
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(Checkpoint::resume(&path).is_ok());
    assert!(Checkpoint::resume(place.path().join("none")).unwrap().resumed().is_none());
    assert!(Checkpoint::resume(place.path().join("no/where")).is_err());
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_reported_and_the_run_continues() {
    static TOLD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let place = tempfile::tempdir().unwrap();
    let below = place.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let cpu = machine("cpu", F64, false).unwrap();
    let case = Case::new("a run", "tandem:6", &[1.0]);
    let mut checkpoint = Checkpoint::create(below.join("c")).unwrap().every(Duration::ZERO).complain(|e| {
        assert!(e.to_string().contains("c: "), "{e}");
        TOLD.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    // Without its directory, the checkpoint cannot be written.
    std::fs::remove_dir(&below).unwrap();
    let mut stop = Stop { looks: u64::MAX, results: Vec::new() };

    let solution = solve_resumable(&cpu, &case.problem(), &case.options, &mut stop, &mut checkpoint).unwrap();

    assert!(answer(&stop.results, &solution) == uninterrupted(&case, &cpu));
    assert_eq!((checkpoint.written(), TOLD.load(std::sync::atomic::Ordering::Relaxed)), (0, 1), "told once");
}
