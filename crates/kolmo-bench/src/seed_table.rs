//! Reproduction of Table II of M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU implementation of the
//! uniformization method for solving Markov models" (FedCSIS 2012).
//!
//! The five sizes are models of two wireless devices with queues of 113, 163, 177, 189 and 204
//! packets and six back-off stages. Published times are in seconds for t = 10; the unit of t is not
//! given. From the times follow 2000 to 3500 products, which is between those of t = 10 and t = 40
//! milliseconds.

use super::*;
use kolmo::internals::{ActivitySeconds, Context, Costs, Session, subdivided, uniformize};
use kolmo::transient::checkpoint::Checkpointer;
use kolmo::transient::{Exchange, Initial, Observer, Partitioning, Problem};

/// Queue length K of the model `wlan:K,6` for each row of the table.
pub const SIZES: [usize; 5] = [113, 163, 177, 189, 204];

/// A row of the published table; times in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Published {
    /// Millions of states.
    pub n: f64,
    /// Millions of entries.
    pub nnz: f64,
    /// Seconds on the CPU.
    pub cpu: f64,
    /// Seconds on one GPU; `None` if the matrix did not fit.
    pub gpu: Option<f64>,
    /// Seconds on two GPUs.
    pub two_gpus: f64,
}

impl Published {
    /// Published seconds of a column.
    ///
    /// `None` for columns of kolmo's own method, and if the matrix did not fit.
    pub fn of(&self, column: Column) -> Option<f64> {
        match column {
            Column::Cpu => Some(self.cpu),
            Column::OneSubdivided => self.gpu,
            Column::SeveralFull => Some(self.two_gpus),
            Column::One | Column::Several => None,
        }
    }
}

/// Machine of the published table (Table I of the paper).
pub const MACHINE: &str = "2 x Intel Xeon X5650 2.67 GHz (6 cores with HT), 48 GB DDR3; 2 x Tesla M2050 (515 Gflop/s, \
                           3 GB); CUDA 4.0, CUSP 0.3, MKL 10.3";

/// Returns the published row for K = `k`, if there is one.
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

/// A column of the table: devices and algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// All threads of the CPU: Algorithm 1, with three kernels per term.
    Cpu,
    /// One device: Algorithm 1.
    OneSubdivided,
    /// One device: kolmo's uniformization run.
    One,
    /// All devices: Algorithm 2, which merges the whole vector on each of them after every product.
    SeveralFull,
    /// All devices: kolmo's uniformization run, which exchanges halos.
    Several,
}

impl Column {
    /// Heading of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU, seed",
            Self::OneSubdivided => "one, seed",
            Self::One => "one, ours",
            Self::SeveralFull => "all, seed",
            Self::Several => "all, ours",
        }
    }

    /// True for Algorithms 1 and 2 of the paper of 2012.
    fn subdivided(self) -> bool {
        matches!(self, Self::Cpu | Self::OneSubdivided | Self::SeveralFull)
    }
}

/// Measurement for one cell of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Always `seed-table`.
    pub bench: &'static str,
    /// Name of the chain.
    pub case: String,
    /// Time t of the transient solution.
    pub t: f64,
    /// Uniformization rate times t.
    pub alpha_t: f64,
    /// Column of the table.
    pub column: Column,
    /// Names of the devices.
    pub device: String,
    /// Backend of the first device.
    pub backend: &'static str,
    /// Precision of the computation.
    pub precision: String,
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, including its diagonal.
    pub nnz: u64,
    /// Number of lanes.
    pub lanes: usize,
    /// Seconds of all products.
    pub seconds: f64,
    /// Seconds from a matrix on the devices to probabilities on the host; `None` if extrapolated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solution: Option<Solved>,
    /// Number of products of the solution.
    pub products: u64,
    /// Number of timed products.
    ///
    /// If it is smaller than `products`, `seconds` is extrapolated, because the whole would take
    /// too long.
    pub timed: u64,
    /// Share of a product's time that the exchange costs, from a run without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication_share: Option<f64>,
    /// Peak bytes on one of the devices.
    pub device_bytes: u64,
    /// Published seconds of this cell, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

/// Times of a whole solution in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Solved {
    /// Total seconds of a solution.
    pub whole: f64,
    /// Seconds of its phases; freeing memory is in none of them.
    #[serde(flatten)]
    pub activities: ActivitySeconds,
}

/// Parameters of the table.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Times t of the transient solutions.
    pub times: &'a [f64],
    /// Bound on the l1 error.
    pub epsilon: f64,
    /// Largest αt of a time interval of Algorithm 1 (α: uniformization rate).
    pub theta: f64,
    /// Seconds above which a cell is extrapolated from fewer products.
    pub seconds: f64,
}

/// A chain of the table with its matrix statistics.
pub struct Row<'a> {
    /// Name of the chain.
    pub case: String,
    /// Queue length K of the model `wlan:K,6`.
    pub k: usize,
    /// Transitions of the chain.
    pub transitions: &'a dyn Transitions,
    statistics: MatrixStatistics<f64>,
}

