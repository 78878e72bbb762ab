//! Statistics and repetition of a chain's rows, from a scan while devices open.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::statistics::MatrixStatistics;
use crate::kernel::{Number, Precision};
use crate::sparse::HybLayout;
use crate::sparse::dictionary_search::Repetition;

/// Results of a background scan in double precision, each available to one run.
pub struct Prescan {
    statistics: Mutex<PendingResult<Arc<MatrixStatistics<f64>>>>,
    repetition: Mutex<PendingResult<Repeating>>,
    /// Flag that cancels the search for repetition.
    stop: Arc<AtomicBool>,
}

/// Repeated values and patterns in all rows, and the layout in which one lane stores them.
pub(super) type Repeating = (HybLayout, Repetition<f64>);

/// Result of another thread: still to be received, or received.
enum PendingResult<V> {
    Arriving(Receiver<V>),
    /// The received value.
    ///
    /// `None` if it was taken or the scan failed; the caller then computes it and reports the
    /// error.
    There(Option<V>),
}

impl<V> PendingResult<V> {
    /// Waits for the value and returns it.
    fn get(&mut self) -> &mut Option<V> {
        if let Self::Arriving(receiver) = self {
            *self = Self::There(receiver.recv().ok());
        }
        match self {
            Self::There(value) => value,
            Self::Arriving(_) => unreachable!("waited for before"),
        }
    }
}

fn lock<V>(pending: &Mutex<PendingResult<V>>) -> MutexGuard<'_, PendingResult<V>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prescan {
    /// Receives the results of a background scan; `stop` cancels its search for repetition.
    pub(super) fn new(
        statistics: Receiver<Arc<MatrixStatistics<f64>>>,
        repetition: Receiver<Repeating>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (statistics, repetition) =
            (PendingResult::Arriving(statistics), PendingResult::Arriving(repetition));
        Self { statistics: Mutex::new(statistics), repetition: Mutex::new(repetition), stop }
    }

    /// Calls `read` on the statistics, if they are available.
    pub(crate) fn with_statistics<R>(&self, read: impl FnOnce(&MatrixStatistics<f64>) -> R) -> Option<R> {
        lock(&self.statistics).get().as_deref().map(read)
    }

    /// Takes the statistics, if they are available and of precision `T`.
    ///
    /// Statistics of another precision are dropped. The search for repetition is cancelled unless
    /// `repeats` is true and `T` is f64.
    pub(crate) fn take<T: Number>(&self, repeats: bool) -> Option<MatrixStatistics<T>> {
        if !repeats || T::PRECISION != Precision::F64 {
            self.stop.store(true, Ordering::Relaxed);
        }
        // The background thread shares the statistics until its search has ended.
        lock(&self.repetition).get();
        let mut found = lock(&self.statistics).get().take().map(Arc::unwrap_or_clone);
        (&mut found as &mut dyn Any).downcast_mut::<Option<MatrixStatistics<T>>>()?.take()
    }

    /// Takes the repetition in all rows and its layout, if it was found and in precision `T`.
    pub(crate) fn take_repetition<T: Number>(&self) -> Option<(HybLayout, Repetition<T>)> {
        let mut found = lock(&self.repetition).get().take();
        (&mut found as &mut dyn Any).downcast_mut::<Option<(HybLayout, Repetition<T>)>>()?.take()
    }
}
