//! Asynchronous copies; the arrays stay borrowed until the copies have finished.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::{Buffer, Lane};
use crate::Result;

/// Starts copies that [`Lane::queued`] waits for.
///
/// `'arrays` is invariant, so no borrow can be shortened to end before [`Lane::queued`] returns.
#[derive(Debug)]
pub struct Copies<'lane, 'arrays> {
    lane: &'lane Lane,
    arrays: PhantomData<fn(&'arrays ()) -> &'arrays ()>,
}

impl<'arrays> Copies<'_, 'arrays> {
    /// Starts a copy from the host. With `Device::queued_copies`, `src` must be page-locked.
    ///
    /// # Errors
    /// The device is lost.
    pub fn send<T: Pod>(&self, src: &'arrays [T], dst: &'arrays Buffer<T>, offset: usize) -> Result<()> {
        self.lane.send(src, dst, offset)
    }

    /// Starts a copy to the host. With `Device::queued_copies`, `dst` must be page-locked.
    ///
    /// # Errors
    /// The device is lost.
    pub fn fetch<T: Pod>(&self, src: &'arrays Buffer<T>, offset: usize, dst: &'arrays mut [T]) -> Result<()> {
        self.lane.fetch(src, offset, dst)
    }
}

/// Guard that waits for a lane's copies, also after a panic.
struct Finish<'lane>(&'lane Lane);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        // The error or panic of the work takes precedence.
        let _ = self.0.finish();
    }
}

impl Lane {
    /// Runs work that starts copies, and waits for all of them.
    ///
    /// # Errors
    /// Those of the work, or the device is lost.
    pub fn queued<'arrays, R>(&self, work: impl FnOnce(&Copies<'_, 'arrays>) -> Result<R>) -> Result<R> {
        let finish = Finish(self);
        let done = work(&Copies { lane: self, arrays: PhantomData })?;
        std::mem::forget(finish);
        self.finish().map(|()| done)
    }
}
