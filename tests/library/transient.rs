//! Uniformization against closed forms, a dense matrix exponential, and other lanes.

use crate::support::{self, Keep, chain, dense, l1, machine, model, ragged, run};
use kolmo::Machine;
use kolmo::internals::Csr;
use kolmo::kernel::Precision::{self, F64};
use kolmo::transient::{
    Chain, Exchange, Initial, Method, Options, Order, Partitioning, Problem, Reward, Status, Transitions,
    solve,
};
use kolmo::{Error, sparse::WidthRule};

/// Returns π(t) from state 0 of the chain 0 → 1 at rate a, 1 → 0 at rate b.
fn two_states(a: f64, b: f64, t: f64) -> [f64; 2] {
    let decay = (-(a + b) * t).exp();
    [(b + a * decay) / (a + b), a * (1.0 - decay) / (a + b)]
}

/// Properties of a lane in one precision, run on every device below.
mod suite {
    use super::*;

    pub(crate) fn two_states_have_the_closed_form(spec: &str, precision: Precision, checked: bool) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let two = chain(2, &[(0, 1, 3.0), (1, 0, 2.0)]);
        let times = [0.0, 1e-3, 0.1, 1.0, 7.5];

        let (got, solution) = run(&machine, &two, &Initial::State(0), &times, &Options::default());

