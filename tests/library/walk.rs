//! Walks against elimination, published solutions, and other lanes.

mod suite;

use std::path::PathBuf;

use rayon::prelude::*;

use crate::devices::skip;
use crate::support::machine;
use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::models::system;
use kolmo::sparse::CsrMatrix;
use kolmo::transient::Status;
use kolmo::walk::sequence::{Scramble, Sequence};
use kolmo::walk::{
    ControlVariate, Count, Grid, Length, Options, Problem, Quantity, RowOrder, Solution, Splitting, solve,
};
use kolmo::{Error, Machine};

/// A system and its solution.
struct Case {
    name: &'static str,
    matrix: CsrMatrix,
    rhs: Vec<f64>,
    splitting: Splitting,
    x: Vec<f64>,
}

/// Solves A x = b, or x = L x + f, by elimination with partial pivoting.
fn eliminate(matrix: &CsrMatrix, rhs: &[f64], given: bool) -> Vec<f64> {
    let n = matrix.rows();
    let mut a = vec![0.0; n * n];
    for i in 0..n {
        let (columns, values) = matrix.row(i);
        for (&j, &v) in columns.iter().zip(values) {
            a[i * n + j as usize] = if given { -v } else { v };
        }
        if given {
            a[i * n + i] += 1.0;
        }
    }
    let mut x = rhs.to_vec();
    for k in 0..n {
        let pivot = (k..n).max_by(|&p, &q| a[p * n + k].abs().total_cmp(&a[q * n + k].abs())).expect("a row");
        for j in 0..n {
            a.swap(k * n + j, pivot * n + j);
        }
        x.swap(k, pivot);
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            if factor != 0.0 {
                for j in k..n {
                    a[i * n + j] -= factor * a[k * n + j];
                }
                x[i] -= factor * x[k];
            }
        }
    }
    for k in (0..n).rev() {
        let rest: f64 = (k + 1..n).map(|j| a[k * n + j] * x[j]).sum();
        x[k] = (x[k] - rest) / a[k * n + k];
    }
    x
}

