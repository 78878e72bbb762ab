//! Progress on stderr: a bar on a terminal after one second, elsewhere one line per minute.

use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::prelude::*;
use kolmo::Iterate;

/// Progress of one task, displayed by its own thread because much of the work reports nothing.
#[derive(Debug)]
pub(crate) struct ProgressDisplay(Option<(Arc<SharedState>, JoinHandle<()>)>);

#[derive(Debug)]
struct SharedState {
    state: Mutex<ProgressState>,
    ended: Condvar,
}

#[derive(Debug, Clone, Copy)]
struct ProgressState {
    ended: bool,
    /// Name of the task, or the unit of the count once `all` is known.
    what: &'static str,
    done: u64,
    /// Total count; 0 if unknown.
    all: u64,
    /// States and transitions that a search has found; its total is unknown.
    found: Option<[u64; 2]>,
    /// Residual and error bound of an iteration; the bound is infinite until one is known.
    accuracy: Option<[f64; 2]>,
    /// Time at which the current unit was first counted; `first` is the count at that time.
    since: Instant,
    first: u64,
}

impl ProgressState {
    fn new(what: &'static str, done: u64, all: u64) -> Self {
        let (found, accuracy) = (None, None);
        Self { ended: false, what, done, all, found, accuracy, since: Instant::now(), first: done }
    }

    /// Remaining seconds at the current rate, if it is known.
    fn left(&self) -> Option<f64> {
        let rate = (self.done - self.first) as f64 / self.since.elapsed().as_secs_f64();
        (rate > 0.0).then(|| self.all.saturating_sub(self.done) as f64 / rate)
    }

    /// Note with the predicted time, if the work will take longer than [`LONG`].
    fn announced(&self) -> Option<String> {
        let left = self.left().filter(|left| *left > LONG)?;
        Some(format!(
            "note: {} {} take about {} if nothing ends them earlier",
            grouped(self.all),
            self.what,
            seconds(left)
        ))
    }

    fn text(&self) -> String {
        if let Some([states, transitions]) = self.found {
            let rate = states as f64 / self.since.elapsed().as_secs_f64();
            let [states, transitions, rate] = [states, transitions, rate as u64].map(grouped);
            return format!("{states} states, {transitions} transitions, {rate} states a second");
        }
        let left = self.left().map_or(String::new(), |left| format!(", about {} left", seconds(left)));
        match self.all {
            0 if self.done == 0 => self.what.to_owned(),
            0 => match self.accuracy {
                None => format!("{} {}", grouped(self.done), self.what),
                Some([residual, bound]) => {
                    let bound = if bound.is_finite() { format!("{bound:.1e}") } else { "unknown".to_owned() };
                    format!(
                        "{} {}, residual {residual:.1e}, error bound {bound}",
                        grouped(self.done),
                        self.what
                    )
                }
            },
            all => format!("{} of {} {}{left}", grouped(self.done), grouped(all), self.what),
        }
    }
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl ProgressDisplay {
    /// Begins to display `what`, unless `quiet`.
    pub(crate) fn new(quiet: bool, what: &'static str) -> Self {
        if quiet {
            return Self(None);
        }
        let shared = Arc::new(SharedState {
            state: Mutex::new(ProgressState::new(what, 0, 0)),
            ended: Condvar::new(),
        });
        let told = shared.clone();
        let show = move || if std::io::stderr().is_terminal() { bar(&told) } else { lines(&told) };
        // Without an available thread nothing is displayed.
        Self(std::thread::Builder::new().spawn(show).ok().map(|thread| (shared, thread)))
    }

    /// Reports that `done` of `all` units are done; an `all` of 0 means that the total is unknown.
    pub(crate) fn at(&self, done: u64, all: u64, what: &'static str) {
        // The web page reads these lines.
        if cfg!(target_family = "wasm") && all > 0 {
            return say(format_args!("{done} of {all} {what}"));
        }
        let Some((shared, _)) = self.0.as_ref().filter(|_| done > 0 || all > 0) else { return };
        let mut state = shared.state();
        if (state.all, state.what) != (all, what) || done < state.done {
            // The first report comes after some of the work; in a resumed run, after much of it.
            *state = ProgressState::new(what, done, all);
        }
        state.done = if all > 0 { done.min(all) } else { done };
    }

    /// Returns a callback that displays a count of `what`, and fails on an interrupt.
    pub(crate) fn of(&self, what: &'static str) -> impl FnMut(u64, u64) -> Result<()> {
        move |done, all| {
            self.at(done, all, what);
            interrupt::check()
        }
    }

    /// Returns an observer that displays the progress, and ends iterations at `end`.
    pub(crate) fn watch(&self, end: Option<Instant>) -> IterationObserver<'_> {
        IterationObserver { progress: self, end, limit: None, among: (0, 1, 1) }
    }

    /// Reports the numbers of states and transitions that a search has found so far.
    pub(crate) fn found(&self, states: u64, transitions: u64) {
        let Some((shared, _)) = &self.0 else { return };
        let mut state = shared.state();
        if state.found.is_none() {
            *state = ProgressState::new("searching", 0, 0);
        }
        state.found = Some([states, transitions]);
    }
}

