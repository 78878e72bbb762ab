//! Chains as MRMC, PRISM, Storm and SciPy write them.

use std::io::{Cursor, Write};

use crate::support::{Place, number};

/// A component that fails, is repaired, and may get stuck: its three states counted from 1, as in MRMC's files and those of
/// `prism -exportmrmc`. It starts in the second one.
const MRMC: &str = "STATES 3\nTRANSITIONS 4\n1 2 0.02\n2 1 0.25\n2 3 0.01\n3 2 0.25\n";
const MRMC_LABELS: &str = "#DECLARATION\ninit down\n#END\n1 init\n2 down\n";

/// The same chain in PRISM's files, counted from 0.
const PRISM: &str = "3 4\n0 1 0.02\n1 0 0.25\n1 2 0.01\n2 1 0.25\n";
const PRISM_LABELS: &str = "0=\"init\" 1=\"deadlock\" 2=\"down\"\n0: 0\n1: 2\n";

/// π(2) of that chain from its first state: expm of its generator, by SciPy.
const AT_2: [f64; 3] = [0.9689788, 0.0307385, 0.0002827];

fn close(got: &[f64], wanted: &[f64], tolerance: f64) {
    assert!(
        got.len() == wanted.len() && got.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= tolerance),
        "{got:?} is not {wanted:?}"
    );
}

#[test]
fn what_lies_beside_mrmcs_transitions_counts_from_one_too() {
    let place = Place::new();
    place.put("mrmc.tra", MRMC).put("mrmc.lab", MRMC_LABELS).put("mrmc.rew", "1 20\n3 7\n");
    place.put("prism.tra", PRISM).put("prism.lab", PRISM_LABELS);
    place.put("prism.srew", "# Reward structure \"mrmc\"\n# State rewards\n3 2\n0 20\n2 7\n");
    for line in [
        "--time 2",
        "--time 2 --label down --label init",
        "--time 2 --rewards mrmc",
        "--time 2 --absorbing down",
    ] {
        let line = format!("{line} --epsilon 1e-9");
        let prism = place.transient(&format!("prism.tra {line}"));
        let mrmc = place.transient(&format!("mrmc.tra {line}"));
        assert_eq!(mrmc.stdout, prism.stdout, "{line}");
        assert!(mrmc.stderr.contains("mrmc.tra counts its states from 1"), "{}", mrmc.stderr);
    }
    close(&place.transient("mrmc.tra --time 2").column(1), &AT_2, 1e-6);
    // Files that are named rather than found count as the model does.
    place.put("l", MRMC_LABELS).put("r", "2 1\n");
    let down = place.transient("mrmc.tra --time 2 --labels l --label down --rewards r -o v.csv");
    close(&down.column(2), &AT_2[1..2], 1e-6);
}

#[test]
fn discrete_time_chains_get_a_warning() {
    let place = Place::new();
    let chain = "2 4\n0 0 0.5\n0 1 0.5\n1 0 0.3\n1 1 0.7\n";
    place
        .put("d.tra", chain)
        .put("c.tra", format!("# Transitions (CTMC)\n{chain}"))
        .put("s.tra", format!("ctmc\n{}", &chain[4..]));
    let warning = |model: &str| place.transient(&format!("{model} --time 1")).stderr.contains("a DTMC?");
    assert_eq!(["d.tra", "c.tra", "s.tra"].map(warning), [true, false, false]);
}

#[test]
fn exit_rates_that_contradict_their_transitions_are_an_error() {
    let place = Place::new();
    let model = |exit: &str| {
        format!(
            "@type: CTMC\n@nr_states\n2\n@nr_choices\n2\n@model\nstate 0 !{exit} init\n\taction 0\n\t\t1 : 1.31\n\
             state 1 !2\n\taction 0\n\t\t0 : 2\n"
        )
    };
    place.put("good.drn", model("1.31")).put("bad.drn", model("9"));
    place.transient("good.drn --time 1");
    let run = place.kolmo("transient bad.drn --time 1 --device cpu");
    assert_eq!(run.code, 2);
    let wanted = "bad.drn:7: the exit rate of state 0 is 9, but its transitions sum to 1.31";
    assert!(run.stderr.contains(wanted), "{}", run.stderr);
}

