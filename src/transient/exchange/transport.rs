//! The transport of values from the rows of one part to another that reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::kernel::Number;
use crate::lane::{Buffer, Lane, ReceiveBuffer, SendBuffer, Window};
use crate::ranks::Envelope;

/// The transport of values from their owner to either iterate of the reader. `from` and `to` are numbers of lanes.
#[derive(Debug)]
pub(super) enum Transport {
    /// A kernel copies them within a lane.
    SameLane,
    /// A kernel stores them into memory of another lane.
    Peer,
    /// The host copies them between two lanes, from one buffer to the other or through a vector.
    Host { from: usize, to: usize, len: usize, send: SendBuffer, receive: [ReceiveBuffer; 2] },
    /// They go to another rank: in a message, or in a window of which a message says that it is full.
    ToRank { from: usize, len: usize, send: SendBuffer, to: Envelope, window: Option<SharedWindow> },
    /// They come from another rank.
    FromRank {
        to: usize,
        len: usize,
        receive: [ReceiveBuffer; 2],
        from: Envelope,
        window: Option<SharedWindow>,
    },
}

/// A window between two processes of a host, and the number of the next exchange through it.
#[derive(Debug)]
pub(super) struct SharedWindow {
    pub(crate) window: Arc<Window>,
    exchanges: AtomicU64,
}

impl SharedWindow {
    /// The number of this exchange.
    pub(crate) fn next(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed)
    }
}

impl From<Window> for SharedWindow {
    fn from(window: Window) -> Self {
        Self { window: Arc::new(window), exchanges: AtomicU64::new(0) }
    }
}

impl Transport {
    /// From all of an array on one lane to places from `first` on of two vectors on another.
    pub(super) fn through_host<T: Number>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
    ) -> Result<Self> {
        let len = packed.len();
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len);
        let (send, receive) = (lanes[from].send_buffer(packed)?, [receive(x[0])?, receive(x[1])?]);
        Ok(Self::Host { from, to, len, send, receive })
    }

    /// From all of an array on a lane to another rank.
    pub(super) fn to_rank<T: Number>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        to: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let send = match &window {
            Some(shared) => lanes[from].send_buffer_in(packed, &shared.window)?,
            None => lanes[from].send_buffer(packed)?,
        };
        Ok(Self::ToRank { from, len: packed.len(), send, to, window })
    }

    /// From another rank to `len` places from `first` on of two vectors on a lane.
    pub(super) fn from_rank<T: Number>(
        lanes: &[Lane],
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
        len: usize,
        from: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let receive = |x: &Buffer<T>| match &window {
            Some(shared) => lanes[to].receive_buffer_in(x, first, len, &shared.window),
            None => lanes[to].receive_buffer(x, first, len),
        };
        Ok(Self::FromRank { to, len, receive: [receive(x[0])?, receive(x[1])?], from, window })
    }
}
