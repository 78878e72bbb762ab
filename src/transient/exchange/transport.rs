//! Transport of values from the part that owns rows to the part that reads them.

use crate::Result;
use crate::kernel::Number;
use crate::lane::{Buffer, Lane, ReceiveBuffer, SendBuffer};
use crate::ranks::MessageEnvelope;

/// Path of halo values from their owner to the reader's current iterate, one of two.
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
    /// Sends the values to another rank.
    ToRank { from: usize, len: usize, send: SendBuffer, to: MessageEnvelope },
    /// Receives the values from another rank.
    FromRank { to: usize, len: usize, receive: [ReceiveBuffer; 2], from: MessageEnvelope },
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
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len);
        let (send, receive) = (lanes[from].send_buffer(packed)?, [receive(x[0])?, receive(x[1])?]);
        Ok(Self::Host { from, to, len, send, receive })
    }

    /// Sends a whole array of a lane to another rank.
    pub(super) fn to_rank<T: Number>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        to: MessageEnvelope,
    ) -> Result<Self> {
        Ok(Self::ToRank { from, len: packed.len(), send: lanes[from].send_buffer(packed)?, to })
    }

    /// Receives from another rank into `len` elements from `first` on of two vectors on a lane.
    pub(super) fn from_rank<T: Number>(
        lanes: &[Lane],
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
        len: usize,
        from: MessageEnvelope,
    ) -> Result<Self> {
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len);
        Ok(Self::FromRank { to, len, receive: [receive(x[0])?, receive(x[1])?], from })
    }
}