fn built_in(name: &'static str) -> Case {
    let built = system(name, 3).expect("a built-in").expect("its parameters are sound");
    let x = eliminate(&built.matrix, &built.rhs, false);
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
    let x = eliminate(&matrix, &rhs, true);
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

fn ask(machine: &Machine, case: &Case, components: &[u32], options: &Options) -> Solution {
    let rhs = std::slice::from_ref(&case.rhs);
    let problem = Problem { matrix: &case.matrix, rhs, components, functionals: &[] };
    let options = Options { splitting: case.splitting, ..options.clone() };
    solve(machine, &problem, &options, &mut |_, _| Ok(())).expect("a sound problem has a solution")
}

/// Calls [`solve`] for components and functionals of a case.
fn ask_functionals(
    machine: &Machine,
    case: &Case,
    (components, functionals): (&[u32], &[Vec<f64>]),
    options: &Options,
) -> Solution {
    let rhs = std::slice::from_ref(&case.rhs);
    let problem = Problem { matrix: &case.matrix, rhs, components, functionals };
    let options = Options { splitting: case.splitting, ..options.clone() };
    solve(machine, &problem, &options, &mut |_, _| Ok(())).expect("a sound problem has a solution")
}

/// <h, x>.
fn product(h: &[f64], x: &[f64]) -> f64 {
    h.iter().zip(x).map(|(h, x)| h * x).sum()
}

fn cpu() -> Machine {
    machine("cpu", F64, false).expect("the CPU opens")
}

/// Returns the largest |x| of a case.
fn size(case: &Case) -> f64 {
    case.x.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// The suite on one device.
///
/// `single`: tests that depend on the precision, in addition to a suite in double. `several`: tests
/// that depend on several lanes.
macro_rules! on {
    (single $($instance:tt)*) => {
        instance!($($instance)*:
            intervals_hold_the_solution,
            every_lane_walks_the_same_walks,
            bicgstab_is_the_same_on_every_lane,
            lazy_walks_hold_the_solution,
            functionals_lie_in_their_intervals,
        );
    };
    (several $($instance:tt)*) => {
        instance!($($instance)*: the_number_of_lanes_changes_no_bit);
    };
    ($($instance:tt)*) => {
        instance!($($instance)*:
            intervals_hold_the_solution,
            every_lane_walks_the_same_walks,
            bicgstab_is_the_same_on_every_lane,
            right_hand_sides_share_walks,
            points_may_come_out_of_a_buffer,
            grids_walk_the_same_walks,
            lazy_walks_hold_the_solution,
            functionals_lie_in_their_intervals,
        );
    };
}

on!(cpu_f64("cpu", F64));
on!(single slow cpu_f32("cpu", F32));
on!(several two_cpus_f64("cpu,cpu", F64));
on!(several slow three_cpus_f32("cpu,cpu,cpu", F32));
#[cfg(feature = "wgpu")]
on!(wgpu_f64("wgpu:0", F64));
#[cfg(feature = "wgpu")]
on!(single slow wgpu_f32("wgpu:0", F32));
#[cfg(feature = "wgpu")]
on!(several slow two_wgpus_f64("wgpu:0,wgpu:0", F64));
#[cfg(feature = "cuda")]
on!(cuda_f64("cuda:0", F64));
#[cfg(feature = "cuda")]
on!(single cuda_f32("cuda:0", F32));
#[cfg(feature = "cuda")]
on!(several two_cudas_f64("cuda:0,cuda:0", F64));

/// Returns how many of `runs` seeds give an interval that contains the component or functional.
///
/// Counted for the whole half-width, and for its statistical part alone.
fn coverage(
    case: &Case,
    machine: &Machine,
    control: ControlVariate,
    functional: bool,
    runs: u64,
) -> (u32, u32) {
    let (n, size) = (case.x.len(), size(case));
    let h: Vec<Vec<f64>> =
        functional.then(|| (0..n).map(|i| (i % 5) as f64 - 1.0).collect()).into_iter().collect();
    // A truncation far below the statistical part, which is a few thousandths of x without a
    // control variate. BiCGSTAB ends early, so that walks still sample its residual.
    let options = match control {
        ControlVariate::Krylov => {
            Options { epsilon: Some(0.5 * size), length: Length::Steps(150), ..Options::default() }
        }
        ControlVariate::Sweeps(0) => Options { delta: Some(1e-5 * size), ..Options::default() },
        _ => Options { delta: Some(1e-7 * size), ..Options::default() },
    };
    let epsilon = options.epsilon.or(Some(1e-9 * size));
    let options = Options { chains: Count::Number(16 << 8), epsilon, control, ..options };
    let (mut whole, mut statistical) = (0, 0);
    for seed in 0..runs {
        let component = (seed * 31 % n as u64) as u32;
        let components = if functional { vec![] } else { vec![component] };
        let options = Options { seed, ..options.clone() };
        let solution = ask_functionals(machine, case, (&components, &h), &options);
        let (c, x) = match &h[..] {
            [h] => (&solution.functionals[0], product(h, &case.x)),
            _ => (&solution.components[0], case.x[component as usize]),
        };
        let error = (c.estimate - x).abs();
        whole += u32::from(error <= c.half_width);
        statistical += u32::from(error <= c.bound.statistical);
    }
    (whole, statistical)
}

/// Checks the coverage of 240 intervals of 95 %: six systems, 40 seeds each.
///
/// The expected number is 228, the tolerance three standard deviations of 3.4. `kolmo bench walk
/// --case coverage` counts 400 runs of each system separately.
fn intervals_cover(control: ControlVariate, functional: bool) {
    const RUNS: u64 = 40;
    let machine = cpu();
    let all: Vec<(u32, u32)> = cases()
        .par_iter()
        .map(|case| {
            let (whole, statistical) = coverage(case, &machine, control, functional, RUNS);
            println!("{} {control}: {whole} and {statistical} of {RUNS}", case.name);
            (whole, statistical)
        })
        .collect();
    let (whole, statistical) = all.iter().fold((0, 0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
    assert!(whole >= 218, "{control}: {whole} of 240 intervals hold the answer");
    assert!((218..=238).contains(&statistical), "{control}: {statistical} of 240 statistical parts");
}

#[test]
fn intervals_have_their_coverage() {
    intervals_cover(ControlVariate::Sweeps(0), false);
}

#[test]
#[ignore = "slow: hundreds of seeds"]
fn intervals_after_sweeps_have_their_coverage() {
    intervals_cover(ControlVariate::Jacobi, false);
}

#[test]
#[ignore = "slow: hundreds of seeds"]
fn intervals_after_bicgstab_have_their_coverage() {
    intervals_cover(ControlVariate::Krylov, false);
}

#[test]
#[ignore = "slow: hundreds of seeds"]
fn intervals_of_functionals_have_their_coverage() {
    intervals_cover(ControlVariate::Sweeps(0), true);
}

/// Returns the root mean square of the errors of single replicates.
fn rmse(case: &Case, machine: &Machine, options: &Options, runs: u64) -> f64 {
    let mut sum = 0.0;
    for seed in 0..runs {
        let component = (seed * 31 % case.x.len() as u64) as u32;
        let options = Options { seed, replicates: 1, delta: Some(1e-7 * size(case)), ..options.clone() };
        let c = ask(machine, case, &[component], &options).components[0].clone();
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
        let options = Options {
            sequence,
            chains: Count::Number(chains),
            control: ControlVariate::Sweeps(0),
            ..Options::default()
        };
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
fn sweeps_and_the_order_of_values_make_errors_smaller() {
    let machine = cpu();
    let case = built_in("random-dominant:400,6,0.8,positive");
    let of = |order, control| {
        let options = Options { order, control, chains: Count::Number(1 << 10), ..Options::default() };
        rmse(&case, &machine, &options, 64)
    };
    let index = of(RowOrder::Index, ControlVariate::Sweeps(0));
    let value = of(RowOrder::Value, ControlVariate::Sweeps(0));
    let sweeps = of(RowOrder::Value, ControlVariate::Sweeps(4));
    println!("index {index:e}, value {value:e}, 4 sweeps {sweeps:e}");
    assert!(index > 1.2 * value && value > 10.0 * sweeps);
}

#[test]
fn chains_grow_until_epsilon_is_met_or_the_budget_ends() {
    let machine = cpu();
    let case = built_in("poisson2d:14,0.9");
    let base = Options { control: ControlVariate::Sweeps(0), ..Options::default() };
    let first =
        ask(&machine, &case, &[90, 3], &Options { max_chains: 1 << 14, epsilon: Some(1e-9), ..base.clone() });
    assert_eq!(first.status, Status::NotMet);
    assert!(first.components.iter().all(|c| c.chains == 1 << 14));

    let epsilon = 0.3 * first.bound.statistical;
    let grown = ask(&machine, &case, &[90, 3], &Options { epsilon: Some(epsilon), ..base.clone() });
    assert_eq!(grown.status, Status::Met);
    for c in &grown.components {
        assert!(c.half_width <= epsilon && c.chains.is_power_of_two(), "{c:?}");
        approx::assert_abs_diff_eq!(c.estimate, case.x[c.component as usize], epsilon = 2.0 * c.half_width);
    }
    assert!(grown.components[0].chains > 1 << 14, "{:?}", grown.components);

    // In one round or in several: equal points, added in another order.
    let chains = grown.components[0].chains;
    let at_once = ask(
        &machine,
        &case,
        &[90],
        &Options { epsilon: Some(epsilon), chains: Count::Number(chains), ..base },
    );
    let (a, b) = (&at_once.components[0], &grown.components[0]);
    approx::assert_abs_diff_eq!(a.estimate, b.estimate, epsilon = a.bound.rounding);
}

#[test]
fn systems_without_walks_have_exact_answers() {
    let machine = cpu();
    let diagonal = CsrMatrix::from_rows(5, 5, |i, row| row.push((i as u32, 2.0 + i as f64)));
    let case = |rhs: Vec<f64>| Case {
        name: "diagonal",
        matrix: diagonal.clone(),
        rhs,
        splitting: Splitting::Auto,
        x: vec![],
    };
    let solution = ask(&machine, &case(vec![1.0; 5]), &[3, 0], &Options::default());
    assert_eq!(solution.status, Status::Met);
    assert_eq!((solution.components[0].component, solution.components[1].component), (3, 0));
    assert!(
        (solution.components[0].estimate - 0.2).abs() <= solution.components[0].half_width.max(f64::EPSILON)
    );
    // b = 0: 0 ± 0.
    let solution = ask(&machine, &case(vec![0.0; 5]), &[1], &Options::default());
    assert_eq!((solution.components[0].estimate, solution.components[0].half_width), (0.0, 0.0));
    // One unknown, and chains without steps.
    let one = Case {
        name: "one",
        matrix: CsrMatrix::from_rows(1, 1, |_, row| row.push((0, 0.5))),
        rhs: vec![3.0],
        splitting: Splitting::Given,
        x: vec![6.0],
    };
    let options =
        Options { length: Length::Steps(0), control: ControlVariate::Sweeps(0), ..Options::default() };
    let c = ask(&machine, &one, &[0], &options).components[0].clone();
    assert!(
        c.estimate == 3.0 && c.bound.statistical == 0.0 && (c.bound.truncation - 3.0).abs() < 1e-12,
        "{c:?}"
    );
    let c = ask(&machine, &one, &[0], &Options { epsilon: Some(1e-9), ..Options::default() }).components[0]
        .clone();
    assert!((c.estimate - 6.0).abs() <= c.half_width && c.half_width <= 1e-9, "{c:?}");
}

#[test]
fn unusual_numbers_of_chains_are_walked_with_a_warning() {
    let machine = cpu();
    let case = built_in("poisson2d:7,1");
    let of = |options: Options| ask(&machine, &case, &[3], &options);
    let odd = of(Options { chains: Count::Number(16 * 100), ..Options::default() });
    assert!(odd.warnings.iter().any(|w| w.contains("not a power of 2")), "{:?}", odd.warnings);
    assert_eq!(odd.components[0].chains, 1600);
    let uneven = of(Options { chains: Count::Number(1000), ..Options::default() });
    assert!(uneven.warnings.iter().any(|w| w.contains("1008 are walked")), "{:?}", uneven.warnings);
    let plain =
        of(Options { scramble: Some(Scramble::None), chains: Count::Number(1 << 10), ..Options::default() });
    assert!(plain.warnings.iter().any(|w| w.contains("without a scramble")), "{:?}", plain.warnings);
    assert!(plain.status == Status::NotMet && plain.components[0].half_width == f64::INFINITY);
    approx::assert_abs_diff_eq!(plain.components[0].estimate, case.x[3], epsilon = 0.01 * size(&case));
}

#[test]
fn problems_without_an_answer_are_refused_with_the_number() {
    let machine = cpu();
    let case = built_in("poisson2d:4,0.9");
    let ask = |components: &[u32], options: Options| {
        let rhs = std::slice::from_ref(&case.rhs);
        let problem = Problem { matrix: &case.matrix, rhs, components, functionals: &[] };
        solve(&machine, &problem, &options, &mut |_, _| Ok(())).unwrap_err().to_string()
    };
    let d = Options::default;
    assert!(ask(&[16], d()).contains("component 16 of a system of 16 unknowns is out of range"));
    assert!(ask(&[3, 1, 3], d()).contains("duplicate component 3"));
    assert!(ask(&[], d()).contains("no component"));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(ask(&[0], Options { epsilon: Some(bad), ..d() }).contains("epsilon"));
        assert!(ask(&[0], Options { delta: Some(bad), ..d() }).contains("delta"));
    }
    for bad in [0.0, 1.0, f64::NAN] {
        assert!(ask(&[0], Options { confidence: bad, ..d() }).contains("confidence"));
    }
    assert!(ask(&[0], Options { replicates: 0, ..d() }).contains("`replicates` 0"));
    assert!(ask(&[0], Options { replicates: 1 << 20, ..d() }).contains("replicates"));
    assert!(ask(&[0], Options { chains: Count::Number(0), ..d() }).contains("`chains` 0"));
    assert!(ask(&[0], Options { chains: Count::Number(u64::MAX), ..d() }).contains("chains"));
    assert!(ask(&[0], Options { max_chains: 0, ..d() }).contains("`max_chains`"));
    assert!(ask(&[0], Options { length: Length::Steps(u32::MAX), ..d() }).contains("length"));
    let long = Options { delta: Some(1e-300), epsilon: Some(1e-300), ..d() };
    assert!(!ask_ok(&machine, &case, &long), "1e-300 is not met, and no error either");
    let rhs = vec![vec![1.0; 3]];
    let problem = Problem { matrix: &case.matrix, rhs: &rhs, components: &[0], functionals: &[] };
    let error = solve(&machine, &problem, &d(), &mut |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("3 entries, but the matrix 16 rows"), "{error}");
}

fn ask_ok(machine: &Machine, case: &Case, options: &Options) -> bool {
    let options = Options { max_chains: 1 << 10, ..options.clone() };
    ask(machine, case, &[0], &options).status == Status::Met
}

#[test]
fn an_interruption_ends_the_walks() {
    let case = built_in("poisson2d:14,0.9");
    let rhs = std::slice::from_ref(&case.rhs);
    let problem = Problem { matrix: &case.matrix, rhs, components: &[5], functionals: &[] };
    let options = Options { control: ControlVariate::Jacobi, ..Options::default() };
    let error = solve(&cpu(), &problem, &options, &mut |done, _| match done {
        0 => Ok(()),
        _ => Err(Error::Interrupted),
    });
    assert!(matches!(error, Err(Error::Interrupted)), "{error:?}");
}

/// Returns `shared/cases/matrices`, in the current folder or above it.
fn matrices() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join("shared/cases/matrices")).find(|folder| folder.is_dir())
}

fn vector(path: &std::path::Path) -> Vec<f64> {
    kolmo::io::npy::read_vector(path).expect("a vector")
}

#[test]
fn real_matrices_have_their_components_in_the_interval() {
    let Some(folder) = matrices() else {
        return skip("cases", "no shared/cases/matrices above the current folder");
    };
    let machine = cpu();
    // Chains of orsreg_1 have tens of thousands of steps.
    for (name, chains) in [
        ("pts5ldd03", 16 << 7),
        ("jpwh_991", 16 << 7),
        ("add32", 16 << 7),
        ("lap3D_7pt_n20", 16 << 7),
        ("orsreg_1", 16 << 3),
    ] {
        let (matrix, _) = kolmo::io::read_matrix(&folder.join(format!("{name}.mtx"))).expect("a matrix");
        let x = vector(&folder.join(format!("{name}.x.npy")));
        let n = matrix.rows();
        let rhs = vec![vec![1.0; n]];
        let components = [0, (n / 3) as u32, (n / 2) as u32, n as u32 - 1];
        let problem = Problem { matrix: &matrix, rhs: &rhs, components: &components, functionals: &[] };
        let options = Options { confidence: 0.9999, chains: Count::Number(chains), ..Options::default() };
        let solution = solve(&machine, &problem, &options, &mut |_, _| Ok(())).expect(name);
        for c in &solution.components {
            let error = (c.estimate - x[c.component as usize]).abs();
            println!("{name} x_{}: {} ± {:e}, off by {error:e}", c.component, c.estimate, c.half_width);
            assert!(error <= c.half_width, "{name}: x_{} is off by {error:e}, {:?}", c.component, c.bound);
        }
        // Six digits without a walk.
        let epsilon = Some(1e-6 * x.iter().fold(0.0f64, |most, x| most.max(x.abs())));
        let options = Options { epsilon, ..Options::default() };
        let solution = solve(&machine, &problem, &options, &mut |_, _| Ok(())).expect(name);
        assert!(solution.krylov > 0, "{name}");
        for c in &solution.components {
            let error = (c.estimate - x[c.component as usize]).abs();
            assert!(c.bound.statistical == 0.0 && Some(c.half_width) <= epsilon, "{name}: {c:?}");
            // The reference has 16 digits.
            assert!(error <= c.half_width + 1e-15 * c.estimate.abs(), "{name}: off by {error:e}, {c:?}");
        }
    }
    for name in ["ani4", "olm500"] {
        let (matrix, _) = kolmo::io::read_matrix(&folder.join(format!("{name}.mtx"))).expect("a matrix");
        let rhs = vec![vec![1.0; matrix.rows()]];
        let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[0], functionals: &[] };
        for force in [false, true] {
            let options = Options { force, ..Options::default() };
            let error = solve(&machine, &problem, &options, &mut |_, _| Ok(())).unwrap_err();
            assert!(matches!(error, Error::Divergent { lower, .. } if lower >= 1.0), "{name}: {error}");
        }
    }
}

#[test]
fn the_published_estimates_of_length_and_chains_are_used() {
    let machine = cpu();
    // b = D gives f = 1 in every entry, and the norm is 0.9: (0.6745 · 10 / 0.5)² = 181.97 chains.
    let mut case = built_in("poisson2d:7,0.9");
    case.rhs = vec![4.0 / 0.9; 49];
    let base = Options {
        epsilon: Some(0.5),
        delta: Some(0.01),
        control: ControlVariate::Sweeps(0),
        ..Options::default()
    };
    let of = |options: Options| ask(&machine, &case, &[24, 0], &options).components[0].clone();
    let norm = of(Options { chains: Count::Norm, replicates: 1, ..base.clone() });
    assert_eq!((norm.chains, norm.length), (182, 65));
    let printed = of(Options { chains: Count::Norm, replicates: 1, length: Length::Printed, ..base.clone() });
    assert_eq!(printed.length, 44);
    assert!(printed.bound.truncation > 0.01 && norm.bound.truncation <= 0.01, "{printed:?} {norm:?}");
    // The row of a corner has half the norm: (0.6745 · 1 / 0.55 / 0.5)² = 6.01. The larger of the
    // two rows counts.
    let row = ask(&machine, &case, &[0], &Options { chains: Count::RowNorm, replicates: 1, ..base.clone() });
    assert_eq!(row.components[0].chains, 7);
    let error = {
        let rhs = std::slice::from_ref(&case.rhs);
        let problem = Problem { matrix: &case.matrix, rhs, components: &[0], functionals: &[] };
        let options = Options { chains: Count::Norm, epsilon: Some(1e-12), ..base };
        solve(&machine, &problem, &options, &mut |_, _| Ok(())).unwrap_err().to_string()
    };
    assert!(error.contains("a-priori"), "{error}");
}

#[test]
fn lazy_walks_reject_unsupported_options() {
    let machine = cpu();
    let ask = |matrix: &CsrMatrix, options: Options| {
        let rhs = vec![vec![1.0; matrix.rows()]];
        let problem = Problem { matrix, rhs: &rhs, components: &[0], functionals: &[] };
        let options = Options { lazy: true, chains: Count::Number(64), ..options };
        solve(&machine, &problem, &options, &mut |_, _| Ok(())).unwrap_err().to_string()
    };
    let poisson = built_in("poisson2d:7,1").matrix;
    assert!(ask(&poisson, Options::default()).contains("`length`"));
    assert!(
        ask(&poisson, Options { control: ControlVariate::Sweeps(2), ..Options::default() })
            .contains("`control` 2")
    );
    let steps = Options { length: Length::Steps(20), ..Options::default() };
    assert!(
        ask(&poisson, Options { splitting: Splitting::ScaledJacobi, ..steps.clone() })
            .contains("scaled-jacobi")
    );
    assert!(ask(&poisson, Options { sequence: Sequence::Halton, ..steps.clone() }).contains("halton"));
    let hole = CsrMatrix::from_rows(2, 2, |i, row| row.push((1 - i as u32, 1.0)));
    assert!(ask(&hole, steps.clone()).contains("no diagonal entry"));
    let nan =
        CsrMatrix::from_rows(2, 2, |i, row| row.extend([(0, 4.0), (1, if i == 0 { 1.0 } else { f64::NAN })]));
    assert!(ask(&nan, steps).contains("finite"));
}

fn ask_for(matrix: &CsrMatrix, rhs: &[f64], components: &[u32], options: &Options) -> Solution {
    let rhs = [rhs.to_vec()];
    let problem = Problem { matrix, rhs: &rhs, components, functionals: &[] };
    solve(&cpu(), &problem, options, &mut |_, _| Ok(())).expect("a sound problem has a solution")
}

/// If sweeps alone solve a system, only rounding remains, and it is bounded.
#[test]
fn systems_solved_by_sweeps_have_a_certain_interval() {
    let matrix = CsrMatrix::from_rows(2, 2, |i, row| match i {
        0 => row.push((0, 7.0)),
        _ => row.extend([(0, 1.0), (1, 7.0)]),
    });
    let options = Options { control: ControlVariate::Sweeps(5), ..Options::default() };
    let c = ask_for(&matrix, &[1.0, 3.0], &[1], &options).components[0].clone();
    // x₁ = 20/49; the product is exact.
    let error = c.estimate.mul_add(49.0, -20.0).abs() / 49.0;
    assert!(error > 0.0 && error <= c.half_width && c.half_width < 1e-14, "{error:e} {c:?}");

    // x_i = l x_{i−1} + f_i, in double-double arithmetic.
    let (n, l) = (3000, 0.9995);
    let f: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
    let matrix = CsrMatrix::from_rows(n, n, |i, row| row.extend((i > 0).then(|| (i as u32 - 1, l))));
    let components: Vec<u32> = (0..41).map(|k| k * 2999 / 40).collect();
    let options =
        Options { splitting: Splitting::Given, control: ControlVariate::Sweeps(3000), ..Options::default() };
    let solution = ask_for(&matrix, &f, &components, &options);
    let (mut x, mut low, mut exact) = (0.0f64, 0.0f64, Vec::new());
    for f in f {
        let product = l * x;
        let sum = product + f;
        let rounded = sum - product;
        low = l * low + l.mul_add(x, -product) + ((product - (sum - rounded)) + (f - rounded));
        x = sum;
        exact.push((x, low));
    }
    for c in &solution.components {
        let (x, low) = exact[c.component as usize];
        let error = ((c.estimate - x) - low).abs();
        assert!(error <= c.half_width && c.bound.statistical == 0.0, "{error:e} {c:?}");
    }
}

#[test]
fn chains_of_no_step_need_no_points() {
    let one = CsrMatrix::from_rows(1, 1, |_, row| row.push((0, 4.0)));
    let triangle = CsrMatrix::from_rows(3, 3, |i, row| row.extend((0..=i as u32).map(|j| (j, 1.0))));
    let poisson = built_in("poisson2d:10,0.5");
    let zeros = CsrMatrix::from_rows(2, 2, |_, _| {});
    let given = Splitting::Given;
    for (matrix, rhs, x, control, splitting) in [
        (&one, &[3.0][..], 0.75, ControlVariate::Auto, Splitting::Auto),
        (&one, &[3.0], 0.75, ControlVariate::Sweeps(0), Splitting::Auto),
        (&triangle, &[1.0, 1.0, 1.0], 1.0, ControlVariate::Auto, Splitting::Auto),
        (&triangle, &[1.0, 1.0, 1.0], 1.0, ControlVariate::Sweeps(3), Splitting::Auto),
        (&poisson.matrix, &poisson.rhs[..], poisson.x[0], ControlVariate::Sweeps(300), Splitting::Auto),
        (&zeros, &[5.0, 1.0], 5.0, ControlVariate::Sweeps(0), given),
    ] {
        for sequence in
            [Sequence::Sobol, Sequence::Halton, Sequence::Faure, Sequence::Philox, Sequence::Mtgp32]
        {
            for (ahead, grid, shared) in
                [(false, None, false), (true, None, true), (false, Some(Grid::PUBLISHED), false)]
            {
                let max_chains = 1 << 12;
                let options = Options {
                    sequence,
                    control,
                    splitting,
                    ahead,
                    grid,
                    shared,
                    max_chains,
                    ..Options::default()
                };
                let c = ask_for(matrix, rhs, &[0], &options).components[0].clone();
                approx::assert_abs_diff_eq!(c.estimate, x, epsilon = c.half_width + 1e-12);
            }
        }
        if let ControlVariate::Auto = control {
            let options = Options { lazy: true, ..Options::default() };
            let c = ask_for(&one, &[3.0], &[0], &options).components[0].clone();
            assert!((c.estimate - 0.75).abs() <= c.half_width && c.bound.statistical == 0.0, "{c:?}");
        }
    }
}

#[test]
fn the_size_of_the_right_hand_side_changes_no_digit() {
    let case = built_in("random-dominant:60,5,0.8,signed");
    for lazy in [false, true] {
        let options = Options {
            control: ControlVariate::Sweeps(0),
            chains: Count::Number(1 << 12),
            lazy,
            ..Options::default()
        };
        let of = |factor: f64| {
            let rhs: Vec<f64> = case.rhs.iter().map(|b| b * factor).collect();
            ask_for(&case.matrix, &rhs, &[7], &options)
        };
        let plain = of(1.0).components[0].clone();
        for e in [-900, -563, 563, 900] {
            let factor = 2f64.powi(e);
            let c = of(factor).components[0].clone();
            assert_eq!(
                (c.estimate, c.half_width),
                (plain.estimate * factor, plain.half_width * factor),
                "2^{e}"
            );
        }
        for factor in [1e-170, 1e160] {
            let solution = of(factor);
            let c = &solution.components[0];
            let error = (c.estimate - case.x[7] * factor).abs();
            assert!(error <= c.half_width && c.half_width < 0.2 * factor, "{factor:e}: {c:?}");
        }
    }
}

#[test]
fn results_beyond_the_range_are_errors_with_their_component() {
    let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.push((i as u32, if i == 0 { 1.0 } else { 1e-200 })));
    let rhs = [vec![1.0, 1e200]];
    for lazy in [false, true] {
        let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[0, 1], functionals: &[] };
        let options = Options { lazy, ..Options::default() };
        let error = solve(&cpu(), &problem, &options, &mut |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.contains("component 1") && error.contains("out of range of f64"), "{error}");
    }
    // Numbers that f32 rounds to 0 are rejected if walks read the matrix itself.
    let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.extend([(0, 1e-50), (1, 1.0)].into_iter().skip(i)));
    let machine = machine("cpu", F32, false).expect("the CPU opens");
    let rhs = [vec![1.0, 1.0]];
    let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[1], functionals: &[] };
    let options = Options { lazy: true, ..Options::default() };
    let error = solve(&machine, &problem, &options, &mut |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("1e-50") && error.contains("f64"), "{error}");
}

