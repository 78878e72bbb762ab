//! `kolmo tridiagonal`: formats, shapes, reports and errors.

use kolmo::tridiagonal::System;
use serde_json::Value;

use crate::support::{FIVE, FOUR, Place, Run, array, float, npy, npz};

fn arrays(members: &[(&str, &[usize], &[f64])]) -> Vec<u8> {
    npz(true, &members.iter().map(|(name, shape, values)| (*name, array(shape, values))).collect::<Vec<_>>())
}

const MTX: &str = "%%MatrixMarket matrix coordinate real general\n4 4 10\n1 1 4\n1 2 1\n2 1 1\n2 2 5\n2 3 2\n3 2 -1\n\
    3 3 6\n3 4 1\n4 3 2\n4 4 8\n";
const DL: [f64; 4] = [f64::NAN, 1.0, -1.0, 2.0];
const D: [f64; 4] = [4.0, 5.0, 6.0, 8.0];
const DU: [f64; 4] = [1.0, 2.0, 1.0, f64::INFINITY];
const B: [f64; 4] = [6.0, 17.0, 20.0, 38.0];

/// Runs `kolmo tridiagonal` on the CPU, and asserts that it meets its tolerance.
#[track_caller]
fn solved(place: &Place, line: &str) -> Run {
    place.ok(&format!("tridiagonal {line}"))
}

/// Asserts shape and values of `x.npy`, up to some rounding errors of numbers up to 100.
#[track_caller]
fn unknowns(place: &Place, shape: &[usize], expected: &[f64]) {
    let (got, x) = npy(&place.get("x.npy"));
    assert_eq!(format!("[{}]", got.trim_end_matches(',')), format!("{shape:?}"));
    assert_eq!(x.len(), expected.len());
    for (i, (x, expected)) in x.iter().zip(expected).enumerate() {
        assert!((x - expected).abs() <= 1e-13, "element {i}: {x} for {expected}");
    }
}

#[test]
fn every_format_gives_the_same_unknowns() {
    let place = Place::new();
    place.put("s.csv", FOUR).put("s.mtx", MTX).put("b.txt", "6\n17\n20\n38\n").put("b.npy", array(&[4], &B));
    place.put("b.mtx", "%%MatrixMarket matrix array real general\n4 1\n6\n17\n20\n38\n");
    let four = [("dl", &[4][..], &DL[..]), ("d", &[4], &D), ("du", &[4], &DU), ("b", &[4], &B)];
    place.put("s.npz", arrays(&four));
    let three = [("dl", &[3][..], &DL[1..]), ("d", &[4], &D), ("du", &[3], &DU[..3]), ("b", &[4], &B)];
    place.put("lapack.npz", arrays(&three));
    let lines = "s.csv; s.npz; lapack.npz; s.mtx -b b.txt; s.mtx -b b.npy; s.mtx -b b.mtx; s.csv -b b.npy";
    for line in lines.split("; ") {
        solved(&place, &format!("{line} -o x.npy --quiet"));
        unknowns(&place, &[4], &[1.0, 2.0, 3.0, 4.0]);
        let run = solved(&place, &format!("{line} --quiet"));
        assert_eq!(run.rows()[0], ["row", "x"], "{line}");
        assert_eq!(run.rows().len(), 5);
    }
    solved(&place, "s.csv -o x.txt --quiet");
    assert_eq!(place.text("x.txt").lines().count(), 4);
    // A matrix alone gets the right-hand side 1, with a message.
    let run = solved(&place, "s.mtx -o x.npy");
    assert!(run.stderr.contains("no right-hand side") && run.stderr.contains("-b FILE"), "{}", run.stderr);
}

