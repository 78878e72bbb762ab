//! A bar on stderr, on a terminal and for work longer than a second.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of one piece of work.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    shown: bool,
    /// The name of the units that are counted.
    unit: &'static str,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(quiet: bool, unit: &'static str) -> Self {
        Self { started: Instant::now(), shown: !quiet && std::io::stderr().is_terminal(), unit, bar: None }
    }

    /// `done` of `all`; an `all` of 0 is not known.
    pub(super) fn at(&mut self, done: u64, all: u64) {
        if !self.shown || self.started.elapsed() < Duration::from_secs(1) {
            return;
        }
        let unit = self.unit;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style =
                format!("{{elapsed_precise}} [{{bar:30}}] {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
            if let Ok(style) = ProgressStyle::with_template(&style) {
                bar.set_style(style.progress_chars("=> "));
            }
            // What was done before the bar appeared, or before this process began, says nothing of the rate.
            bar.set_position(done);
            bar.reset_eta();
            bar
        });
        if all > 0 {
            bar.set_length(all);
        }
        bar.set_position(done);
    }
}

/// Shows on a terminal that work goes on whose length nobody knows, once it takes longer than a second.
#[derive(Debug)]
pub(super) struct Waiting(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Waiting {
    pub(super) fn new(quiet: bool, what: &'static str) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        let show = move || {
            std::thread::park_timeout(Duration::from_secs(1));
            if told.load(Ordering::Acquire) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(what);
            if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {spinner} {msg}") {
                bar.set_style(style);
            }
            bar.set_elapsed(Duration::from_secs(1));
            bar.enable_steady_tick(Duration::from_millis(100));
            while !told.load(Ordering::Acquire) {
                std::thread::park();
            }
            bar.finish_and_clear();
        };
        Self(Some((done, std::thread::spawn(show))))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.0.take() {
            done.store(true, Ordering::Release);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
