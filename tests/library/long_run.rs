//! Long-run questions of chains against closed forms.

use crate::support::{Keep, chain, cpu, expect_error};
use kolmo::internals::Csr;
use kolmo::transient::long_run::{absorption, expected_reward, hitting_time, stationary};
use kolmo::transient::{Chain, Initial, Options};
use kolmo::{Error, Iterate, Progress, Status};

/// A gambler with 0 … n coins, who wins at rate `up` and loses at rate `down`.
fn game(n: u32, up: f64, down: f64) -> Vec<(u32, u32, f64)> {
    (1..n).flat_map(|i| [(i, i + 1, up), (i, i - 1, down)]).collect()
}

#[test]
fn questions_without_an_answer_are_errors_that_say_why() {
    let (options, machine) = (Options::default(), cpu());
    let ends = chain(4, &[(0, 1, 1.0), (0, 2, 3.0), (3, 0, 1.0)]);
    let several = stationary(&machine, &ends, None, &options, &mut ()).unwrap_err().to_string();
    assert!(several.contains("2 closed classes") && several.contains("[1, 2]"), "{several}");
    for (sets, wanted) in [
        (&[][..], "no target set given"),
        (&[("a", &[][..])], "target set 'a' is empty"),
        (&[("a", &[4][..])], "target set 'a' has the state 4: expected 0 to 3"),
        (&[("a", &[1][..]), ("b", &[2, 1])], "state 1 is in the target sets 'a' and 'b'"),
        (&[("a", &[3][..])], "no other state reaches target set 'a' first"),
    ] {
        expect_error(absorption(&ends, sets, &options, &mut ()), wanted);
    }
    let endless = expected_reward(&ends, &[0.0, 2.0, 0.0, 0.0], None, &options, &mut ());
    expect_error(endless, "state 1, in a closed class, has the reward 2");
    expect_error(hitting_time(&ends, &[1], &options.epsilon(0.0), &mut ()), "invalid `epsilon` 0");
}

/// Returns a chain that is too wide for an elimination without steps.
fn wide(n: u32) -> Csr {
    numbered(n, |i| i)
}

/// Returns the chain [`wide`] with another number for each state.
fn numbered(n: u32, number: impl Fn(u32) -> u32) -> Csr {
    let from = |i: u32| [1, 611, 1999].map(|k| (number(i), number((i + k) % n), f64::from(k)));
    chain(n as usize, &(0..n).flat_map(from).collect::<Vec<_>>())
}

#[test]
fn scattered_numbers_of_states_do_not_change_the_values() {
    let (n, options, machine) = (8_000, Options::default(), cpu());
    let number = |i: u32| (u64::from(i) * 7919 % u64::from(n)) as u32;
    let (near, far) = (wide(n), numbered(n, number));
    let times = hitting_time(&near, &[3], &options, &mut ()).unwrap();
    let far_times = hitting_time(&far, &[number(3)], &options, &mut ()).unwrap();
    let pi = stationary(&machine, &near, None, &options, &mut ()).unwrap();
    let far_pi = stationary(&machine, &far, None, &options, &mut ()).unwrap();
    let mut all = 0.0;
    for (i, j) in (0..n).map(|i| (i as usize, number(i) as usize)) {
        let (error, bound) =
            ((times.values[i] - far_times.values[j]).abs(), times.bounds[i] + far_times.bounds[j]);
        assert!(error <= bound, "{i}: {error:e}, {bound:e}");
        all += (pi.values[i] - far_pi.values[j]).abs();
    }
    assert!(all <= pi.bound + far_pi.bound && far_pi.status == Status::Met, "{all:e}");
    assert!(far_times.status == Status::Met && far_times.values[number(3) as usize] == 0.0);
}

/// Keeps the reports of an iteration, and ends it after some of them.
struct Reports {
    most: usize,
    seen: Vec<Iterate>,
}

impl Progress for Reports {
    fn iterate(&mut self, iterate: Iterate) -> kolmo::Result<bool> {
        self.seen.push(iterate);
        Ok(self.seen.len() <= self.most)
    }
}

#[test]
fn an_iteration_reports_its_bound_and_ends_early_with_the_best_result() {
    let (chain, options) = (wide(8_000), Options::default());
    let mut whole = Reports { most: usize::MAX, seen: Vec::new() };
    let found = hitting_time(&chain, &[0], &options, &mut whole).unwrap();
    let bounds: Vec<f64> =
        whole.seen.iter().map(|seen| seen.bound).filter(|bound| bound.is_finite()).collect();
    assert!(found.status == Status::Met && bounds.is_sorted_by(|a, b| a >= b), "{:?}", whole.seen);
    assert!(bounds[0] > 1e-9 && whole.seen.iter().all(|seen| seen.limit.is_none()), "{:?}", whole.seen);

    // The first report with a bound, and a few more.
    let most = whole.seen.iter().position(|seen| seen.bound.is_finite()).unwrap() + 3;
    let mut short = Reports { most, seen: Vec::new() };
    let early = hitting_time(&chain, &[0], &options, &mut short).unwrap();
    let last = short.seen.iter().rev().find_map(|seen| seen.limit);
    assert_eq!((early.status, last), (Status::NotMet, Some("the time limit")), "{:?}", short.seen);
    for i in 0..8_000 {
        let error = (early.values[i] - found.values[i]).abs();
        assert!(error <= early.bounds[i] + found.bounds[i] && early.bounds[i].is_finite(), "{i}: {early:?}");
    }
}

