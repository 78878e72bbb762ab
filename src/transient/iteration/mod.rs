//! The iteration x_{k+1} = x_k + (Qᵀ x_k)/α on its lanes, and proofs that end it early.
//!
//! [`Iteration`] advances the iterates, adds their weighted sums and reads norms from them.
//! [`quasi_stationary`] bounds the error of replacing all later iterates by an [`extrapolation`] of
//! the current one. [`schedule`] has the times and weights for which iterates are summed.

pub(super) mod extrapolation;
mod lockstep;
pub(super) mod quasi_stationary;
pub(super) mod schedule;

use std::ops::Range;

use crate::kernel::block_sums::defects;
use crate::kernel::{Arguments, Kernel, Number, Precision};
use crate::lane::{Arg, Buffer, HostArray, Lane, Launch, Program};
use crate::parallel::{at_once, *};
use crate::sparse::BLOCK;
use crate::transient::context::total;
use crate::transient::exchange::parts::ChainParts;
use crate::transient::numerics::fixed_point::beginning;
use crate::transient::step::chunk::{LanePart, StepSum};
use crate::transient::step::stages::Stage;
use crate::transient::step::vector_kernels::{
    ACCUMULATE, BLOCK_DEFECT, BLOCK_DOT, BLOCK_NORM, BLOCK_SUM, SWEEP, SWEEP_ROWS, accumulate, block_defect,
    block_dot, block_norm, block_sum, sweep,
};
use crate::util::memory::zeroed;
use crate::{Invalid, Progress, Result};

/// Steps per launch of the kernel for small chains.
///
/// A launch must be long compared with its overhead, and short compared with
/// [`crate::lane::PIECE`].
const SMALL_STEPS: u64 = 512;
/// Maximum number of steps: devices number them in 32 bits.
const MOST_STEPS: u64 = u32::MAX as u64 - 1;
/// Maximum number of probabilities in one copy to a device.
const PIECE: usize = 1 << 20;
/// Block length in which zeros of the initial vector are detected and not copied.
const FEW: usize = 1 << 14;
/// Approximate maximum number of partial sums of rewards that a device stores.
const REWARD_ELEMENTS: usize = 1 << 22;

/// A weighted sum of iterates under construction: Σ w_k x_k.
#[derive(Debug)]
pub struct IterateSum<T> {
    /// For each lane: 1/α, then the weights of the steps in `held`.
    scalars: Vec<Buffer<T>>,
    pub(crate) acc: Accumulators<T>,
    /// Range of steps with weights stored in `scalars`.
    held: Range<u64>,
}

/// One accumulator for each part; empty if only rewards are requested.
#[derive(Debug)]
pub struct Accumulators<T> {
    pub(super) parts: Vec<Buffer<T>>,
    /// Host memory of the only accumulator, if the host can read the result there without a copy.
    host: Option<HostArray<T>>,
}

impl<T> Accumulators<T> {
    pub(super) fn none() -> Self {
        Self { parts: Vec::new(), host: None }
    }
}

/// Selects one of the last two iterates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest iterate x_k.
    Newest,
    /// The iterate before, x_{k−1}.
    Before,
}

/// A number per block, computed from one of the last two iterates.
#[derive(Clone, Copy)]
pub(super) enum Observed<'b, T> {
    /// Dot product with a vector, stored as one array for each part.
    Product(&'b [Buffer<T>]),
    /// l1 norm of the iterate.
    Norm,
}

