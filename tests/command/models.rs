//! Models in the PRISM language and properties in CSL.
//!
//! The models belong to these tests. Expected values come from closed formulas, and from the matrix
//! exponentials of the table in docs/prism.md.

use crate::support::{DECAY, POOL, Place, QUEUE, Run, SERVER, bound, number, on_cpu};

fn check(place: &Place, line: &str) -> Run {
    place.kolmo(&on_cpu(&format!("check {line}")))
}

/// Returns the printed values and bounds of a successful check.
fn answers(place: &Place, line: &str) -> Vec<(String, f64)> {
    let run = check(place, line).ends(0, &[]);
    let rows = run.stdout.lines().skip(1).map(|line| {
        let mut fields = line.rsplitn(3, ',');
        let bound = number(fields.next().expect("a bound"));
        (fields.next().expect("a value").to_owned(), bound)
    });
    rows.collect()
}

/// Asserts that an answer encloses a number, up to some additional error, and returns its bound.
#[track_caller]
fn encloses((value, bound): &(String, f64), wanted: f64, error: f64) -> f64 {
    let value = number(value);
    assert!(value == wanted || (value - wanted).abs() <= bound + error, "{value} ± {bound:e}, {wanted}");
    *bound
}

/// Asserts the only answer to a line, up to the rounding of its closed form.
#[track_caller]
fn answer(place: &Place, line: &str, wanted: f64) -> f64 {
    let answers = answers(place, line);
    assert_eq!(answers.len(), 1, "{line}");
    encloses(&answers[0], wanted, 4.0 * f64::EPSILON * wanted.max(1.0))
}

fn place() -> Place {
    let place = Place::new();
    place.put("queue.sm", QUEUE).put("server.prism", SERVER).put("decay.sm", DECAY).put("pool.sm", POOL);
    place
}

