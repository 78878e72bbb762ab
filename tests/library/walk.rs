//! Walks against elimination, published solutions, and other lanes.

use std::fmt::Display;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::adversarial::double_word::DoubleWord;
use crate::support::{Opened, above, cpu, eliminate};
use kolmo::kernel::Precision::F64;
use kolmo::models::system;
use kolmo::sparse::CsrMatrix;
use kolmo::transient::Status;
use kolmo::walk::sequence::{Scramble, Sequence};
use kolmo::walk::{Component, ControlVariate, Count, Length, Options, Problem, Solution, Splitting, solve};
use kolmo::{Error, Machine, Result};

/// A system and its solution.
struct Case {
    name: &'static str,
    matrix: CsrMatrix,
    rhs: Vec<f64>,
    splitting: Splitting,
    x: Vec<f64>,
}

/// Solves A x = b, or x = L x + f if L is `given`, by elimination.
fn eliminated(matrix: &CsrMatrix, rhs: &[f64], given: bool) -> Vec<f64> {
    let n = matrix.rows();
    let row = |i: usize| {
        let mut row = vec![0.0; n + 1];
        row[n] = rhs[i];
        let (columns, values) = matrix.row(i);
        let entries = columns.iter().zip(values);
        entries.for_each(|(&j, &v)| row[j as usize] = if given { -v } else { v });
        row[i] += if given { 1.0 } else { 0.0 };
        row
    };
    eliminate((0..n).map(row).collect()).expect("a regular matrix")
}

fn built_in(name: &'static str) -> Case {
    let built = system(name, 3).expect("a built-in").expect("its parameters are sound");
    let x = eliminated(&built.matrix, &built.rhs, false);
    Case { name, matrix: built.matrix, rhs: built.rhs, splitting: Splitting::Auto, x }
}

/// A PageRank system x = L x + f with damping factor 0.85.
///
/// All pages link to one page, one page has no links, one links to itself, and one has more links
/// than a short row.
fn pages() -> Case {
    let n = 120;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| {
        let links: Vec<u32> = match i {
            0 => (1..60).collect(),
            7 => Vec::new(),
            8 => vec![8, 9],
            _ => {
                let mut links = vec![0, ((i * i + 1) % n) as u32, ((i * 7 + 3) % n) as u32];
                links.sort_unstable();
                links.dedup();
                links
            }
        };
        let share = 0.85 / links.len().max(1) as f64;
        row.extend(links.into_iter().map(|j| (j, share)));
    });
    let rhs: Vec<f64> = (0..n).map(|i| (1 + i % 5) as f64).collect();
    let x = eliminated(&matrix, &rhs, true);
    Case { name: "pages", matrix, rhs, splitting: Splitting::Given, x }
}

/// Six systems: positive, signed, local structure, row sums of 1, long rows, and L given.
fn cases() -> Vec<Case> {
    vec![
        built_in("random-dominant:400,6,0.8,positive"),
        built_in("random-dominant:300,5,0.75,signed"),
        built_in("poisson2d:14,0.9"),
        built_in("poisson2d:7,1"),
        built_in("random-dominant:200,40,0.8,signed"),
        pages(),
    ]
}

/// Options without a control variate.
fn plain() -> Options {
    Options::default().control(ControlVariate::Sweeps(0))
}

pub(crate) const SEQUENCES: [Sequence; 2] = [Sequence::Sobol, Sequence::Philox];

