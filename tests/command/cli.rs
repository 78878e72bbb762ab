//! The command line: streams, exit codes, formats, reports.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::support::{
    Place, RECORD, Run, THREE, THREE_DRN, THREE_GENERATOR, TWO, bound, gzip, has, npy, number, table, two,
};

/// Asserts that probabilities are within ε of the exact ones in l1.
#[track_caller]
fn near(got: &[f64], exact: &[f64], epsilon: f64) {
    assert_eq!(got.len(), exact.len(), "{got:?}");
    let distance: f64 = got.iter().zip(exact).map(|(a, b)| (a - b).abs()).sum();
    assert!(distance <= epsilon, "{got:?} is {distance:e} from {exact:?}, allowed: {epsilon:e}");
}

// Standard output.

#[test]
fn each_time_has_a_column_of_probabilities() {
    let run = Place::new().transient("birth-death:2,3,2 --time 0.5 --epsilon 1e-12");
    assert_eq!(run.rows()[0], ["state", "probability"]);
    assert_eq!(run.column(0), [0.0, 1.0]);
    near(&run.column(1), &two(0.5), 1e-12);

    let run = Place::new().transient("birth-death:2,3,2 --time 0.25,inf,1e-3 --epsilon 1e-10");

    assert_eq!(run.rows()[0], ["state", "t=0.25", "t=inf", "t=0.001"]);
    near(&run.column(1), &two(0.25), 1e-10);
    near(&run.column(2), &[0.4, 0.6], 1e-10);
    near(&run.column(3), &two(1e-3), 1e-10);
}

#[test]
fn chosen_states_come_in_the_order_asked() {
    let run = Place::new().transient("tandem:5 --time 1,2 --states 60,0,3-5");

    let rows = run.rows();
    assert_eq!(rows[0], ["time", "what", "value"]);
    let what: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[0], row[1]]).collect();
    let expected = ["1", "2"].map(|t| ["60", "0", "3", "4", "5"].map(|state| [t, state]));
    assert_eq!(what, expected.concat());
}

#[test]
fn a_label_is_the_sum_over_its_states() {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\" 2=\"never,ever\"\n0: 0\n1: 1\n2: 1\n");
    let all = place.transient("m.tra --time 0.7").column(1);

    let run = place.transient("m.tra --time 0.7 --label busy --label init");
    let quoted = place.transient("m.tra --time 0.7 --label never,ever");

    assert_eq!(run.rows()[1][..2], ["0.7", "busy"]);
    // A sum of two numbers is rounded once.
    near(&run.column(2), &[all[1] + all[2], all[0]], f64::EPSILON);
    assert_eq!(quoted.stdout, "time,what,value\n0.7,\"never,ever\",0\n");
}

#[test]
fn the_largest_probabilities_come_first() {
    let place = Place::new();
    let values = place.transient("tandem:5 --time 1").column(1);
    let mut all: Vec<(usize, f64)> = values.into_iter().enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));

    let run = place.transient("tandem:5 --time 1 --top 3");

    assert_eq!(run.rows()[0], ["time", "what", "value"]);
    assert_eq!(run.column(1), all[..3].iter().map(|e| e.0 as f64).collect::<Vec<_>>());
    assert_eq!(run.column(2), all[..3].iter().map(|e| e.1).collect::<Vec<_>>());
    assert_eq!(place.transient("tandem:5 --time 1 --top 1000").rows().len(), 67);
}

#[test]
fn rewards_replace_the_vector_on_stdout() {
    let place = Place::new();
    place.put("m.tra", TWO).put("r.srew", "2 1\n1 8\n");
    let t = 0.4f64;

    let run = place.transient("m.tra --time 0,0.4 --rewards r.srew --epsilon 1e-12 -o p.npy");

    let rows = run.rows();
    assert_eq!(rows[0], ["time", "reward", "instantaneous", "cumulative"]);
    assert_eq!(rows[1], ["0", "r", "0", "0"]);
    assert_eq!(rows[2][..2], ["0.4", "r"]);
    // E[8·1{X = 1}] and its integral over [0, t]. An l1 error of ε weighs at most 8, and 8t over
    // time.
    near(&[number(rows[2][2])], &[8.0 * two(t)[1]], 8e-12);
    near(&[number(rows[2][3])], &[8.0 * 0.6 * (t + (-5.0 * t).exp_m1() / 5.0)], 8e-12 * t);
    assert_eq!(npy(&place.get("p.npy")).0, "2, 2");
}