#[test]
fn a_model_replaces_a_file_of_a_chain() {
    let place = place();
    const MODEL: &str = "queue.sm --const N=4";
    for format in ["tra", "drn", "umb", "mtx", "npz"] {
        place
            .kolmo(&format!("generate {MODEL} -o q.{format}"))
            .ends(0, &["explored 5 states, 8 transitions"]);
        let of = |model: &str| {
            place.transient(&format!("{model} --time 2 --quiet -o p.npy"));
            place.get("p.npy")
        };
        assert_eq!(of(&format!("q.{format}")), of(MODEL), "{format}");
        assert_eq!(of(MODEL), of("birth-death:5,1,2"), "{format}");
    }
    // Files of labels, state names and rewards are next to the chain.
    for more in [
        "--label full --label init",
        "--rewards customers",
        "--rewards served",
        "--top 2",
        "--until true full",
    ] {
        let of = |model: &str| place.transient(&format!("{model} --time 2 {more}")).stdout;
        assert_eq!(of("q.tra"), of(MODEL), "{more}");
        assert_eq!(of("q.drn"), of(MODEL), "{more}");
    }
    let names = place.names();
    let written: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("q.")).collect();
    assert_eq!(written, ["drn", "lab", "mtx", "npz", "srew", "sta", "tra", "umb"]);
    assert!(place.text("q.sta").ends_with("4:(4)\n"));
    for model in [MODEL, "q.tra", "q.drn", "q.umb"] {
        let [by_number, by_variable] = ["1,3-4", "q>=3|q=1"].map(|states| {
            let run = place.transient(&format!("{model} --time 2 --states {states}"));
            let mut lines: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        assert_eq!(by_variable, by_number, "{model}");
    }
    assert!(place.transient(&format!("{MODEL} --time 2 --top 1")).stdout.contains("(q=0)"));
    let warned = place.transient("decay.sm --time 1 --label deadlock").ends(0, &["stay for ever: 2"]);
    assert!((warned.column(2)[0] - (1.0 - (-4.0f64).exp())).abs() < 1e-9, "{}", warned.stdout);
}

/// Properties that are refused before or during the computation, next to two others.
#[test]
fn an_unsupported_property_leaves_the_others_checked() {
    let place = place();
    place.put("minus.sm", DECAY.replace("s = 0 : 5", "s = 0 : -5"));
    for (model, wrong, parts) in [
        ("queue.sm --const N=4", "filter(range, P=? [ F<=1 q=4 ], true)", &["min, max"][..]),
        ("queue.sm --const N=4", "P=? [ F<=1 q=4", &["some.csl:2"]),
        ("queue.sm --const N=4", "\"odd\": P=? [ F<=1 x=4 ]", &["some.csl:2"]),
        ("queue.sm --const N=4", "A [ F q=4 ]", &["some.csl:2"]),
        ("queue.sm --const N=4", "P=? [ F<=-1 q=4 ]", &["some.csl:2"]),
        ("minus.sm", "filter(max, R=? [ F s>0 ])", &[]),
    ] {
        let last = if model == "minus.sm" { "s=1" } else { "q=4" };
        let text = format!("\"one\": P=? [ F<=1 {last} ];\n{wrong};\n\"three\": S=? [ {last} ];\n");
        place.put("some.csl", text);
        let line = format!("{model} some.csl");
        let run = check(&place, &format!("{line} --report r.json")).ends(2, parts);
        assert!(run.stderr.contains("1 of 3 properties"), "{wrong}: {}", run.stderr);
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert!(lines.len() == 4 && lines[2].ends_with(",refused,"), "{wrong}: {}", run.stdout);
        let report = place.json("r.json");
        let refused = |row: usize| &report["properties"][row]["refused"];
        assert!(refused(1).is_string() && report["properties"][1]["value"].is_null(), "{report}");
        assert!(refused(0).is_null() && report["properties"][0]["value"].is_number(), "{report}");
        // The others have the answers that they have alone.
        let alone = answers(&place, &format!("{line} --prop one,three"));
        assert_eq!(alone.len(), 2);
        for ((value, bound), line) in alone.iter().zip([lines[1], lines[3]]) {
            let (rest, own) = line.rsplit_once(',').expect("a bound");
            assert_eq!((rest.rsplit(',').next(), number(own)), (Some(&value[..]), *bound), "{line}");
        }
        assert_eq!(answers(&place, &format!("{line} --prop 3")).len(), 1);
        let run = check(&place, &format!("{line} --prop 2")).ends(2, parts);
        assert!(run.stdout.lines().count() <= 2, "{}", run.stdout);
    }
}

/// The double nearest to the mean of a chain may be too large, and a qualitative property is
/// decided by the graph, fast and exactly.
#[test]
fn qualitative_properties_are_decided_by_the_graph() {
    let place = place();
    let line = "ctmc\nconst int N;\nmodule line\n n : [0..N];\n [] n<N -> 5 : (n'=n+1);\n [] n>0 -> n : (n'=n-1);\nendmodule\n";
    place.put("line.sm", line);
    let asked =
        |n: &str, property: &str| answers(&place, &format!("line.sm '{property}' --const {n}")).remove(0);
    assert_eq!(asked("N=1000", "P=? [ F n=N ]"), ("1".to_owned(), 0.0));
    assert_eq!(asked("N=1000", "P=? [ F<=1 n>N ]"), ("0".to_owned(), 0.0));
    assert_eq!(asked("N=1000", "P=? [ G<=1 n>=0 ]"), ("1".to_owned(), 0.0));
    for (property, wanted) in [
        ("P>=1 [ F n=N ]", "true"),
        ("P<1 [ F n=N ]", "false"),
        ("P>0 [ F<=0.01 n=N ]", "true"),
        ("P<=0 [ F<=0.01 n=N ]", "false"),
        ("P>=1 [ F<=1e9 n=1 ]", "false"),
        ("P<1 [ G<=0.001 n<N ]", "true"),
        ("P>0 [ X n=1 ]", "true"),
        ("filter(forall, P>0 [ F[1,2] n=N ])", "true"),
        ("P=? [ F<=1 P>=1 [ F n=N ] ]", "1"),
        ("T>=3 [ F n=1 ]", "false"),
    ] {
        assert_eq!(asked("N=60", property).0, wanted, "{property}");
    }
    // The mean time is 10^589: finite, but beyond the range of doubles.
    for property in ["T=? [ F n=N ]", "filter(max, T=? [ F n=N ])"] {
        let run = check(&place, &format!("line.sm '{property}' --const N=400")).ends(1, &[]);
        assert!(run.stdout.contains(",1.7976931348623157e308,inf"), "{}", run.stdout);
    }
    let wanted = (1.0 + 2.0 / 7.0) / 5.0;
    assert!(answer(&place, "line.sm 'filter(avg, P=? [ X n=1 ])' --const N=4", wanted) < 1e-14);
}

/// The reward is the double nearest to 0.1, so that its sum is known exactly.
#[test]
fn sums_over_states_have_the_rounding_of_their_additions() {
    let place = place();
    let many = "ctmc\nmodule m\n s : [0..99999];\n [] s<0 -> 1 : (s'=0);\nendmodule\n\
                rewards \"q\" true : 0.1; endrewards\ninit true endinit\n";
    place.put("many.sm", many).put("sum.tra", "3 2\n0 1 1\n0 2 0.7\n");
    place.put("sum.lab", "0=\"init\" 1=\"deadlock\" 2=\"b\"\n0: 0\n1: 2\n2: 2\n");
    for property in ["filter(sum, R{\"q\"}=? [ S ])", "filter(sum, R{\"q\"}=? [ I=1 ])"] {
        // 0.1 as a double is 0.1 + 2^-57.64.
        let found = answers(&place, &format!("many.sm '{property}'")).remove(0);
        let bound = encloses(&found, 1e4, 1e5 * 5.551_115_123_125_783e-18);
        assert!(bound > 0.0 && bound < 1e-7, "{property}: {bound}");
    }
    // 1 − e^(−1.7 t), in more digits than a double has: 1 less 3.643459985186158e-5.
    let off = |value: f64| ((1.0 - value) - 3.643_459_985_186_158e-5).abs();
    let property = "sum.tra 'P=? [ F<=6.011759817307616 \"b\" ]' --precision q64 --epsilon 1e-15";
    let (value, most) = answers(&place, property).remove(0);
    assert!(off(number(&value)) <= most + 1e-20 && most <= 1e-15, "{value} ± {most}");
    let run =
        place.transient("sum.tra --time 6.011759817307616 --until true b --precision q64 --report r.json");
    assert!(off(run.column(2)[0]) <= bound(&place.json("r.json")), "{}", run.stdout);
}

/// Pure birth processes that explode in finite time.
#[test]
fn an_explosion_is_reported_after_a_few_truncations() {
    let place = place();
    for (rate, first, time) in [("pow(n,1.5)", 1, "1"), ("n*n", 10, "0.1")] {
        let births =
            format!("ctmc\nmodule q\n n : int init {first};\n [] true -> {rate} : (n'=n+1);\nendmodule\n");
        place.put("explode.sm", &births);
        let line = format!("explode.sm 'P=? [ F[{time},{time}] n>20 ]' --truncate 1e-6 --epsilon 1e-5");
        check(&place, &line).ends(2, &["loses", "states"]);
    }
}

/// Births at a rate of second order and deaths at one of third order reach an equilibrium far from
/// the initial state.
#[test]
fn a_truncation_short_of_the_equilibrium_is_extended() {
    let place = place();
    let model = |range: &str, guard: &str| {
        format!(
            "ctmc\nmodule q\n n : {range} init 50;\n [] {guard} -> n*n/12.5 : (n'=n+1);\n \
             [] n>0 -> n*n*n/4375 : (n'=n-1);\nendmodule\n"
        )
    };
    place.put("endless.sm", model("int", "true")).put("whole.sm", model("[0..600]", "n<600"));
    let property = "'P=? [ F=0.4 n>=350 ]' --epsilon 1e-7";
    let cut = answers(&place, &format!("endless.sm {property} --truncate 1e-8")).remove(0);
    let whole = answers(&place, &format!("whole.sm {property}")).remove(0);
    // From 350 to 600 the stationary probabilities fall by Σ ln(n/350) = 73 in the exponent.
    assert!(encloses(&cut, number(&whole.0), whole.1 + 1e-12) <= 1e-7);
}

#[test]
fn constants_of_unselected_properties_are_ignored() {
    let place = place();
    place.put("two.csl", "const double T; \"soon\": P=? [ F<=T q=4 ]; \"now\": P=? [ F<=1 q=4 ];");
    let now = answers(&place, "queue.sm two.csl --const N=4 --prop now");
    assert_eq!(now, answers(&place, "queue.sm 'P=? [ F<=1 q=4 ]' --const N=4"));
    check(&place, "queue.sm two.csl --const N=4 --prop soon").ends(2, &["double T"]);
}

/// Asserts answers with bounds of at most `most`, in runs with some options.
fn closed_forms(options: &str, most: f64, cases: &[(&str, &str, f64)]) {
    let place = place();
    for (model, property, wanted) in cases {
        let bound = answer(&place, &format!("{model} '{property}' {options}"), *wanted);
        assert!(bound <= most, "{property}: {bound}");
    }
}

/// The queue with at most four customers.
const Q4: &str = "queue.sm --const N=4";

/// Stationary probability of a full queue and mean number of customers for N = 4.
///
/// With load r = 1/2, the probability of q customers is ∝ rᵠ.
fn stationary() -> (f64, f64) {
    let full = 0.5f64.powi(4) / (0..=4).map(|q| 0.5f64.powi(q)).sum::<f64>();
    (full, (0..=4).map(|q| f64::from(q) * full * 2f64.powi(4 - q)).sum())
}

/// Probability of having left the first state of [`DECAY`].
fn gone(t: f64) -> f64 {
    1.0 - (-4.0 * t).exp()
}

#[test]
fn properties_of_closed_form_are_answered() {
    let (full, mean) = stationary();
    closed_forms(
        "--epsilon 1e-12",
        1e-11,
        &[
            (Q4, "S=? [ \"full\" ]", full),
            (Q4, "R{\"customers\"}=? [ S ]", mean),
            (Q4, "R{\"served\"}=? [ S ]", 1.0 - full),
            (Q4, "P=? [ X q=1 ]", 1.0),
            (Q4, "filter(state, P=? [ X q=1 ], q=2)", 2.0 / 3.0),
            (Q4, "filter(avg, P=? [ F<=0 q>=3 ], true)", 0.4),
            (Q4, "filter(count, q>1)", 3.0),
            (Q4, "q + N", 4.0),
            ("decay.sm", "P=? [ F<=0.3 \"left\" ]", 0.75 * gone(0.3)),
            ("decay.sm", "P=? [ G<=0.3 s=0 ]", 1.0 - gone(0.3)),
            ("decay.sm", "P=? [ G[0.1,0.3] !\"left\" ]", 1.0 - 0.75 * gone(0.3)),
            ("decay.sm", "P=? [ s=0 U[0.1,0.3] \"left\" ]", 0.75 * (gone(0.3) - gone(0.1))),
            ("decay.sm", "P=? [ s=0 U>=0.1 \"left\" ]", 0.75 * (1.0 - gone(0.1))),
            ("decay.sm", "P=? [ s=0 U \"left\" ]", 0.75),
            ("decay.sm", "P=? [ F=0.2 s=2 ]", 0.25 * gone(0.2)),
            ("decay.sm", "R=? [ C<=0.5 ]", 5.0 * gone(0.5) / 4.0),
            ("decay.sm", "R=? [ I=0.5 ]", 5.0 * (1.0 - gone(0.5))),
            ("decay.sm", "filter(state, P=? [ X \"left\" ], \"left\")", 1.0),
        ],
    );
}

/// The reward from q to q + 1 is that of q, plus those of the returns from q − 1.
#[test]
fn rewards_until_a_condition_holds_have_their_closed_forms() {
    let up = |reward: fn(f64) -> f64| {
        let way = |(sum, way): (f64, f64), q: u32| {
            let next = reward(f64::from(q)) + 2.0 * way * f64::from(q.min(1));
            (sum + next, next)
        };
        (0..4).fold((0.0, 0.0), way).0
    };
    const LARGE: &str = "queue.sm --const N=600";
    closed_forms(
        "",
        1e-6,
        &[
            (Q4, "T=? [ F q=4 ]", up(|_| 1.0)),
            (Q4, "R{\"customers\"}=? [ F \"full\" ]", up(|q| q)),
            (Q4, "R{\"served\"}=? [ F \"full\" ]", up(|q| 2.0 * q.min(1.0))),
            (Q4, "R{\"served\"}=? [ F q=0 ]", 0.0),
            (Q4, "filter(avg, T=? [ F q=4 ], q>=3)", 7.5),
            // Iterated, since elimination would take longer.
            (LARGE, "filter(state, T=? [ F q=0 ], q=600)", 599.0),
            (LARGE, "filter(state, R{\"served\"}=? [ F q=0 ], q=600)", 1198.0),
            ("decay.sm", "R=? [ F s>0 ]", 1.25),
            ("decay.sm", "T=? [ F s>0 ]", 0.25),
            ("decay.sm", "R=? [ F \"left\" ]", f64::INFINITY),
            ("decay.sm", "T=? [ F false ]", f64::INFINITY),
            ("decay.sm", "R=? [ F true ]", 0.0),
        ],
    );
    // A model may have a constant named T.
    let place = place();
    place.put("t.csl", "const double T = 2; P=? [ F<=T s=1 ]; T=? [ F s>0 ]; T=2;");
    let values = answers(&place, "decay.sm t.csl --report r.json");
    assert_eq!((values.len(), &values[2].0[..]), (3, "true"));
    assert_eq!(place.json("r.json")["properties"][1]["value"], 0.25);
    check(&place, "decay.sm 'T=? [ F false ]' --report r.json");
    assert_eq!(place.json("r.json")["properties"][0]["value"], "inf");
}

/// Values for every state: in nested operators, in filters, and in files.
#[test]
fn values_for_every_state_have_their_closed_forms() {
    let (full, mean) = stationary();
    const LARGE: &str = "queue.sm --const N=300";
    closed_forms(
        "",
        1e-6,
        &[
            ("decay.sm", "P=? [ F<=0.3 P>=0.9 [ F<=1 s=1 ] ]", 0.75 * gone(0.3)),
            ("decay.sm", "P=? [ F<=0.3 P>=0.5 [ F<=1 s=1 ] ]", 1.0),
            ("decay.sm", "P=? [ F<=0.3 P<0.1 [ F s=1 ] ]", 0.25 * gone(0.3)),
            ("decay.sm", "P=? [ F<=0.3 (P<=0 [ F s=1 ] | P>=1 [ G<=7 s=1 ]) ]", gone(0.3)),
            ("decay.sm", "S=? [ P>=1 [ X s=1 ] ]", 0.75),
            ("decay.sm", "R=? [ F S>=0.9 [ s>0 & P>0 [ F<=0 s>0 ] ] ]", 0.0),
            ("decay.sm", "R=? [ F P>=0.5 [ F=0 s>0 ] ]", 1.25),
            ("decay.sm", "filter(sum, S=? [ s=1 ])", 1.75),
            ("decay.sm", "filter(sum, P=? [ X s=1 ])", 1.75),
            ("decay.sm", "filter(max, P=? [ s=0 U[0.1,0.3] s=1 ], s=0)", 0.75 * (gone(0.3) - gone(0.1))),
            ("decay.sm", "filter(max, P=? [ F=0.2 s=2 ], s<2)", 0.25 * gone(0.2)),
            ("decay.sm", "filter(max, R=? [ C<=0.5 ])", 1.25 * gone(0.5)),
            ("decay.sm", "filter(max, R=? [ I=0.5 ])", 5.0 * (1.0 - gone(0.5))),
            ("decay.sm", "filter(max, R=? [ F s=1 ])", f64::INFINITY),
            ("decay.sm", "filter(count, P>=0.5 [ F s=1 ])", 2.0),
            (Q4, "filter(sum, T=? [ F q=4 ])", 26.0 + 25.0 + 22.0 + 15.0),
            (Q4, "filter(max, R{\"customers\"}=? [ F q=4 ], q<3)", 16.0),
            (Q4, "filter(min, S=? [ \"full\" ])", full),
            (Q4, "filter(max, R{\"customers\"}=? [ S ], q<2)", mean),
            (Q4, "filter(avg, P=? [ G<=0 q>1 ])", 0.6),
            (Q4, "filter(min, q, q>1)", 2.0),
            // Iterated from below and above.
            (LARGE, "filter(max, T=? [ F q=0 ])", 299.0),
            (LARGE, "filter(min, P=? [ q>0 U q=300 ], q>=300)", 1.0),
            (LARGE, "filter(max, P=? [ q>0 U q=300 ], q<300)", 0.5),
        ],
    );
}

#[test]
fn bounds_are_true_false_or_undecided() {
    let place = place();
    // If a model has several initial states, a bound must hold in each.
    place.put("several.sm", DECAY.replace("endmodule", "endmodule\ninit s<2 endinit"));
    for (model, property, wanted) in [
        ("decay.sm", "P>=0.5 [ F<=1 \"left\" ]", "true"),
        ("decay.sm", "P<0.5 [ F<=1 \"left\" ]", "false"),
        ("decay.sm", "P>=0.75 [ F \"left\" ]", "undecided"),
        ("decay.sm", "P>0.75 [ X \"left\" ] | P>=0.5 [ F \"left\" ]", "true"),
        ("decay.sm", "P>=0.75 [ F \"left\" ] | P>=0.5 [ F \"left\" ]", "true"),
        ("decay.sm", "P>=0.75 [ F \"left\" ] & P>=0.5 [ F \"left\" ]", "undecided"),
        ("decay.sm", "R<=1.3 [ C<=10 ]", "true"),
        ("decay.sm", "R>3 [ F \"left\" ]", "true"),
        ("decay.sm", "S<0.3 [ s=2 ]", "true"),
        ("decay.sm", "s=0 & \"init\" & !\"deadlock\"", "true"),
        ("decay.sm", "filter(forall, s<2)", "false"),
        (Q4, "filter(forall, P>=0.1 [ F<=100 \"full\" ])", "true"),
        (Q4, "filter(exists, P<0.001 [ F<=100 \"full\" ])", "false"),
        (Q4, "P>0.3 [ F<=1 P>=0.9 [ F<=1 \"full\" ] ]", "false"),
        ("several.sm", "P>=0.5 [ F s=1 ]", "true"),
        ("several.sm", "P>=0.9 [ F s=1 ]", "false"),
    ] {
        assert_eq!(answers(&place, &format!("{model} '{property}'"))[0].0, wanted, "{property}");
    }
}

#[test]
fn accumulated_rewards_are_bounded_by_the_missing_window() {
    let place = Place::new();
    place.put(
        "pair.sm",
        "ctmc\nmodule pair\n  x : [0..1] init 0;\n  [] x=0 -> 1 : (x'=1);\n  [] x=1 -> 2 : (x'=0);\nendmodule\n\
         rewards \"up\" x=0 : 1; endrewards\n",
    );
    for (t, epsilon) in [(1.0f64, 1e-4), (1.0, 1e-12), (8.0, 1e-6), (30.0, 1e-4), (3e5, 1e-9), (3e9, 1e-7)] {
        let wanted = 2.0 / 3.0 * t + (1.0 - (-3.0 * t).exp()) / 9.0;
        let line = format!("pair.sm 'R{{\"up\"}}=? [ C<={t} ]' --epsilon {epsilon}");
        let bound = answer(&place, &line, wanted);
        // E (N − R − 1)⁺ beyond the last term R is less than P(N > R), and the more so the longer
        // the window.
        assert!(bound <= 0.5 * t * epsilon + 1e-13 * t, "{line}: ± {bound:e}");
    }
}

/// More rewards than one run of sweeps computes, for a chain that is not eliminated.
#[test]
fn rewards_until_one_condition_share_their_runs() {
    let place = Place::new();
    let walk = "ctmc\nmodule walk\n  x : [0..5000] init 300;\n  [] x < 5000 -> 1 : (x'=x+1);\n  [] x > 0 -> 2 : (x'=x-1);\nendmodule\n";
    let rewards: String = (1..=4).map(|k| format!("rewards \"r{k}\" true : {k}; endrewards\n")).collect();
    place.put("walk.sm", walk.to_owned() + &rewards);
    let mut asked: Vec<String> = (1..=4).map(|k| format!("'R{{\"r{k}\"}}=? [ F x=0 ]'")).collect();
    asked.insert(2, "'T=? [ F x=0 ]'".to_owned());

    let found = answers(&place, &format!("walk.sm {}", asked.join(" ")));

    // The mean time from x to 0 is x, less 2^(x − 5000) and smaller terms.
    assert_eq!(found.len(), 5);
    for (found, rate) in found.iter().zip([1.0, 2.0, 1.0, 3.0, 4.0]) {
        let wanted = 300.0 * rate;
        assert!(encloses(found, wanted, 4.0 * f64::EPSILON * wanted) <= 1.01e-9 * 5000.0 * rate, "{found:?}");
    }
}

#[test]
fn rewards_over_a_long_time_have_a_bound() {
    let place = Place::new();
    let side = |name: &str, sign: &str| format!("rewards \"{name}\" x {sign} 1500 : 1; endrewards\n");
    let walk = "ctmc\nmodule walk\n  x : [0..3000] init 1500;\n  [] x < 3000 -> 1 : (x'=x+1);\n  [] x > 0 -> 1 : (x'=x-1);\nendmodule\n";
    place.put("walk.sm", [walk, &side("left", "<"), &side("middle", "="), &side("right", ">")].concat());
    // αt is so large that a Chebyshev expansion replaces uniformization.
    let time = 40_000.0;
    let asked = ["left", "middle", "right"].map(|name| format!("'R{{\"{name}\"}}=? [ C<=40000 ]'"));

    let found = answers(&place, &format!("walk.sm {}", asked.join(" ")));

    let [left, middle, right] = [0, 1, 2].map(|k| number(&found[k].0));
    let bound: f64 = found.iter().map(|(_, bound)| bound).sum();
    assert!(bound < 1e-3, "{found:?}");
    approx::assert_abs_diff_eq!(left, right, epsilon = bound);
    approx::assert_abs_diff_eq!(left + middle + right, time, epsilon = bound);
    // Far from the ends: ∫ ds/√(4πs).
    approx::assert_relative_eq!(middle, (time / std::f64::consts::PI).sqrt(), max_relative = 0.01);
}

/// The value of each state is that of a run from this state alone.
#[test]
fn values_for_every_state_equal_single_ones() {
    let place = place();
    for question in [
        "P=? [ F<=2 \"full\" ]",
        "P=? [ q>0 U[1,3] q=2 ]",
        "R{\"served\"}=? [ C<=3 ]",
        "R{\"customers\"}=? [ I=3 ]",
    ] {
        place.ok(&format!("check {Q4} '{question}' --all-states -o v.csv"));
        let text = place.text("v.csv");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("state,q,") && lines.len() == 6, "{text}");
        for (q, line) in lines[1..].iter().enumerate() {
            assert!(line.starts_with(&format!("{q},{q},")), "{line}");
            let alone = answers(&place, &format!("{Q4} 'filter(state, {question}, q={q})'")).remove(0);
            encloses(&alone, number(line.rsplit(',').next().expect("a value")), 1e-7);
        }
    }
}

