//! Output files that get their names only when they are complete.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Seek, SeekFrom, Stdout, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::{NamedTempFile, TempPath};

use crate::util::started::without_stdout;
use crate::{Error, Result};

/// Bytes buffered before they go to the operating system.
const BUFFER: usize = 1 << 18;

/// Existing temporary files, for [`abandon`].
static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn partial() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(|e| e.into_inner())
}

/// Removes all temporary files of this process, for an exit without unwinding.
pub fn abandon() {
    for path in partial().drain(..) {
        let _ = fs::remove_file(path);
    }
}

/// True for characters that alter the display of surrounding text, or that XML forbids.
fn is_hidden(c: char) -> bool {
    let directs = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && !matches!(c, '\n' | '\t') || directs || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Makes text from a file or an argument safe to display.
///
/// Control characters except line ends and tabs are escaped, as in `\u{1b}`. This is for terminals,
/// pictures and messages; data files keep the text unchanged.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown.into()
}

/// Escapes text as [`printable`] does; returns bytes that are not UTF-8 unchanged.
///
/// Tables are written with whole names at a time, so no character is split.
fn for_terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(bytes).map(printable) {
        Ok(Cow::Owned(shown)) => shown.into_bytes().into(),
        _ => bytes.into(),
    }
}

/// A file being written, or stdout.
///
/// The file is created in its directory, so that a read-only directory is an error before the work
/// starts. [`commit`](Self::commit) gives it its name. Until then it has no name if Linux and the
/// file system support that (`O_TMPFILE`), otherwise a temporary one (`.NAME.….partial`).
///
/// If dropped without a commit, it vanishes, and an existing file of that name stays. A file that
/// replaces another one gets its permissions. A killed process leaves no file either, or a
/// temporary one that the next output of this name removes.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    target: Destination,
}

#[derive(Debug)]
enum Destination {
    Renamed {
        writer: BufWriter<File>,
        /// Temporary name; `None` for a file without a name.
        temporary: Option<TempPath>,
        name: PathBuf,
    },
    /// A device or a pipe: it has no content to protect, and a file must not replace it.
    Direct(BufWriter<File>),
    Stdout {
        writer: BufWriter<Stdout>,
        closed: bool,
        /// True for a terminal: control characters are escaped.
        terminal: bool,
    },
}

