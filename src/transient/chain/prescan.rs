//! Statistics and repetition of a chain's rows, from a scan while devices open.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::statistics::MatrixStatistics;
use crate::kernel::{Number, Precision};
use crate::sparse::Layout;
use crate::sparse::dictionary_search::Repetition;

/// What is known of a chain in double precision before its devices are, in the making; for one run.
pub struct Prescan {
    statistics: Mutex<Pending<Arc<MatrixStatistics<f64>>>>,
    repetition: Mutex<Pending<Repeating>>,
    /// Ends the search for what repeats.
    stop: Arc<AtomicBool>,
}

/// The repetition in all rows, as one lane that has them all stores them in this layout.
pub(super) type Repeating = (Layout, Repetition<f64>);

/// What another thread makes.
enum Pending<V> {
    Arriving(Receiver<V>),
    /// None where it was taken or could not be made: whoever needs it then makes its own, and says what is wrong.
    There(Option<V>),
}

impl<V> Pending<V> {
    /// The value, waited for.
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

fn lock<V>(pending: &Mutex<Pending<V>>) -> MutexGuard<'_, Pending<V>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prescan {
    /// What another thread sends; `stop` ends its search for what repeats.
    pub(super) fn new(
        statistics: Receiver<Arc<MatrixStatistics<f64>>>,
        repetition: Receiver<Repeating>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (statistics, repetition) = (Pending::Arriving(statistics), Pending::Arriving(repetition));
        Self { statistics: Mutex::new(statistics), repetition: Mutex::new(repetition), stop }
    }

    /// The result of `read` on the statistics, if they are there.
    pub(crate) fn with_statistics<R>(&self, read: impl FnOnce(&MatrixStatistics<f64>) -> R) -> Option<R> {
        lock(&self.statistics).get().as_deref().map(read)
    }

    /// The statistics, if they are there and of this precision; of another they are of no use, and let go. Unless it is wanted,
    /// what repeats in all rows is looked for no longer.
    pub(crate) fn take<T: Number>(&self, repeats: bool) -> Option<MatrixStatistics<T>> {
        if !repeats || T::PRECISION != Precision::F64 {
            self.stop.store(true, Ordering::Relaxed);
        }
        // Until then the other thread has a share in the statistics.
        lock(&self.repetition).get();
        let mut found = lock(&self.statistics).get().take().map(Arc::unwrap_or_clone);
        (&mut found as &mut dyn Any).downcast_mut::<Option<MatrixStatistics<T>>>()?.take()
    }

    /// What repeats in all rows, if it was found in this layout and is of this precision.
    pub(crate) fn take_repetition<T: Number>(&self, layout: &Layout) -> Option<Repetition<T>> {
        let mut found = lock(&self.repetition).get().take().filter(|(found, _)| found == layout);
        let mut found = found.take().map(|(_, repetition)| repetition);
        (&mut found as &mut dyn Any).downcast_mut::<Option<Repetition<T>>>()?.take()
    }
}
