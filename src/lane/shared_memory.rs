//! Shared memory between two processes of a host, for values sent from one to the other.

#![expect(unsafe_code, reason = "memory that another process maps, too")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use memmap2::MmapRaw;

use crate::parallel::lock;

/// Memory that two processes of a host share, for values sent from one to the other.
///
/// It has two slots, used in turn: the receiver reads one while the sender writes the other.
#[derive(Debug)]
pub struct Window {
    map: MmapRaw,
    /// Lock held by a thread of this process while it uses a slot.
    turn: Mutex<()>,
    /// Size of a slot in bytes; `stride` is the distance between the slots.
    bytes: usize,
    stride: usize,
}

/// Lock of [`Window::read`] and [`Window::write`], held while they copy a slot.
static HANDLES: Mutex<()> = Mutex::new(());

/// Alignment of slots: the largest page size of common systems (4, 16 or 64 KiB).
const PAGE: usize = 1 << 16;

impl Window {
    /// Makes a window with slots of `bytes`, and the file that other processes open.
    ///
    /// The file keeps its name until [`Self::forget`].
    pub fn create(bytes: usize) -> io::Result<(Self, PathBuf)> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let file = tempfile::Builder::new().prefix("kolmo-").tempfile_in(folder)?;
        file.as_file().set_len(2 * bytes.next_multiple_of(PAGE) as u64)?;
        let window = Self::map(file.as_file(), bytes)?;
        let (_, path) = file.keep().map_err(|e| e.error)?;
        Ok((window, path))
    }

    /// Maps a window that another process has created.
    pub fn open(path: &Path, bytes: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != 2 * bytes.next_multiple_of(PAGE) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a window of another size"));
        }
        Self::map(&file, bytes)
    }

    /// Removes the file's name, once all processes have mapped it.
    pub fn forget(path: &Path) {
        let _ = fs::remove_file(path);
    }

    fn map(file: &File, bytes: usize) -> io::Result<Self> {
        Ok(Self {
            map: MmapRaw::map_raw(file)?,
            turn: Mutex::default(),
            bytes,
            stride: bytes.next_multiple_of(PAGE),
        })
    }

    /// Copies bytes into the slot of an exchange. Calls on all windows of this process are
    /// serialized.
    pub fn write(&self, exchange: u64, from: &[u8]) {
        let _turn = lock(&HANDLES);
        self.slot(exchange, |slot| slot[..from.len()].copy_from_slice(from));
    }

    /// Copies bytes out of the slot of an exchange. Calls on all windows of this process are
    /// serialized.
    pub fn read(&self, exchange: u64, to: &mut [u8]) {
        let _turn = lock(&HANDLES);
        self.slot(exchange, |slot| to.copy_from_slice(&slot[..to.len()]));
    }

    /// Returns the address and the size of the mapping.
    #[cfg(feature = "cuda")]
    pub(super) fn whole(&self) -> (*mut u8, usize) {
        (self.map.as_mut_ptr(), 2 * self.stride)
    }

    /// Calls `work` with the slot of an exchange; exchanges are counted from 0.
    ///
    /// Callers guarantee the turns of writer and reader: the writer finishes the slot before it
    /// notifies the reader, and reuses it only after the reader's reply. Another mapping of the
    /// window is not locked out.
    pub(crate) fn slot<R>(&self, exchange: u64, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let _turn = lock(&self.turn);
        let place = (exchange % 2) as usize * self.stride;
        // SAFETY: the slot is within the mapping, and its pages stay mapped. The lock leaves the
        // slot to one thread of this process, and messages between the two processes leave it to
        // one of them.
        work(unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(place), self.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_puts_in_another_takes_out() {
        let (mine, path) = Window::create(5000).expect("a window");
        let other = Window::open(&path, 5000).expect("the same");
        assert!(Window::open(&path, 5_000_000).is_err());
        Window::forget(&path);
        // Windows keeps the name of a mapped file.
        assert!(cfg!(windows) || Window::open(&path, 5000).is_err());

        for exchange in 0..4u8 {
            mine.slot(exchange.into(), |slot| slot.fill(exchange + 1));
            assert!(other.slot(exchange.into(), |slot| slot.iter().all(|&b| b == exchange + 1)));
        }

        assert!(other.slot(2, |slot| slot.iter().all(|&b| b == 3)), "the slot before is left alone");
    }
}