impl OutputFile {
    /// Opens output that [`commit`](Self::commit) will put at `path`.
    ///
    /// # Errors
    /// [`Error::File`] if the directory does not exist, or if `path` is a directory or a read-only
    /// file. [`Error::Io`] if the directory is not writable.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), unnamed::create)
    }

    /// Opens output with a [`temporary`](Self::temporary) name that other processes can open.
    /// Fails like [`create`](Self::create).
    pub fn create_shared(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), |_| None)
    }

    fn open(path: &Path, unnamed: impl FnOnce(&Path) -> Option<File>) -> Result<Self> {
        let fail = |reason: &str| Error::file(path, reason);
        let failed = Error::io(path);
        // A symbolic link is kept: its target is replaced.
        let name = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let file_name = name.file_name().ok_or_else(|| fail("not the name of a file"))?;
        let existing = fs::metadata(&name);
        match &existing {
            Ok(existing) if existing.is_dir() => return Err(fail("is a directory; name a file in it")),
            Ok(existing) if !existing.is_file() => {
                let file = File::options().write(true).open(&name).map_err(failed)?;
                let target = Destination::Direct(BufWriter::with_capacity(BUFFER, file));
                return Ok(Self { path: path.into(), target });
            }
            Ok(existing) if existing.permissions().readonly() => {
                return Err(fail("is read-only; make it writable or choose another name"));
            }
            _ => {}
        }
        let directory = directory(&name);
        if !directory.is_dir() {
            return Err(fail(&format!(
                "the directory {} does not exist; create it first",
                directory.display()
            )));
        }
        let file_name = file_name.to_string_lossy();
        let (file, temporary) = match unnamed(directory) {
            Some(file) => (file, None),
            None => {
                let (file, temporary) = builder(&file_name, |b| b.tempfile_in(directory))
                    .map_err(|e| failed(unnamed_error(e)))?
                    .into_parts();
                partial().push(temporary.to_path_buf());
                (file, Some(temporary))
            }
        };
        if let Ok(existing) = &existing {
            keep_permissions(&file, existing).map_err(failed)?;
        }
        // The lock is held while the file is written.
        let _ = file.try_lock();
        abandoned(directory, &file_name);
        let writer = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { path: path.into(), target: Destination::Renamed { writer, temporary, name } })
    }

    /// Creates output to stdout. It is dropped silently once the reader has closed the pipe.
    pub fn stdout() -> Self {
        let writer = BufWriter::with_capacity(BUFFER, io::stdout());
        let terminal = io::stdout().is_terminal();
        Self { path: "stdout".into(), target: Destination::Stdout { writer, closed: false, terminal } }
    }

    /// Fails if this output is stdout, and stdout was closed when the process started.
    pub fn expect_open(&self) -> Result<()> {
        self.check_open().map_err(|error| self.error(error))
    }

    fn check_open(&self) -> io::Result<()> {
        match matches!(self.target, Destination::Stdout { .. }) && without_stdout() {
            true => Err(io::Error::other("is closed; redirect it to a file, or to /dev/null")),
            false => Ok(()),
        }
    }

    /// Returns the temporary name of a shared file; `None` for stdout, devices and pipes.
    pub fn temporary(&self) -> Option<&Path> {
        match &self.target {
            Destination::Renamed { temporary, .. } => temporary.as_deref(),
            Destination::Direct(_) | Destination::Stdout { .. } => None,
        }
    }

    /// True if the reader of stdout has closed the pipe, so that further output is useless.
    pub fn closed(&self) -> bool {
        matches!(self.target, Destination::Stdout { closed: true, .. })
    }

    /// Converts an error of writing to this output to an [`Error`] with its name.
    pub fn error(&self, source: io::Error) -> Error {
        Error::io(&self.path)(source)
    }

    /// Flushes the buffer and gives the file its name, replacing an existing file.
    /// The temporary file is removed if writing or renaming fails.
    pub fn commit(self) -> Result<()> {
        self.finish(false)
    }

    /// Commits like [`commit`](Self::commit), after the bytes have reached the disk.
    ///
    /// After a crash of the whole machine, the name refers to the old file or to the complete new
    /// one.
    pub fn commit_durably(self) -> Result<()> {
        self.finish(true)
    }

    fn finish(mut self, durably: bool) -> Result<()> {
        self.flush().map_err(|source| self.error(source))?;
        let failed = Error::io(&self.path);
        if let Destination::Renamed { writer, temporary, name } = self.target {
            if durably {
                writer.get_ref().sync_all().map_err(failed)?;
            }
            match temporary {
                Some(temporary) => {
                    // Closed before renaming: some systems do not rename open files.
                    drop(writer);
                    partial().retain(|p| *p != *temporary);
                    temporary.persist(&name).map_err(|e| failed(e.error))?;
                }
                None => {
                    unnamed::link(writer.get_ref(), &name).map_err(|e| failed(unnamed_error(e)))?;
                }
            }
            // Syncs the name itself. Systems that cannot sync a directory preserve names in another
            // way.
            if durably && let Ok(directory) = File::open(directory(&name)) {
                let _ = directory.sync_all();
            }
        }
        Ok(())
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.target {
            Destination::Renamed { writer, .. } | Destination::Direct(writer) => writer,
            Destination::Stdout { writer, .. } => writer,
        }
    }

    /// Runs one operation on the writer; returns `instead` if stdout is a broken pipe.
    fn tolerant<T>(
        &mut self,
        instead: T,
        operation: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.closed() {
            return Ok(instead);
        }
        self.check_open()?;
        match operation(self.writer()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => match &mut self.target {
                Destination::Stdout { closed, .. } => {
                    *closed = true;
                    Ok(instead)
                }
                _ => Err(e),
            },
            result => result,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.target {
            Destination::Stdout { terminal: true, .. } => {
                self.tolerant((), |writer| writer.write_all(&for_terminal(bytes)))
            }
            _ => self.tolerant((), |writer| writer.write_all(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tolerant((), |writer| writer.flush())
    }
}

impl Seek for OutputFile {
    /// Seeks in a file; stdout gives [`ErrorKind::Unsupported`].
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.target {
            Destination::Renamed { writer, .. } | Destination::Direct(writer) => writer.seek(to),
            Destination::Stdout { .. } => Err(io::Error::new(
                ErrorKind::Unsupported,
                "this format needs a file that can seek; give a file instead of the standard \
                 output",
            )),
        }
    }
}

/// Returns the directory of a file.
fn directory(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Removes a temporary file's name from an error: it is meaningless to a user.
fn unnamed_error(error: io::Error) -> io::Error {
    match error.kind() {
        _ if error.raw_os_error().is_some() => error,
        kind @ ErrorKind::StorageFull => io::Error::new(kind, "No space left on device"),
        kind => kind.into(),
    }
}

/// Copies the permissions of the replaced file; those of a group only if the group is kept.
fn keep_permissions(file: &File, existing: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let mut mode = existing.permissions().mode() & 0o777;
        if file.metadata()?.gid() != existing.gid() && fchown(file, None, Some(existing.gid())).is_err() {
            mode &= !0o070;
        }
        match file.set_permissions(fs::Permissions::from_mode(mode)) {
            // File systems without permissions.
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => Ok(()),
            done => done,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = (file, existing);
        Ok(())
    }
}

/// Removes temporary files of this output that killed processes left: files without a lock.
fn abandoned(directory: &Path, name: &str) {
    let prefix = format!(".{name}.");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let other = other.to_string_lossy();
        if !(other.starts_with(&prefix) && other.ends_with(".partial")) {
            continue;
        }
        // A file is very young between its creation and its lock.
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        let old = age.is_some_and(|age| age.as_secs() >= 1);
        if old && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Calls `make` with a builder of temporary files for `name` that have the usual permissions.
fn builder<T>(
    name: &str,
    make: impl FnOnce(&tempfile::Builder<'_, '_>) -> io::Result<NamedTempFile<T>>,
) -> io::Result<NamedTempFile<T>> {
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The process's umask applies to this.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    make(&builder)
}

/// Files without a name, which vanish with the process that writes them.
#[cfg(target_os = "linux")]
mod unnamed {
    use super::{File, Path, builder, directory, io};
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
    use std::os::fd::AsRawFd;

    /// Creates a file in `directory`, if the file system supports such files and linking them.
    pub(super) fn create(directory: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file: File = openat(CWD, directory, flags, Mode::from_raw_mode(0o666)).ok()?.into();
        own(&file).exists().then_some(file)
    }

    /// Returns a path to the open file, to link it without privileges.
    fn own(file: &File) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }

    /// Gives the file its name, replacing an existing file.
    pub(super) fn link(file: &File, name: &Path) -> io::Result<()> {
        let link =
            |to: &Path| linkat(CWD, own(file), CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from);
        match link(name) {
            // A link cannot replace a file; a rename can.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file_name = name.file_name().unwrap_or_default().to_string_lossy();
                builder(&file_name, |b| b.make_in(directory(name), link))?
                    .into_temp_path()
                    .persist(name)
                    .map_err(|e| e.error)
            }
            linked => linked,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod unnamed {
    use super::{ErrorKind, File, Path, io};

    pub(super) fn create(_: &Path) -> Option<File> {
        None
    }

    pub(super) fn link(_: &File, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a temporary directory; returns it and the path of an output in it.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.csv");
        (directory, path)
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn appears_only_when_committed() {
        let (directory, path) = place();
        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(&[0; 1 << 20]).unwrap();
        drop(output);
        assert!(names(directory.path()).is_empty(), "dropped without a trace");
        fs::write(&path, "old").unwrap();
        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.seek(SeekFrom::Start(1)).unwrap();
        output.write_all(b"o").unwrap();
        output.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        output.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"now");
        assert_eq!(names(directory.path()), ["p.csv"]);
        assert_eq!(OutputFile::stdout().stream_position().unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_an_ordinary_file_or_of_the_replaced_one() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, path) = place();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let ordinary = directory.path().join("ordinary");
        fs::write(&ordinary, "").unwrap();
        for create in [|path: &Path| OutputFile::create(path), |path: &Path| OutputFile::create_shared(path)]
        {
            fs::remove_file(&path).unwrap_or_default();
            create(&path).unwrap().commit().unwrap();
            assert_eq!(mode(&path), mode(&ordinary));
            for kept in [0o600, 0o640, 0o644, 0o666] {
                fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
                let output = create(&path).unwrap();
                // From the first byte on.
                assert!(output.temporary().is_none_or(|temporary| mode(temporary) == kept), "{kept:o}");
                output.commit().unwrap();
                assert_eq!(mode(&path), kept, "{kept:o}");
            }
        }
    }

    #[test]
    fn hidden_characters_are_shown() {
        let text = "a\u{1b}]0;title\u{7}b\u{9b}1m\tc\n\u{202e}é\r";
        assert_eq!(printable(text), "a\\u{1b}]0;title\\u{7}b\\u{9b}1m\tc\n\\u{202e}é\\u{d}");
        assert!(matches!(printable("plain, µ"), Cow::Borrowed(_)));
        assert_eq!(&*for_terminal(b"1,a\x1b[2J,0.5\n"), b"1,a\\u{1b}[2J,0.5\n");
        assert_eq!(&*for_terminal(b"\xff\x1b"), b"\xff\x1b");
    }

    #[test]
    fn a_shared_file_has_a_name_that_others_open() {
        let (directory, path) = place();
        let output = OutputFile::create_shared(&path).unwrap();
        fs::write(output.temporary().unwrap(), "theirs").unwrap();
        assert!(names(directory.path())[0].starts_with(".p.csv."), "{:?}", names(directory.path()));
        output.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(directory.path()), ["p.csv"]);
    }

    #[test]
    fn trouble_is_reported_at_once_and_names_the_path() {
        let (directory, path) = place();
        fs::write(&path, "").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        for (path, words) in [
            (directory.path().join("no").join("p.csv"), "p.csv: the directory "),
            (directory.path().to_owned(), "is a directory"),
            (path, "p.csv: is read-only"),
            ("".into(), "not the name of a file"),
            ("..".into(), ""),
        ] {
            let message = OutputFile::create(&path).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_written_and_links_kept() {
        let mut null = OutputFile::create("/dev/null").unwrap();
        null.write_all(b"nothing").unwrap();
        null.commit().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());

        let (directory, file) = place();
        let link = directory.path().join("link");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut output = OutputFile::create(&link).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }
}