/// Iteration of a chain on its lanes, with memory for weighted sums, rewards and norms.
pub struct Iteration<'a, T> {
    pub(crate) lanes: &'a [Lane],
    pub(super) parts: &'a ChainParts<T>,
    inverse_alpha: T,
    /// For each reward the values of this rank's rows, and the power of two that scales them.
    values: Vec<(&'a [f64], f64)>,
    /// One vector for each reward and part.
    rewards: Vec<Vec<Buffer<T>>>,
    /// True if the l1 norm of each iterate is computed together with the rewards.
    normed: bool,
    /// True if the steps are those of Chebyshev's recurrence.
    pub(super) recurrence: bool,
    /// Partial sums of rewards, one array for each part.
    partials: Vec<Buffer<T>>,
    /// Partial sums for masses and distances, one array for each part.
    blocks: Vec<Buffer<T>>,
    /// For each lane: 1/α, and an unused accumulator, for steps outside of every window.
    alone: Vec<(Buffer<T>, Buffer<T>)>,
    /// For each lane: the factor μ with which ‖x_k − μ x_{k−1}‖ is computed.
    factors: Vec<Buffer<T>>,
    /// Number of the newest iterate x_k, which is stored in `x[now]`.
    k: u64,
    now: usize,
    /// Steps before this iteration, and the total number of steps, for progress reports.
    pub(super) progress: (u64, u64),
}

