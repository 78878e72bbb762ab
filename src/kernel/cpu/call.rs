//! Launches of CPU implementations.

#![expect(unsafe_code, reason = "arrays are handed out of memory that launches share")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gather::Columns;
use crate::kernel::{Binding, Number, Scalar};
use crate::parallel::*;

/// Minimum number of items (rows or elements) of a launch that uses several threads. Smaller
/// launches cost more to distribute than they save.
pub(crate) const PARALLEL_ITEMS: usize = 8192;

/// Memory of an array that launches bind as an argument.
pub(crate) trait BindingMemory: Send + Sync + std::fmt::Debug {
    /// Returns the bytes, which stay at one address for the lifetime of the memory.
    fn bytes(&self) -> *mut [u8];

    /// Returns a version number: every write by the host changes it, and no two arrays share one.
    fn contents(&self) -> u64;

    /// Largest column and index among the words, see [`Call::columns`]; every write by a lane sets
    /// it to 0 (unknown).
    fn largest(&self) -> &AtomicU64;
}

/// A CPU implementation with its arguments.
#[derive(Debug)]
pub(crate) struct BoundKernel {
    pub(crate) kernel: fn(&Call<'_>),
    /// Number of threads in a workgroup.
    pub(crate) group: u32,
    /// Values of the kernel's `override` constants.
    pub(crate) constants: &'static [(&'static str, f64)],
    /// Problem size: rows or elements.
    pub(crate) items: usize,
    pub(crate) bindings: &'static [Binding],
    pub(crate) args: Vec<Arc<dyn BindingMemory>>,
}

impl BoundKernel {
    /// Calls the CPU implementation for one step, with these parameters.
    ///
    /// # Safety
    /// No other thread uses the memory during the call, and memory that the kernel writes is bound
    /// once.
    pub(crate) unsafe fn step(&self, params: &[u32], step: u64) {
        (self.kernel)(&Call { launch: self, params, step: step as u32, taken: Cell::new((0, 0)) });
    }
}

/// A launch as its CPU implementation sees it. It has the parameters and bindings of the kernel's
/// text.
#[derive(Debug)]
pub struct Call<'a> {
    launch: &'a BoundKernel,
    params: &'a [u32],
    step: u32,
    /// Bit masks of the bindings that were borrowed for reading and for writing.
    taken: Cell<(u32, u32)>,
}

impl<'a> Call<'a> {
    /// Returns the problem size: rows or elements.
    pub fn items(&self) -> usize {
        self.launch.items
    }

    /// Returns the number of threads of a workgroup.
    pub fn group(&self) -> u32 {
        self.launch.group
    }

    /// Returns true if the kernel is the variant that sets this constant.
    pub(crate) fn is(&self, constant: &str) -> bool {
        self.constant(constant) != 0.0
    }

    /// Returns the value of a constant that this variant of the kernel sets, else 0.
    pub(crate) fn constant(&self, constant: &str) -> f64 {
        let found = self.launch.constants.iter().find(|(name, _)| *name == constant);
        found.map_or(0.0, |&(_, value)| value)
    }

    /// Returns the parameters, with the current step.
    pub(crate) fn params<P: bytemuck::Pod>(&self) -> P {
        let mut params = bytemuck::pod_read_unaligned(bytemuck::cast_slice(self.params));
        bytemuck::cast_slice_mut(bytemuck::bytes_of_mut(&mut params))[0] = self.step;
        params
    }

    /// Returns true if the launch is large enough for several threads.
    pub fn parallel(&self) -> bool {
        self.launch.items >= PARALLEL_ITEMS
    }

    /// Returns `size` as the size of pieces, or `usize::MAX` (a single piece) for a small launch.
    pub(crate) fn piece(&self, size: usize) -> usize {
        if self.parallel() { size } else { usize::MAX }
    }

