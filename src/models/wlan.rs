//! Two wireless devices on one channel, with bounded queues and binary exponential back-off.

use crate::sparse::Repeat;
use crate::transient::chain::transitions::Transitions;

/// Rate of a source from off to on.
const TURN_ON: f64 = 0.05;
/// Rate of a source from on to off.
const TURN_OFF: f64 = 0.10;
/// Arrival rate of packets while the source is on.
const ARRIVAL: f64 = 0.2;
/// Rate of attempts at back-off stage 0, about one in half a window of 32 slots of 20 µs.
const ATTEMPT: f64 = 3.2;
/// Rate at which the other device senses a started transmission: one slot of 20 µs.
const SENSE: f64 = 50.0;
/// Rate μ at which an undisturbed transmission ends.
const TRANSMISSION: f64 = 0.7;
/// Probability pe that an undisturbed transmission ends with an error.
const ERROR: f64 = 0.1;
/// Rate γ at which a collision ends.
const COLLISION: f64 = 0.7;

/// Rate at which an undisturbed transmission ends successfully.
const SUCCESS: f64 = TRANSMISSION * (1.0 - ERROR);
/// Rate at which an undisturbed transmission ends with an error.
const FAILURE: f64 = TRANSMISSION * ERROR;
/// Rate at which a packet leaves at the last back-off stage: success plus error, in this order.
const EITHER: f64 = SUCCESS + FAILURE;

/// Marks a missing local state.
const NONE: u32 = u32::MAX;

/// Channel states; their order is that in the numbering of the chain's states, see [`Wlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    /// Idle.
    I,
    /// Device 1 has begun to transmit; device 2 has not yet sensed it.
    V1,
    /// Device 2 has begun to transmit; device 1 has not yet sensed it.
    V2,
    /// Device 1 transmits alone.
    T1,
    /// Device 2 transmits alone.
    T2,
    /// Collision of two transmissions.
    C,
}

const CHANNELS: [Channel; 6] = [Channel::I, Channel::V1, Channel::V2, Channel::T1, Channel::T2, Channel::C];

impl Channel {
    /// True if device 2 has a packet in all states with this channel.
    fn needs_second(self) -> bool {
        matches!(self, Self::V2 | Self::T2 | Self::C)
    }
}

/// Two devices d = 1, 2 on one channel; rates per ms.
///
/// A device has q in 0 … K packets queued, is at back-off stage s in 0 … S−1, and its source is off
/// or on, a in {0, 1}. An empty queue is at stage 0. The M + 2 local states, M = 2KS, are numbered
/// x = a for q = 0 and x = 2 + ((q−1)·S + s)·2 + a otherwise. The channel is I, V1, V2, T1, T2 or
/// C. V1, T1 and C need q₁ ≥ 1; V2, T2 and C need q₂ ≥ 1. States are ordered by (x₁, channel, x₂);
/// n = 6M² + 12M + 4.
///
/// | transition | when | rate |
/// |---|---|---|
/// | a_d: 0 → 1, 1 → 0 | | 0.05, 0.1 |
/// | q_d + 1 | a_d = 1, q_d < K | 0.2 |
/// | I → V_d | q_d ≥ 1 | β(s_d) = 3.2 / 2^s_d |
/// | V_d → T_d | | 50 |
/// | V_d → C | q ≥ 1 of the other device | β(s) of the other device |
/// | T_d → I, success: q_d − 1, s_d = 0 | | 0.7·0.9 |
/// | T_d → I, error: s_d + 1, or q_d − 1, s_d = 0 if s_d = S−1 | | 0.7·0.1 |
/// | C → I, error of both | | 0.7 |
///
/// An error at stage S−1 drops the packet. Rows are generated from these closed forms and from
/// tables over the local states, about as fast as they can be written.
#[derive(Debug, Clone)]
pub(super) struct Wlan {
    /// Number M = 2KS of local states of a device with a nonempty queue (q ≥ 1 packets).
    m: u32,
    /// Number S of back-off stages.
    stages: u32,
    /// Number of states for each x₁ < 2 (empty first queue): channels I, V2 and T2.
    empty_block: u32,
    /// Number of states for each x₁ ≥ 2 (packets in the first queue): all channels.
    block: u32,
    /// Place of x₂ = 0 of each channel in a block, or [`NONE`], for an empty and a nonempty queue.
    offsets: [[u32; 6]; 2],
    local: Vec<Local>,
}

