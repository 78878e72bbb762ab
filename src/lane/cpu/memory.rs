//! Memory of the host that CPU lanes work in.

#![expect(unsafe_code, reason = "memory that launches share, as on any device")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(not(target_family = "wasm"))]
use memmap2::MmapMut;

use crate::kernel::twin;
use crate::number::Size;
use crate::{Error, Result};

/// Size of a large page where there are some; arrays of an eighth of it or more are given whole ones.
pub(in crate::lane) const LARGE_PAGE: usize = 2 << 20;

/// A vector of words, where there are no mappings.
#[cfg(target_family = "wasm")]
struct MmapMut(Vec<u128>);

#[cfg(target_family = "wasm")]
impl MmapMut {
    fn map_anon(len: usize) -> std::io::Result<Self> {
        let (mut words, len) = (Vec::new(), len.div_ceil(16));
        words.try_reserve_exact(len).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        words.resize(len, 0);
        Ok(Self(words))
    }
}

#[cfg(target_family = "wasm")]
impl std::ops::Deref for MmapMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(target_family = "wasm")]
impl std::ops::DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// A cache line of bytes.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Who owns the bytes: large arrays have pages of their own, small ones lie beside others, since the system takes longer to make a
/// page and to take it back than a small chain to be solved.
enum Owner {
    Pages(#[expect(dead_code, reason = "unmapped when it is dropped")] MmapMut),
    /// A boxed slice of so many, which [`Memory`] frees.
    Lines(usize),
}

/// Memory of a CPU lane, zeroed, at the beginning of a cache line.
pub(in crate::lane) struct Memory {
    start: NonNull<u8>,
    owner: Owner,
    pub(super) address: usize,
    len: usize,
    /// Changes with the host's every write, and differs between all arrays.
    pub(super) contents: AtomicU64,
}

// SAFETY: the bytes are owned, and nothing of them belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: of a buffer, the bytes are only touched under the owning lane's `queue` lock: `Lane` asserts that arrays, launches
// and buffers of transfers are used on the lane that made them. Of a `HostArray` they are only touched through references to
// that array, or by a buffer that `Lane::adopt` made of it, whose callers, all of this crate, run its launches only while
// the array is not borrowed. A launch's twin gets each array once, or several times to
// read (`Lane::bind` asserts that what is written is bound once, `Call` that a binding is handed out either to read or
// once to write).
unsafe impl Sync for Memory {}

impl twin::Memory for Memory {
    fn bytes(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)
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

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Lines(count) = self.owner {
            let lines = std::ptr::slice_from_raw_parts_mut(self.start.cast::<Line>().as_ptr(), count);
            // SAFETY: `new` took these lines out of a box.
            drop(unsafe { Box::from_raw(lines) });
        }
    }
}

impl Memory {
    pub(in crate::lane) fn new(len: usize) -> std::io::Result<Self> {
        // Gathers touch a page per element in the worst case; large pages keep them within the TLB's reach. A
        // kernel that has none says so.
        let (start, owner) = if len >= LARGE_PAGE / 8 {
            let mut pages = MmapMut::map_anon(len.next_multiple_of(LARGE_PAGE))?;
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            (pages.as_mut_ptr(), Owner::Pages(pages))
        } else {
            let count = len.div_ceil(size_of::<Line>()).max(1);
            let lines = bytemuck::zeroed_slice_box::<Line>(count);
            (Box::into_raw(lines).cast(), Owner::Lines(count))
        };
        let address = start.addr();
        let start = NonNull::new(start).expect("neither a mapping nor a box begins at 0");
        Ok(Self { start, owner, address, len, contents: new_contents().into() })
    }

    /// Whether these bytes are the memory's own, from `offset` on: an array of the host that a lane adopted.
    pub(super) fn holds(&self, bytes: &[u8], offset: usize) -> bool {
        self.address + offset == bytes.as_ptr().addr()
    }

