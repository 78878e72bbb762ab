//! The sweep: x_0, x_1, … once, every time point served on the way.

use super::Observer;
use super::bound::Survey;
use super::kernels::{ACCUMULATE, BLOCK_DISTANCE, BLOCK_DOT, BLOCK_SUM, STEP, SWEEP, SWEEP_ROWS};
use super::parts::Parts;
use super::poisson::{Weights, expected_excess};
use crate::Result;
use crate::kernel::{Precision, Real};
use crate::lane::{Arg, Buffer, Lane, Launch, Program};
use crate::sparse::BLOCK;

/// Steps of one launch of the kernel for small chains: long against a launch, short against [`crate::lane::PIECE`].
const SMALL_STEPS: u64 = 512;
/// Single precision measures the mass this often while a window is open, and divides weights by it.
const MASS_STEPS: u64 = 64;
/// Elements of the rewards' partial sums that are held on the device.
const REWARD_ELEMENTS: usize = 1 << 22;

/// A time point with its weights.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its place among the times asked for.
    pub(super) index: usize,
    /// αt.
    pub(super) lambda: f64,
    /// Poisson weights.
    pub(super) weights: Weights,
    /// P(N > k) from one step before the window on; empty where no reward asks for it.
    pub(super) tails: Vec<f64>,
    /// What a steady-state stop may cost here.
    pub(super) steady_allowance: f64,
    /// Bound of the steady-state stop, if one happened.
    pub(super) steady_state: f64,
    /// Σ w_k |m_k − 1| of the masses that weights were divided by.
    pub(super) normalisation: f64,
    /// (instantaneous, cumulative·α) of each reward.
    pub(super) rewards: Vec<(f64, f64)>,
}

impl Planned {
    fn window(&self) -> std::ops::Range<u64> {
        self.weights.left..self.weights.left + self.weights.values.len() as u64
    }

    pub(super) fn right(&self) -> u64 {
        self.window().end - 1
    }
}

/// A time point whose window is open.
struct Open<T> {
    /// Its place among the planned.
    place: usize,
    scalars: Buffer<T>,
    acc: Vec<Buffer<T>>,
    /// First step whose weight the scalars hold, and one past the last.
    held: std::ops::Range<u64>,
}

/// The iteration of one chain on one lane.
pub(super) struct Sweep<'a, T> {
    lane: &'a Lane,
    parts: &'a Parts<T>,
    survey: &'a Survey<T>,
    /// One vector a reward and part.
    rewards: Vec<Vec<Buffer<T>>>,
    partials: Vec<Buffer<T>>,
    /// Partial sums of one vector, for mass and distance.
    blocks: Vec<Buffer<T>>,
    /// 1/α alone, for steps outside every window.
    alone: Buffer<T>,
    /// Stands in for an accumulator where none is written.
    nothing: Buffer<T>,
    /// x_k lies in `x[now]`.
    k: u64,
    now: usize,
    /// Steps done before this sweep, and to be done in all, for progress.
    progress: (u64, u64),
}

impl<'a, T: Real> Sweep<'a, T> {
    pub(super) fn new(
        lane: &'a Lane,
        parts: &'a Parts<T>,
        survey: &'a Survey<T>,
        rewards: &[&[f64]],
        progress: (u64, u64),
    ) -> Result<Self> {
        let mut vectors = Vec::new();
        for reward in rewards {
            let mut own = Vec::new();
            for part in &parts.parts {
                let values: Vec<T> = reward[part.rows.clone()].iter().map(|&r| T::of(r)).collect();
                own.push(lane.alloc_with("a reward", &values)?);
            }
            vectors.push(own);
        }
        let per_part = |elements: usize| -> Result<Vec<Buffer<T>>> {
            let blocks = parts.parts.iter().map(|p| p.rows.len().div_ceil(BLOCK));
            blocks.map(|b| lane.alloc("partial sums", (b * elements).max(b))).collect()
        };
        let sweep = Self {
            lane,
            parts,
            survey,
            partials: match rewards.len() {
                0 => Vec::new(),
                count => per_part(count * Self::reward_steps(parts, count))?,
            },
            rewards: vectors,
            blocks: per_part(1)?,
            alone: lane.alloc_with("scalars", &[survey.inverse_alpha])?,
            nothing: lane.alloc("scalars", 1)?,
            k: 0,
            now: 0,
            progress,
        };
        Ok(sweep)
    }

