//! `kolmo walk` and the systems of `kolmo generate`.

use crate::support::{Place, Run, SYSTEM, array, float, number};

/// Solution of [`SYSTEM`].
const X: [f64; 3] = [1.0, 2.0, 5.0];

fn walk(place: &Place, line: &str) -> Run {
    place.ok(&format!("walk {line}"))
}

/// Runs a walk that does not reach its half-width.
#[track_caller]
fn exhausted(place: &Place, line: &str, parts: &[&str]) -> Run {
    place.kolmo(&format!("walk {line} --device cpu")).ends(1, parts)
}

/// Asserts that every interval contains its component.
#[track_caller]
fn holds(run: &Run, x: impl Fn(usize) -> f64) {
    assert_eq!(run.rows()[0], ["component", "estimate", "half_width", "chains", "length"]);
    for row in &run.rows()[1..] {
        let m: usize = row[0].parse().expect("a component");
        let (estimate, half_width, x) = (number(row[1]), number(row[2]), x(m));
        assert!((estimate - x).abs() <= half_width, "x_{m} = {x} is not in {estimate} ± {half_width}");
    }
}

#[test]
fn right_hand_sides_come_in_three_formats() {
    let place = Place::new();
    place.put("a.mtx", SYSTEM).put("b.txt", "6\n7\n2.5\n");
    place.put("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n6\n7\n2.5\n");
    place.put("b.npy", array(&[3], &[6.0, 7.0, 2.5]));
    for b in ["b.txt", "b.mtx", "b.npy"] {
        let run = walk(&place, &format!("a.mtx -b {b} --component 2,0-1 --epsilon 1e-3 --confidence 0.999"));
        holds(&run, |m| X[m]);
        assert_eq!(run.rows().iter().skip(1).map(|r| r[0]).collect::<Vec<_>>(), ["2", "0", "1"]);
    }
    // The default right-hand side is 1: x = (2, 3, 22)/11.
    holds(&walk(&place, "a.mtx --component 0,1,2"), |m| [2.0 / 11.0, 3.0 / 11.0, 2.0][m]);
}

#[test]
fn several_right_hand_sides_add_a_column() {
    let place = Place::new();
    let b = "%%MatrixMarket matrix array real general\n3 2\n6\n7\n2.5\n12\n14\n5\n";
    place.put("a.mtx", SYSTEM).put("b.mtx", b);
    let run = walk(&place, "a.mtx -b b.mtx --component 1");
    let rows = run.rows();
    assert_eq!(rows[0], ["rhs", "component", "estimate", "half_width", "chains", "length"]);
    for (k, row) in rows[1..].iter().enumerate() {
        assert_eq!((row[0].to_owned(), row[1]), (k.to_string(), "1"));
        approx::assert_abs_diff_eq!(number(row[2]), 2.0 * (k + 1) as f64, epsilon = number(row[3]));
    }
    assert_eq!(rows.len(), 3);
}

