//! Suggests a faster method before walks that will take long.

use crate::cli::prelude::*;
use kolmo::walk::{ControlVariate, Count, Length, Options, takes_longer_than_krylov};

/// Seconds of walks above which a note is printed.
const PATIENCE: f64 = 60.0;
/// Time after which the rate of steps is measured.
const PILOT: Duration = Duration::from_millis(500);

/// Watches the rate of the walks and prints one note if they will take long.
#[derive(Debug)]
pub(crate) struct Forecast<'a> {
    options: &'a Options,
    entries: usize,
    /// Time of the first report and its number of steps.
    first: Option<(Instant, u64)>,
    said: bool,
}

impl<'a> Forecast<'a> {
    /// Starts watching walks on a matrix with `entries` entries; prints nothing if `quiet`.
    pub(crate) fn new(options: &'a Options, entries: usize, quiet: bool) -> Self {
        Self { options, entries, first: None, said: quiet }
    }

    /// Reports that `done` of `all` steps are done.
    pub(crate) fn at(&mut self, done: u64, all: u64) {
        if self.said || all == 0 {
            return;
        }
        let &mut (since, first) = self.first.get_or_insert((Instant::now(), done));
        if done > first && since.elapsed() >= PILOT {
            let left = (all - done) as f64;
            let time = since.elapsed().as_secs_f64() * left / (done - first) as f64;
            if let Some(note) = note(self.options, time, left, self.entries) {
                self.said = true;
                say(note);
            }
        }
    }
}

/// Note with a suggestion for walks that will take `time` seconds for `steps` steps.
///
/// `None` below a minute, or if `--time-limit` ends the walks within one.
pub(crate) fn note(options: &Options, time: f64, steps: f64, entries: usize) -> Option<String> {
    let limited = options.time_limit.is_some_and(|limit| limit.as_secs_f64() <= PATIENCE);
    if time <= PATIENCE || limited {
        return None;
    }
    let walks = options.chains != Count::Grow
        || options.length != Length::Bound
        || !matches!(options.control, ControlVariate::Auto | ControlVariate::Krylov);
    let faster = match walks && takes_longer_than_krylov(steps, entries) {
        true => format!("faster, BiCGSTAB before them: {}", command(std::env::args())),
        false => "give a larger --epsilon, or --time-limit SECONDS, which ends with the interval reached"
            .to_owned(),
    };
    Some(format!("note: the walks will take up to {}; {faster}", seconds(time)))
}

/// The command line with `--control krylov` instead of the options that request walks.
fn command(line: impl Iterator<Item = String>) -> String {
    let mut line = line.skip(1);
    let mut kept = vec!["kolmo".to_owned()];
    while let Some(word) = line.next() {
        let (name, value) = word.split_once('=').map_or((&word[..], false), |(name, _)| (name, true));
        match name {
            "--dry-run" => {}
            "--control" | "--sweeps" | "--chains" | "--length" | "--max-chains" => {
                if !value {
                    line.next();
                }
            }
            _ => kept.push(quoted(&word)),
        }
    }
    kept.push("--control krylov".to_owned());
    kept.join(" ")
}

/// Quotes an argument for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_command_omits_options_of_walks() {
        let line = "kolmo walk my_matrix.mtx --control none --component 7 --chains=1e9 --length 10 --dry-run --epsilon 1e-3";
        let faster = command(line.split(' ').map(|word| word.replace('_', " ")));
        assert_eq!(faster, "kolmo walk 'my matrix.mtx' --component 7 --epsilon 1e-3 --control krylov");
    }

    #[test]
    fn advice_names_the_slow_part_and_a_remedy() {
        let none = Options::default().control(ControlVariate::Sweeps(0));
        assert_eq!(note(&none, 59.0, 1e12, 1000), None);
        let said = note(&none, 3e5, 1e12, 1000).expect("three days are long");
        assert!(said.contains("days") && said.contains("--control krylov"), "{said}");
        // Without a gain by BiCGSTAB no command line is suggested.
        for (options, steps) in [(Options::default(), 1e12), (none, 1e4)] {
            let said = note(&options, 3e5, steps, 1000).expect("three days are long");
            assert!(said.contains("--time-limit") && !said.contains("krylov"), "{said}");
        }
    }
}