        for ((t, p), at) in times.iter().zip(&got).zip(&solution.times) {
            let error = l1(p, &two_states(3.0, 2.0, *t));
            // exp and three operations of the closed form: a few units in the last place.
            assert!(
                error <= at.bound.total() + 4e-16,
                "t = {t}: error {error:e}, bound {:e}",
                at.bound.total()
            );
        }
        assert_eq!(got[0], [1.0, 0.0], "at time 0 nothing has moved");
    }

    pub(crate) fn small_chains_agree_with_the_dense_exponential(
        spec: &str,
        precision: Precision,
        checked: bool,
    ) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let tandem = model("tandem:2");
        let n = tandem.states();
        let mut initial = vec![0.0; n];
        initial[0] = 0.25;
        initial[n - 1] = 0.75;
        for t in [0.01, 0.5, 3.0] {
            let (got, solution) =
                run(&machine, &*tandem, &Initial::Distribution(initial.clone()), &[t], &Options::default());

            let error = l1(&got[0], &dense(&*tandem, &initial, t));
            // The dense reference squares a 15 by 15 matrix about ten times.
            let oracle = 15.0 * 12.0 * 15.0 * f64::EPSILON;
            assert!(error <= solution.bound.total() + oracle, "t = {t}: error {error:e}");
        }
    }

    pub(crate) fn every_width_gives_the_same_answer_within_its_bound(
        spec: &str,
        precision: Precision,
        checked: bool,
    ) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let (cpu, chain) = (support::machine("cpu", F64, false).expect("the CPU opens"), ragged(1500));
        let exact = Options { epsilon: 1e-13, ..Options::default() };
        let (wanted, reference) = run(&cpu, &chain, &Initial::State(3), &[12.0], &exact);
        for width in [WidthRule::Auto, WidthRule::Cusp, WidthRule::Mean, WidthRule::Max, WidthRule::Fixed(1)]
        {
            let options = Options { width, ..Options::default() };
            let (got, solution) = run(&machine, &chain, &Initial::State(3), &[12.0], &options);

            let (error, bound) = (l1(&got[0], &wanted[0]), solution.bound.total() + reference.bound.total());
            assert!(error <= bound, "{width}: error {error:e}, bound {bound:e}");
        }
    }

    pub(crate) fn parts_with_halos_give_the_bits_of_one_part(
        spec: &str,
        precision: Precision,
        checked: bool,
    ) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let wlan = model("wlan:3,2");
        let scattered = ragged(2000);
        for chain in [&*wlan, &scattered as &dyn Transitions] {
            let initial = Initial::State(1);
            // A fixed order of the states, and a width with an order of summation that does not
            // depend on slices.
            let (order, width) = (Order::Natural, WidthRule::Max);
            let split = |parts| Partitioning { parts, ..Partitioning::default() };
            let options = |parts| Options { split: split(parts), width, order, ..Options::default() };
            let (one, _) = run(&machine, chain, &initial, &[1.0, 2.5], &options(1));
            for parts in [2, 5] {
                let (many, solution) = run(&machine, chain, &initial, &[1.0, 2.5], &options(parts));

                assert!(solution.matrix.parts > 1, "{} parts were made", solution.matrix.parts);
                // Different devices may round differently, and divide the rows by measurements.
                // Then only the bounds hold.
                if machine.lanes.iter().all(|lane| lane.device().backend == machine.lanes[0].device().backend)
                {
                    assert!(one == many, "{parts} parts on {spec}");
                } else {
                    let error = one.iter().zip(&many).map(|(a, b)| l1(a, b)).fold(0.0, f64::max);
                    assert!(error <= 2.0 * solution.bound.total(), "{parts} parts: {error:e}");
                }
            }
        }
    }

    pub(crate) fn larger_chains_agree_with_the_cpu_within_both_bounds(
        spec: &str,
        precision: Precision,
        checked: bool,
    ) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let cpu = support::machine("cpu", F64, false).expect("the CPU opens");
        let wlan = model("wlan:6,4");
        let times = [0.3, 2.0, 2.1, 10.0];
        let exact = Options { epsilon: 1e-12, ..Options::default() };
        let (wanted, reference) = run(&cpu, &*wlan, &Initial::State(0), &times, &exact);

        let (got, solution) = run(&machine, &*wlan, &Initial::State(0), &times, &Options::default());

        for i in 0..times.len() {
            let (error, bound) =
                (l1(&got[i], &wanted[i]), solution.times[i].bound.total() + reference.times[i].bound.total());
            assert!(error <= bound, "t = {}: error {error:e}, bound {bound:e}", times[i]);
        }
    }

    pub(crate) fn rewards_have_the_closed_form(spec: &str, precision: Precision, checked: bool) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let (a, b) = (3.0, 2.0);
        let two = chain(2, &[(0, 1, a), (1, 0, b)]);
        let rewards = [
            Reward { name: "up".to_owned(), values: vec![0.0, 1.0] },
            Reward { name: "cost".to_owned(), values: vec![2.0, -1.0] },
        ];
        let times = [0.0, 0.4, 2.0, 6.0];
        let problem = Problem {
            transitions: &two,
            initial: &Initial::State(0),
            times: &times,
            rewards: &rewards,
            vectors: false,
        };

        let solution = solve(&machine, &problem, &Options::default(), &mut Keep::default()).unwrap();

        for (t, result) in times.iter().zip(&solution.times) {
            let p = two_states(a, b, *t);
            // The integral of p_1 over (0, t).
            let spent = a / (a + b) * (t - (1.0 - (-(a + b) * t).exp()) / (a + b));
            let bound = result.bound.total() + 1e-15;
            let wanted = [(p[1], spent), (2.0 * p[0] - p[1], 2.0 * (t - spent) - spent)];
            for (reward, (instant, cumulative)) in result.rewards.iter().zip(wanted) {
                // Here |r| ≤ 2, and a few dozen terms are summed in the lane's precision.
                let (unit, terms) = (precision.unit_roundoff(), 100.0);
                let allowed = 2.0 * bound + 2.0 * terms * unit;
                assert!(
                    (reward.instantaneous - instant).abs() <= allowed,
                    "{} at {t}: {reward:?}",
                    reward.name
                );
                assert!(
                    (reward.cumulative - cumulative).abs() <= (1.0 + t) * allowed,
                    "{} to {t}: {reward:?}",
                    reward.name
                );
            }
        }
    }

    pub(crate) fn the_subdivided_method_agrees_with_the_sweep(
        spec: &str,
        precision: Precision,
        checked: bool,
    ) {
        let Some(machine) = machine(spec, precision, checked) else { return };
        let wlan = model("wlan:2,3");
        let (swept, one) = run(&machine, &*wlan, &Initial::State(0), &[8.0], &Options::default());
        let options = Options { method: Method::Subdivided { theta: 60.0 }, ..Options::default() };

        let (got, many) = run(&machine, &*wlan, &Initial::State(0), &[8.0], &options);

        let (error, bound) = (l1(&got[0], &swept[0]), one.bound.total() + many.bound.total());
        assert!(error <= bound, "error {error:e}, bound {bound:e}");
        // αt = 430.4 gives 8 intervals of 53.8, each with its own Poisson window: far more terms
        // than one window of 430.4.
        assert!(many.terms > one.terms, "{} and {} multiplications", many.terms, one.terms);
    }
}

/// The suite on one lane.
///
/// `several`: tests that depend on several lanes. `unchecked`: tests that differ without bounds
/// checks.
macro_rules! on {
    (several $($instance:tt)*) => {
        instance!($($instance)*:
            parts_with_halos_give_the_bits_of_one_part,
            larger_chains_agree_with_the_cpu_within_both_bounds,
        );
    };
    (unchecked $($instance:tt)*) => {
        instance!($($instance)*:
            every_width_gives_the_same_answer_within_its_bound,
            larger_chains_agree_with_the_cpu_within_both_bounds,
            rewards_have_the_closed_form,
        );
    };
    ($($instance:tt)*) => {
        instance!($($instance)*:
            two_states_have_the_closed_form,
            small_chains_agree_with_the_dense_exponential,
            every_width_gives_the_same_answer_within_its_bound,
            parts_with_halos_give_the_bits_of_one_part,
            larger_chains_agree_with_the_cpu_within_both_bounds,
            rewards_have_the_closed_form,
            the_subdivided_method_agrees_with_the_sweep,
        );
    };
}

