//! Host memory that CPU lanes work in.

#![expect(unsafe_code, reason = "memory that launches share, as on any device")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

#[cfg(not(target_family = "wasm"))]
use memmap2::MmapMut;

use crate::kernel::cpu;
use crate::parallel::lock;
use crate::util::quantity::Size;
use crate::{Error, Limit, Result};

/// Size of a large page, if the system has them. Arrays of at least an eighth of it use whole large
/// pages.
pub(in crate::lane) const LARGE_PAGE: usize = 2 << 20;

/// Replacement of memory mappings on WebAssembly: a vector of words.
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

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Owner of the bytes. Large arrays have their own pages.
///
/// Small arrays share pages with others, since mapping and unmapping a page takes longer than
/// solving a small chain.
enum Owner {
    Pages(#[expect(dead_code, reason = "unmapped when it is dropped")] MmapMut),
    /// Boxed slice of this many cache lines, which [`Memory`] frees.
    Lines(usize),
}

/// Zeroed memory of a CPU lane, aligned to a cache line.
pub(in crate::lane) struct Memory {
    start: NonNull<u8>,
    owner: Owner,
    pub(super) address: usize,
    len: usize,
    /// Version number: every write by the host changes it, and no two arrays share one.
    contents: AtomicU64,
    most_column: AtomicU64,
}

// SAFETY: the bytes are owned, and none of them is bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: the bytes of a buffer are accessed only under the owning lane's `queue` lock. `Lane`
// asserts that arrays, launches and transfer buffers are used on the lane that made them. The bytes
// of a `HostArray` are accessed only through references to it, or by a buffer from `Lane::adopt`.
// All callers of `adopt` are in this crate; they run its launches only while the array is not
// borrowed. A launch's CPU implementation gets each array once, or several times to read.
// `Lane::bind` asserts that a written array is bound once, and `Call` that a binding is borrowed
// either to read or once to write.
unsafe impl Sync for Memory {}

impl cpu::Memory for Memory {
    fn bytes(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)
    }

    fn contents(&self) -> u64 {
        self.contents.load(Ordering::Relaxed)
    }

