//! Many chains on some lanes: which lane walks what, and the sums that come back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::kernels::{BLOCK, WALK};
use super::sequence::Points;
use super::table::Table;
use crate::kernel::{Precision, Real};
use crate::lane::{Buffer, Lane, Program};
use crate::{Error, Result};

/// The first row of some chains and their stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Component of x, the number of a row.
    pub row: u32,
    /// The component's number in the streams: its row, or 0 for all where they share one sequence.
    pub component: u32,
    /// The replicate's number in the streams.
    pub replicate: u32,
}

/// What all chains of a round have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Points of every task's stream: first, and one past the last.
    pub points: (u32, u32),
    /// Steps of a chain, at most.
    pub length: u32,
    /// A chain ends once its weight is at most this.
    pub cut: f32,
}

/// Lanes with the chain table and the sequence's table.
#[derive(Debug)]
pub struct Chains<'a> {
    lanes: Vec<Equipped<'a>>,
    precision: Precision,
    points: &'a Points,
    table: &'a Table,
}

#[derive(Debug)]
struct Equipped<'a> {
    lane: &'a Lane,
    rows: Buffer<u32>,
    table: Buffer<u32>,
}

/// Receives the steps done and to do; an error stops the round.
pub type Watch<'a> = &'a mut (dyn FnMut(u64, u64) -> Result<()> + Send);

/// Steps of one launch: long enough to fill a device, short enough that an interruption is noticed.
fn launch_steps(lane: &Lane) -> u64 {
    let device = lane.device();
    if device.backend == "cpu" || device.software { 1 << 22 } else { 1 << 28 }
}

