//! Ranks: processes that share a problem, started by an MPI launcher.
//!
//! [`Ranks`] is the rank of this process and the number of ranks. It is passed to solvers with the
//! options for dividing work. A solver with a single rank, the default, never communicates. All
//! operations are collective: every rank calls them in one order. Therefore solvers only branch on
//! numbers that are equal on all ranks.

#[cfg(not(feature = "mpi"))]
mod absent;
#[cfg(feature = "mpi")]
mod mpi;

#[cfg(not(feature = "mpi"))]
pub use absent::{Messages, with_messages};
#[cfg(feature = "mpi")]
pub use mpi::{Messages, with_messages};

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use bytemuck::Pod;

use crate::{Error, Result};

/// Rank of this process, and the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    rank: usize,
    size: usize,
    /// Rank among the ranks of this host, and their number.
    place: (usize, usize),
}

impl Default for Ranks {
    fn default() -> Self {
        Self::ALONE
    }
}

/// Evaluates a call of the module `mpi`; never reached in a build without it.
macro_rules! remote {
    ($call:expr) => {{
        #[cfg(feature = "mpi")]
        {
            $call
        }
        #[cfg(not(feature = "mpi"))]
        unreachable!("several ranks without the feature mpi")
    }};
}

impl Ranks {
    /// Single process.
    pub const ALONE: Self = Self { rank: 0, size: 1, place: (0, 1) };

    /// A simulated rank for tests; it does not communicate.
    #[cfg(test)]
    pub(crate) fn simulated(rank: usize, size: usize) -> Self {
        Self { rank, size, place: (rank, size) }
    }

    /// Returns the number of this rank.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// Returns the number of ranks, at least 1.
    pub fn size(self) -> usize {
        self.size
    }

    /// True if several ranks share the work.
    pub fn is_distributed(self) -> bool {
        self.size > 1
    }

    /// True for rank 0, which prints on behalf of all ranks.
    pub fn is_root(self) -> bool {
        self.rank == 0
    }

    /// Returns the rank among the ranks of this host, and their number.
    pub fn place(self) -> (usize, usize) {
        self.place
    }

    /// Returns this rank's share of `count` items; shares differ by at most one item.
    pub fn share(self, count: u64) -> Range<u64> {
        let cut = |rank: usize| (u128::from(count) * rank as u128 / self.size as u128) as u64;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// Gathers the lists of all ranks, which may differ in length, in the order of ranks.
    pub fn all_gather<T: Pod>(self, mine: &[T]) -> Vec<Vec<T>> {
        if self.size == 1 {
            return vec![mine.to_vec()];
        }
        remote!(
            mpi::all_gather(bytemuck::cast_slice(mine))
                .iter()
                .map(|list| bytemuck::pod_collect_to_vec(list))
                .collect()
        )
    }

    /// Sends list r to rank r, and returns the list received from each rank.
    pub fn all_to_all(self, lists: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        assert_eq!(lists.len(), self.size, "a list for each rank");
        if self.size == 1 {
            return lists;
        }
        remote!(mpi::all_to_all(lists))
    }

    /// Passes numbers through all ranks in turn, each applying `change`, and broadcasts them.
    ///
    /// This gives sums with a fixed order of additions, for any number of ranks.
    pub fn ordered_reduce(self, numbers: &mut [f64], change: impl FnOnce(&mut [f64])) {
        if self.size == 1 {
            return change(numbers);
        }
        remote!(mpi::ordered_reduce(self.rank, self.size, numbers, change));
    }

    /// Concatenates the values of all ranks on rank 0; returns an empty vector on remote ranks.
    ///
    /// The number of values is not limited by MPI's `int`.
    pub fn gather_to_root(self, mine: &[f64]) -> Vec<f64> {
        if self.size == 1 {
            return mine.to_vec();
        }
        remote!(mpi::gather_to_root(self, mine))
    }

    /// Sends numbers from rank 0 to each rank: `list(r)`, called on rank 0, to rank r.
    ///
    /// `mine` is the number of values for this rank. The number of values is not limited by MPI's
    /// `int`.
    pub fn scatter_from_root(self, mine: usize, list: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
        if self.size == 1 {
            return list(0);
        }
        let _ = mine;
        remote!(mpi::scatter_from_root(self, mine, list))
    }

    /// Returns the maximum of `mine` over all ranks.
    pub fn all_reduce_max(self, mine: f64) -> f64 {
        self.all_gather(&[mine]).into_iter().flatten().fold(mine, f64::max)
    }

    /// Returns the minimum of `mine` over all ranks.
    pub fn all_reduce_min(self, mine: u64) -> u64 {
        self.all_gather(&[mine]).into_iter().flatten().fold(mine, u64::min)
    }

    /// Returns the sum of `mine` over all ranks.
    pub fn all_reduce_sum(self, mine: u64) -> u64 {
        self.all_gather(&[mine]).into_iter().flatten().sum()
    }

    /// Gathers one text from each rank, in the order of ranks.
    pub fn all_gather_text(self, mine: &str) -> Vec<String> {
        self.all_gather(mine.as_bytes())
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    /// Returns this rank's result if all ranks succeeded, else an error on all ranks.
    ///
    /// # Errors
    /// [`Error::OnRank`] on the first rank with an error, [`Error::Elsewhere`] on all remote ranks.
    /// [`Error::Interrupted`] on all ranks if some were only interrupted.
    pub fn all_ok<T>(self, mine: Result<T>) -> Result<T> {
        if self.size == 1 {
            return mine;
        }
        const FAILED: u8 = 1;
        const INTERRUPTED: u8 = 2;
        let told = match &mine {
            Ok(_) => 0,
            Err(Error::Interrupted) => INTERRUPTED,
            Err(_) => FAILED,
        };
        let failed = self.all_gather(&[told]).concat();
        let count = failed.iter().filter(|&&failed| failed == FAILED).count();
        let first = failed.iter().position(|&failed| failed == FAILED);
        match (first, mine) {
            // An interrupt of one rank interrupts all.
            (None, _) if failed.contains(&INTERRUPTED) => Err(Error::Interrupted),
            (None, mine) => mine,
            (Some(first), Err(e)) if first == self.rank => {
                Err(Error::OnRank { rank: self.rank, failed: count, of: self.size, source: Box::new(e) })
            }
            _ => Err(Error::Elsewhere),
        }
    }

    /// Checks that the text on each rank equals that on rank 0; `what` names it.
    ///
    /// # Errors
    /// [`Error::OnRank`] and [`Error::Elsewhere`], as in [`Ranks::all_ok`].
    pub fn expect_same(self, what: &str, mine: &str) -> Result<()> {
        let texts = self.all_gather_text(mine);
        let mine = match texts[0] == texts[self.rank] {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "its {what} is \"{}\", but that of rank 0 is \"{}\"; start all ranks with the same \
                 options",
                texts[self.rank], texts[0]
            ))),
        };
        self.all_ok(mine)
    }

    /// Aborts all ranks after an error that only this rank has.
    ///
    /// Prints the error, removes incomplete files and ends the process.
    pub fn abort_all(self, error: &Error) -> ! {
        // Rank 0 first prints its message about a checkpoint. If all ranks have this error, its
        // message suffices.
        if !self.is_root() {
            std::thread::sleep(SAY_FIRST);
        }
        let code = match error {
            Error::Interrupted => 130,
            _ => {
                eprintln!("error: rank {}: {error}", self.rank);
                2
            }
        };
        crate::output::abandon();
        #[cfg(feature = "mpi")]
        if self.is_distributed() {
            mpi::abort(code);
        }
        std::process::exit(code)
    }
}

