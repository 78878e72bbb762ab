//! Messages of a build without MPI: there is nobody to send any to.

use std::marker::PhantomData;

use super::{Envelope, Ranks, Wait};
use crate::Result;

/// Messages under way: none.
#[derive(Debug)]
pub struct Messages<'s, 'v>(PhantomData<(&'s (), &'v mut [u32])>);

impl<'v> Messages<'_, 'v> {
    /// Lets a message come.
    pub fn receive(&mut self, from: Envelope, _: &'v mut [u32]) {
        unreachable!("nothing comes from {from:?}")
    }

    /// Sends values.
    pub fn send(&mut self, to: Envelope, _: &'v [u32]) {
        unreachable!("nothing goes to {to:?}")
    }

    /// Waits for the values of the next receive.
    pub fn wait_received(&mut self) -> Result<&'v [u32]> {
        unreachable!("nothing was to come")
    }
}

/// Does work that sends and receives nothing, for which there is no waiting.
pub fn with_messages<'v>(
    _: Ranks,
    wait: Wait<'_>,
    work: impl FnOnce(&mut Messages<'_, 'v>) -> Result<()>,
) -> Result<()> {
    let _ = (wait.stop, wait.spin);
    work(&mut Messages(PhantomData))
}
