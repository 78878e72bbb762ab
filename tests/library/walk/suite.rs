//! Properties of a lane in one precision, run on every device that `walk.rs` names.

use super::*;

/// True if the kernels of a device can check indices.
fn checked(spec: &str) -> bool {
    !spec.starts_with("cuda")
}

/// 99.99 % intervals of four components of six systems.
///
/// With either control variate, one seed in four hundred has a miss.
pub(crate) fn intervals_hold_the_solution(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, false) else { return };
    for case in cases() {
        for control in [ControlVariate::Sweeps(0), ControlVariate::Auto] {
            let options = Options {
                confidence: 0.9999,
                chains: Count::Number(16 * 256),
                control,
                ..Options::default()
            };
            let solution = ask(&machine, &case, &[0, 7, 30, 48], &options);
            for c in &solution.components {
                let error = (c.estimate - case.x[c.component as usize]).abs();
                assert!(
                    error <= c.half_width && c.half_width <= 0.2 * size(&case),
                    "{} {control}: x_{} is off by {error:e}, bound {:?}",
                    case.name,
                    c.component,
                    c.bound
                );
            }
        }
    }
}

pub(crate) fn every_lane_walks_the_same_walks(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, checked(spec)) else { return };
    for case in cases() {
        for (sequence, scramble) in [
            (Sequence::Sobol, Scramble::Owen),
            (Sequence::Sobol, Scramble::Shift),
            (Sequence::Philox, Scramble::None),
        ] {
            let options = Options {
                sequence,
                scramble: Some(scramble),
                chains: Count::Number(4 * 300),
                replicates: 4,
                control: ControlVariate::Sweeps(1),
                ..Options::default()
            };
            let here = ask(&machine, &case, &[2, 5], &options);
            let there = ask(&cpu(), &case, &[2, 5], &options);
            for (a, b) in here.components.iter().zip(&there.components) {
                let (off, bound) = ((a.estimate - b.estimate).abs(), a.bound.rounding + b.bound.rounding);
                assert!(off <= bound, "{} {sequence} x_{}: {off:e}, {bound:e}", case.name, a.component);
            }
        }
    }
}

/// A system that BiCGSTAB solves on the device, with a residual that needs no walks.
pub(crate) fn bicgstab_is_the_same_on_every_lane(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, false) else { return };
    let built = system("poisson2d:190,0.95", 3).expect("a built-in").expect("its parameters are sound");
    let rhs = [built.rhs.clone(), built.rhs.iter().rev().copied().collect()];
    let problem = Problem { matrix: &built.matrix, rhs: &rhs, components: &[18050, 7], functionals: &[] };
    let options = Options { epsilon: Some(1e-4), control: ControlVariate::Krylov, ..Options::default() };
    let ask =
        |machine: &Machine| solve(machine, &problem, &options, &mut |_, _| Ok(())).expect("a sound problem");
    let (here, there) = (ask(&machine), ask(&cpu()));
    assert_eq!((here.status, here.steps), (Status::Met, 0));
    assert!(here.krylov > 50, "{}", here.krylov);
    // Software adapters may round a fused product twice.
    let bits = |x: f64| (!machine.lanes[0].device().software).then(|| x.to_bits());
    assert_eq!(bits(here.norm), bits(there.norm));
    for (a, b) in here.components.iter().zip(&there.components) {
        assert_eq!(bits(a.estimate), bits(b.estimate), "x_{} of {}", a.component, a.rhs);
        if precision == F64 {
            assert_eq!(bits(a.half_width), bits(b.half_width), "x_{} of {}", a.component, a.rhs);
        }
        let off = (a.estimate - b.estimate).abs();
        assert!(off <= a.half_width + b.half_width, "x_{} of {}: {off:e}", a.component, a.rhs);
    }
}

