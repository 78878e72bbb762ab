//! Orders of the states that place neighbours close together in memory and make halos small.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use super::{Partition, RunFacts, share, split};
use crate::lane::cpu::expect_memory;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::transient::chain::Reward;
use crate::transient::chain::transitions::Transitions;
pub(crate) use crate::transient::problem::Order;
use crate::transient::problem::{Observer, Problem};
use crate::transient::solution::LanePlan;
use crate::{Machine, Progress, Result};

/// Share of the exchange in a step below which no other order is tried.
const WORTHWHILE: f64 = 0.05;

/// Chain with renumbered states.
pub(crate) struct Reordered<'a> {
    inner: &'a dyn Transitions,
    /// Model's number of each state of this order; `new` is the inverse.
    old: Vec<u32>,
    new: Vec<u32>,
    ranks: Ranks,
    /// Initial probability of each state, in the model's order.
    pub(crate) initial: Cow<'a, [f64]>,
}

impl<'a> Reordered<'a> {
    fn new(inner: &'a dyn Transitions, old: Vec<u32>, ranks: Ranks, initial: Cow<'a, [f64]>) -> Self {
        let mut new = vec![0; old.len()];
        for (place, &state) in old.iter().enumerate() {
            new[state as usize] = place as u32;
        }
        Self { inner, old, new, ranks, initial }
    }

    /// Permutes a vector to this order.
    pub(crate) fn permute(&self, values: &[f64]) -> Vec<f64> {
        self.old.iter().map(|&state| values[state as usize]).collect()
    }

    /// Permutes rewards to this order.
    pub(crate) fn rewards(&self, rewards: &[Reward]) -> Vec<Reward> {
        rewards.iter().map(|r| Reward { name: r.name.clone(), values: self.permute(&r.values) }).collect()
    }

    /// Returns an observer of results in this order, which passes them to `inner` in the model's
    /// order.
    pub(crate) fn restore<'b>(&'b self, inner: &'b mut dyn Observer) -> impl Observer + 'b {
        Restore { inner, order: self, rows: std::iter::once(0..self.new.len()).collect() }
    }

    fn renumber(&self, row: &mut [(u32, f64)]) {
        for (state, _) in row.iter_mut() {
            *state = self.new[*state as usize];
        }
        row.sort_unstable_by_key(|&(state, _)| state);
    }
}

impl Transitions for Reordered<'_> {
    fn states(&self) -> usize {
        self.old.len()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let before = row.len();
        self.inner.incoming(self.old[state] as usize, row);
        self.renumber(&mut row[before..]);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let before = row.len();
        self.inner.outgoing(self.old[state] as usize, row);
        self.renumber(&mut row[before..]);
    }
}

struct Restore<'a> {
    inner: &'a mut dyn Observer,
    order: &'a Reordered<'a>,
    /// States of every rank, equally many in either order.
    rows: Vec<Range<usize>>,
}

impl Restore<'_> {
    /// Returns the probabilities of this rank's states in the model's order.
    ///
    /// `probabilities` are those of equally many states in the other order. Each rank sends every
    /// other rank its values, ascending by the model's numbers.
    fn collected(&self, probabilities: &[f64]) -> Vec<f64> {
        let Reordered { new, ranks, .. } = self.order;
        let mine = &self.rows[ranks.rank()];
        let here = |place: u32| mine.contains(&(place as usize));
        let to = |states: &Range<usize>| -> Vec<u32> {
            let places = new[states.clone()].iter().filter(|&&place| here(place));
            let values: Vec<f64> = places.map(|&place| probabilities[place as usize - mine.start]).collect();
            bytemuck::cast_slice(&values).to_vec()
        };
        let arrived = ranks.all_to_all(self.rows.iter().map(to).collect());
        let mut arrived: Vec<_> = arrived
            .iter()
            .map(|values| bytemuck::pod_collect_to_vec::<u32, f64>(values).into_iter())
            .collect();
        let of = |place: u32| self.rows.partition_point(|rows| rows.end <= place as usize);
        let next = |&place: &u32| arrived[of(place)].next().expect("every place is some rank's");
        new[mine.clone()].iter().map(next).collect()
    }
}