/// 28 states, each with probability 1/2 for a step to the first state and to the next one.
///
/// The large value of the last state makes up for its small probability.
#[test]
fn rare_values_that_no_chain_meets_are_in_the_interval() {
    let n = 28;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| match i {
        0 => row.extend([(0, 0.7), (1, -0.3)]),
        _ if i + 1 < n => row.extend([(0, -0.3), (i as u32, 1.0), (i as u32 + 1, -0.3)]),
        _ => row.push((i as u32, 1.0)),
    });
    let mut rhs = vec![0.1; n];
    rhs[n - 1] = 0.3f64.powi(1 - n as i32);
    let x = eliminate(&matrix, &rhs, false)[0];
    let mut covered = 0;
    for seed in 0..40 {
        let options = Options { control: ControlVariate::Sweeps(0), seed, ..Options::default() };
        let solution = ask_for(&matrix, &rhs, &[0], &options);
        let c = &solution.components[0];
        covered += u32::from((c.estimate - x).abs() <= c.half_width);
        assert!(c.half_width <= solution.epsilon || solution.status == Status::NotMet);
    }
    assert!(covered >= 38, "{covered} of 40 intervals hold {x}");
    // An interval that would need 2⁶⁴ chains is not attempted.
    let options = Options { control: ControlVariate::Sweeps(0), epsilon: Some(1e-2), ..Options::default() };
    let solution = ask_for(&matrix, &rhs, &[0], &options);
    assert!(solution.status == Status::NotMet && solution.components[0].chains == 1 << 14);
}