#[test]
fn quiet_leaves_stderr_empty_and_otherwise_it_has_the_summary() {
    let place = Place::new();

    let said = place.transient("tandem:5 --time 1").stderr;
    let quiet = place.transient("tandem:5 --time 1 --quiet").stderr;
    let all = place.transient("tandem:5 --time 1 --verbose").stderr;

    let words: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(words, ["model", "device", "bound", "time"], "{said}");
    assert!(said.contains("66 states") && said.contains(": met"), "{said}");
    // Colours are for terminals only.
    assert!(!said.contains('\u{1b}'), "{said:?}");
    assert_eq!(quiet, "");
    assert!(all.contains("alpha = 26") && all.contains("terms 1 to"), "{all}");
    assert!(!all.contains("a GPU"), "{all}");
    // Without `--device`, a small chain does not wait for a GPU.
    let parts = ["device   cpu", "before a GPU would have started"];
    place.kolmo("transient tandem:5 --time 1 --verbose").ends(0, &parts);
}

#[test]
fn a_bound_that_is_not_met_is_one_line_also_when_quiet() {
    let place = Place::new();
    place.put("s.csv", "dl,d,du,b\n,0,1,1\n1,0,1,1\n1,0,,1\n");
    for (line, reason) in [
        ("transient tandem:5 --time 1 --epsilon 1e-30", "rounding alone is bounded by"),
        ("walk poisson2d:6,0.8 --component 0 --epsilon 1e-6 --sweeps 0 --chains 4096", "give more --chains"),
        ("tridiagonal s.csv -o x.npy", "the matrix is singular"),
    ] {
        let run = place.kolmo(&format!("{line} --device cpu --quiet")).ends(1, &["NOT met: ", reason]);
        assert_eq!(run.stderr.lines().count(), 1, "{line}: {}", run.stderr);
    }
}

// Files and reports.

#[test]
fn the_extension_is_the_format_of_the_output() {
    let place = Place::new();
    let run = place.transient("tandem:5 --time 1");

    for output in ["p.csv", "p.txt", "p.npy"] {
        // An older output is replaced.
        place.put(output, "old");
        let run = place.transient(&format!("tandem:5 --time 1 -o {output}"));
        assert_eq!(run.stdout, "", "{output}");
    }

    assert_eq!(place.text("p.csv"), run.stdout);
    let (shape, values) = npy(&place.get("p.npy"));
    assert_eq!((&shape[..], &values), ("66,", &run.column(1)));
    assert_eq!(place.text("p.txt").lines().map(number).collect::<Vec<_>>(), values);
    place.transient("tandem:5 --time 3,1,2 -o p.npy");
    let (shape, rows) = npy(&place.get("p.npy"));
    assert_eq!(shape, "3, 66");
    assert_eq!(rows.len(), 3 * 66);
    // Rows in the requested order: the second is time 1 again, within the sum of two bounds.
    near(&rows[66..132], &values, 2e-6);
    assert_eq!(place.names(), ["p.csv", "p.npy", "p.txt"]);
}

/// The truncated expansion gives this set 1.005.
#[test]
fn the_probability_of_a_set_of_states_is_at_most_one() {
    let place = Place::new();
    let all: String = (0..190).map(|state| format!("{state}: 1\n")).collect();
    place.put("all.lab", format!("0=\"init\" 1=\"all\"\n{all}"));

    let line = "tandem:9 --labels all.lab --label all --time 2.5 --method chebyshev --epsilon 0.1";
    assert_eq!(place.transient(line).stdout, "time,what,value\n2.5,all,1\n");
}

#[test]
fn a_report_has_what_was_selected() {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\"\n0: 0\n1: 1\n2: 1\n");
    let selections =
        [("--label busy --label init", "label"), ("--states 2,0", "state"), ("--top 2", "state")];
    for (options, key) in selections {
        let run = place.transient(&format!("m.tra --time 1,2 {options} --report r.json"));
        let report = place.json("r.json");
        let times = report["per_time"].as_array().unwrap();
        let mut values = times.iter().flat_map(|time| time["values"].as_array().unwrap());
        for row in &run.rows()[1..] {
            let value = values.next().unwrap();
            assert_eq!(value[key].to_string().trim_matches('"'), row[1], "{options}");
            assert_eq!(value["value"].as_f64().unwrap(), number(row[2]), "{options}");
        }
        assert!(values.next().is_none(), "{options}");
    }
    place.transient("m.tra --time 1 --report r.json -o p.npy");
    assert!(place.json("r.json")["per_time"][0].get("values").is_none());
}

