//! `kolmo transient` with rates that change with time: constants with times, and `--schedule`.

use crate::support::{MACHINE, Place, number, section};

/// Probability to be up after `t`, from probability p.
fn after(p: f64, fail: f64, repair: f64, t: f64) -> f64 {
    let limit = repair / (fail + repair);
    limit + (p - limit) * (-(fail + repair) * t).exp()
}

#[test]
fn constants_with_times_make_phases() {
    let place = Place::new();
    place.put("m.sm", MACHINE);
    let up = |constants: &str, times: &str| {
        let line = format!("m.sm --const {constants} --time {times} --label up --epsilon 1e-12");
        place.transient(&line).column(2)
    };
    let exact = {
        let evening = after(1.0, 0.25, 1.0, 8.0);
        let morning = after(evening, 0.25, 0.5, 16.0);
        [evening, morning, after(morning, 0.25, 1.0, 8.0)]
    };

    let once = up("fail=0.25,repair=1@0,0.5@8,1@24", "8,24,32");
    let periodic = up("repair=1@0,0.5@8%24,fail=0.25", "8,24,32");
    for (found, exact) in once.iter().chain(&periodic).zip(exact.iter().chain(&exact)) {
        assert!((found - exact).abs() < 1e-11, "{found} instead of {exact}");
    }
    // Reaching a set, with the hazard of failure added up over phases.
    let constants = "fail=0.1@0,0.3@10,0.1@24,repair=1@0,0.5@8%24";
    let line = format!("transient m.sm --const {constants} --time 30,8 --until true !up");
    let reached = place.ok(&format!("{line} --device cpu")).column(2);
    for (found, hazard) in reached.iter().zip([5.8f64, 0.8]) {
        assert!((found + (-hazard).exp_m1()).abs() < 1e-9, "{found} at hazard {hazard}");
    }
    // The prediction adds the products of the phases, of which a run takes no more.
    place.ok(&format!("{line} --dry-run --report plan.json --device cpu"));
    place.ok(&format!("{line} --report run.json --device cpu"));
    let [plan, run] = ["plan.json", "run.json"].map(|name| place.json(name)["terms"].as_u64());
    assert!(plan >= run && run > Some(20), "{plan:?} predicted, {run:?} taken");
    // No phase alone has all transitions.
    let halves = up("fail=0.25@0,0@8,repair=0@0,1@10", "9,12");
    for (found, down) in halves.iter().zip([-(-2.0f64).exp_m1(), -(-2.0f64).exp_m1() * (-2.0f64).exp()]) {
        assert!((1.0 - found - down).abs() < 1e-11, "{found} instead of 1 - {down}");
    }
    let long = up("fail=0.25@0,0.125@5,repair=1", "inf");
    assert!((long[0] - 8.0 / 9.0).abs() < 1e-11, "{long:?}");
    let run = place.transient("m.sm --const fail=0.25,repair=1@0,0.5@8 --time 20,0 --rewards uptime");
    let earned = run.rows().iter().find(|row| row[0] == "20").map(|row| number(row[3]));
    // ∫ p by day and by night, from the derivatives of p.
    let (day, night) = (after(1.0, 0.25, 1.0, 8.0), after(after(1.0, 0.25, 1.0, 8.0), 0.25, 0.5, 12.0));
    let sum = 0.8 * 8.0 + (1.0 - day) / 1.25 + 12.0 * 2.0 / 3.0 + (day - night) / 0.75;
    assert!((earned.expect("a sum") - sum).abs() < 1e-7, "{earned:?} instead of {sum}");
}

#[test]
fn files_make_phases_and_jumps() {
    let place = Place::new();
    place.put("day.tra", "2 2\n0 1 0.25\n1 0 1\n").put("night.tra", "2 1\n0 1 0.25\n");
    place.put("inspect.tra", "2 3\n0 0 1\n1 0 0.5\n1 1 0.5\n");
    place.put("phases.csv", "until,model\n8,day.tra\n24,night.tra\n24,jump:inspect.tra\ninf,day.tra\n");

    let run = place.transient("--schedule phases.csv --time 8,24,32 --epsilon 1e-12");
    let evening = after(1.0, 0.25, 1.0, 8.0);
    let morning = evening * (-4.0f64).exp();
    let inspected = morning + 0.5 * (1.0 - morning);
    let exact = [evening, inspected, after(inspected, 0.25, 1.0, 8.0)];
    for (k, exact) in exact.iter().enumerate() {
        let found = run.column(k + 1)[0];
        assert!((found - exact).abs() < 1e-11, "{found} instead of {exact}");
    }
}

