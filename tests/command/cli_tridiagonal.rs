//! `kolmo tridiagonal`: formats, shapes, reports and errors.

use std::io::{Cursor, Write};

use crate::support::{Place, Run, npy};
use kolmo::tridiagonal::System;
use serde_json::Value;
use zip::write::SimpleFileOptions;

/// Returns an array as a `.npy` file; `shape` in Python's notation.
fn array(shape: &str, values: &[f64]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    bytes
}

/// Returns a `.npz` file of arrays with their shapes.
fn arrays(members: &[(&str, &str, &[f64])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, shape, values) in members {
        zip.start_file(format!("{name}.npy"), SimpleFileOptions::default()).expect("a member");
        zip.write_all(&array(shape, values)).expect("memory takes it");
    }
    zip.finish().expect("memory takes it").into_inner()
}

/// Four rows with the unknowns 1, 2, 3, 4: b = A·x in integers.
const CSV: &str = "dl,d,du,b\n,4,1,6\n1,5,2,17\n-1,6,1,20\n2,8,,38\n";
const MTX: &str = "%%MatrixMarket matrix coordinate real general\n4 4 10\n1 1 4\n1 2 1\n2 1 1\n2 2 5\n2 3 2\n3 2 -1\n\
    3 3 6\n3 4 1\n4 3 2\n4 4 8\n";
const DL: [f64; 4] = [f64::NAN, 1.0, -1.0, 2.0];
const D: [f64; 4] = [4.0, 5.0, 6.0, 8.0];
const DU: [f64; 4] = [1.0, 2.0, 1.0, f64::INFINITY];
const B: [f64; 4] = [6.0, 17.0, 20.0, 38.0];

/// Runs `kolmo tridiagonal` on the CPU, and asserts that it meets its tolerance.
#[track_caller]
fn solved(place: &Place, line: &str) -> Run {
    let run = place.kolmo(&format!("tridiagonal {line} --device cpu"));
    assert_eq!(run.code, 0, "kolmo tridiagonal {line}\n{}", run.stderr);
    run
}

/// Asserts shape and values of `x.npy`, up to some rounding errors of numbers up to 100.
#[track_caller]
fn unknowns(place: &Place, shape: &str, expected: &[f64]) {
    let (got, x) = npy(&place.get("x.npy"));
    assert_eq!(got.trim_end_matches(','), shape);
    assert_eq!(x.len(), expected.len());
    for (i, (x, expected)) in x.iter().zip(expected).enumerate() {
        assert!((x - expected).abs() <= 1e-13, "element {i}: {x} for {expected}");
    }
}