/// Six right-hand sides: a batch of four and one of two.
pub(crate) fn right_hand_sides_share_walks(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, false) else { return };
    let case = built_in("poisson2d:7,1");
    let n = case.rhs.len();
    let side = |k: usize| (0..n).map(|i| ((i * (k + 3)) % 11) as f64 - 4.0).collect::<Vec<f64>>();
    let rhs: Vec<Vec<f64>> = (0..6).map(side).collect();
    let problem = Problem { matrix: &case.matrix, rhs: &rhs, components: &[24, 3], functionals: &[] };
    let options = Options { confidence: 0.9999, chains: Count::Number(1 << 12), ..Options::default() };
    let ask =
        |machine: &Machine| solve(machine, &problem, &options, &mut |_, _| Ok(())).expect("a sound problem");
    let (here, there) = (ask(&machine), ask(&cpu()));
    assert_eq!(here.components.len(), 12);
    for (a, b) in here.components.iter().zip(&there.components) {
        let x = eliminate(&case.matrix, &rhs[a.rhs], false)[a.component as usize];
        assert!((a.estimate - x).abs() <= a.half_width, "x_{} of {}: {a:?} {x}", a.component, a.rhs);
        let bound = a.bound.rounding + b.bound.rounding;
        approx::assert_abs_diff_eq!(a.estimate, b.estimate, epsilon = bound);
    }
}

pub(crate) fn points_may_come_out_of_a_buffer(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, false) else { return };
    let case = built_in("poisson2d:14,0.9");
    for sequence in [Sequence::Halton, Sequence::Faure, Sequence::Mtgp32, Sequence::Sobol, Sequence::Philox] {
        let options = Options {
            sequence,
            confidence: 0.9999,
            chains: Count::Number(8 * 600),
            replicates: 8,
            groups: 2,
            ahead: true,
            ..Options::default()
        };
        let here = ask(&machine, &case, &[50, 90], &options);
        let there = ask(&cpu(), &case, &[50, 90], &options);
        for (a, b) in here.components.iter().zip(&there.components) {
            let x = case.x[a.component as usize];
            approx::assert_abs_diff_eq!(a.estimate, x, epsilon = a.half_width);
            let bound = a.bound.rounding + b.bound.rounding;
            approx::assert_abs_diff_eq!(a.estimate, b.estimate, epsilon = bound);
        }
        if matches!(sequence, Sequence::Sobol | Sequence::Philox) {
            let made = ask(&machine, &case, &[50, 90], &Options { ahead: false, ..options });
            for (a, b) in here.components.iter().zip(&made.components) {
                assert_eq!(a.estimate.to_bits(), b.estimate.to_bits(), "{sequence} x_{}", a.component);
            }
        }
    }
}

/// Grids and blocks sample equal walks, and add them in another order.
pub(crate) fn grids_walk_the_same_walks(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, checked(spec)) else { return };
    let case = built_in("poisson2d:7,1");
    for (sequence, ahead) in [(Sequence::Sobol, false), (Sequence::Sobol, true), (Sequence::Mtgp32, false)] {
        let options = Options {
            sequence,
            ahead,
            replicates: 2,
            groups: 3,
            chains: Count::Number(2 * 5000),
            control: ControlVariate::Sweeps(0),
            ..Options::default()
        };
        let blocks = ask(&machine, &case, &[24], &options);
        for (groups, size) in [(84, 512), (3, 32), (300, 64), (7, 1024), (1, 128)] {
            let grid = Some(Grid { groups, size });
            let grid = ask(&machine, &case, &[24], &Options { grid, ..options.clone() });
            let (a, b) = (&grid.components[0], &blocks.components[0]);
            // A thread adds up to 5000 numbers one by one.
            let bound = a.bound.rounding + 5000.0 * precision.unit_roundoff() * 4.0 * super::size(&case);
            assert!((a.estimate - b.estimate).abs() <= bound, "{groups} of {size}: {a:?} {b:?}");
        }
    }
}