#[test]
fn a_bound_that_cannot_be_met_exits_1_with_all_its_output() {
    let place = Place::new();

    let line = "transient birth-death:2,3,2 --time 0.5 --device cpu --epsilon 1e-17 -o p.csv --report r.json";
    place.kolmo(line).ends(1, &["NOT met", "rounding"]);

    let values: Vec<f64> =
        place.text("p.csv").lines().skip(1).map(|l| number(l.split(',').nth(1).unwrap())).collect();
    let report = place.json("r.json");
    assert_eq!(report["status"], "not_met");
    // The closed form rounds, too: an exponential and a product.
    near(&values, &two(0.5), bound(&report) + 4.0 * f64::EPSILON);
    assert_eq!(place.names(), ["p.csv", "r.json"]);
}

#[test]
fn a_closed_pipe_of_stdout_is_no_error() {
    let place = Place::new();
    // Some megabytes of text, more than any pipe holds.
    let mut child = place.start("transient birth-death:200000,1,1 --time 1 --device cpu");

    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let run = Run::of("", child.wait_with_output().unwrap()).ends(0, &[]);

    assert!(first == "state,probability\n" && !run.stderr.contains("error:"), "{first}{run:?}");
}

#[test]
fn a_closed_stderr_is_no_error() {
    let place = Place::new();
    for (model, code) in [("tandem:5", 0), ("none.tra", 2)] {
        let mut child = place.start(&format!("transient {model} --time 1 --device cpu"));
        drop(child.stderr.take());

        Run::of(model, child.wait_with_output().unwrap()).ends(code, &[]);
    }
}

// Initial distributions and absorbing states.

#[test]
fn the_initial_distribution_is_an_option() {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\" 2=\"end\"\n0: 0\n1: 0 1\n2: 1 2\n");
    place.put("p.txt", "0.25\n\n# the rest\n0.5\n0.25\n");
    let at_zero = |initial: &str| place.transient(&format!("m.tra --time 0 {initial}")).column(1);

    place.transient("tandem:1 --time 0 --initial 5 -o p.npy");
    assert_eq!(npy(&place.get("p.npy")).1, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    place.put("q.tra", THREE).transient("q.tra --time 0 --initial p.txt -o p.npy");
    // `init` of the .lab names two states.
    assert_eq!(at_zero(""), [0.5, 0.5, 0.0]);
    assert_eq!(at_zero("--initial 2"), [0.0, 0.0, 1.0]);
    assert_eq!(at_zero("--initial label:end"), [0.0, 0.0, 1.0]);
    assert_eq!(at_zero("--initial label:busy"), [0.0, 0.5, 0.5]);
    assert_eq!(at_zero("--initial p.txt"), [0.25, 0.5, 0.25]);
    assert_eq!(at_zero("--initial p.npy"), [0.25, 0.5, 0.25]);
}

#[test]
fn methods_agree() {
    let place = Place::new();
    let sweep = place.transient("tandem:15 --time 2 --epsilon 1e-12").column(1);

    for option in ["--method uniformization", "--method chebyshev", "--method krylov", "--checked"] {
        let other = place.transient(&format!("tandem:15 --time 2 --epsilon 1e-12 {option}")).column(1);
        near(&other, &sweep, 2e-12);
    }
}

// Formats of models.

#[test]
fn every_format_gives_the_same_bits() {
    let place = Place::new();
    place.put("m.tra", THREE).put("storm.tra", "ctmc\n0 1 3\n1 0 1.5\n1 2 1/2\n2 0 1\n");
    place.put("m.drn", THREE_DRN);
    place.put("m.mtx", THREE_GENERATOR).put("q.tra.gz", gzip(THREE)).put("q.drn.gz", gzip(THREE_DRN));
    place.put("q.mtx.gz", gzip(THREE_GENERATOR));
    place.transient("m.tra --time 0.9 -o first.npy");

    for model in ["storm.tra", "m.drn", "m.mtx", "q.tra.gz", "q.drn.gz", "q.mtx.gz"] {
        place.transient(&format!("{model} --time 0.9 -o p.npy"));
        assert_eq!(place.get("p.npy"), place.get("first.npy"), "{model}");
    }
}

#[test]
fn labels_and_rewards_are_in_the_model_or_in_separate_files() {
    let place = Place::new();
    place.put("m.drn", THREE_DRN);
    place.put("z.tra.gz", gzip(THREE));
    place.put("z.lab.gz", gzip("0=\"init\" 1=\"busy\"\n0: 0\n1: 1\n2: 1\n"));
    place.put("z.srew.gz", gzip("# Reward structure \"cost\"\n# State rewards\n3 2\n1 1\n2 4\n"));

    for selection in ["--label busy", "--rewards cost"] {
        let inside = place.transient(&format!("m.drn --time 0.9 {selection}"));
        let beside = place.transient(&format!("z.tra.gz --time 0.9 {selection}"));

        assert_eq!(inside.stdout, beside.stdout);
        assert_eq!(inside.rows().len(), 2, "{}", inside.stdout);
    }
}

