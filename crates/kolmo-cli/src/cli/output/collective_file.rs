//! One `.npy` file that all ranks write, each rank its own range.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use crate::cli::prelude::*;
use kolmo::io::npy;

/// An open shared file. Rank 0 gives it its name at the end.
#[derive(Debug)]
pub(crate) struct SharedFile {
    named: Option<OutputFile>,
    path: PathBuf,
    file: File,
    data: u64,
}

impl SharedFile {
    /// Opens rank 0's file on every rank, for an array of this shape. Collective.
    pub(crate) fn open(
        path: PathBuf,
        named: Option<OutputFile>,
        shape: &[usize],
        ranks: Ranks,
    ) -> Result<Self> {
        let temporary = named.as_ref().and_then(OutputFile::temporary);
        let name =
            ranks.all_gather_text(&temporary.unwrap_or(Path::new("")).to_string_lossy()).swap_remove(0);
        let shape: Vec<u64> = shape.iter().map(|&k| k as u64).collect();
        let header = npy::header("<f8", &shape);
        let open = || -> Result<File> {
            if name.is_empty() {
                let reason = "ranks write a file at their places in it, which a pipe or device does not have";
                return Err(Error::File { path: path.clone(), reason: reason.to_owned() });
            }
            let mut file = File::options().write(true).open(&name).map_err(|e| Error::File {
                path: path.clone(),
                reason: format!("rank 0 has opened it, and here it is not to be seen ({e}); ranks write one file, so name one in a directory that all of them have"),
            })?;
            if ranks.is_root() {
                let all = header.len() as u64 + 8 * shape.iter().product::<u64>();
                file.write_all(&header)
                    .and_then(|()| file.set_len(all))
                    .map_err(|source| Error::Io { path: path.clone(), source })?;
            }
            Ok(file)
        };
        let file = ranks.all_ok(open())?;
        Ok(Self { named, path, file, data: header.len() as u64 })
    }

    /// Writes `values` from element `at` of the array on.
    pub(crate) fn write(&mut self, at: usize, values: &[f64]) -> Result<()> {
        let bytes = npy::data(values);
        self.file
            .seek(SeekFrom::Start(self.data + 8 * at as u64))
            .and_then(|_| self.file.write_all(&bytes))
            .map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// Gives the file its name after all ranks have written. Collective.
    pub(crate) fn commit(self, ranks: Ranks) -> Result<()> {
        // Every rank has closed the file before it gets its name.
        drop(self.file);
        ranks.all_ok(Ok(()))?;
        self.named.map_or(Ok(()), OutputFile::commit)
    }
}