#[test]
fn rows_without_influence_on_the_components_may_diverge() {
    let rows: [&[(u32, f64)]; 4] =
        [&[(2, 1.0), (0, 1.0)], &[(1, 1.0), (3, 0.1)], &[(0, 2.0), (2, 1.0)], &[(1, 0.1), (3, 1.0)]];
    let matrix = CsrMatrix::from_rows(4, 4, |i, row| {
        row.extend_from_slice(rows[i]);
        row.sort_by_key(|e| e.0);
    });
    let solution = ask_for(&matrix, &[1.0; 4], &[3, 1], &Options::default());
    assert_eq!(solution.components.iter().map(|c| c.component).collect::<Vec<_>>(), [3, 1]);
    for c in &solution.components {
        approx::assert_abs_diff_eq!(c.estimate, 1.0 / 1.1, epsilon = c.half_width);
    }
    assert!(
        solution.n == 4 && solution.warnings.iter().any(|w| w.contains("2 of them")),
        "{:?}",
        solution.warnings
    );
    let rhs = [vec![1.0; 4]];
    let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[0], functionals: &[] };
    let error = solve(&cpu(), &problem, &Options::default(), &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Divergent { row: 2, .. }), "{error}");
}

#[test]
fn an_epsilon_that_rounding_excludes_ends_the_walks() {
    let case = built_in("poisson2d:7,1");
    for lazy in [false, true] {
        let length = if lazy { Length::Steps(40) } else { Length::Bound };
        let options = Options { epsilon: Some(1e-17), delta: Some(1e-3), length, lazy, ..Options::default() };
        let solution = ask(&cpu(), &case, &[3], &options);
        assert_eq!((solution.status, solution.components[0].chains), (Status::NotMet, 1 << 14));
    }
}

