//! Table II of M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU implementation of the uniformization method for solving
//! Markov models" (FedCSIS 2012), on this machine.
//!
//! Its five sizes are those of two wireless devices with queues of 113, 163, 177, 189 and 204 packets and six back-off
//! stages. Its times are in seconds, for t = 10 in a unit of time that is not given; the 2000 to 3500 products that it
//! must have made lie between those of t = 10 and t = 40 in milliseconds.

use std::time::Instant;

use serde::Serialize;

use kolmo::internals::{
    ActivitySeconds, Context, Costs, MatrixStatistics, Parts, expect_chain_memory, statistics, subdivided,
    uniformize,
};
use kolmo::kernel::Precision;
use kolmo::lane::Lane;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::checkpoint::Checkpointer;
use kolmo::transient::{Exchange, Initial, Observer, Options, Order, Partitioning, Problem, Transitions};
use kolmo::{Machine, Result};

/// K of `wlan:K,6` for each row of the table.
pub const SIZES: [usize; 5] = [113, 163, 177, 189, 204];

/// A row of the published table: millions of states and entries, seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Published {
    /// Millions of states.
    pub n: f64,
    /// Millions of entries.
    pub nnz: f64,
    /// CPU.
    pub cpu: f64,
    /// One GPU; none where the matrix did not fit.
    pub gpu: Option<f64>,
    /// Two GPUs.
    pub two_gpus: f64,
}

impl Published {
    /// Seconds of a column; none for those of this program alone, and where the matrix did not fit.
    pub fn of(&self, column: Column) -> Option<f64> {
        match column {
            Column::Cpu => Some(self.cpu),
            Column::OneSubdivided => self.gpu,
            Column::SeveralFull => Some(self.two_gpus),
            Column::One | Column::Several => None,
        }
    }
}

/// The machine of the published table, its Table I.
pub const MACHINE: &str = "2 x Intel Xeon X5650 2.67 GHz (6 cores with HT), 48 GB DDR3; 2 x Tesla M2050 (515 Gflop/s, \
                           3 GB); CUDA 4.0, CUSP 0.3, MKL 10.3";

/// Bytes of one of its GPUs.
pub const GPU_BYTES: u64 = 3072 << 20;

/// The published row of a size, if it has one.
pub fn published(k: usize) -> Option<Published> {
    let (n, nnz, cpu, gpu, two_gpus) = match k {
        113 => (11.0, 65.0, 370.0, Some(38.0), 210.0),
        163 => (23.0, 133.0, 472.0, Some(59.0), 241.0),
        177 => (27.0, 155.0, 511.0, Some(66.0), 267.0),
        189 => (31.0, 178.0, 654.0, None, 306.0),
        204 => (36.0, 202.0, 705.0, None, 352.0),
        _ => return None,
    };
    Some(Published { n, nnz, cpu, gpu, two_gpus })
}

/// Who computes, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// All threads of the CPU, three kernels a term: Algorithm 1.
    Cpu,
    /// One device, the same.
    OneSubdivided,
    /// One device, the sweep.
    One,
    /// All devices, the whole vector merged on each of them after every product: Algorithm 2.
    SeveralFull,
    /// All devices, the sweep, halos.
    Several,
}

impl Column {
    /// The head in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU, seed",
            Self::OneSubdivided => "one, seed",
            Self::One => "one, ours",
            Self::SeveralFull => "all, seed",
            Self::Several => "all, ours",
        }
    }

    /// The algorithm of 2012.
    fn subdivided(self) -> bool {
        matches!(self, Self::Cpu | Self::OneSubdivided | Self::SeveralFull)
    }
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// `seed-table`.
    pub bench: &'static str,
    /// The chain.
    pub case: String,
    /// Time of the solution.
    pub t: f64,
    /// αt.
    pub alpha_t: f64,
    /// Who and how.
    pub column: Column,
    /// The devices.
    pub device: String,
    /// Backend.
    pub backend: &'static str,
    /// Precision.
    pub precision: String,
    /// States.
    pub n: usize,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Lanes.
    pub lanes: usize,
    /// Seconds of all products.
    pub seconds: f64,
    /// Seconds of the whole solution from a matrix on the devices to probabilities on the host, where it was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solution: Option<Solved>,
    /// Products of the solution.
    pub products: u64,
    /// Products that were timed; fewer where the whole would have taken too long: `seconds` is then in proportion.
    pub timed: u64,
    /// Share of a product's time that the exchange costs, by the same work without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication_share: Option<f64>,
    /// Largest number of bytes on one of the devices.
    pub device_bytes: u64,
    /// Published seconds of the column's counterpart, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

/// Seconds of a whole solution.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Solved {
    /// All of it.
    pub whole: f64,
    /// What it consists of, but for what is let go at the end.
    #[serde(flatten)]
    pub activities: ActivitySeconds,
}

/// The times and bounds of the table.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Times.
    pub times: &'a [f64],
    /// Bound of the error.
    pub epsilon: f64,
    /// Largest αt of an interval of Algorithm 1.
    pub theta: f64,
    /// Seconds that a cell may take before it is scaled up from fewer products.
    pub seconds: f64,
}

/// A chain of the table.
pub struct Row<'a> {
    /// The chain.
    pub case: String,
    /// K.
    pub k: usize,
    /// The transitions.
    pub transitions: &'a dyn Transitions,
    statistics: MatrixStatistics<f64>,
}