/// Remote rank and tag of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageEnvelope {
    /// Rank at the other end of the message.
    pub rank: usize,
    /// Number of the message between the two ranks in this direction.
    pub tag: usize,
}

/// Options for waiting for messages.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// Flag that ends the wait with [`Error::Interrupted`] once it is set.
    pub stop: &'a AtomicBool,
    /// True if the thread may spin without yielding its core.
    pub spin: bool,
}

/// Delay of an error's report by ranks other than 0, so that rank 0 reports first.
const SAY_FIRST: std::time::Duration = std::time::Duration::from_millis(400);

/// MPI session of this process; drop it before the process ends.
#[derive(Debug)]
pub struct Session {
    ranks: Ranks,
    #[cfg(feature = "mpi")]
    _universe: Option<mpi::Universe>,
}

/// Environment variables set by MPI launchers; true if the value is the number of processes.
const TOLD: [(&str, bool); 6] = [
    ("OMPI_COMM_WORLD_SIZE", true),
    ("PMI_SIZE", true),
    ("MV2_COMM_WORLD_SIZE", true),
    ("PMI_RANK", false),
    ("PMIX_RANK", false),
    ("PALS_RANKID", false),
];

/// Returns the number of processes by each set variable of [`TOLD`]; 1 if not a number.
fn told() -> Vec<usize> {
    let told = |&(name, count): &(&str, bool)| {
        let value = std::env::var(name).ok()?;
        Some(if count { value.parse().unwrap_or(1) } else { 1 })
    };
    TOLD.iter().filter_map(told).collect()
}

impl Session {
    /// True if an MPI launcher started this process, according to the environment.
    pub fn is_launched() -> bool {
        !told().is_empty()
    }

    /// Initialises MPI if a launcher started this process; otherwise does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one of several processes of a build without the feature `mpi`, and
    /// for an MPI library that cannot be called from threads.
    pub fn begin() -> Result<Self> {
        let told = told();
        #[cfg(feature = "mpi")]
        if !told.is_empty() {
            let (universe, rank, size, place) = mpi::join()?;
            return Ok(Self { ranks: Ranks { rank, size, place }, _universe: Some(universe) });
        }
        #[cfg(not(feature = "mpi"))]
        if let Some(size) = told.iter().find(|&&size| size > 1) {
            return crate::Invalid::Unsupported.fail(format!(
                "started as one of {size} processes by a launcher of MPI, but this build does not \
                 support ranks, so all would do the same work; build it with the feature mpi"
            ));
        }
        Ok(Self {
            ranks: Ranks::ALONE,
            #[cfg(feature = "mpi")]
            _universe: None,
        })
    }

    /// Returns the rank of this process and the number of ranks.
    pub fn ranks(&self) -> Ranks {
        self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_reduces_and_gathers_its_own_values() {
        let ranks = Ranks::ALONE;
        let mut sum = [1.0];

        ranks.ordered_reduce(&mut sum, |sum| sum[0] += 2.0);

        assert_eq!(sum, [3.0]);
        assert_eq!(ranks.all_gather(&[1u32, 2]), [[1, 2]]);
        assert_eq!(ranks.all_to_all(vec![vec![7]]), [[7]]);
        assert_eq!(
            (ranks.all_reduce_max(0.5), ranks.all_reduce_min(3), ranks.all_reduce_sum(4)),
            (0.5, 3, 4)
        );
        assert!(matches!(ranks.all_ok::<()>(Err(Error::Interrupted)), Err(Error::Interrupted)));
    }
}