fn sound(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Solution {
    solve(machine, problem, options, &mut ()).expect("a sound problem has a solution")
}

fn ask(machine: &Machine, case: &Case, components: &[u32], options: &Options) -> Solution {
    ask_functionals(machine, case, (components, &[]), options)
}

fn ask_functionals(
    machine: &Machine,
    case: &Case,
    (components, functionals): (&[u32], &[Vec<f64>]),
    options: &Options,
) -> Solution {
    let rhs = std::slice::from_ref(&case.rhs);
    let problem = Problem::new(&case.matrix, rhs, components).functionals(functionals);
    sound(machine, &problem, &options.clone().splitting(case.splitting))
}

/// Solves for one component of a system on the CPU.
fn component(matrix: &CsrMatrix, rhs: &[f64], m: u32, options: &Options) -> Component {
    sound(&cpu(), &Problem::new(matrix, &[rhs.to_vec()], &[m]), options).components.remove(0)
}

fn all(solution: &Solution) -> Vec<Component> {
    solution.components.iter().chain(&solution.functionals).cloned().collect()
}

/// Asserts that solutions of one problem differ by no more than their rounding errors.
#[track_caller]
fn same_walks(one: &Solution, other: &Solution, what: impl Display) {
    for (a, b) in all(one).iter().zip(&all(other)) {
        let (off, bound) = ((a.estimate - b.estimate).abs(), a.bound.rounding + b.bound.rounding);
        assert!(off <= bound, "{what}, {} of {}: {off:e}, {bound:e}", a.name(), a.rhs);
    }
}

fn size(case: &Case) -> f64 {
    case.x.iter().fold(0.0, |m, x| m.max(x.abs()))
}

// Run on every device below.

/// Opens the machine with bounds checks, if its kernels have them.
fn checked(machine: &Opened) -> Opened {
    let checked = !machine.spec.starts_with("cuda");
    Opened::new(machine.spec, machine.precision, checked).expect("it opens once more")
}

fn every_lane_walks_the_same_walks(machine: &Opened) {
    let machine = checked(machine);
    for case in cases() {
        for (sequence, scramble) in [
            (Sequence::Sobol, Scramble::Owen),
            (Sequence::Sobol, Scramble::Shift),
            (Sequence::Sobol, Scramble::None),
            (Sequence::Philox, Scramble::None),
        ] {
            let options = Options::default()
                .sequence(sequence)
                .scramble(Some(scramble))
                .chains(Count::Number(4 * 300))
                .replicates(4)
                .control(ControlVariate::Sweeps(1));
            let [here, there] = [&*machine, &cpu()].map(|machine| ask(machine, &case, &[2, 5], &options));
            same_walks(&here, &there, format_args!("{} {sequence}", case.name));
        }
    }
}

/// A system that BiCGSTAB solves on the device, with a residual that needs no walks.
fn bicgstab_is_the_same_on_every_lane(machine: &Opened) {
    let built = system("poisson2d:190,0.95", 3).expect("a built-in").expect("its parameters are sound");
    let rhs = [built.rhs.clone(), built.rhs.iter().rev().copied().collect()];
    let problem = Problem::new(&built.matrix, &rhs, &[18050, 7]);
    let options = Options::default().epsilon(Some(1e-4)).control(ControlVariate::Krylov);
    let [here, there] = [&**machine, &cpu()].map(|machine| sound(machine, &problem, &options));
    assert_eq!((here.status, here.steps), (Status::Met, 0));
    assert!(here.krylov > 50, "{}", here.krylov);
    // Software adapters may round a fused product twice.
    let bits = |x: f64| (!machine.lanes[0].device().software).then(|| x.to_bits());
    assert_eq!(bits(here.norm), bits(there.norm));
    for (a, b) in here.components.iter().zip(&there.components) {
        assert_eq!(bits(a.estimate), bits(b.estimate), "x_{} of {}", a.component, a.rhs);
        if machine.precision == F64 {
            assert_eq!(bits(a.half_width), bits(b.half_width), "x_{} of {}", a.component, a.rhs);
        }
        let off = (a.estimate - b.estimate).abs();
        assert!(off <= a.half_width + b.half_width, "x_{} of {}: {off:e}", a.component, a.rhs);
    }
}

/// Six right-hand sides: a batch of four and one of two.
fn right_hand_sides_share_walks(machine: &Opened) {
    let case = built_in("poisson2d:7,1");
    let n = case.rhs.len();
    let side = |k: usize| (0..n).map(|i| ((i * (k + 3)) % 11) as f64 - 4.0).collect::<Vec<f64>>();
    let rhs: Vec<Vec<f64>> = (0..6).map(side).collect();
    let problem = Problem::new(&case.matrix, &rhs, &[24, 3]);
    let options = Options::default().confidence(0.9999).chains(Count::Number(1 << 12));
    let [here, there] = [&**machine, &cpu()].map(|machine| sound(machine, &problem, &options));
    assert_eq!(here.components.len(), 12);
    for c in &here.components {
        let x = eliminated(&case.matrix, &rhs[c.rhs], false)[c.component as usize];
        assert!((c.estimate - x).abs() <= c.half_width, "x_{} of {}: {c:?} {x}", c.component, c.rhs);
    }
    same_walks(&here, &there, "six right-hand sides");
}

fn every_sequence_gives_the_solution(machine: &Opened) {
    let case = built_in("poisson2d:14,0.9");
    for sequence in SEQUENCES {
        let options = Options::default()
            .sequence(sequence)
            .confidence(0.9999)
            .chains(Count::Number(8 * 600))
            .replicates(8);
        let [here, there] = [&**machine, &cpu()].map(|machine| ask(machine, &case, &[50, 90], &options));
        for c in &here.components {
            approx::assert_abs_diff_eq!(c.estimate, case.x[c.component as usize], epsilon = c.half_width);
        }
        same_walks(&here, &there, sequence);
    }
}

fn the_number_of_lanes_changes_no_bit(machine: &Opened) {
    let one = machine.spec.split(',').next().expect("a device");
    let one = Opened::new(one, machine.precision, false).expect("it opens alone");
    let case = built_in("poisson2d:14,0.9");
    let options = Options::default().chains(Count::Number(1 << 14));
    let components: Vec<u32> = (20..52).collect();
    let mean = vec![vec![1.0 / case.x.len() as f64; case.x.len()]];
    let [many, one] =
        [machine, &one].map(|machine| ask_functionals(machine, &case, (&components, &mean), &options));
    for (a, b) in all(&many).iter().zip(&all(&one)) {
        let bits = |c: &Component| (c.estimate.to_bits(), c.half_width.to_bits());
        assert_eq!(bits(a), bits(b), "x_{}", a.component);
    }
}

/// 99.99 % intervals of four components of six systems, and of four functionals.
///
/// These are a mean, a sum with signs, large numbers, and h = 0. With either control variate, one
/// seed in four hundred has a miss.
fn intervals_hold_the_solution(machine: &Opened) {
    let machine = checked(machine);
    for case in cases() {
        let n = case.x.len();
        let signed = |i: usize| if i.is_multiple_of(3) { 0.0 } else { (i % 7) as f64 - 2.5 };
        let h: Vec<Vec<f64>> = vec![
            vec![1.0 / n as f64; n],
            (0..n).map(signed).collect(),
            (0..n).map(|i| signed(i) * 1e290).collect(),
            vec![0.0; n],
        ];
        for control in [ControlVariate::Sweeps(0), ControlVariate::Auto] {
            let chains = Count::Number(16 * 256);
            let options = Options::default().confidence(0.9999).chains(chains).control(control);
            let both = ask_functionals(&machine, &case, (&[0, 7, 30, 48], &h), &options);
            assert_eq!((both.components.len(), both.functionals.len()), (4, 4));
            for c in &both.components {
                let error = (c.estimate - case.x[c.component as usize]).abs();
                let held = error <= c.half_width && c.half_width <= 0.2 * size(&case);
                assert!(held, "{} {control}: off by {error:e}, {c:?}", case.name);
            }
            for (c, h) in both.functionals.iter().zip(&h) {
                let wanted: f64 = h.iter().zip(&case.x).map(|(h, x)| h * x).sum();
                let norm: f64 = h.iter().map(|h| h.abs()).sum();
                let error = (c.estimate - wanted).abs();
                let held = error <= c.half_width && c.half_width <= 0.2 * norm * size(&case);
                assert!(held, "{} {control}: off by {error:e} of {wanted:e}, {c:?}", case.name);
            }
            assert_eq!((both.functionals[3].estimate, both.functionals[3].half_width), (0.0, 0.0));
        }
    }
}

on_usual_lanes! {
    [
        intervals_hold_the_solution,
        every_lane_walks_the_same_walks,
        bicgstab_is_the_same_on_every_lane,
    ]
}
// Tests that do not depend on the precision.
instances! {
    [right_hand_sides_share_walks, every_sequence_gives_the_solution]
    cpu_alone("cpu", F64);
    #[cfg(feature = "wgpu")] wgpu_alone("wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda_alone("cuda:0", F64);
}
instances! {
    [the_number_of_lanes_changes_no_bit]
    two_cpus_f64("cpu,cpu", F64);
    #[ignore = "slow: one instance of many"] three_cpus_f32("cpu,cpu,cpu", F32);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] two_wgpus_f64("wgpu:0,wgpu:0", F64);
    #[cfg(feature = "cuda")] two_cudas_f64("cuda:0,cuda:0", F64);
}

/// Checks the coverage of 240 intervals of 95 %: six systems, 40 seeds each.
///
/// The expected number is 228, the tolerance three standard deviations of 3.4.
#[test]
fn intervals_have_their_coverage() {
    const RUNS: u64 = 40;
    let machine = cpu();
    let of = |case: &Case| {
        // A truncation far below the statistical part, which is a few thousandths of x.
        let (delta, epsilon) = (Some(1e-5 * size(case)), Some(1e-9 * size(case)));
        let chains = Count::Number(16 << 8);
        let covers = |seed: u64| {
            let component = (seed * 31 % case.x.len() as u64) as u32;
            let options = plain().seed(seed).chains(chains).epsilon(epsilon).delta(delta);
            let c = &ask(&machine, case, &[component], &options).components[0];
            let error = (c.estimate - case.x[component as usize]).abs();
            (u32::from(error <= c.half_width), u32::from(error <= c.bound.statistical))
        };
        let (whole, statistical) = (0..RUNS).map(covers).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!("{}: {whole} and {statistical} of {RUNS}", case.name);
        (whole, statistical)
    };
    let (whole, statistical) = cases().par_iter().map(of).reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(whole >= 218, "{whole} of 240 intervals hold the answer");
    assert!((218..=238).contains(&statistical), "{statistical} of 240 statistical parts");
}

/// Returns the root mean square of the errors of single replicates.
fn rmse(case: &Case, machine: &Machine, options: &Options, runs: u64) -> f64 {
    let mut sum = 0.0;
    for seed in 0..runs {
        let component = (seed * 31 % case.x.len() as u64) as u32;
        let options = options.clone().seed(seed).replicates(1).delta(Some(1e-7 * size(case)));
        let c = &ask(machine, case, &[component], &options).components[0];
        sum += (c.estimate - case.x[component as usize]).powi(2);
    }
    (sum / runs as f64).sqrt()
}

/// Convergence rates of the sequences.
///
/// With Philox, the error falls as N^(−1/2). With Owen-scrambled Sobol points and rows in value
/// order, it falls faster and is smaller.
#[test]
#[ignore = "slow: hundreds of seeds"]
fn errors_fall_at_the_expected_rates() {
    let machine = cpu();
    let case = built_in("random-dominant:400,6,0.8,positive");
    let of = |sequence, chains| {
        let options = plain().sequence(sequence).chains(Count::Number(chains));
        rmse(&case, &machine, &options, 128)
    };
    let philox = [of(Sequence::Philox, 1 << 8), of(Sequence::Philox, 1 << 12)];
    let sobol = [of(Sequence::Sobol, 1 << 8), of(Sequence::Sobol, 1 << 12)];
    println!("philox {philox:?}, sobol {sobol:?}");
    // 128 errors give a root mean square to 6 %; the tolerance is three of these on the quotient.
    let fall = philox[0] / philox[1];
    assert!((4.0 / 1.3..4.0 * 1.3).contains(&fall), "philox falls by {fall}, not by 4");
    assert!(sobol[0] / sobol[1] > 4.0 * 1.3, "sobol falls by {}", sobol[0] / sobol[1]);
    assert!(philox[1] / sobol[1] > 2.0, "sobol is {} times smaller", philox[1] / sobol[1]);
}

#[test]
fn sweeps_make_errors_smaller() {
    let machine = cpu();
    let case = built_in("random-dominant:400,6,0.8,positive");
    let of = |control| {
        let options = Options::default().control(control).chains(Count::Number(1 << 10));
        rmse(&case, &machine, &options, 64)
    };
    let (none, sweeps) = (of(ControlVariate::Sweeps(0)), of(ControlVariate::Sweeps(4)));
    println!("none {none:e}, 4 sweeps {sweeps:e}");
    assert!(none > 10.0 * sweeps);
}

#[test]
fn chains_grow_until_epsilon_is_met_or_the_budget_ends() {
    let machine = cpu();
    let case = built_in("poisson2d:14,0.9");
    let of = |components: &[u32], epsilon, options: Options| {
        ask(&machine, &case, components, &options.epsilon(Some(epsilon)))
    };
    let first = of(&[90, 3], 1e-9, plain().max_chains(1 << 14));
    assert_eq!(first.status, Status::NotMet);
    assert!(first.components.iter().all(|c| c.chains == 1 << 14));

    let epsilon = 0.3 * first.bound.statistical;
    let grown = of(&[90, 3], epsilon, plain());
    assert_eq!(grown.status, Status::Met);
    for c in &grown.components {
        assert!(c.half_width <= epsilon && c.chains.is_power_of_two(), "{c:?}");
        approx::assert_abs_diff_eq!(c.estimate, case.x[c.component as usize], epsilon = 2.0 * c.half_width);
    }
    assert!(grown.components[0].chains > 1 << 14, "{:?}", grown.components);

    // In one round or in several: equal points, added in another order.
    let chains = Count::Number(grown.components[0].chains);
    let at_once = of(&[90], epsilon, plain().chains(chains));
    let (a, b) = (&at_once.components[0], &grown.components[0]);
    approx::assert_abs_diff_eq!(a.estimate, b.estimate, epsilon = a.bound.rounding);
}

#[test]
fn systems_without_walks_have_exact_answers() {
    let diagonal = CsrMatrix::from_rows(5, 5, |i, row| row.push((i as u32, 2.0 + i as f64)));
    let ones = [vec![1.0; 5]];
    let solution = sound(&cpu(), &Problem::new(&diagonal, &ones, &[3, 0]), &Options::default());
    assert_eq!(solution.status, Status::Met);
    let [third, first] = &solution.components[..] else { panic!("two components") };
    assert_eq!((third.component, first.component), (3, 0));
    assert!((third.estimate - 0.2).abs() <= third.half_width.max(f64::EPSILON));
    // b = 0: 0 ± 0.
    let c = component(&diagonal, &[0.0; 5], 1, &Options::default());
    assert_eq!((c.estimate, c.half_width), (0.0, 0.0));
    // One unknown, and chains without steps.
    let one = CsrMatrix::from_rows(1, 1, |_, row| row.push((0, 0.5)));
    let given = Options::default().splitting(Splitting::Given);
    let no_steps = plain().splitting(Splitting::Given).length(Length::Steps(0));
    let c = component(&one, &[3.0], 0, &no_steps);
    assert!(c.estimate == 3.0 && c.bound.statistical == 0.0, "{c:?}");
    assert!((c.bound.truncation - 3.0).abs() < 1e-12, "{c:?}");
    let c = component(&one, &[3.0], 0, &given.epsilon(Some(1e-9)));
    assert!((c.estimate - 6.0).abs() <= c.half_width && c.half_width <= 1e-9, "{c:?}");
}

#[test]
fn unusual_numbers_of_chains_are_walked_with_a_warning() {
    let machine = cpu();
    let case = built_in("poisson2d:7,1");
    let warned = |chains: u64, scramble, warning: &str| {
        let options = Options::default().chains(Count::Number(chains)).scramble(scramble);
        let solution = ask(&machine, &case, &[3], &options);
        assert!(solution.warnings.iter().any(|w| w.contains(warning)), "{:?}", solution.warnings);
        (solution.status, solution.components[0].clone())
    };
    assert_eq!(warned(16 * 100, None, "not a power of 2").1.chains, 1600);
    warned(1000, None, "1008 are walked");
    let (status, c) = warned(1 << 10, Some(Scramble::None), "without a scramble");
    assert!(status == Status::NotMet && c.half_width == f64::INFINITY);
    approx::assert_abs_diff_eq!(c.estimate, case.x[3], epsilon = 0.01 * size(&case));
}

/// Returns an observer that interrupts a run once `most` steps are done.
fn stop_at(most: u64) -> impl FnMut(u64, u64) -> Result<()> {
    move |done, _| if done >= most { Err(Error::Interrupted) } else { Ok(()) }
}

#[test]
fn real_matrices_have_their_components_in_the_interval() {
    let Some(folder) = above("shared/cases/matrices") else { return };
    let machine = cpu();
    let matrix = |name| kolmo::io::read_matrix(&folder.join(format!("{name}.mtx"))).expect("a matrix").0;
    // Chains of orsreg_1 have tens of thousands of steps.
    for (name, chains) in [
        ("pts5ldd03", 16 << 7),
        ("jpwh_991", 16 << 7),
        ("add32", 16 << 7),
        ("lap3D_7pt_n20", 16 << 7),
        ("orsreg_1", 16 << 3),
    ] {
        let matrix = matrix(name);
        let x = kolmo::io::npy::read_vector(folder.join(format!("{name}.x.npy"))).expect("a vector");
        let (n, rhs) = (matrix.rows() as u32, [vec![1.0; matrix.rows()]]);
        let components = [0, n / 3, n / 2, n - 1];
        let problem = Problem::new(&matrix, &rhs, &components);
        let options = Options::default().confidence(0.9999).chains(Count::Number(chains));
        for c in &sound(&machine, &problem, &options).components {
            let error = (c.estimate - x[c.component as usize]).abs();
            println!("{name} x_{}: {} ± {:e}, off by {error:e}", c.component, c.estimate, c.half_width);
            assert!(error <= c.half_width, "{name}: x_{} is off by {error:e}, {:?}", c.component, c.bound);
        }
        // Six digits without a walk.
        let epsilon = Some(1e-6 * x.iter().fold(0.0f64, |most, x| most.max(x.abs())));
        let solution = sound(&machine, &problem, &Options::default().epsilon(epsilon));
        assert!(solution.krylov > 0, "{name}");
        for c in &solution.components {
            let error = (c.estimate - x[c.component as usize]).abs();
            assert!(c.bound.statistical == 0.0 && Some(c.half_width) <= epsilon, "{name}: {c:?}");
            // The reference has 16 digits.
            assert!(error <= c.half_width + 1e-15 * c.estimate.abs(), "{name}: off by {error:e}, {c:?}");
        }
    }
    for name in ["ani4", "olm500"] {
        let matrix = matrix(name);
        let rhs = [vec![1.0; matrix.rows()]];
        let error =
            solve(&machine, &Problem::new(&matrix, &rhs, &[0]), &Options::default(), &mut ()).unwrap_err();
        assert!(matches!(error, Error::Divergent { lower, .. } if lower >= 1.0), "{name}: {error}");
    }
}

/// If sweeps alone solve a system, only rounding remains, and it is bounded.
#[test]
fn systems_solved_by_sweeps_have_a_certain_interval() {
    // x_i = l x_{i−1} + f_i, in double-word arithmetic.
    let (n, l) = (3000, 0.9995);
    let f: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
    let matrix = CsrMatrix::from_rows(n, n, |i, row| row.extend((i > 0).then(|| (i as u32 - 1, l))));
    let components: Vec<u32> = (0..41).map(|k| k * 2999 / 40).collect();
    let options = Options::default().splitting(Splitting::Given).control(ControlVariate::Sweeps(3000));
    let solution = sound(&cpu(), &Problem::new(&matrix, std::slice::from_ref(&f), &components), &options);
    let mut x = DoubleWord::ZERO;
    let exact: Vec<DoubleWord> = f
        .iter()
        .map(|&f| {
            x = x * DoubleWord::from(l) + DoubleWord::from(f);
            x
        })
        .collect();
    for c in &solution.components {
        let error = (DoubleWord::from(c.estimate) - exact[c.component as usize]).abs().to_f64();
        assert!(error <= c.half_width && c.bound.statistical == 0.0, "{error:e} {c:?}");
    }
}

#[test]
fn chains_of_no_step_need_no_points() {
    use ControlVariate::{Auto, Sweeps};
    let one = CsrMatrix::from_rows(1, 1, |_, row| row.push((0, 4.0)));
    let triangle = CsrMatrix::from_rows(3, 3, |i, row| row.extend((0..=i as u32).map(|j| (j, 1.0))));
    let poisson = built_in("poisson2d:10,0.5");
    let zeros = CsrMatrix::from_rows(2, 2, |_, _| {});
    for (matrix, rhs, x, control, splitting) in [
        (&one, &[3.0][..], 0.75, Auto, Splitting::Auto),
        (&one, &[3.0], 0.75, Sweeps(0), Splitting::Auto),
        (&triangle, &[1.0, 1.0, 1.0], 1.0, Auto, Splitting::Auto),
        (&triangle, &[1.0, 1.0, 1.0], 1.0, Sweeps(3), Splitting::Auto),
        (&poisson.matrix, &poisson.rhs[..], poisson.x[0], Sweeps(300), Splitting::Auto),
        (&zeros, &[5.0, 1.0], 5.0, Sweeps(0), Splitting::Given),
    ] {
        let base = Options::default().control(control).splitting(splitting).max_chains(1 << 12);
        for sequence in SEQUENCES {
            let c = component(matrix, rhs, 0, &base.clone().sequence(sequence));
            approx::assert_abs_diff_eq!(c.estimate, x, epsilon = c.half_width + 1e-12);
        }
    }
}

#[test]
fn the_size_of_the_right_hand_side_changes_no_digit() {
    let case = built_in("random-dominant:60,5,0.8,signed");
    let options = plain().chains(Count::Number(1 << 12));
    let of = |factor: f64| {
        let rhs: Vec<f64> = case.rhs.iter().map(|b| b * factor).collect();
        component(&case.matrix, &rhs, 7, &options)
    };
    let one = of(1.0);
    for e in [-900, -563, 563, 900] {
        let factor = 2f64.powi(e);
        let (c, wanted) = (of(factor), (one.estimate * factor, one.half_width * factor));
        assert_eq!((c.estimate, c.half_width), wanted, "2^{e}");
    }
    for factor in [1e-170, 1e160] {
        let c = of(factor);
        let error = (c.estimate - case.x[7] * factor).abs();
        assert!(error <= c.half_width && c.half_width < 0.2 * factor, "{factor:e}: {c:?}");
    }
}

#[test]
fn results_beyond_the_range_are_errors_with_their_component() {
    let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.push((i as u32, if i == 0 { 1.0 } else { 1e-200 })));
    let rhs = [vec![1.0, 1e200]];
    let found = solve(&cpu(), &Problem::new(&matrix, &rhs, &[0, 1]), &Options::default(), &mut ());
    let said = found.unwrap_err().to_string();
    assert!(said.contains("component 1") && said.contains("out of range of f64"), "{said}");
}

