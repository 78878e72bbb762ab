//! Steps on the lanes that share a chain, and the exchange of halos between them.
//!
//! [`parts`] stores the chain on its lanes. [`halo`] plans which rows are sent, and [`transport`]
//! the path of their values. [`host_exchange`] runs a thread for each lane, and `peer_exchange`
//! runs CUDA kernels that write remote halos.

pub(crate) mod halo;
mod host_exchange;
pub(crate) mod parts;
#[cfg(feature = "cuda")]
mod peer_exchange;
mod transport;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use self::host_exchange::{ExchangeWorker, on_lanes, workers};
use self::parts::ChainParts;
use crate::Result;
use crate::kernel::Number;
use crate::lane::{Lane, LaneBatch, Launch, Program};
use crate::transient::partition::LaneExchange;
use crate::transient::step::stages::{LaneStep, Launches, Stage};

impl<T: Number> ChainParts<T> {
    /// Prepares the launches of a lane's step from the iterate x\[source\], `source` 0 or 1.
    fn lane_step(
        &self,
        lanes: &[Lane],
        lane: usize,
        source: usize,
        launches: Launches<'_>,
    ) -> Result<LaneStep> {
        let several = self.matrix.halo_depth > 1;
        let mut rest = launches(lane, source, Stage::Rest)?;
        rest.extend(self.gathers(lanes, lane, 1 - source)?);
        Ok(LaneStep {
            boundary: launches(lane, source, if several { Stage::SendRows } else { Stage::Boundary })?,
            sends: self.send_launches(lanes, lane, 1 - source)?,
            interior: launches(lane, source, Stage::Interior)?,
            own: several.then(|| launches(lane, source, Stage::Own)).transpose()?,
            rest,
        })
    }

    /// Runs steps on all lanes from the iterate x\[now\]; all halos are current at the end.
    pub(super) fn run(
        &self,
        lanes: &[Lane],
        steps: Range<u64>,
        now: usize,
        launches: Launches<'_>,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        // work[lane][source]
        let both = |lane| -> Result<[LaneStep; 2]> {
            Ok([self.lane_step(lanes, lane, 0, launches)?, self.lane_step(lanes, lane, 1, launches)?])
        };
        let work = (0..lanes.len()).map(both).collect::<Result<Vec<_>>>()?;
        #[cfg(feature = "cuda")]
        if self.matrix.exchange == LaneExchange::Peer {
            return peer_exchange::run(self, lanes, &work, steps, now, watch);
        }
        if let ([lane], [work]) = (lanes, &work[..])
            && self.closed()
        {
            let all = |k: u64| {
                let LaneStep { boundary, interior, rest, .. } = &work[(now + (steps.start + k) as usize) % 2];
                boundary.iter().chain(interior).chain(rest).collect()
            };
            // Step k is at index k mod 2.
            let program = Program { cycle: vec![all(0), all(1)] };
            let tiles = self.tiles.as_ref().filter(|_| work.iter().all(|step| step.rest.is_empty()));
            let Some(tiles) = tiles else {
                return lane.run(&program, steps.start, steps.end - steps.start, watch);
            };
            debug_assert!(work.iter().all(|step| step.boundary.is_empty()), "no part reads the only one");
            let prepare = |rows: Range<usize>| {
                let step =
                    |k: usize| launches(0, (now + steps.start as usize + k) % 2, Stage::Rows(rows.clone()));
                Ok([step(0)?, step(1)?])
            };
            return tiles.run(lane, prepare, &program, steps.clone(), watch);
        }
        debug_assert!(self.matrix.exchange != LaneExchange::None, "several lanes have a transport");
        let done: Vec<AtomicU64> = lanes.iter().map(|_| AtomicU64::new(0)).collect();
        let mut least_done = || watch(done.iter().map(|d| d.load(Ordering::Relaxed)).min().unwrap_or(0));
        let halo_depth = self.matrix.halo_depth as u64;
        on_lanes(self.workers(lanes), &mut least_done, &|worker| {
            worker.run(&work[worker.number], steps.clone(), now, halo_depth, &done[worker.number])
        })
    }

