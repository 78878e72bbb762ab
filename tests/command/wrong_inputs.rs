//! Hundreds of invalid inputs.
//!
//! Lines of `wrong/lines.txt`, files of `wrong/files.txt`, and mutations of valid files. Each ends
//! within seconds with exit code 2, and a message that names the error and a suggestion. Nothing is
//! printed on stdout, and no file is written. A mutation may be valid by chance; then the outputs
//! are complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Place, THREE, THREE_DRN, THREE_GENERATOR, TWO, three_umb};

/// Time limit for an error message, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Words of a suggestion or of an expectation.
///
/// Usage errors list the option's possible values or point to the help.
const REMEDIES: [&str; 32] = [
    "; ",
    "give ",
    "use ",
    "must ",
    "there are",
    "possible values",
    "--help",
    "is no ",
    "needs",
    "expected",
    "at most",
    "at least",
    "starts with",
    "is read",
    "are read",
    "lacks",
    "No such file",
    "write",
    "can be read",
    "has to",
    "as in ",
    "should be",
    "of the form",
    "states are",
    "truncated",
    "a finite number",
    "largest double",
    "smallest double",
    "declared",
    "did you mean",
    "the chain has",
    "are written",
];

/// A directory with valid files of every kind.
fn sound() -> Place {
    let place = Place::new();
    place.put("m.tra", TWO).put("m.lab", "0=\"init\" 1=\"up\"\n0: 0\n1: 1\n").put("m.srew", "2 1\n1 3\n");
    place.put("three.drn", THREE_DRN).put("three.umb", three_umb()).put("g.mtx", THREE_GENERATOR);
    place.put("three.tra", THREE).put("three.sta", "(a,b)\n0:(0,1)\n1:(1,0)\n2:(1,1)\n");
    place.put("half.txt", "0.5\n0.5\n").put("three.txt", "1\n2\n3\n").put("empty.txt", "");
    place.put("negative.txt", "-1\n2\n").put("two.txt", "1\n1\n");
    place.put("g.txt", "# links\n7 30\n30\t7\n5 7\n");
    place.put("t.csv", "dl,d,du,b\n0,4,1,1\n1,4,1,2\n1,4,0,3\n");
    for line in [
        "generate tandem:3 -o c.npz -q",
        "generate poisson2d:4,0.9 -o A.mtx --rhs b.npy -q",
        "generate random:9 -o t.npz -q",
        "generate random:9 -o t.mtx -q",
        "transient m.tra --time 1 -o p.npy -q --device cpu",
        "transient m.tra --time 1 -o p.csv -q --device cpu",
    ] {
        let run = place.kolmo(line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    place
}

/// Adds `--device cpu`, which needs no device search, to a line without a device.
fn on_cpu(line: &str) -> String {
    let computes = ["transient ", "walk ", "tridiagonal "].iter().any(|command| line.starts_with(command));
    if computes && !line.contains("--device") { format!("{line} --device cpu") } else { line.to_owned() }
}

/// Returns the defect of the error message that `kolmo` prints for a line, if any.
fn complaint(place: &Place, line: &str, words: &str) -> Option<String> {
    let (before, started) = (place.names(), Instant::now());
    let run = place.kolmo(&on_cpu(line));
    let took = started.elapsed();
    let wrong = |what: String| Some(format!("kolmo {line}\n    {what}\n    {}", run.stderr));
    if run.code != 2 {
        return wrong(format!("ends with {}", run.code));
    }
    let message = run.stderr.strip_prefix("error: ");
    match message {
        None => return wrong("does not begin with its error".to_owned()),
        Some(message) if !message.contains(words) => return wrong(format!("should say {words:?}")),
        Some(message) if !REMEDIES.iter().any(|remedy| message.contains(remedy)) => {
            return wrong("names no remedy".to_owned());
        }
        _ => {}
    }
    if !run.stdout.is_empty() {
        return wrong(format!("wrote {:?}", run.stdout));
    }
    if place.names() != before {
        return wrong(format!("left {:?}", place.names()));
    }
    (took > PATIENCE).then(|| format!("kolmo {line}\n    took {took:?}"))
}

/// Runs `one` for each case on two threads in separate directories, and fails with all complaints.
fn all<T: Sync>(cases: &[T], one: impl Fn(&Place, &T) -> Option<String> + Sync) {
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let place = sound();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    complaints.lock().expect("no test panics").extend(one(&place, case));
                }
            });
        }
    });
    let complaints = complaints.into_inner().expect("no test panics");
    assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), cases.len(), complaints.join("\n"));
}

/// Returns the fields of the lines of a table; lines that begin with # are comments.
fn table(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(" => ").collect()).collect()
}

#[test]
#[ignore = "slow: starts the program 300 times"]
fn invalid_lines_are_rejected_with_error_and_suggestion() {
    let cases = table(include_str!("wrong/lines.txt"));
    assert!(cases.len() >= 290, "{} lines", cases.len());

    all(&cases, |place, case| {
        let &[line, words] = &case[..] else { panic!("{case:?}") };
        complaint(place, line, words)
    });
}

