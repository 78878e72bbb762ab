//! States, chains, labels and rewards, compared with a simple explorer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use kolmo_model::{Error, Options, PrismModel, Progress, StateSpace};

use crate::{WORKSHOP, explored, instance, section, trouble};

const TABLES: &str = include_str!("inputs/exploration.txt");

/// State of the workshop: parts, up1, up2, busy.
type Workshop = (i64, bool, bool, bool);

fn workshop(n: i64, (parts, up1, up2, busy): Workshop) -> Vec<(Workshop, f64)> {
    let mut next = Vec::new();
    for (first, up) in [(true, up1), (false, up2)] {
        let with = |up: bool| if first { (up, up2) } else { (up1, up) };
        let (a, b) = with(!up);
        if up {
            next.push(((parts, a, b, busy), 1.0 / 40.0));
            if parts > 0 {
                next.push(((parts - 1, up1, up2, busy), 3.0));
            }
        } else if busy && first {
            next.push(((parts, a, b, false), 0.5));
        } else if busy {
            next.push(((parts, a, b, false), 0.25));
            next.push(((parts, a, b, true), 0.75));
        }
    }
    if !(busy || up1 && up2) {
        next.push(((parts, up1, up2, true), 5.0));
    }
    if parts < n {
        next.push(((n.min(parts + 2), up1, up2, busy), 0.5));
    }
    next
}

/// Explores the workshop independently: all states in their order, with their rows.
fn by_hand(n: i64) -> BTreeMap<Workshop, BTreeMap<Workshop, f64>> {
    let mut all = BTreeMap::new();
    let mut open = vec![(n, true, true, false)];
    while let Some(state) = open.pop() {
        if all.contains_key(&state) {
            continue;
        }
        let mut row = BTreeMap::new();
        for (next, rate) in workshop(n, state) {
            *row.entry(next).or_insert(0.0) += rate;
            open.push(next);
        }
        all.insert(state, row);
    }
    all
}

#[test]
fn a_model_with_renaming_globals_and_synchronisation_is_the_one_by_hand() {
    let n = 5;
    let space = explored(WORKSHOP, "N=5");
    let all = by_hand(n);
    assert_eq!(space.states(), all.len());
    let numbers: BTreeMap<Workshop, usize> = all.keys().enumerate().map(|(k, state)| (*state, k)).collect();
    for (k, (state, row)) in all.iter().enumerate() {
        let (parts, up1, up2, busy) = *state;
        assert_eq!(space.values(k), [parts, up1.into(), up2.into(), busy.into()]);
        assert_eq!(space.describe(k), format!("(parts={parts}, up1={up1}, up2={up2}, busy={busy})"));
        let found: Vec<(usize, f64)> = space.chain().row(k).map(|(to, rate)| (to as usize, rate)).collect();
        let expected: Vec<(usize, f64)> = row.iter().map(|(to, rate)| (numbers[to], *rate)).collect();
        assert_eq!(found, expected, "{state:?}");
    }
    let transitions = all.values().map(|row| row.len() as u64).sum();
    assert_eq!(space.transitions(), (transitions, transitions));
    assert_eq!(space.initial(), [numbers[&(n, true, true, false)] as u32]);

    let down: Vec<bool> = all.keys().map(|(_, up1, up2, _)| !up1 && !up2).collect();
    assert_eq!(space.label("down").expect("a label"), down);
    let parts: Vec<f64> = all.keys().map(|(parts, ..)| *parts as f64).collect();
    assert_eq!(space.rewards(Some("parts")).expect("rewards"), parts);
    let repairs = all.keys().map(|(_, up1, up2, busy)| {
        let (first, second) = (busy & !up1, busy & !up2);
        f64::from(u8::from(first)) * 0.5 + f64::from(u8::from(second)) * 10.0 * (0.25 + 0.75)
    });
    assert_eq!(space.rewards(Some("repairs")).expect("rewards"), repairs.collect::<Vec<_>>());
    // The third structure has no name, and rewards transitions without an action.
    let unnamed = all.keys().map(|(parts, up1, up2, busy)| {
        let working = f64::from(u8::from(*up1) + u8::from(*up2));
        let unseen = working / 40.0
            + f64::from(u8::from(*parts > 0)) * 3.0 * working
            + f64::from(u8::from(!busy && working < 2.0)) * 5.0
            + f64::from(u8::from(*parts < n)) * 0.5;
        f64::from(u8::from(working > 0.0)) + if *parts > 0 { 0.5 * unseen } else { 0.0 }
    });
    for (found, expected) in space.rewards(Some("")).expect("rewards").into_iter().zip(unnamed) {
        // Seven terms are added in another order.
        assert!((found - expected).abs() <= 8.0 * f64::EPSILON * expected, "{found} {expected}");
    }
    assert!(matches!(space.label("up"), Err(Error::Name(_))));
    assert!(matches!(space.rewards(Some("x")), Err(Error::Name(_))));
}