/// A `.npy` file of doubles, or of 64-bit integers where they are meant.
fn array(shape: &str, fortran: bool, values: &[f64], integers: bool) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let kind = if integers { "<i8" } else { "<f8" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header += &" ".repeat(64 - (10 + header.len() + 1) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    let byte = |v: &f64| if integers { (*v as i64).to_le_bytes() } else { v.to_le_bytes() };
    bytes.extend(values.iter().flat_map(byte));
    bytes
}

fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = zip::write::SimpleFileOptions::default();
        archive.start_file(format!("{name}.npy"), options).expect("a member");
        archive.write_all(bytes).expect("memory");
    }
    archive.finish().expect("memory").into_inner()
}

fn word(text: &str) -> Vec<u8> {
    let mut bytes = array("()", false, &[], false);
    let place = bytes.windows(3).position(|w| w == b"<f8").expect("a type");
    bytes[place..place + 3].copy_from_slice(b"|S3");
    bytes.extend(text.as_bytes());
    bytes
}

#[test]
fn members_that_nobody_reads_are_an_error() {
    let place = Place::new();
    let vector = |values: &[f64]| array(&format!("({},)", values.len()), false, values, false);
    let system = [("dl", vector(&[0.0, 1.0])), ("d", vector(&[4.0, 4.0])), ("du", vector(&[1.0, 0.0]))];
    for (name, refused) in [("b", false), ("rhs", true), ("B", true)] {
        let members = [&system[..], &[(name, vector(&[1.0, 2.0]))]].concat();
        place.put("s.npz", archive(&members));
        let run = place.kolmo("tridiagonal s.npz --device cpu");
        assert_eq!(run.code, if refused { 2 } else { 0 }, "{name}: {}", run.stderr);
        let wanted = format!("s.npz: nobody reads the member '{name}'; it has dl, d, du, b");
        assert_eq!(run.stderr.contains(&wanted), refused, "{}", run.stderr);
    }
}

#[test]
fn numbers_that_are_none_name_file_row_and_system() {
    let place = Place::new();
    let bands = |d: f64| {
        let two = |values: &[f64]| array("(2, 2)", false, values, false);
        let (dl, du) = (two(&[0.0, 1.0, 0.0, 1.0]), two(&[1.0, 0.0, 1.0, 0.0]));
        archive(&[("dl", dl), ("d", two(&[4.0, 4.0, 4.0, d])), ("du", du)])
    };
    place.put("s.npz", bands(f64::NAN)).put("good.npz", bands(4.0));
    place.put("b.npy", array("(2, 2)", false, &[1.0, f64::INFINITY, 1.0, 1.0], false));
    for (line, wanted) in [
        ("s.npz", "s.npz: d of row 1 of system 1 is NaN"),
        ("good.npz -b b.npy", "b.npy: b of row 1 of system 0 is inf"),
        ("laplace:2,2 -b b.npy", "b.npy: b of row 1 of system 0 is inf"),
    ] {
        let run = place.kolmo(&format!("tridiagonal {line} --device cpu"));
        assert!(run.code == 2 && run.stderr.contains(wanted), "{line}: {}", run.stderr);
    }
}

