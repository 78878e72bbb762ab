//! Ranks: processes that share a problem, as a launcher of MPI started them.
//!
//! [`Ranks`] is a value that says which of them this process is. It travels with the choices about splitting; a solver
//! that has one of a single rank, which is the default, never communicates. All operations are collective: every rank
//! calls them in the same order, which is why solvers decide by numbers that are the same everywhere.

#[cfg(not(feature = "mpi"))]
mod absent;
#[cfg(feature = "mpi")]
mod mpi;

#[cfg(not(feature = "mpi"))]
#[doc(hidden)]
pub use absent::{Messages, with_messages};
#[cfg(feature = "mpi")]
#[doc(hidden)]
pub use mpi::{Messages, with_messages};

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use bytemuck::Pod;

use crate::{Error, Result};

/// Removes what a process leaves incomplete when all ranks are ended.
static BEFORE_ABORT: OnceLock<fn()> = OnceLock::new();

/// Names what [`Ranks::abort_all`] does before the process ends; the first caller's action stays.
pub(crate) fn before_abort(clean: fn()) {
    BEFORE_ABORT.get_or_init(|| clean);
}

/// Which process of how many this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    rank: usize,
    size: usize,
    /// The number among the ranks of the host, and how many they are.
    place: (usize, usize),
}

impl Default for Ranks {
    fn default() -> Self {
        Self::ALONE
    }
}

/// Used where there is one rank, or the feature is missing.
#[cfg(not(feature = "mpi"))]
macro_rules! alone {
    () => {
        unreachable!("several ranks without the feature mpi")
    };
}

impl Ranks {
    /// A process of its own.
    pub const ALONE: Self = Self { rank: 0, size: 1, place: (0, 1) };

    /// One of some that are not there, to look at what it would do by itself.
    #[cfg(test)]
    pub(crate) fn simulated(rank: usize, size: usize) -> Self {
        Self { rank, size, place: (rank, size) }
    }

    /// Number of this rank.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// Number of ranks, at least 1.
    pub fn size(self) -> usize {
        self.size
    }

    /// True if there are others.
    pub fn is_distributed(self) -> bool {
        self.size > 1
    }

    /// True for rank 0, which speaks for all.
    pub fn is_root(self) -> bool {
        self.rank == 0
    }

    /// The number among the ranks of the host, and how many they are.
    pub fn place(self) -> (usize, usize) {
        self.place
    }

    /// This rank's of `count` things, in shares that differ by one at most.
    pub fn share(self, count: u64) -> Range<u64> {
        let cut = |rank: usize| (u128::from(count) * rank as u128 / self.size as u128) as u64;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// The lists of all ranks, in the order of ranks. They may differ in length.
    pub fn all_gather<T: Pod>(self, mine: &[T]) -> Vec<Vec<T>> {
        if self.size == 1 {
            return vec![mine.to_vec()];
        }
        #[cfg(feature = "mpi")]
        return mpi::all_gather(bytemuck::cast_slice(mine)).iter().map(|list| pod(list)).collect();
        #[cfg(not(feature = "mpi"))]
        alone!()
    }

    /// Sends list r to rank r, and gives what came from each.
    pub fn all_to_all(self, lists: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        assert_eq!(lists.len(), self.size, "a list for each rank");
        if self.size == 1 {
            return lists;
        }
        #[cfg(feature = "mpi")]
        return mpi::all_to_all(lists);
        #[cfg(not(feature = "mpi"))]
        alone!()
    }

    /// Sends items of W words to ranks, a bounded number at once, and gives `take` those that come, in an order that their
    /// number decides and not W. `count` is how many this rank has, or more.
    pub fn all_to_all_in_rounds<const W: usize>(
        self,
        count: usize,
        items: impl IntoIterator<Item = (usize, [u32; W])>,
        take: impl FnMut(&[u32; W]),
    ) {
        let most = self.all_reduce_max(count as f64) as usize;
        in_rounds(self.size, most, items.into_iter(), |lists| self.all_to_all(lists), take);
    }

    /// Hands numbers from rank to rank, each of which changes them in turn, and then to all: a sum that is added up in
    /// one order, however many ranks there are.
    pub fn ordered_reduce(self, numbers: &mut [f64], change: impl FnOnce(&mut [f64])) {
        if self.size == 1 {
            return change(numbers);
        }
        #[cfg(feature = "mpi")]
        mpi::ordered_reduce(self.rank, self.size, numbers, change);
        #[cfg(not(feature = "mpi"))]
        alone!()
    }

    /// Values of all ranks, one behind the other, on rank 0; nothing elsewhere. However many they are.
    pub fn gather_to_root(self, mine: &[f64]) -> Vec<f64> {
        if self.size == 1 {
            return mine.to_vec();
        }
        #[cfg(feature = "mpi")]
        return mpi::gather_to_root(self, mine);
        #[cfg(not(feature = "mpi"))]
        alone!()
    }

    /// Numbers that rank 0 has for each rank, `mine` of them for this one; `list` is asked on rank 0. However many they are.
    pub fn scatter_from_root(self, mine: usize, list: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
        if self.size == 1 {
            return list(0);
        }
        #[cfg(feature = "mpi")]
        return mpi::scatter_from_root(self, mine, list);
        #[cfg(not(feature = "mpi"))]
        {
            let _ = mine;
            alone!()
        }
    }

    /// The largest of everybody's numbers.
    pub fn all_reduce_max(self, mine: f64) -> f64 {
        self.all_gather(&[mine]).into_iter().flatten().fold(mine, f64::max)
    }

    /// The smallest of everybody's numbers.
    pub fn all_reduce_min(self, mine: u64) -> u64 {
        self.all_gather(&[mine]).into_iter().flatten().fold(mine, u64::min)
    }

    /// The sum of everybody's numbers.
    pub fn all_reduce_sum(self, mine: u64) -> u64 {
        self.all_gather(&[mine]).into_iter().flatten().sum()
    }

    /// A text of each rank.
    pub fn all_gather_text(self, mine: &str) -> Vec<String> {
        self.all_gather(mine.as_bytes())
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    /// A result that every rank has, or an error on all.
    ///
    /// # Errors
    /// [`Error::OnRank`] on the first rank with an error, [`Error::Elsewhere`] on all others.
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
            // Who interrupts one rank interrupts all.
            (None, _) if failed.contains(&INTERRUPTED) => Err(Error::Interrupted),
            (None, mine) => mine,
            (Some(first), Err(e)) if first == self.rank => {
                Err(Error::OnRank { rank: self.rank, failed: count, of: self.size, source: Box::new(e) })
            }
            _ => Err(Error::Elsewhere),
        }
    }