/// Model of `k` counters with `n` values. Each counts up alone, and down with the next one.
fn counters(k: usize, n: usize) -> String {
    let modules: String = (0..k)
        .map(|i| {
            let (next, top, rate) = ((i + 1) % k, n + 2, i + 1);
            let alone = format!("[] x{i}<{top} -> {rate} : (x{i}'=x{i}+1);");
            let together = format!("[a{i}] x{i}>3 -> x{i}/7 : (x{i}'=x{i}-1);");
            let reset = format!("[a{next}] mod(x{i}, 2)=1 -> 2 : (x{i}'=3);");
            format!("module m{i} x{i} : [3..{top}]; {alone} {together} {reset} endmodule\n")
        })
        .collect();
    format!("ctmc\n{modules}label \"top\" = x0 = {};", n + 2)
}

/// Finding the commands of a state takes no time in proportion to their number.
#[test]
fn a_command_per_state_is_found_by_its_value() {
    let n = 30_000;
    let model = |commands: &str| {
        let text = format!("ctmc module m x : [0..{}]; up : bool init true; {commands} endmodule", n - 1);
        explored(&text, "")
    };
    let started = std::time::Instant::now();
    let each =
        |k: i32| format!("[] x={k} -> 2 : (x'={}); [] up & {k}=x -> {k}+1 : (up'=false);\n", (k + 1) % n);
    let single = model(&(0..n).map(each).collect::<String>());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    same(&single, &model(&format!("[] true -> 2 : (x'=mod(x+1,{n})); [] up -> x+1 : (up'=false);")));
}

fn same(a: &StateSpace, b: &StateSpace) {
    assert!(a.chain() == b.chain(), "the chains differ");
    assert_eq!(a.self_loops(), b.self_loops());
    assert!((0..a.states()).step_by(97).all(|state| a.values(state) == b.values(state)));
}

#[test]
fn every_way_of_keeping_states_and_every_number_of_threads_gives_the_same_chain() {
    // 15 bits are few enough for one bit per state. More bits are, too, if each further variable
    // has one value. With variables too large for a table, states are in hash tables, of one or
    // more words.
    let text = counters(5, 7);
    let few = explored(&text, "");
    assert_eq!(few.states(), 7_usize.pow(5));
    let among = |count: usize, values: u32| {
        let more: String = (0..count).map(|k| format!("far{k} : [0..{values}] init 3;")).collect();
        explored(&format!("{text} module far {more} endmodule"), "")
    };
    let with = |count| among(count, 4_000_000_000);
    let sizes = [1, 2, 4, 8].map(|count| [(count, 60_000), (count, 4_000_000_000)]).concat();
    for (count, values) in sizes {
        let more = among(count, values);
        assert!(more.chain() == few.chain(), "{count} more variables");
        assert_eq!(more.values(more.states() - 1)[5..], vec![3; count]);
    }
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            same(&explored(&text, ""), &few);
            same(&with(3), &with(3));
            same(&among(3, 60_000), &with(3));
        });
    }
    let many: String = (0..140).map(|k| format!("y{k} : int;")).collect();
    assert!(matches!(trouble(&format!("{text} module far {many} endmodule")), Error::Size(_)));
}

#[test]
fn self_loops_and_deadlocks_are_kept_apart() {
    let space = explored(include_str!("inputs/loops.sm"), "");
    assert_eq!(space.states(), 6);
    assert_eq!(space.self_loops(), [(2, 6.0)]);
    assert_eq!(space.deadlocks(), [4, 5]);
    assert_eq!(space.transitions(), (5, 8));
    assert_eq!(space.label("deadlock").expect("built in"), [false, false, false, false, true, true]);
    assert_eq!(space.label("init").expect("built in"), [true, false, false, false, false, false]);
    assert_eq!(space.chain().row(3).collect::<Vec<_>>(), [(4, 1.0), (5, 1.5)]);
}

