//! Running the `kolmo` command in a directory of its own, and input files.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

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

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
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

    /// Returns the names of all files in the directory, including hidden ones.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("the directory is there");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// True if the process has opened an output here, under a temporary name or without one.
    #[cfg(unix)]
    pub(crate) fn is_written_by(&self, child: &Child) -> bool {
        let here = self.path().canonicalize().expect("the directory is there");
        let opened = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        let unnamed =
            |link: PathBuf| link.starts_with(&here) && link.to_string_lossy().ends_with(" (deleted)");
        self.names().iter().any(|name| name.ends_with(".partial"))
            || opened.filter_map(|entry| fs::read_link(entry.path()).ok()).any(unnamed)
    }

    /// Runs `kolmo` with the words of `line` in this directory.
    pub(crate) fn kolmo(&self, line: &str) -> Run {
        self.kolmo_with(line, &[])
    }

    /// Runs [`kolmo`](Self::kolmo) with environment variables.
    pub(crate) fn kolmo_with(&self, line: &str, environment: &[(&str, &str)]) -> Run {
        let output = assert_cmd::Command::new(binary())
            .args(line.split_whitespace())
            .envs(environment.iter().copied())
            .current_dir(self.path())
            .timeout(PATIENCE)
            .output()
            .expect("kolmo starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let run = Run {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!run.stderr.contains("panicked"), "kolmo {line}\n{}", run.stderr);
        run
    }

    /// Runs `kolmo transient` on the CPU, and asserts that it meets its bound.
    pub(crate) fn transient(&self, line: &str) -> Run {
        let run = self.kolmo(&format!("transient {line} --device cpu"));
        assert_eq!(run.code, 0, "kolmo transient {line}\n{}", run.stderr);
        run
    }

    /// Starts `kolmo` without waiting for it.
    pub(crate) fn start(&self, line: &str) -> Child {
        std::process::Command::new(binary())
            .args(line.split_whitespace())
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
    /// Returns the lines of stdout, split at commas.
    pub(crate) fn rows(&self) -> Vec<Vec<&str>> {
        self.stdout.lines().map(|line| line.split(',').collect()).collect()
    }

    /// Returns column `k` of stdout without the header.
    pub(crate) fn column(&self, k: usize) -> Vec<f64> {
        self.rows()[1..].iter().map(|row| number(row[k])).collect()
    }
}

/// Parses a number that kolmo printed.
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

/// [`THREE`] in the unified Markov binary format, a tar archive.
pub(crate) fn three_umb() -> Vec<u8> {
    let double = json!({"type": "double", "size": 64});
    let index = json!({
        "format-version": 0,
        "format-revision": 1,
        "transition-system": {
            "time": "stochastic", "#players": 0, "#states": 3, "#initial-states": 1, "#choices": 3,
            "#choice-actions": 0, "#branches": 4, "#branch-actions": 0, "#observations": 0,
            "branch-probability-type": double, "exit-rate-type": double,
        },
        "annotations": {},
    });
    let longs = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let doubles = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    archive(&[
        ("index.json", index.to_string().into_bytes()),
        ("state-is-initial.bin", longs(&[0b001])),
        ("state-to-choices.bin", longs(&[0, 1, 2, 3])),
        ("state-to-exit-rate.bin", doubles(&[3.0, 2.0, 1.0])),
        ("choice-to-branches.bin", longs(&[0, 1, 3, 4])),
        ("branch-to-target.bin", longs(&[1, 0, 2, 0])),
        ("branch-to-probability.bin", doubles(&[1.0, 0.75, 0.25, 1.0])),
    ])
}

/// Returns a tar archive of some files.
pub(crate) fn archive<N: AsRef<OsStr>>(files: &[(N, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name.as_ref(), &bytes[..]).expect("memory takes it");
    }
    builder.into_inner().expect("memory takes it")
}
