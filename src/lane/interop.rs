//! Foreign memory: arrays of other libraries of this process, read in place by a lane.
//!
//! All raw addresses enter here. Foreign memory is only read, since kernels store whole groups of
//! rows, also beyond the end of an array. A system to be solved is copied from device to device. An
//! array lent to another library is a lane's own. A CUDA lane uses its device's primary context,
//! like CUDA's runtime and all libraries based on it. Therefore addresses and streams are valid on
//! both sides.

#![expect(unsafe_code, reason = "addresses that others give")]

use std::ops::Range;

use bytemuck::Pod;

use super::backend::{Backend, Foreign};
use super::backends::on;
use super::{Buffer, Lane};
use crate::{Error, Result};

impl Lane {
    /// Returns the handle of the lane's queue, for libraries that make it wait for their work.
    ///
    /// The handle is a `CUstream` of CUDA; `None` on lanes that have finished their work when a
    /// call returns.
    pub fn stream(&self) -> Option<u64> {
        on!(self, lane => lane.stream())
    }

    /// Returns the address of an array, for libraries that read it in place. `None` on devices
    /// without addresses.
    pub fn address<T: Pod>(&self, array: &Buffer<T>) -> Option<u64> {
        self.place(array, 0, array.len());
        on!(self, lane => lane.address(array.memory.own()))
    }

    /// Makes later work of this lane wait for the work queued so far in another library's stream.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of the lane's device, or 1 or 2 for CUDA's default streams.
    ///
    /// # Errors
    /// [`Error::Capability`] on a lane without streams; a device's errors.
    pub unsafe fn wait_for(&self, stream: u64) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        on!(self, lane => unsafe { lane.wait_for(stream) })
    }

    /// Copies rows of another library into `dst`, in order with the lane's queue, and waits.
    ///
    /// Row r goes to the elements from `offset + r · pitch` on.
    ///
    /// # Safety
    /// Every byte of the rows is allocated memory that this lane's device can read until this
    /// returns. Writes to it come first: they are done, or the lane's queue waits for them.
    ///
    /// # Errors
    /// [`Error::Capability`] on a lane that reads no foreign memory, and for an address of another
    /// device; a device's errors.
    ///
    /// # Panics
    /// If rows overlap, are not whole numbers of elements, or do not fit `dst`.
    pub unsafe fn copy_from<T: Pod>(
        &self,
        src: Foreign,
        dst: &Buffer<T>,
        offset: usize,
        pitch: usize,
    ) -> Result<()> {
        let (Foreign { width, height, pitch: from, .. }, size) = (src, size_of::<T>());
        if width == 0 || height == 0 {
            return Ok(());
        }
        assert!(width.is_multiple_of(size) && from >= width, "rows of {width} bytes, {from} apart");
        assert!(
            pitch.saturating_mul(size) >= width,
            "rows of {width} bytes go to places {pitch} elements apart"
        );
        let at = self.place(dst, offset, (height - 1).saturating_mul(pitch).saturating_add(width / size));
        // SAFETY: guaranteed by the caller; `dst` has space for the rows (asserted).
        on!(self, lane => unsafe { lane.copy_from(src, dst.memory.own(), at, pitch * size) })
    }

    /// Copies elements `from` of an array to another array of this lane, from `offset` on.
    ///
    /// # Errors
    /// [`Error::Capability`] on devices without addresses; a device's errors.
    ///
    /// # Panics
    /// If source and target are one array, or lack the elements.
    pub fn copy_part<T: Pod>(
        &self,
        src: &Buffer<T>,
        from: Range<usize>,
        dst: &Buffer<T>,
        offset: usize,
    ) -> Result<()> {
        let at = self.place(src, from.start, from.len());
        assert!(!self.is_same(&src.memory, &dst.memory), "a copy has two different sides");
        let Some(address) = self.address(src) else { return Err(self.without("a part of an array")) };
        let run = Foreign::run(address + at, from.len() * size_of::<T>());
        // SAFETY: these are elements of an array of this lane (asserted), and its queue orders all
        // writes to them.
        unsafe { self.copy_from(run, dst, offset, from.len()) }
    }

    fn without(&self, what: &str) -> Error {
        let spec = &self.device().spec;
        Error::Capability(format!("{spec} cannot copy {what}; use a CUDA device or arrays of the host"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a CPU lane and an array of eight numbers.
    fn lane() -> (Lane, Buffer<f64>) {
        let lane = Lane::at_hand();
        let array = lane.alloc_with("numbers", &[0.0; 8]).expect("it fits");
        (lane, array)
    }

    fn read(lane: &Lane, array: &Buffer<f64>) -> Vec<f64> {
        let mut numbers = vec![0.0; array.len()];
        lane.download(array, 0, &mut numbers).expect("it runs");
        numbers
    }

    #[test]
    fn copies_of_rows_arrive_at_their_places() {
        let (lane, to) = lane();
        let given = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let address = given.as_ptr().expose_provenance() as u64;
        let copy = |src: Foreign, offset, pitch| {
            // SAFETY: `given` is alive and not written during the copy.
            unsafe { lane.copy_from(src, &to, offset, pitch) }.expect("it runs");
        };
        copy(Foreign::run(address + 8, 16), 1, 2);
        assert_eq!(read(&lane, &to), [0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        copy(Foreign { address, width: 16, height: 2, pitch: 24 }, 0, 3);
        assert_eq!(read(&lane, &to), [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
        copy(Foreign { address, width: 8, height: 3, pitch: 16 }, 5, 1);
        assert_eq!(read(&lane, &to), [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 3.0, 5.0]);
        copy(Foreign { address, width: 8, height: 0, pitch: 8 }, 0, 1);
        assert_eq!(read(&lane, &to)[0], 1.0);
    }

    #[test]
    fn other_libraries_read_an_array_at_its_address() {
        let (lane, array) = lane();
        let twice = lane.alloc::<f64>("numbers", 8).expect("it fits");
        lane.upload(&[1.0, 2.0], &array, 3).expect("it fits");
        lane.copy_part(&array, 3..5, &twice, 6).expect("it runs");
        assert_eq!(read(&lane, &twice), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
        assert!(lane.stream().is_none() && lane.address(&array).is_some_and(|address| address % 8 == 0));
        // SAFETY: the CPU backend does not use the stream, so no requirement on it applies.
        let refused = unsafe { lane.wait_for(1) }.expect_err("the CPU has no streams");
        assert!(refused.to_string().contains("cpu"), "{refused}");
    }

    #[test]
    fn copies_that_do_not_fit_panic() {
        let (lane, to) = lane();
        let given = [1.0; 8];
        let address = given.as_ptr().expose_provenance() as u64;
        let panics = |src: Foreign, offset, pitch| {
            // SAFETY: `given` is alive and not written during the copy.
            let copy = || unsafe { lane.copy_from(src, &to, offset, pitch) };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy)).is_err(), "{src:?}");
        };
        panics(Foreign::run(address, 64), 1, 8);
        panics(Foreign::run(address, 12), 0, 2);
        panics(Foreign { address, width: 16, height: 2, pitch: 8 }, 0, 2);
        panics(Foreign { address, width: 16, height: 2, pitch: 16 }, 0, 1);
        panics(Foreign { address, width: 8, height: 4, pitch: 8 }, 0, 3);
    }
}
