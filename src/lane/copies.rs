//! Copies that run beside their caller, of arrays that stay borrowed until they have ended.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::{Buffer, Lane};
use crate::Result;

/// Copies that [`Lane::queued`] waits for. The lifetime of the arrays cannot shrink: they are borrowed for longer than that.
#[derive(Debug)]
pub struct Copies<'lane, 'arrays> {
    lane: &'lane Lane,
    arrays: PhantomData<fn(&'arrays ()) -> &'arrays ()>,
}

impl<'arrays> Copies<'_, 'arrays> {
    /// Begins a copy from the host, of page-locked elements where copies are queued.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn send<T: Pod>(&self, src: &'arrays [T], dst: &'arrays Buffer<T>, offset: usize) -> Result<()> {
        self.lane.send(src, dst, offset)
    }

    /// Begins a copy to the host, to page-locked elements where copies are queued.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn fetch<T: Pod>(&self, src: &'arrays Buffer<T>, offset: usize, dst: &'arrays mut [T]) -> Result<()> {
        self.lane.fetch(src, offset, dst)
    }
}

/// Waits for a lane's copies, also where work panics.
struct Finish<'lane>(&'lane Lane);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        // The work's own error or panic is on its way.
        let _ = self.0.finish();
    }
}

impl Lane {
    /// Does work that begins copies, and waits for all of them.
    ///
    /// # Errors
    /// Those of the work, or if the device is lost.
    pub fn queued<'arrays, R>(&self, work: impl FnOnce(&Copies<'_, 'arrays>) -> Result<R>) -> Result<R> {
        let finish = Finish(self);
        let done = work(&Copies { lane: self, arrays: PhantomData })?;
        std::mem::forget(finish);
        self.finish().map(|()| done)
    }
}