/// Rates and neighbours of a device's local state, from which rows are generated.
#[derive(Debug, Clone, Copy)]
struct Local {
    /// Attempt rate β of the stage; 0 if the queue is empty.
    attempt: f64,
    /// Rate at which the source changes (on or off) and leaves this local state.
    toggle: f64,
    /// Rate at which the source changes (on or off) and enters this local state.
    toggled: f64,
    /// Local state after an arrival, or [`NONE`].
    arrival: u32,
    /// Local state before an arrival, or [`NONE`].
    arrived: u32,
    /// Local state after the first packet has left; [`NONE`] without a packet.
    done: u32,
    /// Local state after an error; [`NONE`] without a packet.
    fail: u32,
    /// Local state at stage 0 that a success turns into this one, or [`NONE`].
    ///
    /// The local states at later stages follow at distance 2.
    first_done: u32,
    /// Only local state from which an error leads to this one, or [`NONE`].
    failed: u32,
}

impl Local {
    fn new(x: u32, queue: u32, stages: u32) -> Self {
        let place = |q: u32, s: u32, a: u32| {
            if q == 0 { a } else { 2 + ((q - 1) * stages + s) * 2 + a }
        };
        let a = x % 2;
        let (q, s) = if x < 2 { (0, 0) } else { ((x - 2) / 2 / stages + 1, (x - 2) / 2 % stages) };
        let done = if q > 0 { place(q - 1, 0, a) } else { NONE };
        let (on, off) = (a == 1, a == 0);
        Self {
            attempt: if q > 0 { ATTEMPT * 0.5f64.powi(s as i32) } else { 0.0 },
            toggle: if on { TURN_OFF } else { TURN_ON },
            toggled: if off { TURN_OFF } else { TURN_ON },
            arrival: if on && q < queue { place(q + 1, s, a) } else { NONE },
            // An empty queue is at stage 0 only, so a first packet arrives there only.
            arrived: if on && (q > 1 || q == 1 && s == 0) { place(q - 1, s, a) } else { NONE },
            done,
            fail: if q > 0 && s + 1 < stages { place(q, s + 1, a) } else { done },
            first_done: if s == 0 && q < queue { place(q + 1, 0, a) } else { NONE },
            failed: if s > 0 {
                place(q, s - 1, a)
            } else if q < queue {
                place(q + 1, stages - 1, a)
            } else {
                NONE
            },
        }
    }
}

impl Wlan {
    /// Largest S for which every β is a normal number.
    pub(super) const MAX_STAGES: u64 = 1023;

    /// Creates the chain with queues of K = `queue` ≥ 1 packets.
    ///
    /// S = `stages` is in 1 … [`Self::MAX_STAGES`]. The caller has checked that n < 2³² − 1.
    pub(super) fn new(queue: usize, stages: usize) -> Self {
        let (queue, stages) = (queue as u32, stages as u32);
        let m = 2 * queue * stages;
        Self {
            m,
            stages,
            empty_block: 3 * m + 2,
            block: 6 * m + 6,
            offsets: [
                [0, NONE, m, NONE, 2 * m, NONE],
                [0, m + 2, 2 * m + 2, 3 * m + 4, 4 * m + 4, 5 * m + 4],
            ],
            local: (0..m + 2).map(|x| Local::new(x, queue, stages)).collect(),
        }
    }

    /// Returns the index of the state with local states x₁ and x₂ of the two devices.
    ///
    /// V1, T1 and C need x₁ ≥ 2, and V2, T2 and C need x₂ ≥ 2.
    fn index(&self, x1: u32, channel: Channel, x2: u32) -> u32 {
        let first = if x1 < 2 { x1 * self.empty_block } else { 2 * self.empty_block + (x1 - 2) * self.block };
        let offset = self.offsets[usize::from(x1 >= 2)][channel as usize];
        debug_assert!(offset != NONE, "{channel:?} with an empty queue, x1 = {x1}");
        first + offset + x2
    }

