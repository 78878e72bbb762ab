//! Lanes on the command line: transfers, measurements, and `--lanes auto`.

use std::ffi::OsString;
use std::sync::OnceLock;

use crate::cli_plots::{Picture, picture};
use crate::devices::skip;
use crate::support::{Place, Run, float, has, npy};
use serde_json::Value;

/// Returns the devices of a test that are present; prints that it skips the others.
fn present() -> Vec<&'static str> {
    let list = crate::cli::devices(&Place::new());
    let is_here = |device: &&str| {
        let usable = |d: &Value| d["device"] == *device && d["usable"] == true;
        let found = list.iter().any(usable);
        if !found {
            skip(device, format!("{device} is not among {list:?}"));
        }
        found
    };
    ["cpu", "wgpu:0", "cuda:0"].into_iter().filter(is_here).collect()
}

/// Runs `kolmo` with its settings in `settings` of the directory.
fn kolmo(place: &Place, line: &str) -> Run {
    place.kolmo_with(line, &[("KOLMO_CONFIG_DIR", &place.path().join("settings").to_string_lossy())])
}

/// Returns the only file of settings, as path and JSON.
fn stored(place: &Place) -> (std::path::PathBuf, Value) {
    let entries = std::fs::read_dir(place.path().join("settings")).expect("a folder of settings");
    let files: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read(&files[0]).expect("a file of settings");
    (files[0].clone(), serde_json::from_slice(&text).expect("JSON"))
}

/// Writes measurements to the settings of a directory; they are made once for all tests.
pub(crate) fn measured(place: &Place) {
    static MEASURED: OnceLock<(OsString, Vec<u8>)> = OnceLock::new();
    let folder = place.path().join("settings");
    let (name, bytes) = MEASURED.get_or_init(|| {
        let place = Place::new();
        kolmo(&place, QUICK).ends(0, &[]);
        let path = stored(&place).0;
        (path.file_name().expect("a file").to_owned(), std::fs::read(&path).expect("a file of settings"))
    });
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), bytes).expect("a file of settings");
}

#[test]
fn small_chains_stay_on_cores_that_were_measured_to_be_fast_enough() {
    let place = Place::new();
    measured(&place);
    let (path, mut file) = stored(&place);
    for (speed, small) in [(1e10, true), (1e4, false)] {
        file["bytes_per_second"] = speed.into();
        std::fs::write(&path, file.to_string()).expect("a file of settings");

        let said = kolmo(&place, "transient tandem:5 --time 1 --verbose").stderr;

        assert_eq!(said.contains("before a GPU would have started"), small, "{speed} bytes a second: {said}");
    }
}

