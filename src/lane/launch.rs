//! Kernels with their arguments, and loops of them.

use std::time::Duration;

use super::backend::{AnyLaunch, Backend, In, Watch, on};
use super::{Arg, Lane, fault};
use crate::Result;
use crate::kernel::{Arguments, Kernel, Precision};

/// How long a lane works between two looks at the watch: long enough to hide the cost of waking up, short
/// enough that an interruption is noticed at once.
pub const PIECE: Duration = Duration::from_millis(70);

/// Most parameters that a kernel has, its step among them.
#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
const MOST_PARAMS: usize = 16;

/// A kernel with its arguments, ready to run any number of times on the lane that made it.
#[derive(Debug)]
pub struct Launch {
    pub(super) prepared: AnyLaunch,
    pub(super) params: Vec<u32>,
    /// Those of the parameters.
    names: &'static [&'static str],
    /// Number of that lane.
    pub(super) lane: u32,
}

impl Launch {
    /// Changes a parameter.
    ///
    /// # Panics
    /// If the kernel has none of this name.
    pub fn set(&mut self, name: &str, value: u32) {
        let index = self.names.iter().position(|known| *known == name);
        let index = index.unwrap_or_else(|| panic!("no parameter {name} among {:?}", self.names));
        self.params[index] = value;
    }

    /// The parameters of a step, and zeros behind them.
    #[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
    pub(super) fn params_of(&self, step: u64) -> [u32; MOST_PARAMS] {
        let mut params = [0; MOST_PARAMS];
        params[..self.params.len()].copy_from_slice(&self.params);
        params[0] = step as u32;
        params
    }
}

/// The launches of a long loop: step k runs `cycle[k mod cycle.len()]`, in order.
#[derive(Debug, Default)]
pub struct Program<'a> {
    /// Launches of each step of a period.
    pub cycle: Vec<Vec<&'a Launch>>,
}

impl<'a> Program<'a> {
    pub(super) fn launches(&self, step: u64) -> &[&'a Launch] {
        &self.cycle[(step % self.cycle.len() as u64) as usize]
    }
}

impl Lane {
    /// Prepares a launch of `kernel` on a problem of `items` rows or elements. Of its parameters the step is set by each
    /// run. Arrays that it writes are different from all others.
    ///
    /// # Panics
    /// If parameters and arguments are those of another kernel or not as many as it has, numbers of an argument are of
    /// another type, memory that is written is bound twice, or memory belongs to a lane that this one does not reach.
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
            prepared: on!(self, lane => lane.bind(kernel, precision, items, &args)?.any()),
            params: params.to_vec(),
            names,
            lane: self.number(),
        })
    }

    /// Asserts what the lanes' unsafe code relies on: see [`Lane::bind`].
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

    /// Whether kernels of this lane may be given memory of another: CUDA devices reach each other's.
    fn reaches(&self, arg: &Arg<'_>) -> bool {
        on!(self, lane => In::of(arg.memory).is_some_and(|memory| lane.reaches_memory(memory)))
    }

    /// Runs steps `first .. first + count` of a program and waits for them. Every [`PIECE`], and at the end,
    /// `watch` gets the number of steps done so far; its error stops the run.
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
        match fault::steps(self.device(), count) {
            Some((before, lost)) => steps(before, watch).and(Err(lost)),
            None => steps(count, watch),
        }
    }

    /// Runs each launch once, in order, as step `step`, and waits for them.
    pub fn launch(&self, launches: &[&Launch], step: u64) -> Result<()> {
        self.run(&Program { cycle: vec![launches.to_vec()] }, step, 1, &mut |_| Ok(()))
    }

    /// Puts launches into the queue, as step 0. Where copies are queued it does not wait.
    pub(crate) fn enqueue(&self, launches: &[&Launch]) -> Result<()> {
        if !self.device().queued_copies {
            return self.launch(launches, 0);
        }
        let launches = launches.iter().map(|&launch| (0, launch)).collect();
        self.submit(&super::Batch { launches, ..Default::default() }, 0)
    }
}

/// A grid of enough workgroups for `items` threads, as square as a limit of `most` in one dimension asks for.
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