/// Properties of a model whose rates change with time: closed forms, and refused ones.
#[test]
fn properties_follow_constants_with_times() {
    let place = Place::new();
    let fees = "rewards \"fees\" up : fail; !up : 2*repair; endrewards\nlabel \"rare\" = fail < 0.3;\n";
    place.put("m.sm", format!("{MACHINE}{fees}"));
    let evening = after(1.0, 0.25, 1.0, 8.0);
    let at_20 = after(evening, 0.25, 0.5, 12.0);
    let next_day = after(after(at_20, 0.25, 0.5, 4.0), 0.25, 1.0, 8.0);
    // ∫ p by day and by night, from the derivatives of p.
    let (day, night) = (0.8 * 8.0 + (1.0 - evening) / 1.25, 12.0 * 2.0 / 3.0 + (evening - at_20) / 0.75);
    let (repaired, at_4) = ("fail=0.25,repair=1@0,0.5@8%24", after(1.0, 0.25, 1.0, 4.0));
    let rounded = "fail=1e-3@0,1e5@0.3,1e-3@0.4%1000,repair=1e5@0,1e-3@0.1%1000";
    let wearing = "fail=0.1@0,0.3@10,0.1@24,repair=1@0,0@3%7";
    for (property, constants, wanted) in [
        ("P=? [ F=20 up ]", repaired, at_20),
        ("P=? [ F=32 up ]", repaired, next_day),
        ("P=? [ F<=20 !up ]", repaired, -(-5.0f64).exp_m1()),
        // The hazard of failure adds up over phases: 1 + 4.2 + 0.6.
        ("P=? [ F<=30 !up ]", "fail=0.1@0,0.3@10,0.1@24,repair=0", -(-5.8f64).exp_m1()),
        ("P=? [ up U<=30 !up ]", wearing, -(-5.8f64).exp_m1()),
        // No phase alone has all transitions.
        ("P=? [ F<=9 !up ]", "fail=0.25@0,0@8,repair=1", -(-2.0f64).exp_m1()),
        ("P=? [ F=12 !up ]", "fail=0.25@0,0@8,repair=0@0,1@10", (-2.0f64).exp() - (-4.0f64).exp()),
        // Intervals: within a phase, from its end on, and across ends.
        ("P=? [ F[1,2] !up ]", repaired, 1.0 - after(1.0, 0.25, 1.0, 1.0) * (-0.25f64).exp()),
        ("P=? [ F[4,20] !up ]", repaired, 1.0 - at_4 * (-4.0f64).exp()),
        ("P=? [ F[8,20] !up ]", repaired, 1.0 - evening * (-3.0f64).exp()),
        ("P=? [ G[4,30] up ]", repaired, at_4 * (-6.5f64).exp()),
        ("P=? [ up U[4,20] !up ]", repaired, (-1.0f64).exp() - (-5.0f64).exp()),
        ("P=? [ up U[12,26] !up ]", wearing, (-1.6f64).exp() - (-5.4f64).exp()),
        ("P=? [ up U[12,26] up ]", wearing, (-1.6f64).exp()),
        ("R{\"uptime\"}=? [ C<=20 ]", repaired, day + night),
        ("R{\"fees\"}=? [ C<=20 ]", repaired, 0.25 * (day + night) + 2.0 * (8.0 - day) + 12.0 - night),
        ("R{\"fees\"}=? [ I=20 ]", repaired, 0.25 * at_20 + 1.0 - at_20),
        ("1 - P=? [ F=20 up ]", repaired, 1.0 - at_20),
        // The first phase has more jumps than a sum with those of the second can resolve.
        ("R{\"uptime\"}=? [ C<=2 ]", "fail=1e6@0,5e-11@1,repair=1e6@0,1e-12@1", 1.0 + 2.5e-7 - 1.225e-11),
        // The last change is at the sum of 1000 and the double 0.3.
        ("P=? [ F=1000.30001 !up ]", rounded, 0.6321941226184215),
    ] {
        // The rounding of the last row's changes is larger than its epsilon.
        let run = place.kolmo(&format!("check m.sm '{property}' --const {constants} --device cpu"));
        let last = run.rows()[1].len() - 1;
        let [value, bound] = [last - 1, last].map(|column| number(run.rows()[1][column]));
        let within = (value - wanted).abs() <= bound + 1e-15 && bound < 1e-7;
        assert!(within, "{property}: {wanted}\n{}", run.stdout);
    }
    let line = "check m.sm 'P>=0.9 [ F<=9 !up ]' 'const double T; P=? [ F=T up ]' --report r.json";
    let run = place.ok(&format!("{line} --const fail=0.1|0.25,repair=1@0,0.5@8%24,T=8|20"));
    assert_eq!((run.rows()[0].join(","), run.rows().len()), ("property,fail,T,value,bound".to_owned(), 9));
    assert_eq!(place.json("r.json")["explorations"], 1);
    // States of an earlier value do not hide that a phase has others.
    place.put("x.sm", MACHINE.replace("-> fail", "-> max(fail-x,0)").replace("ctmc", "ctmc const double x;"));
    let line = "check x.sm 'P=? [ F<=9 !up ]' --const fail=0.1@0,0.3@5,x=0|0.2,repair=1 --device cpu";
    place.kolmo(line).ends(1, &["no answer for x=0.2", "must not change the states"]);
    for case in section(include_str!("wrong/properties.txt"), "with rates that change") {
        let (property, said) = (case[0], case[1]);
        let line = format!("check m.sm 'P=? [ F<=9 !up ]' '{property}' --const fail=0.25@0,0.5@8,repair=1");
        let run =
            place.kolmo(&format!("{line} --device cpu")).ends(2, &[said, "1 of 2 properties", property]);
        let refused: Vec<bool> = run.stdout.lines().map(|line| line.ends_with(",refused,")).collect();
        assert_eq!(refused, [false, false, true], "{}", run.stdout);
    }
}