#[test]
fn an_epsilon_that_rounding_excludes_ends_the_walks() {
    let case = built_in("poisson2d:7,1");
    // With a given length, one round of walks is made.
    let (bound, given) = (Length::Bound, Length::Steps(40));
    for (epsilon, length, chains) in [(1e-300, bound, 0), (1e-17, bound, 0), (1e-17, given, 1 << 14)] {
        let options = Options::default().epsilon(Some(epsilon)).delta(Some(1e-3)).length(length);
        let solution = ask(&cpu(), &case, &[3], &options);
        assert_eq!((solution.status, solution.components[0].chains), (Status::NotMet, chains), "{epsilon:e}");
    }
}

/// A value of the probability 2⁻²⁷ that no chain meets, and that would need 2⁶⁴ chains.
#[test]
fn intervals_beyond_the_largest_number_of_chains_are_not_attempted() {
    let n = 28;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| {
        row.extend((i + 1 < n).then_some([(0, 0.3), (i as u32 + 1, 0.3)]).into_iter().flatten());
    });
    let rhs = (1..=n).map(|i| if i < n { 0.1 } else { 0.3f64.powi(1 - i as i32) }).collect::<Vec<f64>>();
    let x = eliminated(&matrix, &rhs, true)[0];
    let options = plain().splitting(Splitting::Given).epsilon(Some(1e-2));
    let c = component(&matrix, &rhs, 0, &options);
    assert!((c.estimate - x).abs() <= c.half_width && c.chains == 1 << 14, "{c:?} {x}");
}