    /// Returns device 1's local state x₁, the channel, and device 2's x₂ for the index `state`.
    fn decode(&self, state: usize) -> (u32, Channel, u32) {
        debug_assert!(state < self.states(), "state {state} of {}", self.states());
        let state = state as u32;
        let (x1, place) = match state.checked_sub(2 * self.empty_block) {
            None => (state / self.empty_block, state % self.empty_block),
            Some(rest) => (2 + rest / self.block, rest % self.block),
        };
        let offsets = &self.offsets[usize::from(x1 >= 2)];
        let begins = |&(channel, offset): &(Channel, u32)| {
            let least = if channel.needs_second() { 2 } else { 0 };
            offset != NONE && offset + least <= place
        };
        let (channel, offset) = CHANNELS.into_iter().zip(*offsets).rev().find(begins).expect("I begins at 0");
        (x1, channel, place - offset)
    }

    /// Lists the local states that the end of an undisturbed transmission turns into `to`.
    ///
    /// Calls `source` with each of them, ascending, and with the rate.
    fn ended(&self, to: &Local, mut source: impl FnMut(u32, f64)) {
        if to.first_done != NONE {
            for stage in 0..self.stages - 1 {
                source(to.first_done + 2 * stage, SUCCESS);
            }
            source(to.first_done + 2 * (self.stages - 1), EITHER);
        } else if to.failed != NONE {
            // Later stage: an error at the stage before. (Nothing leads to stage 0 of a full
            // queue.)
            source(to.failed, FAILURE);
        }
    }
}

impl Transitions for Wlan {
    fn states(&self) -> usize {
        let m = self.m as usize;
        6 * m * m + 12 * m + 4
    }

