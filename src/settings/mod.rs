//! Saved measurements of devices: one file per device, in the user's settings folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::Precision;
use crate::lane::Device;
use crate::tridiagonal::lane_count::{LaneTime, SizeTimes, choice};
use crate::{Error, Result};

/// Version of the file's layout; files of other versions are not read.
pub const SCHEMA: u32 = 3;

/// Largest number of lanes of a device, also on the command line.
const MOST_LANES: usize = 64;

/// Environment variable that names the folder.
pub const VARIABLE: &str = "KOLMO_CONFIG_DIR";

/// Device, backend and precision that measurements apply to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Backend: `cpu`, `cuda`, `vulkan`, ….
    pub backend: String,
    /// Name of the device.
    pub device: String,
    /// Precision: `f64` or `f32`.
    pub precision: String,
    /// Name and version of the driver, stored outside of the key in a file.
    #[serde(skip)]
    pub driver: String,
}

impl Key {
    /// Creates the key of a device and a precision.
    pub fn new(device: &Device, precision: Precision) -> Self {
        Self {
            backend: device.backend.to_owned(),
            device: device.name.clone(),
            precision: precision.to_string(),
            driver: device.driver.clone(),
        }
    }

    /// Returns the name of the file, made of letters and digits of the key.
    fn file(&self) -> String {
        let all = format!("lanes {} {} {}", self.backend, self.device, self.precision).to_lowercase();
        let words: Vec<&str> =
            all.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        words.join("-") + ".json"
    }
}

/// Measurements of a device. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Version of the layout: [`SCHEMA`].
    pub schema: u32,
    /// Version of the crate that measured.
    pub version: String,
    /// Time of the measurement, in seconds since 1970-01-01 UTC.
    pub measured_at: u64,
    /// Key that the measurements apply to.
    pub key: Key,
    /// Driver, as its backend reports it.
    pub driver: String,
    /// Number of solutions measured for each size and lane count.
    pub repetitions: usize,
    /// Milliseconds to open one lane.
    pub lane_opening: f64,
    /// Milliseconds to open a lane before its driver was loaded; `None` if not measured.
    #[serde(default)]
    pub start: Option<f64>,
    /// Cost τ in milliseconds per solution and further lane, see [`SizeTimes::lane_cost`].
    pub lane_cost: f64,
    /// Measured times, by ascending size of the system.
    pub sizes: Vec<SizeTimes>,
    /// Bandwidth of y = a + b c in bytes per second, reads and writes, by which chains are divided
    /// among devices.
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    /// Keys of the file that are unknown to this version.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

impl Tuned {
    /// Returns the smallest lane count with a nearly minimal predicted time for `n` rows.
    pub fn lanes(&self, n: usize) -> usize {
        choice::lanes(&self.sizes, n)
    }
}

/// Result of a search in the folder for a key.
#[derive(Debug)]
pub enum StoredTuning {
    /// Measurements of this device.
    Tuned(Box<Tuned>),
    /// No measurements yet.
    Absent,
    /// A file that cannot be used, and the reason.
    Unusable(String),
}

/// Returns the folder named by [`VARIABLE`], or else the user's local settings folder.
///
/// `None` if there is no such folder.
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(folder) => Some(PathBuf::from(folder)),
        // Measurements apply to this machine, not to the user on any machine.
        None => Some(directories::ProjectDirs::from("", "", "kolmo")?.config_local_dir().to_path_buf()),
    }
}

/// Checks that files can be written to `folder`, which is created if necessary.
///
/// Call this before minutes are spent on measurements.
pub fn prepare(folder: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(folder).and_then(|()| tempfile::NamedTempFile::new_in(folder));
    made.map(drop).map_err(Error::io(folder))
}