on!(cpu_f64("cpu", F64, false));
on!(slow cpu_f32("cpu", F32, false));
on!(several three_cpu_lanes_f64("cpu,cpu,cpu", F64, false));
on!(several slow two_cpu_lanes_f32("cpu,cpu", F32, false));
#[cfg(feature = "wgpu")]
on!(wgpu_f64_checked("wgpu:0", F64, true));
#[cfg(feature = "wgpu")]
on!(slow wgpu_f32("wgpu:0", F32, false));
#[cfg(feature = "wgpu")]
on!(unchecked slow wgpu_f64("wgpu:0", F64, false));
#[cfg(feature = "wgpu")]
on!(several slow two_wgpu_lanes_f64("wgpu:0,wgpu:0", F64, false));
#[cfg(feature = "wgpu")]
on!(several wgpu_and_cpu_f64("wgpu:0,cpu", F64, false));
#[cfg(feature = "cuda")]
on!(cuda_f64("cuda:0", F64, false));
#[cfg(feature = "cuda")]
on!(cuda_f32("cuda:0", F32, false));
#[cfg(feature = "cuda")]
on!(several two_cuda_streams_f64("cuda:0,cuda:0", F64, false));
#[cfg(feature = "cuda")]
on!(several two_cuda_devices_f64("cuda:0,cuda:1", F64, false));
#[cfg(feature = "cuda")]
on!(several cuda_and_cpu_f64("cuda:0,cpu", F64, false));

fn cpu() -> Machine {
    machine("cpu", F64, false).expect("the CPU opens")
}

#[test]
fn merging_the_whole_vector_gives_the_bits_of_halos() {
    let (wlan, machine) = (model("wlan:3,2"), on_cpu("cpu,cpu"));
    for method in [Method::Auto, Method::Subdivided { theta: 50.0 }] {
        let of = |exchange| {
            let split = Partitioning { exchange, halo_depth: Some(1), ..Partitioning::default() };
            let options = Options { split, method, order: Order::Natural, ..Options::default() };
            run(&machine, &*wlan, &Initial::State(0), &[5.0], &options)
        };
        let (halo, few) = of(Exchange::Halo);
        let (full, all) = of(Exchange::Full);

        assert!(halo == full, "{method:?}");
        // Each of the two lanes receives every value that it does not own.
        let received =
            |s: &kolmo::transient::Solution| s.matrix.plan.iter().map(|lane| lane.halo).sum::<usize>();
        assert_eq!(received(&all), wlan.states());
        assert!(received(&few) < wlan.states() / 2, "{}", received(&few));
    }
}

#[test]
fn every_order_of_the_states_gives_the_result_in_the_original_order() {
    let chain = ragged(400);
    let rewards = [Reward { name: "number".to_owned(), values: (0..400).map(f64::from).collect() }];
    let initial = Initial::Uniform(vec![5, 300]);
    let ask = |order: Order, times: &[f64], machine: &Machine| {
        let problem =
            Problem { transitions: &chain, initial: &initial, times, rewards: &rewards, vectors: true };
        let (options, mut keep) = (Options { order, ..Options::default() }, Keep::default());
        let solution = solve(machine, &problem, &options, &mut keep).unwrap();
        (keep.0, solution)
    };
    let times = [0.0, 3.0, f64::INFINITY];
    let opened = ["cpu", "cpu,cpu"].map(|spec| (spec, on_cpu(spec)));
    let (wanted, natural) = ask(Order::Natural, &times, &opened[0].1);
    for order in [Order::Bfs, Order::Rcm, Order::Auto] {
        for (lanes, opened) in &opened {
            // The steady state takes long, so only two of the combinations compute it.
            let forever = matches!((order, *lanes), (Order::Bfs, "cpu") | (Order::Rcm, "cpu,cpu"));
            let times = if forever { &times[..] } else { &times[..2] };
            let (got, solution) = ask(order, times, opened);

            for i in 0..times.len() {
                let bound = solution.times[i].bound.total() + natural.times[i].bound.total();
                assert!(l1(&got[i], &wanted[i]) <= bound, "{order:?} on {lanes}: time {}", times[i]);
                let (a, b) = (&solution.times[i].rewards[0], &natural.times[i].rewards[0]);
                assert!(
                    (a.instantaneous - b.instantaneous).abs() <= 400.0 * bound + 1e-9,
                    "{order:?} on {lanes}"
                );
            }
        }
    }
}

