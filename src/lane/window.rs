//! Memory that processes of one host share: values on their way from one to the other.

#![expect(unsafe_code, reason = "memory that another process maps, too")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use memmap2::MmapRaw;

/// Two slots, used in turn: one is read while the next is written.
#[derive(Debug)]
pub struct Window {
    map: MmapRaw,
    /// Held by the one thread of this process that has a slot.
    turn: Mutex<()>,
    /// Bytes of a slot that are used, and from one slot to the next.
    bytes: usize,
    stride: usize,
}

/// Held while a slot is copied for a caller outside of this crate.
static HANDLES: Mutex<()> = Mutex::new(());

/// Slots begin at a page: the largest of those that systems have, 4, 16 or 64 KiB.
const PAGE: usize = 1 << 16;

impl Window {
    /// Makes one, in a file of that name until it is [`forgotten`](Self::forget), for slots of so many bytes.
    pub fn create(bytes: usize) -> io::Result<(Self, PathBuf)> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let file = tempfile::Builder::new().prefix("kolmo-").tempfile_in(folder)?;
        file.as_file().set_len(2 * bytes.next_multiple_of(PAGE) as u64)?;
        let window = Self::map(file.as_file(), bytes)?;
        let (_, path) = file.keep().map_err(|e| e.error)?;
        Ok((window, path))
    }

    /// Maps another's.
    pub fn open(path: &Path, bytes: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != 2 * bytes.next_multiple_of(PAGE) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a window of another size"));
        }
        Self::map(&file, bytes)
    }

    /// Removes the name, once all have it mapped.
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

    /// Copies bytes into the slot of an exchange. Handles of this process wait for one another, and none is lent the slot.
    pub fn write(&self, exchange: u64, from: &[u8]) {
        let _turn = HANDLES.lock().unwrap_or_else(|e| e.into_inner());
        self.slot(exchange, |slot| slot[..from.len()].copy_from_slice(from));
    }

    /// Copies bytes out of the slot of an exchange.
    pub fn read(&self, exchange: u64, to: &mut [u8]) {
        let _turn = HANDLES.lock().unwrap_or_else(|e| e.into_inner());
        self.slot(exchange, |slot| to.copy_from_slice(&slot[..to.len()]));
    }

    /// All of it: where it lies, and how many bytes it has.
    #[cfg(feature = "cuda")]
    pub(super) fn whole(&self) -> (*mut u8, usize) {
        (self.map.as_mut_ptr(), 2 * self.stride)
    }

    /// Works on the slot of an exchange, counted from the first.
    ///
    /// Its writer is done with it before it tells the reader, and takes it again when the reader has told that it is done
    /// with it, which callers answer for: another handle on the same memory is not kept out.
    pub(crate) fn slot<R>(&self, exchange: u64, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let _turn = self.turn.lock().unwrap_or_else(|e| e.into_inner());
        let place = (exchange % 2) as usize * self.stride;
        // SAFETY: within the mapping, whose pages stay. The lock leaves a slot to one thread of this process, and messages
        // between the two processes leave it to one of them.
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
        // Windows keeps the name of what is mapped.
        assert!(cfg!(windows) || Window::open(&path, 5000).is_err());

        for exchange in 0..4u8 {
            mine.slot(exchange.into(), |slot| slot.fill(exchange + 1));
            assert!(other.slot(exchange.into(), |slot| slot.iter().all(|&b| b == exchange + 1)));
        }

        assert!(other.slot(2, |slot| slot.iter().all(|&b| b == 3)), "the slot before is left alone");
    }
}