#[test]
fn functionals_of_many_entries_are_exact_or_walked() {
    // 4900 entries are two groups.
    let built = system("poisson2d:70,0.9", 3).expect("a built-in").expect("its parameters are sound");
    let (n, rhs) = (built.matrix.rows(), std::slice::from_ref(&built.rhs));
    let h = [vec![1.0 / n as f64; n], (0..n).map(|i| (i as f64).sin()).collect()];
    let problem = Problem::new(&built.matrix, rhs, &[]).functionals(&h);
    let ask = |options: &Options| sound(&cpu(), &problem, options);
    let exact = ask(&Options::default().epsilon(Some(1e-6)).control(ControlVariate::Sweeps(400)));
    assert_eq!((exact.status, exact.steps), (Status::Met, 0));
    for control in [ControlVariate::Sweeps(0), ControlVariate::Sweeps(2), ControlVariate::Krylov] {
        let chains = Count::Number(16 << 8);
        let walked = ask(&Options::default().confidence(0.9999).chains(chains).control(control));
        for (a, b) in walked.functionals.iter().zip(&exact.functionals) {
            let off = (a.estimate - b.estimate).abs();
            assert!(off <= a.half_width + 1e-6, "{control} {}: off by {off:e}, {:?}", a.name(), a.bound);
            // Probabilities in two levels are accurate enough for six digits.
            let norm = if a.component == 0 { 1.0 } else { 0.7 * n as f64 };
            assert!(a.bound.rounding <= 1e-5 * norm * b.estimate.abs().max(1.0), "{:?}", a.bound);
        }
    }
}

