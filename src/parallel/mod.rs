//! Parallel loops on the current thread pool, with rayon's method names.
//!
//! Rayon compiles its splitting, stealing and panic handling again for every loop, some 5000 lines
//! of intermediate code each. Here one instance serves all loops: it distributes ranges of item
//! numbers, and processes a range by one call of a function pointer.

#![expect(unsafe_code, reason = "threads write to different parts of a slice")]

pub(crate) mod backoff;
pub(crate) mod pool;
mod rounds;
mod team;
pub(crate) mod top_k;

/// Synchronization types of [`rounds`]; the tests in `tests/loom` replace them.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(super) use std::sync::{Condvar, Mutex};
    use std::sync::{MutexGuard, PoisonError};

    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(super) fn with<R>(&self, work: impl FnOnce(*const T) -> R) -> R {
            work(self.0.get())
        }

        pub(super) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0.get())
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a, T>(wake: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        wake.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

pub(crate) use sync::lock;

pub use pool::threads;
pub(crate) use team::Team;

use crate::{Error, Result};

/// Number of ranges per thread, if there are enough items; limits the delay by slow threads.
const RANGES: usize = 32;

/// Calls `work` with ranges that cover `0..len`, each of `size` items except the last.
#[inline(never)]
fn for_ranges(len: usize, size: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};

    let at_hand = AtHand::now();
    let range = |k: usize| {
        at_hand.look();
        work(k * size..len.min((k + 1) * size));
    };
    match len.div_ceil(size) {
        0 => {}
        count if count == 1 || at_hand.alone => (0..count).for_each(range),
        count => {
            let each = |k: usize| at_hand.within(|| range(k));
            if Team::share_out(count, &each) {
                return;
            }
            match pool::global() {
                _ if pool::is_member() => {
                    ParallelIterator::for_each(IntoParallelIterator::into_par_iter(0..count), each);
                }
                Some(pool) => Team::with_helpers(pool, count, &each),
                None => (0..count).for_each(range),
            }
        }
    }
}

/// Settings of the parallel loops that the current thread starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtHand {
    /// Cancellation flag of [`interruptible`], which returns after all loops have ended.
    stop: Option<*const AtomicBool>,
    /// Counter of [`counted`], to which loops add their steps.
    count: Option<*const AtomicU64>,
    /// True if loops run serially in the thread that starts them.
    pub(crate) alone: bool,
}

// SAFETY: the flag and the number live until all threads have finished the work with these
// settings, and any thread may use them.
unsafe impl Send for AtHand {}
// SAFETY: as above.
unsafe impl Sync for AtHand {}

/// Panic payload that cancels a loop. [`interruptible`] catches it without the panic hook.
struct Ended;

thread_local! {
    static AT_HAND: Cell<AtHand> = const { Cell::new(AtHand { stop: None, count: None, alone: false }) };
}

impl AtHand {
    /// Returns the loop settings of the current thread.
    pub(crate) fn now() -> Self {
        AT_HAND.get()
    }

    /// Runs a part of the work with these settings, in any thread.
    pub(crate) fn within<R>(self, work: impl FnOnce() -> R) -> R {
        struct Before(AtHand);
        impl Drop for Before {
            fn drop(&mut self) {
                AT_HAND.set(self.0);
            }
        }
        let _before = Before(AT_HAND.replace(self));
        work()
    }

    /// Unwinds if the cancellation flag is set. Has no effect in a program that aborts on panics.
    pub(crate) fn look(self) {
        if cfg!(panic = "abort") {
            return;
        }
        // SAFETY: the flag is alive, see `AtHand`.
        if self.stop.is_some_and(|stop| unsafe { &*stop }.load(Ordering::Relaxed)) {
            resume_unwind(Box::new(Ended));
        }
    }

    /// Adds to the counter of steps, and unwinds if the cancellation flag is set.
    pub(crate) fn step(self, steps: u64) {
        if let Some(count) = self.count {
            // SAFETY: the number is alive, see `AtHand`.
            unsafe { &*count }.fetch_add(steps, Ordering::Relaxed);
        }
        self.look();
    }
}

/// Runs `work`, and adds the steps of its loops in all threads to `count`.
pub(crate) fn counted<R>(count: &AtomicU64, work: impl FnOnce() -> R) -> R {
    AtHand { count: Some(std::ptr::from_ref(count)), ..AtHand::now() }.within(work)
}