    /// An error on all ranks if one has another text than rank 0; `what` names it.
    ///
    /// # Errors
    /// [`Error::OnRank`] and [`Error::Elsewhere`], as [`Ranks::all_ok`].
    pub fn expect_same(self, what: &str, mine: &str) -> Result<()> {
        let texts = self.all_gather_text(mine);
        let mine = match texts[0] == texts[self.rank] {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "its {what} is \"{}\", that of rank 0 \"{}\"; start all ranks alike",
                texts[self.rank], texts[0]
            ))),
        };
        self.all_ok(mine)
    }

    /// Ends all ranks for an error that the others do not know of: says which, removes what is not complete, and does
    /// not come back.
    pub fn abort_all(self, error: &Error) -> ! {
        let code = match error {
            Error::Interrupted => {
                // What rank 0 has to say about a checkpoint comes first.
                if !self.is_root() {
                    std::thread::sleep(SAY_FIRST);
                }
                130
            }
            _ => {
                // Where all have the same error one message will do.
                if !self.is_root() {
                    std::thread::sleep(SAY_FIRST);
                }
                eprintln!("error: rank {}: {error}", self.rank);
                2
            }
        };
        if let Some(clean) = BEFORE_ABORT.get() {
            clean();
        }
        #[cfg(feature = "mpi")]
        if self.is_distributed() {
            mpi::abort(code);
        }
        std::process::exit(code)
    }
}

/// The other rank of a message, and the message's tag: its number among those between the two in this direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The other rank.
    pub rank: usize,
    /// The message's number between the two.
    pub tag: usize,
}

/// The way in which a thread waits for messages.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// Set when there is nothing to wait for any more.
    pub stop: &'a AtomicBool,
    /// True if the thread may keep its core to itself.
    pub spin: bool,
}

/// Items that come to a rank in a round, if every rank has that many for it.
const AT_ONCE: usize = 1 << 18;
/// Rounds from which on these are more.
const ROUNDS: usize = 256;
/// The largest number of words: MPI counts them in `int`s.
const MOST_AT_ONCE: usize = 1 << 26;

/// Items that a rank sends in a round, where none has more than `most`.
fn piece(size: usize, most: usize) -> usize {
    (AT_ONCE / size).max(most / ROUNDS).min(MOST_AT_ONCE / size).max(1)
}