#[test]
fn a_functional_of_one_entry_is_that_component() {
    let case = built_in("random-dominant:300,5,0.75,signed");
    let h = |h: f64| (0..case.x.len()).map(|j| if j == 9 { h } else { 0.0 }).collect::<Vec<f64>>();
    let options = plain().epsilon(Some(1e-2));
    let solution = ask_functionals(&cpu(), &case, (&[9], &[h(1.0), h(-4.0)]), &options);
    let [one, minus_four] = &solution.functionals[..] else { panic!("two functionals") };
    assert_eq!(solution.status, Status::Met);
    approx::assert_abs_diff_eq!(one.estimate, case.x[9], epsilon = one.half_width);
    // Each functional has the requested half-width.
    approx::assert_abs_diff_eq!(minus_four.estimate, -4.0 * case.x[9], epsilon = minus_four.half_width);
    assert!(one.half_width <= 1e-2 && minus_four.half_width <= 1e-2 && minus_four.chains >= one.chains);
    // The default half-width of a functional is that of components times Σ |h|.
    let default = ask_functionals(&cpu(), &case, (&[9], &[h(-4.0)]), &Options::default());
    let (all, one) = (default.functionals[0].epsilon, default.components[0].epsilon);
    approx::assert_relative_eq!(all, 4.0 * one, max_relative = 1e-12);
}

