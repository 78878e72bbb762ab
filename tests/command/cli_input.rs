//! Invalid input and usage.
//!
//! Each ends with exit code 2, a message with object, number and suggestion, and no file in the
//! directory.

use crate::support::{Place, THREE, THREE_DRN, THREE_GENERATOR, TWO, archive, gzip, three_umb};

/// Asserts that `kolmo` rejects the line with these parts of a message, and writes no file.
#[track_caller]
fn refuses(place: &Place, line: &str, parts: &[&str]) {
    let before = place.names();
    let run = place.kolmo(line);
    assert_eq!(run.code, 2, "kolmo {line}\n{}", run.stderr);
    assert_eq!(run.stdout, "", "kolmo {line}");
    assert!(run.stderr.starts_with("error: "), "kolmo {line}\n{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "kolmo {line}\nshould say {part:?}:\n{}", run.stderr);
    }
    assert_eq!(place.names(), before, "kolmo {line}");
}

/// Asserts that a model file is rejected by each command that reads it, with outputs requested.
#[track_caller]
fn refuses_model(name: &str, contents: impl AsRef<[u8]>, parts: &[&str]) {
    let place = Place::new();
    place.put(name, contents);
    let parts: Vec<&str> = [&[name], parts].concat();
    let line = format!("transient {name} --time 1 --device cpu -o out.npy --report out.json");
    refuses(&place, &line, &parts);
}

/// Asserts that [`TWO`] with these options is rejected, with outputs requested.
#[track_caller]
fn refuses_options(options: &str, parts: &[&str]) {
    let place = Place::new();
    place.put("m.tra", TWO).put("m.lab", "0=\"init\" 1=\"up\"\n0: 0\n1: 1\n");
    let line = format!("transient m.tra --device cpu -o out.csv --report out.json {options}");
    refuses(&place, &line, parts);
}

// Files of unknown content.

#[test]
fn empty_files_are_refused_in_every_format() {
    for name in ["m.tra", "m.drn", "m.umb", "m.mtx", "m.npz", "m.tra.gz", "m.mtx.gz"] {
        refuses_model(name, "", &[]);
        refuses_model(name, "\n", &[]);
    }
}

#[test]
fn binary_files_are_refused_in_every_format() {
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let zeros = vec![0u8; 2048];
    for name in ["m.tra", "m.drn", "m.umb", "m.mtx", "m.npz", "m.tra.gz"] {
        refuses_model(name, &noise, &[]);
        refuses_model(name, &zeros, &[]);
        refuses_model(name, b"\x1f\x8b\x08\x00garbage", &[]);
    }
    refuses_model("m.mtx", b"PK\x03\x04rest", &["ZIP", ".npz"]);
    refuses_model("m.tra", b"\x93NUMPY\x01\0", &["NumPy", ".npy"]);
}

#[test]
fn truncated_files_are_refused_in_every_format() {
    refuses_model("m.tra", "3 4\n0 1 3\n1 0 1.5\n", &["says 4 transitions", "has 2", "truncated"]);
    refuses_model("m.tra", "3 4\n0 1 3\n1 0", &["m.tra:3", "lacks a rate"]);
    refuses_model("m.mtx", &THREE_GENERATOR[..THREE_GENERATOR.len() - 7], &["expected 7 entries", "found 6"]);
    refuses_model("m.drn", &THREE_DRN[..120], &["truncated"]);
    refuses_model(
        "m.drn",
        THREE_DRN.split_once("state 2").unwrap().0,
        &["@nr_states is 3", "has 2 states", "truncated"],
    );
    let umb = three_umb();
    for end in [umb.len() / 4, umb.len() / 2, umb.len() - 1200] {
        refuses_model("m.umb", &umb[..end], &[]);
    }
    for (name, bytes) in
        [("m.tra.gz", gzip(THREE)), ("m.mtx.gz", gzip(THREE_GENERATOR)), ("m.drn.gz", gzip(THREE_DRN))]
    {
        refuses_model(name, &bytes[..bytes.len() - 12], &["truncated"]);
    }
    let place = Place::new();
    place.kolmo("generate tandem:5 -o m.npz");
    let npz = place.get("m.npz");
    for end in [10, npz.len() / 2, npz.len() - 30] {
        refuses_model("m.npz", &npz[..end], &[]);
    }
}