/// Observer of a run, which notes the reason for a large error bound of an iteration.
#[derive(Debug)]
pub(crate) struct IterationObserver<'a> {
    progress: &'a ProgressDisplay,
    /// Time at which iterations end with their best results so far.
    end: Option<Instant>,
    /// Last reason why a bound fell no further.
    pub(crate) limit: Option<&'static str>,
    /// Numbers of problems: solved before, in this run, and in total.
    among: (u64, u64, u64),
}

impl IterationObserver<'_> {
    /// Reports the share of all problems: `among` are those solved before, in this run, in total.
    pub(crate) fn among(self, among: (u64, u64, u64)) -> Self {
        Self { among, ..self }
    }
}

impl kolmo::Progress for IterationObserver<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        let (before, own, total) = self.among;
        let done = if all > 0 { done + all / own * before } else { done };
        self.progress.of("multiplications")(done, all / own * total)
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.limit = iterate.limit.or(self.limit);
        if let Some((shared, _)) = self.progress.0.as_ref().filter(|_| iterate.steps > 0) {
            let mut state = shared.state();
            *state = ProgressState::new("steps", iterate.steps, 0);
            state.accuracy = Some([iterate.residual, iterate.bound]);
        }
        interrupt::check().map(|()| self.end.is_none_or(|end| Instant::now() < end))
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some((shared, thread)) = self.0.take() {
            shared.state().ended = true;
            shared.ended.notify_all();
            let _ = thread.join();
        }
    }
}

/// Waits for `time`; returns the current state, or `None` if the work has ended.
fn wait(shared: &SharedState, time: Duration) -> Option<ProgressState> {
    let waited = shared.ended.wait_timeout_while(shared.state(), time, |state| !state.ended);
    let state = *waited.unwrap_or_else(|e| e.into_inner()).0;
    (!state.ended).then_some(state)
}

/// Work that will take longer than this, in seconds, is announced once.
const LONG: f64 = 600.0;
/// Interval of the checks for an announcement.
const EARLY: Duration = Duration::from_secs(2);

fn lines(shared: &SharedState) {
    let begun = Instant::now();
    let (mut announced, mut minutes) = (false, 0);
    while let Some(state) = wait(shared, EARLY) {
        if !announced && let Some(text) = state.announced() {
            say(text);
            announced = true;
        }
        if begun.elapsed().as_secs() / 60 > minutes {
            minutes = begun.elapsed().as_secs() / 60;
            say(format_args!("after {minutes} min: {}", state.text()));
        }
    }
}

fn bar(shared: &SharedState) {
    let begun = Instant::now();
    let Some(mut state) = wait(shared, Duration::from_secs(1)) else { return };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_elapsed(begun.elapsed());
    let style = |template: &str| {
        ProgressStyle::with_template(template).expect("a template of this file").progress_chars("=> ")
    };
    // The bar fills the rest of the terminal's width.
    let (known, unknown) = (
        style("{elapsed_precise} [{wide_bar}] {percent:>3} %  {msg}"),
        style("{elapsed_precise} {spinner} {msg}"),
    );
    loop {
        bar.set_style(if state.all > 0 { known.clone() } else { unknown.clone() });
        if state.all > 0 {
            bar.set_length(state.all);
            bar.set_position(state.done);
        }
        bar.set_message(state.text());
        bar.tick();
        match wait(shared, Duration::from_millis(100)) {
            Some(next) => state = next,
            None => return bar.finish_and_clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_announced() {
        let since = Instant::now().checked_sub(Duration::from_secs(10)).expect("it has run for so long");
        let state = ProgressState { since, ..ProgressState::new("multiplications", 1_000, 1_001_000) };
        assert_eq!(state.announced(), None, "no rate is known");
        let fast = ProgressState { done: 501_000, ..state };
        assert_eq!(fast.announced(), None);
        let slow = ProgressState { done: 2_000, ..state };
        let text = slow.announced().expect("it takes hours");
        assert!(text.starts_with("note: 1 001 000 multiplications take about "), "{text}");
    }

    #[test]
    fn progress_restarts_for_each_counted_quantity() {
        let shared = Arc::new(SharedState {
            state: Mutex::new(ProgressState::new("reading", 0, 0)),
            ended: Condvar::new(),
        });
        let progress = ProgressDisplay(Some((shared.clone(), std::thread::spawn(|| {}))));
        assert_eq!(shared.state().text(), "reading");
        progress.at(0, 0, "products");
        assert_eq!(shared.state().text(), "reading");
        progress.at(1_200, 0, "products");
        assert_eq!(shared.state().text(), "1 200 products");
        shared.state().accuracy = Some([3e-7, f64::INFINITY]);
        assert_eq!(shared.state().text(), "1 200 products, residual 3.0e-7, error bound unknown");
        progress.at(2_000, 541_533, "steps");
        // Work before the first report has no known rate.
        assert_eq!(shared.state().text(), "2 000 of 541 533 steps");
        progress.at(3_000, 541_533, "steps");
        let text = shared.state().text();
        assert!(text.starts_with("3 000 of 541 533 steps, about "), "{text}");
        progress.at(1, 10, "steps");
        assert_eq!(shared.state().text(), "1 of 10 steps");
        progress.found(7_000, 20_000);
        let text = shared.state().text();
        assert!(text.starts_with("7 000 states, 20 000 transitions, "), "{text}");
        progress.at(1, 3, "steps");
        assert_eq!(shared.state().text(), "1 of 3 steps");
    }
}