/// αt (uniformization rate times t) of two runs. Their time difference gives the time of a product.
const SHORT: [f64; 2] = [2.0, 100.0];

impl<'a> Row<'a> {
    /// Computes the matrix statistics of `wlan:k,6`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kolmo::Error::OutOfMemory) if the host lacks the memory.
    pub fn new(machine: &Machine, case: String, k: usize, transitions: &'a dyn Transitions) -> Result<Self> {
        expect_chain_memory(machine, transitions.states())?;
        let statistics = statistics::<f64>(transitions)?;
        Ok(Self { case, k, transitions, statistics })
    }

    /// Measures a column on these lanes for every time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kolmo::Error::OutOfMemory) if it does not fit; errors of the
    /// observer.
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
        let problem = Problem::new(self.transitions, &initial, &times);
        let exchange = if column == Column::SeveralFull { Exchange::Full } else { Exchange::Halo };
        let options = Options::default()
            .epsilon(wanted.epsilon)
            // Algorithms of 2012 use HYB, kolmo's run the format that moves the fewest bytes.
            .format(if column.subdivided() { MatrixFormat::Hyb } else { MatrixFormat::Auto })
            .split(Partitioning::default().exchange(exchange));
        let parts = Parts::build(machine, self.transitions, &self.statistics, options.format, options.split)?;
        let statistics =
            MatrixStatistics { lengths: Vec::new(), exit: Vec::new(), ..self.statistics.clone() };
        let initial = initial.probabilities(n)?;
        let context = Context {
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
        let mut runs = Runs { context, column, wanted, times: times.len(), observer };
        let product = runs.product()?;
        let communication_share = runs.communication_share(product.seconds)?;
        let devices: Vec<&str> = lanes.iter().map(|lane| &lane.device().name[..]).collect();
        let mut cells = Vec::new();
        for (time, &t) in times.iter().enumerate().skip(SHORT.len()) {
            let (seconds, solution, products, timed) = runs.cell(time, t, &product)?;
            cells.push(Cell {
                bench: "seed-table",
                case: self.case.clone(),
                t,
                alpha_t: runs.context.statistics.lambda(t)?,
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

/// Runs of one column.
struct Runs<'r, 'c> {
    context: Context<'c, f64>,
    column: Column,
    wanted: &'r Wanted<'r>,
    /// Number of times of the problem.
    times: usize,
    observer: &'r mut dyn Observer,
}

/// Duration of a product.
struct Product {
    /// Seconds before the first product.
    before: f64,
    seconds: f64,
    /// Number of timed products.
    timed: u64,
}

impl Runs<'_, '_> {
    /// Runs the solution for one time; returns its seconds and number of products.
    fn run(&mut self, time: usize) -> Result<(Solved, u64)> {
        let context = &self.context;
        context.parts.clock.take();
        let at = Instant::now();
        let mut nowhere = Checkpointer::none();
        let mut session = Session::new(self.observer, &mut nowhere, vec![None; self.times]);
        let due = context.due([time])?;
        let products = match self.column.subdivided() {
            true => subdivided::run(context, self.wanted.theta, &due, &mut session)?,
            false => uniformize(context, &due, &mut session)?.terms,
        };
        let solved = Solved { whole: at.elapsed().as_secs_f64(), activities: context.parts.clock.take() };
        Ok((solved, products))
    }

    /// Measures a product by the difference of two short runs.
    fn product(&mut self) -> Result<Product> {
        // In kolmo's run products differ within and outside of the window, so all are timed.
        let probe = if self.column.subdivided() { 1 } else { SHORT.len() };
        self.run(0)?;
        let ((short, few), (long, many)) = (self.run(0)?, self.run(probe)?);
        let (short, long) = (short.activities.products, long.activities.products);
        let seconds = (long - short).max(0.0) / (many - few) as f64;
        Ok(Product { before: (short - seconds * few as f64).max(0.0), seconds, timed: many })
    }

    /// Returns the exchange's share of a product's seconds; `None` on a single lane.
    fn communication_share(&mut self, product: f64) -> Result<Option<f64>> {
        if self.context.machine.lanes.len() == 1 {
            return Ok(None);
        }
        let transfers = std::mem::take(&mut self.context.parts.between_lanes);
        let alone = self.product()?.seconds;
        self.context.parts.between_lanes = transfers;
        Ok(Some((1.0 - alone / product).max(0.0)))
    }

    /// Returns seconds, solution, products and timed products of time number `time`, which is t.
    fn cell(&mut self, time: usize, t: f64, product: &Product) -> Result<(f64, Option<Solved>, u64, u64)> {
        if self.column.subdivided() {
            let (statistics, wanted) = (&self.context.statistics, self.wanted);
            let planned = subdivided::terms(statistics, wanted.epsilon, wanted.theta, statistics.lambda(t)?)?;
            let scaled = product.before + product.seconds * planned as f64;
            if scaled > wanted.seconds {
                return Ok((scaled, None, planned, product.timed));
            }
        }
        let (solved, products) = self.run(time)?;
        Ok((solved.activities.products, Some(solved), products, products))
    }
}