    fn most_column(&self) -> &AtomicU64 {
        &self.most_column
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

impl PartialEq for Memory {
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
        // In the worst case every gathered element is on another page; large pages keep them within
        // the TLB's reach. Systems without large pages return an error, which is ignored.
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
        let contents = new_contents().into();
        Ok(Self { start, owner, address, len, contents, most_column: AtomicU64::new(0) })
    }

    /// Records a write by the host.
    pub(super) fn written(&self) {
        self.contents.store(new_contents(), Ordering::Relaxed);
        self.most_column.store(0, Ordering::Relaxed);
    }

    /// Returns true if `bytes` start at `offset` of this memory. This holds for a host array that a
    /// lane adopted.
    pub(super) fn holds(&self, bytes: &[u8], offset: usize) -> bool {
        self.address + offset == bytes.as_ptr().addr()
    }

    /// Returns the address, with exposed provenance, for other libraries to read from.
    pub(super) fn exposed(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Returns the bytes for reading.
    ///
    /// # Safety
    /// No write to these bytes occurs during the lifetime of the slice.
    pub(in crate::lane) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes for writing.
    ///
    /// # Safety
    /// No other access to these bytes occurs during the lifetime of the slice.
    #[expect(clippy::mut_from_ref, reason = "device memory: exclusive access is what this function demands")]
    pub(in crate::lane) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Returns a zeroed vector, on large pages if the system has them.
///
/// For gigabytes, creating and freeing small pages takes seconds.
pub(crate) fn zeroed<T: bytemuck::Zeroable + Clone>(len: usize) -> Vec<T> {
    on_large_pages(vec![T::zeroed(); len])
}

/// Returns [`zeroed`] values, or an error if they cannot be allocated; `what` names their purpose.
///
/// After [`expect_memory`], threads that start can still take the memory that was available.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn try_zeroed<T: bytemuck::Zeroable>(len: usize, what: impl FnOnce() -> String) -> Result<Vec<T>> {
    let layout = match Layout::array::<T>(len) {
        Ok(layout) if layout.size() == 0 => return Ok(bytemuck::zeroed_vec(len)),
        layout => layout.ok(),
    };
    // SAFETY: the size is not 0.
    let start = layout.map_or(std::ptr::null_mut(), |layout| unsafe { std::alloc::alloc_zeroed(layout) });
    if start.is_null() {
        return Err(out_of_memory(len.saturating_mul(size_of::<T>()) as u64, available_memory(), what()));
    }
    // SAFETY: the global allocator made an array of this length; zeroed bytes are values of T.
    Ok(on_large_pages(unsafe { Vec::from_raw_parts(start.cast(), len, len) }))
}

/// Moves values to large pages, if the system has them.
fn on_large_pages<T>(values: Vec<T>) -> Vec<T> {
    #[cfg(target_os = "linux")]
    {
        let bytes = size_of_val(&values[..]);
        let start = values.as_ptr().addr().next_multiple_of(LARGE_PAGE) - values.as_ptr().addr();
        if let Some(pages) = bytes.checked_sub(start).map(|rest| rest / LARGE_PAGE).filter(|pages| *pages > 0)
        {
            let place = values.as_ptr().cast_mut().wrapping_byte_add(start).cast();
            // SAFETY: whole pages inside the vector's memory, of which only the size changes.
            // Systems without large pages return an error.
            let _ =
                unsafe { rustix::mm::madvise(place, pages * LARGE_PAGE, rustix::mm::Advice::LinuxHugepage) };
        }
    }
    values
}

/// Returns a new version number for [`Memory::contents`], different from all earlier ones.
fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Returns the memory available to new work, in bytes.
///
/// It is the minimum for the system, this process's control group and its address-space limit.
pub fn available_memory() -> u64 {
    // Kept, since creating it reads more of the system's state than refreshing it.
    static SYSTEM: Mutex<Option<sysinfo::System>> = Mutex::new(None);
    let mut system = lock(&SYSTEM);
    if system.is_none() {
        *system = sysinfo::System::new().ok();
    }
    // If the system reports nothing, memory is assumed to suffice; an allocation can still fail.
    let system = system.as_mut().map_or(u64::MAX, |system| {
        system.refresh_memory();
        system.available_memory()
    });
    let [addresses, resident] = taken();
    let left = |limit: Option<u64>, taken: u64| limit.map_or(u64::MAX, |limit| limit.saturating_sub(taken));
    system.min(left(address_limit(), addresses)).min(left(control_group_limit(), resident))
}

/// Size below which the system is not queried. A query takes longer than allocating and filling so
/// few bytes.
const FEW: u64 = 1 << 20;

/// Returns the available memory, if that is less than `bytes`.
pub(super) fn less_than(bytes: u64) -> Option<u64> {
    if bytes < FEW { None } else { Some(available_memory()).filter(|available| bytes > *available) }
}

/// Returns the address space and memory that this process uses, in bytes; 0 if not on Linux.
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

fn address_limit() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::getrlimit(rustix::process::Resource::As).current
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns the control group's memory limit in bytes, less the initial use by other processes.
pub fn control_group_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let pid = sysinfo::get_current_pid().ok()?;
        let mut system = sysinfo::System::new().ok()?;
        let kind = sysinfo::ProcessRefreshKind::nothing();
        system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[pid]), false, kind);
        let limits = system.process(pid)?.cgroup_limits()?;
        // File caches of other processes do not count, since the system frees them on demand.
        Some(limits.total_memory.saturating_sub(limits.rss.saturating_sub(taken()[1])))
    })
}

/// Returns an error if less memory than `bytes` is available; `what` names its purpose.
///
/// Call it before allocating vectors, since a failing allocation ends the program.
///
/// # Errors
/// [`Error::OutOfMemory`] with requested and available bytes.
pub fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let Some(available) = less_than(bytes) else { return Ok(()) };
    Err(out_of_memory(bytes, available, what()))
}

fn out_of_memory(asked: u64, available: u64, what: String) -> Error {
    let limit = Limit::Free(format!("{} are available", Size(available)));
    Error::memory("the host", what, asked, limit)
}