/// Runs `work`; its parallel loops are cancelled soon after `stop` is set.
///
/// The results are then lost.
///
/// # Errors
/// Errors of `work`, and [`Error::Interrupted`] if it was cancelled.
pub fn interruptible<R>(stop: &AtomicBool, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let at_hand = AtHand { stop: Some(std::ptr::from_ref(stop)), ..AtHand::now() };
    // Unwinding only affects arrays of `work` itself, and locks that ignore poisoning.
    match catch_unwind(AssertUnwindSafe(|| at_hand.within(work))) {
        Ok(done) => done,
        Err(panic) if panic.is::<Ended>() => Err(Error::Interrupted),
        Err(panic) => resume_unwind(panic),
    }
}

pub(crate) fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let at_hand = AtHand::now();
    let (mut both, mut done) = (Some((a, b)), None);
    let mut join = || {
        done = both.take().map(|(a, b)| rayon::join(|| at_hand.within(a), || at_hand.within(b)));
    };
    if !at_hand.alone {
        pool::inside(&mut join);
    }
    done.or_else(|| both.map(|(a, b)| (a(), b()))).expect("both are done")
}

/// Runs short `work` with its loops in this thread only, also in launches of a CPU lane.
pub fn alone<R>(work: impl FnOnce() -> R) -> R {
    AtHand { alone: true, ..AtHand::now() }.within(work)
}

/// Calls `work` with 0 … `count` − 1 in parallel; returns the results in order.
pub fn each_of<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    (0..count).into_par_iter().map(work).collect()
}

/// Calls `work` concurrently with 0 on this thread, and with 1 … `count` − 1 on new threads.
///
/// If the system refuses a thread, its call runs on this thread, later.
fn on_threads(count: usize, work: &(dyn Fn(usize) + Sync)) {
    let at_hand = AtHand::now();
    thread::scope(|scope| {
        let begin =
            |k| thread::Builder::new().spawn_scoped(scope, move || at_hand.within(|| work(k))).map_err(|_| k);
        let (others, late): (Vec<_>, Vec<_>) = (1..count).map(begin).partition(Result::is_ok);
        (0..count.min(1)).chain(late.into_iter().filter_map(Result::err)).for_each(work);
        let others = others.into_iter().filter_map(Result::ok);
        if let Some(panic) = others.filter_map(|thread| thread.join().err()).next() {
            resume_unwind(panic);
        }
    });
}

/// Passes on the items of a serial loop; unwinds within 4096 items of a cancellation.
pub(crate) fn checked<I: Iterator>(items: I) -> impl Iterator<Item = I::Item> {
    let at_hand = AtHand::now();
    items.enumerate().map(move |(k, item)| {
        if k.is_multiple_of(1 << 12) {
            at_hand.look();
        }
        item
    })
}

/// Returns the error for a thread that the system refuses to start.
pub fn no_thread(purpose: &str, error: &std::io::Error) -> Error {
    Error::Device(format!(
        "no thread can be started for {purpose}: {error}; raise this user's limit of processes and \
         threads, or use one device"
    ))
}

/// Runs `work` on every item, each in its own thread, the first one in the caller's.
///
/// Joins all threads, also after a panic.
pub(crate) fn at_once<I: Send, R: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> R + Sync,
) -> Vec<R> {
    let slots: Vec<_> = items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    on_threads(slots.len(), &|k| {
        let mut slot = lock(&slots[k]);
        slot.1 = slot.0.take().map(&work);
    });
    let results =
        slots.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner).1);
    results.collect()
}