    /// Steps whose rewards are summed before the host looks at them.
    fn reward_steps(parts: &Parts<T>, rewards: usize) -> usize {
        let blocks: usize = parts.parts.iter().map(|p| p.rows.len().div_ceil(BLOCK)).sum();
        (REWARD_ELEMENTS / (blocks * rewards).max(1)).clamp(1, 4096)
    }

    /// Starts (again) from an initial distribution.
    pub(super) fn start(&mut self, initial: &[f64]) -> Result<()> {
        (self.k, self.now) = (0, 0);
        for part in &self.parts.parts {
            let values: Vec<T> = initial[part.rows.clone()].iter().map(|&p| T::of(p)).collect();
            self.lane.upload(&values, &part.x[0], part.own)?;
        }
        let halos = self.parts.exchange(self.lane, 0)?;
        if !halos.is_empty() {
            self.lane.launch(&halos.iter().collect::<Vec<_>>(), 0)?;
        }
        Ok(())
    }

    /// Serves the planned times, ascending; returns the number of multiplications. `accumulators` is how many
    /// windows may be open at once, at least one; a time that finds none free is left for another sweep and
    /// its place returned.
    pub(super) fn run(
        &mut self,
        planned: &mut [Planned],
        accumulators: usize,
        vectors: bool,
        observer: &mut dyn Observer,
    ) -> Result<(u64, Vec<usize>)> {
        let single = T::PRECISION == Precision::F32;
        let mut left_over = Vec::new();
        let mut waiting: std::collections::VecDeque<usize> = (0..planned.len()).collect();
        let mut open: Vec<Open<T>> = Vec::new();
        let mut free: Vec<Vec<Buffer<T>>> = Vec::new();
        let mut spare = accumulators;
        let mut check = 64u64;
        loop {
            // Windows that begin here.
            while let Some(&place) = waiting.front() {
                if planned[place].weights.left > self.k {
                    break;
                }
                waiting.pop_front();
                let acc = match (vectors, free.pop()) {
                    (false, _) => Vec::new(),
                    (true, Some(acc)) => acc,
                    (true, None) if spare > 0 => {
                        spare -= 1;
                        let parts = self.parts.parts.iter();
                        parts
                            .map(|p| self.lane.alloc("an accumulator", p.rows.len()))
                            .collect::<Result<_>>()?
                    }
                    (true, None) => {
                        left_over.push(place);
                        continue;
                    }
                };
                for acc in &acc {
                    self.lane.clear(acc)?;
                }
                let scalars = self.lane.alloc("Poisson weights", planned[place].weights.values.len() + 1)?;
                let held = planned[place].window();
                let open_here = Open { place, scalars, acc, held };
                self.upload_weights(&open_here, &planned[place], 1.0)?;
                open.push(open_here);
            }
            let last = |o: &Open<T>| planned[o.place].right();
            let Some(end) = open.iter().map(last).chain(waiting.iter().map(|&p| planned[p].right())).max()
            else {
                return Ok((self.k, left_over));
            };

            // Windows that end here, with the last term of their sums.
            let closing: Vec<usize> = (0..open.len()).filter(|&i| last(&open[i]) == self.k).collect();
            if !closing.is_empty() {
                self.normalise(single, &mut open, planned)?;
                self.finish_terms(&open, &closing, planned)?;
                for &i in closing.iter().rev() {
                    let done = open.swap_remove(i);
                    if vectors {
                        self.deliver(&done.acc, planned[done.place].index, observer)?;
                        free.push(done.acc);
                    }
                }
                continue;
            }

            let mut to = end;
            for &o in waiting.front().iter() {
                to = to.min(planned[*o].weights.left);
            }
            for o in &open {
                to = to.min(last(o));
            }
            if single && !open.is_empty() {
                self.normalise(single, &mut open, planned)?;
                to = to.min(self.k + MASS_STEPS);
            }
            if !self.rewards.is_empty() {
                to = to.min(self.k + Self::reward_steps(self.parts, self.rewards.len()) as u64);
            }
            if end - self.k > 64 {
                to = to.min(check.max(self.k + 1));
            }
            self.advance(to, &open, planned, observer)?;

            if self.k >= check && end - self.k > 32 {
                check = self.k + (self.k / 16).max(64);
                if let Some(distance) = self.steady(&open, &waiting, planned)? {
                    self.freeze(
                        distance,
                        open,
                        waiting,
                        planned,
                        free,
                        spare,
                        vectors,
                        observer,
                        &mut left_over,
                    )?;
                    return Ok((self.k, left_over));
                }
            }
        }
    }

