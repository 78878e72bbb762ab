//! Chains in the formats of PRISM, Storm and SciPy.

use crate::support::{Place, Run, array, bound, npy_file, npz, number, server};

fn close(got: &[f64], wanted: &[f64], tolerance: f64) {
    let near = got.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= tolerance);
    assert!(got.len() == wanted.len() && near, "{got:?} is not {wanted:?}");
}

#[test]
fn discrete_time_chains_get_a_warning() {
    let place = Place::new();
    let chain = "2 4\n0 0 0.5\n0 1 0.5\n1 0 0.3\n1 1 0.7\n";
    place.put("d.tra", chain).put("c.tra", format!("# Transitions (CTMC)\n{chain}"));
    place.put("s.tra", format!("ctmc\n{}", &chain[4..]));
    let warning = |model: &str| place.transient(&format!("{model} --time 1")).stderr.contains("(a DTMC)");
    assert_eq!(["d.tra", "c.tra", "s.tra"].map(warning), [true, false, false]);
}

/// Returns an `.npz` archive of tridiagonal matrices, with one more member if given.
fn system(shape: &[usize], [dl, d, du]: [&[f64]; 3], more: Option<(&str, Vec<u8>)>) -> Vec<u8> {
    let mut members = vec![("dl", array(shape, dl)), ("d", array(shape, d)), ("du", array(shape, du))];
    members.extend(more);
    npz(true, &members)
}

#[test]
fn unknown_members_and_invalid_numbers_are_named() {
    let place = Place::new();
    for (name, code) in [("b", 0), ("rhs", 2), ("B", 2)] {
        let more = (name, array(&[2], &[1.0, 2.0]));
        place.put("s.npz", system(&[2], [&[0.0, 1.0], &[4.0, 4.0], &[1.0, 0.0]], Some(more)));
        let run = place.kolmo("tridiagonal s.npz --device cpu").ends(code, &[]);
        let wanted = format!("s.npz: unknown member '{name}'; it has dl, d, du, b");
        assert_eq!(run.stderr.contains(&wanted), code == 2, "{}", run.stderr);
    }
    let bands =
        |d: f64| system(&[2, 2], [&[0.0, 1.0, 0.0, 1.0], &[4.0, 4.0, 4.0, d], &[1.0, 0.0, 1.0, 0.0]], None);
    place.put("s.npz", bands(f64::NAN)).put("good.npz", bands(4.0));
    place.put("b.npy", array(&[2, 2], &[1.0, f64::INFINITY, 1.0, 1.0]));
    for (line, wanted) in [
        ("s.npz", "s.npz: d of row 1 of system 1 is NaN"),
        ("good.npz -b b.npy", "b.npy: b of row 1 of system 0 is inf"),
        ("laplace:2,2 -b b.npy", "b.npy: b of row 1 of system 0 is inf"),
    ] {
        place.refuses(&format!("tridiagonal {line}"), &[wanted]);
    }
}

#[test]
fn matrices_of_scipy_and_numpy_are_converted() {
    let place = Place::new();
    place.put("prism.tra", "3 4\n0 1 0.02\n1 0 0.25\n1 2 0.01\n2 1 0.25\n");
    // By columns, with the rate 0.25 from 1 to 0 in two entries.
    let integers = |values: &[i64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        npy_file("<i8", false, &[values.len()], &bytes)
    };
    let word = |text: &str| npy_file("|S3", false, &[], text.as_bytes());
    let csc = |format: &str| {
        let members = [
            ("format", word(format)),
            ("shape", integers(&[3, 3])),
            ("indptr", integers(&[0, 2, 4, 5])),
            ("indices", integers(&[1, 1, 0, 2, 1])),
            ("data", array(&[5], &[0.125, 0.125, 0.02, 0.25, 0.01])),
        ];
        npz(true, &members)
    };
    place.put("csc.npz", csc("csc")).put("dia.npz", csc("dia"));
    let coo = [
        ("format", word("coo")),
        ("shape", integers(&[3, 3])),
        ("row", integers(&[2, 1, 0, 1])),
        ("col", integers(&[1, 2, 1, 0])),
        ("data", array(&[4], &[0.25, 0.01, 0.02, 0.25])),
    ];
    place.put("coo.npz", npz(true, &coo));
    let rows = [0.0, 0.02, 0.0, 0.25, 0.0, 0.01, 0.0, 0.25, 0.0];
    let columns = [0.0, 0.25, 0.0, 0.02, 0.0, 0.25, 0.0, 0.01, 0.0];
    let columns = npy_file("<f8", true, &[3, 3], &columns.map(f64::to_le_bytes).concat());
    place.put("c.npy", array(&[3, 3], &rows)).put("f.NPY", columns);
    let wanted = place.transient("prism.tra --time 2").stdout;
    for (model, note) in [
        ("csc.npz", "csc.npz: a CSC matrix, converted to rows"),
        ("coo.npz", "coo.npz: a COO matrix, converted to rows"),
        ("c.npy", "c.npy: a dense array of shape (3, 3), converted to a sparse one of 4 entries"),
        ("f.NPY", "f.NPY: a dense array of shape (3, 3), converted to a sparse one of 4 entries"),
    ] {
        let run = place.transient(&format!("{model} --time 2")).ends(0, &[note]);
        assert_eq!(run.stdout, wanted, "{model}");
        let line = format!("walk {model} --splitting given --component 0 --chains 4096 --device cpu");
        let walk = place.kolmo(&line);
        assert!(walk.code <= 1 && walk.stderr.contains(note), "{}", walk.stderr);
    }
    let said = "matrix format dia is not supported: expected CSR, CSC or COO";
    place.refuses("transient dia.npz --time 2", &[said]);
}

