//! A look at all rows of a chain while devices open.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::bound::{MatrixStatistics, expect_host_memory, statistics};
use super::transitions::{Distributed, Transitions};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::sparse::Repeat;

/// The statistics of a chain in double precision, in the making; for one run.
pub struct Survey {
    thread: Mutex<Option<JoinHandle<Result<MatrixStatistics<f64>>>>>,
    found: Mutex<Option<MatrixStatistics<f64>>>,
}

impl Survey {
    /// The statistics, waited for; none where they were taken or could not be made: whoever needs them then makes its own, and
    /// says what is wrong.
    fn found(&self) -> MutexGuard<'_, Option<MatrixStatistics<f64>>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *found = thread.join().ok().and_then(Result::ok);
        }
        found
    }

    /// The result of `look` at the statistics, if they are there.
    pub(super) fn look<R>(&self, look: impl FnOnce(&MatrixStatistics<f64>) -> R) -> Option<R> {
        self.found().as_ref().map(look)
    }

    /// The statistics, if they are there and of this precision; of another they are of no use, and let go.
    pub(super) fn take<T: Number>(&self) -> Option<MatrixStatistics<T>> {
        let mut found = self.found().take();
        (&mut found as &mut dyn Any).downcast_mut::<Option<MatrixStatistics<T>>>()?.take()
    }
}

/// A chain whose rows are looked at.
pub(super) struct Surveyed {
    inner: Arc<dyn Transitions>,
    survey: Survey,
}

impl Surveyed {
    pub(super) fn begin(inner: Arc<dyn Transitions>) -> Self {
        let chain = inner.clone();
        let look = move || {
            expect_host_memory(chain.states(), Precision::F64.bytes(), 0)?;
            statistics(&*chain)
        };
        // One more thread is no condition of a run.
        let thread = Builder::new().name("kolmo-survey".to_owned()).spawn(look).ok();
        Self { inner, survey: Survey { thread: Mutex::new(thread), found: Mutex::default() } }
    }
}

impl Transitions for Surveyed {
    fn states(&self) -> usize {
        self.inner.states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.inner.incoming(state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.inner.outgoing(state, row);
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        self.inner.exit_rates(states, out);
    }

    fn repeats(&self) -> Vec<Repeat> {
        self.inner.repeats()
    }

    fn survey(&self) -> Option<&Survey> {
        Some(&self.survey)
    }

    fn distributed(&self) -> Option<&dyn Distributed> {
        self.inner.distributed()
    }
}