/// Checks that the measurements of `key` can replace an existing file.
pub fn replaceable(folder: &Path, key: &Key) -> Result<()> {
    let path = path(folder, key);
    match std::fs::symlink_metadata(&path) {
        Ok(there) if there.is_dir() => Err(Error::File {
            path,
            reason: "is a directory: expected a file of measurements; move it away".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns the path of the measurements of `key`.
pub fn path(folder: &Path, key: &Key) -> PathBuf {
    folder.join(key.file())
}

/// Writes the file of `tuned`, replacing an older one, and returns its path.
pub fn save(folder: &Path, tuned: &Tuned) -> Result<PathBuf> {
    let path = path(folder, &tuned.key);
    prepare(folder)?;
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, tuned)?;
        file.write_all(b"\n")?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(Error::io(&path))?;
    Ok(path)
}

/// Reads the file of `key`.
pub fn load(folder: &Path, key: &Key) -> StoredTuning {
    let path = path(folder, key);
    let unusable = |why: String| StoredTuning::Unusable(format!("{}: {why}", path.display()));
    let text = match read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return StoredTuning::Absent,
        Err(e) => return unusable(e.to_string()),
    };
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
        version: String,
    }
    match serde_json::from_slice(&text) {
        Ok(Head { schema: SCHEMA, version }) if version == env!("CARGO_PKG_VERSION") => {}
        Ok(Head { schema, version }) => {
            return unusable(format!(
                "layout {schema} of kolmo {version} is not supported; this is kolmo {}, with \
                 layout {SCHEMA}",
                env!("CARGO_PKG_VERSION")
            ));
        }
        Err(e) => return unusable(e.to_string()),
    }
    match parse(&text) {
        Ok(tuned) if (Key { driver: key.driver.clone(), ..tuned.key.clone() }) != *key => {
            let Key { backend, device, precision, .. } = &tuned.key;
            unusable(format!("measured on {device} ({backend}, {precision})"))
        }
        Ok(tuned) if tuned.driver != key.driver => unusable(format!(
            "measured with the driver '{}', but the current one is '{}'",
            tuned.driver, key.driver
        )),
        Ok(tuned) => match unsound(&tuned) {
            Some(why) => unusable(why.to_owned()),
            None => StoredTuning::Tuned(Box::new(tuned)),
        },
        Err(e) => unusable(e.to_string()),
    }
}

/// Reads a regular file; other files are an error, because a pipe may block forever.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a file; move it away"));
    }
    std::fs::read(path)
}

/// Parses a file and lists unknown keys.
fn parse(text: &[u8]) -> serde_json::Result<Tuned> {
    let mut unknown = Vec::new();
    let mut input = serde_json::Deserializer::from_slice(text);
    // An optional part adds a component `?` to such a path.
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string().replace(".?", ""));
    let mut tuned: Tuned = serde_ignored::deserialize(&mut input, &mut note)?;
    input.end()?;
    tuned.key.driver.clone_from(&tuned.driver);
    tuned.unknown = unknown;
    Ok(tuned)
}