    /// Returns the states with repeating rows: first queue neither nearly empty nor full.
    fn repeats(&self) -> Vec<Repeat> {
        let (queue, local) = ((self.m / 2 / self.stages) as usize, 2 * self.stages as usize);
        let period = local * self.block as usize;
        let first = |q: usize| 2 * self.empty_block as usize + (q - 1) * period;
        match queue {
            0..7 => Vec::new(),
            // Queues change by one packet.
            _ => vec![Repeat { rows: first(4)..first(queue - 2), period, reach: 2 * period }],
        }
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        use Channel::{C, I, T1, T2, V1, V2};
        let (x1, channel, x2) = self.decode(state);
        let (d1, d2) = (&self.local[x1 as usize], &self.local[x2 as usize]);
        // Blocks of x₁ in ascending order: before an arrival, before an error at an earlier stage,
        // the source's change (x₁ ^ 1 is next to x₁), this block, and the states with one packet
        // more.
        let needs1 = matches!(channel, V1 | T1 | C);
        if d1.arrived != NONE && !(needs1 && d1.arrived < 2) {
            row.push((self.index(d1.arrived, channel, x2), ARRIVAL));
        }
        let collided = |row: &mut Vec<(u32, f64)>| {
            if d2.failed != NONE {
                row.push((self.index(d1.failed, C, d2.failed), COLLISION));
            }
        };
        if channel == I && d1.first_done == NONE && d1.failed != NONE {
            row.push((self.index(d1.failed, T1, x2), FAILURE));
            collided(row);
        }
        if x1 % 2 == 1 {
            row.push((self.index(x1 ^ 1, channel, x2), d1.toggled));
        }
        match channel {
            I => {}
            V1 => row.push((self.index(x1, I, x2), d1.attempt)),
            V2 => row.push((self.index(x1, I, x2), d2.attempt)),
            T1 => row.push((self.index(x1, V1, x2), SENSE)),
            T2 => row.push((self.index(x1, V2, x2), SENSE)),
            C => {
                row.push((self.index(x1, V1, x2), d2.attempt));
                row.push((self.index(x1, V2, x2), d1.attempt));
            }
        }
        if d2.arrived != NONE && !(channel.needs_second() && d2.arrived < 2) {
            row.push((self.index(x1, channel, d2.arrived), ARRIVAL));
        }
        row.push((self.index(x1, channel, x2 ^ 1), d2.toggled));
        if channel == I {
            let base = self.index(x1, T2, 2) - 2;
            self.ended(d2, |x2, rate| row.push((base + x2, rate)));
        }
        if x1.is_multiple_of(2) {
            row.push((self.index(x1 ^ 1, channel, x2), d1.toggled));
        }
        if channel == I && d1.first_done != NONE {
            self.ended(d1, |x1, rate| row.push((self.index(x1, T1, x2), rate)));
            collided(row);
        }
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        use Channel::{C, I, T1, T2, V1, V2};
        let start = row.len();
        let (x1, channel, x2) = self.decode(state);
        let (d1, d2) = (&self.local[x1 as usize], &self.local[x2 as usize]);
        let mut to = |x1, channel, x2, rate| row.push((self.index(x1, channel, x2), rate));
        to(x1 ^ 1, channel, x2, d1.toggle);
        to(x1, channel, x2 ^ 1, d2.toggle);
        if d1.arrival != NONE {
            to(d1.arrival, channel, x2, ARRIVAL);
        }
        if d2.arrival != NONE {
            to(x1, channel, d2.arrival, ARRIVAL);
        }
        match channel {
            I => {
                if x1 >= 2 {
                    to(x1, V1, x2, d1.attempt);
                }
                if x2 >= 2 {
                    to(x1, V2, x2, d2.attempt);
                }
            }
            V1 => {
                to(x1, T1, x2, SENSE);
                if x2 >= 2 {
                    to(x1, C, x2, d2.attempt);
                }
            }
            V2 => {
                to(x1, T2, x2, SENSE);
                if x1 >= 2 {
                    to(x1, C, x2, d1.attempt);
                }
            }
            T1 if d1.done == d1.fail => to(d1.done, I, x2, EITHER),
            T1 => {
                to(d1.done, I, x2, SUCCESS);
                to(d1.fail, I, x2, FAILURE);
            }
            T2 if d2.done == d2.fail => to(x1, I, d2.done, EITHER),
            T2 => {
                to(x1, I, d2.done, SUCCESS);
                to(x1, I, d2.fail, FAILURE);
            }
            C => to(d1.fail, I, d2.fail, COLLISION),
        }
        row[start..].sort_unstable_by_key(|&(target, _)| target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rates() {
        let chain = Wlan::new(6, 6);
        let mut exits = vec![0.0; chain.states()];
        chain.exit_rates(0..chain.states(), &mut exits);
        // V_d → T_d, sources on with non-full queues, and an attempt of the second device at stage
        // 0.
        assert_eq!(exits.iter().copied().fold(0.0, f64::max), 53.8);
        // Two empty queues and sources off.
        assert_eq!(exits.iter().copied().fold(f64::INFINITY, f64::min), 0.1);
        assert_eq!(exits[0], 0.1);
        let (mut rates, mut longest, mut row) = (HashSet::new(), 0, Vec::new());
        for state in 0..chain.states() {
            let row = chain.entering(state, &mut row);
            longest = longest.max(row.len());
            rates.extend(row.iter().map(|&(_, rate)| rate.to_bits()));
        }
        // 0.05, 0.07, 0.1 (also β₅), 0.2 (also β₄), 0.4, 0.63, 0.7 (γ, and all ends at the last
        // stage), 0.8, 1.6, 3.2, 50.
        assert_eq!(rates.len(), 11);
        // Source changes and arrivals of two devices, six ends of each transmission, a collision.
        assert_eq!(longest, 17);
    }

    #[test]
    fn a_state_by_hand() {
        // K = 1, S = 2: M = 4, blocks of 14 (x₁ = 0, 1) and 30 states. Collision of two devices at
        // q = 1, s = 1, a = 0 (x = 4).
        let chain = Wlan::new(1, 2);
        let state = chain.index(4, Channel::C, 4);
        assert_eq!(state, 2 * 14 + 2 * 30 + 26 + 2);
        let row = &mut Vec::new();
        // Two packets are dropped (x = 0), or a source turns on (x = 5).
        let wanted = [(0, 0.7), (state + 1, 0.05), (state + 30, 0.05)];
        assert_eq!(chain.leaving(state as usize, row), wanted);
        let (v1, v2) = (chain.index(4, Channel::V1, 4), chain.index(4, Channel::V2, 4));
        let wanted = [(v1, 1.6), (v2, 1.6), (state + 1, 0.1), (state + 30, 0.1)];
        assert_eq!(chain.entering(state as usize, row), wanted);
    }
}