#[test]
fn several_right_hand_sides_keep_the_shape_of_b() {
    let place = Place::new();
    let twice: Vec<f64> = B.iter().flat_map(|&b| [b, -2.0 * b]).collect();
    place.put("s.csv", FOUR).put("b.npy", array(&[4, 2], &twice));
    solved(&place, "s.csv -b b.npy -o x.npy --quiet");
    unknowns(&place, &[4, 2], &[1.0, -2.0, 2.0, -4.0, 3.0, -6.0, 4.0, -8.0]);
    let run = solved(&place, "s.csv -b b.npy --quiet");
    assert_eq!(run.rows()[0], ["row", "x0", "x1"]);

    // Three right-hand sides with one matrix.
    let rows: Vec<f64> = [1.0, 3.0, -1.0].iter().flat_map(|f| B.map(|b| f * b)).collect();
    place.put("b.npy", array(&[3, 4], &rows));
    solved(&place, "s.csv -b b.npy -o x.npy --report r.json --quiet");
    unknowns(&place, &[3, 4], &[1.0, 2.0, 3.0, 4.0, 3.0, 6.0, 9.0, 12.0, -1.0, -2.0, -3.0, -4.0]);
    assert_eq!(place.json("r.json")["rhs"], 3);
}

#[test]
fn many_systems_are_sequential_or_interleaved() {
    let place = Place::new();
    let both = |v: [f64; 4], f: f64| [v, v.map(|v| f * v)].concat();
    let [dl, d, du] = [DL, D, DU].map(|v| both(v, 2.0));
    // The second system is twice the first with five times the right-hand side.
    let b = both(B, 5.0);
    let members = |shape: &[usize], [dl, d, du, b]: [&Vec<f64>; 4]| {
        arrays(&[("dl", shape, dl), ("d", shape, d), ("du", shape, du), ("b", shape, b)])
    };
    place.put("rows.npz", members(&[2, 4], [&dl, &d, &du, &b]));
    let x = [1.0, 2.0, 3.0, 4.0, 2.5, 5.0, 7.5, 10.0];
    solved(&place, "rows.npz -o x.npy --report r.json --quiet");
    unknowns(&place, &[2, 4], &x);
    let report = place.json("r.json");
    assert_eq!((&report["n"], &report["batch"]), (&4.into(), &2.into()));
    let run = solved(&place, "rows.npz --quiet");
    assert_eq!(run.rows()[0], ["system", "row", "x"]);
    assert_eq!(run.rows()[5][..2], ["1", "0"]);

    let turn = |v: &Vec<f64>| (0..8).map(|k| v[k % 2 * 4 + k / 2]).collect::<Vec<f64>>();
    let [dl, d, du, b] = [&dl, &d, &du, &b].map(turn);
    place.put("columns.npz", members(&[4, 2], [&dl, &d, &du, &b]));
    solved(&place, "columns.npz --layout interleaved -o x.npy --quiet");
    unknowns(&place, &[4, 2], &turn(&x.to_vec()));
    // Two right-hand sides each, the second three times the first.
    let twice: Vec<f64> = b.iter().flat_map(|&b| [b, 3.0 * b]).collect();
    place.put("b.npy", array(&[4, 2, 2], &twice));
    solved(&place, "columns.npz --layout interleaved -b b.npy -o x.npy --quiet");
    unknowns(&place, &[4, 2, 2], &turn(&x.to_vec()).iter().flat_map(|&x| [x, 3.0 * x]).collect::<Vec<f64>>());
}