#[test]
fn initial_states_may_be_a_condition() {
    let text = "ctmc module m x : [0..9]; y : [0..9]; b : bool; [] x>0 -> 1 : (x'=x-1); endmodule
        init x+y=9 & b & mod(x, 2)=0 endinit";
    let space = explored(text, "");
    let first: Vec<Vec<i64>> = space.initial().iter().map(|state| space.values(*state as usize)).collect();
    assert_eq!(first, [[0, 9, 1], [2, 7, 1], [4, 5, 1], [6, 3, 1], [8, 1, 1]]);
    assert_eq!(space.states(), 1 + 3 + 5 + 7 + 9);
    assert!(trouble(&text.replace("x+y=9", "x+y=90")).to_string().contains("no state satisfies"));
}

#[test]
fn systems_are_composed_as_written() {
    let modules = "module a x : [0..1]; [s] x=0 -> 2 : (x'=1); [t] x=1 -> 1 : (x'=0); endmodule
        module b y : [0..1]; [s] y=0 -> 3 : (y'=1); [t] y=1 -> 1 : (y'=0); endmodule
        module c z : [0..1]; [u] z=0 -> 5 : (z'=1); [s] z=1 -> 1 : (z'=0); endmodule\n";
    let states = |system: &str| {
        let space = explored(&format!("ctmc {modules} {system}"), "");
        (space.states(), space.transitions().0)
    };
    let composed = |inner: &str| states(&format!("system {inner} endsystem"));
    assert_eq!(states(""), composed("a || b || c"));
    assert_eq!(composed("a || b || c"), composed("(a || b) |[s]| c"));
    // Without synchronisation the states are a cube.
    assert_eq!(composed("a ||| b ||| c"), (8, 24));
    assert_eq!(composed("(a || b)/{s,t} ||| c"), (4, 8));
    // c does not synchronise, since its action is renamed.
    assert_eq!(composed("a || b || (c{s<-v})"), (4, 8));
    // Only a has the action w, on which both must synchronise: it is blocked.
    assert_eq!(composed("(a{s<-w}) |[w]| b ||| c"), composed("((a{s<-w})/{t} |[w]| b) ||| c"));
    let rewards = "rewards \"r\" [s] true : 1; endrewards";
    let space = explored(&format!("ctmc {modules} {rewards} system (a || b)/{{s}} || c endsystem"), "");
    // Hidden actions have no reward.
    let rewards = space.rewards(Some("r")).expect("rewards");
    assert!(rewards.contains(&1.0) && rewards.iter().all(|r| *r != 6.0), "{rewards:?}");
}

#[test]
fn what_goes_wrong_in_a_state_names_it() {
    let model = |command: &str| {
        format!("ctmc\nmodule m\nx : [0..5];\nb : bool;\n[] x<5 -> 1 : (x'=x+1);\n{command}\nendmodule")
    };
    for case in section(TABLES, "in a state") {
        let command = case[0];
        let message = trouble(&model(command)).to_string();
        let said = case[1..].iter().all(|part| message.contains(part));
        assert!(said && message.contains("test.sm:6"), "{command}: {message}");
    }
    // A conjunct protects those after it.
    explored(&model("[] x>0 & mod(3, x) = 1 -> 1 : (b'=true);"), "");
    let unbounded = trouble("ctmc module m x : int init 2147483600; [] true -> 1 : (x'=x+1); endmodule");
    assert!(unbounded.to_string().contains("bound it by a guard"), "{unbounded}");
}