pub(crate) fn lazy_walks_hold_the_solution(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, checked(spec)) else { return };
    for case in [
        built_in("random-dominant:400,6,0.8,positive"),
        built_in("random-dominant:200,40,0.8,signed"),
        pages(),
    ] {
        for sequence in [Sequence::Sobol, Sequence::Philox] {
            let options = Options {
                lazy: true,
                sequence,
                confidence: 0.9999,
                chains: Count::Number(16 * 300),
                ..Options::default()
            };
            // Functionals of one group, of several groups, and zero.
            let n = case.x.len();
            let h: Vec<Vec<f64>> = vec![
                (0..n).map(|i| if i < 3 { 1e200 } else { 0.0 }).collect(),
                (0..n).map(|i| (i % 5) as f64 - 1.0).collect(),
                vec![0.0; n],
            ];
            let asked = (&[0, 7, 30][..], &h[..]);
            let here = ask_functionals(&machine, &case, asked, &options);
            let there = ask_functionals(&cpu(), &case, asked, &options);
            let all = |s: &Solution| s.components.iter().chain(&s.functionals).cloned().collect::<Vec<_>>();
            assert!(here.warnings.iter().any(|w| w.contains("no walk met")), "{:?}", here.warnings);
            assert_eq!((all(&here).len(), here.functionals[2].estimate), (6, 0.0), "{:?}", here.functionals);
            for (a, b) in all(&here).iter().zip(&all(&there)) {
                let x = match a.quantity {
                    Quantity::Component => case.x[a.component as usize],
                    Quantity::Functional => product(&h[a.component as usize], &case.x),
                };
                assert!((a.estimate - x).abs() <= a.half_width, "{} {a:?} {x}", case.name);
                // In f32 a fraction may select the neighbouring entry, and two such walks differ
                // like independent ones.
                let bound = match precision {
                    F64 | Precision::Q64 => a.bound.rounding + b.bound.rounding,
                    F32 => a.half_width + b.half_width,
                };
                assert!((a.estimate - b.estimate).abs() <= bound, "{} {a:?} {b:?}", case.name);
            }
        }
    }
}

pub(crate) fn the_number_of_lanes_changes_no_bit(spec: &str, precision: Precision) {
    let one = spec.split(',').next().expect("a device");
    let (Some(machine), Some(single)) = (machine(spec, precision, false), machine(one, precision, false))
    else {
        return;
    };
    let case = built_in("poisson2d:14,0.9");
    let options = Options { chains: Count::Number(1 << 14), ..Options::default() };
    let components: Vec<u32> = (20..52).collect();
    let mean = vec![vec![1.0 / case.x.len() as f64; case.x.len()]];
    let many = ask_functionals(&machine, &case, (&components, &mean), &options);
    let one = ask_functionals(&single, &case, (&components, &mean), &options);
    let all = |s: &Solution| s.components.iter().chain(&s.functionals).cloned().collect::<Vec<_>>();
    for (a, b) in all(&many).iter().zip(&all(&one)) {
        assert_eq!(a.estimate.to_bits(), b.estimate.to_bits(), "x_{}", a.component);
        assert_eq!(a.half_width.to_bits(), b.half_width.to_bits(), "x_{}", a.component);
    }
}

/// 99.99 % intervals of functionals: a mean, a sum with signs, large numbers, and h = 0.
///
/// A component is computed with them.
pub(crate) fn functionals_lie_in_their_intervals(spec: &str, precision: Precision) {
    let Some(machine) = machine(spec, precision, checked(spec)) else { return };
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
            let options = Options { confidence: 0.9999, chains, control, ..Options::default() };
            let both = ask_functionals(&machine, &case, (&[7], &h), &options);
            assert_eq!((both.components.len(), both.functionals.len()), (1, 4));
            for (c, h) in both.functionals.iter().zip(&h) {
                let (wanted, norm) = (product(h, &case.x), h.iter().map(|h| h.abs()).sum::<f64>());
                let error = (c.estimate - wanted).abs();
                assert!(
                    error <= c.half_width && c.half_width <= 0.2 * norm * size(&case),
                    "{} {control} {}: off by {error:e} of {wanted:e}, {:?}",
                    case.name,
                    c.name(),
                    c.bound
                );
            }
            assert_eq!((both.functionals[3].estimate, both.functionals[3].half_width), (0.0, 0.0));
        }
    }
}
