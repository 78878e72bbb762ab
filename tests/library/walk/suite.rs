//! Properties of a lane in one precision, run on every device that `walk.rs` names.

use super::*;
use kolmo::kernel::Precision::F64;

/// Opens the machine with bounds checks, if its kernels have them.
fn checked(machine: &Opened) -> Opened {
    let checked = !machine.spec.starts_with("cuda");
    Opened::new(machine.spec, machine.precision, checked).expect("it opens once more")
}

pub(super) fn every_lane_walks_the_same_walks(machine: &Opened) {
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
pub(super) fn bicgstab_is_the_same_on_every_lane(machine: &Opened) {
    let built = system("poisson2d:190,0.95", 3).expect("a built-in").expect("its parameters are sound");
    let rhs = [built.rhs.clone(), built.rhs.iter().rev().copied().collect()];
    let problem = problem(&built.matrix, &rhs, &[18050, 7]);
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
pub(super) fn right_hand_sides_share_walks(machine: &Opened) {
    let case = built_in("poisson2d:7,1");
    let n = case.rhs.len();
    let side = |k: usize| (0..n).map(|i| ((i * (k + 3)) % 11) as f64 - 4.0).collect::<Vec<f64>>();
    let rhs: Vec<Vec<f64>> = (0..6).map(side).collect();
    let problem = problem(&case.matrix, &rhs, &[24, 3]);
    let options = Options::default().confidence(0.9999).chains(Count::Number(1 << 12));
    let [here, there] = [&**machine, &cpu()].map(|machine| sound(machine, &problem, &options));
    assert_eq!(here.components.len(), 12);
    for c in &here.components {
        let x = eliminated(&case.matrix, &rhs[c.rhs], false)[c.component as usize];
        assert!((c.estimate - x).abs() <= c.half_width, "x_{} of {}: {c:?} {x}", c.component, c.rhs);
    }
    same_walks(&here, &there, "six right-hand sides");
}

pub(super) fn every_sequence_gives_the_solution(machine: &Opened) {
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

pub(super) fn the_number_of_lanes_changes_no_bit(machine: &Opened) {
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
pub(super) fn intervals_hold_the_solution(machine: &Opened) {
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
                let (wanted, norm) = (product(h, &case.x), h.iter().map(|h| h.abs()).sum::<f64>());
                let error = (c.estimate - wanted).abs();
                let held = error <= c.half_width && c.half_width <= 0.2 * norm * size(&case);
                assert!(held, "{} {control}: off by {error:e} of {wanted:e}, {c:?}", case.name);
            }
            assert_eq!((both.functionals[3].estimate, both.functionals[3].half_width), (0.0, 0.0));
        }
    }
}
