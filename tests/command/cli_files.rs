//! Outputs never overwrite inputs or other outputs, and killed runs leave no files.
#![cfg(unix)]

use crate::support::{Place, THREE, TWO};

/// A directory with a model, its other files, and further names (links) of the model.
fn place() -> Place {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\"\n0: 0\n2: 1\n");
    place
        .put("p.txt", "1\n0\n0\n")
        .put("a.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n");
    place.put("b.txt", "1\n").put("other.tra", TWO);
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("d")).unwrap();
    std::fs::hard_link(at("m.tra"), at("hard")).unwrap();
    std::os::unix::fs::symlink(at("m.tra"), at("soft")).unwrap();
    place
}

#[test]
fn no_output_is_an_input_or_another_output() {
    let place = place();
    let before: Vec<_> = place.names().into_iter().filter(|name| name != "d").collect();
    let contents: Vec<_> = before.iter().map(|name| place.get(name)).collect();
    for (line, both) in [
        ("transient m.tra --time 1 --report m.tra", "MODEL and --report"),
        ("transient m.tra --time 1 --report ./d/../m.tra", "MODEL and --report"),
        ("transient m.tra --time 1 --report hard", "MODEL and --report"),
        ("transient m.tra --time 1 --report soft", "MODEL and --report"),
        ("transient m.tra --time 1 --checkpoint m.tra", "MODEL and --checkpoint"),
        ("transient m.tra --time 1 --checkpoint hard --resume", "MODEL and --checkpoint"),
        ("transient m.tra --time 1 --report m.lab", "a file that is read with the model and --report"),
        ("transient other.tra --labels m.lab --time 1 --report m.lab", "--labels and --report"),
        ("transient m.tra --time 1 --initial p.txt -o p.txt", "--initial and -o"),
        ("transient m.tra --time 1 -o new.csv --report ./new.csv", "-o and --report"),
        (
            "transient m.tra --times 0:1:2 --plot x.svg -o p.csv --checkpoint d/../p.csv",
            "-o and --checkpoint",
        ),
        ("transient m.tra --times 0:1:2 --plot x.svg --report x.svg", "--report and --plot"),
        ("walk a.mtx --component 0 --report a.mtx", "MATRIX and --report"),
        ("walk a.mtx -b b.txt --component 0 --report b.txt", "-b and --report"),
        ("tridiagonal a.mtx --report a.mtx", "SYSTEM and --report"),
        ("tridiagonal a.mtx -b b.txt -o b.txt", "-b and -o"),
        ("bench spmv m.tra --repeat 1 --report m.tra", "what is measured and --report"),
        ("bench compare --from p.txt --html p.txt", "--from and --html"),
        ("generate poisson2d:3,0.9 -o x.mtx --rhs ./x.mtx", "-o and --rhs"),
    ] {
        let run = place.kolmo(line);
        assert_eq!(run.code, 2, "kolmo {line}\n{}", run.stderr);
        assert!(run.stderr.contains(both), "kolmo {line}\n{}", run.stderr);
    }
    let after: Vec<_> = place.names().into_iter().filter(|name| name != "d").collect();
    assert_eq!(after, before);
    assert_eq!(after.iter().map(|name| place.get(name)).collect::<Vec<_>>(), contents);
    // Devices may be outputs of several options.
    place.transient("m.tra --time 1 --report /dev/null --checkpoint /dev/null -q");
}

/// Relies on unnamed files of Linux (`O_TMPFILE`).
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let place = Place::new();
    place.put("p.npy", "old");
    let mut child = place.start("transient wlan:12,6 --time 1e6 --device cpu -o p.npy --report r.json");
    let started = std::time::Instant::now();
    while !place.is_written_by(&child) {
        assert!(
            started.elapsed() < std::time::Duration::from_secs(60) && child.try_wait().unwrap().is_none()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-KILL", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    child.wait().unwrap();

    assert_eq!(place.names(), ["p.npy"]);
    assert_eq!(place.text("p.npy"), "old");
}

/// Runs `kolmo` from a shell, which interprets redirections.
fn by_shell(place: &Place, line: &str) -> (i32, String) {
    let kolmo = crate::support::binary();
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("exec '{}' {line}", kolmo.display())])
        .current_dir(place.path())
        .output()
        .unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
}