    /// The address, for others to read from.
    pub(super) fn exposed(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// # Safety
    /// Nothing writes these bytes while the slice lives.
    pub(in crate::lane) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: as this function demands.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// # Safety
    /// Nothing else reads or writes these bytes while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "device memory: exclusive access is what this function demands")]
    pub(in crate::lane) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as this function demands.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// A zeroed vector, on large pages where the system has some: of gigabytes the small ones take seconds to be made and to be
/// given back.
pub(crate) fn zeroed<T: bytemuck::Zeroable + Clone>(len: usize) -> Vec<T> {
    let values = vec![T::zeroed(); len];
    #[cfg(target_os = "linux")]
    {
        let bytes = size_of_val(&values[..]);
        let start = values.as_ptr().addr().next_multiple_of(LARGE_PAGE) - values.as_ptr().addr();
        if let Some(pages) = bytes.checked_sub(start).map(|rest| rest / LARGE_PAGE).filter(|pages| *pages > 0)
        {
            let place = values.as_ptr().cast_mut().wrapping_byte_add(start).cast();
            // SAFETY: whole pages inside the vector's memory, of which only the size changes. A system without any says so.
            let _ =
                unsafe { rustix::mm::madvise(place, pages * LARGE_PAGE, rustix::mm::Advice::LinuxHugepage) };
        }
    }
    values
}

/// A number that was not given out before.
pub(super) fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Memory that is available to new work, in bytes: of the system, of the control group that this process is in, and of
/// the addresses that it may use.
pub fn available_memory() -> u64 {
    // Kept, since it looks at more of the system when it is made than when it is asked.
    static SYSTEM: Mutex<Option<sysinfo::System>> = Mutex::new(None);
    let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
    if system.is_none() {
        *system = sysinfo::System::new().ok();
    }
    // A system that does not tell is taken to have enough: the allocation itself will say.
    let system = system.as_mut().map_or(u64::MAX, |system| {
        system.refresh_memory();
        system.available_memory()
    });
    let [addresses, resident] = taken();
    let left = |limit: Option<u64>, taken: u64| limit.map_or(u64::MAX, |limit| limit.saturating_sub(taken));
    system.min(left(address_limit(), addresses)).min(left(*group_limit(), resident))
}

/// Bytes that the system is not asked about: the question takes longer than to make and fill them.
const FEW: u64 = 1 << 20;

/// The memory that is available, if that is less than `bytes`.
pub(super) fn less_than(bytes: u64) -> Option<u64> {
    if bytes < FEW { None } else { Some(available_memory()).filter(|available| bytes > *available) }
}

/// Addresses and memory that this process has taken, in bytes, as Linux tells.
fn taken() -> [u64; 2] {
    #[cfg(target_os = "linux")]
    {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = pages.split_whitespace().map_while(|pages| pages.parse::<u64>().ok());
        [(); 2].map(|()| pages.next().unwrap_or(0) * rustix::param::page_size() as u64)
    }
    #[cfg(not(target_os = "linux"))]
    [0; 2]
}

/// The limit of `ulimit -v`.
fn address_limit() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::getrlimit(rustix::process::Resource::As).current
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// What this process may take of its control group, which others had a part of when it began.
fn group_limit() -> &'static Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    LIMIT.get_or_init(|| {
        let pid = sysinfo::get_current_pid().ok()?;
        let mut system = sysinfo::System::new().ok()?;
        let kind = sysinfo::ProcessRefreshKind::nothing();
        system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[pid]), false, kind);
        let limits = system.process(pid)?.cgroup_limits()?;
        // What others keep as cached files is given back when somebody needs it.
        Some(limits.total_memory.saturating_sub(limits.rss.saturating_sub(taken()[1])))
    })
}

/// An error if the system says that it has less memory than `bytes`; `what` names what they are for. To be asked
/// before vectors are made that a program ends over when they do not fit.
///
/// # Errors
/// [`Error::OutOfMemory`] with both numbers.
pub fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let Some(available) = less_than(bytes) else { return Ok(()) };
    Err(Error::OutOfMemory {
        device: "the host".to_owned(),
        what: what(),
        asked: bytes,
        limit: format!("{} are available", Size(available)),
    })
}