/// Reads all files of measurements in the folder, or the reasons why they are unusable.
/// Fails if the folder exists and cannot be read.
pub fn all(folder: &Path) -> Result<Vec<(PathBuf, std::result::Result<Tuned, String>)>> {
    let failed = Error::io(folder);
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("lanes-") && name.ends_with(".json") {
            let read = read(&path).map_err(|e| e.to_string());
            let tuned = read.and_then(|text| parse(&text).map_err(|e| e.to_string()));
            let tuned = tuned.and_then(|tuned| unsound(&tuned).map_or(Ok(tuned), |why| Err(why.to_owned())));
            files.push((path, tuned));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

/// Returns a message about the first implausible or missing number that predictions use.
fn unsound(tuned: &Tuned) -> Option<&'static str> {
    let timed = |size: &SizeTimes| {
        size.n > 0
            && size.runs.first().is_some_and(|run| run.lanes == 1)
            && size.runs.is_sorted_by(|a, b| a.lanes < b.lanes)
    };
    let sizes = &tuned.sizes;
    let runs = || sizes.iter().flat_map(|size| &size.runs);
    let started = tuned.start.is_none_or(|start| (0.0..1e6).contains(&start));
    let ascend = !sizes.is_empty() && sizes.is_sorted_by(|a, b| a.n < b.n) && sizes.iter().all(timed);
    let taken = |run: &LaneTime| (1e-9..=1e15).contains(&run.median) && (0.0..=1e15).contains(&run.error);
    let checks = [
        (started, "the start time of a device is out of range"),
        (tuned.bytes_per_second.is_none_or(|speed| (1.0..=1e18).contains(&speed)), "a speed is out of range"),
        (runs().all(|run| run.lanes <= MOST_LANES), "a number of lanes is out of range"),
        (ascend, "sizes do not ascend, or lack one lane"),
        (runs().all(taken), "the time of a run is out of range"),
    ];
    checks.into_iter().find(|(sound, _)| !sound).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tridiagonal::lane_count::{LANE_COUNTS, sizes};

    fn tuned() -> Tuned {
        let size = |n: usize| SizeTimes {
            n,
            runs: LANE_COUNTS
                .map(|s| {
                    let time = 0.1 + n as f64 * 1e-6 / s as f64 + 1e-3 * s as f64;
                    LaneTime::of(s, [1.0, 1.1, 1.3].map(|f| f * time).to_vec())
                })
                .to_vec(),
        };
        let sizes: Vec<SizeTimes> = sizes().into_iter().map(size).collect();
        Tuned {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            measured_at: 1_700_000_000,
            key: Key {
                backend: "cuda".into(),
                device: "Big GPU (2)".into(),
                precision: "f64".into(),
                driver: "1.2".into(),
            },
            driver: "1.2".into(),
            bytes_per_second: Some(1e12),
            unknown: Vec::new(),
            repetitions: 3,
            lane_opening: 0.1,
            start: Some(200.0),
            lane_cost: sizes[0].lane_cost(),
            sizes,
        }
    }

    fn why(found: StoredTuning) -> String {
        match found {
            StoredTuning::Unusable(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stored_measurement_is_found_by_its_key_only() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        let tuned = tuned();

        let path = save(&folder, &tuned).unwrap();

        assert_eq!(path.file_name().unwrap(), "lanes-cuda-big-gpu-2-f64.json");
        let StoredTuning::Tuned(found) = load(&folder, &tuned.key) else { panic!("not found") };
        assert_eq!(found.key, tuned.key);
        for n in [1, 1000, 30_000, 2_000_000, 1_000_000_000] {
            assert_eq!(found.lanes(n), tuned.lanes(n), "n = {n}");
        }
        let other = Key { precision: "f32".into(), ..tuned.key.clone() };
        assert!(matches!(load(&folder, &other), StoredTuning::Absent));
        // Another device with equal letters and digits.
        let other = Key { device: "Big (GPU) 2".into(), ..tuned.key.clone() };
        assert!(why(load(&folder, &other)).contains("measured on Big GPU (2)"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn errors_of_unusable_settings_give_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let tuned = tuned();
        let path = save(place.path(), &tuned).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let found = |text: &str| {
            std::fs::write(&path, text).unwrap();
            why(load(place.path(), &tuned.key))
        };

        for (text, reason) in [
            (text.trim_end_matches(['}', '\n']).to_owned(), "EOF"),
            (text.replacen("\"schema\": 3", "\"schema\": 4", 1), "layout 4"),
            (text.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1), "kolmo 0.0.1"),
            (text.replacen("\"n\": 1000,", "\"n\": 0,", 1), "ascend"),
            ("{}".to_owned(), "schema"),
            ("[]".to_owned(), "length 0"),
            ("\0".repeat(9), "expected value"),
            (text.clone() + "{", "trailing"),
            (text.replacen("1000000000000.0", "-1.0", 1), "speed"),
            (text.replacen("1000000000000.0", "1e300", 1), "speed"),
            (text.replace("\"lanes\": 2,", "\"lanes\": 4000000000,"), "a number of lanes is out of range"),
        ] {
            let why = found(&text);
            assert!(why.contains(reason), "{reason}: {why}");
        }
        type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
        let changes: [(Change<'_>, &str); 3] = [
            (&|f| f["sizes"] = serde_json::json!([]), "ascend"),
            (&|f| f["sizes"][2]["runs"][1]["median"] = 0.0.into(), "the time of a run"),
            (&|f| f["sizes"][0]["runs"][0]["error"] = (-1.0).into(), "the time of a run"),
        ];
        for (change, reason) in changes {
            let mut file = serde_json::from_str(&text).unwrap();
            change(&mut file);
            let why = found(&file.to_string());
            assert!(why.contains(reason), "{reason}: {why}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(why(load(place.path(), &tuned.key)).contains("not a file; move it away"));
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, &text).unwrap();
        let newer = Key { driver: "1.3".into(), ..tuned.key.clone() };
        assert!(why(load(place.path(), &newer)).contains("the driver '1.2', but the current one is '1.3'"));
        assert!(matches!(load(&place.path().join("none"), &tuned.key), StoredTuning::Absent));
    }

    #[test]
    fn keys_that_are_unknown_are_listed_and_the_rest_is_used() {
        let place = tempfile::tempdir().unwrap();
        let tuned = tuned();
        let path = save(place.path(), &tuned).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let more = text.replacen("\"schema\": 3,", "\"schema\": 3, \"colour\": \"red\",", 1);
        let more = more.replacen("\"precision\": \"f64\"", "\"precision\": \"f64\", \"mood\": [1]", 1);
        std::fs::write(&path, more).unwrap();
        std::fs::write(place.path().join("lanes-broken.json"), "{").unwrap();
        std::fs::write(place.path().join("other.json"), "{").unwrap();

        let StoredTuning::Tuned(found) = load(place.path(), &tuned.key) else { panic!("not found") };

        assert_eq!(found.unknown, ["colour", "key.mood"]);
        assert_eq!(found.bytes_per_second, tuned.bytes_per_second);
        let files = all(place.path()).unwrap();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files[0].1.is_err() && files[1].1.is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();

        let error = save(&file, &tuned()).unwrap_err().to_string();

        assert!(error.starts_with(&*file.to_string_lossy()), "{error}");
        assert!(prepare(&file.join("below")).is_err());
        assert!(prepare(&place.path().join("other")).is_ok());
    }
}