#[test]
fn matrices_of_scipy_and_numpy_are_converted() {
    let place = Place::new();
    place.put("m.tra", PRISM);
    // Column by column, the rate 0.25 from 1 to 0 in two pieces.
    let integers = |values: &[f64]| array(&format!("({},)", values.len()), false, values, true);
    let doubles = |values: &[f64]| array(&format!("({},)", values.len()), false, values, false);
    let csc = |format: &str| {
        archive(&[
            ("format", word(format)),
            ("shape", integers(&[3.0, 3.0])),
            ("indptr", integers(&[0.0, 2.0, 4.0, 5.0])),
            ("indices", integers(&[1.0, 1.0, 0.0, 2.0, 1.0])),
            ("data", doubles(&[0.125, 0.125, 0.02, 0.25, 0.01])),
        ])
    };
    place.put("csc.npz", csc("csc")).put("dia.npz", csc("dia"));
    let coo = [
        ("format", word("coo")),
        ("shape", integers(&[3.0, 3.0])),
        ("row", integers(&[2.0, 1.0, 0.0, 1.0])),
        ("col", integers(&[1.0, 2.0, 1.0, 0.0])),
        ("data", doubles(&[0.25, 0.01, 0.02, 0.25])),
    ];
    place.put("coo.npz", archive(&coo));
    let rows = [0.0, 0.02, 0.0, 0.25, 0.0, 0.01, 0.0, 0.25, 0.0];
    let columns = [0.0, 0.25, 0.0, 0.02, 0.0, 0.25, 0.0, 0.01, 0.0];
    place
        .put("c.npy", array("(3, 3)", false, &rows, false))
        .put("f.NPY", array("(3, 3)", true, &columns, false));
    let wanted = place.transient("m.tra --time 2").stdout;
    for (model, note) in [
        ("csc.npz", "csc.npz: a CSC matrix, converted to rows"),
        ("coo.npz", "coo.npz: a COO matrix, converted to rows"),
        ("c.npy", "c.npy: a dense array of shape (3, 3), converted to a sparse one of 4 entries"),
        ("f.NPY", "f.NPY: a dense array of shape (3, 3), converted to a sparse one of 4 entries"),
    ] {
        let run = place.transient(&format!("{model} --time 2"));
        assert_eq!(run.stdout, wanted, "{model}");
        assert!(run.stderr.contains(note), "{}", run.stderr);
        let walk =
            place.kolmo(&format!("walk {model} --splitting given --component 0 --chains 4096 --device cpu"));
        assert!(walk.code <= 1 && walk.stderr.contains(note), "{}", walk.stderr);
    }
    let run = place.kolmo("transient dia.npz --time 2 --device cpu");
    assert!(
        run.code == 2 && run.stderr.contains("a dia matrix; CSR, CSC and COO are read"),
        "{}",
        run.stderr
    );
}

#[test]
fn fortran_order_is_that_of_its_rows() {
    let place = Place::new();
    let two = |fortran: bool, values: &[f64]| array("(2, 3)", fortran, values, false);
    let c = [("dl", [0.0, 1.0, 2.0, 0.0, 3.0, 4.0]), ("d", [9.0; 6]), ("du", [1.0, 2.0, 0.0, 3.0, 4.0, 0.0])];
    let b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let turned = |v: [f64; 6]| [v[0], v[3], v[1], v[4], v[2], v[5]];
    let system = |fortran: bool| {
        let all = [&c[..], &[("b", b)]].concat();
        let member = |(name, v)| (name, two(fortran, &if fortran { turned(v) } else { v }));
        archive(&all.into_iter().map(member).collect::<Vec<_>>())
    };
    place.put("c.npz", system(false)).put("f.npz", system(true)).put("b.npy", two(true, &turned(b)));
    let wanted = place.kolmo("tridiagonal c.npz -o c.csv --device cpu");
    assert_eq!(wanted.code, 0, "{}", wanted.stderr);
    for line in ["f.npz", "c.npz -b b.npy"] {
        let run = place.kolmo(&format!("tridiagonal {line} -o f.csv --device cpu"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(place.text("f.csv"), place.text("c.csv"), "{line}");
    }
    assert!(number(place.text("c.csv").lines().nth(1).expect("a row").rsplit(',').next().expect("x")) > 0.0);
}