#[test]
fn rows_without_influence_may_diverge() {
    // Rows 1 and 3 converge, rows 0 and 2 do not.
    let rows = [(2, 1.5), (3, 0.5), (0, 2.0), (1, 0.25)];
    let matrix = CsrMatrix::from_rows(4, 4, |i, row| row.push(rows[i]));
    let rhs = [vec![1.0, 1.0, 1.0, 2.0]];
    let options = Options::default().splitting(Splitting::Given);
    let ask = |components: &[u32], h: [f64; 4]| {
        solve(&cpu(), &Problem::new(&matrix, &rhs, components).functionals(&[h.to_vec()]), &options, &mut ())
    };
    let solution = ask(&[3, 1], [0.0, 1.0, 0.0, -1.0]).expect("x₁ = 16/7, x₃ = 18/7");
    let found = all(&solution);
    for (c, (number, x)) in found.iter().zip([(3, 18.0 / 7.0), (1, 16.0 / 7.0), (0, -2.0 / 7.0)]) {
        assert_eq!(c.component, number);
        approx::assert_abs_diff_eq!(c.estimate, x, epsilon = c.half_width);
    }
    let warned = solution.warnings.iter().any(|w| w.contains("2 of them"));
    assert!(found.len() == 3 && solution.n == 4 && warned, "{:?}", solution.warnings);
    // The worst row is named by its number in the whole system.
    let error = ask(&[0], [0.0; 4]).unwrap_err();
    assert!(matches!(error, Error::Divergent { row: 2, .. }), "{error}");
    assert!(matches!(ask(&[1], [1e-3, 1.0, 0.0, 0.0]), Err(Error::Divergent { .. })));
    let said = ask(&[1], [0.0, f64::NAN, 1.0, 1.0]).unwrap_err().to_string();
    assert!(said.contains("entry 1 of functional 0, counted from 0, is NaN"), "{said}");
}