fn on_cpu(spec: &str) -> Machine {
    machine(spec, F64, false).expect("the CPU opens")
}

#[test]
fn multiplications_stay_within_the_exact_poisson_quantile() {
    let two = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    let forever = Options { epsilon: 1e-6, ..Options::default() };

    // Steady-state detection would save more steps; a birth-death chain of 10 000 states does not
    // reach its steady state.
    let line = model("birth-death:10000,0.5,0.5");
    let (_, long) = run(&cpu(), &*line, &Initial::State(5000), &[2500.0], &forever);
    let (_, short) = run(&cpu(), &two, &Initial::State(0), &[1.0], &forever);

    assert!(long.terms <= 2760, "αt = 2500: {} multiplications", long.terms);
    assert!(short.terms <= 10, "αt = 1: {} multiplications", short.terms);
}

#[test]
fn a_chain_without_transitions_stays_where_it_is() {
    let still = chain(3, &[]);

    let (got, solution) =
        run(&cpu(), &still, &Initial::State(2), &[0.0, 5.0, f64::INFINITY], &Options::default());

    assert_eq!(got, [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]);
    assert_eq!((solution.terms, solution.alpha), (0, 0.0));
}

#[test]
fn absorbing_states_keep_their_probability_and_do_not_enter_alpha() {
    // 0 → 1 at rate 2 only: π_0(t) = e^{−2t}. A self-loop of rate 50 must not matter.
    let death = chain(2, &[(0, 1, 2.0), (1, 1, 50.0)]);

    let (got, solution) = run(&cpu(), &death, &Initial::State(0), &[0.5, 3.0], &Options::default());

    assert_eq!(solution.alpha, 2.0);
    for (p, t) in got.iter().zip([0.5f64, 3.0]) {
        approx::assert_abs_diff_eq!(p[0], (-2.0 * t).exp(), epsilon = solution.bound.total());
    }
}

#[test]
fn making_a_set_absorbing_gives_the_first_passage_probability() {
    // From 0 to 1 at rate 3, and back at rate 2: P(T_1 ≤ t) = 1 − e^{−3t}.
    let two = Chain::new("two", Box::new(chain(2, &[(0, 1, 3.0), (1, 0, 2.0)])));

    let passage = two.absorbing(&[1]);
    let (got, solution) = run(&cpu(), &*passage.transitions, &passage.initial, &[0.7], &Options::default());

    approx::assert_abs_diff_eq!(got[0][1], (1.0 - (-2.1f64).exp()), epsilon = solution.bound.total());
}

#[test]
fn periodic_chains_alternate_and_converge() {
    // Both exit rates equal α: P has no diagonal and period 2.
    let ring = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);

    let (got, solution) = run(&cpu(), &ring, &Initial::State(0), &[0.3, 1e5], &Options::default());

    assert!(l1(&got[0], &two_states(1.0, 1.0, 0.3)) <= solution.bound.total());
    assert!(l1(&got[1], &[0.5, 0.5]) <= solution.bound.total());
}

#[test]
fn the_steady_state_of_a_queue_is_geometric() {
    let queue = model("birth-death:30,1,2");
    let weights: Vec<f64> = (0..30).map(|i| 0.5f64.powi(i)).collect();
    let sum: f64 = weights.iter().sum();
    let wanted: Vec<f64> = weights.iter().map(|w| w / sum).collect();

    let (got, solution) = run(&cpu(), &*queue, &Initial::State(29), &[f64::INFINITY], &Options::default());

    assert_eq!(solution.status, Status::Met);
    assert!(l1(&got[0], &wanted) <= solution.bound.total(), "{:e}", l1(&got[0], &wanted));
}

#[test]
fn a_decaying_reward_has_a_finite_sum_and_others_are_infinite() {
    // 0 → 1 at rate 2: the reward of state 0 accumulates to 1/2.
    let death = chain(2, &[(0, 1, 2.0)]);
    let rewards = [
        Reward { name: "alive".to_owned(), values: vec![1.0, 0.0] },
        Reward { name: "dead".to_owned(), values: vec![0.0, -1.0] },
    ];
    let initial = Initial::State(0);
    let times = &[f64::INFINITY];
    let problem =
        Problem { transitions: &death, initial: &initial, times, rewards: &rewards, vectors: false };

    let solution = solve(&cpu(), &problem, &Options::default(), &mut Keep::default()).unwrap();

    assert!((solution.times[0].rewards[0].cumulative - 0.5).abs() <= 1e-9);
    assert_eq!(solution.times[0].rewards[1].cumulative, f64::NEG_INFINITY);
}