impl<'a> Chains<'a> {
    /// Copies both tables to every lane.
    ///
    /// # Errors
    /// If a lane has not enough memory, or a table exceeds what it can bind.
    pub fn new(lanes: &'a [Lane], precision: Precision, table: &'a Table, points: &'a Points) -> Result<Self> {
        let equip = |lane: &'a Lane| {
            Ok(Equipped {
                lane,
                rows: lane.alloc_with("the chain table", &table.words)?,
                table: points.upload(lane)?,
            })
        };
        let lanes = std::thread::scope(|scope| {
            let all: Vec<_> = lanes.iter().map(|lane| scope.spawn(move || equip(lane))).collect();
            all.into_iter().map(|t| t.join().expect("an upload does not panic")).collect::<Result<_>>()
        })?;
        Ok(Self { lanes, precision, points, table })
    }

    /// For each task the sum of θ over the points of the round. Blocks of 256 chains are the same whatever lane walks
    /// them, and are added in one order.
    ///
    /// # Errors
    /// Those of the lanes and of `watch`.
    pub fn sums(&self, tasks: &[Task], round: Round, watch: Watch<'_>) -> Result<Vec<f64>> {
        let walks = round.points.1 - round.points.0;
        let per_task = walks.div_ceil(BLOCK as u32);
        let blocks = u64::from(per_task) * tasks.len() as u64;
        if tasks.is_empty() || blocks == 0 {
            return Ok(vec![0.0; tasks.len()]);
        }
        // Where tasks are very many they come in batches, so that blocks are counted in 32 bits.
        const MOST: u64 = 1 << 23;
        let batch = ((MOST / u64::from(per_task)).max(1) as usize).min(tasks.len());
        let all = tasks.len() as u64 * u64::from(walks) * u64::from(round.length);
        let mut sums = Vec::with_capacity(tasks.len());
        let mut done = 0;
        for tasks in tasks.chunks(batch) {
            let mut here = |steps: u64, _: u64| watch(done + steps, all);
            let blocks = match self.precision {
                Precision::F32 => self.blocks::<f32>(tasks, per_task, round, &mut here)?,
                Precision::F64 => self.blocks::<f64>(tasks, per_task, round, &mut here)?,
            };
            sums.extend(blocks.chunks(per_task as usize).map(|b| b.iter().sum::<f64>() * self.table.factor));
            done += tasks.len() as u64 * u64::from(walks) * u64::from(round.length);
        }
        Ok(sums)
    }

    /// The sum of every block, in order.
    fn blocks<T: Real>(&self, tasks: &[Task], per_task: u32, round: Round, watch: Watch<'_>) -> Result<Vec<f64>> {
        let count = per_task * tasks.len() as u32;
        let tasks: Vec<[u32; 4]> = tasks
            .iter()
            .map(|t| {
                let stream = self.points.stream(t.component, t.replicate);
                [self.table.place[t.row as usize], stream.key, stream.component, stream.replicate]
            })
            .collect();
        let tasks: &[u32] = bytemuck::cast_slice(&tasks);
        let next = AtomicU32::new(0);
        let walked = AtomicU64::new(0);
        let watch = Mutex::new(watch);
        let work = |equipped: &Equipped<'_>| -> Result<Vec<(u32, Vec<T>)>> {
            let lane = equipped.lane;
            let out = lane.alloc::<T>("sums of walks", count as usize)?;
            let starts = lane.alloc_with("starts of walks", tasks)?;
            let of_block = BLOCK as u64 * (u64::from(round.length) + 1);
            let [seed_low, seed_high] = self.points.key();
            // A device wants hundreds of thousands of walks at a time, whatever their length.
            let least = if lane.device().backend == "cpu" || lane.device().software { 16 } else { 2048 };
            let groups = ((launch_steps(lane) / of_block) as u32).clamp(least, 1 << 16).min(count);
            let params = [
                0,
                groups,
                0,
                count,
                per_task,
                round.points.0,
                round.points.1,
                round.length,
                round.cut.to_bits(),
                self.points.sequence().code(),
                self.points.scramble().code(),
                self.points.tabled(),
                seed_low,
                seed_high,
            ];
            let args = [equipped.rows.arg(), starts.arg(), equipped.table.arg(), out.arg()];
            let items = groups as usize * BLOCK;
            let mut launch = lane.bind(&WALK, T::PRECISION, items, &params, &args)?;
            // One lane takes all; several take launches of a few tenths of a second, whoever is free.
            let mut pace = if self.lanes.len() == 1 { count.div_ceil(groups) } else { 1 };
            let mut mine = Vec::new();
            loop {
                let share = u64::from(pace) * u64::from(groups);
                let first = next.fetch_add(share.min(u64::from(u32::MAX / 4)) as u32, Ordering::Relaxed);
                if first >= count {
                    break;
                }
                let end = count.min(first.saturating_add(share.min(u64::from(u32::MAX)) as u32));
                launch.set(2, first);
                launch.set(3, end);
                let program = Program { cycle: vec![vec![&launch]] };
                let steps = (end - first).div_ceil(groups);
                let (from, mut seen) = (Instant::now(), 0);
                lane.run(&program, 0, u64::from(steps), &mut |done| {
                    let blocks = (done * u64::from(groups)).min(u64::from(end - first));
                    let steps = (blocks - seen) * (of_block - BLOCK as u64);
                    seen = blocks;
                    let walked = walked.fetch_add(steps, Ordering::Relaxed) + steps;
                    (watch.lock().unwrap_or_else(|e| e.into_inner()))(walked, 0)
                })?;
                if self.lanes.len() > 1 {
                    let left = count.saturating_sub(next.load(Ordering::Relaxed)) / groups;
                    let fit = 0.2 / from.elapsed().as_secs_f64().max(1e-6) * f64::from(steps);
                    pace = (fit as u32).clamp(1, (left / (2 * self.lanes.len() as u32)).max(1));
                }
                let mut sums = vec![T::ZERO; (end - first) as usize];
                lane.download(&out, first as usize, &mut sums)?;
                mine.push((first, sums));
            }
            Ok(mine)
        };
        let parts: Vec<Result<Vec<(u32, Vec<T>)>>> = match &self.lanes[..] {
            [one] => vec![work(one)],
            several => std::thread::scope(|scope| {
                let work = &work;
                let all: Vec<_> = several.iter().map(|lane| scope.spawn(move || work(lane))).collect();
                all.into_iter().map(|t| t.join().expect("walks do not panic")).collect()
            }),
        };
        let mut sums = vec![0.0; count as usize];
        let mut failed: Option<Error> = None;
        for part in parts {
            match part {
                Ok(part) => {
                    for (first, part) in part {
                        for (sum, value) in sums[first as usize..].iter_mut().zip(part) {
                            *sum = value.wide();
                        }
                    }
                }
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(sums), Err)
    }
}
