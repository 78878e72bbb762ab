//! Work of a lane: launches, programs of launches, and batches of launches and transfers.

use std::time::Duration;

use super::object::AnyObject;
#[cfg(any(feature = "wgpu", target_family = "wasm"))]
use super::{Arg, Device};
#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
use crate::kernel::Kernel;
#[cfg(any(feature = "wgpu", target_family = "wasm"))]
use crate::{Error, Limit, Result};

/// Target duration of a lane's work between two calls of the progress callback.
///
/// It is long enough to hide the cost of waking up, and short enough that an interruption takes
/// effect at once.
pub const PIECE: Duration = Duration::from_millis(70);

/// Maximum number of parameters of a kernel, including the step index, which is the first.
#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
const MOST_PARAMS: usize = 16;

/// A kernel with its arguments, which the lane that made it can run any number of times.
#[derive(Debug)]
pub struct Launch {
    pub(super) prepared: AnyObject,
    pub(super) params: Vec<u32>,
    pub(super) names: &'static [&'static str],
    pub(super) lane: u32,
}

impl Launch {
    /// Sets a parameter.
    ///
    /// # Panics
    /// If the kernel has no parameter of this name.
    pub fn set(&mut self, name: &str, value: u32) {
        let index = self.names.iter().position(|known| *known == name);
        let index = index.unwrap_or_else(|| panic!("no parameter {name} among {:?}", self.names));
        self.params[index] = value;
    }

    /// Returns the launch's parameters for the given step, padded with zeros.
    #[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
    pub(super) fn params_of(&self, step: u64) -> [u32; MOST_PARAMS] {
        let mut params = [0; MOST_PARAMS];
        params[..self.params.len()].copy_from_slice(&self.params);
        params[0] = step as u32;
        params
    }
}

/// Launches of a loop: step k runs `cycle[k mod cycle.len()]`, in order.
#[derive(Debug, Default)]
pub struct Program<'a> {
    /// Lists of launches, one for each step of the period.
    pub cycle: Vec<Vec<&'a Launch>>,
}

impl<'a> Program<'a> {
    pub(super) fn launches(&self, step: u64) -> &[&'a Launch] {
        &self.cycle[(step % self.cycle.len() as u64) as usize]
    }
}

/// Host buffer into which a batch copies an array of a lane, for the host to read.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    pub(super) staging: AnyObject,
    pub(super) lane: u32,
}

/// Host buffer for elements of an array that come from another lane or rank.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    pub(super) staging: AnyObject,
    pub(super) bytes: usize,
    pub(super) lane: u32,
}

/// Work for a lane, executed in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct LaneBatch<'a> {
    /// Buffers with received values, copied into their arrays before the launches.
    pub(crate) receives: Vec<&'a ReceiveBuffer>,
    /// Launches in their order, each with its step relative to the batch's first one.
    ///
    /// The steps ascend, except on a CPU.
    pub(crate) launches: Vec<(u64, &'a Launch)>,
    /// Buffers that are filled from their arrays after the launches.
    pub(crate) sends: Vec<&'a SendBuffer>,
    /// True if values received after this batch overwrite elements that its launches read.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "other lanes keep the order by themselves"))]
    pub(crate) before_receives: bool,
}

/// Returns the grid (columns, rows) of workgroups for `items` threads, with the fewest rows. No
/// dimension exceeds `most`.
#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
pub(super) fn grid(items: usize, kernel: &Kernel, most: u32) -> (u32, u32) {
    fold(items.div_ceil(kernel.group() as usize).max(1) as u64, most)
}

#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
fn fold(groups: u64, most: u32) -> (u32, u32) {
    let rows = groups.div_ceil(u64::from(most));
    let columns = groups.div_ceil(rows);
    assert!(rows <= u64::from(most), "{groups} workgroups do not fit a grid of {most} by {most}");
    (columns as u32, rows as u32)
}

/// Returns an error if an argument exceeds the largest binding.
#[cfg(any(feature = "wgpu", target_family = "wasm"))]
pub(super) fn expect_bindings(device: &Device, kernel: &Kernel, args: &[Arg<'_>]) -> Result<()> {
    let most = device.limits.binding;
    match args.iter().find(|arg| arg.bytes > most) {
        None => Ok(()),
        Some(arg) => {
            let what = format!("an array of kernel '{}'", kernel.name);
            let limit = Limit::Allocation(format!("its largest binding is {most} bytes"));
            Err(Error::memory(&device.label(), what, arg.bytes, limit))
        }
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests {
    use super::fold;

    #[test]
    fn a_folded_grid_covers_every_group_and_wastes_less_than_one_row() {
        for groups in [1, 2, 65_535, 65_536, 140_625, 1 << 30] {
            let (columns, rows) = fold(groups, 65_535);

            let covered = u64::from(columns) * u64::from(rows);
            assert!(columns <= 65_535 && rows <= 65_535, "{columns} x {rows}");
            assert!(covered >= groups && covered - groups < u64::from(rows), "{groups}: {covered}");
        }
    }
}