#[test]
fn the_steady_state_of_a_saturated_queue_is_certified() {
    // The initial state has a steady-state probability of 2^-25. A certificate that depends on its
    // probability would take forever.
    let queue = model("birth-death:26,2,1");
    let weights: Vec<f64> = (0..26).map(|i| 2f64.powi(i)).collect();
    let sum: f64 = weights.iter().sum();
    let wanted: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    let tight = Options { epsilon: 1e-9, ..Options::default() };

    let (got, solution) = run(&cpu(), &*queue, &Initial::State(0), &[f64::INFINITY], &tight);

    assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
    assert!(l1(&got[0], &wanted) <= solution.bound.total());
}

#[test]
fn times_beyond_32_bits_of_steps_end_at_the_steady_state() {
    let queue = model("birth-death:20,1,2");

    let (got, solution) =
        run(&cpu(), &*queue, &Initial::State(0), &[1e10, f64::INFINITY], &Options::default());

    // The rounding error of the distance counts for every skipped step.
    assert!(solution.terms < 1_000_000, "{}", solution.terms);
    assert!(l1(&got[0], &got[1]) <= solution.times[0].bound.total() + solution.times[1].bound.total());
}

#[test]
fn the_steady_state_of_a_periodic_chain_is_found() {
    let ring = chain(4, &[(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0)]);

    let (got, solution) = run(&cpu(), &ring, &Initial::State(0), &[f64::INFINITY], &Options::default());

    assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
    assert!(l1(&got[0], &[0.25; 4]) <= solution.bound.total());
}

#[test]
fn the_limit_with_two_closed_classes_splits_by_absorption_probabilities() {
    // From 0: to 1 at rate 1, to 2 at rate 3, both absorbing.
    let fork = chain(3, &[(0, 1, 1.0), (0, 2, 3.0)]);

    let (got, solution) = run(&cpu(), &fork, &Initial::State(0), &[f64::INFINITY], &Options::default());

    assert!(l1(&got[0], &[0.0, 0.25, 0.75]) <= solution.bound.total(), "{got:?}");
}

#[test]
fn a_slow_class_does_not_pass_for_a_steady_state() {
    // A ↔ B at rate 1, B ↔ C at rate 1e-6. At t = 2e5 consecutive iterates hardly differ, although
    // C has received most of a tenth.
    let slow = chain(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1e-6), (2, 1, 1e-6)]);
    let exact = dense(&slow, &[1.0, 0.0, 0.0], 2e5);

    let (got, solution) = run(&cpu(), &slow, &Initial::State(0), &[2e5], &Options::default());

    // The reference squares a 3 by 3 matrix 24 times, doubling its error each time.
    let oracle = 2f64.powi(24) * 9.0 * f64::EPSILON;
    assert!(exact[2] > 0.08, "the case is what it says: {exact:?}");
    assert!(l1(&got[0], &exact) <= solution.bound.total() + oracle, "{got:?} {exact:?}");
}

#[test]
fn steady_state_detection_saves_products_and_keeps_the_bound() {
    let queue = model("birth-death:30,1,2");

    let (got, solution) = run(&cpu(), &*queue, &Initial::State(0), &[1e5], &Options::default());

    let weights: Vec<f64> = (0..30).map(|i| 0.5f64.powi(i)).collect();
    let sum: f64 = weights.iter().sum();
    let wanted: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    assert!(solution.bound.steady_state > 0.0 && solution.terms < 10_000, "{} terms", solution.terms);
    assert!(l1(&got[0], &wanted) <= solution.bound.total());
}

#[test]
fn many_times_of_one_run_equal_each_alone() {
    let tandem = model("tandem:6");
    let times: Vec<f64> = (0..40).map(|i| 0.25 * f64::from(i)).collect();

    let (all, solution) = run(&cpu(), &*tandem, &Initial::State(0), &times, &Options::default());

    for (i, &t) in times.iter().enumerate() {
        let (alone, one) = run(&cpu(), &*tandem, &Initial::State(0), &[t], &Options::default());
        let bound = solution.times[i].bound.total() + one.bound.total();
        assert!(l1(&all[i], &alone[0]) <= bound, "t = {t}");
    }
    let last = solution.times[39].window.1;
    assert!(solution.terms <= last, "{} terms; the last time alone needs {last}", solution.terms);
}

