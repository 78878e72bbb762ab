//! Transport of values from the part that owns rows to the part that reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::kernel::Number;
use crate::lane::{Buffer, Lane, ReceiveBuffer, SendBuffer, Window};
use crate::ranks::Envelope;

/// Transport of values from their owner to either iterate of the reader.
///
/// `from` and `to` are numbers of lanes.
#[derive(Debug)]
pub(super) enum Transport {
    /// A kernel copies the values within a lane.
    SameLane,
    /// A kernel stores the values into the memory of another lane.
    Peer,
    /// The host copies the values between two lanes, from buffer to buffer or through a vector.
    Host { from: usize, to: usize, len: usize, send: SendBuffer, receive: [ReceiveBuffer; 2] },
    /// Sends the values to another rank, in a message, or in a window with a message that it is
    /// full.
    ToRank { from: usize, len: usize, send: SendBuffer, to: Envelope, window: Option<SharedWindow> },
    /// Receives the values from another rank.
    FromRank {
        to: usize,
        len: usize,
        receive: [ReceiveBuffer; 2],
        from: Envelope,
        window: Option<SharedWindow>,
    },
}

/// Window between two processes of a host, with the number of the next exchange through it.
#[derive(Debug)]
pub(super) struct SharedWindow {
    pub(crate) window: Arc<Window>,
    exchanges: AtomicU64,
}

impl SharedWindow {
    /// Returns the number of the current exchange through the window, and counts it.
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
    /// Sends a whole array of one lane to the elements from `first` on of two vectors on another
    /// lane.
    pub(super) fn through_host<T: Number>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
    ) -> Result<Self> {
        let len = packed.len();
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len, None);
        let (send, receive) = (lanes[from].send_buffer(packed, None)?, [receive(x[0])?, receive(x[1])?]);
        Ok(Self::Host { from, to, len, send, receive })
    }

    /// Sends a whole array of a lane to another rank.
    pub(super) fn to_rank<T: Number>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        to: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let send = lanes[from].send_buffer(packed, window.as_ref().map(|shared| &shared.window))?;
        Ok(Self::ToRank { from, len: packed.len(), send, to, window })
    }

    /// Receives from another rank into `len` elements from `first` on of two vectors on a lane.
    pub(super) fn from_rank<T: Number>(
        lanes: &[Lane],
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
        len: usize,
        from: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let shared = window.as_ref().map(|shared| &shared.window);
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len, shared);
        Ok(Self::FromRank { to, len, receive: [receive(x[0])?, receive(x[1])?], from, window })
    }
}