// Devices.

/// Returns the devices that the command lists; asserts that they include the required ones.
pub(crate) fn devices(place: &Place) -> Vec<Value> {
    let run = place.kolmo("devices --format json");
    assert_eq!((run.code, &run.stderr[..]), (0, ""));
    let devices: Vec<Value> = serde_json::from_str(&run.stdout).expect("an array");
    let required = std::env::var("KOLMO_REQUIRE_DEVICES").unwrap_or_default();
    // `KOLMO_REQUIRE_DEVICES` also names compilers and launchers.
    let lane = |name: &&str| ["cpu", "wgpu", "cuda"].contains(&name.split(':').next().unwrap_or(""));
    for name in required.split(',').filter(lane) {
        assert!(devices.iter().any(|d| d["device"] == name), "{name} is required and not in {devices:?}");
    }
    devices
}

#[test]
fn the_doctor_names_every_device_and_what_is_missing() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("settings")).expect("a folder");
    place.put("settings/lanes-cpu.json", "{");
    let folders = [("KOLMO_CONFIG_DIR", "settings"), ("KOLMO_CACHE_DIR", "cache")];

    let run = place.kolmo_with("doctor", &folders);

    assert_eq!((run.code, &run.stderr[..]), (0, ""));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines.len() < 40 && lines[0].starts_with("kolmo      0."), "{}", run.stdout);
    for device in devices(&place) {
        let spec = device["device"].as_str().expect("a name");
        assert!(lines.iter().any(|line| line.starts_with(spec)), "{spec}: {}", run.stdout);
    }
    for part in ["system ", "memory ", "Vulkan ", "CUDA ", "0 devices measured, 1 damaged"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }

    // No driver can be found there, and no folder can be made of a file.
    #[cfg(target_os = "linux")]
    {
        let nowhere = [("VK_DRIVER_FILES", "/nowhere.json"), ("VK_ICD_FILENAMES", "")];
        let files = ["KOLMO_CONFIG_DIR", "KOLMO_CACHE_DIR"].map(|name| (name, "settings/lanes-cpu.json"));
        let run = place.kolmo_with("doctor", &[&nowhere[..], &files, &[("KOLMO_LEVEL", "sse")]].concat());
        assert!(!run.stdout.contains("\nwgpu:0 ") && !run.stdout.contains("\nf64 "), "{}", run.stdout);
        assert!(["'/nowhere.json'", "no loader"].iter().any(|s| run.stdout.contains(s)), "{}", run.stdout);
        for part in ["settings   cannot be written", "VK_ICD_FILENAMES=\n", "KOLMO_LEVEL=sse: no effect"] {
            assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
        }
    }
}

#[test]
fn devices_are_listed_for_people_and_for_programs() {
    let place = Place::new();

    let all = devices(&place);
    let text = place.kolmo("devices").stdout;

    assert_eq!(all[0]["device"], "cpu");
    for device in &all {
        has(device, "device name backend driver software f64 f32 usable");
        for key in ["device", "name"] {
            assert!(text.contains(device[key].as_str().unwrap()), "{text}");
        }
    }
}

