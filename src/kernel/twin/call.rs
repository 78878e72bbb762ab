//! Launches of CPU twins.

#![expect(unsafe_code, reason = "arrays are handed out of memory that launches share")]

use std::cell::Cell;
use std::sync::Arc;

use crate::kernel::{Binding, Number};

/// Launches of fewer items than this run on one thread: sharing them out would cost more than it saves.
pub(crate) const PARALLEL_ITEMS: usize = 8192;

/// Memory that launches share.
pub(crate) trait Memory: Send + Sync + std::fmt::Debug {
    /// Its bytes, at the same place for as long as it lives.
    fn bytes(&self) -> *mut [u8];

    /// A number that changes with the host's every write, and differs between all arrays.
    fn contents(&self) -> u64;
}

/// A twin with its arguments.
#[derive(Debug)]
pub(crate) struct Run {
    /// The twin.
    pub(crate) twin: fn(&Call<'_>),
    /// Threads of the kernel's workgroups.
    pub(crate) group: u32,
    /// Values of the kernel's constants.
    pub(crate) constants: &'static [(&'static str, f64)],
    /// Problem size.
    pub(crate) items: usize,
    /// The kernel's bindings.
    pub(crate) bindings: &'static [Binding],
    /// Memory of each.
    pub(crate) args: Vec<Arc<dyn Memory>>,
}

impl Run {
    /// Runs it as a step.
    ///
    /// # Safety
    /// Nobody else uses the memory meanwhile, and what the kernel writes is bound once.
    pub(crate) unsafe fn step(&self, params: &[u32], step: u64) {
        (self.twin)(&Call { launch: self, params, step: step as u32, taken: Cell::new((0, 0)) });
    }
}

/// The launch that a twin sees: the same parameters and bindings as the kernel's text.
#[derive(Debug)]
pub struct Call<'a> {
    launch: &'a Run,
    params: &'a [u32],
    step: u32,
    /// One bit an argument: handed out for reading, for writing.
    taken: Cell<(u32, u32)>,
}

impl<'a> Call<'a> {
    /// Problem size: rows, elements.
    pub fn items(&self) -> usize {
        self.launch.items
    }

    /// Threads of the kernel's workgroups.
    pub fn group(&self) -> u32 {
        self.launch.group
    }

    /// Whether the kernel is the variant with this constant.
    pub(crate) fn is(&self, constant: &str) -> bool {
        self.launch.constants.iter().any(|&(name, value)| name == constant && value != 0.0)
    }

    /// The kernel's parameters.
    pub(crate) fn params<P: bytemuck::Pod>(&self) -> P {
        let mut params = bytemuck::pod_read_unaligned(bytemuck::cast_slice(self.params));
        bytemuck::cast_slice_mut(bytemuck::bytes_of_mut(&mut params))[0] = self.step;
        params
    }

    /// Whether the launch is large enough to be shared out over threads.
    pub fn parallel(&self) -> bool {
        self.launch.items >= PARALLEL_ITEMS
    }

    /// A binding that the kernel reads.
    pub(crate) fn read<T: bytemuck::Pod>(&self, binding: usize) -> &'a [T] {
        let (read, written) = self.taken.get();
        assert!(written & (1 << binding) == 0, "binding {binding} is already written by this launch");
        self.taken.set((read | 1 << binding, written));
        // SAFETY: nobody else uses the memory (`Run::step`), which the launch keeps alive; this binding is not handed out for
        // writing (asserted), and no other that is written shares its memory (`Run::step`).
        bytemuck::cast_slice(unsafe { &*self.launch.args[binding].bytes() })
    }

    /// A number that stands for the contents of a binding that no kernel writes: equal contents of one array, and
    /// different numbers otherwise.
    pub fn contents<T>(&self, array: &[T]) -> u64 {
        let bound = self.launch.args.iter().find(|memory| memory.bytes().addr() == array.as_ptr().addr());
        bound.expect("the whole of a binding").contents()
    }

    /// A binding that the kernel writes.
    pub(crate) fn write<T: bytemuck::Pod>(&self, binding: usize) -> &'a mut [T] {
        let Binding { name, written, .. } = self.launch.bindings[binding];
        assert!(written, "{name} is not written");
        let (read, written) = self.taken.get();
        assert!((read | written) & (1 << binding) == 0, "binding {binding} is already in use by this launch");
        self.taken.set((read, written | 1 << binding));
        // SAFETY: as in `read`, and this binding is handed out once.
        bytemuck::cast_slice_mut(unsafe { &mut *self.launch.args[binding].bytes() })
    }
}

/// Applies `work` to blocks of at least 4096 elements of `out` (start of the block, block), on all threads if
/// the launch is large.
pub(crate) fn blocks<T: Number>(call: &Call<'_>, out: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    use crate::parallel::*;
    const BLOCK: usize = 1024;
    if call.parallel() {
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(i, block)| work(i * BLOCK, block));
    } else {
        work(0, out);
    }
}