#[test]
fn lazy_walks_count_the_rounding_of_their_longest_row() {
    // One row of 1500 entries, whose walks end after one step.
    let n = 1501;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| match i {
        0 => row.extend((0..n as u32).map(|j| (j, if j == 0 { 1.0 } else { 0.5 / 1500.0 }))),
        _ => row.push((i as u32, 1.0)),
    });
    let rhs: Vec<f64> = (0..n).map(|i| (i % 7) as f64 - 3.0).collect();
    let x = rhs[0] - rhs[1..].iter().sum::<f64>() * 0.5 / 1500.0;
    let rhs = [rhs];
    let machine = machine("cpu", F32, false).expect("the CPU opens");
    let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[0], functionals: &[] };
    let options = Options { lazy: true, confidence: 0.9999, ..Options::default() };
    let solution = solve(&machine, &problem, &options, &mut |_, _| Ok(())).expect("rows are sound");
    let c = &solution.components[0];
    // Each boundary of the 1500 probabilities has an error of up to 1500 units of roundoff.
    let least = 1500.0 * 1500.0 * F32.unit_roundoff();
    assert!(c.bound.rounding > least && (c.estimate - x).abs() <= c.half_width, "{c:?} {x}");
}

#[test]
fn lazy_walks_take_a_row_sum_of_any_size() {
    let rows: [&[(u32, f64)]; 2] = [&[(1, 2e30)], &[]];
    let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.extend_from_slice(rows[i]));
    let options =
        Options { lazy: true, splitting: Splitting::Given, length: Length::Steps(1), ..Options::default() };
    let c = ask_for(&matrix, &[1.0, 1.0], &[0], &options).components[0].clone();
    assert!((c.estimate / 2e30 - 1.0).abs() < 1e-15 && c.half_width == f64::INFINITY, "{c:?}");
}