#[test]
fn every_usable_device_meets_the_bound() {
    let place = Place::new();
    let exact = place.transient("tandem:5 --time 1 --epsilon 1e-12").column(1);
    place.put("q.sm", "ctmc const double a; module m x : [0..9]; [] x<9 -> a : (x'=x+1); endmodule");
    let study = "check q.sm 'P=? [ F<=9 x=9 ]' --const a=0.5:0.1:1.3 --device";

    for device in devices(&place) {
        let name = device["device"].as_str().unwrap();
        if device["usable"] != true {
            crate::devices::skip(name, &device);
            continue;
        }
        let precisions: &[(&str, f64)] =
            if device["f64"] == true { &[("f64", 1e-10), ("f32", 1e-3)] } else { &[("f32", 1e-3)] };
        for &(precision, epsilon) in precisions {
            let options = format!("--epsilon {epsilon} --precision {precision} --device {name}");
            let run = place.transient(&format!("tandem:5 --time 1 {options} --report r.json"));
            near(&run.column(1), &exact, epsilon + 1e-12);
            assert_eq!(place.json("r.json")["devices"][0]["precision"], precision);
        }
        if device["f64"] == true {
            // Lanes of a GPU solve different values.
            let of = |lanes: &str| place.ok(&format!("{study} {name} {lanes}")).stdout;
            assert_eq!(of(""), of("--lanes 3"), "{name}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_adapters_computes_and_lists_its_devices() {
    let place = Place::new();
    let none = [("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")];

    let list = place.kolmo_with("devices --format json", &none);
    let list: Vec<Value> = serde_json::from_str(&list.stdout).unwrap();
    assert!(!list.iter().any(|d| d["device"].as_str().unwrap().starts_with("wgpu")), "{list:?}");
    assert_eq!(place.kolmo_with("transient tandem:5 --time 1", &none).code, 0);
    for device in ["wgpu:0", "wgpu:7", "wgpu:all", "cuda:99"] {
        let line = format!("transient tandem:5 --time 1 --device {device}");
        assert_eq!(place.kolmo_with(&line, &none).ends(2, &[device, "cpu"]).stdout, "");
    }
}

// Benchmarks and help.

#[test]
fn bench_reports_a_json_line_a_case() {
    let place = Place::new();
    let run = place.ok("bench spmv tandem:15 --repeat 2 --memory-limit 100MiB --report r.jsonl");
    assert!(run.stdout.contains("tandem:15") && run.stdout.contains("median"), "{}", run.stdout);

    let lines = place.json_lines("r.jsonl");
    for line in &lines {
        has(line, RECORD);
        has(&line["seconds"], "median min");
        assert_eq!(line["seconds"].as_object().map(serde_json::Map::len), Some(2));
        // C = 15: arrivals (2C − 1)(C + 1), queues 2C² + C(C + 1) and C(2C + 1), diagonal n.
        let nnz = 29 * 16 + 2 * 225 + 15 * 16 + 15 * 31 + 496;
        assert_eq!((&line["n"], &line["nnz"]), (&Value::from(496), &Value::from(nnz)));
    }
    let accumulate: Vec<_> = lines.iter().map(|l| l["accumulate"].as_bool()).collect();
    assert!(matches!(accumulate[..], [Some(a), Some(b)] if a != b), "{lines:?}");
    let help = place.kolmo("bench spmv --help").stdout;
    assert!(help.contains("JSON lines, one object per case and device"), "{help}");
}

#[test]
fn help_is_short_or_grouped() {
    let place = Place::new();
    // Descriptions of options are indented further.
    let option = |line: &str| line.trim_start().starts_with('-') && line.find('-') <= Some(6);
    let options = |text: &str| text.lines().filter(|line| option(line) && line.contains("--")).count();
    for command in ["transient", "walk", "tridiagonal"] {
        let [short, long] = ["-h", "--help"].map(|help| place.kolmo(&format!("{command} {help}")).stdout);

        assert!(options(&short) <= 16, "{short}");
        assert!(options(&short) < options(&long), "{long}");
        for part in ["Problem:", "Output:", "Device:", "Long runs:", "Expert:", "Examples:", "Exit codes:"] {
            let absent = (command, part) == ("tridiagonal", "Long runs:");
            assert!(long.contains(part) != absent, "{command} --help and {part}:\n{long}");
        }
        let examples = long.lines().filter(|line| line.starts_with(&format!("  kolmo {command} "))).count();
        assert_eq!(examples, 4, "{long}");
        assert!(!short.contains("Examples:"), "{short}");
    }
    let tolerance = place.kolmo("tridiagonal --help").stdout;
    assert!(tolerance.contains("[default: 1e-12]"), "{tolerance}");
}

/// [`Place::json`] checks the schema.
#[test]
fn reports_of_every_command_and_precision_are_as_documented() {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\"\n0: 0\n2: 1\n");
    place.put("p.csl", "P=? [ F<=1 \"busy\" ]\nS=? [ \"busy\" ]\n");
    for case in table(include_str!("inputs/reports.txt")) {
        let (precisions, line) = (case[0], case[1]);
        for precision in precisions.split(',') {
            let line = format!("{line} --device cpu --precision {precision} --report r.json -q");
            let run = place.kolmo(&line);
            assert!(run.code == 0 || run.code == 1, "kolmo {line}: {}", run.stderr);
            let report = place.json("r.json");
            // Commands that compute only in double precision report none.
            let said = report["devices"][0].get("precision").or(report.get("precision"));
            assert!(said.is_none_or(|said| said == precision), "{line}: {report:#}");
        }
    }
}