/// A shell's `>&-` closes stdout; the runtime opens `/dev/null` instead.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_for_a_closed_stdout_is_an_error() {
    let place = place();
    place.put("p.csl", "P=? [ F<=1 \"busy\" ]\n");
    for line in [
        "transient m.tra --time 1 --top 1 -q",
        "transient m.tra --time 1 -q",
        "walk random-dominant:50,5,0.5,positive --component 1 -q",
        "tridiagonal random:100 -q",
        "check m.tra p.csl -q",
        "devices",
        "completions bash",
    ] {
        let (code, stderr) = by_shell(&place, &format!("{line} >&-"));
        assert_eq!(code, 2, "kolmo {line}: {stderr}");
        assert!(stderr.contains("stdout: ") && stderr.contains("is closed"), "kolmo {line}: {stderr}");
        // An explicit `/dev/null` is no error.
        assert_eq!(by_shell(&place, &format!("{line} >/dev/null")).0, 0, "kolmo {line}");
        assert_eq!(by_shell(&place, &format!("{line} 1<>/dev/null")).0, 0, "kolmo {line}");
    }
    let (code, stderr) = by_shell(&place, "transient m.tra --time 1 -o new.csv -q >&-");
    assert_eq!((code, &stderr[..]), (0, ""));
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
    let (code, stderr) = by_shell(&place, "transient m.tra --time 1 -o umask.csv -q");
    assert_eq!((code, &stderr[..]), (0, ""));
    std::fs::write(place.path().join("usual"), "").unwrap();
    assert_eq!(mode("umask.csv"), mode("usual"));
}

