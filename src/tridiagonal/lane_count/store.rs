//! What was tuned, one file a device, in a folder of the user's.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SizeTimes;
use super::choice::Choice;
use super::overlap::OverlapFit;
use crate::kernel::Precision;
use crate::lane::Device;
use crate::sparse::MatrixFormat;
use crate::{Error, Result};

/// Version of the file's layout; another one is not read.
pub const SCHEMA: u32 = 1;

/// The environment variable that names the folder.
pub const VARIABLE: &str = "KOLMO_CONFIG_DIR";

/// What measurements hold for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// `cpu`, `cuda`, `vulkan`, ….
    pub backend: String,
    /// The device's name.
    pub device: String,
    /// `f64` or `f32`.
    pub precision: String,
    /// Name and version of the driver, kept beside the key in a file.
    #[serde(skip)]
    pub driver: String,
}

impl Key {
    /// Of a device and a precision.
    pub fn new(device: &Device, precision: Precision) -> Self {
        Self {
            backend: device.backend.to_owned(),
            device: device.name.clone(),
            precision: precision.to_string(),
            driver: device.driver.clone(),
        }
    }

    /// Its file's name: letters and digits of the key.
    fn file(&self) -> String {
        let all = format!("lanes {} {} {}", self.backend, self.device, self.precision).to_lowercase();
        let words: Vec<&str> =
            all.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        words.join("-") + ".json"
    }
}

/// Measurements of a device and the models fitted to them. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of this crate that measured.
    pub version: String,
    /// Seconds since 1970.
    pub measured_at: u64,
    /// What it holds for.
    pub key: Key,
    /// The driver, as its backend tells it.
    pub driver: String,
    /// Solutions measured of each size and lane count.
    pub repetitions: usize,
    /// What opening one lane takes, once.
    pub lane_opening: f64,
    /// τ: what one lane costs in each solution, see [`SizeTimes::lane_cost`].
    pub lane_cost: f64,
    /// Measurements, sizes ascending.
    pub sizes: Vec<SizeTimes>,
    /// The model of Veneva and Imamura.
    pub overlap: Option<OverlapFit>,
    /// The choice that `--lanes auto` takes.
    pub choice: Choice,
    /// What chains on several devices and formats of matrices are decided by.
    #[serde(default)]
    pub steps: Option<Steps>,
    /// Keys of the file that this version does not know.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

/// Speed of the device with vectors and matrices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Bytes a second of y = a + b c, reads and writes.
    pub bytes_per_second: f64,
    /// Chain of the steps.
    pub chain: String,
    /// One step in each format that the chain fits.
    pub formats: Vec<FormatTime>,
}

/// A step of uniformization in one format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormatTime {
    /// `hyb`, `packed`, `pair` or `pattern`.
    pub format: String,
    /// Seconds, the least of some measurements: others are disturbed.
    pub seconds: f64,
}

impl Steps {
    /// Formats that move fewer bytes than HYB and yet take a tenth more time than it.
    pub fn slow(&self) -> Vec<MatrixFormat> {
        let Some(hyb) = self.formats.iter().find(|f| f.format == "hyb") else { return Vec::new() };
        let slow = self.formats.iter().filter(|f| f.seconds > 1.1 * hyb.seconds);
        slow.filter_map(|f| f.format.parse().ok()).collect()
    }

    fn sound(&self) -> bool {
        let fine = |x: f64| x.is_finite() && x > 0.0;
        fine(self.bytes_per_second) && self.formats.iter().all(|f| fine(f.seconds))
    }
}

impl Tuned {
    /// The lane count for `n` rows.
    pub fn lanes(&self, n: usize) -> usize {
        self.choice.lanes(&self.sizes, n)
    }
}

/// What the folder holds for a key.
#[derive(Debug)]
pub enum Found {
    /// Measurements of this device.
    Tuned(Box<Tuned>),
    /// None yet.
    Absent,
    /// A file that cannot be used, and why.
    Unusable(String),
}