#[test]
fn counts_beyond_any_memory_are_rejected_with_the_number() {
    let huge = "4294967294";
    refuses_model("m.tra", format!("{huge} 1\n0 1 1\n"), &["states", "available", huge]);
    refuses_model("m.tra", "99999999999999999999 1\n0 1 1\n", &[]);
    refuses_model("m.tra", format!("2 {huge}\n0 1 1\n"), &[huge]);
    let matrix = |size: &str| format!("%%MatrixMarket matrix coordinate real general\n{size}\n1 2 1\n");
    refuses_model("m.mtx", matrix(&format!("{huge} {huge} 1")), &["states", "available", huge]);
    refuses_model("m.mtx", matrix("18446744073709551615 18446744073709551615 1"), &["18446744073709551615"]);
    refuses_model("m.mtx", matrix(&format!("2 2 {huge}")), &[huge]);
    refuses_model("m.drn", THREE_DRN.replace("\n3\n", &format!("\n{huge}\n")), &[huge]);
    refuses_model("m.drn", THREE_DRN.replace("\n3\n", "\n99999999999\n"), &["99999999999"]);
    refuses_model(
        "m.umb",
        archive(&[(
            "index.json",
            br##"{"transition-system": {"time": "stochastic", "#players": 0,
            "#states": 4294967294, "#choices": 4294967294, "#branches": 18446744073709551615,
            "exit-rate-type": {"type": "double", "size": 64},
            "branch-probability-type": {"type": "double", "size": 64}}}"##
                .to_vec(),
        )]),
        &["exit-rate"],
    );
}

#[test]
fn built_ins_beyond_any_memory_are_rejected_with_the_number() {
    let place = Place::new();
    for (model, states) in [
        ("birth-death:4294967294,1,1", "4294967294"),
        ("wlan:13376,1", "4294338052"),
        ("tandem:46341", "46341"),
    ] {
        for command in ["transient --time 1", "bench spmv --repeat 1", "bench transient --repeat 1"] {
            // The limit is for machines with that much memory.
            let line = format!("{command} {model} --device cpu --memory-limit 8GiB --report r.json --quiet");
            refuses(&place, &line, &[states]);
        }
    }
}

#[test]
fn other_model_types_are_rejected_with_a_suggestion() {
    let mdp = "2 3 4\n0 0 0 0.5\n0 0 1 0.5\n0 1 1 1\n1 0 0 1\n";
    refuses_model("m.tra", mdp, &["m.tra:1"]);
    refuses_model("m.tra", "mdp\n0 0 1 1\n", &["mdp"]);
    refuses_model("m.tra", "dtmc\n0 1 1\n1 0 1\n", &["dtmc"]);
    refuses_model("m.tra", "ctmc\nmodule m\n  s : [0..1];\nendmodule\n", &["PRISM", "-exportmodel"]);
    refuses_model("m.sm", "dtmc\nmodule m\nendmodule\n", &["m.sm:1", "dtmc"]);
    refuses_model("m.pepa", "P = (a, 1).P;\nP\n", &["PEPA", "-exportmodel"]);
    refuses_model("m.tra", THREE_DRN, &[".drn"]);
    refuses_model("m.tra", "0=\"init\"\n0: 0\n", &["labels"]);
    refuses_model("m.drn", THREE_DRN.replace("CTMC", "MDP"), &["MDP", "CTMC"]);
    refuses_model("m.drn", THREE, &["@model"]);
    refuses_model("m.mtx", THREE, &["m.mtx:1", "%%MatrixMarket"]);
    refuses_model(
        "m.mtx",
        "%%MatrixMarket vector coordinate real general\n2 1\n1 1\n",
        &["matrix coordinate"],
    );
    refuses_model(
        "m.mtx",
        "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n",
        &["complex"],
    );
    refuses_model("m.xyz", THREE, &[".tra", ".mtx", "tandem:15"]);
    refuses_model("m", THREE, &[".tra", ".mtx", "tandem:15"]);
}

