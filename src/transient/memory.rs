//! Memory requirements of a run, checked before its work begins.

use crate::util::memory::expect_memory;
use crate::{Machine, Result};

/// Checks that the memory suffices for a run, before any state is read.
///
/// On the host a run needs the row lengths, exit rates and one probability per state. On the lanes
/// it needs the exit rates and two iterates; some lane has at least an even share of the states.
/// Fails with `Error::OutOfMemory`.
pub fn expect_chain_memory(machine: &Machine, states: usize) -> Result<()> {
    let n = (states / machine.ranks.size()) as u64;
    let number = machine.precision.bytes();
    let lanes = &machine.lanes;
    let share = 3 * number * n / lanes.len() as u64;
    lanes[0].expect_room(&format!("a chain of {n} states"), share)?;
    // Lanes on the host's cores allocate from the host's memory.
    let on_host = lanes.iter().filter(|lane| lane.device().on_host_cores()).count() as u64;
    expect_host_share(machine, states, on_host * share)
}

/// Checks the host memory of a run on `machine`; `lanes` is the number of bytes that its lanes
/// take.
pub(crate) fn expect_host_share(machine: &Machine, states: usize, lanes: u64) -> Result<()> {
    expect_host_memory(states / machine.ranks.size(), machine.precision.bytes(), lanes)
}

/// Checks that the host has `lanes` bytes, and memory for a run on `n` states.
///
/// `number` is the size of a probability in bytes.
pub(crate) fn expect_host_memory(n: usize, number: u64, lanes: u64) -> Result<()> {
    expect_memory(n as u64 * (4 + 8 + number) + lanes, || format!("a chain of {n} states"))
}
