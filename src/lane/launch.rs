//! Launches of kernels with their arguments on a lane.

use super::backend::{Backend, OnStep};
use super::backends::on;
use super::object::AnyObject;
use super::{Arg, Lane, LaneBatch, Launch, Program, fault_injection};
use crate::Result;
use crate::kernel::{Arguments, Kernel, Precision};

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
            prepared: self.prepared(kernel, precision, items, &args)?,
            params: params.to_vec(),
            names,
            lane: self.number(),
        })
    }

    /// Prepares a launch for [`Lane::bind`]. In a generic function the compiler would spend 6 s on
    /// whether the types of wgpu are `Send` and `Sync`.
    fn prepared(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<AnyObject> {
        on!(self, lane => Ok(AnyObject::new(lane.bind(kernel, precision, items, args)?)))
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
    /// Every [`PIECE`](super::PIECE), and at the end, `watch` gets the number of steps done so far;
    /// its error stops the run.
    pub fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        assert!(first + count <= u64::from(u32::MAX), "steps are counted in 32 bits: {first} + {count}");
        program.cycle.iter().flatten().for_each(|launch| self.assert_own("a launch", launch.lane));
        let steps = |count: u64, watch: OnStep<'_>| on!(self, lane => lane.run(program, first, count, watch));
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
        self.submit(&LaneBatch { launches, ..Default::default() }, 0)
    }
}