#[test]
fn target_sets_share_one_setup() {
    let (chain, options) = (wide(8_000), Options::default());
    let sets: [(&str, &[u32]); 3] = [("a", &[0, 5]), ("b", &[3_000]), ("c", &[5_000, 5_001])];
    let mut together = Reports { most: usize::MAX, seen: Vec::new() };
    let found = absorption(&chain, &sets, &options, &mut together).unwrap();
    let rest: Vec<u32> = sets[1..].iter().flat_map(|(_, set)| *set).copied().collect();
    let mut two = Reports { most: usize::MAX, seen: Vec::new() };
    let first = absorption(&chain, &[sets[0], ("rest", &rest)], &options, &mut two).unwrap();
    for i in 0..8_000 {
        let sum: f64 = found.iter().map(|set| set.values[i]).sum();
        let bound: f64 = found.iter().map(|set| set.bounds[i]).sum();
        assert!((sum - 1.0).abs() <= bound + 4.0 * f64::EPSILON && bound <= 3e-9, "{i}: {sum} ± {bound:e}");
        let error = (first[0].values[i] - found[0].values[i]).abs();
        assert!(error <= first[0].bounds[i] + found[0].bounds[i], "{i}: {error:e}");
    }
    // The third set adds the steps of one more solution, but none for the setup: the levels and
    // expected times, before there is a bound. Two solutions differ by less than ten steps.
    let setup = two.seen.iter().filter(|seen| seen.bound.is_infinite()).count();
    let (three, two) = (together.seen.len(), two.seen.len());
    assert!(found.iter().all(|set| set.status == Status::Met));
    assert!(setup > 20 && three + setup <= 2 * two + 10, "{three}, {two}, of these {setup}");
}

#[test]
fn an_observer_stops_the_work() {
    let (chain, options) = (wide(4_000), Options::default());
    let stopped = |done: kolmo::Result<_>| matches!(done, Err(Error::Interrupted));
    assert!(stopped(hitting_time(&chain, &[0], &options, &mut Keep::after(0)).map(drop)));
    let sets: [(&str, &[u32]); 2] = [("a", &[0]), ("b", &[7])];
    assert!(stopped(absorption(&chain, &sets, &options, &mut Keep::after(0)).map(drop)));
}

#[test]
fn methods_of_a_chain_answer_as_the_functions_do() {
    let options = Options::default();
    let own = Chain::new("a game", Box::new(chain(11, &game(10, 1.0, 2.0)))).starting(Initial::State(4));
    let transitions = &*own.transitions;
    let direct = absorption(transitions, &[("rich", &[10])], &options, &mut ()).unwrap();
    assert_eq!(own.absorption(&[("rich", &[10])], &options).unwrap(), direct);
    let direct = hitting_time(transitions, &[0, 10], &options, &mut ()).unwrap();
    assert_eq!(own.hitting_time(&[0, 10], &options).unwrap(), direct);
    assert_eq!(own.expected_reward(&[1.0; 11], Some(&[0, 10]), &options).unwrap(), direct);
    let spent = own.visits(None, &options).unwrap();
    assert!((spent.values.iter().sum::<f64>() - direct.values[4]).abs() <= spent.bound + direct.bounds[4]);
    let queue = Chain::from(kolmo::models::parse("birth-death:5,1,2").unwrap().unwrap());
    let pi = queue.stationary(&options).unwrap();
    assert!((0..5).all(|i| (pi.values[i] - 2f64.powi(4 - i as i32) / 31.0).abs() <= pi.bound));
}

#[test]
fn a_star_is_solved_at_once_and_keeps_the_initial_mass() {
    // The hub has the largest number. All states are equally likely in the limit.
    let (n, mass) = (60_000u32, 1.0 + 5e-7);
    let list: Vec<_> = (0..n - 1).flat_map(|i| [(i, n - 1, 1.0), (n - 1, i, 1.0)]).collect();
    let mut chain = Chain::new("a star", Box::new(chain(n as usize, &list)));
    chain.initial = Initial::Distribution(vec![mass / n as f64; n as usize]);
    let found = chain.transient_on(&cpu(), &[f64::INFINITY], &Options::default()).unwrap();
    let error: f64 = found.probabilities[0].iter().map(|p| (p - mass / n as f64).abs()).sum();
    assert!(found.status == Status::Met && error <= found.bound.total(), "{error}: {:?}", found.bound);
}