// Invalid numbers.

#[test]
fn states_that_do_not_exist_are_refused_with_their_line() {
    refuses_model("m.tra", "2 2\n0 1 3\n1 2 2\n", &["m.tra:3", "2 states", "out of range"]);
    refuses_model("m.tra", "2 2\n0 1 3\n-1 0 2\n", &["m.tra:3", "-1"]);
    refuses_model("m.mtx", THREE_GENERATOR.replace("3 1 1\n", "4 1 1\n"), &["m.mtx:8", "row 4"]);
    refuses_model("m.mtx", THREE_GENERATOR.replace("3 1 1\n", "3 0 1\n"), &["m.mtx:8", "column 0"]);
    refuses_model("m.drn", THREE_DRN.replace("\t0 : 1\n", "\t7 : 1\n"), &["target 7", "@nr_states is 3"]);
}

#[test]
fn transitions_listed_twice_are_refused_with_both_lines() {
    let parts = ["listed twice", "0 -> 1", "first in line"];
    refuses_model("m.tra", "2 3\n0 1 3\n1 0 2\n0 1 1\n", &[&["m.tra:4", "line 2"], &parts[..]].concat());
    refuses_model(
        "m.tra.gz",
        gzip("2 3\n0 1 3\n1 0 2\n0 1 1\n"),
        &[&["m.tra.gz:4", "line 2"], &parts[..]].concat(),
    );
    refuses_model(
        "m.drn",
        THREE_DRN.replace("\t\t1 : 3\n", "\t\t1 : 2\n\t\t1 : 1\n"),
        &[&["m.drn:13", "line 12"], &parts[..]].concat(),
    );
    let matrix = "%%MatrixMarket matrix coordinate real general\n% a comment\n2 2 3\n1 2 3\n2 1 2\n1 2 1\n";
    refuses_model("m.mtx", matrix, &[&["m.mtx:6", "line 4"], &parts[..]].concat());
    let symmetric = "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 2 3\n2 1 2\n";
    refuses_model("m.mtx", symmetric, &["m.mtx:4", "listed twice", "first in line 3"]);
}

#[test]
fn invalid_rates_are_rejected_with_their_line() {
    for rate in ["-1", "NaN", "inf", "-inf", "1e999", "fast", "1/0"] {
        refuses_model("m.tra", format!("2 2\n0 1 3\n1 0 {rate}\n"), &["m.tra:3", "rate"]);
        refuses_model("m.drn", THREE_DRN.replace(": 1.5", &format!(": {rate}")), &["m.drn:", "rate"]);
    }
    for rate in ["NaN", "inf", "1e999", "fast"] {
        refuses_model("m.mtx", THREE_GENERATOR.replace("2 1 1.5", &format!("2 1 {rate}")), &["m.mtx:5"]);
    }
    refuses_model("m.mtx", THREE_GENERATOR.replace("2 1 1.5", "2 1 -1.5"), &["(1, 0)", "-1.5"]);
}

#[test]
fn a_generator_whose_rows_do_not_sum_to_zero_is_refused_with_the_row() {
    refuses_model(
        "m.mtx",
        THREE_GENERATOR.replace("2 2 -2\n", "2 2 -2.5\n"),
        &["row 1", "-5e-1", "generator"],
    );
    let transposed = "%%MatrixMarket matrix coordinate real general\n2 2 4\n1 1 -3\n2 1 3\n1 2 2\n2 2 -2\n";
    refuses_model("m.mtx", transposed, &["transpose"]);
    refuses_model(
        "m.mtx",
        "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1\n",
        &["2 rows and 3 columns"],
    );
}

