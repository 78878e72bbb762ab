//! Solving beside a thread that still hears Python: signals, and a callback for progress.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use kolmo::internals::interruptible;
use kolmo::transient::Transitions;
use kolmo::{Error, Result};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::machine::expect_own_process;

/// Time between two looks at signals. A solver comes by every 70 ms; both are to be less than 100 ms.
const LOOK: Duration = Duration::from_millis(20);

/// What a solver calls with the work done and an upper bound of all.
pub(crate) type Told<'a> = dyn FnMut(u64, u64) -> Result<()> + Send + 'a;

/// Whether the work is to end. What has no way to say so ends by a panic that nobody is told of: whoever asks has an
/// exception to raise.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the work here, if it is to end.
    pub(crate) fn look(&self) {
        if self.asked() {
            std::panic::resume_unwind(Box::new("interrupted"));
        }
    }
}

/// A chain whose rows end the work that reads them: building a matrix tells nobody that it goes on.
pub(crate) struct Stoppable<T> {
    pub(crate) inner: T,
    pub(crate) stop: Stop,
}

impl<T: Transitions> Transitions for Stoppable<T> {
    fn states(&self) -> usize {
        self.inner.states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.stop.look();
        self.inner.incoming(state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.stop.look();
        self.inner.outgoing(state, row);
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        self.stop.look();
        self.inner.exit_rates(states, out);
    }
}

/// Runs `work`, which is done before anybody would look, in this thread.
pub(crate) fn brief<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut Told<'_>) -> Result<R> + Send,
) -> PyResult<R> {
    aside(py, || work(&mut |_, _| Ok(())))
}

/// Runs `work` in this thread without the GIL, unless the threads that it may want are another process's.
pub(crate) fn aside<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    py.detach(|| expect_own_process().and_then(|()| work())).map_err(|error| exception(py, &error))
}

/// Runs `work` in a thread of its own while this one waits without the GIL, calls `progress`, and looks for signals, which
/// only Python's main thread is given. An exception of either stops the work where it next tells its progress,
/// or looks.
pub(crate) fn watched<R: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
    work: impl FnOnce(&mut Told<'_>) -> Result<R> + Send,
) -> PyResult<R> {
    expect_own_process().map_err(|error| exception(py, &error))?;
    let progress: Option<Py<PyAny>> = progress.map(|callback| callback.clone().unbind());
    let (done, raised) = py.detach(|| {
        let (tell, told) = channel();
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let told = &mut |done, all| {
                    if stop.asked() {
                        return Err(Error::Interrupted);
                    }
                    let _ = tell.send((done, all));
                    Ok(())
                };
                interruptible(&stop.0, || work(told))
            });
            let mut raised = None;
            loop {
                let news = match told.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => None,
                    Ok(news) => Some(news),
                };
                if raised.is_none() {
                    raised = Python::attach(|py| hear(py, progress.as_ref(), news)).err();
                    stop.0.store(raised.is_some(), Ordering::Relaxed);
                }
            }
            (worker.join(), raised)
        })
    });
    match (raised, done) {
        (Some(raised), _) => Err(raised),
        (None, Ok(done)) => done.map_err(|error| exception(py, &error)),
        (None, Err(panic)) => std::panic::resume_unwind(panic),
    }
}

/// Runs signals' handlers and the callback.
fn hear(py: Python<'_>, progress: Option<&Py<PyAny>>, news: Option<(u64, u64)>) -> PyResult<()> {
    py.check_signals()?;
    // Of some work nobody knows how much there is.
    if let (Some(callback), Some(news)) = (progress, news.filter(|(_, all)| *all > 0)) {
        callback.call1(py, news)?;
    }
    Ok(())
}
