//! Host memory that CPU lanes work in.

#![expect(unsafe_code, reason = "memory that launches share, as on any device")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(target_family = "wasm"))]
use memmap2::MmapMut;

use crate::kernel::cpu;
use crate::util::memory::LARGE_PAGE;

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
struct CacheLine([u8; 64]);

/// Owner of the bytes. Large arrays have their own pages.
///
/// Small arrays share pages with others, since mapping and unmapping a page takes longer than
/// solving a small chain.
enum MemoryOwner {
    Pages(#[expect(dead_code, reason = "unmapped when it is dropped")] MmapMut),
    /// Boxed slice of this many cache lines, which [`CpuArray`] frees.
    Lines(usize),
}

/// Zeroed memory of a CPU lane, aligned to a cache line.
pub(in crate::lane) struct CpuArray {
    start: NonNull<u8>,
    owner: MemoryOwner,
    pub(super) address: usize,
    len: usize,
    /// Version number: every write by the host changes it, and no two arrays share one.
    contents: AtomicU64,
    largest: AtomicU64,
}

// SAFETY: the bytes are owned, and none of them is bound to a thread.
unsafe impl Send for CpuArray {}
// SAFETY: the bytes of a buffer are accessed only under the owning lane's `queue` lock. `Lane`
// asserts that arrays, launches and transfer buffers are used on the lane that made them. The bytes
// of a `HostArray` are accessed only through references to it, or by a buffer from `Lane::adopt`.
// All callers of `adopt` are in this crate; they run its launches only while the array is not
// borrowed. A launch's CPU implementation gets each array once, or several times to read.
// `Lane::bind` asserts that a written array is bound once, and `Call` that a binding is borrowed
// either to read or once to write.
unsafe impl Sync for CpuArray {}

impl cpu::BindingMemory for CpuArray {
    fn bytes(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)
    }

    fn contents(&self) -> u64 {
        self.contents.load(Ordering::Relaxed)
    }

    fn largest(&self) -> &AtomicU64 {
        &self.largest
    }
}

impl std::fmt::Debug for CpuArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuArray({} bytes)", self.len)
    }
}

impl PartialEq for CpuArray {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Drop for CpuArray {
    fn drop(&mut self) {
        if let MemoryOwner::Lines(count) = self.owner {
            let lines = std::ptr::slice_from_raw_parts_mut(self.start.cast::<CacheLine>().as_ptr(), count);
            // SAFETY: `new` took these lines out of a box.
            drop(unsafe { Box::from_raw(lines) });
        }
    }
}

impl CpuArray {
    pub(in crate::lane) fn new(len: usize) -> std::io::Result<Self> {
        // In the worst case every gathered element is on another page; large pages keep them within
        // the TLB's reach. Systems without large pages return an error, which is ignored.
        let (start, owner) = if len >= LARGE_PAGE / 8 {
            let mut pages = MmapMut::map_anon(len.next_multiple_of(LARGE_PAGE))?;
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            (pages.as_mut_ptr(), MemoryOwner::Pages(pages))
        } else {
            let count = len.div_ceil(size_of::<CacheLine>()).max(1);
            let lines = bytemuck::zeroed_slice_box::<CacheLine>(count);
            (Box::into_raw(lines).cast(), MemoryOwner::Lines(count))
        };
        let address = start.addr();
        let start = NonNull::new(start).expect("neither a mapping nor a box begins at 0");
        let contents = new_contents().into();
        Ok(Self { start, owner, address, len, contents, largest: AtomicU64::new(0) })
    }

    /// Records a write by the host.
    pub(super) fn written(&self) {
        self.contents.store(new_contents(), Ordering::Relaxed);
        self.largest.store(0, Ordering::Relaxed);
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

/// Returns a new version number for [`CpuArray::contents`], different from all earlier ones.
fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