    /// Runs steps up to `to`, each with its share of the open windows and the rewards.
    fn advance(
        &mut self,
        to: u64,
        open: &[Open<T>],
        planned: &mut [Planned],
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let (from, count) = (self.k, to - self.k);
        if self.small(open) {
            let launches = count.div_ceil(SMALL_STEPS);
            let part = &self.parts.parts[0];
            let chunk = &part.chunks[0];
            let (scalars, acc, window) = self.fused(open.first(), 0);
            let params = [
                0,
                from as u32,
                SMALL_STEPS as u32,
                to as u32,
                window.start as u32,
                window.end as u32,
                part.rows.len() as u32,
            ];
            let (x, before) = (part.x[self.now].arg(), part.x[1 - self.now].arg());
            let args = [
                chunk.slices.arg(),
                chunk.columns.arg(),
                chunk.values.arg(),
                part.exit.arg(),
                scalars,
                x,
                before,
                acc,
            ];
            let launch = self.lane.bind(&SWEEP, T::PRECISION, 1, &params, &args)?;
            let progress = self.progress;
            let mut watch =
                |done: u64| observer.progress(progress.0 + (from + done * SMALL_STEPS).min(to), progress.1);
            self.lane.run(&Program { cycle: vec![vec![&launch]] }, 0, launches, &mut watch)?;
            self.k = to;
            return Ok(());
        }

        let mut cycle = Vec::new();
        for parity in 0..2u64 {
            // Step k reads x[source]; at the first step, k = from, that is x[now].
            let source = (self.now + (parity + from) as usize) % 2;
            cycle.push(self.step_launches(open, source, from)?);
        }
        let program = Program { cycle: cycle.iter().map(|launches| launches.iter().collect()).collect() };
        let progress = self.progress;
        let mut watch = |done: u64| observer.progress(progress.0 + from + done, progress.1);
        self.lane.run(&program, from, count, &mut watch)?;
        self.k = to;
        self.now = (self.now + count as usize) % 2;
        if !self.rewards.is_empty() {
            self.collect_rewards(from, count as usize, planned)?;
        }
        Ok(())
    }

    fn small(&self, open: &[Open<T>]) -> bool {
        let [part] = &self.parts.parts[..] else { return false };
        part.rows.len() <= SWEEP_ROWS && part.chunks.len() == 1 && open.len() <= 1 && self.rewards.is_empty()
    }