#[test]
fn times_on_both_sides_of_a_change_of_shares_keep_their_bounds() {
    // From αt = 256 on, a share of ε is reserved for steady-state detection, so windows there do
    // not open in the order of times.
    let line = model("birth-death:2000,0.5,0.5");
    let times: Vec<f64> = (0..15).map(|i| 253.0 + 0.4 * f64::from(i)).collect();
    let exact = Options { epsilon: 1e-12, ..Options::default() };

    let (got, solution) = run(&cpu(), &*line, &Initial::State(1000), &times, &Options::default());

    for (i, &t) in times.iter().enumerate() {
        let (wanted, _) = run(&cpu(), &*line, &Initial::State(1000), &[t], &exact);
        let error = l1(&got[i], &wanted[0]);
        assert!(error <= solution.times[i].bound.total() + 1e-12, "t = {t}: {error:e}");
    }
}

#[test]
fn earlier_copies_on_a_lane_do_not_count_for_a_run() {
    let machine = cpu();
    let mut numbers = vec![1.0; 4 << 20];
    let buffer = machine.lanes[0].alloc_with("earlier work", &numbers).expect("room for 32 MiB");
    for _ in 0..20 {
        machine.lanes[0].download(&buffer, 0, &mut numbers).expect("a copy");
    }

    let (_, solution) = run(&machine, &*model("tandem:2"), &Initial::State(0), &[1.0], &Options::default());

    let s = solution.seconds;
    let parts = s.build + s.upload + s.solve + s.download;
    assert!(s.solve > 0.0 && parts <= s.total, "{s:?}");
}

#[test]
fn times_beyond_memory_take_another_run() {
    use kolmo::lane::{DeviceSpec, OpenOptions};
    let wlan = model("wlan:4,3");
    let times = [5.0, 5.1, 5.2, 5.3, 5.4, 5.5];
    let (wanted, free) = run(&cpu(), &*wlan, &Initial::State(0), &times, &Options::default());
    // Memory for the matrix, two iterates and two accumulators.
    let vector = 8 * wlan.states() as u64;
    let limit = free.matrix.bytes + 4 * vector + vector / 2 + (64 << 10);
    let options = OpenOptions { memory_limit: Some(limit), ..OpenOptions::default() };
    let machine = Machine::open(&[DeviceSpec::Cpu], &options).unwrap();

    let (got, solution) = run(&machine, &*wlan, &Initial::State(0), &times, &Options::default());

    assert!(solution.terms > free.terms, "{} terms in several sweeps of {}", solution.terms, free.terms);
    for (got, wanted) in got.iter().zip(&wanted) {
        assert!(l1(got, wanted) <= solution.bound.total() + free.bound.total());
    }
}

#[test]
fn memory_stays_within_matrix_and_three_vectors() {
    let wlan = model("wlan:12,6");

    let (_, solution) = run(&cpu(), &*wlan, &Initial::State(0), &[1.0], &Options::default());

    let needed = solution.matrix.bytes + 3 * 8 * wlan.states() as u64;
    assert!(
        solution.device_bytes as f64 <= 1.05 * needed as f64,
        "{} of {needed} bytes",
        solution.device_bytes
    );
}

#[test]
fn a_matrix_that_does_not_fit_is_an_error_with_the_numbers() {
    use kolmo::lane::{DeviceSpec, OpenOptions};
    let wlan = model("wlan:4,3");
    let options = OpenOptions { memory_limit: Some(100_000), ..OpenOptions::default() };
    let machine = Machine::open(&[DeviceSpec::Cpu], &options).unwrap();
    let problem = Problem {
        transitions: &*wlan,
        initial: &Initial::State(0),
        times: &[1.0],
        rewards: &[],
        vectors: true,
    };

    let error = solve(&machine, &problem, &Options::default(), &mut Keep::default()).unwrap_err();

    assert!(matches!(error, Error::OutOfMemory { asked, .. } if asked > 0), "{error}");
    // 100,000 bytes.
    assert!(error.to_string().contains("97.7 KiB"), "{error}");
}

#[test]
fn problems_without_an_answer_are_refused_with_the_number() {
    let two = chain(2, &[(0, 1, 1.0)]);
    let ask = |times: &[f64], initial: Initial, epsilon: f64| {
        let problem = Problem { transitions: &two, initial: &initial, times, rewards: &[], vectors: true };
        let options = Options { epsilon, ..Options::default() };
        solve(&cpu(), &problem, &options, &mut Keep::default()).unwrap_err().to_string()
    };
    assert!(ask(&[-1.0], Initial::State(0), 1e-6).contains("-1"));
    assert!(ask(&[f64::NAN], Initial::State(0), 1e-6).contains("NaN"));
    assert!(ask(&[], Initial::State(0), 1e-6).contains("no time"));
    assert!(ask(&[1.0], Initial::State(7), 1e-6).contains('7'));
    assert!(ask(&[1.0], Initial::Distribution(vec![0.5, 0.4]), 1e-6).contains("0.9"));
    assert!(ask(&[1.0], Initial::Distribution(vec![1.0]), 1e-6).contains("2 states"));
    assert!(ask(&[1.0], Initial::Distribution(vec![1.5, -0.5]), 1e-6).contains("-0.5"));
    for epsilon in [0.0, 1.0, -1e-3, f64::NAN, 2.0] {
        assert!(ask(&[1.0], Initial::State(0), epsilon).contains("epsilon"), "{epsilon}");
    }
}