#[test]
#[ignore = "slow: starts the program 100 times"]
fn invalid_files_are_rejected_with_error_and_suggestion() {
    let cases = table(include_str!("wrong/files.txt"));

    all(&cases, |place, case| {
        let &[name, contents, line, words] = &case[..] else { panic!("{case:?}") };
        place.put(name, contents.replace("\\n", "\n").replace("\\r", "\r").replace("\\0", "\0"));
        let complaint = complaint(place, line, words);
        std::fs::remove_file(place.path().join(name)).expect("the file is there");
        complaint
    });
}

/// A valid file and a line that reads it.
const MUTATED: [(&str, &str); 16] = [
    ("m.tra", "transient x.tra --time 1 -o o.csv"),
    ("m.lab", "transient m.tra --labels x.lab --time 1 --label up -o o.csv"),
    ("m.srew", "transient m.tra --rewards x.srew --time 1 -o o.csv"),
    ("three.sta", "transient x.tra --time 1 -o o.csv"),
    ("three.drn", "transient x.drn --time 1 -o o.csv"),
    ("three.umb", "transient x.umb --time 1 -o o.csv"),
    ("g.mtx", "transient x.mtx --time 1 -o o.csv"),
    ("c.npz", "transient x.npz --time 1 -o o.csv"),
    ("p.npy", "transient m.tra --initial x.npy --time 1 -o o.csv"),
    ("p.csv", "transient m.tra --initial x.csv --time 1 -o o.csv"),
    ("A.mtx", "walk x.mtx --component 0 --max-chains 4096 -o o.csv"),
    ("b.npy", "walk A.mtx -b x.npy --component 0 --max-chains 4096 -o o.csv"),
    ("g.txt", "walk x.txt --pagerank 0.85 -o o.csv"),
    ("t.npz", "tridiagonal x.npz -o o.csv"),
    ("t.csv", "tridiagonal x.csv -o o.csv"),
    ("t.mtx", "tridiagonal x.mtx -o o.csv"),
];

/// Mutations of each file.
const MUTATIONS: u64 = 14;

/// Returns a file with one change: of bytes in binary formats, of words in text.
fn mutated(bytes: &[u8], text: bool, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = bytes.to_vec();
    let at = random.usize(..bytes.len());
    if !text || random.u8(..4) == 0 {
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => drop(bytes.splice(at..at, [random.u8(..); 3])),
            _ => drop(bytes.splice(at..(at + 4).min(bytes.len()), [0xff; 4])),
        }
        return bytes;
    }
    let text = String::from_utf8(bytes).expect("the format is text");
    let mut words: Vec<&str> = text.split_inclusive([' ', '\n', ',']).collect();
    let at = random.usize(..words.len());
    const NEW: [&str; 10] =
        ["nan ", "-1 ", "1e999 ", "99999999999 ", "x ", "inf ", "\n", "0 ", "4294967295 ", "\u{fe}"];
    match random.u8(..4) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[at]),
        _ => words[at] = NEW[random.usize(..NEW.len())],
    }
    words.concat().into_bytes()
}

#[test]
#[ignore = "slow: starts the program 210 times"]
fn mutated_files_are_refused_or_read() {
    let cases: Vec<(usize, u64)> =
        (0..MUTATED.len()).flat_map(|k| (0..MUTATIONS).map(move |seed| (k, seed))).collect();
    let refused = Mutex::new(BTreeSet::new());

    all(&cases, |place, &(k, seed)| {
        let (name, line) = MUTATED[k];
        let extension = Path::new(name).extension().and_then(|e| e.to_str()).expect("an extension");
        let own = format!("x.{extension}");
        let text = !["umb", "npz", "npy"].contains(&extension);
        if name == "three.sta" {
            place.put("x.tra", THREE);
        }
        place.put(&own, mutated(&place.get(name), text, 1000 * k as u64 + seed));
        let before = place.names();
        let run = place.kolmo(&format!("{line} --device cpu"));
        let after = place.names();
        let said = format!("{name}, seed {seed}: {}\n{}", run.code, run.stderr);
        let wrong = match run.code {
            2 if after != before => Some(format!("{said}left {after:?}")),
            2 if !run.stderr.contains("error: ") => Some(format!("{said}without a message")),
            // A message names the file, or a number in it.
            2 => {
                refused.lock().expect("no test panics").insert((k, seed));
                None
            }
            0 | 1 if after.contains(&"o.csv".to_owned()) => None,
            _ => Some(said),
        };
        for name in after.iter().filter(|name| !before.contains(name) || name.starts_with("x.")) {
            std::fs::remove_file(place.path().join(name)).expect("the file is there");
        }
        wrong
    });
    let refused = refused.into_inner().expect("no test panics");
    // Otherwise the mutations change too little.
    assert!(2 * refused.len() > cases.len(), "{} of {} were refused", refused.len(), cases.len());
}