#[test]
fn cyclic_and_transposed_systems() {
    let place = Place::new();
    // With corner elements 1 and 1, b₀ + 4 and b₃ + 1 give the unknowns 1, 2, 3, 4 again.
    let (mut dl, mut du, mut b) = (DL, DU, B);
    (dl[0], du[3]) = (1.0, 1.0);
    (b[0], b[3]) = (10.0, 39.0);
    place.put("s.npz", arrays(&[("dl", &[4], &dl), ("d", &[4], &D), ("du", &[4], &du), ("b", &[4], &b)]));
    solved(&place, "s.npz --cyclic -o x.npy --report r.json --quiet");
    unknowns(&place, &[4], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(place.json("r.json")["cyclic"], true);
    // Aᵀ·(1, 2, 3, 4).
    place.put("s.csv", FOUR).put("b.txt", "6\n8\n30\n35\n");
    solved(&place, "s.csv --transpose -b b.txt -o x.npy --quiet");
    unknowns(&place, &[4], &[1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn pentadiagonal_systems_have_the_formats_of_tridiagonal_ones() {
    let place = Place::new();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    let b = [19.0, 35.0, 52.0, 63.0, 61.0];
    let diagonals = [("dl2", 1.0), ("dl", 2.0), ("d", 10.0), ("du", 3.0), ("du2", 1.0)];
    let members = diagonals.iter().map(|&(name, v)| (name, [v; 5])).chain([("b", b)]);
    let wide = |shape: &[usize], times: usize, systems_first: bool| {
        let repeated = |v: [f64; 5]| match systems_first {
            true => v.repeat(times),
            false => v.map(|v| vec![v; times]).concat(),
        };
        let all = members.clone().map(|(name, v)| (name, array(shape, &repeated(v))));
        npz(true, &all.collect::<Vec<_>>())
    };
    let mut mtx = "%%MatrixMarket matrix coordinate real general\n5 5 19\n".to_owned();
    for (i, j) in (0..25usize).map(|k| (k / 5, k % 5)).filter(|(i, j)| i.abs_diff(*j) <= 2) {
        mtx += &format!("{} {} {}\n", i + 1, j + 1, diagonals[j + 2 - i].1);
    }
    place.put("s.csv", FIVE).put("s.npz", wide(&[5], 1, true));
    place.put("s.mtx", mtx).put("b.npy", array(&[5], &b));
    for line in ["s.csv", "s.npz", "s.mtx -b b.npy", "s.csv -b b.npy"] {
        solved(&place, &format!("{line} -o x.npy --report r.json --quiet"));
        unknowns(&place, &[5], &x);
        let report = place.json("r.json");
        assert_eq!((&report["method"], &report["n"]), (&"one_pass".into(), &5.into()), "{line}");
    }
    let run = solved(&place, "s.csv --verbose");
    assert!(run.stderr.contains("one pass over the rows, certified"), "{}", run.stderr);
    place.put("b.npy", array(&[5], &[17.0, 33.0, 50.0, 61.0, 65.0]));
    solved(&place, "s.csv -b b.npy --transpose -o x.npy --quiet");
    unknowns(&place, &[5], &x);
    // Systems as rows and as columns, and right-hand sides with one matrix.
    place.put("many.npz", wide(&[3, 5], 3, true));
    solved(&place, "many.npz -o x.npy --quiet");
    unknowns(&place, &[3, 5], &x.repeat(3));
    place.put("many.npz", wide(&[5, 2], 2, false));
    solved(&place, "many.npz --layout interleaved -o x.npy --quiet");
    unknowns(&place, &[5, 2], &x.map(|x| [x; 2]).concat());
    place.put("b.npy", array(&[2, 5], &[b, b.map(|b| -b)].concat()));
    solved(&place, "s.csv -b b.npy -o x.npy --quiet");
    unknowns(&place, &[2, 5], &[x, x.map(|x| -x)].concat());
}

#[test]
fn blocks_are_read_written_and_solved() {
    let place = Place::new();
    let lower = [9.0, 9.0, 9.0, 9.0, 1.0, 0.0, 0.0, 1.0];
    let (middle, upper) = ([4.0, 1.0, 1.0, 5.0].repeat(2), [1.0, 0.0, 0.0, 2.0].repeat(2));
    let members = [
        ("lower", &[2, 2, 2][..], &lower[..]),
        ("diagonal", &[2, 2, 2], &middle),
        ("upper", &[2, 2, 2], &upper),
    ];
    place.put("s.npz", arrays(&members)).put("b.txt", "9\n19\n17\n25\n");
    solved(&place, "s.npz -b b.txt -o x.npy --quiet");
    unknowns(&place, &[4], &[1.0, 2.0, 3.0, 4.0]);
    for spec in ["blocks:500,2", "pentadiagonal:1001", "biharmonic:64,3"] {
        place.ok(&format!("generate {spec} -o g.npz"));
        let both = [spec, "g.npz"].map(|from| {
            solved(&place, &format!("{from} -o x.npy --quiet"));
            place.get("x.npy")
        });
        assert!(both[0] == both[1], "{spec}");
    }
}

#[test]
fn arrays_that_do_not_fit_are_named_with_their_shapes() {
    let place = Place::new();
    let ones = [1.0; 8];
    let lengths = |dl, d, du, b| {
        let all = [("dl", dl), ("d", d), ("du", du), ("b", b)];
        npz(true, &all.map(|(name, n)| (name, array(&[n], &ones[..n]))))
    };
    let of = |names: [&'static str; 3]| arrays(&names.map(|name| (name, &[8][..], &ones[..])));
    let uneven = [
        ("lower", &[2, 2, 2][..], &ones[..]),
        ("diagonal", &[1, 2, 2], &ones[..4]),
        ("upper", &[2, 2, 2], &ones),
    ];
    for (archive, parts) in [
        (lengths(5, 3, 3, 3), &["invalid shape [5] of dl", "expected [3], as d has"][..]),
        (lengths(3, 3, 1, 3), &["invalid shape [1] of du", "expected [3], as d has"]),
        (lengths(3, 3, 3, 4), &["invalid shape [4] of b", "expected [3], as d has"]),
        (lengths(0, 0, 0, 0), &["0 rows"]),
        (of(["dl2", "dl", "d"]), &["no member 'du'"]),
        (of(["lower", "diagonal", "upper"]), &["[8]", "[block rows, 2, 2]"]),
        (arrays(&uneven), &["lower has the shape [2, 2, 2]", "[1, 2, 2]"]),
    ] {
        place.put("s.npz", archive);
        place.refuses("tridiagonal s.npz -o x.npy --report r.json", &[&["s.npz"], parts].concat());
    }
}

/// The index column of pandas, and the row names and quotes of R.
#[test]
fn index_columns_and_quotes_are_read() {
    let place = Place::new();
    for head in [",dl,d,du,b", "\"\",\"dl\",\"d\",\"du\",\"b\""] {
        place.put("t.csv", format!("{head}\n\"1\",0,2,-1,1\n\"2\",-1,2,-1,0\n\"3\",-1,2,0,1\n"));
        solved(&place, "t.csv -o x.txt --quiet");
        for x in place.text("x.txt").lines() {
            assert!((x.parse::<f64>().expect("a number") - 1.0).abs() < 1e-14, "{x}");
        }
    }
}

#[test]
fn the_report_has_method_and_residuals() {
    let place = Place::new();
    let run = solved(&place, "random:20011 -o x.npy --report r.json --lanes 2 --verbose");
    let report = place.json("r.json");
    assert_eq!((&report["command"], &report["status"]), (&"tridiagonal".into(), &"met".into()));
    assert_eq!((&report["n"], &report["lanes"], &report["chunks"]), (&20_011.into(), &2.into(), &2.into()));
    assert_eq!((&report["method"], &report["dominant"]), (&"one_pass".into(), &true.into()));
    assert_eq!(report["bound"]["residual"], report["residual"]);
    // The residual is that of the written unknowns.
    let system: System = kolmo::models::tridiagonal("random:20011", 0).unwrap().unwrap().system;
    let (_, x) = npy(&place.get("x.npy"));
    let residual = system.residual(&system.b[0], &x, &mut []);
    assert_eq!(float(&report, "residual"), residual.normwise);
    assert!(residual.normwise < 1e-14);
    let largest = |v: &[f64]| v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert_eq!(float(&report, "growth"), largest(&x) / largest(&system.b[0]));
    assert!(run.stderr.contains("20 011") && run.stderr.contains("every row is dominant"), "{}", run.stderr);
}

#[test]
fn the_solver_follows_settings_of_the_method() {
    let place = Place::new();
    for (options, block, method) in
        [("--pivot scaled", 32, "pivoted"), ("--pivot none --refine 2", 128, "one_pass")]
    {
        solved(&place, &format!("random:5000 {options} -o x.npy --report r.json --quiet"));
        let report = place.json("r.json");
        assert_eq!((&report["block"], &report["method"]), (&block.into(), &method.into()), "{options}");
    }
    assert_eq!(place.json("r.json")["refinements"], 2);
}

#[test]
fn rows_beyond_the_device_memory_are_solved_in_chunks() {
    let place = Place::new();
    // 100 003 rows are 4 MB.
    let solve = |options: &str| -> (Vec<f64>, Value) {
        solved(&place, &format!("random:100003 -o x.npy --report r.json --quiet {options}"));
        (npy(&place.get("x.npy")).1, place.json("r.json"))
    };
    let (whole, _) = solve("--lanes 1");
    for (options, lanes) in [("--lanes 1", 1), ("--lanes 2", 2), ("--pivot scaled --lanes 1", 1)] {
        let (x, report) = solve(&format!("{options} --memory-limit 1500KiB"));
        assert_eq!(report["lanes"], lanes);
        assert!(report["chunks"].as_u64().unwrap() > lanes, "{options}: {report:#}");
        assert!(float(&report, "residual") < 1e-14, "{options}: {report:#}");
        // |A⁻¹|·|A| is at most 21 for these rows (tests/library/tridiagonal.rs), and each residual
        // is a few rounding errors.
        let worst = whole.iter().zip(&x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-13, "{options}: {worst:e}");
    }
}

#[test]
fn a_singular_matrix_is_an_outcome() {
    let place = Place::new();
    place.put("s.csv", "dl,d,du,b\n,0,1,1\n1,0,1,1\n1,0,,1\n");
    let line = "tridiagonal s.csv --device cpu -o x.npy --report r.json";
    place.kolmo(line).ends(1, &["singular", "row 2"]);
    assert!(npy(&place.get("x.npy")).1.iter().all(|x| x.is_nan()));
    let report = place.json("r.json");
    assert_eq!(report["status"], "not_met");
    assert_eq!(report["singular"], serde_json::json!({ "row": 2, "system": 0 }));
}

#[test]
fn componentwise_residuals_decide_and_are_reported() {
    let place = Place::new();
    place.put("s.csv", "dl,d,du,b\n,1e-20,0.5,-1.3\n-0.8,1,-0.7,-0.3\n-0.2,1e-20,,-2.1\n");
    solved(&place, "s.csv -o x.npy --report r.json");
    let report = place.json("r.json");
    assert!(float(&report, "componentwise") <= 8.0 * f64::EPSILON, "{report:#}");
    assert_eq!(report["componentwise_tolerance"], 1e-8);
    let x = npy(&place.get("x.npy")).1;
    assert!((x[0] / 3.5269e20 - 1.0).abs() < 1e-4 && (x[2] / -4.0308e20 - 1.0).abs() < 1e-4, "{x:?}");
    for (row, word) in [("1e-200,1e200", "1.8e308"), ("3e160,1e-160", "2.2e-308")] {
        place.put("s.csv", format!("d,b,dl,du\n{row},,\n"));
        place.kolmo("tridiagonal s.csv --device cpu -o x.npy").ends(1, &["NOT met", word]);
    }
}

#[test]
fn rows_that_are_not_dominant_are_exchanged() {
    let place = Place::new();
    let run = solved(&place, "toeplitz:5000,1,0.25,1 -o x.npy --report r.json --verbose");
    let report = place.json("r.json");
    assert_eq!((&report["method"], &report["dominant"]), (&"pivoted".into(), &false.into()), "{report:#}");
    assert!(run.stderr.contains("scaled partial pivoting"), "{}", run.stderr);
}