/// As many rounds as the rank with most items needs.
fn in_rounds<const W: usize>(
    size: usize,
    most: usize,
    mut items: impl Iterator<Item = (usize, [u32; W])>,
    mut trade: impl FnMut(Vec<Vec<u32>>) -> Vec<Vec<u32>>,
    mut take: impl FnMut(&[u32; W]),
) {
    let piece = piece(size, most);
    for _ in 0..most.div_ceil(piece) {
        let mut leaving: Vec<Vec<u32>> = vec![Vec::new(); size];
        for (to, words) in items.by_ref().take(piece) {
            leaving[to].extend(words);
        }
        for arrived in trade(leaving) {
            arrived.as_chunks().0.iter().for_each(&mut take);
        }
    }
    assert!(items.next().is_none(), "a rank has more items than it said");
}

/// Time that the others wait for rank 0 to say what is wrong.
const SAY_FIRST: std::time::Duration = std::time::Duration::from_millis(400);

#[cfg(feature = "mpi")]
fn pod<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// The time from the start of the ranks to their end. To be dropped before the process ends.
#[derive(Debug)]
pub struct Session {
    ranks: Ranks,
    #[cfg(feature = "mpi")]
    _universe: Option<mpi::Universe>,
}

/// Variables that launchers set for each process; true for those that are the number of all.
const TOLD: [(&str, bool); 6] = [
    ("OMPI_COMM_WORLD_SIZE", true),
    ("PMI_SIZE", true),
    ("MV2_COMM_WORLD_SIZE", true),
    ("PMI_RANK", false),
    ("PMIX_RANK", false),
    ("PALS_RANKID", false),
];

/// What launchers say of how many processes they started; none in a process that was started alone.
fn told() -> Vec<usize> {
    let told = |&(name, count): &(&str, bool)| {
        let value = std::env::var(name).ok()?;
        Some(if count { value.parse().unwrap_or(1) } else { 1 })
    };
    TOLD.iter().filter_map(told).collect()
}

impl Session {
    /// True for a process that a launcher of MPI started, as its environment tells.
    pub fn is_launched() -> bool {
        !told().is_empty()
    }

    /// Joins the ranks, if a launcher started this process; a process that was started alone stays so, and costs
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one of several processes of a build without the feature `mpi`, and for an MPI library
    /// that cannot be called from threads.
    pub fn begin() -> Result<Self> {
        let told = told();
        #[cfg(feature = "mpi")]
        if !told.is_empty() {
            let (universe, rank, size, place) = mpi::join()?;
            return Ok(Self { ranks: Ranks { rank, size, place }, _universe: Some(universe) });
        }
        #[cfg(not(feature = "mpi"))]
        if let Some(size) = told.iter().find(|&&size| size > 1) {
            return Err(Error::Invalid(format!(
                "this is one of {size} processes that a launcher of MPI started, and they would all do the same work: \
                 this build has no ranks; build it with --features mpi"
            )));
        }
        Ok(Self {
            ranks: Ranks::ALONE,
            #[cfg(feature = "mpi")]
            _universe: None,
        })
    }

    /// Which process of how many this is.
    pub fn ranks(&self) -> Ranks {
        self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_everything_is_ones_own() {
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

    #[test]
    fn items_travel_a_bounded_number_at_once_and_in_one_order() {
        for (size, count, most) in
            [(1, 0, 0), (1, 7, 7), (4, 100_000, 300_000), (3, 0, 70_000), (64, 3 << 20, 3 << 20)]
        {
            let bound = (AT_ONCE / size).max(most / ROUNDS).max(1);
            let to = |k: usize| k * 7 % size;
            let (mut rounds, mut sent) = (0, Vec::new());
            let echo = |words: usize, lists: Vec<Vec<u32>>| {
                let held = lists.iter().map(Vec::len).sum::<usize>() / words;
                assert!(held <= bound, "{held} items of {count} at once on {size} ranks");
                lists
            };

            let narrow = (0..count).map(|k| (to(k), [k as u32]));
            in_rounds(size, most, narrow, |lists| echo(1, lists), |&[k]| sent.push(k));
            let wide = (0..count).map(|k| (to(k), [k as u32, !(k as u32), 5]));
            let mut again = sent.iter();
            let trade = |lists| {
                rounds += 1;
                echo(3, lists)
            };
            in_rounds(size, most, wide, trade, |&[k, inverse, five]| {
                assert_eq!((Some(&k), inverse, five), (again.next(), !k, 5));
            });

            assert_eq!(rounds, most.div_ceil(bound), "{most} on {size} ranks");
            sent.sort_unstable();
            assert!(sent.iter().copied().eq(0..count as u32), "{count} on {size} ranks");
        }
        // However many there are, a round fits an MPI message.
        assert!([1, 5, 4096].iter().all(|&size| piece(size, usize::MAX) * size <= MOST_AT_ONCE));
    }
}