impl Progress for Restore<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.inner.progress(done, all)
    }
}

impl Observer for Restore<'_> {
    fn rows(&mut self, rows: Range<usize>) {
        let bounds = self.order.ranks.all_gather(&[rows.start as u64, rows.end as u64]);
        self.rows = bounds.iter().map(|b| b[0] as usize..b[1] as usize).collect();
        self.inner.rows(rows);
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let restored: Vec<f64> = match self.order.ranks.is_distributed() {
            true => self.collected(probabilities),
            false => self.order.new.par_iter().map(|&place| probabilities[place as usize]).collect(),
        };
        self.inner.result(index, &restored)
    }
}

/// Bytes per state of the whole chain: visited flag, index twice, initial probability twice.
const WHOLE: u64 = 1 + 2 * 4 + 2 * 8;

/// Returns the seconds in which a thread reads the row and the column of a state, from a sample.
fn lookup_seconds(transitions: &dyn Transitions) -> f64 {
    const SAMPLES: usize = 1024;
    let (n, mut row) = (transitions.states(), Vec::new());
    let sampled = n.clamp(1, SAMPLES);
    let started = Instant::now();
    for state in (0..sampled).map(|i| i * n / sampled) {
        row.clear();
        transitions.incoming(state, &mut row);
        transitions.outgoing(state, &mut row);
    }
    started.elapsed().as_secs_f64() / sampled as f64
}

/// Reorders the chain, unless it keeps its own order; also returns the order used.
///
/// For a requested order every rank reads all states and finds the same permutation.
/// [`Order::Auto`] searches only if the run's steps can gain more time than the search takes. If
/// the chain keeps its own order, the computed partition is stored in `run`.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the host's memory does not suffice; errors
/// of a lane that is measured.
pub(crate) fn reorder<'a>(
    machine: &Machine,
    problem: &Problem<'a>,
    initial: &'a [f64],
    lengths: &[u32],
    run: &mut RunFacts,
    requested: Order,
) -> Result<(Option<Reordered<'a>>, Order)> {
    let (transitions, ranks) = (problem.transitions, machine.ranks);
    let make = |order: Order, initial: Cow<'a, [f64]>| {
        let old = breadth_first(transitions, &initial, order == Order::Rcm);
        Reordered::new(transitions, old, ranks, initial)
    };
    match requested {
        Order::Natural => return Ok((None, Order::Natural)),
        Order::Bfs | Order::Rcm if ranks.is_distributed() => {
            let n = transitions.states();
            let room = expect_memory(n as u64 * WHOLE, || {
                format!(
                    "an order of {n} states, which every rank computes by itself (`order` natural \
                     needs no such memory)"
                )
            });
            ranks.all_ok(room)?;
            let initial = ranks.all_ok(problem.initial.probabilities(n))?;
            return Ok((Some(make(requested, initial.into())), requested));
        }
        Order::Bfs | Order::Rcm => return Ok((Some(make(requested, initial.into())), requested)),
        // Other orders require all states, and a rank knows its own only.
        Order::Auto if machine.lanes.len() == 1 || ranks.is_distributed() => {
            return Ok((None, Order::Natural));
        }
        Order::Auto => {}
    }
    // Seconds of the slowest lane's step, and those without an exchange.
    let predicted = |transitions: &dyn Transitions, lengths: &[u32]| -> Result<(f64, f64, Partition)> {
        let shares = share(machine, transitions, Some(lengths))?;
        let partition = split(machine, transitions, &shares, run)?;
        let slowest = |seconds: fn(&LanePlan) -> f64| partition.plan.iter().map(seconds).fold(0.0, f64::max);
        Ok((slowest(|lane| lane.step), slowest(|lane| lane.compute), partition))
    };
    let (mut best, compute, natural) = predicted(transitions, lengths)?;
    let mut chosen = (None, Order::Natural);
    if best - compute <= WORTHWHILE * best {
        run.known = Some(natural);
        return Ok(chosen);
    }
    let pass = lookup_seconds(transitions) * transitions.states() as f64;
    // A breadth-first search reads every state once. Reverse Cuthill–McKee searches twice, and
    // reads degrees.
    for (order, passes) in [(Order::Bfs, 1.0), (Order::Rcm, 4.0)] {
        if run.steps * (best - compute) <= passes * pass {
            break;
        }
        let reordered = make(order, initial.into());
        let lengths: Cow<'_, [u32]> = reordered.old.iter().map(|&state| lengths[state as usize]).collect();
        let (step, ..) = predicted(&reordered, &lengths)?;
        // A tenth at least: the prediction is not more accurate, and the model's order compresses
        // better.
        if step < 0.9 * best {
            best = step;
            chosen = (Some(reordered), order);
        }
    }
    run.known = chosen.0.is_none().then_some(natural);
    Ok(chosen)
}