    /// Updates all halos of iterate number `which`, 0 or 1, once.
    pub fn exchange(&self, lanes: &[Lane], which: usize) -> Result<()> {
        if self.matrix.exchange == LaneExchange::Peer {
            // A lane writes into others' memory, which these may not have cleared yet.
            lanes.iter().try_for_each(Lane::finish)?;
        }
        for (number, lane) in lanes.iter().enumerate() {
            let mut launches = self.gathers(lanes, number, which)?;
            launches.extend(self.send_launches(lanes, number, which)?);
            if !launches.is_empty() {
                lane.launch(&launches.iter().collect::<Vec<_>>(), 0)?;
            }
        }
        if self.closed() || self.matrix.exchange == LaneExchange::Peer {
            return Ok(());
        }
        on_lanes(self.workers(lanes), &mut || Ok(()), &|worker| worker.exchange_packed(which))
    }

    fn workers<'a>(&'a self, lanes: &'a [Lane]) -> Vec<ExchangeWorker<'a, T>> {
        let transports = self.between_lanes.iter().map(|transfer| &transfer.transport);
        workers(lanes, transports, self.ranks)
    }
}

impl<T: Number> ExchangeWorker<'_, T> {
    /// Runs steps from the iterate x\[now\], with an exchange after every `halo_depth` steps.
    fn run(
        &mut self,
        work: &[LaneStep; 2],
        steps: Range<u64>,
        now: usize,
        halo_depth: u64,
        done: &AtomicU64,
    ) -> Result<()> {
        let (mut k, mut source) = (steps.start, now);
        let mut receives = Vec::new();
        while k < steps.end {
            let count = halo_depth.min(steps.end - k);
            let last = (source + count as usize - 1) % 2;
            let first = LaneBatch {
                receives,
                launches: first_launches(work, source, count),
                before_receives: true,
                sends: self.send_buffers(),
            };
            let LaneStep { interior, own, rest, .. } = &work[last];
            let launches = own.as_ref().unwrap_or(interior).iter().chain(rest).map(|launch| (0, launch));
            let second = LaneBatch { launches: launches.collect(), ..LaneBatch::default() };
            self.exchange(1 - last, (&first, k), Some((&second, k + count - 1)))?;
            receives = self.receive_buffers(1 - last);
            source = 1 - last;
            k += count;
            done.store(k - steps.start, Ordering::Relaxed);
        }
        match steps.is_empty() {
            true => Ok(()),
            false => self.lane.submit(&LaneBatch { receives, ..LaneBatch::default() }, k),
        }
    }
}

