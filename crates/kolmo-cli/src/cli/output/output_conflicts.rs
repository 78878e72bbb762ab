//! Checks that no file of a command is read and written, or written twice.

use std::fs;
use std::io::ErrorKind;

use clap::ArgMatches;

use crate::cli::prelude::*;

/// Input and output files on the command line, each with the argument that names it.
#[derive(Default)]
pub(crate) struct Files {
    read: Vec<(String, PathBuf)>,
    written: Vec<(String, PathBuf)>,
}

/// Arguments that name input files. A name that is not a file, such as a built-in's, does no harm.
const READ: &str =
    "spec model schedule samples matrix system properties labels rewards initial rhs functional b from with";
/// Arguments that name output files.
const WRITTEN: &str = "output rhs_file report plot checkpoint";

/// Extensions of files that are read with a model of the same stem.
const BESIDE: [&str; 4] = [".lab", ".sta", ".srew", ".trew"];

impl Files {
    /// Collects the files of a command.
    pub(crate) fn of(command: &clap::Command, given: &ArgMatches) -> Self {
        let mut files = Self::default();
        let named = |ids: &str| {
            let args = ids.split(' ').filter_map(|id| command.get_arguments().find(|arg| arg.get_id() == id));
            let paths = args.flat_map(|arg| {
                let name = match (arg.get_short(), arg.get_long()) {
                    (Some(short), _) => format!("-{short}"),
                    (None, Some(long)) => format!("--{long}"),
                    _ => arg.get_value_names().map_or_else(String::new, |names| names[0].to_string()),
                };
                let values = given.get_raw(arg.get_id().as_str()).into_iter().flatten();
                values.map(move |value| (name.clone(), PathBuf::from(value)))
            });
            paths.collect()
        };
        (files.read, files.written) = (named(READ), named(WRITTEN));
        files
    }

    /// Checks that no output is also an input or another output, under any name or link.
    pub(crate) fn check(&self) -> Result<()> {
        let written: Vec<(&str, &Path, File)> = (self.written.iter())
            .filter_map(|(what, path)| Some((&what[..], &**path, File::of(path)?)))
            .collect();
        for (k, (what, path, file)) in written.iter().enumerate() {
            let same = |other: &Path| File::of(other).is_some_and(|other| other == *file);
            let before = written[..k].iter().find(|(_, _, other)| other == file).map(|(other, ..)| *other);
            let read = || self.read.iter().find(|(_, other)| same(other)).map(|(other, _)| &other[..]);
            let beside = || {
                let model = self.read.iter().find(|(_, model)| beside(model).iter().any(|other| same(other)));
                model.map(|_| "a file that is read with the model")
            };
            if let Some(other) = before.or_else(read).or_else(beside) {
                return fail(format!("{other} and {what} both name {}; give them two files", path.display()));
            }
        }
        Ok(())
    }

    /// Adds to the error of a missing file the argument that names it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let Error::Io { path, source } = error else { return error };
        let role = self.read.iter().find(|(_, known)| *known == path).map(|(what, _)| what);
        match (source.kind(), role) {
            (ErrorKind::NotFound, Some(role)) => {
                Error::File { path, reason: format!("{source}; {role} names it: check its name and folder") }
            }
            _ => Error::Io { path, source },
        }
    }
}

/// Identity of a file, independent of its names and links.
#[derive(PartialEq)]
enum File {
    #[cfg(unix)]
    Device(u64, u64),
    Path(PathBuf),
}

impl File {
    /// Returns the identity of a regular file, existing or not.
    ///
    /// `None` for devices, pipes and folders, of which nothing can be overwritten, and for `-`,
    /// which is stdin or stdout.
    fn of(path: &Path) -> Option<Self> {
        if path == Path::new("-") {
            return None;
        }
        match fs::metadata(path) {
            Ok(there) if !there.is_file() => None,
            #[cfg(unix)]
            Ok(there) => {
                use std::os::unix::fs::MetadataExt;
                Some(Self::Device(there.dev(), there.ino()))
            }
            #[cfg(not(unix))]
            Ok(_) => fs::canonicalize(path).ok().map(Self::Path),
            Err(_) => {
                let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
                Some(Self::Path(folder.join(path.file_name()?)))
            }
        }
    }
}

/// Files with labels, rewards and state names next to a model's file.
fn beside(model: &Path) -> Vec<PathBuf> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    let folder = model.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !model.is_file() || stem.is_empty() {
        return Vec::new();
    }
    let known = |name: &str| {
        let bare = name.strip_suffix(".gz").unwrap_or(name);
        bare.starts_with(stem) && BESIDE.iter().any(|ending| bare.ends_with(ending))
    };
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter(|entry| known(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}
