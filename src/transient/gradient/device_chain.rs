//! Chains whose transitions stay on a device while their rates change.
//!
//! The matrices of steps forward and backward are built once, in HYB format, with an index instead
//! of each rate. For new rates, kernels scan the rows and place the rates in both matrices. The
//! host receives three numbers per state. If all rates are above 0, results have the bits of single
//! runs.

use std::slice::from_ref;
use std::sync::OnceLock;

use super::adjoint::{Adjoint, AdjointTask, Functional, RateStructure, adjoint};
use super::kernels::{ROW_SCAN, row_scan, scan_row};
use super::{check_machine, check_times, uniformized};
use crate::kernel::Precision;
use crate::lane::{Buffer, Lane, Launch};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::{CsrMatrix, HybLayout, MatrixFormat};
use crate::transient::chain::csr::Csr;
use crate::transient::chain::scan::{Scan, statistics, statistics_of_scan};
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;
use crate::transient::columns::{ActionRequest, ByRows};
use crate::transient::partition::subdomain::Region;
use crate::transient::rounding::column_rounding;
use crate::transient::solve::{solve, solve_with};
use crate::transient::step::chunk::StoredMatrix;
use crate::transient::step::matrix::{MatrixSource, PartMatrix};
use crate::transient::step::vector_kernels::{GATHER, SCALE, gather, scale};
use crate::transient::{Initial, Observer, Options, Problem, Solution};
use crate::util::memory::zeroed;
use crate::{Invalid, Machine, Progress, Result};

/// Number of rows that a thread processes at once.
const ROWS: usize = 4096;

/// Number of transitions of a list that a thread reads at once.
const PIECE: usize = 1 << 14;

/// Chain with a fixed structure on one device, for any number of sets of rates.
#[derive(Debug)]
pub struct DeviceChain {
    machine: Machine,
    /// Row i has the transitions out of state i; values are indices of rates, from 1 on.
    numbered: CsrMatrix,
    /// Transpose: row i has the transitions into state i.
    into: CsrMatrix,
    structure: RateStructure,
    /// Rates in the caller's order, followed by 0.
    rates: Buffer<f64>,
    /// Power of two that multiplies the rates before they are stored.
    scale: Buffer<f64>,
    forward: Placed,
    backward: Placed,
    /// Scans the rows; results go to `scanned`.
    scan: Launch,
    scanned: Buffer<f64>,
    /// For each rate in the caller's order, the index of its entry in `structure`.
    entries: Buffer<u32>,
    /// k + 3 for each state with k incoming transitions: weights of the rounding bound.
    weights: Vec<f64>,
    _arrays: (Buffer<u32>, Buffer<f64>),
}

