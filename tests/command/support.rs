//! Running the `kolmo` command in a directory of its own, and input files.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time after which a command counts as hanging.
const PATIENCE: Duration = Duration::from_secs(400);

/// Returns the path of the command that was built with this test program.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("CARGO_BIN_EXE_kolmo") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test program has a path");
    let directory = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    directory.join(format!("kolmo{}", std::env::consts::EXE_SUFFIX))
}

/// A directory that is removed with its contents.
pub(crate) struct Place(tempfile::TempDir);

/// Exit code and output of a command line.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) line: String,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Returns the words of a command line; quotation marks keep blanks, as in a shell.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(k, part)| if k % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

/// Adds the CPU as device to a line that computes and names none.
pub(crate) fn on_cpu(line: &str) -> String {
    let computes = ["transient", "check", "walk", "tridiagonal", "tune", "bench"];
    let computes = computes.contains(&line.split(' ').next().unwrap_or_default());
    let named = ["--device", "--from"].iter().any(|option| line.contains(option));
    if computes && !named { format!("{line} --device cpu") } else { line.to_owned() }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path().join(name), contents).expect("a test's file");
        self
    }

    /// Writes files whose texts follow lines `== NAME`.
    pub(crate) fn put_all(&self, files: &str) {
        for file in files.split("== ").skip(1) {
            let (name, text) = file.split_once('\n').expect("a name");
            self.put(name, text);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap_or_else(|e| panic!("{name} should be there: {e}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.get(name)).expect("text")
    }

    /// Reads a JSON file; a report is validated against the schema.
    pub(crate) fn json(&self, name: &str) -> Value {
        static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
        let value: Value = serde_json::from_slice(&self.get(name)).expect("JSON");
        if let Some(command) = value.get("command").and_then(Value::as_str) {
            let schema = SCHEMA.get_or_init(|| {
                let text = include_str!("../../docs/report.schema.json");
                let schema = serde_json::from_str(text).expect("the schema is JSON");
                jsonschema::validator_for(&schema).expect("a schema")
            });
            let wrong: Vec<String> = schema.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(wrong.is_empty(), "{name} of kolmo {command}: {wrong:#?}\n{value:#}");
        }
        value
    }

    /// Reads the objects of a file of JSON lines.
    pub(crate) fn json_lines(&self, name: &str) -> Vec<Value> {
        self.text(name)
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
            .collect()
    }

    /// Returns the names of all files in the directory, including hidden ones.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("the directory is there");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Waits until a run has opened its output here, which it does before all work.
    ///
    /// The output has a temporary name, or on Linux none.
    #[cfg(unix)]
    pub(crate) fn await_output(&self, child: &mut Child) {
        let (started, here) = (Instant::now(), self.path().canonicalize().expect("the directory is there"));
        let unnamed =
            |link: PathBuf| link.starts_with(&here) && link.to_string_lossy().ends_with(" (deleted)");
        loop {
            let opened = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
            if self.names().iter().any(|name| name.ends_with(".partial"))
                || opened.filter_map(|entry| fs::read_link(entry.path()).ok()).any(unnamed)
            {
                return;
            }
            assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
            assert!(started.elapsed() < Duration::from_secs(60), "no output: {:?}", self.names());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kolmo(&self, line: &str) -> Run {
        self.kolmo_with(line, &[])
    }

    /// Runs [`kolmo`](Self::kolmo) with environment variables.
    pub(crate) fn kolmo_with(&self, line: &str, environment: &[(&str, &str)]) -> Run {
        let output = assert_cmd::Command::new(binary())
            .args(words(line))
            .envs(environment.iter().copied())
            .current_dir(self.path())
            .timeout(PATIENCE)
            .output()
            .expect("kolmo starts");
        Run::of(line, output)
    }

    /// Runs `kolmo` on the CPU, and asserts that it succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> Run {
        self.kolmo(&on_cpu(line)).ends(0, &[])
    }

    /// Runs [`ok`](Self::ok) for `kolmo transient`.
    #[track_caller]
    pub(crate) fn transient(&self, line: &str) -> Run {
        self.ok(&format!("transient {line}"))
    }

    /// Asserts that `kolmo` rejects the line with these parts of a message, and writes no file.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, parts: &[&str]) {
        let before = self.names();
        let run = self.kolmo(&on_cpu(line)).ends(2, parts);
        assert!(run.stdout.is_empty() && run.stderr.matches("error: ").count() == 1, "{run:?}");
        assert_eq!(self.names(), before, "kolmo {line}");
    }

    /// Starts `kolmo` without waiting for it.
    pub(crate) fn start(&self, line: &str) -> Child {
        std::process::Command::new(binary())
            .args(words(line))
            .env("KOLMO_CONFIG_DIR", self.path().join("settings"))
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kolmo starts")
    }
}

impl Run {
    /// Returns the result of a process, which must not have panicked.
    pub(crate) fn of(line: &str, output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(!stderr.contains("panicked"), "kolmo {line}\n{stderr}");
        Self { line: line.to_owned(), code: output.status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Asserts the exit code, and that stderr contains all parts.
    #[track_caller]
    pub(crate) fn ends(self, code: i32, parts: &[&str]) -> Self {
        let Self { line, stderr, .. } = &self;
        assert_eq!(self.code, code, "kolmo {line}\n{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "kolmo {line}\nshould say {part:?}:\n{stderr}");
        }
        self
    }

    /// Returns the lines of stdout, split at commas.
    pub(crate) fn rows(&self) -> Vec<Vec<&str>> {
        self.stdout.lines().map(|line| line.split(',').collect()).collect()
    }

    /// Returns column `k` of stdout without the header.
    pub(crate) fn column(&self, k: usize) -> Vec<f64> {
        self.rows()[1..].iter().map(|row| number(row[k])).collect()
    }
}

/// Runs `kolmo` from a shell, after the shell command `before`.
#[cfg(unix)]
pub(crate) fn shell(place: &Place, before: &str, line: &str, stdout: Stdio) -> Run {
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("{before}; exec \"$0\" {line}")])
        .arg(binary())
        .envs([("KOLMO_CONFIG_DIR", "settings"), ("RUST_BACKTRACE", "0")])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(stdout)
        .output()
        .expect("a shell starts");
    Run::of(line, output)
}

/// Sends a signal to processes; true if all were there.
#[cfg(unix)]
pub(crate) fn signal(name: &str, processes: &[u32]) -> bool {
    let ids = processes.iter().map(u32::to_string);
    std::process::Command::new("kill").arg(name).args(ids).status().is_ok_and(|status| status.success())
}

/// Asserts that a JSON object has these keys, with values that are not null.
#[track_caller]
pub(crate) fn has(value: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(!value[key].is_null(), "no '{key}' in {value:#}");
    }
}

/// Keys of every line that a benchmark reports.
pub(crate) const RECORD: &str = "bench case device backend precision n nnz format lanes bytes bytes_moved seconds \
                                 gb_per_s copy_gb_per_s relative_error repetitions";

/// Returns a number of a JSON object.
#[track_caller]
pub(crate) fn float(value: &Value, key: &str) -> f64 {
    key.split('.')
        .fold(value, |value, key| &value[key])
        .as_f64()
        .unwrap_or_else(|| panic!("no number '{key}' in {value:#}"))
}

/// Returns the sum of the parts of a report's bound.
pub(crate) fn bound(report: &Value) -> f64 {
    report["bound"].as_object().expect("a bound").values().filter_map(Value::as_f64).sum()
}

/// Returns the fields of the lines of a table; lines that begin with # are comments.
pub(crate) fn table(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(" => ").collect()).collect()
}

