//! Checkpoints: an interrupted run returns the bits of an uninterrupted one.
//!
//! A damaged checkpoint, or one of another run, is rejected.

use std::path::Path;
use std::time::Duration;

use crate::support::{Keep, Opened, chain, cpu, limited, machine, model, ragged, reward, transitions};
use kolmo::kernel::Precision::{self, F32, F64, Q64};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::checkpoint::{Checkpoint, inspect};
use kolmo::transient::{
    Chain, Initial, Method, Options, Problem, Reward, Solution, Transitions, solve, solve_resumable,
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
            options: Options::default(),
        }
    }

    fn rewarded(mut self, vectors: bool) -> Self {
        let n = self.chain.states();
        self.rewards = vec![reward("first", n, |i| i as f64 / 7.0), reward("second", n, |i| (i % 3) as f64)];
        self.vectors = vectors;
        self
    }

    fn problem(&self) -> Problem<'_> {
        Problem::new(&*self.chain, &self.initial, &self.times).rewards(&self.rewards).vectors(self.vectors)
    }
}

fn cases(precision: Precision) -> Vec<Case> {
    // In single precision, rounding hides the steady state, and all steps are taken.
    let late = if precision == F32 { 1.2e4 } else { 1e5 };
    let mut cases = vec![
        Case::new("one workgroup, times at rest and twice", "wlan:2,2", &[0.0, 9.0, 3.0, 3.0]),
        Case::new("several blocks, windows that overlap", "wlan:4,3", &[1.0, 1.1, 2.5]),
        Case::new("rewards beside probabilities", "tandem:25", &[0.5, 2.0]).rewarded(true),
        Case::new("rewards alone", "birth-death:1500,0.9,0.8", &[20.0, 90.0]).rewarded(false),
        Case::new("an early end", "birth-death:300,0.5,1", &[40.0, 9e3, late]).rewarded(true),
        Case::new("a limit after a finite time", "tandem:9", &[2.0, f64::INFINITY]),
    ];
    let mut spread = Case::new("a uniform start", "wlan:4,3", &[2.0]);
    spread.initial = Initial::Uniform(vec![3, 700]);
    let mut ragged_rows = Case::new("rows of very different lengths", "tandem:3", &[3.0, 7.0]);
    ragged_rows.chain = Box::new(ragged(1500));
    let mut leak = Case::new("a slow way out", "tandem:7", &[300.0, 0.5, 2e3]).rewarded(true);
    leak.chain = Chain::new("tandem", leak.chain).absorbing(&[3]).transitions;
    cases.extend([spread, ragged_rows, leak]);
    for format in MatrixFormat::STORED {
        let mut case = Case::new("a format", "wlan:4,3", &[1.5]);
        case.options.format = format;
        cases.push(case);
    }
    cases
}

/// Results, bounds, windows, masses and rewards of a run as text with all bits; its products.
type Answer = (String, u64);

fn answer(keep: &Keep, solution: &Solution) -> Answer {
    (format!("{:?} {:?}", keep.results, solution.times), solution.terms)
}