/// A time limit of zero, for systems that would need hours of walks.
#[test]
fn a_time_limit_ends_with_the_certain_bound() {
    let case = built_in("random-dominant:300,5,0.75,signed");
    let h = [vec![1.0; case.x.len()]];
    let hard = plain().epsilon(Some(1e-12)).time_limit(Some(Duration::ZERO));
    for control in [ControlVariate::Sweeps(0), ControlVariate::Krylov] {
        let options = hard.clone().control(control);
        let solution = ask_functionals(&cpu(), &case, (&[9], &h), &options);
        assert_eq!((solution.status, solution.steps, solution.krylov), (Status::NotMet, 0, 0));
        for (c, x) in all(&solution).iter().zip([case.x[9], case.x.iter().sum()]) {
            assert!((c.estimate - x).abs() <= c.half_width, "{control}: {} {c:?}", c.name());
            assert!(c.half_width.is_finite() && c.bound.statistical == 0.0 && c.length == 0, "{c:?}");
        }
    }
}

/// Ctrl-C and time limits interrupt BiCGSTAB, in the certificate and in the control variate.
#[test]
fn products_are_counted_and_can_be_interrupted() {
    let case = built_in("poisson2d:40,1");
    let problem = Problem::new(&case.matrix, std::slice::from_ref(&case.rhs), &[5]);
    let options = Options::default().epsilon(Some(1e-9));
    let mut counts = Vec::new();
    let mut told = |done: u64, all: u64| {
        counts.extend((all == 0).then_some(done));
        Ok(())
    };
    let solution = solve(&cpu(), &problem, &options, &mut told).expect("a sound problem");
    let most = *counts.iter().max().expect("products are told");
    // Every sixteen iterations, of two products each.
    assert!(solution.krylov > 20 && most > 20 && counts.len() as u64 > most / 32, "{most} {}", counts.len());
    for stop in [1, most] {
        let error = solve(&cpu(), &problem, &options, &mut stop_at(stop));
        assert!(matches!(error, Err(Error::Interrupted)), "{stop}: {error:?}");
    }
}