/// Returns a field of the first line below the header.
fn field(csv: &str, column: &str) -> f64 {
    let mut lines = csv.lines();
    let at = lines.next().expect("a header").split(',').position(|name| name == column).expect("a column");
    // A quoted field may contain commas, and is not a number.
    let quoted: Vec<&str> = lines.next().expect("a row").split('"').collect();
    let row = if quoted.len() == 3 { format!("{}{}", quoted[0], quoted[2]) } else { quoted[0].to_owned() };
    number(row.split(',').nth(at).expect("a field"))
}

/// The values in the document were computed without kolmo, from three matrix exponentials.
#[test]
fn each_property_of_the_table_has_its_answer() {
    let place = Place::new();
    server(&place);
    let page = include_str!("../../docs/prism.md").replace("\\|", "or");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.contains("`server.tra "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 16);
    for row in rows {
        let [property, arguments, answer] = row[..] else { panic!("{row:?}") };
        let (wanted, column) = answer.split_once(' ').unwrap_or((answer, "value"));
        let run = place.transient(&format!("{} --epsilon 1e-9", arguments.trim_matches('`')));
        let got = field(&run.stdout, column);
        assert!((got - number(wanted)).abs() <= 1e-9, "{property}: {got} is not {wanted}");
    }
}

#[test]
fn intervals_take_two_runs_whose_bounds_add() {
    let place = Place::new();
    server(&place);
    let until = |more: &str| {
        let run =
            place.transient(&format!("server.tra --until !down full {more} --epsilon 1e-9 --report r.json"));
        (run.stdout, place.json("r.json"))
    };
    let (text, report) = until("--within [1,3]");
    assert!(text.starts_with("time,what,value\n3,\"!down U[1,3] full\",0.2443787"), "{text}");
    assert!(bound(&report) <= 1e-9 && bound(&report) > 0.0, "{report}");
    assert_eq!(report["per_time"][0]["time"], 3.0);
    // An interval that begins at 0 is a time bound, one of length 0 a point in time.
    let value = |more: &str| field(&until(more).0, "value");
    assert_eq!(value("--within 0,3"), value("--time 3"));
    let (moment, longer) = (value("--within 2,2"), value("--within 2,3"));
    assert!(0.0 < moment && moment < longer && longer < value("--within 0,3"), "{moment}, {longer}");
}

#[test]
fn absorbing_sets_are_repeatable_and_lists() {
    let place = Place::new();
    server(&place);
    let of = |sets: &str| place.transient(&format!("server.tra --time 2 {sets}")).stdout;
    assert_eq!(of("--absorbing full --absorbing down"), of("--absorbing full,down"));
    assert_eq!(of("--absorbing full --absorbing down"), of("--absorbing full|down"));
    // The initial state is in the absorbing set.
    let stays = place.transient("server.tra --time 2 --absorbing !down").column(1);
    close(&stays, &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 1e-6);
    assert_ne!(of("--absorbing full"), of("--absorbing full,down"));
    // `init` and `deadlock` are known without a label file.
    let bare = Place::new();
    bare.put("m.tra", "3 2\n0 1 1\n1 2 3\n");
    let rows = bare.transient("m.tra --time 1 --label deadlock --label init --label !init");
    let values = rows.column(2);
    let (one, three) = ((-1f64).exp(), (-3f64).exp());
    // 0 → 1 → 2: the probabilities of 0 and 1 from the two rates.
    close(&values, &[1.0 - one - (one - three) / 2.0, one, 1.0 - one], 1e-6);
}