/// Rates in the order of the transitions of a [`DeviceChain`].
#[derive(Debug, Clone, Copy)]
pub enum Rates<'a> {
    /// Rates on the host.
    Host(&'a [f64]),
    /// Rates on the device of the chain, which must be a CUDA device or the CPU.
    Device(&'a Buffer<f64>),
}

/// Matrix on a device into which rates are placed.
#[derive(Debug)]
struct Placed {
    matrix: PartMatrix<f64>,
    /// Number of transitions in each row.
    lengths: Vec<u32>,
    /// Launches that copy rates to their places.
    copies: Vec<Launch>,
    /// Launches that multiply all rates by the scale.
    scalings: Vec<Launch>,
    _indices: Vec<Buffer<u32>>,
}

impl Placed {
    /// Builds the matrix of a chain whose rates are the indices of rates, from 1 on.
    fn new(
        lane: &Lane,
        numbered: &dyn Transitions,
        rates: &Buffer<f64>,
        scale: &Buffer<f64>,
    ) -> Result<Self> {
        let n = numbered.states();
        let found = MatrixStatistics { scale: 1.0, ..statistics::<f64>(numbered)? };
        let layout = HybLayout::new(&found.lengths, Precision::F64.bytes());
        let region = Region::whole(n, &found.lengths);
        let source = MatrixSource::new(lane, numbered, &found, &layout, &region, from_ref(&region), 1);
        let matrix = source.build(MatrixFormat::Hyb)?;
        let (mut copies, mut scalings, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in &matrix.chunks {
            let StoredMatrix::Hyb { values, .. } = &chunk.stored else { unreachable!("the format is HYB") };
            let items = values.len();
            let mut numbers: Vec<f64> = zeroed(items);
            lane.download(values, 0, &mut numbers)?;
            let padding = rates.len() as u32 - 1;
            let index = |number: &f64| if *number == 0.0 { padding } else { *number as u32 - 1 };
            let index: Vec<u32> = numbers.iter().map(index).collect();
            let index = lane.alloc_with("places of rates", &index)?;
            if items > 0 {
                let params = gather::Params { items: items as u32, ..Default::default() };
                let args = gather::Args { index: index.arg(), x: rates.arg(), y: values.arg() };
                copies.push(lane.bind(&GATHER, Precision::F64, items, params, args)?);
                let params = scale::Params { rows: items as u32, ..Default::default() };
                let args = scale::Args { factors: scale.arg(), y: values.arg() };
                scalings.push(lane.bind(&SCALE, Precision::F64, items, params, args)?);
            }
            indices.push(index);
        }
        Ok(Self { matrix, lengths: found.lengths, copies, scalings, _indices: indices })
    }

    /// Copies rates and stored exit rates to the matrix.
    fn place(&self, lane: &Lane, exit: &[f64], scale: f64) -> Result<()> {
        let scalings = self.scalings.iter().filter(|_| scale != 1.0);
        lane.launch(&self.copies.iter().chain(scalings).collect::<Vec<_>>(), 0)?;
        lane.upload(exit, &self.matrix.exit, 0)
    }
}

impl DeviceChain {
    /// Prepares a chain of `n` states with transitions from `sources[k]` to `targets[k]`.
    ///
    /// # Errors
    /// [`Invalid`] for lists of different lengths, states outside of the chain, a transition to its
    /// own state or listed twice, and a machine with another precision than f64, several lanes or
    /// several ranks; 2^32/3 states or 2^32 - 1 transitions; [`crate::Error::OutOfMemory`].
    pub fn new(machine: &Machine, n: usize, sources: &[u32], targets: &[u32]) -> Result<Self> {
        check_machine(machine)?;
        let [lane] = &machine.lanes[..] else {
            return Invalid::Unsupported
                .fail("a chain with fixed structure on several devices is not supported: expected one");
        };
        let count = sources.len();
        let most = u32::MAX as usize / 3;
        Invalid::Shape.unless((1..most).contains(&n) && count < u32::MAX as usize, || {
            format!(
                "a chain of {n} states and {count} transitions: expected 1 to {most} and fewer than 2^32 - 1"
            )
        })?;
        Invalid::Shape.unless(count == targets.len(), || {
            format!("{count} sources and {} targets: expected equal numbers", targets.len())
        })?;
        let mut pairs = sources.iter().zip(targets);
        if let Some((from, to)) = pairs.find(|&(from, to)| *from.max(to) as usize >= n || from == to) {
            return Invalid::Number("rates").fail(format!(
                "the transition {from} -> {to} is invalid: expected two different states below {n}"
            ));
        }
        let listed = |piece: usize| {
            let piece = piece * PIECE..count.min((piece + 1) * PIECE);
            piece.map(|k| (sources[k], targets[k], (k + 1) as f64))
        };
        let mut numbered = CsrMatrix::grouped(n, n, (count.div_ceil(PIECE), listed));
        if let Some((from, to)) = numbered.sort_rows() {
            return Invalid::Number("rates").fail(format!(
                "the transition {from} -> {to} is listed twice: expected the sum of its rates"
            ));
        }
        let chain = Csr::from_rates(&numbered);
        let by_rows = ByRows(ActionRequest { backward: true, ..ActionRequest::new(&chain, &[], &[], 1.0) });
        let (rates, scale) = (lane.alloc("rates", count + 1)?, lane.alloc("a factor", 1)?);
        let forward = Placed::new(lane, &chain, &rates, &scale)?;
        let backward = Placed::new(lane, &by_rows, &rates, &scale)?;
        let order: Vec<u32> = numbered.value().iter().map(|&k| k as u32 - 1).collect();
        let mut entries: Vec<u32> = zeroed(count);
        order.iter().zip(0..).for_each(|(&k, entry)| entries[k as usize] = entry);
        let entries = lane.alloc_with("entries of rates", &entries)?;
        let weights: Vec<f64> = forward.lengths.iter().map(|&length| f64::from(length) + 3.0).collect();
        let structure = RateStructure::new(lane, &numbered)?;
        let scanned = lane.alloc("a scan of rows", 3 * n)?;
        let arrays = (lane.alloc_with("the order of rates", &order)?, lane.alloc_with("weights", &weights)?);
        let args = row_scan::Args {
            starts: structure.starts.arg(),
            columns: structure.columns.arg(),
            order: arrays.0.arg(),
            weights: arrays.1.arg(),
            rates: rates.arg(),
            found: scanned.arg(),
        };
        let params = row_scan::Params { rows: n as u32, ..Default::default() };
        let scan = lane.bind(&ROW_SCAN, Precision::F64, n, params, args)?;
        Ok(Self {
            machine: Machine::new([lane.clone()], Precision::F64),
            into: numbered.transposed(),
            numbered,
            structure,
            rates,
            scale,
            forward,
            backward,
            scan,
            scanned,
            entries,
            weights,
            _arrays: arrays,
        })
    }

    /// Computes probabilities as [`solve`](crate::transient::solve), at finite times.
    ///
    /// The matrix format and the partitioning of `options` only apply if rates are near the limits
    /// of doubles.
    ///
    /// # Errors
    /// As [`solve`](crate::transient::solve); [`Invalid`] for times that are not finite, and for
    /// rates that are negative, not finite or not one for each transition.
    pub fn transient(
        &mut self,
        rates: Rates<'_>,
        initial: &Initial,
        times: &[f64],
        options: &Options,
        observer: &mut dyn Observer,
    ) -> Result<Solution> {
        check_times(times)?;
        let Some(statistics) = self.scan(rates)? else {
            let chain = Csr::from_rates(&self.matrix()?);
            return solve(&self.machine, &Problem::new(&chain, initial, times), options, observer);
        };
        self.forward.place(self.lane(), &statistics.exit, statistics.scale)?;
        let rated = Rated { chain: self, rates: OnceLock::new() };
        let problem = Problem::new(&rated, initial, times);
        let given = (statistics, self.forward.matrix.clone());
        let found = solve_with(&self.machine, &problem, options, observer, given);
        // The error of a copy is the cause of others.
        rated.rates.into_inner().and_then(Result::err).map_or(found, Err)
    }

    /// Computes a functional and its derivatives as [`adjoint`].
    ///
    /// The derivatives by the rates remain on the device, in the order of the transitions; those of
    /// the [`Adjoint`] are empty.
    ///
    /// # Errors
    /// As [`adjoint`] and [`Self::transient`].
    pub fn adjoint(
        &mut self,
        rates: Rates<'_>,
        initial: &Initial,
        functionals: &[Functional<'_>],
        options: &Options,
        memory: Option<u64>,
        observer: &mut dyn Progress,
    ) -> Result<(Adjoint, Buffer<f64>)> {
        let task = AdjointTask { initial, functionals, options, memory };
        task.check(&Rated { chain: self, rates: OnceLock::new() })?;
        let (lane, count) = (self.lane(), self.entries.len());
        let Some(found) = self.scan(rates)? else {
            let matrix = self.matrix()?;
            let mut found = adjoint(&self.machine, &matrix, initial, functionals, options, memory, observer)?;
            let mut ordered = zeroed(count);
            let derivatives = std::mem::take(&mut found.rates.values);
            let places = self.numbered.value().iter().zip(derivatives);
            places.for_each(|(&k, derivative)| ordered[k as usize - 1] = derivative);
            return Ok((found, lane.alloc_with("derivatives by all rates", &ordered)?));
        };
        for matrix in [&self.forward, &self.backward] {
            matrix.place(lane, &found.exit, found.scale)?;
        }
        let given = (uniformized(found, &task.times()), self.backward.lengths.clone());
        let matrices = [&self.forward, &self.backward].map(|placed| placed.matrix.clone());
        let (found, derivatives) =
            task.run(lane, self.structure.clone(), given, |_| Ok(matrices), observer)?;
        let ordered = lane.alloc_unset("derivatives by all rates", count)?;
        if count > 0 {
            let params = gather::Params { items: count as u32, ..Default::default() };
            let args = gather::Args { index: self.entries.arg(), x: derivatives.arg(), y: ordered.arg() };
            lane.launch(&[&lane.bind(&GATHER, Precision::F64, count, params, args)?], 0)?;
        }
        Ok((found, ordered))
    }

    fn lane(&self) -> &Lane {
        &self.machine.lanes[0]
    }

    /// Stores new rates on the device, and scans them.
    ///
    /// `None` if the host has to scale the rates, since they are near the limits of doubles.
    fn scan(&self, rates: Rates<'_>) -> Result<Option<MatrixStatistics<f64>>> {
        let (lane, n, count) = (self.lane(), self.weights.len(), self.entries.len());
        let given = match rates {
            Rates::Host(rates) => rates.len(),
            Rates::Device(rates) => rates.len(),
        };
        Invalid::Shape.unless(given == count, || format!("{given} rates: expected {count}"))?;
        let mut found = zeroed(3 * n);
        match rates {
            // Drivers other than CUDA may optimize compensated summation away.
            Rates::Host(rates) => {
                lane.upload(rates, &self.rates, 0)?;
                self.scan_on_host(rates, &mut found);
            }
            Rates::Device(rates) => {
                let device = lane.device();
                Invalid::Unsupported.unless(device.host || device.backend == "cuda", || {
                    format!("rates on {} are not supported: expected CUDA or rates of the host", device.spec)
                })?;
                if count > 0 {
                    lane.copy(rates, &self.rates, 0, 1)?;
                }
                lane.launch(&[&self.scan], 0)?;
                lane.download(&self.scanned, 0, &mut found)?;
            }
        }
        let (sums, rest) = found.split_at(n);
        let (weighted, least) = rest.split_at(n);
        if least.iter().any(|rate| *rate < 0.0) {
            return self.invalid();
        }
        let mut scans = 0;
        let mut scan = |exit: &mut [f64], _: f64| {
            scans += 1;
            let row = |(((exit, &sum), &weighted), &least): (((&mut f64, &f64), &f64), &f64)| {
                // If the sum overflows, its compensation is NaN.
                *exit = if sum.is_nan() { f64::INFINITY } else { sum };
                let least = if least > 0.0 { least } else { f64::INFINITY };
                let scaled = column_rounding::<f64>(weighted, 0.0, *exit, *exit);
                Scan { stored: *exit, exact: *exit, least, scaled }
            };
            let rows = exit.par_iter_mut().zip(sums).zip(weighted).zip(least).with_min_len(ROWS);
            Ok(rows.map(row).reduce(|| Scan::NOTHING, Scan::and))
        };
        let leaves = |state: usize| least[state] > 0.0;
        let found = statistics_of_scan((0..n, n), count as u64, false, Ranks::ALONE, &leaves, &mut scan)?;
        if scans > 1 {
            return Ok(None);
        }
        lane.upload(&[found.scale], &self.scale, 0)?;
        Ok(Some(MatrixStatistics { lengths: self.forward.lengths.clone(), ..found }))
    }

    /// Scans the rows on the host.
    fn scan_on_host(&self, rates: &[f64], found: &mut [f64]) {
        let (sums, rest) = found.split_at_mut(self.weights.len());
        let (weighted, least) = rest.split_at_mut(self.weights.len());
        let rows = sums.par_iter_mut().zip(weighted).zip(least).enumerate().with_min_len(ROWS);
        rows.for_each(|(i, ((sum, weighted), least))| {
            let (targets, numbers) = self.numbered.row(i);
            let entries = targets.iter().zip(numbers);
            [*sum, *weighted, *least] =
                scan_row(entries.map(|(&to, &k)| (rates[k as usize - 1], self.weights[to as usize])));
        });
    }

    /// Copies the rates to the host.
    fn downloaded(&self) -> Result<Vec<f64>> {
        let mut rates = zeroed(self.entries.len());
        self.lane().download(&self.rates, 0, &mut rates)?;
        Ok(rates)
    }

    /// Returns the matrix of the rates.
    fn matrix(&self) -> Result<CsrMatrix> {
        let (rates, numbered) = (self.downloaded()?, &self.numbered);
        let values = numbered.value().iter().map(|&k| rates[k as usize - 1]).collect();
        Ok(CsrMatrix::of_rows(
            numbered.rows(),
            numbered.starts().to_vec(),
            numbered.column().to_vec(),
            values,
        ))
    }

    /// Returns an error that names the first invalid rate.
    fn invalid<R>(&self) -> Result<R> {
        let rates = self.downloaded()?;
        let wrong = rates.iter().position(|rate| !(*rate >= 0.0 && rate.is_finite())).unwrap_or(0);
        let at = |&(.., k): &(u32, u32, f64)| k as usize == wrong + 1;
        let (from, to, _) = self.numbered.entries().find(at).expect("each rate has its entry");
        Invalid::Number("rates").fail(format!(
            "`rates`[{wrong}], from state {from} -> {to}, is {:e}: expected a finite rate, at least 0",
            rates[wrong]
        ))
    }
}

/// Chain with its current rates, which are copied to the host when they are first read.
struct Rated<'a> {
    chain: &'a DeviceChain,
    rates: OnceLock<Result<Vec<f64>>>,
}

impl Rated<'_> {
    /// Appends the transitions of a state; none if the copy of the rates failed.
    fn append(&self, rows: &CsrMatrix, state: usize, row: &mut Vec<(u32, f64)>) {
        // A thread that waited for others here could steal work that waits for these rates.
        let rates = self.rates.get_or_init(|| alone(|| self.chain.downloaded()));
        let Ok(rates) = rates else { return };
        let (others, numbers) = rows.row(state);
        let transitions = others.iter().zip(numbers).map(|(&other, &k)| (other, rates[k as usize - 1]));
        row.extend(transitions.filter(|(_, rate)| *rate != 0.0));
    }
}

impl Transitions for Rated<'_> {
    fn states(&self) -> usize {
        self.chain.numbered.rows()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(&self.chain.into, state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(&self.chain.numbered, state, row);
    }
}