/// Views numbers as atomic words, for loops whose threads share intermediate results.
pub(crate) fn atomics(numbers: &mut [f64]) -> &[AtomicU64] {
    const { assert!(size_of::<AtomicU64>() == size_of::<f64>()) };
    const { assert!(align_of::<AtomicU64>() == align_of::<f64>()) };
    // SAFETY: the borrow is exclusive, and both types have the same size and alignment, as
    // asserted. Any bits are a number of either type.
    unsafe { std::slice::from_raw_parts(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// Copies bytes while a lock is held.
///
/// A pool's thread copies serially. In a parallel loop it might execute other tasks while waiting,
/// and these might need that lock.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub(crate) fn copy_bytes_locked(to: &mut [u8], from: &[u8]) {
    if pool::is_member() { to.copy_from_slice(from) } else { copy_bytes(to, from) }
}

pub(crate) fn copy_bytes(to: &mut [u8], from: &[u8]) {
    const PIECE: usize = 1 << 18;
    assert_eq!(to.len(), from.len(), "a copy has as many bytes as there are");
    to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Parallel iterator: numbered items, each processed by one thread.
///
/// # Safety
/// Items of disjoint ranges may be taken and used by different threads concurrently.
pub(crate) unsafe trait Parallel: Sized + Sync {
    type Item;

    fn items(&self) -> usize;

    /// Returns the items of a range of numbers.
    ///
    /// # Safety
    /// The range ends at [`items`](Self::items) at the latest and is disjoint from all other ranges
    /// requested.
    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = Self::Item>;

    /// Returns the minimum number of items of a range.
    fn min_len(&self) -> usize {
        1
    }

    /// Uses ranges of at least `min` items.
    fn with_min_len(self, min: usize) -> impl Parallel<Item = Self::Item> {
        MapInit { min: min.max(self.min_len()), inner: self, init: || (), f: |(): &mut (), item| item }
    }

    /// Pairs items of equal index; the shorter iterator determines the length.
    fn zip<Z: IntoParallel>(self, other: Z) -> impl Parallel<Item = (Self::Item, Z::Item)> {
        Zip(self, other.into_par_iter())
    }

    fn enumerate(self) -> impl Parallel<Item = (usize, Self::Item)> {
        Zip(IndexRange(0..self.items()), self)
    }

    fn map<R>(self, f: impl Fn(Self::Item) -> R + Sync) -> impl Parallel<Item = R> {
        self.map_init(|| (), move |(), item| f(item))
    }

    /// Applies `f` to each item, with a state that the items of a range share.
    fn map_init<S, R>(
        self,
        init: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, Self::Item) -> R + Sync,
    ) -> impl Parallel<Item = R> {
        MapInit { min: self.min_len(), inner: self, init, f }
    }

    fn for_each(self, f: impl Fn(Self::Item) + Sync) {
        for_ranges(self.items(), range_size(&self), &|range| {
            // SAFETY: ranges are disjoint and end at `items`.
            unsafe { self.range(range) }.for_each(&f);
        });
    }

    /// Calls `f` with each item and a state that the items of a range share.
    fn for_each_init<S>(self, init: impl Fn() -> S + Sync, f: impl Fn(&mut S, Self::Item) + Sync) {
        self.map_init(init, f).for_each(drop);
    }

    fn collect<C: From<Vec<Self::Item>>>(self) -> C
    where
        Self::Item: Send,
    {
        let count = self.items();
        let mut items = Vec::with_capacity(count);
        let slots = SliceMut::new(&mut items.spare_capacity_mut()[..count]);
        Zip(slots, self).for_each(|(slot, item)| {
            slot.write(item);
        });
        // SAFETY: each slot below `count` was written; a panic would have unwound past this line.
        unsafe { items.set_len(count) };
        items.into()
    }

    /// Combines the items by an associative `join` with neutral element `identity`.
    fn reduce(
        self,
        identity: impl Fn() -> Self::Item + Sync,
        join: impl Fn(Self::Item, Self::Item) -> Self::Item + Sync,
    ) -> Self::Item
    where
        Self::Item: Send,
    {
        let size = range_size(&self);
        let mut parts: Vec<Option<Self::Item>> = Vec::new();
        parts.resize_with(self.items().div_ceil(size), || None);
        let slots = SliceMut::new(&mut parts);
        for_ranges(self.items(), size, &|range| {
            let k = range.start / size;
            // SAFETY: ranges are disjoint and end at `items`; each has its own slot.
            let (items, slot) = unsafe { (self.range(range), slots.part(k..k + 1)) };
            slot[0] = Some(items.fold(identity(), &join));
        });
        parts.into_iter().flatten().fold(identity(), join)
    }

    /// Returns the index of the first item that `is` accepts.
    fn position_first(self, is: impl Fn(Self::Item) -> bool + Sync) -> Option<usize> {
        let first = self.enumerate().map(|(i, item)| if is(item) { i } else { usize::MAX });
        Some(first.reduce(|| usize::MAX, usize::min)).filter(|&i| i < usize::MAX)
    }

    fn all(self, is: impl Fn(Self::Item) -> bool + Sync) -> bool {
        self.map(is).reduce(|| true, |a, b| a && b)
    }
}

/// Returns the number of items per range, such that every thread gets several ranges.
fn range_size(items: &impl Parallel) -> usize {
    items.items().div_ceil(RANGES * threads()).max(items.min_len()).max(1)
}

/// Source of a parallel iterator.
pub(crate) trait IntoParallel {
    type Item;

    fn into_par_iter(self) -> impl Parallel<Item = Self::Item>;
}

impl<P: Parallel> IntoParallel for P {
    type Item = P::Item;

    fn into_par_iter(self) -> impl Parallel<Item = P::Item> {
        self
    }
}

impl IntoParallel for Range<usize> {
    type Item = usize;

    fn into_par_iter(self) -> impl Parallel<Item = usize> {
        IndexRange(self)
    }
}

impl<'a, T: Sync> IntoParallel for &'a Vec<T> {
    type Item = &'a T;

    fn into_par_iter(self) -> impl Parallel<Item = &'a T> {
        &self[..]
    }
}

impl<'a, T: Send> IntoParallel for &'a mut [T] {
    type Item = &'a mut T;

    fn into_par_iter(self) -> impl Parallel<Item = &'a mut T> {
        SliceMut::new(self)
    }
}