#[test]
fn an_epsilon_that_cannot_be_proved_is_not_met_but_computed() {
    let two = chain(2, &[(0, 1, 3.0), (1, 0, 2.0)]);
    let options = Options { epsilon: 1e-17, ..Options::default() };

    let (got, solution) = run(&cpu(), &two, &Initial::State(0), &[2.0], &options);

    assert_eq!(solution.status, Status::NotMet);
    assert!(l1(&got[0], &two_states(3.0, 2.0, 2.0)) <= solution.bound.total() + 4e-16);
}

#[test]
fn a_chain_from_arrays_gives_its_probabilities_in_one_call() {
    // Unsorted columns, two rates at one position, and one on the diagonal.
    let (indptr, indices, rates) = ([0, 2, 5], [1, 0, 0, 1, 0], [0.5, 9.0, 1.25, 0.0, 0.75]);
    let chain = Chain::from_csr(2, &indptr, &indices, &rates).unwrap().starting(Initial::State(1));

    let solution = chain.transient_on(&cpu(), &[0.0, 0.3], &Options::default()).unwrap();

    assert_eq!(solution.probabilities[0], [0.0, 1.0]);
    let exact = 0.8 * (1.0 - (-2.5f64 * 0.3).exp());
    approx::assert_abs_diff_eq!(solution.probabilities[1][0], exact, epsilon = solution.bound.total());
}

#[test]
fn invalid_arrays_are_rejected_with_the_reason() {
    let refused = |indptr: &[usize], indices: &[u32], rates: &[f64]| {
        Chain::from_csr(2, indptr, indices, rates).expect_err("no chain").to_string()
    };

    assert!(refused(&[0, 1], &[1], &[1.0]).contains("expected 3 that ascend from 0 to 1"));
    assert!(refused(&[0, 2, 1], &[1], &[1.0]).contains("ascend"));
    assert!(refused(&[0, 1, 2], &[1, 0], &[1.0]).contains("1 values for 2 indices"));
    assert!(
        refused(&[0, 1, 2], &[1, 2], &[1.0, 1.0])
            .contains("index 1 is 2, out of range: the matrix has 2 columns")
    );
    assert!(refused(&[0, 1, 2], &[1, 0], &[1.0, -1.0]).contains("1 -> 0 has the rate -1"));
}

/// Returns the expected accumulated reward at time infinity.
fn endless(chain: &Csr, initial: &Initial, values: &[f64]) -> kolmo::Result<f64> {
    let machine = machine("cpu", F64, false).expect("the CPU opens");
    let rewards = [Reward { name: "r".to_owned(), values: values.to_vec() }];
    let times = &[f64::INFINITY];
    let problem = Problem { transitions: chain, initial, times, rewards: &rewards, vectors: false };
    let solution = solve(&machine, &problem, &Options::default(), &mut ())?;
    Ok(solution.times[0].rewards[0].cumulative)
}

#[test]
fn rewards_that_cease_accumulate_to_a_finite_value() {
    let zero = Initial::State(0);
    // 0 ⇄ 1 at rate 1, and 1 → 2 at ½. State 0 is visited three times for one unit of time each,
    // and state 1 three times for two thirds.
    let absorbed = chain(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 0.5)]);
    let near = |value: f64, wanted: f64| {
        assert!((value - wanted).abs() <= 1e-9 * wanted.abs(), "{value}, not {wanted}");
    };
    near(endless(&absorbed, &zero, &[1.0, 1.0, 0.0]).unwrap(), 5.0);
    near(endless(&absorbed, &zero, &[-2.0, 0.0, 0.0]).unwrap(), -6.0);
    assert_eq!(endless(&absorbed, &zero, &[0.0, 0.0, 2.0]).unwrap(), f64::INFINITY);
    assert_eq!(endless(&absorbed, &zero, &[5.0, 1.0, -2.0]).unwrap(), f64::NEG_INFINITY);
    assert_eq!(endless(&absorbed, &zero, &[0.0; 3]).unwrap(), 0.0);
    // A closed class of two states without reward, and one with reward that is never reached.
    let settles = chain(5, &[(0, 1, 2.0), (1, 2, 1.0), (2, 1, 3.0), (3, 4, 1.0)]);
    near(endless(&settles, &zero, &[3.0, 0.0, 0.0, 7.0, 7.0]).unwrap(), 1.5);
    // A reward of a state whose limit probability is below the rounding error.
    let rare = chain(3, &[(0, 1, 1.0), (1, 0, 1e-15), (1, 2, 1.0), (2, 1, 1e-15)]);
    assert_eq!(endless(&rare, &zero, &[1.0, 0.0, 0.0]).unwrap(), f64::INFINITY);
    let cancels = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    let refused = endless(&cancels, &zero, &[1.0, -1.0]).unwrap_err().to_string();
    assert!(refused.contains("both signs"), "{refused}");
}