impl<'a, T: Number> Iteration<'a, T> {
    /// Allocates an iteration; if `normed`, it computes the l1 norm of each iterate as well.
    ///
    /// `rewards` are pairs of values and the power of two that scales them.
    pub fn new(
        lanes: &'a [Lane],
        parts: &'a ChainParts<T>,
        inverse_alpha: T,
        rewards: &[(&'a [f64], f64)],
        progress: (u64, u64),
        normed: bool,
    ) -> Result<Self> {
        let mut vectors = Vec::new();
        for (reward, scale) in rewards {
            let mut own = Vec::new();
            for part in &parts.parts {
                let values: Vec<T> = reward[parts.own(part)].iter().map(|&r| T::of(r * scale)).collect();
                own.push(lanes[part.lane].alloc_with("a reward", &values)?);
            }
            vectors.push(own);
        }
        let per_part = |elements: usize| -> Result<Vec<Buffer<T>>> {
            let alloc = |p: &LanePart<T>| {
                let blocks = p.rows.len().div_ceil(BLOCK);
                lanes[p.lane].alloc("partial sums", (blocks * elements).max(blocks))
            };
            parts.parts.iter().map(alloc).collect()
        };
        Ok(Self {
            lanes,
            parts,
            inverse_alpha,
            normed,
            recurrence: false,
            partials: match rewards.len() + usize::from(normed) {
                0 => Vec::new(),
                count => per_part(count * reward_steps(parts, count) as usize)?,
            },
            values: rewards.to_vec(),
            rewards: vectors,
            blocks: per_part(1)?,
            alone: lanes
                .iter()
                .map(|lane| Ok((lane.alloc_with("scalars", &[inverse_alpha])?, lane.alloc("scalars", 1)?)))
                .collect::<Result<_>>()?,
            factors: lanes.iter().map(|lane| lane.alloc("scalars", 1)).collect::<Result<_>>()?,
            k: 0,
            now: 0,
            progress,
        })
    }

    /// Starts again from k = 0 with the initial probabilities of this rank's rows.
    ///
    /// If `state` is given, only that state has a nonzero probability; it may belong to another
    /// rank.
    pub fn start(&mut self, initial: &[f64], state: Option<usize>) -> Result<()> {
        match T::PRECISION {
            Precision::Q64 => self.place(&beginning(initial, self.parts.ranks), state),
            _ => self.place(initial, state),
        }
    }

    /// Sets the iterate to `initial`, numbers in the form that [`Self::snapshot`] returns.
    fn place(&mut self, initial: &[f64], state: Option<usize>) -> Result<()> {
        (self.k, self.now) = (0, 0);
        for part in &self.parts.parts {
            let (lane, own) = (&self.lanes[part.lane], &initial[self.parts.own(part)]);
            lane.clear(&part.x[0])?;
            // Many chains start in one state, and copies to a device are slow.
            let filled: Vec<bool> = match state {
                Some(state) => {
                    let here = state.checked_sub(part.rows.start).filter(|&place| place < own.len());
                    (0..own.len().div_ceil(FEW)).map(|k| here.is_some_and(|place| place / FEW == k)).collect()
                }
                None => own.par_chunks(FEW).map(|few| few.iter().any(|p| p.to_bits() != 0)).collect(),
            };
            let mut k = 0;
            while let Some(zeros) = filled[k..].iter().position(|&filled| filled) {
                let first = k + zeros;
                let run = filled[first..].iter().take(PIECE / FEW).take_while(|&&filled| filled).count();
                k = first + run;
                let piece = &own[first * FEW..own.len().min(k * FEW)];
                let at = part.own + first * FEW;
                match T::PRECISION {
                    Precision::F64 | Precision::Q64 => {
                        lane.upload(bytemuck::cast_slice::<_, T>(piece), &part.x[0], at)?;
                    }
                    Precision::F32 => {
                        let values: Vec<T> = piece.par_iter().map(|&p| T::of(p)).collect();
                        lane.upload(&values, &part.x[0], at)?;
                    }
                }
            }
        }
        self.parts.exchange(self.lanes, 0)
    }

    /// Resumes from x_k as stored by [`Self::snapshot`].
    pub(crate) fn resume(&mut self, k: u64, x: &[f64]) -> Result<()> {
        self.place(x, None)?;
        self.k = k;
        Ok(())
    }

    /// Copies a stored sum of this rank's rows back into the accumulators `acc`.
    pub(crate) fn fill(&self, acc: &Accumulators<T>, sum: &[f64]) -> Result<()> {
        for (acc, part) in acc.parts.iter().zip(&self.parts.parts) {
            let number = |&p: &f64| match T::PRECISION {
                Precision::Q64 => T::from_bits(p.to_bits()),
                _ => T::of(p),
            };
            let own: Vec<T> = sum[self.parts.own(part)].par_iter().map(number).collect();
            self.lanes[part.lane].upload(&own, acc, part.ghosts())?;
        }
        Ok(())
    }

    /// Returns for each reward this rank's values and the power of two that scales them.
    pub(crate) fn rewards(&self) -> &[(&'a [f64], f64)] {
        &self.values
    }

    /// Returns k, the number of steps taken.
    pub(crate) fn steps(&self) -> u64 {
        self.k
    }

    /// Creates a sum with capacity for `weights` weights at a time, and clears its accumulators.
    pub fn target(&self, weights: usize, acc: Accumulators<T>) -> Result<IterateSum<T>> {
        for (acc, part) in acc.parts.iter().zip(&self.parts.parts) {
            self.lanes[part.lane].clear(acc)?;
        }
        let scalars = self.lanes.iter().map(|lane| lane.alloc("Poisson weights", weights + 1));
        Ok(IterateSum { scalars: scalars.collect::<Result<_>>()?, acc, held: 0..0 })
    }

    /// Allocates an accumulator for each part.
    pub fn accumulators(&self) -> Result<Accumulators<T>> {
        const WHAT: &str = "an accumulator";
        if let ([part], Precision::F64) = (&self.parts.parts[..], T::PRECISION) {
            let lane = &self.lanes[part.lane];
            if lane.device().host {
                let host = lane.host_array(part.computed.len())?;
                if let Some(adopted) = lane.adopt(WHAT, &host)? {
                    return Ok(Accumulators { parts: vec![adopted], host: Some(host) });
                }
            }
        }
        Ok(Accumulators { parts: self.vector(WHAT)?, host: None })
    }

    /// Allocates a vector on the lanes, with one array for each part.
    pub(super) fn vector(&self, what: &str) -> Result<Vec<Buffer<T>>> {
        let alloc = |p: &LanePart<T>| self.lanes[p.lane].alloc(what, p.computed.len());
        self.parts.parts.iter().map(alloc).collect()
    }

    /// Sets the weights of a sum for the steps from `first` on, divided by `divisor`.
    pub fn weigh(&self, target: &mut IterateSum<T>, first: u64, weights: &[f64], divisor: f64) -> Result<()> {
        let mut scalars = Vec::with_capacity(weights.len() + 1);
        scalars.push(self.inverse_alpha);
        scalars.extend(weights.iter().map(|w| T::of(w / divisor)));
        target.held = first..first + weights.len() as u64;
        for (lane, buffer) in self.lanes.iter().zip(&target.scalars) {
            lane.upload(&scalars, buffer, 0)?;
        }
        Ok(())
    }

    /// Takes steps up to `to`, and adds each iterate x_k, times its weight, to every target.
    ///
    /// Returns the rewards of the steps, one row for each step. With rewards, at most
    /// `most_steps` are allowed per call.
    pub fn advance(
        &mut self,
        to: u64,
        targets: &[&IterateSum<T>],
        observer: &mut dyn Progress,
    ) -> Result<Vec<f64>> {
        let (from, count) = (self.k, to - self.k);
        let (before, all) = self.progress;
        if to > MOST_STEPS {
            return Invalid::TooLarge.fail(format!(
                "{to} multiplications are needed unless a steady state is detected earlier: at most \
                 {MOST_STEPS} are supported; give a shorter time"
            ));
        }
        if let Some(member) = &self.parts.member {
            return self.advance_in_lockstep(member, to, targets, observer);
        }
        if self.small(targets) {
            let (launch, launches) = self.small_launch(to, targets.first().copied())?;
            let mut watch = |done: u64| observer.progress(before + (from + done * SMALL_STEPS).min(to), all);
            let lane = &self.lanes[self.parts.parts[0].lane];
            let program = Program { cycle: vec![vec![&launch]] };
            self.parts.launching(|| lane.run(&program, 0, launches, &mut watch))?;
            // The kernel leaves x_k in the array in which it found the old iterate, so `now` does
            // not change.
            self.k = to;
            return Ok(Vec::new());
        }
        let mut watch = |done: u64| observer.progress(before + from + done, all);
        let launches = |lane: usize, source: usize, stage: Stage| {
            self.step_launches(lane, targets, source, from..to, &stage)
        };
        self.parts.launching(|| self.parts.run(self.lanes, from..to, self.now, &launches, &mut watch))?;
        self.k = to;
        self.now = (self.now + count as usize) % 2;
        if self.measured() == 0 { Ok(Vec::new()) } else { self.collect_rewards(count as usize) }
    }

    /// Returns the number of values measured per step: rewards, and the norm.
    fn measured(&self) -> usize {
        self.rewards.len() + usize::from(self.normed)
    }

    /// Returns the maximum number of steps of one [`Self::advance`] if there are rewards.
    pub(crate) fn most_steps(&self) -> u64 {
        match self.measured() {
            0 => u64::MAX,
            count => reward_steps(self.parts, count),
        }
    }

    fn small(&self, targets: &[&IterateSum<T>]) -> bool {
        let [part] = &self.parts.parts[..] else { return false };
        if !self.parts.closed() {
            return false;
        }
        let whole = part.rows.len() <= SWEEP_ROWS && part.chunks.len() == 1;
        whole && part.chunks[0].hyb().is_some() && targets.len() <= 1 && self.measured() == 0
    }

    /// Prepares the kernel that takes [`SMALL_STEPS`] steps; returns it and its number of launches.
    fn small_launch(&self, to: u64, target: Option<&IterateSum<T>>) -> Result<(Launch, u64)> {
        let part = &self.parts.parts[0];
        let ([slices, columns, values], _) = part.chunks[0].hyb().expect("small chains are stored in HYB");
        let (scalars, acc, held) = self.fused(target, 0);
        let params = sweep::Params {
            step: 0,
            first: self.k as u32,
            count: SMALL_STEPS as u32,
            end: to as u32,
            window_first: held.start as u32,
            window_end: held.end as u32,
            rows: part.rows.len() as u32,
        };
        let (exit, x, before) = (part.exit.arg(), part.x[self.now].arg(), part.x[1 - self.now].arg());
        let args = sweep::Args { slices, columns, values, exit, scalars, x, before, acc };
        let launch = self.lanes[part.lane].bind(&SWEEP, T::PRECISION, 1, params, args)?;
        Ok((launch, (to - self.k).div_ceil(SMALL_STEPS)))
    }

    /// Returns weights, accumulator and weighted steps of the sum fused into the step kernel.
    fn fused<'b>(&'b self, target: Option<&'b IterateSum<T>>, part: usize) -> (Arg<'b>, Arg<'b>, Range<u64>) {
        let lane = self.parts.parts[part].lane;
        match target {
            Some(t) if !t.acc.parts.is_empty() => {
                (t.scalars[lane].arg(), t.acc.parts[part].arg(), t.held.clone())
            }
            _ => (self.alone[lane].0.arg(), self.alone[lane].1.arg(), 0..0),
        }
    }

    /// Prepares one stage of a step of a lane's parts, from the iterate x\[source\].
    ///
    /// The last stage includes all kernels that read a whole iterate. `steps` are the steps of the
    /// run. Each step adds its own term, or leaves it to the step before, so no term outside of
    /// them is added.
    fn step_launches(
        &self,
        lane: usize,
        targets: &[&IterateSum<T>],
        source: usize,
        steps: Range<u64>,
        stage: &Stage,
    ) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for (p, part) in self.parts.of(lane) {
            // Rows that are computed for remote ranks alone are computed again, and added then.
            let target = targets.first().copied().filter(|_| *stage != Stage::SendRows);
            let (scalars, acc, held) = self.fused(target, p);
            let sum = StepSum {
                scalars,
                acc,
                window: within(&held, &steps),
                weights: held.start,
                recurrence: self.recurrence,
            };
            launches.extend(part.launches(&self.lanes[lane], stage, source, &sum)?);
            if *stage != Stage::Rest {
                continue;
            }
            for target in targets.iter().skip(1).filter(|t| !t.acc.parts.is_empty()) {
                launches.push(self.accumulate(target, p, source, &steps)?);
            }
            launches.extend(self.reward_launches(p, source, steps.start)?);
        }
        Ok(launches)
    }

    fn accumulate(
        &self,
        target: &IterateSum<T>,
        part: usize,
        source: usize,
        steps: &Range<u64>,
    ) -> Result<Launch> {
        let p = &self.parts.parts[part];
        // The accumulator's ghost rows are never read.
        let (window, rows) = (within(&target.held, steps), p.computed.len());
        let params = accumulate::Params {
            step: 0,
            window_first: window.start as u32,
            window_end: window.end as u32,
            weights: target.held.start as u32,
            rows: rows as u32,
            own: p.base() as u32,
        };
        let args = accumulate::Args {
            scalars: target.scalars[p.lane].arg(),
            x: p.x[source].arg(),
            y: p.x[1 - source].arg(),
            acc: target.acc.parts[part].arg(),
        };
        self.lanes[p.lane].bind(&ACCUMULATE, T::PRECISION, rows, params, args)
    }

    fn reward_launches(&self, part: usize, source: usize, first_step: u64) -> Result<Vec<Launch>> {
        let rewards = self.rewards.iter().map(|reward| (Observed::Product(reward), source));
        let all: Vec<_> = rewards.chain(self.normed.then_some((Observed::Norm, source))).collect();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        self.observing(part, first_step, &all, &self.partials[part])
    }

    /// Prepares the launches that compute numbers for each block of 256 rows of a part.
    ///
    /// `what` lists these numbers, each with the index (0 or 1) of the iterate to read.
    pub(super) fn observing(
        &self,
        part: usize,
        first_step: u64,
        what: &[(Observed<'_, T>, usize)],
        out: &Buffer<T>,
    ) -> Result<Vec<Launch>> {
        let p = &self.parts.parts[part];
        let rows = p.rows.len();
        let blocks = rows.div_ceil(BLOCK) as u32;
        let (lane, precision) = (&self.lanes[p.lane], T::PRECISION);
        let stride = blocks * what.len() as u32;
        let launch = |(place, (what, source)): (usize, &(Observed<'_, T>, usize))| {
            let params = block_dot::Params {
                step: 0,
                rows: rows as u32,
                own: p.own as u32,
                out: place as u32 * blocks,
                out_step: stride,
                first_step: first_step as u32,
            };
            let (x, out) = (p.x[*source].arg(), out.arg());
            match what {
                Observed::Product(vector) => {
                    let r = vector[part].arg();
                    lane.bind(&BLOCK_DOT, precision, rows, params, block_dot::Args { r, x, out })
                }
                Observed::Norm => {
                    lane.bind(&BLOCK_NORM, precision, rows, params, block_norm::Args { x, out })
                }
            }
        };
        what.iter().enumerate().map(launch).collect()
    }

    /// Returns the rewards of `count` steps.
    fn collect_rewards(&self, count: usize) -> Result<Vec<f64>> {
        self.sums(&self.partials, count * self.measured())
    }

    /// Adds partial sums, blocks in global order.
    pub(super) fn sums(&self, of: &[Buffer<T>], count: usize) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; count];
        let partials = self.block_values(of, count)?;
        self.parts.ranks.ordered_reduce(&mut sums, |sums| {
            for partial in partials.iter().filter(|partial| !partial.is_empty()) {
                for (sum, blocks) in sums.iter_mut().zip(partial.chunks(partial.len() / count)) {
                    blocks.iter().for_each(|b| *sum += b.wide());
                }
            }
        });
        Ok(sums)
    }

    /// Downloads `count` values for each block of 256 rows of each part.
    fn block_values(&self, of: &[Buffer<T>], count: usize) -> Result<Vec<Vec<T>>> {
        let values = |(part, out): (&LanePart<T>, &Buffer<T>)| {
            let mut values = vec![T::ZERO; count * part.rows.len().div_ceil(BLOCK)];
            self.lanes[part.lane].download(out, 0, &mut values)?;
            Ok(values)
        };
        self.parts.parts.iter().zip(of).map(values).collect()
    }

    /// Computes all rewards of one of the last two iterates.
    pub(crate) fn rewards_of(&self, which: Which) -> Result<Vec<f64>> {
        if self.measured() == 0 {
            return Ok(Vec::new());
        }
        let source = self.source(which);
        self.each_part(|p| self.reward_launches(p, source, self.k))?;
        self.collect_rewards(1)
    }

    /// Adds one of the last two iterates to a sum, times the stored weight of step k.
    pub(crate) fn add(&self, target: &IterateSum<T>, which: Which) -> Result<()> {
        if target.acc.parts.is_empty() {
            return Ok(());
        }
        let source = self.source(which);
        self.each_part(|p| Ok(vec![self.accumulate(target, p, source, &(self.k..self.k + 1))?]))
    }

    pub(super) fn source(&self, which: Which) -> usize {
        match which {
            Which::Newest => self.now,
            Which::Before => 1 - self.now,
        }
    }

    /// Launches kernels of every part once, as step k.
    fn each_part(&self, launches: impl Fn(usize) -> Result<Vec<Launch>>) -> Result<()> {
        self.parts.launch_each(self.lanes, self.k, launches)
    }

    /// Computes Σ x_k over all states, blocks in global order.
    pub(crate) fn mass(&self) -> Result<f64> {
        self.block_sums(&BLOCK_SUM, |part, out| block_sum::Args { x: part.x[self.now].arg(), out })
    }

    /// Computes ‖x_k − factor x_{k−1}‖ in l1, over the states that are not absorbing.
    pub(crate) fn defect(&self, factor: f64) -> Result<f64> {
        self.defect_of(factor, Which::Newest, Which::Before)
    }

    /// Returns the masses of x_{k−1} and x_k on non-absorbing states; `None` without absorbing
    /// states.
    pub(crate) fn non_absorbing_masses(&self) -> Result<Option<[f64; 2]>> {
        let mass = |which| self.defect_of(0.0, which, which);
        Ok(match self.parts.absorbing {
            true => Some([mass(Which::Before)?, mass(Which::Newest)?]),
            false => None,
        })
    }

    fn defect_of(&self, factor: f64, y: Which, x: Which) -> Result<f64> {
        if let Some(part) = self.far_and_small() {
            return self.defect_on_host(part, factor, y, x);
        }
        for (lane, buffer) in self.lanes.iter().zip(&self.factors) {
            lane.upload(&[T::factor(factor)], buffer, 0)?;
        }
        let rounded = self.rounded_down();
        let sum = self.block_sums(&BLOCK_DEFECT, |part, out| block_defect::Args {
            factor: self.factors[part.lane].arg(),
            among: part.non_absorbing.arg(),
            x: part.x[self.source(x)].arg(),
            y: part.x[self.source(y)].arg(),
            out,
        })?;
        Ok(sum + rounded)
    }

    /// Returns the only part if the chain is small and its device is not the host.
    ///
    /// Then copying two vectors to the host takes less time than compiling another kernel.
    fn far_and_small(&self) -> Option<&'a LanePart<T>> {
        let [part] = &self.parts.parts[..] else { return None };
        let far = !self.lanes[part.lane].device().on_host_cores();
        (far && part.rows.len() <= SWEEP_ROWS).then_some(part)
    }

    /// Computes [`Self::defect_of`] on the host, with bitwise identical results.
    fn defect_on_host(&self, part: &LanePart<T>, factor: f64, y: Which, x: Which) -> Result<f64> {
        let (lane, rows) = (&self.lanes[part.lane], part.rows.len());
        let copy = |which: Which| -> Result<Vec<T>> {
            let mut values = vec![T::ZERO; rows];
            lane.download(&part.x[self.source(which)], part.own, &mut values)?;
            Ok(values)
        };
        let among = match self.parts.absorbing {
            true => {
                let mut words = vec![0u32; rows.div_ceil(32)];
                lane.download(&part.non_absorbing, 0, &mut words)?;
                Some(words)
            }
            false => None,
        };
        let before = copy(x)?;
        let newest = if x == y { None } else { Some(copy(y)?) };
        let sums =
            defects(T::factor(factor), among.as_deref(), &before, newest.as_deref().unwrap_or(&before));
        Ok(total(&sums, self.parts.ranks) + self.rounded_down())
    }

    /// Bounds the mass lost by rounding the sums of all blocks down.
    fn rounded_down(&self) -> f64 {
        match T::PRECISION {
            Precision::Q64 => self.parts.blocks as f64 * (-64f64).exp2(),
            _ => 0.0,
        }
    }

    fn block_sums<'b, A: Arguments<Arg<'b>, Params = block_sum::Params>>(
        &'b self,
        kernel: &'static Kernel,
        args: impl Fn(&'b LanePart<T>, Arg<'b>) -> A,
    ) -> Result<f64> {
        self.each_part(|p| {
            let part = &self.parts.parts[p];
            let (rows, own) = (part.rows.len(), part.own as u32);
            let params = block_sum::Params { rows: rows as u32, own, ..Default::default() };
            let args = args(part, self.blocks[p].arg());
            Ok(vec![self.lanes[part.lane].bind(kernel, T::PRECISION, rows, params, args)?])
        })?;
        Ok(total(&self.block_values(&self.blocks, 1)?.concat(), self.parts.ranks))
    }

    /// Returns this rank's rows of the accumulators in the order of states.
    ///
    /// They are read in place if the host can, otherwise copied to `host`, which is allocated if
    /// empty.
    pub(crate) fn download<'b>(&self, acc: &'b Accumulators<T>, host: &'b mut Vec<f64>) -> Result<&'b [f64]> {
        if let (Some(host), [part]) = (&acc.host, &self.parts.parts[..]) {
            // Launches that write it have completed, and the next one starts after the caller has
            // read it.
            let own = part.ghosts()..part.ghosts() + part.rows.len();
            return Ok(bytemuck::cast_slice(&host[own]));
        }
        if host.is_empty() {
            *host = touched(self.parts.rows.len());
        }
        self.collect_into(host, &acc.parts.iter().collect::<Vec<_>>(), LanePart::ghosts, false)?;
        Ok(host)
    }

    /// Returns this rank's rows of the accumulators in a vector; reuses `host` if possible.
    pub(crate) fn downloaded(&self, acc: &Accumulators<T>, mut host: Vec<f64>) -> Result<Vec<f64>> {
        let result = self.download(acc, &mut host)?;
        if acc.host.is_some() {
            return Ok(result.to_vec());
        }
        Ok(host)
    }

    /// Returns x_k as a checkpoint stores it.
    ///
    /// Elements are doubles. For fixed point they are doubles with the bits of the fractions. These
    /// are copied and never used in arithmetic.
    pub(crate) fn snapshot(&self) -> Result<Vec<f64>> {
        self.collect_iterate(Which::Newest, true)
    }

    /// Returns accumulators as a checkpoint stores them, like [`Self::snapshot`].
    pub(crate) fn snapshot_sum(&self, acc: &Accumulators<T>) -> Result<Vec<f64>> {
        let mut all = touched(self.parts.rows.len());
        self.collect_into(&mut all, &acc.parts.iter().collect::<Vec<_>>(), LanePart::ghosts, true)
            .map(|()| all)
    }

    /// Copies x_k to the host, in the order of states.
    pub fn newest(&self) -> Result<Vec<f64>> {
        self.iterate(Which::Newest)
    }

    /// Copies one of the last two iterates to the host, in the order of states.
    pub(crate) fn iterate(&self, which: Which) -> Result<Vec<f64>> {
        self.collect_iterate(which, false)
    }

    fn collect_iterate(&self, which: Which, kept: bool) -> Result<Vec<f64>> {
        let (source, mut all) = (self.source(which), touched(self.parts.rows.len()));
        let x: Vec<_> = self.parts.parts.iter().map(|part| &part.x[source]).collect();
        self.collect_into(&mut all, &x, |part| part.own, kept).map(|()| all)
    }

    /// Copies one array of each part to the host, from an offset on; `kept` preserves the bits.
    fn collect_into(
        &self,
        all: &mut [f64],
        arrays: &[&Buffer<T>],
        offset: fn(&LanePart<T>) -> usize,
        kept: bool,
    ) -> Result<()> {
        let mut rest = all;
        let mut shares: Vec<Vec<_>> = self.lanes.iter().map(|_| Vec::new()).collect();
        for (part, &array) in self.parts.parts.iter().zip(arrays) {
            let own = rest.split_off_mut(..part.rows.len()).expect("as many as all parts have");
            shares[part.lane].push((part, array, own));
        }
        let copy = |(part, buffer, own): (&LanePart<T>, &Buffer<T>, &mut [f64])| -> Result<()> {
            let (lane, offset) = (&self.lanes[part.lane], offset(part));
            if T::PRECISION == Precision::F64 || (T::PRECISION == Precision::Q64 && kept) {
                return lane.download(buffer, offset, bytemuck::cast_slice_mut::<_, T>(own));
            }
            let mut values = vec![T::ZERO; own.len()];
            lane.download(buffer, offset, &mut values)?;
            own.par_iter_mut().zip(&values).for_each(|(p, v)| *p = v.wide());
            Ok(())
        };
        // Lanes copy concurrently.
        let copied = at_once(shares, |share| share.into_iter().try_for_each(copy));
        copied.into_iter().collect()
    }
}

/// Allocates zeros for results, touched by all cores. One core alone would get pages slowly.
pub(super) fn touched(len: usize) -> Vec<f64> {
    let mut all: Vec<f64> = zeroed(len);
    all.par_chunks_mut(1 << 16).for_each(|values: &mut [f64]| values.fill(0.0));
    all
}

/// Returns the number of steps with rewards after which the host collects the partial sums.
fn reward_steps<T: Number>(parts: &ChainParts<T>, rewards: usize) -> u64 {
    (REWARD_ELEMENTS / (parts.blocks * rewards).max(1)).clamp(1, 4096) as u64
}

/// Returns the intersection of two ranges of steps.
fn within(held: &Range<u64>, steps: &Range<u64>) -> Range<u64> {
    let first = held.start.max(steps.start);
    first..held.end.min(steps.end).max(first)
}