#[test]
fn transition_rewards_accumulate_at_their_rates() {
    let place = Place::new();
    server(&place);
    place.put("one.tra", place.text("server.tra")).put("one.lab", place.text("server.lab"));
    place.put_all(include_str!("inputs/rewards.txt"));
    // In state 1: 10 per unit of time, and 4 for each arrival at rate 0.5.
    let both = place.transient("one.tra --initial 1 --time 0 --rewards both");
    assert_eq!(field(&both.stdout, "instantaneous"), 12.0);
    let file = place.transient("server.tra --initial 1 --time 0 --rewards more.trew");
    assert_eq!(field(&file.stdout, "instantaneous"), 2.0);
    // A numbered file of another model is ignored.
    place.put("one1.tra", "1 0\n").put("one1.srew", "1 1\n0 1\n");
    place.transient("one.tra --time 1");
}

#[test]
fn outputs_are_those_of_the_transcripts() {
    let place = Place::new();
    server(&place);
    place.put("two.drn", "@type: CTMC\n@nr_states\n2\n@nr_choices\n2\n@model\nstate 0 !2 init\n//[q=0\t& !up]\n\taction 0\n\t\t1 : 2\nstate 1 !1\n//[q=1\t& up]\n\taction 0\n\t\t0 : 1\n");
    let text: String = include_str!("inputs/transcripts.txt")
        .split_inclusive('\n')
        .filter(|line| !line.starts_with(';'))
        .collect();
    for run in text.split("$ ").skip(1) {
        let (line, wanted) = run.split_once('\n').expect("an output");
        let printed = place.ok(line).stdout;
        match wanted.strip_suffix("…\n") {
            Some(first) => assert!(printed.starts_with(first), "{line}\n{printed}"),
            None => assert_eq!(printed, wanted, "{line}"),
        }
    }
}

#[test]
fn names_of_states_are_in_reports_and_plots() {
    let place = Place::new();
    server(&place);
    place.transient("server.tra --time 0 --top 1 --report r.json");
    assert_eq!(place.json("r.json")["per_time"][0]["values"][0]["name"], "(q=0, up=true)");
    place.transient("server.tra --times 0:1:3 --states 1,5 --plot p.svg -o t.csv");
    assert!(place.text("p.svg").contains("state 5 (q=2, up=true)"));
    place.transient("server.tra --time 0 --format prism -o p.txt");
    assert_eq!(place.text("p.txt"), "1:(0,true)=1\n");
    place.put("server.sta", "(q,up)\n0:(0,false)\n");
    place.refuses("transient server.tra --time 1", &["server.sta: has 1 states, the chain 6"]);
}

#[test]
fn models_and_distributions_through_stdin_stdout_and_files() {
    let place = Place::new();
    server(&place);
    let piped = |model: &str, line: &str| {
        let run = assert_cmd::Command::new(crate::support::binary())
            .args(line.split_whitespace())
            .args(["--device", "cpu"])
            .write_stdin(place.get(model))
            .current_dir(place.path())
            .output()
            .expect("kolmo starts");
        Run::of(line, run)
    };
    place.put("m.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0.25\n2 1 0.5\n");
    place.put("m.drn", "@type: CTMC\n@nr_states\n2\n@model\nstate 0 init\n\taction 0\n\t\t1 : 2\nstate 1\n");
    place.put("bad.tra", "2 1\n0 5 1\n");
    for model in ["server.tra", "m.mtx", "m.drn"] {
        let run = piped(model, "transient - --time 1 --initial 0 --states 0,1 -o -").ends(0, &[]);
        let wanted = place.transient(&format!("{model} --time 1 --initial 0 --states 0,1")).stdout;
        // State names come from files next to the model, which stdin lacks.
        let values = |text: &str| -> Vec<String> {
            text.lines().skip(1).map(|line| line.split(',').take(3).collect::<Vec<_>>().join(",")).collect()
        };
        assert_eq!(values(&run.stdout), values(&wanted), "{model}");
    }
    piped("bad.tra", "transient - --time 1").ends(2, &["error: stdin:2: state 5 is out of range"]);
    // The output of one run is the initial distribution of another.
    place.transient("server.tra --time 1 -o p.txt");
    place.transient("server.tra --time 1 -o p.NPY");
    let from = |file: &str| place.transient(&format!("server.tra --time 2 --initial {file}")).stdout;
    assert_eq!(from("p.txt"), from("p.NPY"));
}