fn tuned(device: &str) {
    let place = Place::new();

    let options = "--max-size 10000 --max-lanes 4 --repeat 2 --memory-limit 64MiB";
    let line = format!("tune --device {device} {options} --report r.json --plot t.svg");
    let run = kolmo(&place, &line).ends(0, &[]);
    let Picture { texts, circles } = picture(&place, "t.svg");
    assert!(texts.iter().any(|t| t == "2 lanes") && circles.len() >= 5, "{texts:?}");
    let report = place.json("r.json");
    has(&report, "command version status bound devices seconds files tuned");
    let (path, file) = stored(&place);
    let tuned = &report["tuned"][0];
    assert_eq!(report["files"][0], *path.to_string_lossy());
    assert_eq!(tuned["key"], file["key"]);
    assert_eq!(tuned["sizes"], file["sizes"]);
    let sizes = tuned["sizes"].as_array().expect("sizes");
    let n: Vec<u64> = sizes.iter().map(|s| s["n"].as_u64().unwrap()).collect();
    assert_eq!(n, [1000, 2500, 4000, 5000, 7500, 8000, 10_000]);
    for size in sizes {
        let runs = size["runs"].as_array().expect("runs");
        assert_eq!(runs.iter().map(|r| r["lanes"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 4]);
        for run in runs {
            let (min, median) = (float(run, "min"), float(run, "median"));
            assert!(0.0 < min && min <= median, "{size:#}");
        }
    }
    // On a busy machine, differences of times may have any sign, but a cost is not negative.
    assert!(float(tuned, "lane_cost") >= 0.0);
    // The table's choice for a size is that of a solution of this size.
    let line = run.stdout.lines().find(|line| line.trim_start().starts_with("5 000 ")).expect("5000 rows");
    let columns: Vec<&str> = line.split_whitespace().collect();
    // Two words of rows, three times, the best count, the choice.
    let auto: u64 = columns[6].parse().unwrap_or_else(|_| panic!("{line}"));
    let line = format!("tridiagonal random:5000 --device {device} -o x.npy --report t.json --verbose");
    kolmo(&place, &line).ends(0, &["as `kolmo tune` measured"]);
    let report = place.json("t.json");
    assert_eq!((&report["lanes_predicted"], &report["lanes"]), (&auto.into(), &auto.into()));
}

#[test]
#[ignore = "slow: measures"]
fn devices_are_tuned_and_their_choices_are_used() {
    present().into_iter().for_each(tuned);
}

/// Returns unknowns and report of `random:3000` on the CPU.
fn solved(place: &Place, options: &str) -> (Run, Vec<f64>, Value) {
    let line = format!("tridiagonal random:3000 --device cpu -o x.npy --report t.json {options}");
    let run = kolmo(place, &line).ends(0, &[]);
    (run, npy(&place.get("x.npy")).1, place.json("t.json"))
}

#[test]
fn stored_measurements_decide_and_options_overrule_them() {
    let place = Place::new();
    let (quiet, _, _) = solved(&place, "");
    assert!(!quiet.stderr.contains("tune"), "it cannot matter here: {}", quiet.stderr);
    let (run, alone, report) = solved(&place, "--verbose");
    run.ends(0, &["by default; `kolmo tune --device cpu` measures it"]);
    assert_eq!((&report["lanes"], &report["lanes_predicted"]), (&1.into(), &1.into()));

    // A machine on which four lanes are four times as fast as one, and more are slow.
    measured(&place);
    let (path, mut file) = stored(&place);
    for size in file["sizes"].as_array_mut().expect("sizes") {
        for run in size["runs"].as_array_mut().expect("runs") {
            run["median"] = serde_json::json!(4.0 / run["lanes"].as_f64().unwrap());
        }
    }
    std::fs::write(&path, file.to_string()).expect("the file can be changed");

    let (run, together, report) = solved(&place, "--verbose");

    run.ends(0, &["4 lanes for 3 000 rows on cpu, as `kolmo tune` measured"]);
    assert_eq!((&report["lanes"], &report["lanes_predicted"]), (&4.into(), &4.into()));
    assert_eq!(report["status"], "met");
    // Each solves a dominant system to a relative residual of a few rounding errors.
    let worst = alone.iter().zip(&together).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-12, "{worst}");
    let (_, _, report) = solved(&place, "--lanes 2 --quiet");
    assert_eq!((&report["lanes"], &report["lanes_predicted"]), (&2.into(), &Value::Null));

    std::fs::write(&path, "{").expect("the file can be changed");
    let (run, _, report) = solved(&place, "");
    run.ends(0, &["renews", "EOF"]);
    assert_eq!(report["lanes"], 1);
}

/// Every command that reads the stored measurements.
const READERS: [&str; 3] = [
    "tridiagonal random:3000 --device cpu -o x.npy --verbose",
    "transient tandem:3 --time 1 --device cpu --top 1",
    "bench tridiagonal random:300 --device cpu --repeat 1 --max-lanes 1 --measure host --memory-limit 64MiB",
];

const QUICK: &str = "tune --device cpu --max-size 7500 --max-lanes 4 --repeat 1 --memory-limit 64MiB";