#[test]
fn states_of_many_variables_have_their_room() {
    // One piece moves from place to place.
    let row = |count: usize| {
        let variables: String =
            (0..count).map(|k| format!("x{k} : int init {}; ", u8::from(k == 0))).collect();
        let moves: String = (1..count)
            .map(|k| format!("[] x{0}>0 -> {k}*x{0} : (x{0}'=x{0}-1) & (x{k}'=x{k}+1); ", k - 1))
            .collect();
        format!("ctmc module net {variables} {moves} endmodule")
    };
    for count in [2, 16, 17, 33, 65, 128] {
        let space = explored(&row(count), "");
        assert_eq!((space.states(), space.transitions().0), (count, count as u64 - 1), "{count}");
        // The last place has the lowest bits.
        assert_eq!(space.initial(), [count as u32 - 1]);
        assert_eq!(space.values(0)[count - 1], 1);
        let part = instance(&row(count), "").explore_part(None, 2, &Options::default()).expect("a part");
        assert!(part.states() < count || count == 2, "{count}");
    }
    let error = trouble(&row(129)).to_string();
    let parts = ["takes 4160 bits", "at most 4096", "129: x0, x1, x2, x3, …"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let ranges: String = (0..400).map(|k| format!("y{k} : [0..2047]; ")).collect();
    let error = trouble(&format!("ctmc module m {ranges} endmodule")).to_string();
    assert!(error.ends_with("give its variables smaller ranges"), "{error}");
}

#[test]
fn rewards_without_a_name_go_by_their_number() {
    let text = "ctmc module m x : [0..0]; endmodule
        rewards true : 1; endrewards rewards \"a\" true : 2; endrewards rewards true : 3; endrewards";
    let space = explored(text, "");
    let of = |name: Option<&str>| space.rewards(name).map(|all| all[0]);
    for (name, reward) in [(None, 1.0), (Some("1"), 1.0), (Some("a"), 2.0), (Some("3"), 3.0)] {
        assert_eq!(of(name).expect("rewards"), reward, "{name:?}");
    }
    assert!(of(Some("2")).is_ok() && of(Some("4")).is_err());
}

/// Model with two variables without a range, and these commands.
fn without_range(commands: &str) -> String {
    format!("ctmc module m x : int init 3; y : int; b : [0..2]; {commands} endmodule")
}

#[test]
fn a_model_without_end_is_refused_at_once_and_none_with_an_end() {
    for case in section(TABLES, "without end") {
        let commands = case[0];
        let error = trouble(&without_range(commands)).to_string();
        let said =
            error.contains("test.sm:1") && error.contains("which has no range, again and again without end");
        assert!(said && error.ends_with("`truncate` the model"), "{commands}: {error}");
        instance(&without_range(commands), "").explore_part(None, 20, &Options::default()).expect("a part");
    }
    for case in section(TABLES, "with an end") {
        let (commands, states) = (case[0], case[1].parse().expect("a number"));
        assert_eq!(explored(&without_range(commands), "").states(), states, "{commands}");
    }
}

/// Random models: finite ones are explored, and none of them is reported as infinite.
#[test]
fn random_models_with_an_end_are_explored() {
    const MOST: usize = 300;
    // Guards, rates and updates.
    const PARTS: [&str; 3] = [
        "true; x<6; y<x; x>=y; b=1; b<2 & x<9; y>-4; x+y<8; x<5 | b=0; !(y>3); x>0",
        "1; x; 5-x; b+1; max(0, 4-y); 1/(1+b); x>2 ? 0 : 3",
        "(x'=x+1); (x'=x-1); (y'=y+2); (y'=y-1)&(x'=x+1); (b'=1); (b'=mod(b+1, 3)); (x'=0); (b'=b)&(y'=y+1)",
    ];
    let (mut ends, mut endless) = (0, 0);
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..5);
        let command = |_| {
            let [guard, rate, update] = PARTS.map(|parts| {
                let all: Vec<&str> = parts.split("; ").collect();
                all[random.usize(..all.len())]
            });
            format!("[] ({guard}) & ({rate}) > 0 -> {rate} : {update}; ")
        };
        let commands: String = (0..count).map(command).collect();
        let instance = instance(&without_range(&commands), "");
        let part = instance.explore_part(None, MOST as u64, &Options::default());
        let limited = Options { memory_limit: Some(1 << 20), ..Options::default() };
        match (part, instance.explore(&limited)) {
            (Ok(part), found) if part.edge().is_empty() => {
                assert_eq!(found.unwrap_or_else(|e| panic!("{commands}: {e}")).states(), part.states());
                ends += 1;
            }
            (_, Err(error)) => endless += usize::from(error.to_string().contains("without end")),
            (part, Ok(found)) => assert!(part.is_ok() && found.states() > MOST, "{commands}"),
        }
    }
    assert!(ends > 100 && endless > 100, "{ends} {endless}");
}

