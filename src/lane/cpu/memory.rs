//! Memory of the host that CPU lanes work in.

#![expect(unsafe_code, reason = "memory that launches share, as on any device")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use crate::kernel::twin;
use crate::{Error, Result};

/// Size of a large page where there are some; arrays of an eighth of it or more are given whole ones.
pub(in crate::lane) const LARGE_PAGE: usize = 2 << 20;

/// Memory of a CPU lane, zeroed, page-aligned.
pub(in crate::lane) struct Memory {
    bytes: UnsafeCell<MmapMut>,
    pub(super) address: usize,
    len: usize,
    /// Changes with the host's every write, and differs between all arrays.
    pub(super) contents: AtomicU64,
}

// SAFETY: the bytes are only touched under the owning lane's `queue` lock: `Lane` asserts that arrays, launches and
// buffers of transfers are used on the lane that made them. A launch's twin gets each array once, or several times to
// read (`Lane::bind` asserts that what is written is bound once, `Call` that a binding is handed out either to read or
// once to write).
unsafe impl Sync for Memory {}

impl twin::Memory for Memory {
    fn bytes(&self) -> *mut [u8] {
        // SAFETY: the mapping itself, not its bytes, and nobody changes it.
        let start = unsafe { (*self.bytes.get()).as_ptr() };
        std::ptr::slice_from_raw_parts_mut(start.cast_mut(), self.len)
    }

    fn contents(&self) -> u64 {
        self.contents.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

impl PartialEq for Memory {
    /// Whether both are the same memory.
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Memory {
    pub(in crate::lane) fn new(len: usize) -> std::io::Result<Self> {
        // Gathers touch a page per element in the worst case; large pages keep them within the TLB's reach. A
        // kernel that has none says so.
        let large = len >= LARGE_PAGE / 8;
        let map = MmapMut::map_anon(if large { len.next_multiple_of(LARGE_PAGE) } else { len.max(8) })?;
        #[cfg(target_os = "linux")]
        if large {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let address = map.as_ptr().addr();
        Ok(Self { bytes: UnsafeCell::new(map), address, len, contents: new_contents().into() })
    }

    /// Whether these bytes are the memory's own, from `offset` on: an array of the host that a lane adopted.
    pub(super) fn holds(&self, bytes: &[u8], offset: usize) -> bool {
        self.address + offset == bytes.as_ptr().addr()
    }

    /// # Safety
    /// Nothing writes these bytes while the slice lives.
    pub(in crate::lane) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: as this function demands.
        unsafe { &(&*self.bytes.get())[..self.len] }
    }

    /// # Safety
    /// Nothing else reads or writes these bytes while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "device memory: exclusive access is what this function demands")]
    pub(in crate::lane) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as this function demands.
        unsafe { &mut (&mut *self.bytes.get())[..self.len] }
    }
}

/// A number that was not given out before.
pub(super) fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Memory that the system says is available to new work, in bytes.
pub fn available_memory() -> u64 {
    // A system that does not tell is taken to have enough: the allocation itself will say.
    sysinfo::System::new().map_or(u64::MAX, |mut system| {
        system.refresh_memory();
        system.available_memory()
    })
}

/// An error if the system says that it has less memory than `bytes`; `what` names what they are for. To be asked
/// before vectors are made that a program ends over when they do not fit.
///
/// # Errors
/// [`Error::OutOfMemory`] with both numbers.
pub fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let available = available_memory();
    if bytes <= available {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: "the host".to_owned(),
        what: what(),
        asked: bytes,
        limit: format!("{available} bytes of memory are available"),
    })
}
