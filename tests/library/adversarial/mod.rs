//! Hundreds of adversarial problems, against independent references in double-word arithmetic.
//!
//! Each kind of problem is run for a few seeds. `KOLMO_SEEDS=5000` runs 5000 seeds of each kind,
//! `KOLMO_FIRST_SEED=17` starts at seed 17, and the two variables together repeat one case. A
//! failure names kind and seed.

/// Defines the kinds of problems of a generator, and their list.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Kind {
            $($(#[$doc])* $kind,)*
        }

        const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

mod banded;
pub(crate) mod double_word;
mod long_times;
mod page_rank;
mod piecewise;
pub(crate) mod transient;
mod transition_matrices;
mod tridiagonal;
mod walk;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kolmo::Machine;
use kolmo::kernel::Precision;

/// Returns a machine of `count` CPU lanes, opened once on each thread.
fn cpu_lanes(count: usize, precision: Precision) -> Rc<Machine> {
    thread_local! {
        static OPEN: RefCell<Vec<Rc<Machine>>> = RefCell::default();
    }
    OPEN.with_borrow_mut(|known| {
        let mut open = known.iter().filter(|machine| machine.precision == precision);
        if let Some(machine) = open.find(|machine| machine.lanes.len() == count) {
            return machine.clone();
        }
        let spec = vec!["cpu"; count].join(",");
        let machine = Rc::new(crate::support::machine(&spec, precision).expect("the CPU opens"));
        known.push(machine.clone());
        machine
    })
}

/// Calls `work` for every item on all cores, and returns its texts.
pub(crate) fn on_all_cores<T: Sync>(all: &[T], work: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    // Separate threads: a pool thread that waits for a lane would start another case on its stack.
    let some = || -> Vec<String> {
        std::iter::from_fn(|| all.get(next.fetch_add(1, Ordering::Relaxed))).filter_map(&work).collect()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no case panics")).collect()
    })
}

/// Runs every kind for `usual` seeds on all cores, unless the environment sets a number.
///
/// Panics with the first ten failures and their number.
fn run_all<K: Copy + Send + Sync + std::fmt::Debug>(
    kinds: &[K],
    usual: u64,
    case: impl Fn(K, u64) -> Result<(), String> + Sync,
) {
    let asked = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is '{text}'; give a number")))
    };
    let first = asked("KOLMO_FIRST_SEED").unwrap_or(0);
    let seeds = first..first + asked("KOLMO_SEEDS").unwrap_or(usual);
    let of = |kind: K| seeds.clone().map(move |seed| (kind, seed));
    let all: Vec<(K, u64)> = kinds.iter().copied().flat_map(of).collect();
    let failures = on_all_cores(&all, |&(kind, seed)| {
        case(kind, seed).err().map(|e| format!("{kind:?}, seed {seed}: {e}"))
    });
    let shown: Vec<&str> = failures.iter().take(10).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), all.len(), shown.join("\n"));
}
