//! Messages of a build without MPI: there is nobody to send any to.

use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;

use super::Ranks;
use crate::Result;

/// The way of values from a lane of one rank to a lane of another, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The other rank.
    pub rank: usize,
    /// Its number among the ways between the two ranks in this direction.
    pub number: usize,
}

/// Messages under way: none.
#[derive(Debug)]
pub struct Post<'v>(PhantomData<&'v mut [u32]>);

impl<'v> Post<'v> {
    pub fn expect(&mut self, from: Envelope, _: &'v mut [u32]) {
        unreachable!("nothing comes from {from:?}")
    }

    pub fn send(&mut self, to: Envelope, _: &'v [u32]) {
        unreachable!("nothing goes to {to:?}")
    }

    pub fn arrived(&mut self, number: usize, _: &Wait<'_>) -> Result<&'v [u32]> {
        unreachable!("nothing has the number {number}")
    }
}

/// How a thread waits.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// Set when there is nothing to wait for any more.
    pub stop: &'a AtomicBool,
    /// Whether the thread may keep its core to itself.
    pub alone: bool,
}

/// Does work that sends and receives nothing, for which there is no waiting.
pub fn post<'v>(_: Ranks, wait: &Wait<'_>, work: impl FnOnce(&mut Post<'v>) -> Result<()>) -> Result<()> {
    let _ = (wait.stop, wait.alone);
    work(&mut Post(PhantomData))
}