/// Returns the states in the order of a breadth-first search from the initial states.
///
/// With `narrow` it returns the reverse Cuthill–McKee order: the search starts at the end of a
/// longest path of levels, neighbours ascend by degree, and the order is reversed.
pub(crate) fn breadth_first(transitions: &dyn Transitions, initial: &[f64], narrow: bool) -> Vec<u32> {
    let n = transitions.states();
    let mut search = Search { transitions, seen: vec![false; n], order: Vec::with_capacity(n), narrow };
    if narrow {
        for root in 0..n {
            if !search.seen[root] {
                let from = search.order.len();
                // The last state found is at the end of a long path; the second search starts
                // there.
                search.from(&[root as u32]);
                let end = search.order[search.order.len() - 1];
                for state in search.order.drain(from..) {
                    search.seen[state as usize] = false;
                }
                search.from(&[end]);
            }
        }
        search.order.reverse();
    } else {
        let starts: Vec<u32> = (0..n as u32).filter(|&s| initial[s as usize] > 0.0).collect();
        search.from(&starts);
        for root in 0..n {
            if !search.seen[root] {
                search.from(&[root as u32]);
            }
        }
    }
    search.order
}

struct Search<'a> {
    transitions: &'a dyn Transitions,
    seen: Vec<bool>,
    order: Vec<u32>,
    narrow: bool,
}

