//! Chain with a background scan of its rows while devices open.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::Builder;

use super::prescan::{Prescan, Repeating};
use super::scan::{append_entries, statistics};
use super::statistics::MatrixStatistics;
use super::transitions::{Transitions, forward_rows};
use crate::Result;
use crate::kernel::Precision;
use crate::parallel::interruptible;
use crate::sparse::dictionary_search::{self, RowSet, most_values};
use crate::sparse::{HybLayout, SLICE};
use crate::transient::memory::expect_host_memory;

/// Chain with a background scan of its rows.
pub(super) struct Prescanned {
    inner: Arc<dyn Transitions>,
    prescan: Prescan,
}

impl Prescanned {
    pub(crate) fn begin(inner: Arc<dyn Transitions>) -> Self {
        let ((found, finding), (repeating, searching)) = (channel(), channel());
        let (chain, stop) = (inner.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let scan = move || -> Result<()> {
            let n = chain.states();
            // Memory on top of that of every run: the pattern number of each row.
            expect_host_memory(n, Precision::F64.bytes(), 2 * n as u64)?;
            let statistics = Arc::new(statistics(&*chain)?);
            // The receiver is gone if the run ended early.
            let _ = found.send(statistics.clone());
            let repeats = interruptible(&stopped, || Ok(repetition_of(&*chain, &statistics)));
            drop(statistics);
            if let Ok(repeats) = repeats {
                let _ = repeating.send(repeats);
            }
            Ok(())
        };
        // A run works without the thread, so a failed spawn is ignored.
        let _ = Builder::new().name("kolmo-survey".to_owned()).spawn(scan);
        Self { inner, prescan: Prescan::new(finding, searching, stop) }
    }
}

/// Finds the repetition in all rows of a chain, in slices of the width that moves the fewest bytes.
fn repetition_of(chain: &dyn Transitions, statistics: &MatrixStatistics<f64>) -> Repeating {
    let layout = HybLayout::new(&statistics.lengths, Precision::F64.bytes());
    let repeats = chain.repeats_among(&statistics.rows);
    let row = |row: usize, entries: &mut Vec<(u32, f64)>| {
        append_entries(chain, statistics, row, |column| column, entries);
    };
    let found = dictionary_search::find(
        &RowSet {
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

impl Transitions for Prescanned {
    forward_rows!(self: self.inner);

    fn is_discrete(&self) -> bool {
        self.inner.is_discrete()
    }

    fn prescan(&self) -> Option<&Prescan> {
        Some(&self.prescan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prescan_finds_the_repetition_that_a_build_on_one_lane_searches() {
        let model = crate::models::parse("wlan:12,6").unwrap().unwrap();
        let chain = Prescanned::begin(model.transitions.into());
        let prescan = chain.prescan().unwrap();

        let statistics = prescan.take::<f64>(true).expect("the statistics");
        assert!(prescan.take::<f64>(true).is_none(), "they are handed out once");
        let (layout, expected) = repetition_of(&chain, &statistics);
        let found = prescan.take_repetition::<f64>().expect("what repeats");

        assert_eq!((found.0, found.1.values), (layout, expected.values));
        let (found, expected) = (found.1.patterns.unwrap(), expected.patterns.unwrap());
        assert_eq!((&found.ids, &found.words), (&expected.ids, &expected.words));
        assert!(prescan.take_repetition::<f64>().is_none());
    }
}