/// The folder that [`VARIABLE`] names, or the user's folder of settings; none if the system names no such place.
#[cfg(feature = "cli")]
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(folder) => Some(PathBuf::from(folder)),
        // Measurements are this machine's, not the user's on any machine.
        None => Some(directories::ProjectDirs::from("", "", "kolmo")?.config_local_dir().to_path_buf()),
    }
}

/// An error if nothing can be written to `folder`, which is made where there is none. To be asked before minutes are
/// spent on measurements.
pub fn prepare(folder: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(folder).and_then(|()| tempfile::NamedTempFile::new_in(folder));
    made.map(drop).map_err(|source| Error::Io { path: folder.to_path_buf(), source })
}

/// Writes the file of `tuned`, in place of an older one, and says where.
pub fn save(folder: &Path, tuned: &Tuned) -> Result<PathBuf> {
    let path = folder.join(tuned.key.file());
    prepare(folder)?;
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, tuned)?;
        file.write_all(b"\n")?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|source| Error::Io { path: path.clone(), source })?;
    Ok(path)
}

/// Reads the file of `key`.
pub fn load(folder: &Path, key: &Key) -> Found {
    let path = folder.join(key.file());
    let unusable = |why: String| Found::Unusable(format!("{}: {why}", path.display()));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Found::Absent,
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
                "layout {schema} of kolmo {version}; this is kolmo {}, with layout {SCHEMA}",
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
        Ok(tuned) if tuned.driver != key.driver => {
            unusable(format!("measured with the driver '{}', which is '{}' now", tuned.driver, key.driver))
        }
        Ok(tuned) if tuned.steps.as_ref().is_some_and(|steps| !steps.sound()) => {
            unusable("a speed is no number above 0".to_owned())
        }
        Ok(tuned) if !sound(&tuned.sizes) => unusable("sizes do not ascend, or lack one lane".to_owned()),
        Ok(tuned) => Found::Tuned(Box::new(tuned)),
        Err(e) => unusable(e.to_string()),
    }
}

/// The contents of a file, keys that are unknown listed.
fn parse(text: &[u8]) -> serde_json::Result<Tuned> {
    let mut unknown = Vec::new();
    let mut input = serde_json::Deserializer::from_slice(text);
    let mut tuned: Tuned = serde_ignored::deserialize(&mut input, |path| unknown.push(path.to_string()))?;
    input.end()?;
    tuned.key.driver.clone_from(&tuned.driver);
    tuned.unknown = unknown;
    Ok(tuned)
}

