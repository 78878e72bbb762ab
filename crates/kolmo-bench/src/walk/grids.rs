//! Grids of different shapes, and one thread per unknown (sections 3.3 and 3.1 of Lai et al. 2015).

use std::time::Instant;

use serde_json::json;

use super::{measured, prepare, record};
use crate::Record;
use kolmo::models::System;
use kolmo::walk::Grid;
use kolmo::walk::sampling::launcher::{Round, Task};
use kolmo::walk::sampling::walk_sums::Chains;
use kolmo::walk::sequence::{PointSource, Scramble, Sequence};
use kolmo::walk::table::Table;
use kolmo::{Error, Machine, Result};

/// Grids (groups, threads per group) that [`shapes`] compares. The published one is first.
const SHAPES: [(u32, u32); 9] = [
    (84, 512),
    (84, 256),
    (84, 1024),
    (168, 256),
    (336, 128),
    (672, 64),
    (336, 256),
    (1056, 256),
    (4224, 256),
];

/// Steps per chain in [`shapes`].
const STEPS: u32 = 32;

/// Measures the grids that the lanes support.
///
/// Returns the number of chains, for which a run takes some milliseconds, and for each grid the
/// shortest of `repeat` times in seconds.
///
/// # Errors
/// Errors of the lanes.
pub fn shapes(
    machine: &Machine,
    system: &System,
    repeat: usize,
    watch: &mut dyn FnMut() -> Result<()>,
) -> Result<(u32, Vec<(Grid, f64)>)> {
    let (split, f, certificate) = prepare(machine, system)?;
    let table = Table::build(&split, &certificate, &[&f], None, &[])?;
    let source = PointSource::new(Sequence::Sobol, Scramble::None, STEPS, 0, 84, false)?;
    let task = [Task { row: split.unknowns() as u32 / 2, component: 0, replicate: 0 }];
    let mut least = |on: &Chains<'_>, chains: u32| -> Result<f64> {
        let round = Round { points: (0, chains), length: STEPS, cut: 0.0 };
        on.sums(&task, round, &mut ())?;
        let mut seconds = f64::INFINITY;
        for _ in 0..repeat {
            watch()?;
            let at = Instant::now();
            on.sums(&task, round, &mut ())?;
            seconds = seconds.min(at.elapsed().as_secs_f64());
        }
        Ok(seconds)
    };
    let on = |(groups, size)| Chains::new(machine, &table, &source)?.on_grid(Grid { groups, size });
    // All devices support groups of 256 threads.
    let some = on((84, 256))?;
    let mut chains = 1 << 12;
    while chains < 1 << 22 && least(&some, chains)? < 3e-3 {
        chains *= 4;
    }
    drop(some);
    let mut times = Vec::new();
    for (groups, size) in SHAPES {
        match on((groups, size)).and_then(|on| least(&on, chains)) {
            Ok(seconds) => times.push((Grid { groups, size }, seconds)),
            Err(e @ (Error::Interrupted | Error::DeviceLost { .. } | Error::OutOfMemory { .. })) => {
                return Err(e);
            }
            // The device does not support groups of this size.
            Err(_) if size > 256 => {}
            Err(e) => return Err(e),
        }
    }
    Ok((chains, times))
}

/// Approximate number of cases of [`grids`].
pub const GRIDS: usize = 2 * 17 + 6;

/// Measures one component on grids of many shapes, and many components with one thread each.
///
/// One component is measured with points generated on the fly and in advance, and also in blocks of
/// 256 chains.
///
/// # Errors
/// Errors of the lanes.
pub fn grids(
    machine: &Machine,
    system: &System,
    chains: u32,
    length: u32,
    repeat: usize,
) -> Result<Vec<Record>> {
    let (split, f, certificate) = prepare(machine, system)?;
    let table = Table::build(&split, &certificate, &[&f], None, &[])?;
    let n = split.unknowns() as u32;
    let row = n / 2;
    let task = |row: u32| Task { row, component: 0, replicate: 0 };
    let round = Round { points: (0, chains), length, cut: 0.0 };
    let mut records = Vec::new();
    let mut push = |case: String, walks: u64, more, run: &dyn Fn() -> Result<Vec<f64>>| -> Result<()> {
        let (_, seconds) = measured(repeat, run)?;
        let steps = walks as f64 * f64::from(length);
        records.push(Record {
            repetitions: repeat,
            steps_per_s: Some(steps / seconds.median),
            ..record(machine, system, case, seconds, more)
        });
        Ok(())
    };
    for ahead in [false, true] {
        let source = PointSource::new(Sequence::Sobol, Scramble::None, length, 0, 84, ahead)?;
        let points = if ahead { "points ahead" } else { "points on the fly" };
        let wide = [14, 28, 42, 56, 84, 132, 264, 528, 1056].map(|groups| (groups, 512));
        let shapes = [(84, 32), (84, 64), (84, 128), (84, 256), (84, 1024), (1056, 256), (4224, 256)];
        for (groups, size) in wide.into_iter().chain(shapes) {
            let on = Chains::new(machine, &table, &source)?.on_grid(Grid { groups, size })?;
            let more = json!({"groups": groups, "group_size": size, "chains": chains, "length": length, "ahead": ahead});
            let case = format!("{} N={chains} T={length} grid {groups} x {size}, {points}", system.name);
            push(case, chains.into(), more, &|| on.sums(&[task(row)], round, &mut ()))?;
        }
        let blocks = Chains::new(machine, &table, &source)?;
        let more = json!({"blocks": 256, "chains": chains, "length": length, "ahead": ahead});
        let case = format!("{} N={chains} T={length} blocks of 256, {points}", system.name);
        push(case, chains.into(), more, &|| blocks.sums(&[task(row)], round, &mut ()))?;
        if !ahead {
            for unknowns in [1, 256, 4096] {
                let tasks: Vec<Task> = (0..n.min(unknowns)).map(task).collect();
                // The total number of steps is constant, except for a single unknown.
                let each = (chains / unknowns).clamp(16, 4096);
                let round = Round { points: (0, each), ..round };
                let walks = u64::from(each) * tasks.len() as u64;
                let more = json!({"unknowns": tasks.len(), "chains": each, "length": length});
                let of = format!("{} {} unknowns, N={each} T={length}", system.name, tasks.len());
                let case = format!("{of}, one thread an unknown");
                push(case, walks, more.clone(), &|| blocks.unknown_by_thread(&tasks, round))?;
                let case = format!("{of}, blocks of 256 chains");
                push(case, walks, more, &|| blocks.sums(&tasks, round, &mut ()))?;
            }
        }
    }
    Ok(records)
}
