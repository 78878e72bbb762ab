//! Launches of kernels with their arguments, and programs of launches.

use std::time::Duration;

use super::backend::{Backend, Watch, on};
use super::object::AnyObject;
use super::{Arg, Lane, fault_injection};
use crate::Result;
use crate::kernel::{Arguments, Kernel, Precision};

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
    names: &'static [&'static str],
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

impl Lane {
    /// Prepares a launch of `kernel` on a problem of `items` rows or elements.
    ///
    /// Each run sets the parameter `step`. An array that the kernel writes must not be bound twice.
    ///
    /// # Panics
    /// * Parameters or arguments are those of another kernel, or their number is wrong.
    /// * The numbers of an argument have the wrong type.
    /// * Memory that is written is bound twice.
    /// * Memory belongs to another lane and this one cannot access it.
    pub(crate) fn bind<'a, A: Arguments<Arg<'a>>>(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        params: A::Params,
        args: A,
    ) -> Result<Launch> {
        assert_eq!(A::KERNEL, kernel.name, "the kernel whose arguments are bound, and the kernel");
        let args = args.list();
        self.assert_interface(kernel, precision, &args);
        let params: &[u32] = bytemuck::cast_slice(bytemuck::bytes_of(&params));
        let names = kernel.interface.params;
        assert_eq!(params.len(), names.len(), "parameters of kernel '{}', {names:?}", kernel.name);
        Ok(Launch {
            prepared: on!(self, lane => AnyObject::new(lane.bind(kernel, precision, items, &args)?)),
            params: params.to_vec(),
            names,
            lane: self.number(),
        })
    }

    /// Asserts the properties that unsafe code of lanes relies on: see [`Lane::bind`].
    #[track_caller]
    fn assert_interface(&self, kernel: &Kernel, precision: Precision, args: &[Arg<'_>]) {
        let (name, bindings, own) = (kernel.name, kernel.interface.bindings(precision), self.number());
        assert_eq!(args.len(), bindings.len(), "arguments of kernel '{name}'");
        for (i, (arg, binding)) in args.iter().zip(bindings).enumerate() {
            let what = || format!("argument {i} of kernel '{name}', {}", binding.name);
            assert!(
                arg.lane == own || self.reaches(arg),
                "{}, is memory of lane {}, bound on lane {own} ({})",
                what(),
                arg.lane,
                self.device().spec
            );
            let (given, wanted) = (arg.scalar, (binding.scalar)());
            assert!(
                given.is_none() || wanted.is_none() || given == wanted,
                "{}, holds {given:?}, not {wanted:?}",
                what()
            );
            let twice = (0..args.len()).find(|&k| k != i && self.is_same(args[k].memory, arg.memory));
            if let Some(k) = twice.filter(|_| binding.written) {
                panic!("{}, is written and is argument {k}, {}, as well", what(), bindings[k].name);
            }
        }
    }

    /// Returns true if kernels of this lane can access another lane's memory (CUDA peer access).
    fn reaches(&self, arg: &Arg<'_>) -> bool {
        on!(self, lane => arg.memory.get().is_some_and(|memory| lane.reaches_memory(memory)))
    }

    /// Runs steps `first .. first + count` of a program and waits for them.
    ///
    /// Every [`PIECE`], and at the end, `watch` gets the number of steps done so far; its error
    /// stops the run.
    pub fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        assert!(first + count <= u64::from(u32::MAX), "steps are counted in 32 bits: {first} + {count}");
        program.cycle.iter().flatten().for_each(|launch| self.assert_own("a launch", launch.lane));
        let steps = |count: u64, watch: Watch<'_>| on!(self, lane => lane.run(program, first, count, watch));
        match fault_injection::steps(self.device(), count) {
            Some((before, lost)) => steps(before, watch).and(Err(lost)),
            None => steps(count, watch),
        }
    }

    /// Runs each launch once, in order, with `step` as its step number, and waits for them.
    pub fn launch(&self, launches: &[&Launch], step: u64) -> Result<()> {
        self.run(&Program { cycle: vec![launches.to_vec()] }, step, 1, &mut |_| Ok(()))
    }

    /// Enqueues launches with step number 0. With `Device::queued_copies` it does not wait.
    pub(crate) fn enqueue(&self, launches: &[&Launch]) -> Result<()> {
        if !self.device().queued_copies {
            return self.launch(launches, 0);
        }
        let launches = launches.iter().map(|&launch| (0, launch)).collect();
        self.submit(&super::Batch { launches, ..Default::default() }, 0)
    }
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
