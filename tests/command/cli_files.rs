//! Outputs, links and names of files; killed runs leave no files.
#![cfg(unix)]

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::support::{Place, Run, THREE, binary, gzip, npy_file, npz, on_cpu, section, shell, signal};

/// A directory with a model and its labels.
fn place() -> Place {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\"\n0: 0\n2: 1\n");
    place
}

#[test]
fn devices_may_be_outputs_of_several_options() {
    place().transient("m.tra --time 1 --report /dev/null --checkpoint /dev/null -q");
}

/// Relies on unnamed files of Linux (`O_TMPFILE`).
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let place = Place::new();
    place.put("p.npy", "old");
    let mut child = place.start("transient wlan:12,6 --time 1e6 --device cpu -o p.npy --report r.json");
    place.await_output(&mut child);
    assert!(signal("-KILL", &[child.id()]));
    child.wait().unwrap();

    assert_eq!(place.names(), ["p.npy"]);
    assert_eq!(place.text("p.npy"), "old");
}

fn run(place: &Place, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Run {
    Run::of("", Command::new(binary()).args(args).current_dir(place.path()).output().unwrap())
}

/// A shell's `>&-` closes stdout; the runtime opens `/dev/null` instead.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_for_a_closed_stdout_is_an_error() {
    let place = place();
    for case in section(include_str!("inputs/faults.txt"), "printing") {
        let line = format!("{} >&-", on_cpu(case[0]));
        shell(&place, ":", &line, Stdio::piped()).ends(2, &["error: stdout: is closed"]);
    }
    // An explicit `/dev/null` is no error, nor is an output elsewhere.
    for more in [">/dev/null", "1<>/dev/null", "-o new.csv >&-"] {
        let line = format!("transient m.tra --time 1 -q --device cpu {more}");
        assert_eq!(shell(&place, ":", &line, Stdio::piped()).ends(0, &[]).stderr, "");
    }
}

#[test]
fn an_output_keeps_the_permissions_of_the_file_that_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    let mode = |name: &str| std::fs::metadata(place.path().join(name)).unwrap().permissions().mode() & 0o777;
    for (option, name) in [("-o", "o.csv"), ("-o", "o.npy"), ("--report", "r.json"), ("--plot", "p.svg")] {
        place.put(name, "private");
        let path = place.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        place.transient(&format!("m.tra --times 0:1:2 {option} {name}"));
        assert_eq!(mode(name), 0o600, "{option} {name}");
        assert_ne!(place.get(name), b"private");
    }
    let run = shell(&place, ":", "transient m.tra --time 1 -o umask.csv -q", Stdio::piped()).ends(0, &[]);
    assert_eq!(run.stderr, "");
    std::fs::write(place.path().join("usual"), "").unwrap();
    assert_eq!(mode("umask.csv"), mode("usual"));
}

#[test]
fn packed_files_are_unpacked_within_the_memory_limit() {
    const LARGE: usize = 5 << 20;
    let place = Place::new();
    place.put("line.tra.gz", gzip(vec![b'1'; LARGE]));
    place.put("lines.tra.gz", gzip([b"2 1\n", &vec![b'\n'; LARGE][..]].concat()));
    place.put("line.drn.gz", gzip([b"@type: CTMC\n@parameters\n", &vec![b'x'; LARGE][..]].concat()));
    place.put("blank.lab.gz", gzip([b"0=\"init\"\n0: 0\n", &vec![b' '; LARGE][..]].concat()));
    place.put("m.tra", THREE);
    let many = LARGE / 8;
    let members = [
        ("format", npy_file("|S3", false, &[], b"csr")),
        ("shape", npy_file("<i8", false, &[2], &1u64.to_le_bytes().repeat(2))),
        ("indptr", npy_file("<i8", false, &[2], &[0; 16])),
        ("indices", npy_file("<i4", false, &[many], &vec![0; 4 * many])),
        ("data", npy_file("<f8", false, &[many], &vec![0; LARGE])),
    ];
    place.put("m.npz", npz(true, &members));
    for line in ["line.tra.gz", "lines.tra.gz", "line.drn.gz", "m.npz", "m.tra --labels blank.lab.gz"] {
        place.refuses(&format!("transient {line} --time 1 --memory-limit 4MiB"), &["4.0 MiB", "limit"]);
        // With enough memory, other errors of the file are reported.
        let free = place.kolmo(&format!("transient {line} --time 1 --device cpu"));
        assert!(!free.stderr.contains("limit is") && !free.stderr.contains("unpacked"), "{}", free.stderr);
    }
    place.transient("m.tra --labels blank.lab.gz --time 1 -q");
    place.refuses("generate line.tra.gz -o x.tra --memory-limit 4MiB", &[]);
}