/// A tar archive of one member.
fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, name, bytes).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn packed_files_are_unpacked_within_the_memory_limit() {
    use crate::support::gzip;
    const LARGE: usize = 48 << 20;
    let place = Place::new();
    place.put("line.tra.gz", gzip(vec![b'1'; LARGE]));
    place.put("lines.tra.gz", gzip([b"2 1\n", &vec![b'\n'; LARGE][..]].concat()));
    place.put("line.drn.gz", gzip([b"@type: CTMC\n@parameters\n", &vec![b'x'; LARGE][..]].concat()));
    place.put("m.umb", gzip(tar("index.json", &vec![b' '; LARGE])));
    place.put("blank.lab.gz", gzip([b"0=\"init\"\n0: 0\n", &vec![b' '; LARGE][..]].concat()));
    place.put("m.tra", THREE);
    // Headers with the correct sizes.
    let header = |descr: &str, shape: &str| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
    };
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let many = LARGE / 8;
    for (name, bytes) in [
        ("format", [header("|S3", "()"), b"csr".to_vec()].concat()),
        ("shape", [header("<i8", "(2,)"), 1u64.to_le_bytes().repeat(2)].concat()),
        ("indptr", [header("<i8", "(2,)"), vec![0; 16]].concat()),
        ("indices", [header("<i4", &format!("({many},)")), vec![0; 4 * many]].concat()),
        ("data", [header("<f8", &format!("({many},)")), vec![0; LARGE]].concat()),
    ] {
        use std::io::Write;
        archive.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    place.put("m.npz", archive.finish().unwrap().into_inner());
    for line in
        ["line.tra.gz", "lines.tra.gz", "line.drn.gz", "m.umb", "m.npz", "m.tra --labels blank.lab.gz"]
    {
        let limited = place.kolmo(&format!("transient {line} --time 1 --device cpu --memory-limit 16MiB"));
        assert_eq!(limited.code, 2, "{line}: {}", limited.stderr);
        let said = limited.stderr.contains("16.0 MiB") && limited.stderr.contains("limit");
        assert!(said, "{line}: {}", limited.stderr);
        // With enough memory, other errors of the file are reported.
        let free = place.kolmo(&format!("transient {line} --time 1 --device cpu"));
        assert!(!free.stderr.contains("limit is") && !free.stderr.contains("unpacked"), "{}", free.stderr);
    }
    assert_eq!(place.kolmo("transient m.tra --labels blank.lab.gz --time 1 --device cpu -q").code, 0);
    let limited = place.kolmo("generate line.tra.gz -o x.tra --memory-limit 16MiB");
    assert_eq!(limited.code, 2, "{}", limited.stderr);
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
        let output = std::process::Command::new(crate::support::binary())
            .args(args)
            .current_dir(place.path())
            .output();
        let output = output.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!stderr.contains(hidden), "{args:?}: {stderr:?}");
        (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap(), stderr)
    };
    let solve = ["transient", &model, "--labels", "e.lab", "--times", "0:1:2", "--device", "cpu"];
    let (code, stdout, stderr) = run(&[&solve[..], &["--label", EVIL, "--plot", "p.svg"]].concat());
    assert_eq!(code, 0, "{stderr}");
    // A pipe gets the label unchanged.
    assert!(stdout.contains(EVIL), "{stdout:?}");
    assert!(stderr.contains("m\\u{1b}") || stderr.contains("ma\\u{1b}"), "{stderr}");
    let svg = place.text("p.svg");
    let drawn = roxmltree::Document::parse(&svg).expect("well-formed XML");
    let texts: Vec<&str> = drawn.descendants().filter_map(|node| node.text()).collect();
    assert!(
        texts.iter().any(|text| text.contains("a\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}<&>")),
        "{texts:?}"
    );
    let (code, _, stderr) = run(&[&solve[..], &["--label", "nope"]].concat());
    assert!(code == 2 && stderr.contains("\\u{1b}]0;title"), "{stderr}");
    for args in [
        &["transient", "none\u{1b}[2J.tra", "--time", "1"][..],
        &["walk", "random-dominant:9,3,0.5,positive", "--component", "0", "-b", "none\u{1b}[2J.npy"],
        &["transient", &model, "--time", "1", "--rewards", "none\u{1b}[2J"],
        &["transient", &model, "--time", "1", "-o", "none\u{1b}[2J/x.csv"],
    ] {
        let (code, _, stderr) = run(args);
        assert!(code == 2 && stderr.contains("none\\u{1b}[2J"), "{args:?}: {stderr}");
    }
}

#[test]
fn names_that_are_not_utf_8_are_named() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    let odd = std::ffi::OsStr::from_bytes(b"m\xff.tra");
    std::fs::copy(place.path().join("m.tra"), place.path().join(odd)).unwrap();
    let output = std::process::Command::new(crate::support::binary())
        .args([std::ffi::OsStr::new("transient"), odd])
        .args(["--time", "1"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("argument 2, 'm\u{fffd}.tra', is not UTF-8; rename"), "{stderr}");
    // Options that take only files accept any name.
    let output = std::process::Command::new(crate::support::binary())
        .args(["transient", "m.tra", "--time", "1", "--device", "cpu", "-q", "--report"])
        .arg(odd)
        .current_dir(place.path())
        .output()
        .unwrap();
    let both = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{both}");
}

#[test]
fn a_missing_file_is_named_with_its_argument() {
    let place = place();
    for (line, said) in [
        (
            "walk a.mtx --component 0 -b b.npyy",
            "b.npyy: No such file or directory (os error 2); -b names it: check",
        ),
        ("walk nofile.npz --component 0", "nofile.npz: there is no such file"),
        ("tridiagonal nofile.npz", "nofile.npz: No such file or directory (os error 2); SYSTEM names it"),
        (
            "transient m.tra --time 1 --labels no.lab",
            "no.lab: No such file or directory (os error 2); --labels names it",
        ),
    ] {
        let run = place.kolmo(line);
        assert!(run.code == 2 && run.stderr.contains(said), "kolmo {line}\n{}", run.stderr);
    }
}
