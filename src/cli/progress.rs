//! A bar on stderr, on a terminal and for work longer than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of one piece of work.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    shown: bool,
    /// What is counted.
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
            bar
        });
        if all > 0 {
            bar.set_length(all);
        }
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
