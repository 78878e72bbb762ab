//! Memory of the host: what is available, and arrays on large pages.

#![expect(unsafe_code, reason = "fallible allocation of zeroed arrays, and advice about pages")]

use std::alloc::Layout;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Size;
use crate::{Error, Limit, Result};

/// Size of a large page, if the system has them. Arrays of at least an eighth of it use whole large
/// pages.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// Returns a zeroed vector, on large pages if available, which are faster to create and free.
pub(crate) fn zeroed<T: bytemuck::Zeroable + Clone>(len: usize) -> Vec<T> {
    on_large_pages(vec![T::zeroed(); len])
}

/// Returns [`zeroed`] values, or an error if they cannot be allocated; `what` names their purpose.
///
/// After [`expect_memory`], threads that start can still take the memory that was available.
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

/// Returns the memory available to new work, in bytes.
///
/// It is the minimum for the system, this process's control group and its address-space limit, at
/// most 10 ms old: a query takes as long as a small chain, and programs fill only some tens of
/// megabytes in that time.
pub fn available_memory() -> u64 {
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, bytes)) if at.elapsed() < Duration::from_millis(10) => bytes,
        _ => {
            let bytes = query();
            *last = Some((Instant::now(), bytes));
            bytes
        }
    }
}

/// Queries the memory available to new work, in bytes.
fn query() -> u64 {
    // Kept, since creating it reads more of the system's state than refreshing it.
    static SYSTEM: Mutex<Option<sysinfo::System>> = Mutex::new(None);
    let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Returns the available memory if that is less than `bytes`; `None` below 1 MiB.
pub(crate) fn less_than(bytes: u64) -> Option<u64> {
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
/// Call it before allocating vectors, since a failing allocation ends the program. Fails with
/// [`Error::OutOfMemory`], which has the requested and available bytes.
pub fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let Some(available) = less_than(bytes) else { return Ok(()) };
    Err(out_of_memory(bytes, available, what()))
}

fn out_of_memory(asked: u64, available: u64, what: String) -> Error {
    let limit = Limit::Free(format!("{} are available", Size(available)));
    Error::memory("the host", what, asked, limit)
}
