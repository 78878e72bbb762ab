//! Solving in a thread, while Python's signals and a progress callback are served.

use crate::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kolmo::internals::interruptible;
use kolmo::transient::Transitions;

/// Interval between checks for signals.
///
/// A solver reports every 70 ms. The sum of both intervals has to be below 100 ms.
const LOOK: Duration = Duration::from_millis(20);

/// Cancellation flag.
///
/// Work that cannot return an error is unwound with a private payload. The caller catches it and
/// raises its own exception.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Unwinds if the work was cancelled.
    pub(crate) fn look(&self) {
        if self.asked() {
            std::panic::resume_unwind(Box::new("interrupted"));
        }
    }
}

/// Chain that checks for cancellation at each row: building a matrix reports no progress.
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

    fn is_discrete(&self) -> bool {
        self.inner.is_discrete()
    }
}

/// Runs short `work` in this thread, without checks for signals.
pub(crate) fn brief<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn Progress) -> Result<R> + Send,
) -> PyResult<R> {
    aside(py, || work(&mut ()))
}

/// Runs `work` in this thread without the GIL. Fails in a forked process.
pub(crate) fn aside<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    py.detach(|| expect_own_process().and_then(|()| work())).map_err(|error| exception(py, &error))
}

/// Runs `work` in its own thread, while this thread serves signals and `progress`.
///
/// Python delivers signals to its main thread alone. This thread waits without the GIL. An
/// exception stops the work at its next progress report or cancellation check. `progress` receives
/// at most one report per [`LOOK`], and the last one: many small problems report far more often.
pub(crate) fn watched<R: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
    work: impl FnOnce(&mut dyn Progress) -> Result<R> + Send,
) -> PyResult<R> {
    expect_own_process().map_err(|error| exception(py, &error))?;
    let progress: Option<Py<PyAny>> = progress.map(|callback| callback.clone().unbind());
    let work = Mutex::new(Some(work));
    let run = |told: &mut dyn Progress| {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        interruptible(&stop.0, || work.expect("work that is done once")(told))
    };
    let (done, raised) = py.detach(|| {
        let (tell, told) = channel();
        thread::scope(|scope| {
            let worker = thread::Builder::new().spawn_scoped(scope, || {
                let (tell, mut last) = (tell, None);
                run(&mut |done, all| {
                    if stop.asked() {
                        return Err(Error::Interrupted);
                    }
                    let due = done == all || last.is_none_or(|last: Instant| last.elapsed() >= LOOK);
                    if progress.is_some() && due {
                        last = Some(Instant::now());
                        let _ = tell.send((done, all));
                    }
                    Ok(())
                })
            });
            let Ok(worker) = worker else {
                // The system refuses a thread: signals are served at the reports of the work.
                let mut raised = None;
                let done = run(&mut |done, all| {
                    raised = Python::attach(|py| hear(py, progress.as_ref(), Some((done, all)))).err();
                    if raised.is_some() { Err(Error::Interrupted) } else { Ok(()) }
                });
                return (Ok(done), raised);
            };
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

/// Runs signal handlers and the progress callback.
fn hear(py: Python<'_>, progress: Option<&Py<PyAny>>, news: Option<(u64, u64)>) -> PyResult<()> {
    py.check_signals()?;
    // A total of 0 means that the amount of work is unknown.
    if let (Some(callback), Some(news)) = (progress, news.filter(|(_, all)| *all > 0)) {
        callback.call1(py, news)?;
    }
    Ok(())
}