impl<T: Send> IntoParallel for Vec<T> {
    type Item = T;

    fn into_par_iter(self) -> impl Parallel<Item = T> {
        let items: Vec<_> = self.into_iter().map(|item| Mutex::new(Some(item))).collect();
        IndexRange(0..items.len()).map(move |k| lock(&items[k]).take().expect("an item is taken once"))
    }
}

pub(crate) trait ParallelSlice<T>: AsRef<[T]> + AsMut<[T]> {
    fn par_iter(&self) -> &[T] {
        self.as_ref()
    }

    /// Iterates over chunks of `size` items; the last one may be shorter.
    fn par_chunks<'s>(&'s self, size: usize) -> impl Parallel<Item = &'s [T]>
    where
        T: Sync + 's,
    {
        let all = self.as_ref();
        IndexRange(0..all.len().div_ceil(size)).map(move |k| &all[k * size..all.len().min((k + 1) * size)])
    }

    fn par_iter_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.as_mut())
    }

    /// Iterates over mutable chunks of `size` items; the last one may be shorter.
    fn par_chunks_mut<'s>(&'s mut self, size: usize) -> impl Parallel<Item = &'s mut [T]>
    where
        T: Send + 's,
    {
        let all = SliceMut::new(self.as_mut());
        let count = all.len.div_ceil(size);
        // SAFETY: each number is taken once, and chunks of different numbers are disjoint.
        IndexRange(0..count).map(move |k| unsafe { all.part(k * size..all.len.min((k + 1) * size)) })
    }
}

impl<T> ParallelSlice<T> for [T] {}

struct IndexRange(Range<usize>);

// SAFETY: numbers are copies.
unsafe impl Parallel for IndexRange {
    type Item = usize;

    fn items(&self) -> usize {
        self.0.len()
    }

    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        self.0.start + range.start..self.0.start + range.end
    }
}

// SAFETY: shared references may be used by any thread.
unsafe impl<'a, T: Sync> Parallel for &'a [T] {
    type Item = &'a T;

    fn items(&self) -> usize {
        self.len()
    }

    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = &'a T> {
        self[range].iter()
    }
}

pub(crate) struct SliceMut<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: threads get references to different items, which may be sent.
unsafe impl<T: Send> Sync for SliceMut<'_, T> {}

impl<'a, T> SliceMut<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Returns the items of a range as an exclusive slice.
    ///
    /// # Safety
    /// No caller has requested any of them before.
    unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} items", self.len);
        // SAFETY: the part is inside a slice that is borrowed for 'a, and no other caller has any
        // of it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

// SAFETY: disjoint ranges are different parts of the slice.
unsafe impl<'a, T: Send> Parallel for SliceMut<'a, T> {
    type Item = &'a mut T;

    fn items(&self) -> usize {
        self.len
    }

    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = &'a mut T> {
        // SAFETY: as this function requires.
        unsafe { self.part(range) }.iter_mut()
    }
}

/// Pairs of items, see [`Parallel::zip`].
struct Zip<A, B>(A, B);

// SAFETY: each iterator has different items for different numbers.
unsafe impl<A: Parallel, B: Parallel> Parallel for Zip<A, B> {
    type Item = (A::Item, B::Item);

