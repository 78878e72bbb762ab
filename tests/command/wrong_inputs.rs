//! Hundreds of invalid inputs.
//!
//! Lines of `wrong/lines.txt`, files of `wrong/files.txt`, and options with an invalid value. Each
//! ends within seconds with exit code 2, and a message that names the error and a suggestion.
//! Nothing is printed on stdout, and no file is written. Mutations of valid files are in
//! `tests/fuzz/` and `tests/library/fuzz.rs`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    DECAY, FAILING, FIVE, FOUR, MACHINE, POOL, Place, QUEUE, SWITCH, SYSTEM, THREE, THREE_DRN,
    THREE_GENERATOR, TWO, array, gzip, on_cpu, server, table,
};

/// Time limit for an error message, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Words of a suggestion or of an expectation, between bars.
///
/// Usage errors list the option's possible values or point to the help.
const REMEDIES: &str = "; |give |use |must |there are|possible values|--help|is no |need|expected|at most|\
    at least|starts with|is read|are read|lacks|No such file|write|can be read|has to|as in |should be|\
    of the form|states are|truncated|a finite number|largest double|smallest double|declared|did you mean|\
    the chain has|are written";

/// Words of defects that have no remedy but another file or property, between bars.
const DEFECTS: &str = "is missing|not a complete gzip stream|ends inside the .npy header|is not known|\
    which is not supported|only tridiagonal systems can be cyclic|line names 4 columns";

/// A directory with valid files of every kind.
fn sound() -> Place {
    let place = Place::new();
    place.put_all(include_str!("inputs/sound.txt"));
    place.put("m.tra", TWO).put("three.tra", THREE).put("three.drn", THREE_DRN);
    place.put("g.mtx", THREE_GENERATOR).put("four.csv", FOUR).put("five.csv", FIVE);
    place.put("three.npy", array(&[3], &[1.0; 3])).put("four.npy", array(&[4], &[1.0; 4]));
    place.put("pairs.npy", array(&[4, 2], &[1.0; 8])).put("a.mtx", SYSTEM);
    place.put("queue.sm", QUEUE).put("pool.sm", POOL).put("decay.sm", DECAY);
    place.put("machine.sm", MACHINE).put("switch.sm", SWITCH).put("failing.sm", FAILING);
    place.put("several.sm", DECAY.replace("endmodule", "endmodule\ninit s<2 endinit"));
    server(&place);
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("directory.csv")).expect("a folder");
    std::fs::hard_link(at("m.tra"), at("hard")).expect("a link");
    #[cfg(unix)]
    std::os::unix::fs::symlink(at("m.tra"), at("soft")).expect("a link");
    for line in [
        "generate tandem:3 -o c.npz -q",
        "generate poisson2d:4,0.9 -o A.mtx --rhs b.npy -q",
        "generate random:9 -o t.npz -q",
        "generate random:9 -o t.mtx -q",
        "transient m.tra --time 1 -o p.npy -q",
        "transient m.tra --time 1,2 -o times.npy -q",
        "transient m.tra --time 1 -o p.csv -q",
        "transient tandem:5 --time 1 --top 1 -q --checkpoint c",
    ] {
        place.ok(line);
    }
    place
}

/// Runs `kolmo` with an invalid command line; returns the defect of its error message, if any.
fn complaint(place: &Place, line: &str, parts: &[&str]) -> Option<String> {
    let (before, started) = (place.names(), Instant::now());
    let reports = ["transient ", "walk ", "tridiagonal ", "check "].iter().any(|name| line.starts_with(name));
    let report = if reports && !line.contains("--report") { " --report out.json" } else { "" };
    let run = place.kolmo(&(on_cpu(line) + report));
    let took = started.elapsed();
    let message = run.stderr.strip_prefix("error: ");
    let unsaid = parts.iter().find(|part| !message.is_some_and(|message| message.contains(*part)));
    let remedy = REMEDIES.split('|').chain(DEFECTS.split('|')).any(|words| run.stderr.contains(words));
    let wrong = match message {
        _ if run.code != 2 => format!("ends with {}", run.code),
        None => "does not begin with its error".to_owned(),
        Some(_) if unsaid.is_some() => format!("should say {unsaid:?}"),
        Some(_) if !remedy => "names no remedy".to_owned(),
        _ if !run.stdout.is_empty() => format!("wrote {:?}", run.stdout),
        _ if place.names() != before => format!("left {:?}", place.names()),
        _ if took > PATIENCE => format!("took {took:?}"),
        _ => return None,
    };
    Some(format!("kolmo {line}\n    {wrong}\n    {}", run.stderr))
}

/// Returns the [`complaint`] about a command line, run with a temporary file `name`.
fn complaint_of_file(
    place: &Place,
    name: &str,
    contents: &[u8],
    line: &str,
    parts: &[&str],
) -> Option<String> {
    let complaint = complaint(place.put(name, contents), line, parts);
    std::fs::remove_file(place.path().join(name)).expect("the file is there");
    complaint
}

