//! A look at all rows of a chain while devices open.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use super::statistics::{MatrixStatistics, append_entries, expect_host_memory, statistics};
use super::transitions::{Distributed, Transitions};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::parallel::interruptible;
use crate::sparse::repetition::{self, Repetition, Rows, most_values};
use crate::sparse::{Layout, Repeat, SLICE, WidthRule};

/// What is known of a chain in double precision before its devices are, in the making; for one run.
pub struct Survey {
    statistics: Mutex<Pending<Arc<MatrixStatistics<f64>>>>,
    repetition: Mutex<Pending<Repeating>>,
    /// Ends the search for what repeats.
    stop: Arc<AtomicBool>,
}

/// The repetition in all rows, as one lane that has them all stores them in this layout.
type Repeating = (Layout, Repetition<f64>);

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
            Self::Arriving(_) => unreachable!("it was waited for"),
        }
    }
}

fn lock<V>(pending: &Mutex<Pending<V>>) -> MutexGuard<'_, Pending<V>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Survey {
    /// The result of `look` at the statistics, if they are there.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&MatrixStatistics<f64>) -> R) -> Option<R> {
        lock(&self.statistics).get().as_deref().map(look)
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

/// A chain whose rows are looked at.
pub(super) struct Surveyed {
    inner: Arc<dyn Transitions>,
    survey: Survey,
}

impl Surveyed {
    pub(crate) fn begin(inner: Arc<dyn Transitions>) -> Self {
        let ((found, finding), (repeating, searching)) = (channel(), channel());
        let (chain, stop) = (inner.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let look = move || -> Result<()> {
            let n = chain.states();
            // Beside what every run has: the number of each row's pattern.
            expect_host_memory(n, Precision::F64.bytes(), 2 * n as u64)?;
            let statistics = Arc::new(statistics(&*chain)?);
            // Nobody listens where a run ended early.
            let _ = found.send(statistics.clone());
            let repeats = interruptible(&stopped, || Ok(repetition_of(&*chain, &statistics)));
            drop(statistics);
            if let Ok(repeats) = repeats {
                let _ = repeating.send(repeats);
            }
            Ok(())
        };
        // One more thread is no condition of a run.
        let _ = Builder::new().name("kolmo-survey".to_owned()).spawn(look);
        let (statistics, repetition) = (Pending::Arriving(finding), Pending::Arriving(searching));
        let survey = Survey { statistics: Mutex::new(statistics), repetition: Mutex::new(repetition), stop };
        Self { inner, survey }
    }
}

/// What repeats in all rows of a chain, which lie in slices as wide as moves the fewest bytes.
fn repetition_of(chain: &dyn Transitions, statistics: &MatrixStatistics<f64>) -> Repeating {
    let layout = Layout::new(&statistics.lengths, WidthRule::Auto, Precision::F64.bytes());
    let repeats = chain.repeats_among(&statistics.rows);
    let row = |row: usize, entries: &mut Vec<(u32, f64)>| {
        append_entries(chain, statistics, row, |column| column, entries);
    };
    let found = repetition::find(
        &Rows {
            repeats: &repeats,
            own: 0,
            exit: &statistics.exit,
            width: &|row| layout.widths[row / SLICE],
            row: &row,
        },
        most_values(chain.states()),
    );
    (layout, found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_knows_of_one_lane_what_its_build_would_look_for() {
        let model = crate::models::parse("wlan:12,6").unwrap().unwrap();
        let chain = Surveyed::begin(model.transitions.into());
        let survey = chain.survey().unwrap();

        let statistics = survey.take::<f64>(true).expect("the statistics");
        assert!(survey.take::<f64>(true).is_none(), "they are handed out once");
        let (layout, expected) = repetition_of(&chain, &statistics);
        let found = survey.take_repetition::<f64>(&layout).expect("what repeats");

        assert_eq!(found.values, expected.values);
        assert_eq!(found.pairs, expected.pairs);
        let (found, expected) = (found.patterns.unwrap(), expected.patterns.unwrap());
        assert_eq!((found.ids, found.words), (expected.ids, expected.words));
        assert!(survey.take_repetition::<f64>(&layout).is_none(), "it is handed out once");
    }

    #[test]
    fn what_repeats_in_slices_of_other_widths_or_numbers_is_of_no_use() {
        let begin =
            || Surveyed::begin(crate::models::parse("tandem:15").unwrap().unwrap().transitions.into());
        let layout = |width| {
            let statistics = statistics::<f64>(&begin()).unwrap();
            Layout::new(&statistics.lengths, width, Precision::F64.bytes())
        };

        assert!(begin().survey.take_repetition::<f64>(&layout(WidthRule::Fixed(1))).is_none());
        assert!(begin().survey.take_repetition::<f32>(&layout(WidthRule::Auto)).is_none());
        assert!(begin().survey.take_repetition::<f64>(&layout(WidthRule::Auto)).is_some());
    }
}