#[test]
fn invalid_rewards_and_initial_distributions_are_reported() {
    let pair = chain(3, &[(0, 1, 1.0), (1, 2, 1.0)]);
    for (value, said) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        let refused = endless(&pair, &Initial::State(0), &[1.0, value, 0.0]).unwrap_err().to_string();
        assert_eq!(refused, format!("rewards \"r\"[1] is {said}: expected a finite number"));
    }
    for (values, said) in [([0.0; 3], "0"), ([1e308; 3], "inf")] {
        let refused = endless(&pair, &Initial::Distribution(values.to_vec()), &[0.0; 3]).unwrap_err();
        let wanted = format!("the initial distribution sums to {said}: expected a positive, finite sum");
        assert_eq!(refused.to_string(), wanted);
    }
}

#[test]
fn narrow_chains_have_their_limits_by_elimination() {
    let machine = machine("cpu", F64, false).expect("the CPU opens");
    // Birth-death chains whose probability is concentrated near the first or the last state.
    for (n, ratio) in [(4001, 0.99), (10_001, 0.999), (4001, 1.01), (30_001, 1.001), (100_001, 0.99)] {
        let n = n as usize;
        let line: Vec<_> = (1..n as u32).flat_map(|i| [(i - 1, i, ratio), (i, i - 1, 1.0)]).collect();
        let (got, solution) =
            run(&machine, &chain(n, &line), &Initial::State(0), &[f64::INFINITY], &Options::default());

        // Powers relative to the larger end; each has an error of some units for each factor in its
        // exponent.
        let largest = if ratio > 1.0 { n - 1 } else { 0 };
        let shrinks = if ratio > 1.0 { 1.0 / ratio } else { ratio };
        let power = |i: usize| (i.abs_diff(largest) as f64 * shrinks.ln()).exp();
        let all: f64 = (0..n).map(power).sum();
        let wanted: Vec<f64> = (0..n).map(|i| power(i) / all).collect();
        let doubt = 1e-16 * 40.0 / (1.0 - shrinks) + 1e-14;
        let (error, bound) = (l1(&got[0], &wanted), solution.bound.total());
        assert_eq!(solution.status, Status::Met, "{n}, {ratio}: {:?}", solution.bound);
        assert!(error <= bound + doubt, "{n}, {ratio}: error {error:e}, bound {bound:e}");
        assert_eq!((solution.eliminated, solution.terms), (n, 0), "{n}, {ratio}");
    }
    // A grid with a slow direction, in random order: its small bandwidth is found.
    let (width, height) = (12u32, 400u32);
    let n = width * height;
    let mut numbers: Vec<u32> = (0..n).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut numbers);
    let at = |x: u32, y: u32| numbers[(y * width + x) as usize];
    let mut list = Vec::new();
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        if x + 1 < width {
            list.extend([(at(x, y), at(x + 1, y), 2.0), (at(x + 1, y), at(x, y), 1.0)]);
        }
        if y + 1 < height {
            list.extend([(at(x, y), at(x, y + 1), 0.9), (at(x, y + 1), at(x, y), 1.0)]);
        }
    }
    let begin = Initial::State(at(width - 1, height / 2) as usize);
    let (got, solution) =
        run(&machine, &chain(n as usize, &list), &begin, &[f64::INFINITY], &Options::default());
    let weight = |x: u32, y: u32| 2f64.powi(x as i32) * 0.9f64.powi(y as i32);
    let all: f64 = (0..height).flat_map(|y| (0..width).map(move |x| weight(x, y))).sum();
    let pairs = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let error: f64 = pairs.map(|(x, y)| (got[0][at(x, y) as usize] - weight(x, y) / all).abs()).sum();
    assert_eq!((solution.status, solution.eliminated), (Status::Met, n as usize), "{:?}", solution.bound);
    assert!(error <= solution.bound.total() + 1e-13, "error {error:e}, {:?}", solution.bound);
}
