//! Placeholder for messages in a build without MPI, which has only one rank.

use std::marker::PhantomData;

use super::{MessageEnvelope, Ranks, Wait};
use crate::Result;

/// Pending messages; there are none.
#[derive(Debug)]
pub struct Messages<'s, 'v>(PhantomData<(&'s (), &'v mut [u32])>);

impl<'v> Messages<'_, 'v> {
    /// Starts a receive; never called.
    pub fn receive(&mut self, from: MessageEnvelope, _: &'v mut [u32]) {
        unreachable!("nothing comes from {from:?}")
    }

    /// Starts a send; never called.
    pub fn send(&mut self, to: MessageEnvelope, _: &'v [u32]) {
        unreachable!("nothing goes to {to:?}")
    }

    /// Waits for the next receive; never called.
    pub fn wait_received(&mut self) -> Result<&'v [u32]> {
        unreachable!("nothing was to come")
    }
}

/// Runs `work`, which sends and receives nothing.
pub fn with_messages<'v>(
    _: Ranks,
    wait: Wait<'_>,
    work: impl FnOnce(&mut Messages<'_, 'v>) -> Result<()>,
) -> Result<()> {
    let _ = (wait.stop, wait.spin);
    work(&mut Messages(PhantomData))
}