/// Runs `one` for each case on two threads in separate directories, and fails with all complaints.
fn all<T: Sync>(cases: &[T], one: impl Fn(&Place, &T) -> Option<String> + Sync) {
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let place = sound();
                let contents = |name: String| (std::fs::read(place.path().join(&name)).ok(), name);
                let files = || place.names().into_iter().map(contents).collect::<Vec<_>>();
                let before = files();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    complaints.lock().expect("no test panics").extend(one(&place, case));
                }
                let changed = files().into_iter().filter(|file| !before.contains(file));
                let changed = changed.map(|(_, name)| format!("a refusal changed {name}"));
                complaints.lock().expect("no test panics").extend(changed);
            });
        }
    });
    let complaints = complaints.into_inner().expect("no test panics");
    assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), cases.len(), complaints.join("\n"));
}

#[test]
fn invalid_lines_are_rejected_with_error_and_suggestion() {
    let cases = table(include_str!("wrong/lines.txt"));
    assert!(cases.len() >= 690, "{} lines", cases.len());

    all(&cases, |place, case| complaint(place, case[0], &case[1..]));
}

#[test]
fn invalid_files_are_rejected_with_error_and_suggestion() {
    let cases = table(include_str!("wrong/files.txt"));
    let escapes = [("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\0", "\0")];

    all(&cases, |place, case| {
        let [name, contents, line, parts @ ..] = &case[..] else { panic!("{case:?}") };
        let text = escapes.iter().fold((*contents).to_owned(), |text, (from, to)| text.replace(from, to));
        complaint_of_file(place, name, text.as_bytes(), line, parts)
    });
}

/// Empty, binary and truncated files in every format.
#[test]
fn damaged_files_are_rejected_by_name() {
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut cases: Vec<(&str, Vec<u8>, &[&str])> = Vec::new();
    for name in ["x.tra", "x.drn", "x.mtx", "x.npz", "x.tra.gz", "x.mtx.gz"] {
        for bytes in [&b""[..], b"\n", &noise, &[0; 2048], b"\x1f\x8b\x08\x00garbage"] {
            cases.push((name, bytes.to_vec(), &[]));
        }
    }
    cases.push(("x.mtx", b"PK\x03\x04rest".into(), &["ZIP", ".npz"]));
    cases.push(("x.tra", b"\x93NUMPY\x01\0".into(), &["NumPy", ".npy"]));
    let place = sound();
    for (name, whole) in [("x.npz", place.get("c.npz")), ("x.npy", place.get("p.npy"))] {
        for end in [10, whole.len() / 4, whole.len() / 2, whole.len() - 30] {
            cases.push((name, whole[..end].to_vec(), &[]));
        }
    }
    for (name, text) in [("x.tra.gz", THREE), ("x.mtx.gz", THREE_GENERATOR), ("x.drn.gz", THREE_DRN)] {
        let packed = gzip(text);
        cases.push((name, packed[..packed.len() - 12].to_vec(), &["truncated"]));
    }
    let twice = gzip("2 3\n0 1 3\n1 0 2\n0 1 1\n");
    cases.push(("x.tra.gz", twice, &["x.tra.gz:4", "line 2", "listed twice", "0 -> 1", "first in line"]));

    all(&cases, |place, (name, bytes, parts)| {
        let model = if *name == "x.npy" { "m.tra --initial x.npy" } else { name };
        let line = format!("transient {model} --time 1 -o out.npy");
        complaint_of_file(place, name, bytes, &line, &[&[*name], *parts].concat())
    });
}

/// Returns the options of a command that take a value, as its help lists them.
fn options(command: &str) -> Vec<String> {
    let help = Place::new().kolmo(&format!("{command} --help")).ends(0, &[]);
    let option = |line: &str| {
        let line = line.trim_start();
        let from = &line[line.starts_with('-').then(|| line.find("--")).flatten()?..];
        let (name, value) = from.split_once(' ')?;
        value.starts_with('<').then(|| name.to_owned())
    };
    help.stdout.lines().filter_map(option).collect()
}

#[test]
fn every_option_rejects_an_invalid_value_by_name() {
    let mut cases = Vec::new();
    for case in table(include_str!("wrong/options.txt")) {
        let (command, needed) = (case[0], case.get(1).copied().unwrap_or_default());
        let options = options(command);
        assert!(!options.is_empty(), "{command} has options");
        for option in options {
            // A required option is given only once.
            let mut words: Vec<&str> = needed.split_whitespace().collect();
            let short = if option == "--output" { "-o" } else { &option[..] };
            if let Some(at) = words.iter().position(|word| *word == option || *word == short) {
                words.drain(at..at + 2);
            }
            if ["--times", "--steps", "--within"].contains(&&option[..]) {
                words.truncate(1);
            }
            let (also, behind) = match &option[..] {
                "--checkpoint-every" => (" --checkpoint c", ""),
                "--within" => (" --until init up", ""),
                "--until" => ("", " up"),
                _ => ("", ""),
            };
            cases.push(format!("{command} {}{also} {option} no/@{behind}", words.join(" ")));
        }
    }
    println!("{} options", cases.len());
    all(&cases, |place, line| complaint(place, line, &["no/@"]));
}