#[test]
fn invalid_initial_distributions_are_rejected() {
    let place = Place::new();
    place.put("m.tra", TWO);
    for (text, parts) in [
        ("0.5\n0.4\n", &["0.9", "sums to 0.9: expected 1"][..]),
        ("1\n", &["1 values", "2 states"]),
        ("0.5\n0.25\n0.25\n", &["3 values", "2 states"]),
        ("1.5\n-0.5\n", &["state 1", "-0.5"]),
        ("NaN\n1\n", &["p.txt:1", "NaN"]),
        ("", &["p.txt"]),
        ("a half\n", &["p.txt:1", "a half"]),
    ] {
        place.put("p.txt", text);
        refuses(&place, "transient m.tra --time 1 --device cpu --initial p.txt -o out.npy", parts);
    }
    place.transient("tandem:5 --time 1,2 -o two.npy");
    refuses(
        &place,
        "transient tandem:5 --time 1 --device cpu --initial two.npy",
        &["two.npy", "(2, 66)", "expected a vector, with one dimension"],
    );
    place.put("cut.npy", &place.get("two.npy")[..100]);
    refuses(&place, "transient tandem:5 --time 1 --device cpu --initial cut.npy", &["cut.npy"]);
}

// Options.

#[test]
fn invalid_times_are_rejected() {
    for time in ["-1", "NaN", "1,-2", "", "soon", "-inf", "1,,2", "1e999x"] {
        refuses_options(&format!("--time={time}"), &["time"]);
    }
    for range in ["0:0:1", "1:0.5:0", "0:-1:1", "0:1", "0:1:2:3", "0:1:inf", "NaN:1:2", "0:1e-9:1"] {
        refuses_options(&format!("--times={range}"), &["time"]);
    }
    refuses_options("", &["--time"]);
}

#[test]
fn an_epsilon_outside_of_0_to_1_is_refused() {
    for epsilon in ["0", "1", "-1e-6", "2", "NaN", "inf"] {
        refuses_options(&format!("--time 1 --epsilon={epsilon}"), &["--epsilon", "between 0 and 1"]);
    }
    refuses_options("--time 1 --epsilon small", &["--epsilon", "small"]);
    for theta in ["0", "-1", "NaN", "inf"] {
        refuses_options(&format!("--time 1 --method subdivided --theta={theta}"), &["theta"]);
    }
}

#[test]
fn missing_devices_are_rejected_with_a_list_of_present_ones() {
    let place = Place::new();
    for device in
        ["wgpu:7", "wgpu:x", "gpu", "wgpu:-1", "cuda:99", "cpu,gpu", "CPU:0", "wgpu:99999999999999999999"]
    {
        let line = format!("transient tandem:5 --time 1 --device {device} -o out.npy");
        refuses(&place, &line, &["available: cpu", device.rsplit(',').next().unwrap()]);
        refuses(&place, &format!("bench spmv tandem:5 --device {device}"), &["available: cpu"]);
    }
    refuses_options("--time 1 --precision f16", &["--precision"]);
    refuses_options("--time 1 --lanes 0", &["lanes"]);
}