/// A total for ever is that until a closed class without a reward, from every state.
#[test]
fn total_rewards_end_in_closed_classes_without_a_reward() {
    let place = place();
    place.put(
        "game.sm",
        "ctmc\nmodule game\n  coins : [0..4] init 2;\n  [] coins>0 & coins<4 -> 2 : (coins'=coins+1);\n  \
         [] coins>0 & coins<4 -> 3 : (coins'=coins-1);\nendmodule\n\
         rewards \"held\" coins<4 : coins; endrewards\nrewards \"rich\" coins=4 : 1; endrewards\n",
    );
    let (total, until) = ("R{\"held\"}=? [ C ]", "R{\"held\"}=? [ F coins=0|coins=4 ]");
    let rich = "R{\"rich\"}=? [ C ]";
    let found = answers(&place, &format!("game.sm '{total}' '{until}' '{rich}' 'filter(max, {total})'"));
    assert_eq!(found[0], found[1]);
    encloses(&found[2], f64::INFINITY, 0.0);
    // From 3 coins: x₁ = (1 + 2 x₂)/5, x₂ = (2 + 3 x₁ + 2 x₃)/5, x₃ = (3 + 3 x₂)/5 give 96/65.
    encloses(&found[3], 96.0 / 65.0, 0.0);
    let column = |question: &str| {
        check(&place, &format!("game.sm '{question}' --all-states -o v.csv")).ends(0, &[]);
        let text = place.text("v.csv");
        let values = text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap_or_default().to_owned());
        values.collect::<Vec<_>>()
    };
    let from_all = column(total);
    assert_eq!(from_all.len(), 5);
    assert_eq!(from_all, column(until));
}