/// Returns a section of a text of tables, which follows the line `== name`.
pub(crate) fn section<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let mut sections = text.split("\n== ");
    let rows =
        table(sections.find_map(|text| text.strip_prefix(name)?.strip_prefix('\n')).expect("a section"));
    assert!(!rows.is_empty(), "the section '{name}' has no row");
    rows
}

pub(crate) fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is a number"))
}

/// Returns shape and values of a `.npy` file of doubles.
pub(crate) fn npy(bytes: &[u8]) -> (String, Vec<f64>) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..end]).expect("ASCII");
    assert!(header.contains("'descr': '<f8'") && header.contains("'fortran_order': False"), "{header}");
    let (_, shape) = header.split_once("'shape': (").expect("a shape");
    let (shape, _) = shape.split_once(')').expect("a closed shape");
    let (values, rest) = bytes[end..].as_chunks();
    assert!(rest.is_empty(), "{} bytes behind the last number", rest.len());
    (shape.to_owned(), values.iter().map(|v| f64::from_le_bytes(*v)).collect())
}

/// Returns a `.npy` file with data of type `descr` in NumPy's notation.
pub(crate) fn npy_file(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ") + comma;
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    header += &" ".repeat(64 - (10 + header.len() + 1) % 64);
    header.push('\n');
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Returns a `.npy` file of doubles.
pub(crate) fn array(shape: &[usize], values: &[f64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy_file("<f8", false, shape, &bytes)
}

/// Returns a `.npz` file as of `numpy.savez`, or of `numpy.savez_compressed`.
pub(crate) fn npz(compressed: bool, members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let method = if compressed { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(format!("{name}.npy"), options).expect("a member");
        archive.write_all(bytes).expect("memory takes it");
    }
    archive.finish().expect("memory takes it").into_inner()
}

pub(crate) fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes.as_ref()).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// Two states, 0 → 1 at rate 3 and back at rate 2.
pub(crate) const TWO: &str = "2 2\n0 1 3\n1 0 2\n";

/// Returns π(t) of [`TWO`] from state 0: π₁ = 3/5 (1 − e^{−5t}).
pub(crate) fn two(t: f64) -> [f64; 2] {
    let one = -0.6 * (-5.0 * t).exp_m1();
    [1.0 - one, one]
}

/// Three states: 0 → 1 at 3, 1 → 0 at 1.5, 1 → 2 at 0.5, 2 → 0 at 1.
///
/// All rates and branching probabilities are binary fractions, so every format represents the chain
/// exactly.
pub(crate) const THREE: &str = "3 4\n0 1 3\n1 0 1.5\n1 2 0.5\n2 0 1\n";

/// [`THREE`] in Storm's format, with a label and a reward.
pub(crate) const THREE_DRN: &str = "// three states\n@type: CTMC\n@parameters\n\n@reward_models\ncost\n\
    @nr_states\n3\n@model\nstate 0 !3 [0] init\n\taction 0 [0]\n\t\t1 : 3\nstate 1 !2 [1] busy\n\taction 0 [0]\n\
    \t\t0 : 1.5\n\t\t2 : 0.5\nstate 2 !1 [4] busy\n\taction 0 [0]\n\t\t0 : 1\n";

/// [`THREE`] as the generator, including its diagonal.
pub(crate) const THREE_GENERATOR: &str = "%%MatrixMarket matrix coordinate real general\n3 3 7\n1 1 -3\n1 2 3\n\
    2 1 1.5\n2 2 -2\n2 3 0.5\n3 1 1\n3 3 -1\n";

/// A queue of at most N customers; it is full in its last state.
pub(crate) const QUEUE: &str = include_str!("inputs/queue.sm");

/// The server of docs/prism.md.
pub(crate) const SERVER: &str = include_str!("inputs/server.prism");

/// A state that decays to one of two absorbing states.
pub(crate) const DECAY: &str = include_str!("inputs/decay.sm");

/// A machine that fails at rate `fail`, and is repaired at rate `repair`.
pub(crate) const MACHINE: &str = include_str!("inputs/machine.sm");

/// A switch: `up` and `down` are rates, `k` is in a range.
pub(crate) const SWITCH: &str = include_str!("inputs/switch.sm");

/// A machine that fails at the rate λ, and two modules that leave their states together at λ³.
pub(crate) const FAILING: &str = include_str!("inputs/failing.sm");

/// An infinite-server queue with arrival rate 200 and service rate 1.
///
/// Started empty, the number of customers is Poisson distributed at every time.
pub(crate) const POOL: &str = include_str!("inputs/pool.sm");

/// A server with a queue of at most two jobs, from `prism server.sm -exportmodel server.all`.
pub(crate) fn server(place: &Place) {
    place.put_all(include_str!("inputs/server.txt"));
}

/// 4 x + y = 6, x + 3 y = 7, 0.5 z = 2.5: the solution is (1, 2, 5).
pub(crate) const SYSTEM: &str =
    "%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 4\n1 2 1\n2 1 1\n2 2 3\n3 3 0.5\n";

/// Four rows with the unknowns 1, 2, 3, 4: b = A·x in integers.
pub(crate) const FOUR: &str = "dl,d,du,b\n,4,1,6\n1,5,2,17\n-1,6,1,20\n2,8,,38\n";

/// Five rows with the unknowns 1 … 5.
pub(crate) const FIVE: &str =
    "dl2,dl,d,du,du2,b\n,,10,3,1,19\n,2,10,3,1,35\n1,2,10,3,1,52\n1,2,10,3,,63\n1,2,10,,,61\n";