#[test]
fn functionals_of_many_entries_are_exact_or_walked() {
    // 4900 entries are two groups.
    let built = system("poisson2d:70,0.9", 3).expect("a built-in").expect("its parameters are sound");
    let (n, rhs) = (built.matrix.rows(), std::slice::from_ref(&built.rhs));
    let h = vec![vec![1.0 / n as f64; n], (0..n).map(|i| (i as f64).sin()).collect()];
    let problem = Problem { matrix: &built.matrix, rhs, components: &[], functionals: &h };
    let ask =
        |options: &Options| solve(&cpu(), &problem, options, &mut |_, _| Ok(())).expect("a sound problem");
    let exact =
        ask(&Options { epsilon: Some(1e-6), control: ControlVariate::Sweeps(400), ..Options::default() });
    assert_eq!((exact.status, exact.steps), (Status::Met, 0));
    for control in [ControlVariate::Sweeps(0), ControlVariate::Sweeps(2), ControlVariate::Krylov] {
        let chains = Count::Number(16 << 8);
        let walked = ask(&Options { confidence: 0.9999, chains, control, ..Options::default() });
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
    let h = |i: usize, h: f64| (0..case.x.len()).map(|j| if i == j { h } else { 0.0 }).collect::<Vec<f64>>();
    let options = Options { epsilon: Some(1e-2), control: ControlVariate::Sweeps(0), ..Options::default() };
    let solution = ask_functionals(&cpu(), &case, (&[9], &[h(9, 1.0), h(9, -4.0)]), &options);
    let [one, minus_four] = &solution.functionals[..] else { panic!("two functionals") };
    assert_eq!(solution.status, Status::Met);
    approx::assert_abs_diff_eq!(one.estimate, case.x[9], epsilon = one.half_width);
    // Each functional has the requested half-width.
    approx::assert_abs_diff_eq!(minus_four.estimate, -4.0 * case.x[9], epsilon = minus_four.half_width);
    assert!(one.half_width <= 1e-2 && minus_four.half_width <= 1e-2 && minus_four.chains >= one.chains);
    // The default half-width of a functional is that of components times Σ |h|.
    let default = ask_functionals(&cpu(), &case, (&[9], &[h(9, -4.0)]), &Options::default());
    approx::assert_relative_eq!(
        default.functionals[0].epsilon,
        4.0 * default.components[0].epsilon,
        max_relative = 1e-12
    );
}

#[test]
fn functionals_of_convergent_rows_are_computed_although_others_diverge() {
    // Rows 0 and 1 converge, rows 2 and 3 do not.
    let rows: [&[(u32, f64)]; 4] = [&[(1, 0.5)], &[(0, 0.25)], &[(3, 2.0)], &[(2, 2.0)]];
    let matrix = CsrMatrix::from_rows(4, 4, |i, row| row.extend_from_slice(rows[i]));
    let rhs = [vec![1.0, 2.0, 1.0, 1.0]];
    let options = Options { splitting: Splitting::Given, ..Options::default() };
    let ask = |h: [f64; 4]| {
        let h = [h.to_vec()];
        let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[1], functionals: &h };
        solve(&cpu(), &problem, &options, &mut |_, _| Ok(()))
    };
    let solution = ask([1.0, -1.0, 0.0, 0.0]).expect("x = (16, 18)/7");
    let c = &solution.functionals[0];
    approx::assert_abs_diff_eq!(c.estimate, -2.0 / 7.0, epsilon = c.half_width);
    assert_eq!((c.component, solution.components[0].component), (0, 1));
    assert!(matches!(ask([1.0, 0.0, 1e-3, 0.0]), Err(Error::Divergent { .. })));
}