impl Search<'_> {
    fn from(&mut self, starts: &[u32]) {
        let (mut row, mut degree) = (Vec::new(), Vec::new());
        let mut next = self.order.len();
        for &start in starts {
            self.visit(start);
        }
        while let Some(&state) = self.order.get(next) {
            next += 1;
            row.clear();
            self.transitions.incoming(state as usize, &mut row);
            self.transitions.outgoing(state as usize, &mut row);
            let mut neighbours: Vec<u32> =
                row.iter().map(|&(to, _)| to).filter(|&to| !self.seen[to as usize]).collect();
            if self.narrow {
                neighbours.sort_by_cached_key(|&to| {
                    degree.clear();
                    self.transitions.incoming(to as usize, &mut degree);
                    self.transitions.outgoing(to as usize, &mut degree);
                    (degree.len(), to)
                });
            }
            for to in neighbours {
                self.visit(to);
            }
        }
    }

    fn visit(&mut self, state: u32) {
        if !std::mem::replace(&mut self.seen[state as usize], true) {
            self.order.push(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::DeviceSpec;
    use crate::sparse::MatrixFormat;
    use crate::transient::chain::csr::Csr;
    use crate::transient::chain::csr::tests::chain;
    use crate::transient::exchange::cost::exchange_cost;

    /// Cycle with a numbering that scatters neighbours.
    fn scattered(n: u32) -> Csr {
        let name = |i: u32| (i * 7919 + 5) % n;
        let both = |i: u32| [(i + 1) % n, (i + n - 1) % n].map(|to| (name(i), name(to), 1.0 + f64::from(i)));
        chain(n as usize, &(0..n).flat_map(both).collect::<Vec<_>>())
    }

    /// Chain that counts the reads of outgoing transitions.
    struct Counted(Csr, std::sync::atomic::AtomicUsize);

    impl Transitions for Counted {
        fn states(&self) -> usize {
            self.0.states()
        }

        fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
            self.0.incoming(state, row);
        }

        fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
            self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0.outgoing(state, row);
        }
    }

    #[test]
    fn an_order_is_searched_only_if_it_gains_more_than_the_search_takes() {
        let n = 15_839;
        let ring = Counted(scattered(n), Default::default());
        let machine =
            Machine::open(&[DeviceSpec::Cpu, DeviceSpec::Cpu], &crate::lane::OpenOptions::default()).unwrap();
        let mut initial = vec![0.0; n as usize];
        initial[3] = 1.0;
        let first = crate::transient::Initial::State(3);
        let problem =
            Problem { transitions: &ring, initial: &first, times: &[1.0], rewards: &[], vectors: true };
        let ask = |steps: f64| {
            ring.1.store(0, std::sync::atomic::Ordering::Relaxed);
            let lengths = vec![2; n as usize];
            let mut run = RunFacts {
                steps,
                ..RunFacts::endless(Default::default(), MatrixFormat::Auto, exchange_cost)
            };
            let (_, order) = reorder(&machine, &problem, &initial, &lengths, &mut run, Order::Auto).unwrap();
            assert_eq!(run.known.is_some(), order == Order::Natural);
            (order, ring.1.load(std::sync::atomic::Ordering::Relaxed))
        };

        let (order, lookups) = ask(1.0);
        assert_eq!(order, Order::Natural);
        assert!(lookups <= 1024, "{lookups} states were looked up for a run of one step");
        let (_, lookups) = ask(1e9);
        assert!(lookups >= n as usize, "{lookups}");
    }

    fn bandwidth(chain: &dyn Transitions) -> usize {
        let mut row = Vec::new();
        let of = |i: usize, row: &mut Vec<(u32, f64)>| {
            row.clear();
            chain.incoming(i, row);
            row.iter().map(|&(j, _)| (j as usize).abs_diff(i)).max().unwrap_or(0)
        };
        (0..chain.states()).map(|i| of(i, &mut row)).max().unwrap_or(0)
    }

    #[test]
    fn both_orders_reduce_the_bandwidth_of_a_scattered_cycle() {
        let ring = scattered(1000);
        let mut initial = vec![0.0; 1000];
        initial[3] = 1.0;
        assert!(bandwidth(&ring) > 100, "the case is what it says");

        for narrow in [false, true] {
            let order = breadth_first(&ring, &initial, narrow);
            let mut states = order.clone();
            states.sort_unstable();
            assert!(states.iter().copied().eq(0..1000), "every state once");
            // Two states at a time, from one end of the cycle to the other.
            assert_eq!(bandwidth(&Reordered::new(&ring, order, Ranks::ALONE, Cow::Borrowed(&[]))), 2);
        }
    }

    #[test]
    fn a_reordered_chain_has_the_same_transitions_with_ascending_columns() {
        let ring = scattered(50);
        let reordered =
            Reordered::new(&ring, breadth_first(&ring, &[1.0; 50], true), Ranks::ALONE, Cow::Borrowed(&[]));

        for state in 0..50 {
            let (mut own, mut theirs) = (Vec::new(), Vec::new());
            reordered.outgoing(state, &mut own);
            ring.outgoing(reordered.old[state] as usize, &mut theirs);
            assert!(own.is_sorted_by_key(|&(to, _)| to));
            let mut back: Vec<_> = own.iter().map(|&(to, r)| (reordered.old[to as usize], r)).collect();
            back.sort_by_key(|&(to, _)| to);
            assert_eq!(back, theirs);
        }
    }
}