    pub(crate) fn read<T: bytemuck::Pod>(&self, binding: usize) -> &'a [T] {
        let (read, written) = self.taken.get();
        assert!(written & (1 << binding) == 0, "binding {binding} is already written by this launch");
        self.taken.set((read | 1 << binding, written));
        // SAFETY: `Run::step` guarantees that no other thread uses the memory; the launch keeps it
        // alive. This binding is not borrowed for writing (asserted). No other binding that is
        // written shares its memory (`Run::step`).
        bytemuck::cast_slice(unsafe { &*self.launch.args[binding].bytes() })
    }

    /// Returns the version number of a binding that no kernel writes. Equal numbers mean one array
    /// with unchanged contents.
    pub fn contents<T>(&self, array: &[T]) -> u64 {
        self.launch.args[self.bound(array)].contents()
    }

    /// Returns the index of a binding.
    fn bound<T>(&self, array: &[T]) -> usize {
        let bytes = (array.as_ptr().addr(), size_of_val(array));
        let mut all = self.launch.args.iter().map(|memory| (memory.bytes().addr(), memory.bytes().len()));
        all.position(|memory| memory == bytes).expect("the whole of a binding")
    }

    /// Returns the words of a binding with the largest column in their low `bits` bits, and the
    /// largest index into a table in the others.
    ///
    /// The first call for the array's contents passes over the words.
    pub fn columns<'w>(&self, words: &'w [u32], bits: u32) -> Columns<'w> {
        let binding = self.bound(words);
        assert!(self.taken.get().1 & (1 << binding) == 0, "binding {binding} is written by this launch");
        let (known, tag) = (self.launch.args[binding].largest(), 1 << 63 | u64::from(bits) << 32);
        let mut found = known.load(Ordering::Relaxed);
        if found & !u64::from(u32::MAX) != tag {
            let mask = ((1u64 << bits) - 1) as u32;
            let parts = words.par_iter().map(|word| [word & mask, word & !mask]);
            let most = parts.reduce(|| [0; 2], |[a, b], [c, d]| [a.max(c), b.max(d)]);
            found = tag | u64::from(most[0] | most[1]);
            known.store(found, Ordering::Relaxed);
        }
        Columns::at_most(words, bits, found as u32)
    }

    pub(crate) fn write<T: bytemuck::Pod>(&self, binding: usize) -> &'a mut [T] {
        let Binding { name, written, .. } = self.launch.bindings[binding];
        assert!(written, "{name} is not written");
        let (read, written) = self.taken.get();
        assert!((read | written) & (1 << binding) == 0, "binding {binding} is already in use by this launch");
        self.taken.set((read, written | 1 << binding));
        self.launch.args[binding].largest().store(0, Ordering::Relaxed);
        // SAFETY: as in `read`; in addition, this binding is borrowed once.
        bytemuck::cast_slice_mut(unsafe { &mut *self.launch.args[binding].bytes() })
    }
}

/// Applies `work(start, block)` to blocks of 1024 elements in parallel. A small launch is one
/// block.
pub(crate) fn blocks<T: Number>(call: &Call<'_>, out: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    const BLOCK: usize = 1024;
    if call.parallel() {
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(i, block)| work(i * BLOCK, block));
    } else {
        work(0, out);
    }
}

/// An array of a binding, as CPU implementations see it: `&[E]` or `&mut [E]`.
pub trait BindingView<'a> {
    /// Type of the elements.
    type Element: 'static;
    /// True if the kernel writes the array.
    const WRITTEN: bool;
    /// Returns the array bound at index `binding`.
    fn of(call: &Call<'a>, binding: usize) -> Self;
}

impl<'a, E: bytemuck::Pod> BindingView<'a> for &'a [E] {
    type Element = E;
    const WRITTEN: bool = false;

    fn of(call: &Call<'a>, binding: usize) -> Self {
        call.read(binding)
    }
}

impl<'a, E: bytemuck::Pod> BindingView<'a> for &'a mut [E] {
    type Element = E;
    const WRITTEN: bool = true;

    fn of(call: &Call<'a>, binding: usize) -> Self {
        call.write(binding)
    }
}

impl Binding {
    /// Describes a binding that CPU implementations see as `V`.
    pub const fn of<'a, V: BindingView<'a>>(name: &'static str) -> Self {
        Self { name, written: V::WRITTEN, scalar: Scalar::of::<V::Element> }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    /// Words that a test lends to launches.
    #[derive(Debug)]
    struct Words(UnsafeCell<Vec<u32>>, AtomicU64);

    // SAFETY: a test uses the words on its own thread alone.
    unsafe impl Sync for Words {}

    impl BindingMemory for Words {
        fn bytes(&self) -> *mut [u8] {
            // SAFETY: no reference to the vector itself exists elsewhere.
            let words = unsafe { &mut *self.0.get() };
            std::ptr::from_mut(bytemuck::cast_slice_mut(words))
        }

        fn contents(&self) -> u64 {
            0
        }

        fn largest(&self) -> &AtomicU64 {
            &self.1
        }
    }

    #[test]
    fn the_largest_column_is_kept_until_a_write_or_another_width() {
        let words = Arc::new(Words(vec![3, 1 << 9 | 7, 5 << 9 | 2].into(), AtomicU64::new(0)));
        let bindings: &[Binding] = &[Binding { name: "words", written: true, scalar: || None }];
        let launch = BoundKernel {
            kernel: |_| (),
            group: 64,
            constants: &[],
            items: 3,
            bindings,
            args: vec![words.clone()],
        };
        let call = || Call { launch: &launch, params: &[], step: 0, taken: Cell::new((0, 0)) };
        let most = |bits| call().columns(call().read::<u32>(0), bits).most;

        assert_eq!((most(9), most(32), most(9)), (5 << 9 | 7, 5 << 9 | 2, 5 << 9 | 7));
        // A stored maximum that no word has is returned, so the words are not read again.
        words.1.store(1 << 63 | 9 << 32 | 100, Ordering::Relaxed);
        assert_eq!((most(9), most(4)), (100, 5 << 9 | 7));
        call().write::<u32>(0)[0] = 8;
        assert_eq!((most(4), most(9)), (5 << 9 | 8, 5 << 9 | 8));
    }
}