/// Reading a file takes little more memory than its text, or than the limit at which it is refused.
#[cfg(target_os = "linux")]
#[test]
fn blank_lines_take_the_memory_of_their_text() {
    const TEXT: u64 = 56 << 20;
    let place = Place::new();
    // More blank lines at the start than are read for the header, so that the text is read whole.
    let blank = |bytes: u64| vec![b'\n'; bytes as usize];
    place.put("m.tra.gz", gzip([&blank(1 << 17), &b"2 2\n0 1 1\n1 0 2\n"[..], &blank(TEXT)].concat()));
    for (options, code, most) in [("", Some(0), TEXT), ("--memory-limit 40MiB", Some(2), 40 << 20)] {
        let mut child = place.start(&format!("transient m.tra.gz --time 1 --device cpu --quiet {options}"));
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        let code_found = loop {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let held = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            peak = held.and_then(|held| held.trim().parse::<u64>().ok()).map_or(peak, |held| held << 10);
            if let Some(status) = child.try_wait().expect("a child") {
                break status.code();
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        // The program itself takes less than 48 MiB.
        assert!(code_found == code && peak < most + (48 << 20), "{options}: {code_found:?}, {peak} bytes");
    }
}

/// Names that would set a terminal's title or end an XML document.
#[test]
fn control_characters_reach_data_files_alone() {
    const EVIL: &str = "a\u{1b}]0;title\u{7}\u{9b}2J\u{202e}<&>";
    let place = Place::new();
    let model = format!("m{}.tra", &EVIL[..6]);
    place.put(&model, THREE);
    place.put("e.lab", format!("0=\"init\" 1=\"{EVIL}\"\n0: 0\n2: 1\n"));
    let run = |args: &[&str]| {
        let run = run(&place, args);
        let hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!run.stderr.contains(hidden), "{args:?}: {:?}", run.stderr);
        run
    };
    let solve = ["transient", &model, "--labels", "e.lab", "--times", "0:1:2", "--device", "cpu"];
    let drawn = run(&[&solve[..], &["--label", EVIL, "--plot", "p.svg"]].concat()).ends(0, &["\\u{1b}"]);
    // A pipe gets the label unchanged.
    assert!(drawn.stdout.contains(EVIL), "{:?}", drawn.stdout);
    let svg = place.text("p.svg");
    let drawn = roxmltree::Document::parse(&svg).expect("well-formed XML");
    let texts: Vec<&str> = drawn.descendants().filter_map(|node| node.text()).collect();
    let shown = "a\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}<&>";
    assert!(texts.iter().any(|text| text.contains(shown)), "{texts:?}");
    run(&[&solve[..], &["--label", "nope"]].concat()).ends(2, &["\\u{1b}]0;title"]);
    for args in [
        &["transient", "none\u{1b}[2J.tra", "--time", "1"][..],
        &["walk", "random-dominant:9,3,0.5,positive", "--component", "0", "-b", "none\u{1b}[2J.npy"],
        &["transient", &model, "--time", "1", "--rewards", "none\u{1b}[2J"],
        &["transient", &model, "--time", "1", "-o", "none\u{1b}[2J/x.csv"],
    ] {
        run(args).ends(2, &["none\\u{1b}[2J"]);
    }
}

#[test]
fn names_that_are_not_utf_8_are_named() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    let odd = OsStr::from_bytes(b"m\xff.tra");
    std::fs::copy(place.path().join("m.tra"), place.path().join(odd)).unwrap();
    let said = "argument 2, 'm\u{fffd}.tra', is not UTF-8; rename";
    run(&place, [OsStr::new("transient"), odd, OsStr::new("--time"), OsStr::new("1")]).ends(2, &[said]);
    // Options that take only files accept any name.
    let line = "transient m.tra --time 1 --device cpu -q --report";
    run(&place, line.split(' ').map(OsStr::new).chain([odd])).ends(0, &[]);
}