    /// Weights, accumulator and window of the time point that the step kernel itself serves.
    fn fused<'b>(
        &'b self,
        open: Option<&'b Open<T>>,
        part: usize,
    ) -> (Arg<'b>, Arg<'b>, std::ops::Range<u64>) {
        match open {
            Some(o) if !o.acc.is_empty() => (o.scalars.arg(), o.acc[part].arg(), o.held.clone()),
            _ => (self.alone.arg(), self.nothing.arg(), 0..0),
        }
    }

    fn step_launches(&self, open: &[Open<T>], source: usize, first_step: u64) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for (p, part) in self.parts.parts.iter().enumerate() {
            let (scalars, acc, window) = self.fused(open.first(), p);
            let (x, y) = (&part.x[source], &part.x[1 - source]);
            for chunk in &part.chunks {
                let params = [
                    0,
                    window.start as u32,
                    window.end as u32,
                    chunk.rows as u32,
                    chunk.first as u32,
                    part.own as u32,
                ];
                let args = [
                    chunk.slices.arg(),
                    chunk.columns.arg(),
                    chunk.values.arg(),
                    part.exit.arg(),
                    scalars,
                    x.arg(),
                    y.arg(),
                    acc,
                ];
                launches.push(self.lane.bind(&STEP, T::PRECISION, chunk.rows, &params, &args)?);
            }
            for o in open.iter().skip(1).filter(|o| !o.acc.is_empty()) {
                launches.push(self.accumulate(o, p, source)?);
            }
        }
        launches.extend(self.reward_launches(source, first_step)?);
        launches.extend(self.parts.exchange(self.lane, 1 - source)?);
        Ok(launches)
    }

    fn accumulate(&self, open: &Open<T>, part: usize, source: usize) -> Result<Launch> {
        let p = &self.parts.parts[part];
        let params = [0, open.held.start as u32, p.rows.len() as u32, p.own as u32];
        let args = [open.scalars.arg(), p.x[source].arg(), open.acc[part].arg()];
        self.lane.bind(&ACCUMULATE, T::PRECISION, p.rows.len(), &params, &args)
    }

    fn reward_launches(&self, source: usize, first_step: u64) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for (r, reward) in self.rewards.iter().enumerate() {
            for ((part, values), out) in self.parts.parts.iter().zip(reward).zip(&self.partials) {
                let rows = part.rows.len();
                let blocks = rows.div_ceil(BLOCK) as u32;
                let stride = blocks * self.rewards.len() as u32;
                let params = [0, rows as u32, part.own as u32, r as u32 * blocks, stride, first_step as u32];
                let args = [values.arg(), part.x[source].arg(), out.arg()];
                launches.push(self.lane.bind(&BLOCK_DOT, T::PRECISION, rows, &params, &args)?);
            }
        }
        Ok(launches)
    }

    /// Adds the rewards of `count` steps from `from` on to every time point.
    fn collect_rewards(&self, from: u64, count: usize, planned: &mut [Planned]) -> Result<()> {
        let mut sums = vec![0.0; count * self.rewards.len()];
        for (part, out) in self.parts.parts.iter().zip(&self.partials) {
            let blocks = part.rows.len().div_ceil(BLOCK);
            let mut partial = vec![T::ZERO; count * self.rewards.len() * blocks];
            self.lane.download(out, 0, &mut partial)?;
            for (sum, blocks) in sums.iter_mut().zip(partial.chunks(blocks)) {
                *sum += blocks.iter().map(|b| b.wide()).sum::<f64>();
            }
        }
        for (k, rewards) in (from..).zip(sums.chunks(self.rewards.len())) {
            for time in planned.iter_mut() {
                let (weight, beyond) = weight_and_tail(time, k);
                for ((instant, cumulative), reward) in time.rewards.iter_mut().zip(rewards) {
                    *instant += weight * reward;
                    *cumulative += beyond * reward;
                }
            }
        }
        Ok(())
    }

    /// The terms of step k for windows that end with it.
    fn finish_terms(&mut self, open: &[Open<T>], closing: &[usize], planned: &mut [Planned]) -> Result<()> {
        let mut launches = Vec::new();
        for &i in closing {
            for p in 0..open[i].acc.len() {
                launches.push(self.accumulate(&open[i], p, self.now)?);
            }
        }
        // Rewards of step k would be added again by the step itself if the sweep goes on.
        let last = planned.iter().map(Planned::right).max() == Some(self.k);
        if last {
            launches.extend(self.reward_launches(self.now, self.k)?);
        }
        if !launches.is_empty() {
            self.lane.launch(&launches.iter().collect::<Vec<_>>(), self.k)?;
        }
        if last && !self.rewards.is_empty() {
            self.collect_rewards(self.k, 1, planned)?;
        }
        Ok(())
    }

    fn upload_weights(&self, open: &Open<T>, planned: &Planned, mass: f64) -> Result<()> {
        let first = (open.held.start - planned.weights.left) as usize;
        let values = &planned.weights.values[first..];
        let mut scalars = Vec::with_capacity(values.len() + 1);
        scalars.push(self.survey.inverse_alpha);
        scalars.extend(values.iter().map(|w| T::of(w / mass)));
        self.lane.upload(&scalars, &open.scalars, 0)
    }

    /// Single precision: measures the mass of x_k and divides the weights from step k on by it. Iterates are
    /// scaled by a number that drifts with rounding; the drift is measured, not estimated, and goes into the bound.
    fn normalise(&mut self, single: bool, open: &mut [Open<T>], planned: &mut [Planned]) -> Result<()> {
        if !single || open.is_empty() {
            return Ok(());
        }
        let mass = self.mass()?;
        for o in open {
            let time = &mut planned[o.place];
            let from = self.k.max(o.held.start);
            let ahead = (from - time.weights.left) as usize;
            let next = &time.weights.values[ahead..];
            time.normalisation += next.iter().take(MASS_STEPS as usize).sum::<f64>() * (mass - 1.0).abs();
            o.held.start = from;
            self.upload_weights(o, time, mass)?;
        }
        Ok(())
    }

    /// Σ x_k over all states, blocks in global order.
    pub(super) fn mass(&self) -> Result<f64> {
        let mut launches = Vec::new();
        for (part, out) in self.parts.parts.iter().zip(&self.blocks) {
            let params = [0, part.rows.len() as u32, part.own as u32, 0, 0, 0];
            let args = [part.x[self.now].arg(), out.arg()];
            launches.push(self.lane.bind(&BLOCK_SUM, T::PRECISION, part.rows.len(), &params, &args)?);
        }
        self.sum_blocks(&launches)
    }

    /// ‖x_k − x_{k−1}‖ in l1.
    pub(super) fn distance(&self) -> Result<f64> {
        let mut launches = Vec::new();
        for (part, out) in self.parts.parts.iter().zip(&self.blocks) {
            let params = [0, part.rows.len() as u32, part.own as u32, 0, 0, 0];
            let args = [part.x[1 - self.now].arg(), part.x[self.now].arg(), out.arg()];
            launches.push(self.lane.bind(&BLOCK_DISTANCE, T::PRECISION, part.rows.len(), &params, &args)?);
        }
        self.sum_blocks(&launches)
    }

    fn sum_blocks(&self, launches: &[Launch]) -> Result<f64> {
        self.lane.launch(&launches.iter().collect::<Vec<_>>(), 0)?;
        let mut sum = 0.0;
        for out in &self.blocks {
            let mut partial = vec![T::ZERO; out.len()];
            self.lane.download(out, 0, &mut partial)?;
            sum += partial.iter().map(|b| b.wide()).sum::<f64>();
        }
        Ok(sum)
    }

    /// Steps taken so far.
    pub(super) fn steps(&self) -> u64 {
        self.k
    }

    /// Takes steps without serving any time point.
    pub(super) fn skip(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<()> {
        self.advance(self.k + steps, &[], &mut [], observer)
    }

    /// The distance of the last two iterates, if stopping now is within every remaining time's allowance: since P
    /// is an l1 contraction, ‖x_j − x_{k−1}‖ ≤ (j − k + 1)·d for j ≥ k, so freezing errs by at most d·E[(N − k + 1)⁺].
    fn steady(
        &self,
        open: &[Open<T>],
        waiting: &std::collections::VecDeque<usize>,
        planned: &[Planned],
    ) -> Result<Option<f64>> {
        // The sum of n magnitudes in blocks of 256 and then in double precision has a relative error below this.
        let slack = 1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-9;
        let distance = self.distance()? * slack;
        let within = |place: usize| {
            let time = &planned[place];
            distance * expected_excess(time.lambda, self.k - 1) <= time.steady_allowance
        };
        let all = open.iter().map(|o| o.place).chain(waiting.iter().copied()).all(within);
        Ok(all.then_some(distance))
    }

    /// Ends the sweep with x_{k−1} in the place of all later iterates.
    #[expect(clippy::too_many_arguments, reason = "the state of the loop that it ends")]
    fn freeze(
        &mut self,
        distance: f64,
        open: Vec<Open<T>>,
        waiting: std::collections::VecDeque<usize>,
        planned: &mut [Planned],
        mut free: Vec<Vec<Buffer<T>>>,
        spare: usize,
        vectors: bool,
        observer: &mut dyn Observer,
        left_over: &mut Vec<usize>,
    ) -> Result<()> {
        let frozen = 1 - self.now;
        let mass = if T::PRECISION == Precision::F32 { self.mass()? } else { 1.0 };
        if !self.rewards.is_empty() {
            let launches = self.reward_launches(frozen, self.k)?;
            self.lane.launch(&launches.iter().collect::<Vec<_>>(), self.k)?;
            let mut sums = vec![0.0; self.rewards.len()];
            for (part, out) in self.parts.parts.iter().zip(&self.partials) {
                let blocks = part.rows.len().div_ceil(BLOCK);
                let mut partial = vec![T::ZERO; self.rewards.len() * blocks];
                self.lane.download(out, 0, &mut partial)?;
                for (sum, blocks) in sums.iter_mut().zip(partial.chunks(blocks)) {
                    *sum += blocks.iter().map(|b| b.wide()).sum::<f64>();
                }
            }
            for time in planned.iter_mut().filter(|time| time.right() >= self.k) {
                let (weight, beyond) = (self.k..=time.right())
                    .map(|k| weight_and_tail(time, k))
                    .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
                for ((instant, cumulative), reward) in time.rewards.iter_mut().zip(&sums) {
                    *instant += weight * reward;
                    *cumulative += beyond * reward;
                }
            }
        }
        let mut rest: Vec<Open<T>> = open;
        let mut places: Vec<usize> = waiting.into_iter().collect();
        places.reverse();
        loop {
            let o = match rest.pop() {
                Some(o) => o,
                None => {
                    let Some(place) = places.pop() else { return Ok(()) };
                    let acc = match free.pop() {
                        Some(acc) => acc,
                        None if !vectors => Vec::new(),
                        None if spare > 0 => {
                            let parts = self.parts.parts.iter();
                            parts
                                .map(|p| self.lane.alloc("an accumulator", p.rows.len()))
                                .collect::<Result<_>>()?
                        }
                        None => {
                            left_over.push(place);
                            continue;
                        }
                    };
                    for acc in &acc {
                        self.lane.clear(acc)?;
                    }
                    let scalars = self.lane.alloc("Poisson weights", 2)?;
                    Open { place, scalars, acc, held: self.k..self.k + 1 }
                }
            };
            let time = &mut planned[o.place];
            time.steady_state = distance * expected_excess(time.lambda, self.k - 1);
            let ahead = self.k.saturating_sub(time.weights.left) as usize;
            let rest_of_weights: f64 = time.weights.values[ahead..].iter().rev().sum();
            time.normalisation += rest_of_weights * (mass - 1.0).abs();
            let o = Open { held: self.k..self.k + 1, ..o };
            self.lane.upload(&[self.survey.inverse_alpha, T::of(rest_of_weights / mass)], &o.scalars, 0)?;
            if vectors {
                let launches: Vec<Launch> =
                    (0..o.acc.len()).map(|p| self.accumulate(&o, p, frozen)).collect::<Result<_>>()?;
                self.lane.launch(&launches.iter().collect::<Vec<_>>(), self.k)?;
                self.deliver(&o.acc, planned[o.place].index, observer)?;
                free.push(o.acc);
            }
        }
    }

    fn deliver(&self, acc: &[Buffer<T>], index: usize, observer: &mut dyn Observer) -> Result<()> {
        let mut all = Vec::with_capacity(acc.iter().map(Buffer::len).sum());
        for acc in acc {
            let mut own = vec![T::ZERO; acc.len()];
            self.lane.download(acc, 0, &mut own)?;
            all.extend(own.iter().map(|p| p.wide()));
        }
        observer.result(index, &all)
    }

    /// Copies the newest iterate to the host.
    pub(super) fn iterate(&self) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        for part in &self.parts.parts {
            let mut own = vec![T::ZERO; part.rows.len()];
            self.lane.download(&part.x[self.now], part.own, &mut own)?;
            all.extend(own.iter().map(|p| p.wide()));
        }
        Ok(all)
    }
}

/// p_k and P(N > k) of a time point.
fn weight_and_tail(time: &Planned, k: u64) -> (f64, f64) {
    let window = time.window();
    if k < window.start {
        (0.0, 1.0)
    } else if k < window.end {
        let i = (k - window.start) as usize;
        (time.weights.values[i], time.tails[i + 1])
    } else {
        (0.0, 0.0)
    }
}