/// Returns the tridiagonal matrix with the rows (−1, 2, −1).
fn laplacian(n: u32) -> CsrMatrix {
    CsrMatrix::from_rows(n as usize, n as usize, |i, row| {
        let i = i as u32;
        let near = [(i.wrapping_sub(1), -1.0), (i, 2.0), (i + 1, -1.0)];
        row.extend(near.into_iter().filter(|entry| entry.0 < n));
    })
}

/// Delay by other processes that a test of a time limit allows.
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn long_walks_end_with_the_time_limit_and_on_interrupts() {
    let limit = Duration::from_millis(300);
    let (matrix, rhs) = (laplacian(199), [vec![1.0; 199]]);
    let problem = Problem::new(&matrix, &rhs, &[99]);
    let base = plain().epsilon(Some(1e-3));
    let limited = base.clone().time_limit(Some(limit));
    let (started, mut steps) = (Instant::now(), 0);
    let solution = solve(&cpu(), &problem, &limited, &mut |done, _| {
        steps = steps.max(done);
        Ok(())
    });
    let (solution, took) = (solution.expect("what is known"), started.elapsed());
    assert!(took < limit + SLACK && solution.status == Status::NotMet, "{took:?}");
    // Steps are reported before the first launch ends.
    assert!(steps > 0 && solution.components[0].length == 0, "{steps}");
    assert!((solution.components[0].estimate - 5000.0).abs() <= solution.components[0].half_width);

    let started = Instant::now();
    let stopped = solve(&cpu(), &problem, &base, &mut stop_at(1));
    let took = started.elapsed();
    assert!(matches!(stopped, Err(Error::Interrupted)) && took < SLACK, "{took:?}");
}

#[test]
fn walks_limited_by_rounding_are_skipped() {
    // The residual of BiCGSTAB is below the rounding error, and a first round of walks would take
    // minutes.
    let (matrix, rhs) = (laplacian(999), [vec![1.0; 999]]);
    for epsilon in [1.0, 1e-2, 1e-9] {
        let options = Options::default().epsilon(Some(epsilon));
        let solution = sound(&cpu(), &Problem::new(&matrix, &rhs, &[499]), &options);
        let x = &solution.components[0];
        assert!((x.estimate - 125_000.0).abs() <= x.half_width && x.length == 0, "{epsilon:e}: {x:?}");
        assert_eq!(solution.status == Status::Met, x.half_width <= epsilon);
        assert!(x.half_width <= 1e-2, "{epsilon:e}: {x:?}");
    }
}
