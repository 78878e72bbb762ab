//! Memory of others on a lane's device: arrays of other libraries of this process, read where they are.
//!
//! This is the one door for addresses. It only reads: kernels store whole groups of rows, beyond an array's end where that is no
//! multiple, so they never work in memory of others; what is to be solved is copied, device to device, and what is lent to others is
//! a lane's own. A CUDA lane works in its device's primary context, as CUDA's runtime and all that is built on it does: addresses
//! and streams are the same on both sides.

#![expect(unsafe_code, reason = "addresses that others give")]

use std::ops::Range;

use bytemuck::Pod;

use super::backend::{Backend, on, own};
use super::{Buffer, Lane};
use crate::{Error, Result};

/// Rows of numbers in memory of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Address of the first number, on the device of the lane that is to read it.
    pub address: u64,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes from the beginning of a row to that of the next, `width` or more.
    pub pitch: usize,
}

impl Foreign {
    /// Bytes one behind the other.
    pub fn run(address: u64, bytes: usize) -> Self {
        Self { address, width: bytes, height: 1, pitch: bytes }
    }

    /// Bytes from the first to the last.
    #[cfg(feature = "cuda")]
    pub(super) fn extent(&self) -> usize {
        (self.height - 1) * self.pitch + self.width
    }
}

impl Lane {
    /// The lane's queue, as others of this process name it who are to let it wait for their work: a `CUstream` of CUDA; none where work
    /// is done when a call returns.
    pub fn stream(&self) -> Option<u64> {
        on!(self, lane => lane.stream())
    }

    /// The address of an array, for others of this process that read it where it is; none on devices without addresses.
    pub fn address<T: Pod>(&self, array: &Buffer<T>) -> Option<u64> {
        self.place(array, 0, array.len());
        on!(self, lane => lane.address(own(&array.memory)))
    }

    /// Lets what this lane does from now on wait for what is in a stream of another library now.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of the lane's device, or 1 or 2 for CUDA's default streams.
    ///
    /// # Errors
    /// [`Error::Device`] on a lane without streams; a device's errors.
    pub unsafe fn wait_for(&self, stream: u64) -> Result<()> {
        // SAFETY: as this function demands.
        on!(self, lane => unsafe { lane.wait_for(stream) })
    }

    /// Copies rows of others into `dst`, from its element `offset` on, `pitch` elements from row to row, behind what is in the lane's
    /// queue; it has happened on return.
    ///
    /// # Safety
    /// Every byte of the rows is allocated memory that this lane's device reads until this returns. What others write there is ordered
    /// before: it is done, or the lane's queue waits for it.
    ///
    /// # Errors
    /// [`Error::Device`] on a lane that reads no memory of others, and for an address that is none of its device; a device's
    /// errors.
    ///
    /// # Panics
    /// If rows overlap or are no whole numbers, or do not fit `dst`.
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
        // SAFETY: as this function demands; `dst` has the rows' places (asserted).
        on!(self, lane => unsafe { lane.copy_from(src, own(&dst.memory), at, pitch * size) })
    }

    /// Copies elements of an array of this lane into another one.
    ///
    /// # Errors
    /// [`Error::Device`] on devices without addresses; a device's errors.
    ///
    /// # Panics
    /// If both are the same array, or lack the elements.
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
        // SAFETY: elements of an array of this lane (asserted), whose queue has what writes them.
        unsafe { self.copy_from(run, dst, offset, from.len()) }
    }

    /// The error of a lane that has no addresses.
    fn without(&self, what: &str) -> Error {
        let spec = &self.device().spec;
        Error::Device(format!("{spec} copies no {what}; take a CUDA device, or give arrays of the host"))
    }
}

/// The error of a backend that reads no memory of others.
pub(super) fn refused(spec: &str) -> Error {
    Error::Device(format!(
        "{spec} reads no memory of other libraries; take a CUDA device, or give arrays of the host"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::lane::{DeviceSpec, OpenOptions};

    /// A CPU lane and an array of eight numbers.
    fn lane() -> (Lane, Buffer<f64>) {
        let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default()).expect("there are threads");
        let lane = machine.lanes[0].clone();
        let array = lane.alloc_with("numbers", &[0.0; 8]).expect("it fits");
        (lane, array)
    }

    fn read(lane: &Lane, array: &Buffer<f64>) -> Vec<f64> {
        let mut numbers = vec![0.0; array.len()];
        lane.download(array, 0, &mut numbers).expect("it runs");
        numbers
    }

    #[test]
    fn runs_rows_and_single_numbers_arrive_where_they_are_to() {
        let (lane, to) = lane();
        let given = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let address = given.as_ptr().expose_provenance() as u64;
        let copy = |src: Foreign, offset, pitch| {
            // SAFETY: `given` lives, and nobody writes it.
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
    fn an_array_has_an_address_that_others_read() {
        let (lane, array) = lane();
        let twice = lane.alloc::<f64>("numbers", 8).expect("it fits");
        lane.upload(&[1.0, 2.0], &array, 3).expect("it fits");
        lane.copy_part(&array, 3..5, &twice, 6).expect("it runs");
        assert_eq!(read(&lane, &twice), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
        assert!(lane.stream().is_none() && lane.address(&array).is_some_and(|address| address % 8 == 0));
        // SAFETY: what it demands of streams is asked of none here.
        let refused = unsafe { lane.wait_for(1) }.expect_err("the CPU has no streams");
        assert!(refused.to_string().contains("cpu"), "{refused}");
    }

    #[test]
    fn what_does_not_fit_is_a_broken_contract() {
        let (lane, to) = lane();
        let given = [1.0; 8];
        let address = given.as_ptr().expose_provenance() as u64;
        let panics = |src: Foreign, offset, pitch| {
            // SAFETY: `given` lives, and nobody writes it.
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