#[test]
fn functionals_without_an_answer_are_refused_with_the_number() {
    let case = built_in("random-dominant:300,5,0.75,signed");
    let refused = |h: Vec<f64>| {
        let (rhs, h) = (std::slice::from_ref(&case.rhs), [vec![1.0; 300], h]);
        let problem = Problem { matrix: &case.matrix, rhs, components: &[], functionals: &h };
        solve(&cpu(), &problem, &Options::default(), &mut |_, _| Ok(())).unwrap_err().to_string()
    };
    let with =
        |i: usize, value: f64| (0..300).map(|j| if i == j { value } else { 1.0 }).collect::<Vec<f64>>();
    for (h, parts) in [
        (vec![1.0; 299], ["functional 1 has 299", "300 rows"]),
        (with(7, f64::NAN), ["entry 7 of functional 1", "NaN"]),
        (with(0, f64::INFINITY), ["entry 0 of functional 1", "inf"]),
    ] {
        let said = refused(h);
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}

/// A time limit of zero, for systems that would need hours of walks.
#[test]
fn a_time_limit_ends_with_the_certain_bound() {
    let case = built_in("random-dominant:300,5,0.75,signed");
    let h = [vec![1.0; case.x.len()]];
    for (control, lazy) in
        [(ControlVariate::Sweeps(0), false), (ControlVariate::Krylov, false), (ControlVariate::Auto, true)]
    {
        let options = Options {
            epsilon: Some(1e-12),
            control,
            lazy,
            time_limit: Some(std::time::Duration::ZERO),
            ..Options::default()
        };
        let h = if lazy { &[][..] } else { &h[..] };
        let solution = ask_functionals(&cpu(), &case, (&[9], h), &options);
        assert_eq!((solution.status, solution.steps, solution.krylov), (Status::NotMet, 0, 0));
        let wanted = [case.x[9], case.x.iter().sum()];
        for (c, x) in solution.components.iter().chain(&solution.functionals).zip(wanted) {
            assert!((c.estimate - x).abs() <= c.half_width, "{control}: {} {c:?}", c.name());
            assert!(c.half_width.is_finite() && c.bound.statistical == 0.0 && c.length == 0, "{c:?}");
        }
    }
    // With a time limit between rounds, the completed walks count.
    let limited = |limit: u64| {
        let time_limit = Some(std::time::Duration::from_millis(limit));
        let options = Options {
            epsilon: Some(1e-12),
            control: ControlVariate::Sweeps(0),
            time_limit,
            ..Options::default()
        };
        ask(&cpu(), &case, &[9], &options)
    };
    let at = std::time::Instant::now();
    let solution = limited(500);
    let c = &solution.components[0];
    assert!(at.elapsed().as_secs_f64() < 5.0 && solution.status == Status::NotMet, "{:?}", at.elapsed());
    assert!(c.chains >= 16 << 10 && (c.estimate - case.x[9]).abs() <= 3.0 * c.half_width, "{c:?}");
}

/// Ctrl-C and time limits interrupt BiCGSTAB, in the certificate and in the control variate.
#[test]
fn products_are_counted_and_can_be_interrupted() {
    let case = built_in("poisson2d:40,1");
    let rhs = std::slice::from_ref(&case.rhs);
    let problem = Problem { matrix: &case.matrix, rhs, components: &[5], functionals: &[] };
    let options = Options { epsilon: Some(1e-9), ..Options::default() };
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
        let mut interrupt = |done: u64, _| if done >= stop { Err(Error::Interrupted) } else { Ok(()) };
        let error = solve(&cpu(), &problem, &options, &mut interrupt);
        assert!(matches!(error, Err(Error::Interrupted)), "{stop}: {error:?}");
    }
}