#[test]
fn every_format_gives_the_same_unknowns() {
    let place = Place::new();
    place.put("s.csv", CSV).put("s.mtx", MTX).put("b.txt", "6\n17\n20\n38\n").put("b.npy", array("4,", &B));
    place.put("b.mtx", "%%MatrixMarket matrix array real general\n4 1\n6\n17\n20\n38\n");
    let four = [("dl", "4,", &DL[..]), ("d", "4,", &D), ("du", "4,", &DU), ("b", "4,", &B)];
    place.put("s.npz", arrays(&four));
    let three = [("dl", "3,", &DL[1..]), ("d", "4,", &D), ("du", "3,", &DU[..3]), ("b", "4,", &B)];
    place.put("lapack.npz", arrays(&three));
    for line in [
        "s.csv",
        "s.npz",
        "lapack.npz",
        "s.mtx -b b.txt",
        "s.mtx -b b.npy",
        "s.mtx -b b.mtx",
        "s.csv -b b.npy",
    ] {
        solved(&place, &format!("{line} -o x.npy --quiet"));
        unknowns(&place, "4", &[1.0, 2.0, 3.0, 4.0]);
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
    place.put("s.csv", CSV).put("b.npy", array("4, 2", &twice));
    solved(&place, "s.csv -b b.npy -o x.npy --quiet");
    unknowns(&place, "4, 2", &[1.0, -2.0, 2.0, -4.0, 3.0, -6.0, 4.0, -8.0]);
    let run = solved(&place, "s.csv -b b.npy --quiet");
    assert_eq!(run.rows()[0], ["row", "x0", "x1"]);

    // Three right-hand sides with one matrix.
    let rows: Vec<f64> = [1.0, 3.0, -1.0].iter().flat_map(|f| B.map(|b| f * b)).collect();
    place.put("b.npy", array("3, 4", &rows));
    solved(&place, "s.csv -b b.npy -o x.npy --report r.json --quiet");
    unknowns(&place, "3, 4", &[1.0, 2.0, 3.0, 4.0, 3.0, 6.0, 9.0, 12.0, -1.0, -2.0, -3.0, -4.0]);
    assert_eq!(place.json("r.json")["rhs"], 3);
}

#[test]
fn many_systems_are_sequential_or_interleaved() {
    let place = Place::new();
    let both = |v: [f64; 4], f: f64| [v, v.map(|v| f * v)].concat();
    let [dl, d, du] = [DL, D, DU].map(|v| both(v, 2.0));
    // The second system is twice the first with five times the right-hand side.
    let b = both(B, 5.0);
    let members = |shape, [dl, d, du, b]: [&Vec<f64>; 4]| {
        arrays(&[("dl", shape, dl), ("d", shape, d), ("du", shape, du), ("b", shape, b)])
    };
    place.put("rows.npz", members("2, 4", [&dl, &d, &du, &b]));
    let x = [1.0, 2.0, 3.0, 4.0, 2.5, 5.0, 7.5, 10.0];
    solved(&place, "rows.npz -o x.npy --report r.json --quiet");
    unknowns(&place, "2, 4", &x);
    let report = place.json("r.json");
    assert_eq!((&report["n"], &report["batch"]), (&4.into(), &2.into()));
    let run = solved(&place, "rows.npz --quiet");
    assert_eq!(
        (run.rows()[0].clone(), run.rows()[5][..2].to_vec()),
        (vec!["system", "row", "x"], vec!["1", "0"])
    );

    let turn = |v: &Vec<f64>| (0..8).map(|k| v[k % 2 * 4 + k / 2]).collect::<Vec<f64>>();
    let [dl, d, du, b] = [&dl, &d, &du, &b].map(turn);
    place.put("columns.npz", members("4, 2", [&dl, &d, &du, &b]));
    solved(&place, "columns.npz --layout interleaved -o x.npy --quiet");
    unknowns(&place, "4, 2", &turn(&x.to_vec()));
    // Two right-hand sides each, the second three times the first.
    let twice: Vec<f64> = b.iter().flat_map(|&b| [b, 3.0 * b]).collect();
    place.put("b.npy", array("4, 2, 2", &twice));
    solved(&place, "columns.npz --layout interleaved -b b.npy -o x.npy --quiet");
    unknowns(&place, "4, 2, 2", &turn(&x.to_vec()).iter().flat_map(|&x| [x, 3.0 * x]).collect::<Vec<f64>>());
}

#[test]
fn cyclic_and_transposed_systems() {
    let place = Place::new();
    // With corner elements 1 and 1, b₀ + 4 and b₃ + 1 give the unknowns 1, 2, 3, 4 again.
    let (mut dl, mut du, mut b) = (DL, DU, B);
    (dl[0], du[3]) = (1.0, 1.0);
    (b[0], b[3]) = (10.0, 39.0);
    place.put("s.npz", arrays(&[("dl", "4,", &dl), ("d", "4,", &D), ("du", "4,", &du), ("b", "4,", &b)]));
    solved(&place, "s.npz --cyclic -o x.npy --report r.json --quiet");
    unknowns(&place, "4", &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(place.json("r.json")["cyclic"], true);
    // Aᵀ·(1, 2, 3, 4).
    place.put("s.csv", CSV).put("b.txt", "6\n8\n30\n35\n");
    solved(&place, "s.csv --transpose -b b.txt -o x.npy --quiet");
    unknowns(&place, "4", &[1.0, 2.0, 3.0, 4.0]);
}

/// Five rows with the unknowns 1 … 5.
const FIVE: &str = "dl2,dl,d,du,du2,b\n,,10,3,1,19\n,2,10,3,1,35\n1,2,10,3,1,52\n1,2,10,3,,63\n1,2,10,,,61\n";

#[test]
fn pentadiagonal_systems_have_the_formats_of_tridiagonal_ones() {
    let place = Place::new();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    let b = [19.0, 35.0, 52.0, 63.0, 61.0];
    let diagonals = [("dl2", 1.0), ("dl", 2.0), ("d", 10.0), ("du", 3.0), ("du2", 1.0)];
    let members: Vec<(&str, Vec<f64>)> = diagonals.iter().map(|&(name, v)| (name, vec![v; 5])).collect();
    let npz = |shape: &str, times: usize, systems_first: bool| {
        let all = members.iter().map(|(name, v)| (*name, v.clone())).chain([("b", b.to_vec())]);
        let all: Vec<(&str, Vec<f64>)> = all
            .map(|(name, v)| match systems_first {
                true => (name, v.repeat(times)),
                false => (name, v.iter().flat_map(|&v| vec![v; times]).collect()),
            })
            .collect();
        arrays(&all.iter().map(|(name, v)| (*name, shape, &v[..])).collect::<Vec<_>>())
    };
    let mut mtx = "%%MatrixMarket matrix coordinate real general\n5 5 19\n".to_owned();
    for (i, j) in
        (0..5usize).flat_map(|i| (0..5usize).map(move |j| (i, j))).filter(|&(i, j)| i.abs_diff(j) <= 2)
    {
        mtx += &format!("{} {} {}\n", i + 1, j + 1, diagonals[j + 2 - i].1);
    }
    place.put("s.csv", FIVE).put("s.npz", npz("5,", 1, true)).put("s.mtx", mtx).put("b.npy", array("5,", &b));
    for line in ["s.csv", "s.npz", "s.mtx -b b.npy", "s.csv -b b.npy"] {
        solved(&place, &format!("{line} -o x.npy --report r.json --quiet"));
        unknowns(&place, "5", &x);
        let report = place.json("r.json");
        assert_eq!((&report["method"], &report["n"]), (&"one_pass".into(), &5.into()), "{line}");
    }
    let run = solved(&place, "s.csv --verbose");
    assert!(run.stderr.contains("one pass over the rows, certified"), "{}", run.stderr);
    place.put("b.npy", array("5,", &[17.0, 33.0, 50.0, 61.0, 65.0]));
    solved(&place, "s.csv -b b.npy --transpose -o x.npy --quiet");
    unknowns(&place, "5", &x);
    // Systems as rows and as columns, and right-hand sides with one matrix.
    place.put("many.npz", npz("3, 5", 3, true));
    solved(&place, "many.npz -o x.npy --quiet");
    unknowns(&place, "3, 5", &x.repeat(3));
    place.put("many.npz", npz("5, 2", 2, false));
    solved(&place, "many.npz --layout interleaved -o x.npy --quiet");
    unknowns(&place, "5, 2", &x.map(|x| [x; 2]).concat());
    place.put("b.npy", array("2, 5", &[b, b.map(|b| -b)].concat()));
    solved(&place, "s.csv -b b.npy -o x.npy --quiet");
    unknowns(&place, "2, 5", &[x, x.map(|x| -x)].concat());
}

#[test]
fn blocks_are_read_written_and_solved() {
    let place = Place::new();
    let lower = [9.0, 9.0, 9.0, 9.0, 1.0, 0.0, 0.0, 1.0];
    let (middle, upper) = ([4.0, 1.0, 1.0, 5.0].repeat(2), [1.0, 0.0, 0.0, 2.0].repeat(2));
    let members =
        [("lower", "2, 2, 2", &lower[..]), ("diagonal", "2, 2, 2", &middle), ("upper", "2, 2, 2", &upper)];
    place.put("s.npz", arrays(&members)).put("b.txt", "9\n19\n17\n25\n");
    solved(&place, "s.npz -b b.txt -o x.npy --quiet");
    unknowns(&place, "4", &[1.0, 2.0, 3.0, 4.0]);
    for spec in ["blocks:500,2", "pentadiagonal:1001", "biharmonic:64,3"] {
        let run = place.kolmo(&format!("generate {spec} -o g.npz"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let both = [spec, "g.npz"].map(|from| {
            solved(&place, &format!("{from} -o x.npy --quiet"));
            place.get("x.npy")
        });
        assert!(both[0] == both[1], "{spec}");
    }
    let run = place.kolmo("generate blocks:4 -o g.csv");
    assert!(run.code == 2 && run.stderr.contains(".npz"), "{}", run.stderr);
}

#[test]
fn options_without_support_for_banded_systems_are_rejected() {
    let place = Place::new();
    place.put("s.csv", FIVE).put("b.npy", array("4,", &[1.0; 4]));
    for (line, parts) in [
        ("s.csv --cyclic", &["s.csv", "dl2", "cyclic"][..]),
        ("pentadiagonal:5 --cyclic", &["--cyclic", "leave it out"]),
        ("pentadiagonal:5 --block 10", &["--block"]),
        ("blocks:4 --interface host", &["--interface host"]),
        ("blocks:4 --dry-run", &["--dry-run", "blocks:4"]),
        ("blocks:5", &["even number"]),
        ("biharmonic:0", &["N (rows)"]),
        ("pentadiagonal", &["pentadiagonal:1e6"]),
        ("s.csv -b b.npy", &["invalid shape [4] of b", "expected [5], as d has"]),
    ] {
        refuses(&place, line, parts);
    }
    let file = |name: &str, contents: &[u8], parts: &[&str]| {
        place.put(name, contents);
        refuses(&place, &format!("{name} -o x.npy"), parts);
    };
    file("t.csv", b"dl2,dl,d,du,b\n1,1,4,1,1\n", &["t.csv:1", "expected dl2, dl, d, du and du2"]);
    file("t.csv", b"dl2,dl,d,du,du2\n,,9,nan,1\n,1,9,1,\n1,1,9,,\n", &["t.csv", "du of row 0", "finite"]);
    let ones = [1.0; 8];
    let of =
        |names: [&'static str; 3], shape: &'static str| arrays(&names.map(|name| (name, shape, &ones[..])));
    file("t.npz", &of(["dl2", "dl", "d"], "8,"), &["no member 'du'"]);
    file("t.npz", &of(["lower", "diagonal", "upper"], "8,"), &["[8]", "[block rows, 2, 2]"]);
    let uneven =
        [("lower", "2, 2, 2", &ones[..]), ("diagonal", "1, 2, 2", &ones[..4]), ("upper", "2, 2, 2", &ones)];
    file("t.npz", &arrays(&uneven), &["lower has the shape [2, 2, 2]", "[1, 2, 2]"]);
}

#[test]
fn a_column_that_is_not_read_is_refused_by_its_name() {
    let place = Place::new();
    let rows = "0,2,-1,1,0\n-1,2,-1,0,0\n-1,2,0,1,0\n";
    for (head, parts) in [
        ("dl,d,du,rhs,b", &["t.csv:1", "unknown column 'rhs'"][..]),
        ("dl,d,du,b1,b2", &["t.csv:1", "unknown column 'b1'", "expected dl, d, du and b"]),
        ("dl,d,du,b,b", &["t.csv:1", "duplicate column 'b'"]),
        ("dl,d,du,b,", &["t.csv:1", "unknown column ''"]),
        ("dl,d,du,b", &["t.csv:2", "5 cells", "4 columns"]),
    ] {
        place.put("t.csv", format!("{head}\n{rows}"));
        refuses(&place, "t.csv -o x.npy", parts);
    }
    // The index column of pandas, and the row names and quotes of R.
    for head in [",dl,d,du,b", "\"\",\"dl\",\"d\",\"du\",\"b\""] {
        place.put("t.csv", format!("{head}\n\"1\",0,2,-1,1\n\"2\",-1,2,-1,0\n\"3\",-1,2,0,1\n"));
        solved(&place, "t.csv -o x.txt --quiet");
        for x in place.text("x.txt").lines() {
            assert!((x.parse::<f64>().expect("a number") - 1.0).abs() < 1e-14, "{x}");
        }
    }
}

#[test]
fn singular_matrices_are_exit_1_for_every_order() {
    let place = Place::new();
    for line in ["toeplitz:3,-1,2,-1", "toeplitz:4,-1,2,-1", "toeplitz:8,-1,2,-1", "toeplitz:5000,-1,2,-1"] {
        let run = place.kolmo(&format!("tridiagonal {line} --cyclic -o x.npy --device cpu"));
        assert_eq!(run.code, 1, "{line}: {}", run.stderr);
        assert!(run.stderr.contains("singular to working precision"), "{line}: {}", run.stderr);
    }
    // Unknowns of 1e20 with rounding errors that exceed the largest double when multiplied by the
    // matrix.
    place.put("t.csv", "dl,d,du,b\n0,1.3e308,-1.1e308,1\n0,1e-20,0,1\n");
    solved(&place, "t.csv -o x.npy --quiet");
}

#[test]
fn the_report_has_method_and_residuals() {
    let place = Place::new();
    let run = solved(&place, "random:20011 -o x.npy --report r.json --lanes 2 --verbose");
    let report = place.json("r.json");
    for key in [
        "command",
        "version",
        "system",
        "status",
        "tolerance",
        "bound",
        "devices",
        "seconds",
        "n",
        "batch",
        "rhs",
        "cyclic",
        "block",
        "interface",
        "lanes",
        "chunks",
        "residual",
        "componentwise",
        "growth",
        "method",
        "dominant",
        "small_pivots",
        "refinements",
        "device_bytes",
        "stages",
    ] {
        assert!(!report[key].is_null(), "no {key} in {report:#}");
    }
    assert_eq!((&report["command"], &report["status"]), (&"tridiagonal".into(), &"met".into()));
    assert_eq!((&report["n"], &report["lanes"], &report["chunks"]), (&20_011.into(), &2.into(), &2.into()));
    assert_eq!((&report["method"], &report["dominant"]), (&"one_pass".into(), &true.into()));
    assert_eq!(report["bound"]["residual"], report["residual"]);
    // The residual is that of the written unknowns.
    let system: System = kolmo::models::tridiagonal("random:20011", 0).unwrap().unwrap().system;
    let (_, x) = npy(&place.get("x.npy"));
    let residual = system.residual(&system.b[0], &x, &mut []);
    assert_eq!(report["residual"].as_f64().unwrap(), residual.normwise);
    assert!(residual.normwise < 1e-14);
    let largest = |v: &[f64]| v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert_eq!(report["growth"].as_f64().unwrap(), largest(&x) / largest(&system.b[0]));
    assert!(run.stderr.contains("20 011") && run.stderr.contains("every row is dominant"), "{}", run.stderr);
}

#[test]
fn settings_of_the_method_are_followed() {
    let place = Place::new();
    for (options, block, interface, method) in [
        ("--block 10 --interface host", 10, "host", "partition"),
        ("--interface host", 10, "host", "partition"),
        ("--block 7 --interface device --pivot scaled", 7, "device", "pivoted"),
        ("--pivot none --refine 2", 128, "device", "one_pass"),
    ] {
        solved(&place, &format!("random:5000 {options} -o x.npy --report r.json --quiet"));
        let report = place.json("r.json");
        assert_eq!(report["block"], block, "{options}");
        assert_eq!(
            (&report["interface"], &report["method"]),
            (&interface.into(), &method.into()),
            "{options}"
        );
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
    for (options, lanes, limit) in [
        ("--lanes 1", 1, 1500),
        ("--lanes 2", 2, 1500),
        // The interface system of all blocks of 10, a fifth of the rows, is on one lane.
        ("--block 10 --lanes 2", 2, 2500),
        ("--pivot scaled --lanes 1", 1, 1500),
    ] {
        let (x, report) = solve(&format!("{options} --memory-limit {limit}KiB"));
        assert_eq!(report["lanes"], lanes);
        assert!(report["chunks"].as_u64().unwrap() > lanes, "{options}: {report:#}");
        assert!(report["residual"].as_f64().unwrap() < 1e-14, "{options}: {report:#}");
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
    let run = place.kolmo("tridiagonal s.csv --device cpu -o x.npy --report r.json");
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("singular") && run.stderr.contains("row 2"), "{}", run.stderr);
    assert!(npy(&place.get("x.npy")).1.iter().all(|x| x.is_nan()));
    let report = place.json("r.json");
    assert_eq!((&report["status"], &report["singular"]["row"]), (&"not_met".into(), &2.into()));
    assert_eq!(report["singular"]["system"], 0);
}

#[test]
fn componentwise_residuals_decide_and_are_reported() {
    let place = Place::new();
    place.put("s.csv", "dl,d,du,b\n,1e-20,0.5,-1.3\n-0.8,1,-0.7,-0.3\n-0.2,1e-20,,-2.1\n");
    solved(&place, "s.csv -o x.npy --report r.json");
    let report = place.json("r.json");
    assert!(report["componentwise"].as_f64().unwrap() <= 8.0 * f64::EPSILON, "{report:#}");
    assert_eq!(report["componentwise_tolerance"], 1e-8);
    let x = npy(&place.get("x.npy")).1;
    assert!((x[0] / 3.5269e20 - 1.0).abs() < 1e-4 && (x[2] / -4.0308e20 - 1.0).abs() < 1e-4, "{x:?}");
    for (row, word) in [("1e-200,1e200", "1.8e308"), ("3e160,1e-160", "2.2e-308")] {
        place.put("s.csv", format!("d,b,dl,du\n{row},,\n"));
        let run = place.kolmo("tridiagonal s.csv --device cpu -o x.npy");
        assert_eq!(run.code, 1, "{row}: {}", run.stderr);
        assert!(run.stderr.contains("NOT met") && run.stderr.contains(word), "{row}: {}", run.stderr);
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

/// Asserts that the line is rejected with these parts of a message, and writes no file.
#[track_caller]
fn refuses(place: &Place, line: &str, parts: &[&str]) {
    let before = place.names();
    let run = place.kolmo(&format!("tridiagonal {line} --device cpu"));
    assert_eq!(run.code, 2, "{line}\n{}", run.stderr);
    assert_eq!(run.stdout, "", "{line}");
    for part in parts {
        assert!(run.stderr.contains(part), "{line}\nshould say {part:?}:\n{}", run.stderr);
    }
    assert_eq!(place.names(), before, "{line}");
}

#[test]
fn bad_systems_are_refused_with_their_place() {
    let place = Place::new();
    let file = |name: &str, contents: &[u8], parts: &[&str]| {
        place.put(name, contents);
        refuses(&place, &format!("{name} -o x.npy --report r.json"), &[&[name], parts].concat());
    };
    let vector = |n: usize| (n.to_string() + ",", vec![1.0; n]);
    let lengths = |dl: usize, d: usize, du: usize, b: usize| {
        let all = [("dl", vector(dl)), ("d", vector(d)), ("du", vector(du)), ("b", vector(b))];
        arrays(&all.each_ref().map(|(name, (shape, values))| (*name, &shape[..], &values[..])))
    };
    // Lengths that differ.
    file("s.npz", &lengths(5, 3, 3, 3), &["invalid shape [5] of dl", "expected [3], as d has"]);
    file("s.npz", &lengths(3, 3, 1, 3), &["invalid shape [1] of du", "expected [3], as d has"]);
    file("s.npz", &lengths(3, 3, 3, 4), &["invalid shape [4] of b", "expected [3], as d has"]);
    // No row.
    file("s.npz", &lengths(0, 0, 0, 0), &["0 rows"]);
    file("s.csv", b"dl,d,du,b\n", &["no row"]);
    file("s.csv", b"", &["empty"]);
    // Invalid numbers.
    for (bad, row) in [("1,NaN,1,1", 1), ("inf,4,1,1", 1), ("1,4,1,-inf", 1)] {
        place.put("s.csv", format!("dl,d,du,b\n1,4,1,1\n{bad}\n1,4,1,1\n"));
        refuses(&place, "s.csv -o x.npy", &[&format!("row {row}"), "finite"]);
    }
    file("s.csv", b"dl,d,du,b\n1,4,1,1\n1,four,1,1\n", &["s.csv:3", "invalid number 'four' in column d"]);
    file("s.csv", b"dl,d,du,b\n1,4,1,1\n1,4,1\n", &["s.csv:3", "invalid number '' in column b"]);
    file("s.csv", b"dl,d,b\n1,4,1\n", &["s.csv:1", "expected dl, d and du"]);
    // Matrices that are not tridiagonal.
    let head = "%%MatrixMarket matrix coordinate real general\n";
    file(
        "s.mtx",
        format!("{head}4 4 5\n1 1 1\n2 2 1\n3 3 1\n4 4 1\n1 4 7\n").as_bytes(),
        &["(1, 4) = 7", "--cyclic"],
    );
    file(
        "s.mtx",
        format!("{head}5 5 6\n1 1 1\n2 2 1\n3 3 1\n4 4 1\n5 5 1\n4 1 7\n").as_bytes(),
        &["not tridiagonal", "(4, 1)"],
    );
    file("s.mtx", format!("{head}2 3 1\n1 1 1\n").as_bytes(), &["2 rows and 3 columns"]);
    file(
        "s.mtx",
        format!("{head}2 2 3\n1 1 1\n2 2 1\n1 1 1\n").as_bytes(),
        &["s.mtx:5", "duplicate entry (1, 1)"],
    );
    file("s.xls", b"", &[".xls", ".npz, .csv or .mtx"]);
    refuses(&place, "nothing.csv", &["nothing.csv"]);
}

#[test]
fn bad_options_are_refused() {
    let place = Place::new();
    place.put("b.npy", array("3,", &[1.0; 3])).put("b2.npy", array("4, 2", &[1.0; 8])).put("s.csv", CSV);
    for (line, parts) in [
        ("random:4 --block 2", &["'2'", "3 to 1024"][..]),
        ("random:4 --block 1025", &["3 to 1024"]),
        ("random:4 --lanes 0", &["1 to 64"]),
        ("random:4 --lanes 65", &["'65'", "1 to 64"]),
        ("random:4 --tolerance 0", &["--tolerance 0"]),
        ("random:4 --tolerance 1", &["--tolerance 1"]),
        ("random:4 --refine 101", &["'101'", "0 to 100"]),
        ("random:4 --cyclic --block 10", &["--cyclic", "--block"]),
        ("random:4 -o x.foo", &["x.foo", ".npy, .csv or .txt"]),
        ("random:4 -o r.json.npy --report r.json.npy", &["-o and --report"]),
        ("random:4 -b b.npy", &["[3]", "[4]"]),
        ("random:4 -b b2.npy -o x.txt", &["one right-hand side", "2"]),
        ("s.csv -b b.npy", &["[3]", "[4]"]),
        ("random:0", &["N (rows)", "from 1"]),
        ("random:4,0", &["BATCH"]),
        ("random:4,2,2", &["3 parameters"]),
        ("toeplitz:4,1,nan,1", &["finite"]),
        // More than any memory, with the two sizes.
        ("random:2147483647,100000", &["dl, d, du and b", "6250.0 TiB"]),
        ("random:100000 --memory-limit 1KiB --lanes 1", &["were requested for", "--memory-limit is 1.0 KiB"]),
    ] {
        refuses(&place, line, parts);
    }
}