/// Every file of measurements in the folder, with what it holds, whatever it was measured on, or why it cannot be read.
///
/// # Errors
/// If the folder is there and cannot be read.
pub fn all(folder: &Path) -> Result<Vec<(PathBuf, std::result::Result<Tuned, String>)>> {
    let failed = |source| Error::Io { path: folder.to_path_buf(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("lanes-") && name.ends_with(".json") {
            let read = std::fs::read(&path).map_err(|e| e.to_string());
            let tuned = read.and_then(|text| parse(&text).map_err(|e| e.to_string()));
            files.push((path, tuned));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

/// What predictions rely on.
fn sound(sizes: &[SizeTimes]) -> bool {
    let timed = |size: &SizeTimes| {
        size.n > 0
            && size.runs.first().is_some_and(|run| run.lanes == 1)
            && size.runs.is_sorted_by(|a, b| a.lanes < b.lanes)
            && size.runs.iter().all(|run| run.median > 0.0)
    };
    !sizes.is_empty() && sizes.is_sorted_by(|a, b| a.n < b.n) && sizes.iter().all(timed)
}

#[cfg(test)]
mod tests {
    use super::super::{LANE_COUNTS, LaneTime, StageTimes, overlap, sizes};
    use super::*;

    fn tuned() -> Tuned {
        let size = |n: usize| SizeTimes {
            n,
            stages: StageTimes { comp_1: 0.1 + n as f64 * 3e-6, comp_3: 1.0 / 3.0, ..StageTimes::default() },
            runs: LANE_COUNTS
                .map(|s| {
                    let m = n as f64 * 1e-6;
                    LaneTime::of(
                        s,
                        [1.0, 1.1, 1.3].map(|f| f * (0.1 + m / s as f64 + 1e-3 * s as f64)).to_vec(),
                    )
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
            steps: Some(Steps {
                bytes_per_second: 1e12,
                chain: "wlan:3,2".into(),
                formats: [("hyb", 1.0), ("packed", 1.2), ("pair", 0.4)]
                    .map(|(format, seconds)| FormatTime { format: format.into(), seconds })
                    .to_vec(),
            }),
            unknown: Vec::new(),
            repetitions: 3,
            lane_opening: 0.1,
            lane_cost: sizes[0].lane_cost(),
            overlap: overlap::fit(&sizes),
            choice: Choice::fit(&sizes).unwrap(),
            sizes,
        }
    }

    fn why(found: Found) -> String {
        match found {
            Found::Unusable(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_saved_is_found_under_its_key_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        let tuned = tuned();

        let path = save(&folder, &tuned).unwrap();

        assert_eq!(path.file_name().unwrap(), "lanes-cuda-big-gpu-2-f64.json");
        let Found::Tuned(found) = load(&folder, &tuned.key) else { panic!("not found") };
        assert_eq!(found.key, tuned.key);
        assert_eq!(found.choice.form, tuned.choice.form);
        for n in [1, 1000, 30_000, 2_000_000, 1_000_000_000] {
            assert_eq!(found.lanes(n), tuned.lanes(n), "n = {n}");
        }
        let other = Key { precision: "f32".into(), ..tuned.key.clone() };
        assert!(matches!(load(&folder, &other), Found::Absent));
        // Another device with the same letters.
        let other = Key { device: "Big (GPU) 2".into(), ..tuned.key.clone() };
        assert!(why(load(&folder, &other)).contains("measured on Big GPU (2)"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let place = tempfile::tempdir().unwrap();
        let tuned = tuned();
        let path = save(place.path(), &tuned).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let found = |text: &str| {
            std::fs::write(&path, text).unwrap();
            why(load(place.path(), &tuned.key))
        };

        assert!(found(&text[..text.len() / 2]).contains("EOF"));
        assert!(found(&text.replacen("\"schema\": 1", "\"schema\": 2", 1)).contains("layout 2"));
        let older = text.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1);
        assert!(found(&older).contains("kolmo 0.0.1"));
        assert!(found(&text.replacen("\"n\": 1000,", "\"n\": 0,", 1)).contains("ascend"));
        assert!(found("{}").contains("schema"));
        assert!(found(&(text.clone() + "{")).contains("trailing"));
        assert!(found(&text.replacen("1000000000000.0", "-1.0", 1)).contains("speed"));
        std::fs::write(&path, &text).unwrap();
        let newer = Key { driver: "1.3".into(), ..tuned.key.clone() };
        assert!(why(load(place.path(), &newer)).contains("the driver '1.2', which is '1.3' now"));
        assert!(matches!(load(&place.path().join("none"), &tuned.key), Found::Absent));
    }

    #[test]
    fn keys_that_are_unknown_are_listed_and_the_rest_is_used() {
        let place = tempfile::tempdir().unwrap();
        let tuned = tuned();
        let path = save(place.path(), &tuned).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let more = text.replacen("\"schema\": 1,", "\"schema\": 1, \"colour\": \"red\",", 1);
        std::fs::write(
            &path,
            more.replacen("\"precision\": \"f64\"", "\"precision\": \"f64\", \"mood\": [1]", 1),
        )
        .unwrap();
        std::fs::write(place.path().join("lanes-broken.json"), "{").unwrap();
        std::fs::write(place.path().join("other.json"), "{").unwrap();

        let Found::Tuned(found) = load(place.path(), &tuned.key) else { panic!("not found") };

        assert_eq!(found.unknown, ["colour", "key.mood"]);
        assert_eq!(found.steps, tuned.steps);
        assert_eq!(found.steps.unwrap().slow(), [MatrixFormat::Packed]);
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