    fn items(&self) -> usize {
        self.0.items().min(self.1.items())
    }

    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = (A::Item, B::Item)> {
        // SAFETY: the range ends at the last item of either iterator at the latest.
        unsafe { self.0.range(range.clone()).zip(self.1.range(range)) }
    }

    fn min_len(&self) -> usize {
        self.0.min_len().max(self.1.min_len())
    }
}

/// Results with a state, see [`Parallel::map_init`], in ranges of at least `min` items.
struct MapInit<P, I, F> {
    inner: P,
    min: usize,
    init: I,
    f: F,
}

// SAFETY: results of different items.
unsafe impl<P: Parallel, S, R, I, F> Parallel for MapInit<P, I, F>
where
    I: Fn() -> S + Sync,
    F: Fn(&mut S, P::Item) -> R + Sync,
{
    type Item = R;

    fn items(&self) -> usize {
        self.inner.items()
    }

    unsafe fn range(&self, range: Range<usize>) -> impl Iterator<Item = R> {
        let mut state = (self.init)();
        // SAFETY: as this function requires.
        unsafe { self.inner.range(range) }.map(move |item| (self.f)(&mut state, item))
    }

    fn min_len(&self) -> usize {
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 7] = [0, 1, 2, 255, 256, 10_000, 123_457];

    #[test]
    fn every_item_is_taken_once_and_stays_in_its_place() {
        for n in SIZES {
            let numbers: Vec<usize> = (0..n).into_par_iter().collect();
            assert!(numbers.iter().copied().eq(0..n), "{n}");
            let mut values = vec![0u32; n];
            values.par_chunks_mut(7).zip(numbers.par_chunks(7)).enumerate().for_each(|(k, (to, from))| {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to += (from + k) as u32);
            });
            assert!(values.iter().enumerate().all(|(i, &v)| v as usize == i + i / 7), "{n}");
            let texts: Vec<String> = numbers.into_par_iter().map(|i| i.to_string()).collect();
            assert_eq!(
                texts.into_par_iter().map(|text| text.len()).reduce(|| 0, |a, b| a + b),
                digits(n),
                "{n}"
            );
        }
    }

    fn digits(n: usize) -> usize {
        (0..n).map(|i| i.to_string().len()).sum()
    }

    #[test]
    fn the_first_position_is_found() {
        for n in SIZES {
            let values: Vec<usize> = (0..n).collect();
            assert_eq!(values.par_iter().position_first(|&v| v >= n / 3), (n > 0).then_some(n / 3));
            assert_eq!(values.par_iter().position_first(|&v| v >= n), None);
            assert!(values.par_iter().all(|&v| v < n));
        }
    }

    #[test]
    fn tasks_of_a_callers_pool_are_independent_of_other_loops() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let stop = AtomicBool::new(false);
        for _ in 0..50 {
            pool.scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|_| {
                        let found = AtHand::now();
                        assert!(found.stop.is_none() && !found.alone, "a task of its own: {found:?}");
                        let wait = |_| thread::sleep(std::time::Duration::from_micros(50));
                        let work = || {
                            (0..64).into_par_iter().for_each(wait);
                            Ok(())
                        };
                        interruptible(&stop, work).unwrap();
                        join(|| alone(|| wait(0)), || wait(0));
                    });
                }
            });
        }
    }

    #[test]
    fn loops_end_where_a_flag_is_set_and_others_go_on() {
        let stop = AtomicBool::new(false);
        let done = interruptible(&stop, || {
            (0..10_000).into_par_iter().for_each(|outer| {
                // Nested loops, in any thread, and work in a separate pool.
                let (sum, _) = join(|| (0..100).into_par_iter().map(|i| i).reduce(|| 0, |a, b| a + b), || ());
                assert_eq!(sum, 4950);
                if outer == 5000 {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            Ok(())
        });
        assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
        // Loops outside are not cancelled, in this thread or in threads that helped.
        assert!((0..10_000).into_par_iter().all(|i| i < 10_000));
        stop.store(false, Ordering::Relaxed);
        assert_eq!(interruptible(&stop, || Ok((0..1000).into_par_iter().all(|i| i < 1000))).ok(), Some(true));
        let other =
            catch_unwind(|| interruptible(&AtomicBool::new(false), || -> Result<()> { panic!("a bug") }));
        assert!(other.is_err(), "a panic stays one");
    }
}