#[test]
fn a_lack_of_memory_names_the_variable_that_grows() {
    let counters = without_range("[] x<2000 -> 1 : (x'=x+1); [] y<2000 -> 1 : (y'=y+1);");
    let limited = Options { memory_limit: Some(1 << 22), ..Options::default() };
    let error = instance(&counters, "").explore(&limited).expect_err("4 MiB are too little").to_string();
    for part in ["the limit is 4.0 MiB; '", "' has no range and has reached "] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
#[ignore = "slow: explores many states"]
fn a_variable_that_grows_is_noted() {
    let reached = std::sync::Mutex::new(None);
    let note = |progress: Progress| {
        let mut reached = reached.lock().expect("no panic");
        *reached = progress.reached.or(*reached);
        true
    };
    let large = without_range("[] x<800 -> 1 : (x'=x+1); [] y<800 -> 1 : (y'=y+1);");
    instance(&large, "").explore(&Options { progress: Some(&note), ..Options::default() }).expect("it ends");
    assert!(reached.into_inner().expect("no panic").is_some_and(|(_, value)| value > 10));
}

#[test]
fn memory_and_interruption_end_the_work() {
    let limited = Options { memory_limit: Some(1 << 20), ..Options::default() };
    let error = instance(&counters(6, 8), "").explore(&limited).expect_err("a MiB is too little");
    assert!(matches!(&error, Error::Size(message) if message.contains("the limit is 1.0 MiB")), "{error}");

    let calls = AtomicU64::new(0);
    let stop = |progress: Progress| {
        assert!(progress.states > 0);
        calls.fetch_add(1, Ordering::Relaxed);
        false
    };
    let stopping = Options { progress: Some(&stop), ..Options::default() };
    let error = instance(&counters(8, 8), "").explore(&stopping).expect_err("it is stopped");
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert!(calls.into_inner() > 0);
}

#[test]
fn a_state_with_many_successors_has_each_once() {
    let updates: Vec<String> = (0..400).map(|k| format!("1 : (x'={})", k % 150 + 1)).collect();
    let space =
        explored(&format!("ctmc module m x : [0..200]; [] x=0 -> {}; endmodule", updates.join(" + ")), "");
    let row: Vec<(u32, f64)> = space.chain().row(0).collect();
    assert_eq!(row.len(), 150);
    assert!(row.iter().all(|(to, rate)| *rate == if *to <= 100 { 3.0 } else { 2.0 }), "{row:?}");
}

/// Partial explorations, continued from the whole boundary until it is empty.
#[test]
fn parts_grow_to_the_whole() {
    let instance = instance(WORKSHOP, "N=30");
    let whole = explored(WORKSHOP, "N=30");
    let mut space = instance.explore_part(None, 20, &Options::default()).expect("a part");
    assert!(space.states() >= 20 && space.states() < whole.states(), "{}", space.states());
    let mut parts = 1;
    while !space.edge().is_empty() {
        assert!(space.edge().iter().all(|state| space.chain().row(*state as usize).len() == 0));
        assert!(matches!(space.label("deadlock"), Err(Error::Name(_))) && space.deadlocks().is_empty());
        let part = space.part();
        assert_eq!((part.states(), part.edge()), (space.states(), space.edge()));
        let least = part.states() as u64 * 3 / 2;
        space = instance.explore_part(Some((&part, part.edge())), least, &Options::default()).expect("more");
        assert!(space.states() > part.states());
        parts += 1;
    }
    assert!(parts > 3, "{parts}");
    assert_eq!((space.chain(), space.initial()), (whole.chain(), whole.initial()));
    assert_eq!(space.label("deadlock").expect("known"), vec![false; whole.states()]);
}

#[test]
fn a_part_grows_where_it_is_told_to() {
    const WALK: &str = "ctmc\nmodule walk\nx : int;\n[] true -> 1 : (x'=x+1) + 2 : (x'=x-1);\nendmodule\n";
    let instance = instance(WALK, "");
    let range = |space: &StateSpace| {
        let of = |state: usize| space.values(state)[0];
        let edge: Vec<i64> = space.edge().iter().map(|state| of(*state as usize)).collect();
        (of(0), of(space.states() - 1), edge)
    };
    let space = instance.explore_part(None, 6, &Options::default()).expect("a part");
    assert_eq!(range(&space), (-3, 3, vec![-3, 3]));
    let up = space.edge()[1];
    let space = instance.explore_part(Some((&space.part(), &[up])), 10, &Options::default()).expect("a part");
    assert_eq!(range(&space), (-3, 6, vec![-3, 6]));
    assert_eq!(space.chain().row(5).collect::<Vec<_>>(), [(4, 2.0), (6, 1.0)]);
    // The result does not depend on the number of threads.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    let other = pool.install(|| instance.explore_part(None, 5000, &Options::default()).expect("a part"));
    let one = instance.explore_part(None, 5000, &Options::default()).expect("a part");
    assert_eq!((other.chain(), other.edge()), (one.chain(), one.edge()));
}

#[test]
fn rewards_are_bounded_where_conditions_bound_them() {
    let instance = instance(include_str!("inputs/rewards.sm"), "");
    let limit = |name: &str, all: bool| instance.reward_limit(Some(name), all).expect("a limit");
    // The interval product of x in -2..4 with itself is -8..16.
    assert_eq!(limit("inside", true), 13.0);
    assert_eq!(limit("outside", true), f64::INFINITY);
    assert_eq!(limit("sum", true), 14.0);
    assert_eq!((limit("gone", true), limit("gone", false)), (18.0, 0.0));
    assert_eq!((limit("grown", true), limit("grown", false)), (f64::INFINITY, 1.0));
    let shares = limit("shares", true);
    assert!((shares - (5.0 / 3.0 + 3.0 + 25.0 + 2.0)).abs() < 1e-9, "{shares}");
    assert!(instance.reward_limit(Some("none"), true).is_err());
}

/// Two modules of a chain in discrete time: one synchronised choice, and two commands of `a`.
const COINS: &str = include_str!("inputs/coins.pm");

#[test]
fn choices_are_equally_likely_in_discrete_time_and_synchronised_probabilities_multiply() {
    let space = explored(COINS, "");
    let place = |values: [i64; 2]| (0..space.states()).find(|&s| space.values(s) == values).expect("a state");
    let row = |from: [i64; 2], to: [i64; 2]| {
        let to = place(to) as u32;
        space.chain().row(place(from)).find(|(state, _)| *state == to).map(|(_, p)| p)
    };
    assert_eq!(row([0, 0], [1, 0]), Some(0.25 * (1.0 / 3.0)));
    assert_eq!(row([0, 0], [2, 1]), Some(0.75 * (2.0 / 3.0)));
    assert_eq!(row([1, 0], [0, 0]), Some(0.5));
    assert_eq!(row([1, 0], [2, 0]), Some(0.25));
    assert_eq!(space.self_loops(), [(place([1, 0]) as u32, 0.25), (place([1, 1]) as u32, 0.25)]);
    assert_eq!(space.overlaps(), 2);
    assert_eq!(space.deadlocks().len(), 3, "x = 2, and x = 0 after y = 1");
    let rewards = space.rewards(Some("go")).expect("rewards");
    let expected = [([0, 0], 3.0), ([1, 0], 1.0), ([1, 1], 1.0), ([0, 1], 0.0), ([2, 0], 5.0)];
    expected
        .into_iter()
        .for_each(|(values, reward)| assert_eq!(rewards[place(values)], reward, "{values:?}"));
}

#[test]
fn probabilities_that_do_not_sum_to_1_are_an_error_with_state_and_command() {
    let text = "dtmc module m\n x : [0..3];\n [] x < 3 -> x/4 + 0.25 : (x'=x+1) + 0.75 : (x'=0);\nendmodule";
    let message = trouble(text).to_string();
    for part in ["test.sm:3", "(x=1)", "sum to 1.25", "expected 1"] {
        assert!(message.contains(part), "{message}");
    }
    explored("dtmc module m x : bool; [] true -> 0.1 : (x'=true) + 0.2 : true + 0.7 : true; endmodule", "");
}

/// Two clusters with a shared repair worker, after the workstation cluster of Haverkort and others.
const CLUSTER: &str = include_str!("inputs/cluster.sm");

/// Polling of two stations, with a rate by a table, a self-loop, and equal targets of two updates.
const POLLING: &str = include_str!("inputs/polling.sm");

/// Retries in discrete time, with overlapping commands and a self-loop.
const RETRY: &str = include_str!("inputs/retry.pm");

/// Commands of a state with more successors than rows that are searched for equal targets.
fn wide() -> String {
    let update = |k: usize| format!("a*{k} : (x'={})", 1 + k % 70);
    let updates: Vec<String> = (1..150).map(update).collect();
    format!("ctmc const double a; module m x : [0..70]; [] x=0 -> {}; endmodule", updates.join(" + "))
}

fn expect_equal(a: &StateSpace, b: &StateSpace) {
    assert!(a.chain() == b.chain(), "rates");
    assert_eq!((a.self_loops(), a.deadlocks(), a.initial()), (b.self_loops(), b.deadlocks(), b.initial()));
    assert_eq!((a.overlaps(), a.transitions()), (b.overlaps(), b.transitions()));
    for label in a.instance().model().labels() {
        // A second call has the values that the first one keeps.
        assert_eq!(a.label(label).expect("a label"), b.label(label).expect("a label"));
        assert_eq!(a.label(label).expect("a label"), b.label(label).expect("a label"));
    }
    if a.instance().model().reward_structures().next().is_some() {
        assert_eq!(a.rewards(None).expect("rewards"), b.rewards(None).expect("rewards"));
    }
}

#[test]
fn other_rates_are_those_of_an_exploration() {
    let workshop = WORKSHOP.replace("fail = 1/40", "fail");
    for (text, fixed, name, values) in [
        (CLUSTER, "N=4,", "fail", ["0.002", "0.1", "1/3"]),
        (POLLING, "", "mu", ["1", "0.3", "3"]),
        (RETRY, "", "p", ["0.5", "0.1", "1/3"]),
        (&workshop, "N=3,", "fail", ["1/40", "7", "1e-300"]),
        (&wide(), "", "a", ["1", "1/3", "1e-3"]),
    ] {
        let model = PrismModel::parse("test.sm", text).unwrap_or_else(|e| panic!("{e}"));
        let instance = |value: &str| {
            let constants = crate::given(&format!("{fixed}{name}={value}"));
            model.with_constants(&constants).unwrap_or_else(|e| panic!("{e}"))
        };
        let explored = |value: &str| instance(value).explore(&Options::default()).expect("states");
        let mut space = explored(values[0]);
        for value in values.iter().chain(&values[..1]) {
            assert!(space.rerate(&instance(value), &Options::default()).expect("rates"), "{name}={value}");
            expect_equal(&space, &explored(value));
        }
    }
}

#[test]
fn states_that_instances_reach_together_are_explored() {
    let text = "ctmc const double a; const double b;
        module m x : [0..3]; [] x=0 -> a : (x'=1); [] x=1 & b>0 -> b : (x'=2); endmodule";
    let model = PrismModel::parse("test.sm", text).expect("a model");
    let [first, second] =
        ["a=1,b=0", "a=0,b=2"].map(|given| model.with_constants(&crate::given(given)).expect("an instance"));
    let mut space =
        first.clone().alongside(std::slice::from_ref(&second)).explore(&Options::default()).expect("states");
    for (instance, rates, deadlocks) in [(&first, [1.0, 0.0], [1, 2]), (&second, [0.0, 2.0], [0, 2])] {
        assert!(space.rerate(instance, &Options::default()).expect("no interruption"));
        let values: Vec<_> = (0..3).map(|state| space.values(state)).collect();
        assert_eq!((values, &*space.chain().rates), (vec![vec![0], vec![1], vec![2]], &rates[..]));
        assert_eq!(space.deadlocks(), deadlocks);
    }
}

#[test]
fn constants_that_change_the_states_leave_known_ones_alone() {
    for case in section(TABLES, "other states") {
        let (text, known, other, error) =
            (case[0], case[1], case[2], case.get(3).copied().unwrap_or_default());
        let model = PrismModel::parse("test.sm", text).unwrap_or_else(|e| panic!("{e}"));
        let instance = |value: &str| {
            // Values such as 0/0 are not accepted as constants, but may result from some.
            let value = if value == "0/0" {
                kolmo_model::Value::Double(f64::NAN)
            } else {
                value.parse().expect("a value")
            };
            model.with_constants(&[("a".to_owned(), value)]).unwrap_or_else(|e| panic!("{e}"))
        };
        let mut space = instance(known).explore(&Options::default()).expect("states");
        let before = space.clone();
        let done = space.rerate(&instance(other), &Options::default()).expect("no interruption");
        assert!(!done, "{text}: {known} to {other}");
        expect_equal(&space, &before);
        match instance(other).explore(&Options::default()) {
            Ok(_) => assert!(error.is_empty(), "{text}: {other}"),
            Err(found) => assert!(!error.is_empty() && found.to_string().contains(error), "{found}"),
        }
    }
}