/// Returns the launches before an exchange of halos, each with its index among `count` steps.
///
/// The last step computes and sends only its boundary rows; earlier steps compute all rows. Steps
/// alternate between the iterates, beginning with x\[source\].
fn first_launches(work: &[LaneStep; 2], source: usize, count: u64) -> Vec<(u64, &Launch)> {
    let mut launches = Vec::new();
    for j in 0..count {
        let step = &work[(source + j as usize) % 2];
        let all = match j + 1 == count {
            true => step.boundary.iter().chain(&step.sends),
            false => step.interior.iter().chain(&step.rest),
        };
        launches.extend(all.map(|launch| (j, launch)));
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::kernel::Precision;
    use crate::lane::{DeviceSpec, OpenOptions};
    use crate::sparse::MatrixFormat;
    use crate::transient::Chain;
    use crate::transient::chain::scan::statistics;
    use crate::transient::iteration::Iteration;
    use crate::transient::partition::Partitioning;
    use crate::transient::step::time_tiles::TimeTiles;

    /// Returns the bits of the last iterate and of the weighted sum after three runs of steps.
    fn run<T: Number>(format: MatrixFormat, in_tiles: bool) -> [Vec<u64>; 2] {
        let cpu = [DeviceSpec::Cpu];
        let options = OpenOptions { precision: Some(T::PRECISION), ..Default::default() };
        let machine = Machine::open(&cpu, &options).unwrap();
        // Neighbours at two distances, with rates that repeat.
        let n = 40_000usize;
        let (mut pointers, mut columns, mut rates) = (vec![0], Vec::new(), Vec::new());
        for state in 0..n {
            let near = [state.checked_sub(700), state.checked_sub(1), Some(state + 1), Some(state + 700)];
            for target in near.into_iter().flatten().filter(|&target| target < n) {
                columns.push(target as u32);
                rates.push(1.0 + (state % 3) as f64);
            }
            pointers.push(columns.len());
        }
        let chain = Chain::from_csr(n, &pointers, &columns, &rates).unwrap();

        let statistics = statistics::<T>(&*chain.transitions).unwrap();
        let split = Partitioning::default();
        let mut parts = ChainParts::build(&machine, &*chain.transitions, &statistics, format, split).unwrap();
        assert!(parts.tiles.is_none(), "the caches hold a small chain");
        parts.tiles = in_tiles.then(|| TimeTiles::untried(n, 512, 2, 4));
        let lanes = &machine.lanes[..];
        let mut iteration =
            Iteration::new(lanes, &parts, statistics.inverse_alpha, &[], (0, 0), false).unwrap();
        let mut target = iteration.target(60, iteration.accumulators().unwrap()).unwrap();
        iteration.weigh(&mut target, 3, &[1e-2; 50], 1.0).unwrap();
        iteration.start(&vec![1.0 / n as f64; n], None).unwrap();
        for to in [1, 26, 61] {
            iteration.advance(to, &[&target], &mut ()).unwrap();
        }
        let sum = iteration.snapshot_sum(&target.acc).unwrap();
        [iteration.snapshot().unwrap(), sum].map(|all| all.iter().map(|value| value.to_bits()).collect())
    }

    #[test]
    fn steps_in_tiles_have_the_bits_of_single_steps() {
        for precision in [Precision::F64, Precision::F32, Precision::Q64] {
            for format in [MatrixFormat::Hyb, MatrixFormat::Packed, MatrixFormat::Pattern] {
                let single = by_precision!(precision, run(format, false));
                let in_tiles = by_precision!(precision, run(format, true));
                assert!(single == in_tiles, "{precision:?}, {format}");
            }
        }
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_device_lost_during_a_run_is_named_and_nothing_is_delivered() {
        use crate::Error;
        use crate::transient::{Initial, Options, Problem, solve};

        for (count, lost) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
            let specs = vec![DeviceSpec::Wgpu(0); count];
            let machine = match Machine::open(&specs, &OpenOptions::default()) {
                Ok(machine) => machine,
                Err(e) => return crate::devices::skip("wgpu:0", format!("wgpu:0 does not open: {e}")),
            };
            let n = 3000;
            let (pointers, next): (Vec<_>, Vec<_>) = ((0..=n).collect(), (1..n as u32).chain([0]).collect());
            let ring = Chain::from_csr(n, &pointers, &next, &vec![1.0; n]).unwrap();
            let problem = Problem::new(&*ring.transitions, &Initial::State(0), &[1e3]);

            let lane = &machine.lanes[lost];
            let mut lose = |done: u64, _: u64| {
                if done > 0 {
                    lane.lose();
                }
                Ok(())
            };
            let none = |_: usize, _: &[f64]| panic!("a result after the loss of a device");

            let error = solve(&machine, &problem, &Options::default(), &mut (&mut lose, none)).unwrap_err();

            assert!(
                matches!(&error, Error::DeviceLost { device, .. } if device.contains("wgpu:0")),
                "lane {lost} of {count}: {error}"
            );
        }
    }
}
