//! Models in the PRISM language and properties in CSL.
//!
//! The models belong to these tests. Expected values come from closed formulas, and from the matrix
//! exponentials of the table in docs/prism.md.

use crate::support::{Place, Run, binary, number};

/// A queue of at most N customers; it is full in its last state.
const QUEUE: &str = r#"ctmc
const int N;
const double arrivals = 1;
module queue
  q : [0..N];
  [come] q < N -> arrivals : (q'=q+1);
  [serve] q > 0 -> 2 : (q'=q-1);
endmodule
label "full" = q = N;
rewards "customers" true : q; endrewards
rewards "served" [serve] true : 1; endrewards
"#;

/// The server of docs/prism.md.
const SERVER: &str = r#"ctmc
module server
  q : [0..2];
  up : bool init true;
  [] q < 2 -> 0.5 : (q'=q+1);
  [serve] up & q > 0 -> 1 : (q'=q-1);
  [] up -> 0.05 : (up'=false);
  [] !up -> 0.4 : (up'=true);
endmodule
label "down" = !up;
label "full" = q = 2;
rewards "jobs" true : q; endrewards
rewards "served" [serve] true : 1; endrewards
"#;

/// A state that decays to one of two absorbing states.
const DECAY: &str = r#"ctmc
module decay
  s : [0..2];
  [] s = 0 -> 3 : (s'=1) + 1 : (s'=2);
endmodule
label "left" = s = 1;
rewards s = 0 : 5; endrewards
"#;

fn check(place: &Place, words: &[&str]) -> Run {
    let mut all = vec!["check"];
    all.extend(words);
    all.extend(["--device", "cpu"]);
    let output = std::process::Command::new(binary())
        .args(&all)
        .current_dir(place.path())
        .output()
        .expect("kolmo starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Returns the printed values and bounds of a successful check.
fn answers(place: &Place, words: &[&str]) -> Vec<(String, f64)> {
    let run = check(place, words);
    assert_eq!(run.code, 0, "{words:?}\n{}", run.stderr);
    let rows = run.stdout.lines().skip(1).map(|line| {
        let mut fields = line.rsplitn(3, ',');
        let bound = number(fields.next().expect("a bound"));
        (fields.next().expect("a value").to_owned(), bound)
    });
    rows.collect()
}

fn place() -> Place {
    let place = Place::new();
    place.put("queue.sm", QUEUE).put("server.prism", SERVER).put("decay.sm", DECAY);
    place
}

#[test]
fn a_model_replaces_a_file_of_a_chain() {
    let place = place();
    for format in ["tra", "drn", "umb", "mtx", "npz"] {
        let run = place.kolmo(&format!("generate queue.sm --const N=4 -o q.{format}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stderr.contains("explored 5 states, 8 transitions"), "{}", run.stderr);
        let of = |model: &str| {
            place.transient(&format!("{model} --time 2 --quiet -o p.npy"));
            place.get("p.npy")
        };
        assert_eq!(of(&format!("q.{format}")), of("queue.sm --const N=4"), "{format}");
        assert_eq!(of("queue.sm --const N=4"), of("birth-death:5,1,2"), "{format}");
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
        assert_eq!(of("q.tra"), of("queue.sm --const N=4"), "{more}");
        assert_eq!(of("q.drn"), of("queue.sm --const N=4"), "{more}");
    }
    assert_eq!(
        place.names().iter().filter(|name| name.starts_with("q.")).map(|name| &name[2..]).collect::<Vec<_>>(),
        ["drn", "lab", "mtx", "npz", "srew", "sta", "tra", "umb"]
    );
    assert!(place.text("q.sta").ends_with("4:(4)\n"));
    for model in ["queue.sm --const N=4", "q.tra", "q.drn", "q.umb"] {
        let by_number = place.transient(&format!("{model} --time 2 --states 1,3-4")).stdout;
        let by_variable = place.transient(&format!("{model} --time 2 --states q>=3|q=1")).stdout;
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&by_variable), sorted(&by_number), "{model}");
    }
    assert!(place.transient("queue.sm --const N=4 --time 2 --top 1").stdout.contains("(q=0)"));
    let warned = place.transient("decay.sm --time 1 --label deadlock");
    assert!(warned.stderr.contains("stay for ever: 2"), "{}", warned.stderr);
    assert!((warned.column(2)[0] - (1.0 - (-4.0f64).exp())).abs() < 1e-9, "{}", warned.stdout);
}

#[test]
fn errors_of_a_model_have_their_position() {
    let place = place();
    place.put("bad.sm", QUEUE.replace("q > 0", "p > 0")).put("mdp.nm", QUEUE.replace("ctmc", "mdp"));
    place.put("empty.csl", "// nothing\n");
    let refused = |line: &str, parts: &[&str]| {
        let words: Vec<&str> = line.split('~').collect();
        let run = match words[0] {
            "check" => check(&place, &words[1..]),
            _ => place.kolmo(&line.replace('~', " ")),
        };
        assert_eq!((run.code, &run.stdout[..]), (2, ""), "{line}\n{}", run.stderr);
        for part in parts {
            assert!(run.stderr.contains(part), "{line}: {part}\n{}", run.stderr);
        }
        assert_eq!(run.stderr.matches("error:").count(), 1, "{}", run.stderr);
    };
    refused("transient~bad.sm~--const~N=4~--time~1", &["bad.sm:7:11", "^"]);
    refused("generate~mdp.nm~--const~N=4~-o~q.tra", &["mdp"]);
    refused("transient~queue.sm~--time~1", &["constants without a value: int N", "--const"]);
    refused("transient~queue.sm~--const~N=2:4~--time~1", &["N 3 values", "kolmo check"]);
    refused("transient~queue.sm~--const~M=4~--time~1", &["no constant 'M'"]);
    refused("transient~birth-death:5,1,2~--const~N=4~--time~1", &["--const", "birth-death:5,1,2"]);
    refused("generate~queue.sm~--const~N=4~-o~q.txt", &[".tra, .drn, .umb, .mtx or .npz"]);
    refused("generate~queue.sm~--const~N=1000000~-o~q.tra~--memory-limit~1MiB", &["1.0 MiB"]);
    refused("transient~none.sm~--time~1", &["none.sm"]);
    let of_queue = |property: &str, parts: &[&str]| {
        refused(&format!("check~queue.sm~--const~N=4~{property}"), parts);
    };
    of_queue("P=? [ F<=1 \"none\" ]", &["none", "^"]);
    of_queue("P=? [ F<=1 P=? [ X q=1 ] ]", &["F<=1 P=? [ X q=1 ]"]);
    of_queue("T=? [ q=4 ]", &["T=? [ F condition ]", "^"]);
    of_queue("1 - P=? [ F<=1 q=4 ]", &["arithmetic"]);
    of_queue("filter(range, P=? [ F<=1 q=4 ], true)", &["--all-states", "min, max"]);
    of_queue("empty.csl", &["empty.csl has no property"]);
    of_queue("P=? [ F<=T q=4 ]", &["T", "^"]);
    of_queue("P=? [ F<=1 q=4 ]~--prop~2", &["invalid --prop '2': expected a number from 1 to 1"]);
    refused("check~birth-death:5,1,2~P=? [ X \"init\" ]", &["self-loops"]);
}

#[test]
fn an_unsupported_property_leaves_the_others_checked() {
    let place = place();
    let (right, wrong) = ("P=? [ F<=1 q=4 ]", "filter(range, P=? [ F<=1 q=4 ], true)");
    let words = ["queue.sm", wrong, right, "--const", "N=4"];
    let run = check(&place, &[&words[..], &["--report", "r.json"]].concat());
    assert_eq!(run.code, 2, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[1], format!("\"{wrong}\",refused,"));
    let alone = answers(&place, &["queue.sm", right, "--const", "N=4"]).remove(0);
    let (text, bound) = lines[2].rsplit_once(',').expect("a bound");
    assert_eq!((text, number(bound)), (&*format!("{right},{}", alone.0), alone.1));
    assert!(run.stderr.contains("1 of 2 properties are refused") && run.stderr.contains("min, max"));
    let report = place.json("r.json");
    let of = |row: usize, key: &str| report["properties"][row][key].clone();
    assert!(
        of(0, "refused").as_str().is_some_and(|why| why.contains("min, max")) && of(0, "value").is_null()
    );
    assert!(of(1, "refused").is_null() && of(1, "value").is_number());
}

#[test]
fn an_invalid_property_leaves_the_others_checked() {
    let place = place();
    let wrong = ["P=? [ F<=1 q=4", "\"odd\": P=? [ F<=1 x=4 ]", "A [ F q=4 ]", "P=? [ F<=-1 q=4 ]"];
    for wrong in wrong {
        place.put("some.csl", format!("\"one\": P=? [ F<=1 q=4 ];\n{wrong};\n\"three\": S=? [ q=4 ];\n"));
        let run = check(&place, &["queue.sm", "some.csl", "--const", "N=4", "--report", "r.json"]);
        assert_eq!(run.code, 2, "{wrong}: {}", run.stderr);
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert!(lines.len() == 4 && lines[2].ends_with(",refused,"), "{wrong}: {}", run.stdout);
        assert!(!lines[1].contains("refused") && !lines[3].contains("refused"), "{}", run.stdout);
        assert!(
            run.stderr.contains("some.csl:2") && run.stderr.contains("1 of 3 properties"),
            "{}",
            run.stderr
        );
        assert!(place.json("r.json")["properties"][1]["refused"].is_string());
        let alone = answers(&place, &["queue.sm", "some.csl", "--const", "N=4", "--prop", "one,three"]);
        assert_eq!((&alone[0].0[..], alone.len()), (lines[1].rsplit(',').nth(1).expect("a value"), 2));
        assert_eq!(answers(&place, &["queue.sm", "some.csl", "--const", "N=4", "--prop", "3"]).len(), 1);
    }
    let run = check(&place, &["queue.sm", "some.csl", "--const", "N=4", "--prop", "2"]);
    assert!(run.code == 2 && run.stdout.is_empty() && run.stderr.contains("some.csl:2"), "{}", run.stderr);
    // A property that fails during the computation.
    place.put("minus.sm", DECAY.replace("s = 0 : 5", "s = 0 : -5"));
    let run = check(&place, &["minus.sm", "filter(max, R=? [ F s>0 ])", "P=? [ F<=1 s=1 ]"]);
    assert!(run.code == 2 && run.stdout.lines().nth(1).is_some_and(|line| line.ends_with(",refused,")));
    assert!(run.stderr.contains("1 of 2 properties"), "{}", run.stderr);
}

/// Qualitative properties are decided by the graph, fast and exactly.
#[test]
fn qualitative_properties_are_decided_by_the_graph() {
    let place = place();
    let line = "ctmc\nconst int N;\nmodule line\n n : [0..N];\n [] n<N -> 5 : (n'=n+1);\n [] n>0 -> n : (n'=n-1);\nendmodule\n";
    place.put("line.sm", line);
    let asked = |n: &str, property: &str| answers(&place, &["line.sm", property, "--const", n]).remove(0);
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
    ] {
        assert_eq!(asked("N=60", property).0, wanted, "{property}");
    }
    // The mean time is 10^589: finite, but beyond the range of doubles.
    for property in ["T=? [ F n=N ]", "filter(max, T=? [ F n=N ])"] {
        let run = check(&place, &["line.sm", property, "--const", "N=400"]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stdout.contains(",1.7976931348623157e308,inf"), "{}", run.stdout);
    }
    let run = check(&place, &["line.sm", "T>=3 [ F n=1 ]", "T<3 [ F n=1 ]", "--const", "N=4"]);
    assert!(run.code == 0 && run.stdout.contains("T>=3 [ F n=1 ],false,"), "{}{}", run.stdout, run.stderr);
    let [(value, bound)] = &answers(&place, &["line.sm", "filter(avg, P=? [ X n=1 ])", "--const", "N=4"])[..]
    else {
        panic!("one answer")
    };
    let wanted = (1.0 + 2.0 / 7.0) / 5.0;
    assert!((number(value) - wanted).abs() <= *bound && *bound < 1e-14, "{value} ± {bound}");
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
        let (value, bound) = answers(&place, &["many.sm", property]).remove(0);
        // 0.1 as a double is 0.1 + 2^-57.64.
        let error = (number(&value) - 1e4).abs() - 1e5 * 5.551_115_123_125_783e-18;
        assert!(error <= bound && bound > 0.0 && bound < 1e-7, "{property}: {value} ± {bound}");
    }
    // 1 − e^(−1.7 t), in more digits than a double has: 1 less 3.643459985186158e-5.
    let fixed = ["sum.tra", "P=? [ F<=6.011759817307616 \"b\" ]", "--precision", "q64", "--epsilon", "1e-15"];
    let (value, bound) = answers(&place, &fixed).remove(0);
    let error = (1.0 - number(&value)) - 3.643_459_985_186_158e-5;
    assert!(error.abs() <= bound + 1e-20 && bound <= 1e-15, "{value} ± {bound}, {error:e}");
    let run =
        place.transient("sum.tra --time 6.011759817307616 --until true b --precision q64 --report r.json");
    let total: f64 = ["truncation", "steady_state", "rounding", "loss"]
        .map(|part| place.json("r.json")["bound"][part].as_f64().expect("a number"))
        .iter()
        .sum();
    let error = (1.0 - run.column(2)[0]) - 3.643_459_985_186_158e-5;
    assert!(error.abs() <= total, "{} {total:e}", run.stdout);
}

/// Checks the error for a pure birth process with this rate, which explodes in finite time.
fn expect_explosion(rate: &str) {
    let place = place();
    let births = format!("ctmc\nmodule q\n n : int init 1;\n [] true -> {rate} : (n'=n+1);\nendmodule\n");
    place.put("explode.sm", &births);
    let run =
        check(&place, &["explode.sm", "P=? [ F[1,1] n>20 ]", "--truncate", "1e-6", "--epsilon", "1e-5"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("loses") && run.stderr.contains("states"), "{}", run.stderr);
}

#[test]
fn an_explosion_is_reported_after_a_few_truncations() {
    expect_explosion("pow(n,1.5)");
}

#[test]
#[ignore = "slow: millions of multiplications"]
fn a_fast_explosion_is_reported_after_a_few_truncations() {
    expect_explosion("n*n");
}

/// Births at a rate of second order and deaths at one of third order reach an equilibrium far from
/// the initial state.
#[test]
fn a_truncation_short_of_the_equilibrium_is_extended() {
    let place = place();
    let model = |range: &str, guard: &str| {
        format!(
            "ctmc\nmodule q\n n : {range} init 200;\n [] {guard} -> n*n/50 : (n'=n+1);\n \
             [] n>0 -> n*n*n/70000 : (n'=n-1);\nendmodule\n"
        )
    };
    place.put("endless.sm", model("int", "true")).put("whole.sm", model("[0..1800]", "n<1800"));
    let words = ["P=? [ F=0.4 n>=1400 ]", "--epsilon", "1e-7"];
    let cut = answers(&place, &[&["endless.sm"], &words[..], &["--truncate", "1e-8"]].concat()).remove(0);
    let whole = answers(&place, &[&["whole.sm"], &words[..]].concat()).remove(0);
    // From 1400 to 1800 the stationary probabilities fall by Σ ln(n/1400) = 52 in the exponent.
    let error = (number(&cut.0) - number(&whole.0)).abs();
    assert!(error <= cut.1 + whole.1 + 1e-12 && cut.1 <= 1e-7, "{cut:?} {whole:?}");
}

#[test]
fn constants_of_unselected_properties_are_ignored() {
    let place = place();
    place.put("two.csl", "const double T; \"soon\": P=? [ F<=T q=4 ]; \"now\": P=? [ F<=1 q=4 ];");
    let words = ["queue.sm", "two.csl", "--const", "N=4", "--prop"];
    let now = answers(&place, &[&words[..], &["now"]].concat());
    assert_eq!(now, answers(&place, &["queue.sm", "P=? [ F<=1 q=4 ]", "--const", "N=4"]));
    let run = check(&place, &[&words[..], &["soon"]].concat());
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("double T"), "{}", run.stderr);
}

/// With load r = 1/2, the stationary probability of q customers is ∝ rᵠ.
#[test]
fn properties_of_closed_form_are_answered() {
    let place = place();
    let full = 0.5f64.powi(4) / (0..=4).map(|q| 0.5f64.powi(q)).sum::<f64>();
    let mean: f64 = (0..=4).map(|q| f64::from(q) * full * 2f64.powi(4 - q)).sum();
    let gone = |t: f64| 1.0 - (-4.0 * t).exp();
    let cases: [(&str, &str, f64); 18] = [
        ("queue.sm", "S=? [ \"full\" ]", full),
        ("queue.sm", "R{\"customers\"}=? [ S ]", mean),
        ("queue.sm", "R{\"served\"}=? [ S ]", 1.0 - full),
        ("queue.sm", "P=? [ X q=1 ]", 1.0),
        ("queue.sm", "filter(state, P=? [ X q=1 ], q=2)", 2.0 / 3.0),
        ("queue.sm", "filter(avg, P=? [ F<=0 q>=3 ], true)", 0.4),
        ("queue.sm", "filter(count, q>1)", 3.0),
        ("queue.sm", "q + N", 4.0),
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
    ];
    for (model, property, wanted) in cases {
        let mut words = vec![model, property, "--epsilon", "1e-12"];
        if model == "queue.sm" {
            words.extend(["--const", "N=4"]);
        }
        let [(value, bound)] = &answers(&place, &words)[..] else { panic!("{property}") };
        let error = (number(value) - wanted).abs();
        // Rounding of the closed form is added.
        assert!(
            error <= bound + 4.0 * f64::EPSILON && *bound < 1e-11,
            "{property}: {value} ± {bound}, {wanted}"
        );
    }
}

/// The reward from q to q + 1 is that of q, plus those of the returns from q − 1.
#[test]
fn rewards_until_a_condition_holds_have_their_closed_forms() {
    let place = place();
    let up = |reward: fn(f64) -> f64| {
        let way = |(sum, way): (f64, f64), q: u32| {
            let next = reward(f64::from(q)) + 2.0 * way * f64::from(q.min(1));
            (sum + next, next)
        };
        (0..4).fold((0.0, 0.0), way).0
    };
    let far = "filter(state, T=? [ F q=0 ], q=600)";
    let cases: [(&str, &str, &str, f64); 12] = [
        ("queue.sm", "4", "T=? [ F q=4 ]", up(|_| 1.0)),
        ("queue.sm", "4", "R{\"customers\"}=? [ F \"full\" ]", up(|q| q)),
        ("queue.sm", "4", "R{\"served\"}=? [ F \"full\" ]", up(|q| 2.0 * q.min(1.0))),
        ("queue.sm", "4", "R{\"served\"}=? [ F q=0 ]", 0.0),
        ("queue.sm", "4", "filter(avg, T=? [ F q=4 ], q>=3)", 7.5),
        // Iterated, since elimination would take longer.
        ("queue.sm", "600", far, 599.0),
        ("queue.sm", "600", "filter(state, R{\"served\"}=? [ F q=0 ], q=600)", 1198.0),
        ("decay.sm", "", "R=? [ F s>0 ]", 1.25),
        ("decay.sm", "", "T=? [ F s>0 ]", 0.25),
        ("decay.sm", "", "R=? [ F \"left\" ]", f64::INFINITY),
        ("decay.sm", "", "T=? [ F false ]", f64::INFINITY),
        ("decay.sm", "", "R=? [ F true ]", 0.0),
    ];
    for (model, n, property, wanted) in cases {
        let constants = format!("N={n}");
        let mut words = vec![model, property];
        if !n.is_empty() {
            words.extend(["--const", &constants[..]]);
        }
        let [(value, bound)] = &answers(&place, &words)[..] else { panic!("{property}") };
        let (value, bound) = (number(value), *bound);
        let right = value == wanted || (value - wanted).abs() <= bound + 4.0 * f64::EPSILON * wanted;
        assert!(right && bound <= 1e-6, "{property}: {value} ± {bound}, {wanted}");
    }
    assert_eq!(answers(&place, &["decay.sm", "R>3 [ F \"left\" ]"])[0].0, "true");
    // A model may have a constant named T.
    place.put("t.csl", "const double T = 2; P=? [ F<=T s=1 ]; T=? [ F s>0 ]; T=2;");
    let values = answers(&place, &["decay.sm", "t.csl", "--report", "r.json"]);
    assert_eq!((values.len(), &values[2].0[..]), (3, "true"));
    assert_eq!(place.json("r.json")["properties"][1]["value"], 0.25);
    check(&place, &["decay.sm", "T=? [ F false ]", "--report", "r.json"]);
    assert_eq!(place.json("r.json")["properties"][0]["value"], "inf");
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
        let property = format!("R{{\"up\"}}=? [ C<={t} ]");
        let [(value, bound)] =
            &answers(&place, &["pair.sm", &property, "--epsilon", &epsilon.to_string()])[..]
        else {
            panic!("{property}")
        };
        let (value, wanted) = (number(value), 2.0 / 3.0 * t + (1.0 - (-3.0 * t).exp()) / 9.0);
        let error = (value - wanted).abs();
        assert!(error <= bound + 4.0 * f64::EPSILON * wanted, "{property}: {value} ± {bound:e}, {wanted}");
        // E (N − R − 1)⁺ beyond the last term R is less than P(N > R), and the more so the longer
        // the window.
        assert!(*bound <= 0.5 * t * epsilon + 1e-13 * t, "{property}: ± {bound:e} of {t} times {epsilon:e}");
    }
}

/// More rewards than one run of sweeps computes, for a chain that is not eliminated.
#[test]
fn rewards_until_one_condition_share_their_runs() {
    let place = Place::new();
    let walk = "ctmc\nmodule walk\n  x : [0..5000] init 300;\n  [] x < 5000 -> 1 : (x'=x+1);\n  [] x > 0 -> 2 : (x'=x-1);\nendmodule\n";
    let rewards: String = (1..=4).map(|k| format!("rewards \"r{k}\" true : {k}; endrewards\n")).collect();
    place.put("walk.sm", walk.to_owned() + &rewards);
    let mut asked: Vec<String> = (1..=4).map(|k| format!("R{{\"r{k}\"}}=? [ F x=0 ]")).collect();
    asked.insert(2, "T=? [ F x=0 ]".to_owned());
    let mut words = vec!["walk.sm"];
    words.extend(asked.iter().map(|text| &text[..]));

    let found = answers(&place, &words);

    // The mean time from x to 0 is x, less 2^(x − 5000) and smaller terms.
    for ((value, bound), rate) in found.iter().zip([1.0, 2.0, 1.0, 3.0, 4.0]) {
        let (value, wanted) = (number(value), 300.0 * rate);
        let error = (value - wanted).abs();
        assert!(
            error <= bound + 4.0 * f64::EPSILON * wanted && *bound <= 1.01e-9 * 5000.0 * rate,
            "{value} ± {bound}, {wanted}"
        );
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
    let asked = ["left", "middle", "right"].map(|name| format!("R{{\"{name}\"}}=? [ C<=40000 ]"));

    let found = answers(&place, &[&["walk.sm"], &asked.each_ref().map(|text| &text[..])[..]].concat());

    let [left, middle, right] = [0, 1, 2].map(|k| number(&found[k].0));
    let bound: f64 = found.iter().map(|(_, bound)| bound).sum();
    assert!(bound < 1e-3, "{found:?}");
    approx::assert_abs_diff_eq!(left, right, epsilon = bound);
    approx::assert_abs_diff_eq!(left + middle + right, time, epsilon = bound);
    // Far from the ends: ∫ ds/√(4πs).
    approx::assert_relative_eq!(middle, (time / std::f64::consts::PI).sqrt(), max_relative = 0.01);
}

/// Values for every state: in nested operators, in filters, and in files.
#[test]
fn values_for_every_state_have_their_closed_forms() {
    let place = place();
    let gone = |t: f64| 1.0 - (-4.0 * t).exp();
    let full = 0.5f64.powi(4) / (0..=4).map(|q| 0.5f64.powi(q)).sum::<f64>();
    let mean: f64 = (0..=4).map(|q| f64::from(q) * full * 2f64.powi(4 - q)).sum();
    let cases: [(&str, &str, &str, f64); 24] = [
        ("decay.sm", "", "P=? [ F<=0.3 P>=0.9 [ F<=1 s=1 ] ]", 0.75 * gone(0.3)),
        ("decay.sm", "", "P=? [ F<=0.3 P>=0.5 [ F<=1 s=1 ] ]", 1.0),
        ("decay.sm", "", "P=? [ F<=0.3 P<0.1 [ F s=1 ] ]", 0.25 * gone(0.3)),
        ("decay.sm", "", "P=? [ F<=0.3 (P<=0 [ F s=1 ] | P>=1 [ G<=7 s=1 ]) ]", gone(0.3)),
        ("decay.sm", "", "S=? [ P>=1 [ X s=1 ] ]", 0.75),
        ("decay.sm", "", "R=? [ F S>=0.9 [ s>0 & P>0 [ F<=0 s>0 ] ] ]", 0.0),
        ("decay.sm", "", "R=? [ F P>=0.5 [ F=0 s>0 ] ]", 1.25),
        ("decay.sm", "", "filter(sum, S=? [ s=1 ])", 1.75),
        ("decay.sm", "", "filter(sum, P=? [ X s=1 ])", 1.75),
        ("decay.sm", "", "filter(max, P=? [ s=0 U[0.1,0.3] s=1 ], s=0)", 0.75 * (gone(0.3) - gone(0.1))),
        ("decay.sm", "", "filter(max, P=? [ F=0.2 s=2 ], s<2)", 0.25 * gone(0.2)),
        ("decay.sm", "", "filter(max, R=? [ C<=0.5 ])", 1.25 * gone(0.5)),
        ("decay.sm", "", "filter(max, R=? [ I=0.5 ])", 5.0 * (1.0 - gone(0.5))),
        ("decay.sm", "", "filter(max, R=? [ F s=1 ])", f64::INFINITY),
        ("decay.sm", "", "filter(count, P>=0.5 [ F s=1 ])", 2.0),
        ("queue.sm", "4", "filter(sum, T=? [ F q=4 ])", 26.0 + 25.0 + 22.0 + 15.0),
        ("queue.sm", "4", "filter(max, R{\"customers\"}=? [ F q=4 ], q<3)", 16.0),
        ("queue.sm", "4", "filter(min, S=? [ \"full\" ])", full),
        ("queue.sm", "4", "filter(max, R{\"customers\"}=? [ S ], q<2)", mean),
        ("queue.sm", "4", "filter(avg, P=? [ G<=0 q>1 ])", 0.6),
        ("queue.sm", "4", "filter(min, q, q>1)", 2.0),
        // Iterated from below and above.
        ("queue.sm", "300", "filter(max, T=? [ F q=0 ])", 299.0),
        ("queue.sm", "300", "filter(min, P=? [ q>0 U q=300 ], q>=300)", 1.0),
        ("queue.sm", "300", "filter(max, P=? [ q>0 U q=300 ], q<300)", 0.5),
    ];
    for (model, n, property, wanted) in cases {
        let constants = format!("N={n}");
        let mut words = vec![model, property];
        if !n.is_empty() {
            words.extend(["--const", &constants[..]]);
        }
        let [(value, bound)] = &answers(&place, &words)[..] else { panic!("{property}") };
        let value = number(value);
        let right = value == wanted || (value - wanted).abs() <= bound + 4.0 * f64::EPSILON * wanted;
        assert!(right && *bound <= 1e-6, "{property}: {value} ± {bound}, {wanted}");
    }
    for (property, wanted) in [
        ("filter(forall, P>=0.1 [ F<=100 \"full\" ])", "true"),
        ("filter(exists, P<0.001 [ F<=100 \"full\" ])", "false"),
        ("P>0.3 [ F<=1 P>=0.9 [ F<=1 \"full\" ] ]", "false"),
    ] {
        assert_eq!(answers(&place, &["queue.sm", property, "--const", "N=4"])[0].0, wanted, "{property}");
    }
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
        let run = check(&place, &["queue.sm", question, "--const", "N=4", "--all-states", "-o", "v.csv"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let text = place.text("v.csv");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("state,q,") && lines.len() == 6, "{text}");
        for (q, line) in lines[1..].iter().enumerate() {
            assert!(line.starts_with(&format!("{q},{q},")), "{line}");
            let alone = format!("filter(state, {question}, q={q})");
            let (value, bound) = answers(&place, &["queue.sm", &alone, "--const", "N=4"]).remove(0);
            let here = number(line.rsplit(',').next().expect("a value"));
            assert!((number(&value) - here).abs() <= 1e-7 + bound, "{alone}: {value}, {line}");
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
    let found = answers(
        &place,
        &["game.sm", total, until, "R{\"rich\"}=? [ C ]", "filter(max, R{\"held\"}=? [ C ])"],
    );
    assert_eq!(found[0], found[1]);
    assert_eq!((&*found[2].0, found[2].1), ("inf", 0.0), "coins = 4 is reached, and stays");
    // From 3 coins: x₁ = (1 + 2 x₂)/5, x₂ = (2 + 3 x₁ + 2 x₃)/5, x₃ = (3 + 3 x₂)/5 give 96/65.
    assert!((number(&found[3].0) - 96.0 / 65.0).abs() <= found[3].1, "{found:?}");
    let mut columns = [total, until].map(|question| {
        let run = check(&place, &["game.sm", question, "--all-states", "-o", "v.csv"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let text = place.text("v.csv");
        text.lines()
            .skip(1)
            .map(|line| line.rsplit(',').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(columns[0].len(), 5);
    assert_eq!(std::mem::take(&mut columns[0]), columns[1]);
}

#[test]
fn undecided_states_are_reported_and_enclosed() {
    let place = place();
    let gone = |t: f64| 1.0 - (-4.0 * t).exp();
    let run = check(&place, &["decay.sm", "P>=0.75 [ F s=1 ]", "s>0", "--all-states", "-o", "v.npy"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let bytes = place.get("v.npy");
    let values: Vec<f64> = bytes[bytes.len() - 48..]
        .chunks(8)
        .map(|b| f64::from_le_bytes(b.try_into().expect("eight")))
        .collect();
    assert!(values[0].is_nan() && values[1..] == [1.0, 0.0, 0.0, 1.0, 1.0], "{values:?}");
    // An undecided nested property gives an enclosure.
    let run = check(&place, &["decay.sm", "P=? [ F<=0.3 P>=0.75 [ F s=1 ] ]"]);
    assert!(run.stderr.contains("1 states, such as (s=0)"), "{}", run.stderr);
    let line = run.stdout.lines().nth(1).expect("an answer");
    let fields: Vec<f64> = line.rsplit(',').take(2).map(number).collect();
    assert!(fields[1] - fields[0] <= 0.75 * gone(0.3) && fields[1] + fields[0] >= 1.0, "{line}");
    let run = check(&place, &["decay.sm", "R=? [ F P>=0.75 [ F s=1 ] ]"]);
    assert!(run.code == 2 && run.stderr.contains("cannot be decided within the bound"), "{}", run.stderr);
    // If a model has several initial states, a bound must hold in each.
    let several = DECAY.replace("endmodule", "endmodule\ninit s<2 endinit");
    place.put("several.sm", several);
    assert_eq!(answers(&place, &["several.sm", "P>=0.5 [ F s=1 ]"])[0].0, "true");
    assert_eq!(answers(&place, &["several.sm", "P>=0.9 [ F s=1 ]"])[0].0, "false");
    assert_eq!(check(&place, &["several.sm", "P=? [ F s=1 ]"]).code, 2);
}

#[test]
fn bounds_are_true_false_or_undecided() {
    let place = place();
    for (property, wanted) in [
        ("P>=0.5 [ F<=1 \"left\" ]", "true"),
        ("P<0.5 [ F<=1 \"left\" ]", "false"),
        ("P>=0.75 [ F \"left\" ]", "undecided"),
        ("P>0.75 [ X \"left\" ] | P>=0.5 [ F \"left\" ]", "true"),
        ("P>=0.75 [ F \"left\" ] | P>=0.5 [ F \"left\" ]", "true"),
        ("P>=0.75 [ F \"left\" ] & P>=0.5 [ F \"left\" ]", "undecided"),
        ("R<=1.3 [ C<=10 ]", "true"),
        ("S<0.3 [ s=2 ]", "true"),
        ("s=0 & \"init\" & !\"deadlock\"", "true"),
        ("filter(forall, s<2)", "false"),
    ] {
        assert_eq!(answers(&place, &["decay.sm", property])[0].0, wanted, "{property}");
    }
}

/// The values in the document were computed without kolmo.
#[test]
fn a_model_and_its_file_have_the_answers_of_the_table() {
    let place = place();
    place.kolmo("generate server.prism -o server.tra");
    let page = include_str!("../../docs/prism.md").replace("\\|", "|");
    let mut seen = 0;
    for line in page.lines().filter(|line| line.contains("`server.tra ")) {
        let property = line.split('`').nth(1).expect("a property");
        let answer = line.trim_end_matches('|').rsplit('|').next().expect("an answer").trim();
        let wanted = number(answer.split(' ').next().expect("a number"));
        let wanted = if line.contains("as 1 −") { 1.0 - wanted } else { wanted };
        for model in ["server.prism", "server.tra"] {
            let (value, bound) = answers(&place, &[model, property]).remove(0);
            assert!(
                (number(&value) - wanted).abs() <= bound + 1e-13,
                "{model} {property}: {value} ± {bound}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 32);
}

#[test]
fn ranges_add_columns_and_share_runs() {
    let place = place();
    place.put(
        "queue.csl",
        "const double T;\n\"soon\": P=? [ F<=T \"full\" ];\n\"held\": R{\"customers\"}=? [ C<=T ];\nR{\"served\"}=? [ C<=T ];\n\
         R{\"customers\"}=? [ I=T ];\nP=? [ F=T q=0 ];\n",
    );
    let run = check(&place, &["queue.sm", "queue.csl", "--const", "N=3:4,T=1:0.5:2", "--report", "r.json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
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
    for (k, line) in lines[16..21].iter().enumerate() {
        let prop = (k + 1).to_string();
        let alone = check(&place, &["queue.sm", "queue.csl", "--const", "N=4,T=1", "--prop", &prop]);
        let value = |line: &str| number(line.rsplit(',').nth(1).expect("a value"));
        let alone = value(alone.stdout.lines().nth(1).expect("a line"));
        assert!((alone - value(line)).abs() < 1e-9, "{line}: {alone}");
    }
    let held = answers(&place, &["queue.sm", "queue.csl", "--const", "N=4,T=1", "--prop", "held,1"]);
    assert_eq!(held.len(), 2);
}

#[cfg(unix)]
#[test]
fn an_exploration_can_be_interrupted() {
    let place = Place::new();
    let many = "module m\n a : [0..99]; b : [0..99]; c : [0..99]; d : [0..99];\n [] a<99 -> 1 : (a'=a+1); [] b<99 -> 1 : (b'=b+1);\n \
                [] c<99 -> 1 : (c'=c+1); [] d<99 -> 1 : (d'=d+1);\nendmodule\n";
    place.put("many.sm", format!("ctmc\n{many}"));
    let child = place.start("generate many.sm -o m.tra --memory-limit 1GiB");
    std::thread::sleep(std::time::Duration::from_millis(400));
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(place.names(), ["many.sm"]);
}

/// Blocks of docs/models.md and docs/prism.md: the written files, and the output of `kolmo check`.
#[test]
fn the_pages_say_what_is_printed() {
    says_what_is_printed(include_str!("../../docs/models.md"), 4 + 5);
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
                let line = line.split('#').next().expect("a line").trim_start_matches("kolmo ");
                assert_eq!(place.kolmo(line).code, 0, "{line}");
            }
            commands = script.lines().filter(|line| line.starts_with("kolmo check")).collect();
        } else if let Some(wanted) = block.strip_prefix("text\n") {
            // Quotation marks of the shell keep blanks.
            let quoted = commands.pop().expect("a command").split('\'').enumerate();
            let words: Vec<&str> = quoted
                .flat_map(|(k, part)| if k % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
                .collect();
            let run = check(&place, &words[2..]);
            assert_eq!(run.code, 0, "{words:?}\n{}", run.stderr);
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

/// Files with the encodings of other programs, and misspelt names.
#[test]
fn files_of_other_encodings_and_misspelt_names() {
    let place = place();
    place.put(
        "latin1.sm",
        b"ctmc\n// Zuverl\xe4ssigkeit\nmodule q\n n:[0..1];\n [] n=0 -> 2:(n'=1);\nendmodule\n",
    );
    place.put("lat.csl", b"P=? [ F<=1 n=1 ]\r\n\r\n// caf\xe9\r\nP=? [ F<=2 n=1 ];\r\n");
    place.put("bom.csl", b"\xef\xbb\xbfP=? [ F<=1 n=1 ]\r\n");
    let found = answers(&place, &["latin1.sm", "lat.csl", "bom.csl"]);
    let wanted = [1.0, 2.0, 1.0].map(|t: f64| 1.0 - (-2.0 * t).exp());
    assert_eq!(found.len(), 3);
    for ((value, bound), wanted) in found.iter().zip(wanted) {
        assert!((number(value) - wanted).abs() <= bound + 4.0 * f64::EPSILON, "{value} {wanted}");
    }
    for name in ["queue.cls", "folder/my queue.csl", "missing.csl"] {
        let run = check(&place, &["queue.sm", name, "--const", "N=4"]);
        let said = format!("error: {name}: No such file; give a file of properties");
        assert!(run.code == 2 && run.stderr.starts_with(&said), "{}", run.stderr);
    }
    // A sum or a number is a property.
    let values = answers(&place, &["queue.sm", "q+1.5", "N/2", "--const", "N=4"]);
    assert_eq!(values.iter().map(|(value, _)| number(value)).collect::<Vec<_>>(), [1.5, 2.0]);
    // A range of one value is a value.
    let run = check(&place, &["queue.sm", "q+N", "--const", "N=4:4"]);
    assert_eq!(run.stdout, "property,N,value,bound\nq+N,4,4,0\n", "{}", run.stderr);
    assert!(run.stderr.contains("explored 5 states, 8 transitions"), "{}", run.stderr);
    assert!(run.stderr.contains("1 answer from 5 states in 0 sweeps of 0 multiplications"), "{}", run.stderr);
}

#[test]
fn variables_of_chains_in_files_are_those_of_properties() {
    let place = place();
    for format in ["tra", "drn", "umb"] {
        assert_eq!(place.kolmo(&format!("generate server.prism -o server.{format}")).code, 0);
        for property in [
            "P=? [ F<=2 q=2 & !up ]",
            "filter(count, q>=1 & up)",
            "P=? [ up U[1,3] q=2 ]",
            "q + (up ? 1 : 0)",
        ] {
            let of = |model: &str| answers(&place, &[model, property]).remove(0);
            let ((value, bound), (wanted, own)) = (of(&format!("server.{format}")), of("server.prism"));
            assert!(
                (number(&value) - number(&wanted)).abs() <= bound + own,
                "{format} {property}: {value} {wanted}"
            );
        }
        let refused = |property: &str, part: &str| {
            let run = check(&place, &[&format!("server.{format}"), property]);
            assert!(run.code == 2 && run.stderr.contains(part), "{property}: {}", run.stderr);
        };
        refused("P=? [ F<=1 full ]", "'full' is a label, whose name stands in quotation marks");
        refused("P=? [ F<=1 p=2 ]", "the chain has: q, up");
        refused("P=? [ F<=1 \"fuul\" ]", "did you mean 'full'");
        refused("R{\"zz\"}=? [ C<=1 ]", "the chain has: jobs, served");
    }
    // Missing values and words are not values of a property.
    place
        .put("odd.tra", "3 3\n0 1 2\n1 2 1.5\n2 0 0.5\n")
        .put("odd.sta", "(s,w,x)\n0:(0,on,1)\n1:(1,off,2.5)\n2:(2,on,-1e1)\n");
    assert_eq!(answers(&place, &["odd.tra", "filter(sum, s*x)"])[0].0, "-17.5");
    assert!(check(&place, &["odd.tra", "w=1"]).stderr.contains("the chain has: s, x"));
}

#[test]
fn infinite_rewards_are_rejected_when_used() {
    let place = place();
    let rewards = "rewards \"share\" true : 6/q; endrewards\nrewards true : 2; endrewards\n";
    place.put("bad.sm", QUEUE.replace("int N", "int N = 3") + rewards);
    let run = place.transient("bad.sm --time 1 --rewards customers --rewards 4");
    assert!(
        run.stderr.contains("the rewards \"share\" are left out: a reward in the state (q=0) is inf"),
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains("\n1,4,1.99999") || run.stdout.contains("\n1,4,2"), "{}", run.stdout);
    let run = place.kolmo("transient bad.sm --time 1 --rewards share --device cpu");
    assert!(
        run.code == 2 && run.stderr.contains("error: the rewards \"share\" are left out: "),
        "{}",
        run.stderr
    );
    let run = place.kolmo("generate bad.sm -o bad.tra");
    assert!(run.code == 0 && run.stderr.contains("\"share\" are left out"), "{}", run.stderr);
    assert!(check(&place, &["bad.sm", "R{\"served\"}=? [ C<=1 ]"]).code == 0);
    let run = check(&place, &["bad.sm", "R{\"share\"}=? [ C<=1 ]"]);
    assert!(run.code == 2 && run.stderr.contains("(q=0) is inf; guard it"), "{}", run.stderr);
}

#[test]
fn an_infinite_model_is_rejected_at_once() {
    let place = place();
    place.put("pool.sm", POOL);
    for line in ["transient pool.sm --time 1", "generate pool.sm -o p.tra", "check pool.sm P=?[F<=1x=3]"] {
        let run = place.kolmo(
            &format!("{line} --memory-limit 1GiB").replace("check pool.sm P=?[F<=1x=3]", "check pool.sm x=3"),
        );
        assert_eq!((run.code, &run.stdout[..]), (2, ""), "{line}: {}", run.stderr);
        for part in ["pool.sm:4: in the state (x=0)", "'x', which has no range", "--truncate 1e-10"] {
            assert!(run.stderr.contains(part), "{line}: {}", run.stderr);
        }
    }
    // Seventeen species in a row, whose states have more than 512 bits.
    let text: String = (0..17).map(|k| format!(" x{k} : int init {};\n", u8::from(k == 0))).collect();
    let moves: String = (0..16)
        .map(|k| format!(" [] x{k}>0 -> {0}*x{k} : (x{k}'=x{k}-1)&(x{0}'=x{0}+1);\n", k + 1))
        .collect();
    place.put("row.sm", format!("ctmc\nmodule net\n{text}{moves}endmodule\n"));
    for more in [&[][..], &["--truncate", "1e-10"]] {
        let (value, bound) = answers(&place, &[&["row.sm", "P=? [ F<=1 x1=1 ]"], more].concat()).remove(0);
        assert!((number(&value) - (1.0 - (-1.0f64).exp())).abs() <= bound + 4.0 * f64::EPSILON, "{value}");
    }
}

/// An infinite-server queue with arrival rate 200 and service rate 1.
///
/// Started empty, the number of customers is Poisson distributed at every time.
const POOL: &str = r#"ctmc
module pool
  x : int;
  [come] true -> 200 : (x'=x+1);
  [go] x > 0 -> x : (x'=x-1);
endmodule
label "many" = x >= 180;
rewards "few" x <= 170 : 2; endrewards
rewards "all" true : x; endrewards
rewards "came" [come] true : 3; endrewards
"#;

/// P(N = k) of a Poisson variable.
fn poisson(mean: f64, k: u32) -> f64 {
    let factorial: f64 = (1..=k).map(|i| f64::from(i).ln()).sum();
    (f64::from(k) * mean.ln() - mean - factorial).exp()
}

/// Returns the values, their bounds and truncation errors.
fn lost(place: &Place, words: &[&str]) -> Vec<(f64, f64, f64)> {
    let run = check(place, &[words, &["--report", "r.json"]].concat());
    assert_eq!(run.code, 0, "{words:?}\n{}", run.stderr);
    let report = place.json("r.json");
    let parts = &report["bound"];
    let part = |name: &str| parts[name].as_f64().expect("a number");
    assert!(part("loss") <= 1e-10 && part("loss") > 0.0, "{parts}");
    assert!(run.stderr.contains("= loss ") && run.stderr.contains("at their edge"), "{}", run.stderr);
    let of = |row: &serde_json::Value| {
        let number = |name: &str| row[name].as_f64().expect("a number");
        (number("value"), number("bound"), number("loss"))
    };
    report["properties"].as_array().expect("rows").iter().map(of).collect()
}

#[test]
fn an_infinite_model_is_truncated_by_probability() {
    let place = place();
    place.put("pool.sm", POOL);
    let mean = 200.0 * (1.0 - (-2.0f64).exp());
    let sum = |from: u32, to: u32| (from..to).map(|k| poisson(mean, k)).sum::<f64>();
    let answers = lost(
        &place,
        &[
            "pool.sm",
            "P=? [ F=2 \"many\" ]",
            "P=? [ F=2 x=173 ]",
            "R{\"few\"}=? [ I=2 ]",
            "R{\"came\"}=? [ C<=2 ]",
            "P=? [ F=2 x>1000000 ]",
            "P=? [ X x=1 ]",
            "--truncate",
            "1e-10",
        ],
    );
    let wanted = [sum(180, 400), poisson(mean, 173), 2.0 * sum(0, 171), 1200.0, 0.0, 1.0];
    assert_eq!(answers.len(), wanted.len());
    for ((value, bound, loss), wanted) in answers.into_iter().zip(wanted) {
        // The sums of logarithms have errors of their own.
        let slack = 1e-12 * f64::max(wanted, 1.0);
        assert!((value - wanted).abs() <= bound + slack && bound <= 1e-5, "{value} ± {bound}, not {wanted}");
        assert!(value <= wanted + (bound - loss) + slack, "{value} is no lower bound of {wanted}");
    }
    // Boundary states contribute little: a state space many times as large gives the same value.
    let far = place.transient("pool.sm --time 1,2 --label x>=180 --truncate 1e-14");
    assert!((far.column(2)[1] - sum(180, 400)).abs() < 1e-9, "{}", far.stdout);
    assert!(far.stderr.contains("= loss "), "{}", far.stderr);
}

/// With a large truncation error, the bound contains it.
#[test]
fn the_truncation_error_is_in_the_bound() {
    let place = place();
    place.put("pool.sm", POOL.replace("200", "300"));
    let words =
        ["pool.sm", "P=? [ F=2 x>=250 ]", "--truncate", "0.95", "--epsilon", "0.951", "--report", "r.json"];
    let (value, bound) = answers(&place, &words).remove(0);
    let loss = place.json("r.json")["properties"][0]["loss"].as_f64().expect("a number");
    let mean = 300.0 * (1.0 - (-2.0f64).exp());
    let wanted: f64 = (250..600).map(|k| poisson(mean, k)).sum();
    let (value, other) = (number(&value), bound - loss);
    assert!(loss > 0.3 && other < 1e-3, "{loss} {other}");
    assert!(value <= wanted - 0.1 && wanted <= value + bound, "{value} + {bound}, {wanted}");
}

#[test]
fn reactions_are_independent_poisson_variables() {
    let place = place();
    let text = "ctmc\nmodule cell\na : int;\nb : int;\n[] true -> 30 : (a'=a+1);\n\
                [] a > 0 -> a : (a'=a-1)&(b'=b+1);\n[] b > 0 -> 0.5*b : (b'=b-1);\nendmodule\n";
    place.put("cell.sm", text);
    let t = 1.5f64;
    let a = 30.0 * (1.0 - (-t).exp());
    // A molecule that arrived s ago is in b with probability 2 (e^{-s/2} - e^{-s}).
    let b = 60.0 * (2.0 * (1.0 - (-0.5 * t).exp()) - (1.0 - (-t).exp()));
    let run = place.transient("cell.sm --time 1.5 --states a=23&b=16 --truncate 1e-10 --report r.json");
    let wanted = poisson(a, 23) * poisson(b, 16);
    let report = place.json("r.json");
    let bound = &report["bound"];
    assert!((run.column(2)[0] - wanted).abs() <= 1e-9 && wanted > 1e-3, "{} {wanted}", run.stdout);
    assert!(bound["loss"].as_f64().is_some_and(|loss| loss > 0.0 && loss <= 1e-10), "{bound}");
    let tail: f64 = (0..30).map(|k| poisson(b, k)).sum();
    let words = ["cell.sm", "P=? [ F=1.5 b>=30 ]", "--truncate", "1e-10"];
    let (value, bound) = answers(&place, &words).remove(0);
    assert!((number(&value) - (1.0 - tail)).abs() <= bound + 1e-12, "{value} {tail}");
}

/// A model with ranges is its own reference: truncated, and complete.
#[test]
fn a_truncated_model_agrees_with_the_whole() {
    let place = place();
    place.put("pool.sm", POOL).put("whole.sm", POOL.replace("x : int", "x : [0..400]"));
    let whole = std::fs::read_to_string(place.path().join("whole.sm")).expect("a text");
    place.put("whole.sm", whole.replace("true -> 200", "x < 400 -> 200"));
    let words = [
        "P=? [ x<150 U[0.5,1] x>=120 ]",
        "P=? [ x<120 U[0.5,1.5] x>=100 ]",
        "P=? [ F<=1 x>=130 ]",
        "P=? [ G<=1 x<130 ]",
        "R{\"all\"}=? [ C<=1 ]",
        "P<0.5 [ F<=1 x>=130 ]",
        // So long that runs on the first truncations end early: the last one computes the remaining
        // probability.
        "P=? [ G<=200 x<250 ]",
    ];
    let truncated = answers(&place, &[&["whole.sm"], &words[..], &["--truncate", "1e-10"]].concat());
    let whole = answers(&place, &[&["whole.sm"], &words[..]].concat());
    for place in [0, 1, 2, 3, 4, 6] {
        let ((value, bound), (wanted, own)) = (&truncated[place], &whole[place]);
        let error = (number(value) - number(wanted)).abs();
        assert!(error <= bound + own, "{value} ± {bound}, {wanted} ± {own}");
    }
    assert_eq!(truncated[5].0, whole[5].0);
    // Nothing is truncated in a small model.
    assert_eq!(
        answers(&place, &["queue.sm", "P=? [ F<=1 q=4 ]", "--const", "N=4", "--truncate", "1e-10"]).len(),
        1
    );
}

#[test]
fn unsupported_properties_of_truncated_models_are_rejected() {
    let place = place();
    place.put("pool.sm", POOL);
    let of_pool = |property: &str, part: &str| {
        let run = check(&place, &["pool.sm", property, "--truncate", "1e-10"]);
        assert_eq!(run.code, 2, "{property}\n{}", run.stderr);
        assert!(run.stderr.contains(part), "{property}\n{}", run.stderr);
    };
    of_pool("P=? [ F x>10 ]", "bounds on time");
    of_pool("S=? [ x>10 ]", "bounds on time");
    of_pool("R{\"few\"}=? [ F x>10 ]", "bounds on time");
    of_pool("R{\"all\"}=? [ C<=1 ]", "\"all\" have no bound");
    of_pool("P=? [ F<=1 P>0.5 [ F<=1 x>10 ] ]", "operator inside of another");
    of_pool("filter(max, P=? [ F<=1 x>10 ], x<5)", "a filter");
    of_pool("P=? [ F<=1 \"deadlock\" ]", "deadlocks");
    let refused = |line: &str, part: &str| {
        let run = place.kolmo(line);
        assert_eq!(run.code, 2, "{line}\n{}", run.stderr);
        assert!(run.stderr.contains(part), "{line}\n{}", run.stderr);
    };
    refused("transient pool.sm --time inf --truncate 1e-10", "finite times");
    refused("transient pool.sm --time 1 --states 3 --truncate 1e-10", "by their variables");
    refused("transient pool.sm --time 1 --rewards all --truncate 1e-10", "no bound");
    refused("transient pool.sm --time 1 --label deadlock --truncate 1e-10", "deadlocks");
    refused("transient pool.sm --time 1 --truncate 1e-3", "--epsilon 1e-9");
    refused("transient tandem:3 --time 1 --truncate 1e-10", "tandem:3");
    refused("transient pool.sm --time 1 --label many --truncate 1e-10 --memory-limit 10KiB", "limit is");
    refused("check tandem:3 P=?[F<=1\"init\"] --truncate 1e-10", "tandem:3");
}