#[test]
#[ignore = "slow: measures"]
fn damaged_measurements_are_reported_kept_and_renewed_on_request() {
    let place = Place::new();
    measured(&place);
    let (path, mut file) = stored(&place);
    file["version"] = "0.0.1".into();
    let old = file.to_string().into_bytes();
    // All reasons are tested with the library.
    for (bytes, why) in [(&[][..], "EOF"), (&old[..], "kolmo 0.0.1")] {
        std::fs::write(&path, bytes).expect("the file can be changed");
        for line in READERS {
            let run = kolmo(&place, line).ends(0, &[]);
            let said: Vec<&str> =
                run.stderr.lines().filter(|l| l.starts_with("warning: not used: ")).collect();
            assert_eq!(said.len(), 1, "{why}: {line}\n{}", run.stderr);
            for words in [&*path.to_string_lossy(), why, "`kolmo tune --device cpu` renews it"] {
                assert!(said[0].contains(words), "{why}: {line}\n{}", run.stderr);
            }
            let quiet = kolmo(&place, &format!("{} --quiet", line.replace(" --verbose", "")));
            assert_eq!((quiet.code, &quiet.stderr[..]), (0, ""), "{why}: {line}");
        }
        // Only `kolmo tune` measures, so only it writes.
        assert_eq!(&std::fs::read(&path).expect("a file of settings"), bytes, "{why}");
    }

    kolmo(&place, QUICK).ends(0, &["repeating unusable measurements: "]);

    assert_eq!(stored(&place).0, path);
    for line in READERS {
        let run = kolmo(&place, line);
        assert!(run.code == 0 && !run.stderr.contains("warning"), "{line}\n{}", run.stderr);
    }
}

#[test]
fn a_folder_instead_of_the_measurement_file_is_rejected() {
    let place = Place::new();
    measured(&place);
    let (path, _) = stored(&place);
    std::fs::remove_file(&path).expect("the file can be removed");
    std::fs::create_dir(&path).expect("a folder");

    let run = kolmo(&place, QUICK).ends(2, &[&path.to_string_lossy(), "move it away"]);

    assert!(run.stdout.is_empty() && !run.stderr.contains("size 1 of"), "{run:?}");
    kolmo(&place, READERS[0]).ends(0, &["not a file; move it away"]);
    // A file instead of the folder.
    let place = Place::new();
    place.put("settings", "a file");
    kolmo(&place, "tune --device cpu").ends(2, &["settings"]);
}

fn lanes_of_a_system(device: &str) {
    let place = Place::new();

    let options = "--repeat 2 --memory-limit 300MiB --report r.jsonl";
    let line = format!("bench tridiagonal random:20001 --device {device} {options}");
    let run = kolmo(&place, &line).ends(0, &[]);
    let all = place.json_lines("r.jsonl");
    let (resident, host): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|r| r["resident"] == true);
    let median = |r: &Value| float(r, "seconds.median");
    let near = |got: &Value, want: f64| (got.as_f64().unwrap() / want - 1.0).abs() <= 8.0 * f64::EPSILON;
    assert_eq!(resident.len(), 1);
    // Page-locked rows, and pageable ones.
    let kinds: &[bool] = if device.starts_with("cuda") { &[true, false] } else { &[false] };
    assert_eq!(host.len(), 6 * kinds.len());
    for (own, &locked) in host.chunks(6).zip(kinds) {
        let lanes: Vec<u64> = own.iter().map(|r| r["lanes"].as_u64().unwrap()).collect();
        assert_eq!(lanes, [1, 2, 4, 8, 16, 32]);
        let fastest = own.iter().min_by(|a, b| median(a).total_cmp(&median(b))).unwrap();
        for record in own {
            assert_eq!((&record["locked"], &record["lanes_best"]), (&locked.into(), &fastest["lanes"]));
            // No earlier measurements.
            assert_eq!((&record["lanes_predicted"], &record["predicted_seconds"]), (&1.into(), &Value::Null));
            assert!(near(&record["gain"], median(own[0]) / median(record)), "{record}");
        }
    }
    for record in resident.into_iter().chain(host) {
        has(record, "bench case device backend precision format bytes bytes_moved");
        assert_eq!((&record["n"], &record["nnz"]), (&20_001.into(), &60_001.into()));
        assert_eq!(record["repetitions"], 2);
        assert!(near(&record["rows_per_s"], 20_001.0 / median(record)), "{record}");
        // The relative residual of a dominant system.
        assert!(float(record, "relative_error") < 1e-14, "{record}");
    }
    assert!(run.stdout.contains("1.30 x") && run.stdout.contains("auto"), "{}", run.stdout);
}

#[test]
#[ignore = "slow: measures"]
fn lanes_of_a_system_on_each_device() {
    present().into_iter().for_each(lanes_of_a_system);
}