/// The tridiagonal matrix −1, 2, −1.
fn laplacian(n: usize) -> CsrMatrix {
    CsrMatrix::from_rows(n, n, |i, row| {
        let (i, n) = (i as u32, n as u32);
        row.extend(
            [(i.wrapping_sub(1), -1.0), (i, 2.0), (i + 1, -1.0)].into_iter().filter(|entry| entry.0 < n),
        );
    })
}

#[test]
fn long_walks_end_with_the_time_limit_and_on_interrupts() {
    let limit = std::time::Duration::from_millis(300);
    let (matrix, rhs) = (laplacian(199), [vec![1.0; 199]]);
    let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[99], functionals: &[] };
    let base = Options { control: ControlVariate::Sweeps(0), epsilon: Some(1e-3), ..Options::default() };
    let limited = Options { time_limit: Some(limit), ..base.clone() };
    let (started, mut steps) = (std::time::Instant::now(), 0);
    let solution = solve(&cpu(), &problem, &limited, &mut |done, _| {
        steps = steps.max(done);
        Ok(())
    });
    let (solution, took) = (solution.expect("what is known"), started.elapsed());
    assert!(took < 10 * limit && solution.status == Status::NotMet, "{took:?}");
    // Steps are reported before the first launch ends.
    assert!(steps > 0 && solution.components[0].length == 0, "{steps}");
    assert!((solution.components[0].estimate - 5000.0).abs() <= solution.components[0].half_width);

    let started = std::time::Instant::now();
    let stopped = solve(&cpu(), &problem, &base, &mut |done, _| match done {
        0 => Ok(()),
        _ => Err(Error::Interrupted),
    });
    let took = started.elapsed();
    assert!(matches!(stopped, Err(Error::Interrupted)) && took < 10 * limit, "{took:?}");
}

#[test]
fn walks_limited_by_rounding_are_skipped() {
    // The residual of BiCGSTAB is below the rounding error, and a first round of walks would take
    // minutes.
    let (matrix, rhs) = (laplacian(999), [vec![1.0; 999]]);
    let problem = Problem { matrix: &matrix, rhs: &rhs, components: &[499], functionals: &[] };
    for epsilon in [1.0, 1e-2, 1e-9] {
        let options = Options { epsilon: Some(epsilon), ..Options::default() };
        let solution = solve(&cpu(), &problem, &options, &mut |_, _| Ok(())).expect("an answer");
        let x = &solution.components[0];
        assert!((x.estimate - 125_000.0).abs() <= x.half_width && x.length == 0, "{epsilon:e}: {x:?}");
        assert_eq!(solution.status == Status::Met, x.half_width <= epsilon);
        assert!(x.half_width <= 1e-2, "{epsilon:e}: {x:?}");
    }
}