/// αt of the short runs that a product's time is read off: what the second takes longer.
const SHORT: [f64; 2] = [2.0, 100.0];

impl<'a> Row<'a> {
    /// Looks at `wlan:k,6`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kolmo::Error::OutOfMemory) where the host has no room for that.
    pub fn new(machine: &Machine, case: String, k: usize, transitions: &'a dyn Transitions) -> Result<Self> {
        expect_chain_memory(machine, transitions.states())?;
        let statistics = machine.lanes[0].host(|| statistics::<f64>(transitions))?;
        Ok(Self { case, k, transitions, statistics })
    }

    /// Measures a column on these lanes at every time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kolmo::Error::OutOfMemory) where it does not fit; whatever the observer returns.
    pub fn measure(
        &self,
        machine: &Machine,
        column: Column,
        wanted: &Wanted<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Cell>> {
        let (n, lanes, initial) = (self.transitions.states(), &machine.lanes, Initial::State(0));
        let mut times: Vec<f64> = SHORT.iter().map(|x| x * self.statistics.mean_holding()).collect();
        times.extend(wanted.times);
        let problem = Problem {
            transitions: self.transitions,
            initial: &initial,
            times: &times,
            rewards: &[],
            vectors: true,
        };
        let exchange = if column == Column::SeveralFull { Exchange::Full } else { Exchange::Halo };
        let options = Options {
            epsilon: wanted.epsilon,
            // The algorithm of 2012 has its own format, the sweep the one that moves the fewest bytes.
            format: if column.subdivided() { MatrixFormat::Hyb } else { MatrixFormat::Auto },
            order: Order::Natural,
            split: Partitioning { exchange, ..Partitioning::default() },
            ..Options::default()
        };
        let parts = Parts::build(
            machine,
            self.transitions,
            &self.statistics,
            options.width,
            options.format,
            options.split,
        )?;
        let statistics =
            MatrixStatistics { lengths: Vec::new(), exit: Vec::new(), ..self.statistics.clone() };
        let initial = initial.probabilities(n)?;
        let mut context = Context {
            machine,
            problem: &problem,
            options: &options,
            costs: Costs::new(&statistics, n, machine),
            statistics,
            parts,
            initial,
            initial_error: 0.0,
            expands: false,
        };
        let devices: Vec<&str> = lanes.iter().map(|lane| &lane.device().name[..]).collect();
        let mut cells = Vec::new();
        let mut run = |context: &Context<'_, f64>, time: usize| {
            let mut results = vec![None; times.len()];
            context.parts.clock.take();
            let at = Instant::now();
            let products = match column.subdivided() {
                true => {
                    let nowhere = &mut Checkpointer::none();
                    subdivided::run(context, wanted.theta, &[time], &mut results, observer, nowhere)?
                }
                false => {
                    uniformize(context, &[time], &mut results, observer, &mut Checkpointer::none())?.terms
                }
            };
            let solved = Solved { whole: at.elapsed().as_secs_f64(), activities: context.parts.clock.take() };
            Ok::<_, kolmo::Error>((solved, products))
        };
        // A sweep's products differ within and outside of its window: all of them are timed.
        let probe = if column.subdivided() { 1 } else { SHORT.len() };
        let mut each = |context: &Context<'_, f64>| -> Result<(f64, f64, u64)> {
            run(context, 0)?;
            let ((short, few), (long, many)) = (run(context, 0)?, run(context, probe)?);
            let (short, long) = (short.activities.products, long.activities.products);
            let product = (long - short).max(0.0) / (many - few) as f64;
            Ok(((short - product * few as f64).max(0.0), product, many))
        };
        let (before, product, timed) = each(&context)?;
        let communication_share = if lanes.len() > 1 {
            let transfers = std::mem::take(&mut context.parts.between_lanes);
            let alone = each(&context)?.1;
            context.parts.between_lanes = transfers;
            Some((1.0 - alone / product).max(0.0))
        } else {
            None
        };
        for (time, &t) in times.iter().enumerate().skip(SHORT.len()) {
            let planned = match column.subdivided() {
                true => subdivided::terms(
                    &context.statistics,
                    wanted.epsilon,
                    wanted.theta,
                    context.statistics.lambda(t)?,
                )?,
                false => 0,
            };
            let scaled = before + product * planned as f64;
            let (seconds, solution, products, timed) = if column.subdivided() && scaled > wanted.seconds {
                (scaled, None, planned, timed)
            } else {
                let (solved, products) = run(&context, time)?;
                (solved.activities.products, Some(solved), products, products)
            };
            cells.push(Cell {
                bench: "seed-table",
                case: self.case.clone(),
                t,
                alpha_t: context.statistics.lambda(t)?,
                column,
                device: devices.join(" + "),
                backend: lanes[0].device().backend,
                precision: Precision::F64.to_string(),
                n,
                nnz: self.statistics.nnz,
                lanes: lanes.len(),
                seconds,
                solution,
                products,
                timed,
                communication_share,
                device_bytes: lanes.iter().map(Lane::peak_bytes).max().unwrap_or(0),
                published: published(self.k).and_then(|row| row.of(column)),
            });
        }
        Ok(cells)
    }
}
