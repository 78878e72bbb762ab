//! Memory that a run needs, checked before its work begins.

use crate::lane::cpu::expect_memory;
use crate::{Machine, Result};

/// Makes sure, before all states are looked at, that there is room for what every run needs: on the host the lengths,
/// the exit rates and a probability a state; on the lanes, one of which has an even share of the states or more, the
/// exit rates and two iterates.
///
/// # Errors
/// [`Error::OutOfMemory`] where there is not.
pub fn expect_chain_memory(machine: &Machine, states: usize) -> Result<()> {
    let n = (states / machine.ranks.size()) as u64;
    let number = machine.precision.bytes();
    let lanes = &machine.lanes;
    let share = 3 * number * n / lanes.len() as u64;
    lanes[0].expect_room(&format!("a chain of {n} states"), share)?;
    // Lanes on the host's cores have theirs from the same memory.
    let on_host = lanes.iter().filter(|lane| lane.device().on_host_cores()).count() as u64;
    expect_host_share(machine, states, on_host * share)
}

/// The part of [`expect_chain_memory`] that is about the host, of which lanes take so many bytes.
pub(crate) fn expect_host_share(machine: &Machine, states: usize, lanes: u64) -> Result<()> {
    expect_host_memory(states / machine.ranks.size(), machine.precision.bytes(), lanes)
}

/// Makes sure that there is room for what a run on `n` states has on the host, beside `lanes` bytes.
pub(crate) fn expect_host_memory(n: usize, number: u64, lanes: u64) -> Result<()> {
    expect_memory(n as u64 * (4 + 8 + number) + lanes, || format!("a chain of {n} states"))
}