#[test]
fn a_matrix_that_does_not_fit_is_refused_with_the_numbers() {
    let place = Place::new();
    let line = "transient wlan:4,3 --time 1 --device cpu --memory-limit 64KiB -o out.npy --report out.json";
    refuses(&place, line, &["64.0 KiB", "3748 states", "--memory-limit"]);
    for size in ["", "0", "-1", "3XB", "NaN", "lots"] {
        refuses_options(&format!("--time 1 --memory-limit={size}"), &["--memory-limit"]);
    }
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_work() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("directory.csv")).unwrap();
    for (output, parts) in [
        ("none/p.csv", &["none", "does not exist"][..]),
        ("directory.csv", &["directory.csv", "is a directory"]),
        ("p.xyz", &[".xyz", ".npy", ".csv", ".txt"]),
        ("p", &[".npy", ".csv", ".txt"]),
    ] {
        // The model does not exist either: the output is checked first.
        let line = format!("transient none.tra --time 1 --device cpu -o {output}");
        refuses(&place, &line, parts);
    }
    for command in ["transient tandem:5 --time 1", "bench spmv tandem:5 --repeat 1"] {
        let line = format!("{command} --device cpu --report none/r.json");
        refuses(&place, &line, &["none", "does not exist"]);
    }
    refuses(&place, "transient tandem:5 --time 1,2 --device cpu -o p.txt", &[".txt", "2", ".csv"]);
    refuses(&place, "transient tandem:5 --time 1 --top 2 --device cpu -o p.npy", &["p.npy", ".csv"]);
    refuses(
        &place,
        "transient tandem:5 --time 1 --device cpu -o p.csv --report p.csv",
        &["p.csv", "two files"],
    );
    for (output, part) in [("none/m.tra", "does not exist"), ("m.xyz", ".umb"), ("m", ".npz")] {
        refuses(&place, &format!("generate tandem:5 -o {output}"), &[part]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let place = Place::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(crate::support::binary())
        .args(["transient", "tandem:5", "--time", "1", "--device", "cpu"])
        .current_dir(place.path())
        .stdout(full)
        .output()
        .unwrap();

    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("stdout") && !stderr.contains("panicked"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn a_directory_without_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let locked = place.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let permissions =
        |mode| std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(mode)).unwrap();
    permissions(0o555);
    // Root may write anywhere.
    if std::fs::write(locked.join("probe"), "").is_err() {
        refuses(&place, "transient tandem:5 --time 1 --device cpu -o locked/p.csv", &["locked/p.csv"]);
    }
    permissions(0o755);
}

#[test]
fn unknown_names_are_rejected_with_the_known_ones() {
    refuses_options("--time 1 --label down", &["'down'", "init, up"]);
    refuses_options("--time 1 --absorbing down", &["'down'", "init, up"]);
    refuses_options("--time 1 --initial label:down", &["'down'", "init, up"]);
    refuses_options("--time 1 --initial nowhere", &["nowhere", "label:NAME"]);
    refuses_options("--time 1 --initial 2", &["state 2", "0 to 1"]);
    refuses_options("--time 1 --initial=-1", &["-1"]);
    refuses_options("--time 1 --rewards cost", &["'cost'", ".srew"]);
    refuses_options("--time 1 --labels none.lab", &["none.lab"]);
    for states in ["2", "0-2", "1-0", "0,x", "", "-1", "0-", "4294967296"] {
        refuses_options(&format!("--time 1 --states={states}"), &["--states"]);
    }
    refuses_options("--time 1 --states 0 --top 1", &["cannot be used with"]);
    refuses_options("--time 1 --ell-width wide", &["--ell-width"]);
    refuses_options("--time 1 --method magic", &["auto", "uniformization", "subdivided"]);
    let place = Place::new();
    refuses(&place, "transient tandem:5 --time 1 --label full", &["'full'", "--labels"]);
    refuses(&place, "transient none.tra --time 1", &["none.tra", "no such file", "tandem:15"]);
    refuses(&place, "transient tandem:0 --time 1", &["tandem:0", "for example"]);
    refuses(&place, "generate none:3 -o m.tra", &["none:3", "tandem:C"]);
    refuses(&place, "bench spmv tandem:5 --repeat 0", &["--repeat"]);
    refuses(&place, "solve tandem:5", &["solve"]);
}

#[test]
fn labels_and_rewards_of_another_model_are_refused_with_their_line() {
    let place = Place::new();
    place.put("m.tra", TWO).put("m.lab", "0=\"init\"\n5: 0\n");
    refuses(&place, "transient m.tra --time 1 --device cpu", &["m.lab:2", "state 5", "2 states"]);
    place.put("m.lab", "0=\"init\"\n1: 3\n");
    refuses(&place, "transient m.tra --time 1 --device cpu", &["m.lab:2", "'3'", "not declared"]);
    place.put("m.lab", "0=\"init\"\n0: 0\n").put("m.srew", "9 1\n8 1\n");
    refuses(&place, "transient m.tra --time 1 --device cpu", &["m.srew"]);
    place.put("m.srew", "2 1\n1 NaN\n");
    refuses(&place, "transient m.tra --time 1 --device cpu", &["m.srew:2", "finite"]);
}

#[test]
fn more_transitions_than_promised_are_read_with_a_warning() {
    let place = Place::new();
    place.put("exact.tra", THREE).put("less.tra", THREE.replacen("3 4", "3 2", 1));
    let run = |name: &str| place.kolmo(&format!("transient {name} --time 1 --device cpu"));
    let (exact, less) = (run("exact.tra"), run("less.tra"));
    assert_eq!((less.code, &less.stdout), (0, &exact.stdout));
    let warning = "warning: less.tra: line 1 says 2 transitions, but the file has 4; all 4 are used";
    assert!(less.stderr.contains(warning), "{}", less.stderr);
    refuses_model(
        "m.tra",
        THREE.replacen("3 4", "3 5", 1),
        &["says 5", "has 4", "truncated", "write 4 in line 1"],
    );
}

#[test]
fn probably_mistyped_times_get_a_note() {
    let place = Place::new();
    place.put("m.tra", THREE);
    let said = |options: &str| place.transient(&format!("m.tra {options}")).stderr;
    assert!(said("--times 0:10:1").contains("note: --times 0:10:1 is time 0 alone"), "the order");
    assert!(said("--time 0,5").contains("two times, 0 and 5"), "the comma");
    for sound in ["--times 0:1:1", "--times 1:5:1", "--time 0,5,10", "--time 1,5", "--time 0.5"] {
        assert!(!said(sound).contains("note: --time"), "{sound}");
    }
    assert!(!said("--times 0:10:1 -q").contains("note"), "quiet");
}

/// Dense matrices, and numbers in the notation of Fortran and SciPy.
#[test]
fn other_forms_of_the_same_matrix_are_the_same_chain() {
    let place = Place::new();
    place.put("sparse.mtx", THREE_GENERATOR);
    place.put("plus.mtx", THREE_GENERATOR.replace("1 2 3\n", "+1 +2 +3.0D+0\n").replace("0.5", "5d-1"));
    place.put(
        "dense.mtx",
        "%%MatrixMarket matrix array real general\n3 3\n-3\n1.5\n1\n3\n-2\n0\n0\n0.5\n-1\n",
    );
    let run = |name: &str| place.kolmo(&format!("transient {name} --time 1 --device cpu -q"));
    let sparse = run("sparse.mtx");
    assert_eq!(sparse.code, 0, "{}", sparse.stderr);
    for name in ["plus.mtx", "dense.mtx"] {
        let other = run(name);
        assert_eq!((other.code, &other.stdout), (0, &sparse.stdout), "{name}: {}", other.stderr);
    }
    // A symmetric matrix lists only its lower triangle.
    place.put("full.mtx", "%%MatrixMarket matrix array real general\n2 2\n4\n-1\n-1\n3\n");
    place.put("half.mtx", "%%MatrixMarket matrix array real symmetric\n2 2\n4\n-1\n3\n");
    let walk = |name: &str| place.kolmo(&format!("walk {name} --component 0,1 --device cpu -q"));
    assert_eq!(walk("full.mtx").stdout, walk("half.mtx").stdout);
    assert_eq!(walk("half.mtx").code, 0);
}