fn uninterrupted(case: &Case, machine: &Machine) -> Answer {
    let mut keep = Keep::after(u64::MAX);
    let solution = solve(machine, &case.problem(), &case.options, &mut keep).expect("a sound problem");
    answer(&keep, &solution)
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
) -> (Answer, u32, u32) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("c");
    let (mut interruptions, mut kept) = (0, 0);
    loop {
        let (machine, options) = vary(random, kept > 0);
        let pause = Duration::from_millis([0, 0, 1, 10_000][random.usize(..4)]);
        let mut checkpoint = Checkpoint::resume(&path).expect("a checkpoint of this run").every(pause);
        // The first call of `progress` follows a leg of one step. A run of thousands of steps is
        // not interrupted in each of them.
        let looks = match interruptions {
            0 => 0,
            1..10 => random.u64(looks.clone()),
            _ => u64::MAX,
        };
        let mut keep = Keep::after(looks);
        let found = solve_resumable(machine, &case.problem(), &options, &mut keep, &mut checkpoint);
        assert!(checkpoint.trouble().is_none(), "{}: {:?}", case.name, checkpoint.trouble());
        match found {
            Ok(solution) => return (answer(&keep, &solution), interruptions, kept),
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

fn interruptions_change_no_bit(machine: &Opened) {
    let (spec, precision) = (machine.spec, machine.precision);
    let mut random = fastrand::Rng::with_seed(machine.lanes.len() as u64);
    // Each run rebuilds its matrix, which takes time on a device.
    let looks = if machine.is_cpu() { 1..6 } else { 4..24 };
    for case in cases(precision) {
        let wanted = uninterrupted(&case, machine);
        let vary = |_: &mut fastrand::Rng, _| (&**machine, case.options);
        let (got, times, kept) = interrupted(&case, &mut random, looks.clone(), vary);
        let place = got.0.bytes().zip(wanted.0.bytes()).position(|(a, b)| a != b);
        let what = format!("{} on {spec} in {precision}, interrupted {times} times", case.name);
        let products = format!("{} products, not {}", got.1, wanted.1);
        assert!(got == wanted, "{what}: {products}; the results differ from byte {place:?} on");
        assert!(times > 0 && kept > 0, "{what}");
    }
}

instances! {
    [interruptions_change_no_bit]
    cpu_f64("cpu", F64);
    #[ignore = "slow: dozens of interruptions"] cpu_f32("cpu", F32);
    #[ignore = "slow: dozens of interruptions"] two_cpu_lanes_f64("cpu,cpu", F64);
    #[ignore = "slow: dozens of interruptions"] cpu_q64("cpu", Q64);
    #[cfg(feature = "wgpu")] #[ignore = "slow: dozens of interruptions"] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "wgpu")] #[ignore = "slow: dozens of interruptions"] wgpu_f32("wgpu:0", F32);
    #[cfg(feature = "wgpu")] #[ignore = "slow: dozens of interruptions"] two_wgpu_lanes_f64("wgpu:0,wgpu:0", F64);
    #[cfg(feature = "cuda")] #[ignore = "slow: dozens of interruptions"] cuda_f64("cuda:0", F64);
    #[cfg(feature = "cuda")] #[ignore = "slow: dozens of interruptions"] cuda_f32("cuda:0", F32);
    #[cfg(feature = "cuda")] #[ignore = "slow: dozens of interruptions"] two_cuda_lanes_f64("cuda:0,cuda:0", F64);
}

#[test]
fn lanes_and_formats_may_change_from_one_interruption_to_the_next() {
    let formats = [MatrixFormat::Auto, MatrixFormat::Hyb, MatrixFormat::Packed, MatrixFormat::Pattern];
    for precision in [F64, Q64] {
        let open = |spec| machine(spec, precision).expect("the CPU opens");
        let some = ["cpu", "cpu,cpu", "cpu,cpu,cpu"].map(open);
        let case = Case::new("on changing lanes", "wlan:4,3", &[1.0, 2.0, 2.1]);
        let wanted = uninterrupted(&case, &some[0]);
        let mut random = fastrand::Rng::with_seed(10);

        let (got, times, _) = interrupted(&case, &mut random, 0..5, |random, _| {
            (&some[random.usize(..3)], case.options.format(formats[random.usize(..4)]))
        });

        assert!(times > 0 && got == wanted, "interrupted {times} times in {precision}");
    }
}

#[test]
fn times_beyond_memory_take_another_run_also_after_resuming() {
    let case = Case::new("little memory", "wlan:4,3", &[2.0, 2.01, 2.02, 2.03, 2.04, 2.05]);
    let n = case.chain.states() as u64;
    let plenty = cpu();
    let one = Case { times: vec![2.0], ..Case::new("one time", "wlan:4,3", &[2.0]) };
    let solution = solve(&plenty, &one.problem(), &one.options, &mut ()).unwrap();
    let little = limited("cpu", F64, solution.device_bytes + 16 * n);

    let wanted = uninterrupted(&case, &little);
    // A resumed run decides as before, regardless of the memory that is free then.
    let mut random = fastrand::Rng::with_seed(11);
    let (got, times, _) = interrupted(&case, &mut random, 1..6, |random, decided| {
        // The decision is that of the run that wrote the first checkpoint.
        let machine = if !decided || random.bool() { &little } else { &plenty };
        (machine, case.options)
    });

    assert!(wanted.1 > 3 * solution.terms / 2, "the case needs several sweeps");
    assert!(got == wanted, "interrupted {times} times");
}

/// Writes a checkpoint of a partial run of `case`.
fn middle(case: &Case, path: &Path, machine: &Machine) {
    let mut checkpoint = Checkpoint::create(path).unwrap().every(Duration::ZERO);
    let (problem, mut stop) = (case.problem(), Keep::after(5));
    let stopped = solve_resumable(machine, &problem, &case.options, &mut stop, &mut checkpoint);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{}", case.name);
}

#[test]
fn a_checkpoint_of_another_run_is_rejected_with_the_difference() {
    type Change = fn(&mut Case);

    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.kept");
    let cpu = cpu();
    let case = || Case::new("the run", "tandem:20", &[1.0, 3.0]).rewarded(true);
    middle(&case(), &path, &cpu);
    let refusal = |change: Change, precision: Precision| {
        let mut other = case();
        change(&mut other);
        let mut checkpoint = Checkpoint::resume(&path).unwrap();
        let machine = machine("cpu", precision).unwrap();
        let run = solve_resumable(&machine, &other.problem(), &other.options, &mut (), &mut checkpoint);
        let error = run.map(drop).expect_err("another run is refused").to_string();
        assert!(error.contains("run.kept") && error.contains("afresh"), "{error}");
        error
    };

    let changes: [(&str, Change); 8] = [
        ("the chain (there 861 states, here 1891 states)", |c| {
            *c = Case::new("", "tandem:30", &[1.0, 3.0]).rewarded(true);
        }),
        ("the chain's rates", |c| {
            let mut list = transitions(&*c.chain);
            // One bit of one rate.
            list[777].2 = f64::from_bits(list[777].2.to_bits() ^ 1);
            c.chain = Box::new(chain(861, &list));
        }),
        ("the initial distribution", |c| c.initial = Initial::State(1)),
        ("the times (there 1, 3, here 1, 3.5)", |c| c.times[1] = 3.5),
        ("epsilon (there 1e-9, here 1e-7)", |c| c.options.epsilon = 1e-7),
        ("the method (there auto, here uniformization)", |c| c.options.method = Method::Uniformization),
        ("the rewards", |c| c.rewards[1].values[800] += 1.0),
        ("what is computed (there probabilities, here rewards alone)", |c| c.vectors = false),
    ];
    for (said, change) in changes {
        let error = refusal(change, F64);
        assert!(error.contains(said), "'{said}' in '{error}'");
        assert!(!error.contains(" and "), "nothing else: {error}");
    }
    let error = refusal(|c| c.options.epsilon = 1e-3, F32);
    assert!(error.contains("the precision (there f64, here f32) and epsilon"), "{error}");
    let state = inspect(&path, &std::fs::read(&path).unwrap()).unwrap();
    assert!(state.terms > 0 && !state.complete && state.states == 861, "{state:?}");
}

#[test]
fn damaged_files_and_other_versions_are_refused_and_never_panic() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("c");
    let cpu = cpu();
    middle(&Case::new("a run", "tandem:6", &[1.0, 5.0]), &path, &cpu);
    let whole = std::fs::read(&path).unwrap();
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Checkpoint::resume(&path).map(drop).expect_err("damage is noticed").to_string();
        assert!(error.starts_with(&*path.to_string_lossy()) && error.contains("afresh"), "{error}");
        error
    };

    for wrong in [&b""[..], b"state,probability\n0,1\n"] {
        assert!(said(wrong).contains("its start is invalid"));
    }
    for (place, byte, part) in [(24, b'9', "the checkpoint of kolmo 9"), (16, 77, "layout 77")] {
        let mut other = whole.clone();
        other[place] = byte;
        assert!(said(&other).contains(part), "{}", said(&other));
    }
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
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let place = tempfile::tempdir().unwrap();
    let below = place.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let cpu = cpu();
    let case = Case::new("a run", "tandem:6", &[1.0]);
    let mut checkpoint = Checkpoint::create(below.join("c")).unwrap().every(Duration::ZERO).complain(|e| {
        assert!(e.to_string().contains("c: "), "{e}");
        TOLD.fetch_add(1, Relaxed);
    });
    // Without its directory, the checkpoint cannot be written.
    std::fs::remove_dir(&below).unwrap();
    let mut keep = Keep::after(u64::MAX);

    let solution = solve_resumable(&cpu, &case.problem(), &case.options, &mut keep, &mut checkpoint).unwrap();

    assert!(answer(&keep, &solution) == uninterrupted(&case, &cpu));
    assert_eq!((checkpoint.written(), TOLD.load(Relaxed)), (0, 1), "told once");
}