#[test]
fn functionals_follow_components() {
    let place = Place::new();
    place.put("a.mtx", SYSTEM).put("b.txt", "6\n7\n2.5\n").put("h.txt", "1\n-1\n0\n");
    place.put("two.mtx", "%%MatrixMarket matrix array real general\n3 2\n1\n1\n1\n0\n0\n-1e300\n");
    let line =
        "a.mtx -b b.txt --component 2 --functional h.txt --functional two.mtx --report r.json --plot p.svg";
    let run = walk(&place, &format!("{line} --verbose"));
    let rows = run.rows();
    assert_eq!(rows.iter().map(|r| r[0]).collect::<Vec<_>>(), ["component", "2", "h0", "h1", "h2"]);
    for (row, wanted) in rows[1..].iter().zip([5.0, -1.0, 8.0, -5e300]) {
        approx::assert_abs_diff_eq!(number(row[1]), wanted, epsilon = number(row[2]));
    }
    assert!(run.stderr.contains("<h1, x> = ") && place.text("p.svg").contains("h2, x"), "{}", run.stderr);
    let report = place.json("r.json");
    assert_eq!(report["components"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["functionals"][1]["quantity"], "functional");
    assert_eq!(report["functionals"][1]["component"], 1);
    // Functionals alone: with two right-hand sides, and in a dry run.
    place.put("b2.mtx", "%%MatrixMarket matrix array real general\n3 2\n6\n7\n2.5\n12\n14\n5\n");
    let run = walk(&place, "a.mtx -b b2.mtx --functional h.txt");
    assert_eq!((run.rows()[1][1], run.rows()[2][0]), ("h0", "1"), "{}", run.stdout);
    walk(&place, "a.mtx --functional h.txt --dry-run").ends(0, &["no walk"]);
}

/// Returns the text of an `.mtx` file: a tridiagonal matrix, the graph of a path of n states.
///
/// It is L, or the conductances of n + 1 resistors in series whose ends are at 0 V.
fn path(n: usize, diagonal: &str, beside: &str) -> String {
    let mut entries: Vec<String> = Vec::new();
    for i in 1..=n {
        entries.extend((i > 1).then(|| format!("{i} {} {beside}", i - 1)));
        entries.extend((!diagonal.is_empty()).then(|| format!("{i} {i} {diagonal}")));
        entries.extend((i < n).then(|| format!("{i} {} {beside}", i + 1)));
    }
    let count = entries.len();
    format!("%%MatrixMarket matrix coordinate real general\n{n} {n} {count}\n{}\n", entries.join("\n"))
}

#[test]
fn resistances_and_steps_until_absorption_are_components() {
    let place = Place::new();
    let n = 40;
    place.put("ruin.mtx", path(n, "", "0.5")).put("ohms.mtx", path(n, "2", "-1"));
    // The gambler's ruin: (i + 1) (n − i) steps from state i.
    let run = walk(&place, "ruin.mtx --splitting given --component 0,9 --epsilon 1e-6");
    holds(&run, |i| ((i + 1) * (n - i)) as f64);
    // i + 1 resistors to one end, in parallel with n − i to the other.
    place.put("in.txt", (0..n).map(|i| if i == 9 { "1\n" } else { "0\n" }).collect::<String>());
    let run = walk(&place, "ohms.mtx -b in.txt --component 9 --epsilon 1e-7");
    holds(&run, |i| ((i + 1) * (n - i)) as f64 / (n + 1) as f64);
}

#[test]
fn the_report_has_the_parts_of_the_half_width() {
    let place = Place::new();
    place.put("a.mtx", SYSTEM).put("b.txt", "6\n7\n2.5\n");
    let run = walk(&place, "a.mtx -b b.txt --component 0,1 -o x.csv --report r.json --sweeps 0");
    assert_eq!(run.stdout, "");
    assert_eq!(place.text("x.csv").lines().count(), 3);
    let report = place.json("r.json");
    assert_eq!((&report["command"], &report["status"]), (&"walk".into(), &"met".into()));
    for c in report["components"].as_array().expect("components") {
        let parts = ["statistical", "truncation", "rounding"].map(|key| float(&c["bound"], key));
        let off = parts.iter().sum::<f64>() - float(c, "half_width");
        assert!(off.abs() <= 1e-15 && parts[1] > 0.0 && parts[2] > 0.0, "{c}");
    }
    // The rows 0 and 1 of L sum to 1/4 and 1/3.
    approx::assert_abs_diff_eq!(float(&report, "norm"), 1.0 / 3.0, epsilon = 1e-12);
}

#[test]
fn an_exhausted_budget_is_exit_1_with_an_interval() {
    let place = Place::new();
    let line =
        "poisson2d:20,0.95 --component 210 --sweeps 0 --epsilon 1e-9 --max-chains 4096 --confidence 0.9999";
    let run = exhausted(&place, line, &["NOT met"]);
    assert!(number(run.rows()[1][2]) > 1e-9 && run.rows()[1][3] == "4096", "{}", run.stdout);
    // 500 sweeps solve the system without chains.
    let exact = walk(&place, "poisson2d:20,0.95 --component 210 --sweeps 500 --epsilon 1e-9");
    let [estimate, half_width] = [1, 2].map(|column| number(run.rows()[1][column]));
    approx::assert_abs_diff_eq!(number(exact.rows()[1][1]), estimate, epsilon = half_width + 1e-9);
}

#[test]
fn long_walks_are_announced_and_end_with_the_time_limit() {
    let place = Place::new();
    place.put("lap.mtx", path(499, "2", "-1"));
    for (system, walks, told) in [
        ("lap.mtx --component 249", "--control none", "at least about"),
        ("poisson2d:20,0.95 --component 210", "--control none --max-chains 34000000000", "walks at "),
    ] {
        let line = format!("{system} {walks} --epsilon 1e-6");
        let limit = "--time-limit 61 --device cpu";
        let faster = format!("kolmo walk {system} --epsilon 1e-6 {limit} --control krylov");
        // Two seconds are allowed for delays by other processes.
        let at = std::time::Instant::now();
        walk(&place, &format!("{line} --time-limit 61 --dry-run"))
            .ends(0, &["faster, BiCGSTAB before them: ", &faster, told]);
        assert!(at.elapsed().as_secs_f64() < 3.0, "{:?}", at.elapsed());
        let at = std::time::Instant::now();
        let limit = "the time limit of 700.0 ms has ended the work";
        let run = exhausted(&place, &format!("{line} --time-limit 0.7 --report r.json"), &[limit]);
        assert!(at.elapsed().as_secs_f64() < 2.7, "{:?}", at.elapsed());
        assert!(number(run.rows()[1][2]) > 1e-6, "{}", run.stdout);
    }
    // After BiCGSTAB, the interval has no statistical part.
    let run = walk(&place, "lap.mtx --component 249 --epsilon 1e-4").ends(0, &["proved: met", "no walk"]);
    holds(&run, |_| 31_250.0);
}

#[test]
fn nine_digits_need_no_walk_and_a_dry_run_says_so() {
    let place = Place::new();
    let line = "poisson2d:20,0.95 --component 210 --epsilon 1e-9 --verbose";
    let run = walk(&place, line).ends(0, &[" products of BiCGSTAB"]);
    assert_eq!(run.rows()[1][3..], ["0", "0"], "chains, and steps of a chain");
    let exact = walk(&place, "poisson2d:20,0.95 --component 210 --control 700 --epsilon 1e-9");
    let [one, other] = [&run, &exact].map(|run| [1, 2].map(|column| number(run.rows()[1][column])));
    approx::assert_abs_diff_eq!(one[0], other[0], epsilon = one[1] + other[1]);

    let dry = format!("{line} --dry-run --report r.json");
    let dry = walk(&place, &dry)
        .ends(0, &["walks have 0 steps", "of the components, no walk: half-width", ", no walk\n"]);
    assert!(!dry.stderr.contains("million steps/s") && !dry.stderr.contains("chains   "), "{}", dry.stderr);
    assert_eq!(place.json("r.json")["seconds"]["walks"], 0.0);
    assert_eq!(place.json("r.json")["chains"], 0.0);
    walk(&place, &format!("{line} --plot x.svg")).ends(0, &[]);
    assert!(!place.text("x.svg").contains("NaN") && !place.text("x.svg").contains("inf"));
}

#[test]
fn generated_systems_are_the_built_in_ones() {
    let place = Place::new();
    for spec in ["poisson3d:4,0.8", "random-dominant:60,5,0.7,signed"] {
        let direct = walk(&place, &format!("{spec} --component 11 --seed 5"));
        for (a, b) in [("a.mtx", "b.txt"), ("a.npz", "b.npy")] {
            place.ok(&format!("generate {spec} --seed 5 -o {a} --rhs {b}"));
            let read = walk(&place, &format!("{a} -b {b} --component 11 --seed 5"));
            assert_eq!(read.stdout, direct.stdout, "{spec} through {a} and {b}");
        }
    }
}

#[test]
fn entries_at_one_place_are_added() {
    let place = Place::new();
    place.put("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 4\n1 1 1\n1 1 3\n1 2 1\n2 2 2\n");
    holds(&walk(&place, "a.mtx --component 0,1 --epsilon 1e-4"), |m| [0.125, 0.5][m]);
}

/// BiCGSTAB on a device has the bits of the CPU.
///
/// Software adapters may round fused products twice. Their bits are those of the CPU without vector
/// instructions.
#[test]
#[cfg_attr(target_arch = "aarch64", ignore = "software adapters may round twice, these CPUs once")]
fn bicgstab_on_a_device_has_the_bits_of_the_cpu() {
    let place = Place::new();
    // Just large enough to be on the device.
    let line = "walk poisson2d:190,0.95 --component 18050,7 --epsilon 1e-6 --quiet";
    let on = |device: &str, environment| place.kolmo_with(&format!("{line} --device {device}"), environment);
    let there = on("wgpu:0", &[]);
    if there.code == 2 && there.stderr.contains("wgpu:0") {
        return crate::devices::skip("wgpu:0", there.stderr);
    }

    let fused = on("cpu", &[]);
    let portable = on("cpu", &[("KOLMO_LEVEL", "portable")]);

    assert_eq!((there.code, fused.code, portable.code), (0, 0, 0), "{}", there.stderr);
    let all = [&fused.stdout, &portable.stdout];
    assert!(all.contains(&&there.stdout), "{}, not one of {all:?}", there.stdout);
}
