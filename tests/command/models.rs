//! Models in the PRISM language and properties in CSL.
//!
//! The models belong to these tests. Expected values come from closed formulas, and from the matrix
//! exponentials of the table in docs/prism.md.

use serde_json::Value;

use crate::support::{
    DECAY, FAILING, POOL, Place, QUEUE, Run, SERVER, SWITCH, bound, float, number, on_cpu, section, signal,
    table,
};

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
    place.put_all(include_str!("inputs/models.txt"));
    place
}

#[test]
fn options_of_prism_have_one_dash() {
    let place = place();
    let ours = answers(&place, "queue.sm --const N=4 --prop 1 'P=? [ F<=10 q=4 ]'");
    let theirs = answers(&place, "queue.sm -const N=4 -s -ex -pf 'P=? [ F<=10 q=4 ]' -prop 1");
    assert_eq!(ours, theirs);
}

#[test]
fn a_model_replaces_a_file_of_a_chain() {
    let place = place();
    const MODEL: &str = "queue.sm --const N=4";
    let of = |model: &str| {
        place.transient(&format!("{model} --time 2 --quiet -o p.npy"));
        place.get("p.npy")
    };
    let own = of(MODEL);
    assert_eq!(own, of("birth-death:5,1,2"));
    for format in ["tra", "drn", "mtx", "npz"] {
        let run = place.ok(&format!("generate {MODEL} -o q.{format}"));
        run.ends(0, &["explored 5 states, 8 transitions"]);
        assert_eq!(of(&format!("q.{format}")), own, "{format}");
    }
    // Files of labels, state names and rewards are next to the chain.
    let selections =
        "--label full --label init; --rewards customers; --rewards served; --top 2; --until true full";
    for more in selections.split("; ") {
        let of = |model: &str| place.transient(&format!("{model} --time 2 {more}")).stdout;
        let own = of(MODEL);
        assert_eq!([of("q.tra"), of("q.drn")], [own.clone(), own], "{more}");
    }
    let names = place.names();
    let written: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("q.")).collect();
    assert_eq!(written, ["drn", "lab", "mtx", "npz", "srew", "sta", "tra"]);
    assert!(place.text("q.sta").ends_with("4:(4)\n"));
    for model in [MODEL, "q.tra", "q.drn"] {
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

/// Blocks with couplings of 1e-14 mix too slowly for a bound.
#[test]
fn a_long_run_ends_with_the_time_limit_and_says_what_limits_its_bound() {
    let place = Place::new();
    let walk = |v: &str| {
        let rate = |edge: u32| format!("(mod({v}, 10) = {edge} ? 1e-14 : 1)");
        let [up, down] = [rate(9), rate(0)];
        format!("[] {v} < 319 -> {up} : ({v}' = {v} + 1); [] {v} > 0 -> {down} : ({v}' = {v} - 1);")
    };
    let text = format!("ctmc module m x : [0..319]; y : [0..319]; {} {} endmodule", walk("x"), walk("y"));
    place.put("grid.sm", text);
    let line = "grid.sm 'S=? [ x < 160 ]' --time-limit 1 --report r.json";
    let run = check(&place, line).ends(1, &["NOT met", "limited by the time limit"]);
    assert!(number(run.rows()[1][2]) > 1e-9, "{}", run.stdout);
    assert_eq!(place.json("r.json")["limit"], "the time limit");
    check(&place, "grid.sm 'S=? [ x < 160 ]' --time-limit 0").ends(2, &["--time-limit 0 must be"]);
}

/// Properties that are refused before or during the computation, next to two others.
#[test]
fn an_unsupported_property_leaves_the_others_checked() {
    let place = place();
    place.put("minus.sm", DECAY.replace("s = 0 : 5", "s = 0 : -5"));
    for case in section(include_str!("wrong/properties.txt"), "beside others") {
        let [model, wrong, parts @ ..] = &case[..] else { panic!("{case:?}") };
        let last = if *model == "minus.sm" { "s=1" } else { "q=4" };
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

#[test]
fn derivatives_agree_with_closed_forms() {
    let place = place();
    place.put("failing.sm", FAILING);
    let (l, t) = (0.4f64, 2.0);
    let (left, both, square) = ((-l * t).exp(), (-l.powi(3) * t).exp(), (1.0 + l * l).powi(2));
    for (property, by_lambda, by_p) in [
        ("P=? [ F<=2 !up ]", t * left, 0.0),
        ("P=? [ G<=2 up ]", -t * left, 0.0),
        ("P=? [ F<=2 !a ]", 3.0 * l * l * t * both, l.powi(3) * l.ln() * t * both),
        ("P=? [ F<=2 up ]", 0.0, 0.0),
        ("P=? [ G<=2 !up ]", 0.0, 0.0),
        ("R{\"cost\"}=? [ C<=2 ]", 5.0 * t * left, 0.0),
        ("R{\"cost\"}=? [ I=2 ]", 5.0 * left * (1.0 - l * t), 0.0),
        ("P=? [ F<=0.001 !up ]", 0.001 * (-l * 0.001).exp(), 0.0),
        ("R{\"cost\"}=? [ C<=0.001 ]", 0.005 * (-l * 0.001).exp(), 0.0),
        ("P=? [ F<=2 \"lambda\" ]", t * left, 0.0),
        ("T=? [ F !up ]", -1.0 / (l * l), 0.0),
        ("P=? [ F !up & a ]", -2.0 * l / square, -l * l * l.ln() / square),
        ("R{\"cost\"}=? [ F !a ]", -10.0 * l / square, -5.0 * l * l * l.ln() / square),
        ("R{\"repairs\"}=? [ C<=2 ]", 3.0 * l * l * t * both, l.powi(3) * l.ln() * t * both),
        ("R{\"repairs\"}=? [ F !up ]", 2.0 * l / square, l * l * l.ln() / square),
        (
            "R{\"earned\"}=? [ C<=2 ]",
            5.0 * t * left + 2.0 - 2.0 * both + 6.0 * l.powi(3) * t * both,
            2.0 * l.powi(4) * l.ln() * t * both,
        ),
        ("S=? [ c=1 ]", 3.0 / (l + 3.0).powi(2), 0.0),
    ] {
        let line = format!("failing.sm '{property}' --const k=1 --gradient lambda,p --report r.json");
        let run = check(&place, &line).ends(0, &[]);
        let (header, row) = run.stdout.trim_end().split_once('\n').expect("two lines");
        assert_eq!(header, "property,value,bound,d/dlambda,bound of d/dlambda,d/dp,bound of d/dp");
        assert!(!row.contains(",-0,"), "{line}: {row}");
        let fields: Vec<f64> = row.rsplitn(5, ',').take(4).map(number).collect();
        let report = &place.json("r.json")["properties"][0]["gradient"];
        for (name, [bound, value], exact) in
            [("lambda", [fields[2], fields[3]], by_lambda), ("p", [fields[0], fields[1]], by_p)]
        {
            assert!((value - exact).abs() <= bound + 1e-15 && bound < 1e-8, "{line}: {name}: {row}");
            assert_eq!(report[name]["value"].as_f64(), Some(value), "{report}");
            assert_eq!(report[name]["bound"].as_f64(), Some(bound), "{report}");
        }
    }
}

#[test]
fn derivatives_of_every_operation_agree_with_closed_forms() {
    let place = place();
    let (l, t, third) = (0.4f64, 2.0, 3f64.ln());
    for (text, rate, change) in [
        ("lambda - 0.1", l - 0.1, 1.0),
        ("-(-lambda)", l, 1.0),
        ("lambda * lambda / (1 + lambda)", l * l / (1.0 + l), (l * l + 2.0 * l) / (1.0 + l).powi(2)),
        ("min(lambda, 1) + max(3 * lambda, 1)", 4.0 * l, 4.0),
        ("log(lambda + 2, 3)", (l + 2.0).ln() / third, 1.0 / (l + 2.0) / third),
        ("log(3, lambda + 2)", third / (l + 2.0).ln(), -third / (l + 2.0).ln().powi(2) / (l + 2.0)),
        ("pow(lambda + 1, 2 * lambda)", 1.4f64.powf(0.8), 1.4f64.powf(0.8) * (2.0 * 1.4f64.ln() + 0.8 / 1.4)),
        ("(up ? 2 * lambda : 1)", 2.0 * l, 2.0),
    ] {
        place.put("rate.sm", FAILING.replace("twice / 2", text));
        let run = check(&place, "rate.sm 'P=? [ F<=2 !up ]' --const k=1 --gradient lambda").ends(0, &[]);
        let fields: Vec<f64> = run.stdout.trim_end().rsplitn(3, ',').take(2).map(number).collect();
        let exact = change * t * (-rate * t).exp();
        assert!((fields[1] - exact).abs() <= fields[0] + 1e-15, "{text}: {}, not {exact}", run.stdout);
    }
}

#[test]
fn derivatives_that_do_not_exist_are_named() {
    let place = place();
    place.put("failing.sm", FAILING);
    place.put("floor.sm", FAILING.replace("twice / 2", "floor(twice + 1) * 0.5"));
    let line = "floor.sm 'P=? [ F<=2 !up ]' --const k=1 --gradient lambda";
    check(&place, line).ends(2, &["floor, ceil or round in a rate has no derivative by 'lambda'"]);
    place.put("tie.sm", FAILING.replace("twice / 2", "max(lambda, 0.4)"));
    check(&place, "tie.sm 'P=? [ F<=2 !up ]' --const k=1 --gradient lambda").ends(2, &["NaN"]);
    // A synchronisation that is never enabled has no rate.
    place.put(
        "root.sm",
        "ctmc const double x = 0; module a s : [0..1]; [a] s>1 -> 1 : true; [] s=0 -> 1 : (s'=1); endmodule \
         module b [a] true -> 1 + pow(x, 0.5) : true; endmodule rewards true : x; [a] true : 1; endrewards \
         rewards \"tie\" true : max(x, 0); endrewards",
    );
    let run = check(&place, "root.sm 'R=? [ C<=1 ]' --gradient x").ends(0, &[]);
    let fields: Vec<f64> = run.stdout.trim_end().rsplitn(3, ',').take(2).map(number).collect();
    assert!((fields[1] - 1.0).abs() <= fields[0] + 1e-15, "{}", run.stdout);
    check(&place, "root.sm 'R{\"tie\"}=? [ C<=1 ]' --gradient x")
        .ends(2, &["the derivative of a reward by 'x' is NaN in the state (s=0)"]);
    // The other property keeps its derivative.
    for case in section(include_str!("wrong/properties.txt"), "without derivatives") {
        let (property, why) = (case[0], case[1]);
        let line = format!("failing.sm '{property}' 'P=? [ F<=2 !up ]' --const k=1 --gradient lambda");
        let run = check(&place, &line).ends(2, &["no answer for 1 derivative:", why]);
        let rows: Vec<&str> = run.stdout.lines().skip(1).collect();
        assert!(rows[0].ends_with(",refused,") && !rows[1].contains("refused"), "{line}: {}", run.stdout);
    }
}

/// The double nearest to the mean of a chain may be too large, and a qualitative property is
/// decided by the graph, fast and exactly.
#[test]
fn qualitative_properties_are_decided_by_the_graph() {
    let place = place();
    let asked =
        |n: &str, property: &str| answers(&place, &format!("line.sm '{property}' --const {n}")).remove(0);
    assert_eq!(asked("N=1000", "P=? [ F n=N ]"), ("1".to_owned(), 0.0));
    assert_eq!(asked("N=1000", "P=? [ F<=1 n>N ]"), ("0".to_owned(), 0.0));
    assert_eq!(asked("N=1000", "P=? [ G<=1 n>=0 ]"), ("1".to_owned(), 0.0));
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
    let line = "sum.tra --time 6.011759817307616 --until true b --precision q64 --report r.json";
    let run = place.transient(line);
    assert!(off(run.column(2)[0]) <= bound(&place.json("r.json")), "{}", run.stdout);
}

/// In a closed class of one state, the reward is 3 times the double nearest to 0.1, which is
/// 0.3 + 1.7e-17; as a double it is rounded up by 2.8e-17.
#[test]
fn an_average_in_one_state_has_the_rounding_of_its_product() {
    let place = place();
    let average = "R{\"r\"}=? [ S ]";
    for property in [average, &format!("filter(max, {average})"), &format!("filter(sum, {average}, s=1)")] {
        let found = answers(&place, &format!("one.sm '{property}'")).remove(0);
        assert_eq!(number(&found.0), 0.1 * 3.0, "{property}");
        assert!((2.7e-17..1e-12).contains(&found.1), "{property}: {}", found.1);
    }
}

/// All probability reaches the last state. Krylov and Chebyshev approximations of it exceed 1.
#[test]
fn untils_are_at_most_one() {
    let place = Place::new();
    let up = (0..10).map(|s| format!("{s} {} {}\n", s + 1, 1.0 + 0.1 * f64::from(s)));
    let rates: String = up.chain((1..10).map(|s| format!("{s} {} 0.3\n", s - 1))).collect();
    place.put("row.tra", format!("11 19\n{rates}"));
    place.put("row.lab", "0=\"init\" 1=\"deadlock\" 2=\"b\"\n0: 0\n10: 1 2\n");
    for method in ["auto", "uniformization", "chebyshev", "krylov"] {
        let line = format!("row.tra --times 10:37:900 --until true b --method {method} --epsilon 1e-6");
        let values = place.transient(&line).column(2);
        let late = &values[values.len() - 4..];
        let right = values.iter().all(|p| *p <= 1.0) && late.iter().all(|p| *p > 1.0 - 1e-6);
        assert!(right, "{method}: {values:?}");
    }
}

/// Pure birth processes that explode in finite time.
#[test]
fn an_explosion_is_reported_after_a_few_truncations() {
    let place = place();
    for (rate, first, time) in [("pow(n,1.5)", 1, "1"), ("n*n*n", 10, "0.005")] {
        let births =
            format!("ctmc\nmodule q\n n : int init {first};\n [] true -> {rate} : (n'=n+1);\nendmodule\n");
        place.put("explode.sm", &births);
        let line = format!("explode.sm 'P=? [ F[{time},{time}] n>20 ]' --truncate 1e-6 --epsilon 1e-5");
        check(&place, &line).ends(2, &["loses", "states"]);
    }
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

/// Probability of having left the first state of [`DECAY`].
fn gone(t: f64) -> f64 {
    1.0 - (-4.0 * t).exp()
}

#[test]
fn properties_of_closed_form_are_answered() {
    // In steady state, the probability of q customers is ∝ rᵠ with the load r = 1/2.
    let full = 0.5f64.powi(4) / (0..=4).map(|q| 0.5f64.powi(q)).sum::<f64>();
    let mean = (0..=4).map(|q| f64::from(q) * full * 2f64.powi(4 - q)).sum::<f64>();
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

#[test]
fn bounds_are_true_false_or_undecided() {
    let place = place();
    // If a model has several initial states, a bound must hold in each.
    place.put("several.sm", DECAY.replace("endmodule", "endmodule\ninit s<2 endinit"));
    for case in table(include_str!("inputs/verdicts.txt")) {
        assert_eq!(answers(&place, case[0])[0].0, case[1], "{}", case[0]);
    }
}

#[test]
fn accumulated_rewards_are_bounded_by_the_missing_window() {
    let place = place();
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
    let place = place();
    let mut asked: Vec<String> = (1..=4).map(|k| format!("'R{{\"r{k}\"}}=? [ F x=0 ]'")).collect();
    asked.insert(2, "'T=? [ F x=0 ]'".to_owned());

    let found = answers(&place, &format!("long.sm {}", asked.join(" ")));

    // The mean time from x to 0 is x, less 2^(x − 5000) and smaller terms.
    assert_eq!(found.len(), 5);
    for (found, rate) in found.iter().zip([1.0, 2.0, 1.0, 3.0, 4.0]) {
        let wanted = 300.0 * rate;
        assert!(encloses(found, wanted, 4.0 * f64::EPSILON * wanted) <= 1.01e-9 * 5000.0 * rate, "{found:?}");
    }
}

#[test]
fn rewards_over_a_long_time_have_a_bound() {
    let place = place();
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

#[test]
fn undecided_states_are_reported_and_enclosed() {
    let place = place();
    place.ok("check decay.sm 'P>=0.75 [ F s=1 ]' s>0 --all-states -o v.npy");
    let (_, values) = crate::support::npy(&place.get("v.npy"));
    assert!(values[0].is_nan() && values[1..] == [1.0, 0.0, 0.0, 1.0, 1.0], "{values:?}");
    // A refused property has a row, too.
    check(&place, "decay.sm s>0 'R{\"none\"}=? [ C<=1 ]' --all-states -o v.npy").ends(2, &["1 of 2"]);
    let (_, values) = crate::support::npy(&place.get("v.npy"));
    assert!(values.len() == 6 && values[1] == 1.0 && values[3..].iter().all(|value| value.is_nan()));
    // An undecided nested property gives an enclosure.
    let run = check(&place, "decay.sm 'P=? [ F<=0.3 P>=0.75 [ F s=1 ] ]'");
    assert!(run.stderr.contains("1 states, such as (s=0)"), "{}", run.stderr);
    let line = run.stdout.lines().nth(1).expect("an answer");
    let fields: Vec<f64> = line.rsplit(',').take(2).map(number).collect();
    assert!(fields[1] - fields[0] <= 0.75 * gone(0.3) && fields[1] + fields[0] >= 1.0, "{line}");
}

/// The values in the document were computed without kolmo.
#[test]
fn a_model_and_its_file_have_the_answers_of_the_table() {
    let place = place();
    place.ok("generate server.prism -o server.tra");
    let page = include_str!("../../docs/prism.md").replace("\\|", "|");
    let mut seen = 0;
    for line in page.lines().filter(|line| line.contains("`server.tra ")) {
        let property = line.split('`').nth(1).expect("a property");
        let answer = line.trim_end_matches('|').rsplit('|').next().expect("an answer").trim();
        let wanted = number(answer.split(' ').next().expect("a number"));
        let wanted = if line.contains("as 1 −") { 1.0 - wanted } else { wanted };
        for model in ["server.prism", "server.tra"] {
            encloses(&answers(&place, &format!("{model} '{property}'"))[0], wanted, 1e-13);
            seen += 1;
        }
    }
    assert_eq!(seen, 32);
}

/// A failing value has rows with the reason, and loses no other value.
#[test]
fn values_are_answered_one_by_one() {
    let place = Place::new();
    place.put("m.sm", SWITCH).put("k.sm", SWITCH.replace("k = 1", "k"));
    // A byte order mark, quoted fields, blanks, line ends of Windows, empty and malformed lines.
    let samples = "\u{feff}\"up\" , T\r\n1,2\r\n\r\n , \r\n-1,2\r\n\"0.5\",\" 3\"\r\n1,x\r\n2\r\n1/2,-1\r\n";
    place.put("s.csv", samples);
    let line = "m.sm 'const double T; P=? [ F<=T !on ]' --const down=1";
    for case in section(include_str!("inputs/studies.txt"), "values one by one") {
        let (line, said, rows) = (case[0], case[1], case[2]);
        // A second property has its own row for each value.
        for more in ["", "'P=? [ F<=2 !on ]'"] {
            let said: Vec<&str> = said.split('|').collect();
            let run = check(&place, &format!("{line} {more} --report r.json")).ends(1, &said);
            let all = run.stdout.lines().skip(1).filter(|line| !line.starts_with("P=? [ F<=2"));
            let found: Vec<&str> = all.map(|line| line.split_once(" ],").expect("a property").1).collect();
            assert_eq!(found.len(), rows.split(' ').count(), "{}", run.stdout);
            for (found, row) in found.iter().zip(rows.split(' ')) {
                let (values, exponent) = row.split_once(':').expect("a row");
                let answer = found.strip_prefix(&format!("{values},")).expect("the values");
                let value = answer.split(',').next().expect("a value");
                match exponent.parse::<f64>() {
                    Ok(t) => assert!((number(value) + (-t).exp_m1()).abs() < 1e-9, "{found}"),
                    Err(_) => assert_eq!(answer, "refused,", "{found}"),
                }
            }
            let report = place.json("r.json");
            let mut all = report["properties"].as_array().expect("properties").iter();
            assert!(report["status"] == "not_met" && all.any(|row| row["refused"].is_string()));
            assert!(all.all(|row| row["refused"].is_string() == row["bound"].is_null()));
        }
    }
    let run = check(&place, "tandem:3 'const double T; P=? [ F<=T \"init\" ]' --const T=1|x");
    assert_eq!(run.ends(1, &["T: invalid value 'x'"]).rows()[2][1..], ["", "refused", ""]);
    let alone = place.ok(&format!("check {line},up=0.5,T=3"));
    let among = check(&place, &format!("{line} --samples s.csv")).ends(1, &[]);
    assert_eq!(alone.rows()[1][1..], among.rows()[3][3..], "the answer of a run alone");
}

/// Values with one structure share an exploration, in any order.
#[test]
fn values_with_one_structure_are_explored_once() {
    let place = Place::new();
    place.put("k.sm", SWITCH.replace("k = 1", "k"));
    for (constants, explorations, rows) in [
        ("up=1|2|3,down=1,k=1:40", 40, 120),
        ("up=1,down=0|1|0|2|0|3,k=1", 2, 6),
        ("up=1,down=0|1|-1|0|2|-1|3,k=1", 2, 7),
    ] {
        let run = check(&place, &format!("k.sm 'P=? [ F<=1 !on ]' --const {constants} --report r.json"));
        assert_eq!(place.json("r.json")["explorations"], explorations, "{constants}");
        assert_eq!(run.rows().len(), 1 + rows, "{constants}");
    }
}

/// Sets of no or all states need no solver, however slow the chain is.
#[test]
fn long_runs_of_all_states_are_exact_and_hopeless_ones_end() {
    let place = Place::new();
    place.put("walk.pm", include_str!("inputs/walk.pm"));
    for (property, value) in [
        ("S=? [ \"all\" ]", "1,0"),
        ("S=? [ \"none\" ]", "0,0"),
        ("S>=1 [ \"all\" ]", "true,0"),
        ("filter(min, S=? [ \"all\" ], x<9)", "1,0"),
    ] {
        let run = place.ok(&format!("check walk.pm '{property}'"));
        assert!(run.stdout.trim_end().ends_with(&format!(",{value}")), "{}", run.stdout);
    }
    let run = check(&place, "walk.pm 'S=? [ x=101 ]'").ends(1, &["NOT met"]);
    assert_eq!(run.rows()[1][1..], ["0.5", "0.5"]);
}

#[test]
fn every_column_of_all_states_has_a_name_of_its_own() {
    let place = Place::new();
    place.put("m.sm", SWITCH);
    place.ok("check m.sm 'const double T; P=? [ F<=T !on ]' --const up=1,down=1,T=1|2 --all-states -o v.csv");
    let head = "state,on,c,P=? [ F<=T !on ] T=1,P=? [ F<=T !on ] T=2";
    assert_eq!(place.text("v.csv").lines().next(), Some(head));
}

#[test]
fn ranges_add_columns_and_share_runs() {
    let place = place();
    let run = place.ok("check queue.sm queue.csl --const N=3:4,T=1:0.5:2 --report r.json");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!((lines[0], lines.len()), ("property,N,T,value,bound", 1 + 2 * 3 * 5));
    assert!(lines[1].starts_with("\"P=? [ F<=T \"\"full\"\" ]\",3,1,0."), "{}", lines[1]);
    assert!(lines[30].starts_with("P=? [ F=T q=0 ],4,2,0."), "{}", lines[30]);
    let report = place.json("r.json");
    // For each chain, one uniformization run reaches "full", and one computes all other properties
    // at all times.
    assert_eq!(report["sweeps"], 4);
    assert_eq!(report["chains"][1]["n"], 5);
    assert_eq!(report["properties"][0]["name"], "soon");
    assert_eq!(report["properties"][0]["constants"]["T"], 1.0);
    // Each property alone has the value that it has with the others.
    let alone = |which: &str| answers(&place, &format!("queue.sm queue.csl --const N=4,T=1 --prop {which}"));
    for (k, line) in lines[16..21].iter().enumerate() {
        let value = number(line.rsplit(',').nth(1).expect("a value"));
        assert!((number(&alone(&(k + 1).to_string())[0].0) - value).abs() < 1e-9, "{line}");
    }
    assert_eq!(alone("held,1").len(), 2);
}

#[cfg(unix)]
#[test]
fn an_exploration_can_be_interrupted() {
    let place = Place::new();
    place.put("many.sm", include_str!("inputs/counters.sm"));
    let line = "generate many.sm -o m.tra --memory-limit 1GiB";
    let child = place.start(line);
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(signal("-INT", &[child.id()]));
    Run::of(line, child.wait_with_output().expect("it ends")).ends(130, &["interrupted"]);
    assert_eq!(place.names(), ["many.sm"]);
}

/// Every value of a study has the bits of a run alone.
#[test]
fn studies_have_the_answers_of_single_runs() {
    let place = Place::new();
    place.put("m.sm", include_str!("inputs/stations.sm")).put("d.pm", include_str!("inputs/steps.pm"));
    // Properties that end at many of its 4394 states: the chains are reduced.
    place.put("line.sm", include_str!("../models/line.sm").replace("slow = 0.9", "slow"));
    let tables = include_str!("inputs/studies.txt");
    for case in section(tables, "studies") {
        let [model, count, constants, values, explorations] = case[..] else { panic!("{case:?}") };
        let (mut properties, columns) = (section(tables, model).concat(), values.split(',').count());
        properties.truncate(count.parse().expect("a number"));
        let asked: Vec<String> = properties.iter().map(|text| format!("'{text}'")).collect();
        let line = format!("check {model} {} --epsilon 1e-10 --report r.json --const ", asked.join(" "));
        let given = format!("{constants},{values}");
        let all = place.ok(&format!("{line}{}", given.trim_start_matches(',')));
        assert_eq!(place.json("r.json")["explorations"].to_string(), explorations, "{model} {given}");
        let lines: Vec<&str> = all.stdout.lines().collect();
        let names: Vec<&str> = lines[0].split(',').skip(1).take(columns).collect();
        for lines in lines[1..].chunks(properties.len()) {
            // A property may contain commas.
            let fields = |line| str::rsplitn(line, names.len() + 3, ',').collect::<Vec<&str>>();
            let first = fields(lines[0]);
            let own = names.iter().rev().zip(&first[2..]);
            let own: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
            let given = format!("{constants},{}", own.join(","));
            let alone = place.ok(&format!("{line}{}", given.trim_start_matches(',')));
            for (line, alone) in lines.iter().zip(alone.stdout.lines().skip(1)) {
                let line = fields(line);
                let line = format!("{},{},{}", line[names.len() + 2], line[1], line[0]);
                assert_eq!(line, alone, "{given}");
            }
        }
    }
    let note = "note: p=0,r=1,t=3,c=5 changes the states";
    check(&place, "m.sm 'P=? [ F<=2 a>2 ]' --const p=1|0,r=1,t=3,c=5").ends(0, &[note]);
}

#[test]
fn answers_go_to_a_file_and_a_chart() {
    let place = place();
    let line = "check queue.sm 'const double T; P=? [ F<=T q=N ]' --const N=3:4,T=1:5";
    let printed = place.ok(line);
    let run = place.ok(&format!("{line} -o a.csv --plot a.svg"));
    assert_eq!((run.stdout.as_str(), place.get("a.csv")), ("", printed.stdout.clone().into_bytes()));
    let chart = String::from_utf8(place.get("a.svg")).expect("text");
    assert!(chart.contains("P=? [ F&lt;=T q=N ] N=3") && chart.contains(">T<"), "{chart}");
    // Many values of two constants make a heat map: 28 · 4 cells, the largest value in yellow.
    place.ok(&line.replace("3:4,T=1:5", "3:30,T=1:3|20").replace("check", "check --plot h.svg"));
    let map = place.text("h.svg");
    let cells: Vec<&str> = map.split("class=\"legend\"").next().unwrap().matches("crispEdges").collect();
    assert_eq!((cells.len(), map.contains(">N<"), map.contains(">T<")), (28 * 4, true, true));
    let largest: Vec<&str> = map.lines().filter(|line| line.contains("#FDE725")).collect();
    // T = 20 is in the last of four columns.
    assert!(matches!(largest[..], [only] if only.contains("x=\"220\"")), "{largest:?}");
    let of = |rest: &str, why: &str| {
        check(&place, &format!("queue.sm 'const double T; P=? [ F<=T q=N ]' --plot a.svg {rest}"))
            .ends(2, &[why]);
    };
    of("--const N=3,T=1", "values of a constant; give several");
    of("'S=? [ q=0 ]' --const N=3:30,T=1:3", "draws at most");
    of("--const N=3,T=1:3 -o a.npy", ".csv");
}

/// Blocks of docs/models.md and docs/prism.md: the written files, and the output of `kolmo check`.
#[test]
fn pages_show_the_printed_output() {
    says_what_is_printed(include_str!("../../docs/models.md"), 4 + 5 + 4);
    says_what_is_printed(include_str!("../../docs/prism.md"), 3);
}

fn says_what_is_printed(page: &str, lines: usize) {
    let place = Place::new();
    let mut commands: Vec<&str> = Vec::new();
    let mut seen = 0;
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(script) = block.strip_prefix("sh\n") {
            for file in script.split("cat > ").skip(1) {
                let (name, rest) = file.split_once(" << 'END'\n").expect("a file's name");
                place.put(name, rest.split_once("END\n").expect("its end").0);
            }
            for line in script.lines().filter(|line| line.starts_with("kolmo generate server.sm")) {
                place.ok(line.split('#').next().expect("a line").trim_start_matches("kolmo "));
            }
            commands = script.lines().filter(|line| line.starts_with("kolmo check")).collect();
        } else if let Some(wanted) = block.strip_prefix("text\n") {
            let command = commands.pop().expect("a command").trim_start_matches("kolmo ");
            let run = place.ok(command);
            let (wanted, got) = (wanted.lines(), run.stdout.lines());
            assert_eq!(wanted.clone().count(), got.clone().count());
            for (wanted, got) in wanted.zip(got) {
                let parts = |line: &str| -> Vec<String> { line.rsplitn(3, ',').map(str::to_owned).collect() };
                let (wanted, got) = (parts(wanted), parts(got));
                assert_eq!(wanted[2], got[2]);
                match (wanted[1].parse::<f64>(), got[1].parse::<f64>()) {
                    (Ok(a), Ok(b)) => assert!((a - b).abs() <= number(&wanted[0]) + number(&got[0])),
                    _ => assert_eq!(wanted[1], got[1]),
                }
                seen += 1;
            }
        }
    }
    assert_eq!(seen, lines);
}

/// Files with the encodings of other programs.
#[test]
fn files_of_other_encodings() {
    let place = place();
    let model = b"ctmc\n// Zuverl\xe4ssigkeit\nmodule q\n n:[0..1];\n [] n=0 -> 2:(n'=1);\nendmodule\n";
    place.put("latin1.sm", model);
    place.put("lat.csl", b"P=? [ F<=1 n=1 ]\r\n\r\n// caf\xe9\r\nP=? [ F<=2 n=1 ];\r\n");
    place.put("bom.csl", b"\xef\xbb\xbfP=? [ F<=1 n=1 ]\r\n");
    let found = answers(&place, "latin1.sm lat.csl bom.csl");
    assert_eq!(found.len(), 3);
    for (found, t) in found.iter().zip([1.0, 2.0, 1.0f64]) {
        encloses(found, 1.0 - (-2.0 * t).exp(), 4.0 * f64::EPSILON);
    }
    // A sum or a number is a property.
    let values = answers(&place, "queue.sm q+1.5 N/2 --const N=4");
    assert_eq!(values.iter().map(|(value, _)| number(value)).collect::<Vec<_>>(), [1.5, 2.0]);
    // A range of one value is a value.
    let run = check(&place, "queue.sm q+N --const N=4:4").ends(0, &["explored 5 states, 8 transitions"]);
    assert_eq!(run.stdout, "property,N,value,bound\nq+N,4,4,0\n", "{}", run.stderr);
    assert!(run.stderr.contains("1 answer from 5 states in 0 runs of 0 steps"), "{}", run.stderr);
}

#[test]
fn variables_of_chains_in_files_are_those_of_properties() {
    let place = place();
    for format in ["tra", "drn"] {
        place.ok(&format!("generate server.prism -o server.{format}"));
        for property in [
            "P=? [ F<=2 q=2 & !up ]",
            "filter(count, q>=1 & up)",
            "P=? [ up U[1,3] q=2 ]",
            "q + (up ? 1 : 0)",
        ] {
            let of = |model: &str| answers(&place, &format!("{model} '{property}'")).remove(0);
            let (wanted, own) = of("server.prism");
            encloses(&of(&format!("server.{format}")), number(&wanted), own);
        }
        for case in section(include_str!("wrong/properties.txt"), "of a chain in a file") {
            place.refuses(&format!("check server.{format} '{}'", case[0]), &case[1..]);
        }
    }
    // Missing values and words are not values of a property.
    assert_eq!(answers(&place, "odd.tra 'filter(sum, s*x)'")[0].0, "-17.5");
    assert!(check(&place, "odd.tra w=1").stderr.contains("the chain has: s, x"));
}

#[test]
fn infinite_rewards_are_rejected_when_used() {
    let place = place();
    let rewards = "rewards \"share\" true : 6/q; endrewards\nrewards true : 2; endrewards\n";
    place.put("bad.sm", QUEUE.replace("int N", "int N = 3") + rewards);
    let warning = "the rewards \"share\" are left out: a reward in the state (q=0) is inf";
    let run = place.transient("bad.sm --time 1 --rewards customers --rewards 4").ends(0, &[warning]);
    assert!(run.stdout.contains("\n1,4,1.99999") || run.stdout.contains("\n1,4,2"), "{}", run.stdout);
    let share = "transient bad.sm --time 1 --rewards share";
    place.kolmo(&on_cpu(share)).ends(2, &["error: the rewards \"share\" are left out: "]);
    place.ok("generate bad.sm -o bad.tra").ends(0, &["\"share\" are left out"]);
    place.ok("check bad.sm 'R{\"served\"}=? [ C<=1 ]'");
    check(&place, "bad.sm 'R{\"share\"}=? [ C<=1 ]'").ends(2, &["(q=0) is inf; guard it"]);
    // Files next to a chain: `name` with a reward that is not finite, and `other` without.
    let other = "# Reward structure \"other\"\n# State rewards\n2 1\n1 3\n";
    for (extension, rewards) in [
        ("srew", "# Reward structure \"name\"\n# State rewards\n2 1\n0 inf\n"),
        ("srew", "# Reward structure \"name\"\n# State rewards\n2 1\n0 NaN\n"),
        ("trew", "# Reward structure \"name\"\n# Transition rewards\n2 1\n0 1 Infinity\n"),
    ] {
        let place = Place::new();
        place.put("c.tra", "2 2\n0 1 1\n1 0 2\n");
        place.put("c.srew", if extension == "srew" { format!("{rewards}{other}") } else { other.to_owned() });
        if extension == "trew" {
            place.put("c.trew", rewards);
        }
        let warning = "warning: the rewards \"name\" are left out: the reward in state 0 is not finite";
        place.transient("c.tra --time 1 --rewards other").ends(0, &[warning]);
        place.kolmo(&on_cpu("transient c.tra --time 1 --rewards name")).ends(2, &[&warning[9..]]);
        check(&place, "c.tra 'R{\"other\"}=? [ C<=1 ]'").ends(0, &[warning]);
        check(&place, "c.tra 'R=? [ C<=1 ]'").ends(2, &[&warning[9..]]);
        check(&place, "c.tra 'R{\"name\"}=? [ C<=1 ]'").ends(2, &[warning, "\"name\" is not known"]);
        let given = format!("transient c.tra --time 1 --rewards ./c.{extension}");
        place.kolmo(&on_cpu(&given)).ends(2, &[&format!("c.{extension}:4: invalid line")]);
    }
}

/// Seventeen species in a row, whose states have more than 512 bits.
#[test]
fn states_of_many_variables_are_explored() {
    let place = Place::new();
    let text: String = (0..17).map(|k| format!(" x{k} : int init {};\n", u8::from(k == 0))).collect();
    let moves: String = (0..16)
        .map(|k| format!(" [] x{k}>0 -> {0}*x{k} : (x{k}'=x{k}-1)&(x{0}'=x{0}+1);\n", k + 1))
        .collect();
    place.put("row.sm", format!("ctmc\nmodule net\n{text}{moves}endmodule\n"));
    for more in ["", "--truncate 1e-10"] {
        answer(&place, &format!("row.sm 'P=? [ F<=1 x1=1 ]' {more}"), 1.0 - (-1.0f64).exp());
    }
}

/// P(N = k) of a Poisson variable.
fn poisson(mean: f64, k: u32) -> f64 {
    let factorial: f64 = (1..=k).map(|i| f64::from(i).ln()).sum();
    (f64::from(k) * mean.ln() - mean - factorial).exp()
}

#[test]
fn an_infinite_model_is_truncated_by_probability() {
    let place = place();
    let mean = 200.0 * (1.0 - (-2.0f64).exp());
    let sum = |from: u32, to: u32| (from..to).map(|k| poisson(mean, k)).sum::<f64>();
    let wanted = [
        ("P=? [ F=2 \"many\" ]", sum(180, 400)),
        ("P=? [ F=2 x=173 ]", poisson(mean, 173)),
        ("R{\"few\"}=? [ I=2 ]", 2.0 * sum(0, 171)),
        ("R{\"came\"}=? [ C<=2 ]", 1200.0),
        ("P=? [ F=2 x>1000000 ]", 0.0),
        ("P=? [ X x=1 ]", 1.0),
    ];
    let asked: String = wanted.iter().map(|(property, _)| format!("'{property}' ")).collect();
    let line = format!("pool.sm {asked} --truncate 1e-10 --report r.json");
    check(&place, &line).ends(0, &["= loss ", "at their edge"]);
    let report = place.json("r.json");
    let loss = float(&report, "bound.loss");
    assert!(loss <= 1e-10 && loss > 0.0, "{report}");
    let rows: &Vec<Value> = report["properties"].as_array().expect("rows");
    assert_eq!(rows.len(), wanted.len());
    for (row, (property, wanted)) in rows.iter().zip(wanted) {
        let [value, bound, loss] = ["value", "bound", "loss"].map(|name| float(row, name));
        // The sums of logarithms have errors of their own.
        let slack = 1e-12 * f64::max(wanted, 1.0);
        let right = (value - wanted).abs() <= bound + slack && bound <= 1e-5;
        assert!(right, "{property}: {value} ± {bound}, not {wanted}");
        assert!(value <= wanted + (bound - loss) + slack, "{value} is no lower bound of {wanted}");
    }
    // Boundary states contribute little: a state space many times as large gives the same value.
    let far = place.transient("pool.sm --time 1,2 --label x>=180 --truncate 1e-14").ends(0, &["= loss "]);
    assert!((far.column(2)[1] - sum(180, 400)).abs() < 1e-9, "{}", far.stdout);
}

/// With a large truncation error, the bound contains it.
#[test]
fn the_truncation_error_is_in_the_bound() {
    let place = place();
    place.put("pool.sm", POOL.replace("200", "300"));
    let line = "pool.sm 'P=? [ F=2 x>=250 ]' --truncate 0.95 --epsilon 0.951 --report r.json";
    let (value, bound) = answers(&place, line).remove(0);
    let loss = float(&place.json("r.json")["properties"][0], "loss");
    let mean = 300.0 * (1.0 - (-2.0f64).exp());
    let wanted: f64 = (250..600).map(|k| poisson(mean, k)).sum();
    let (value, other) = (number(&value), bound - loss);
    assert!(loss > 0.3 && other < 1e-3, "{loss} {other}");
    assert!(value <= wanted - 0.1 && wanted <= value + bound, "{value} + {bound}, {wanted}");
}

/// A model with ranges is its own reference: truncated, and complete.
#[test]
fn a_truncated_model_agrees_with_the_whole() {
    let place = place();
    let whole = POOL.replace("x : int", "x : [0..400]").replace("true -> 200", "x < 400 -> 200");
    place.put("whole.sm", whole);
    let properties = [
        "P=? [ x<150 U[0.5,1] x>=120 ]",
        "P=? [ x<120 U[0.5,1.5] x>=100 ]",
        "P=? [ F<=1 x>=130 ]",
        "P=? [ G<=1 x<130 ]",
        "R{\"all\"}=? [ C<=1 ]",
        // So long that runs on the first truncations end early: the last one computes the remaining
        // probability.
        "P=? [ G<=200 x<250 ]",
        "P<0.5 [ F<=1 x>=130 ]",
    ];
    let line = format!("whole.sm '{}'", properties.join("' '"));
    let (truncated, whole) = (answers(&place, &format!("{line} --truncate 1e-10")), answers(&place, &line));
    assert_eq!(truncated[6].0, whole[6].0);
    for (truncated, (wanted, own)) in truncated.iter().zip(&whole).take(6) {
        encloses(truncated, number(wanted), *own);
    }
    // Nothing is truncated in a small model.
    assert_eq!(answers(&place, &format!("{Q4} 'P=? [ F<=1 q=4 ]' --truncate 1e-10")).len(), 1);
}
