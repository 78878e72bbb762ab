//! Measurements for the tables and figures of the papers.

use serde_json::{Value, json};

use super::papers::{FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, STREAMS, TABLE_II};
use super::{Jobs, Known, Open, Watch, bands, built_in, known, line, reference};
use crate::seed_table::{Cell, Column, Row, Wanted};
use crate::walk::{Rate, Sharing, accuracy, rate, sharing};
use crate::{HostTimes, Record, Spread, lane_times, largest_system, system_lane_times};
use kolmo::internals::statistics;
use kolmo::kernel::Precision;
use kolmo::transient::Chain;
use kolmo::tridiagonal::lane_count::LANE_COUNTS;
use kolmo::tridiagonal::lane_count::measure::Effort;
use kolmo::tridiagonal::lane_count::overlap::gomez_luna;
use kolmo::walk::ControlVariate;
use kolmo::{Machine, Result};

/// Names of the methods in the accuracy figure: four of the paper and two of kolmo.
const ACCURACY: [&str; 6] = ["mtgp32", "halton", "faure", "sobol", "sobol owen", "sobol owen value sweeps"];

/// Names of the methods in the figures of computing times.
const SHARING: [&str; 3] =
    ["mtgp32, new for every component", "sobol, one for all", "sobol on the fly, one for all"];

const TIME: f64 = 10.0;
const EPSILON: f64 = 1e-5;

/// A chain of Table II with reference probabilities at t = 2/α, 100/α (uniformization rate α), 10.
struct Seed {
    chain: Chain,
    k: usize,
    reference: Vec<Vec<f64>>,
}

/// Systems and chains of the figures with their reference results.
pub(super) struct Prepared {
    jobs: Jobs,
    seeds: Vec<Seed>,
    accuracy: Known,
    dense: Vec<Known>,
    sparse: Vec<Known>,
}

impl Prepared {
    pub(super) fn new(jobs: &Jobs, cpu: &Machine, watch: Watch<'_>) -> Result<Self> {
        let mut seeds = Vec::new();
        for &k in jobs.seed_chains {
            let chain = built_in(&format!("wlan:{k},6"))?;
            watch(&format!("{}: what others are held against", chain.name))?;
            let inverse = statistics::<f64>(&*chain.transitions)?.mean_holding();
            // The times of the short runs of a `Row`, and the time of the table.
            let reference = reference(cpu, &chain, &[2.0 * inverse, 100.0 * inverse, TIME])?;
            seeds.push(Seed { chain, k, reference });
        }
        watch("systems of the figures")?;
        let of = |n: usize, row: usize| known(&format!("random-dominant:{n},{row},0.8,positive"), 1e-9);
        Ok(Self {
            jobs: *jobs,
            seeds,
            accuracy: known(jobs.accuracy.0, 1e-14)?,
            dense: jobs.dense.iter().map(|&n| of(n, n / 2)).collect::<Result<_>>()?,
            sparse: jobs.sparse.iter().map(|&n| of(n, 10)).collect::<Result<_>>()?,
        })
    }

    pub(super) fn measure(
        &self,
        open: Open<'_>,
        copy: f64,
        first: bool,
        watch: Watch<'_>,
    ) -> Result<Vec<Value>> {
        let machine = open(1)?;
        let cpu = machine.lanes[0].device().host;
        let mut lines = Vec::new();
        let of = |figure: &'static str, records: Vec<Record>| {
            records.into_iter().map(move |record| line(record, copy, json!({ "figure": figure })))
        };
        if machine.lanes[0].device().f64 {
            for seed in &self.seeds {
                watch(&format!("Table II of 2012: {}", seed.chain.name))?;
                lines.extend(table_ii(seed, &machine, copy)?);
            }
        }
        if first {
            watch("Fig. 2 of 2015")?;
            let (_, exponents) = self.jobs.accuracy;
            let Known { system, x } = &self.accuracy;
            let records =
                accuracy(&machine, system, x, exponents, &[ControlVariate::Jacobi], Some(&ACCURACY))?;
            lines.extend(of(FIGURE_2, records));
        }
        watch("Figs. 3 to 5 of 2015")?;
        let (components, chains, length) = self.jobs.sharing;
        let what = Sharing { components, chains, length, only: Some(&SHARING) };
        for (figure, systems) in [(FIGURE_3, &self.dense), (FIGURE_4, &self.sparse)] {
            for Known { system, x } in systems {
                lines.extend(of(figure, sharing(&machine, system, x, what, self.jobs.repeat.min(3))?));
            }
        }
        for Known { system, x } in &self.sparse {
            let what = Rate::of_sobol(self.jobs.chains);
            lines.extend(of(FIGURE_5, vec![rate(&machine, system, x, what, self.jobs.repeat.min(3))?]));
        }
        drop(machine);
        // Lanes of a CPU share its threads and memory: there is nothing to overlap.
        if !cpu {
            watch("the tables of 2024")?;
            let machine = open(LANE_COUNTS[LANE_COUNTS.len() - 1])?;
            lines.extend(self.streams(&machine, copy, watch)?);
        }
        Ok(lines)
    }

    fn streams(&self, machine: &Machine, copy: f64, watch: Watch<'_>) -> Result<Vec<Value>> {
        let largest =
            largest_system(&machine.lanes[0], machine.precision, self.jobs.rows.last().copied().unwrap_or(0));
        let sizes: Vec<usize> = self.jobs.rows.iter().copied().filter(|&n| n <= largest).collect();
        let effort = Effort { least: self.jobs.repeat, most: 21, seconds: 0.3 };
        // Stages on one lane; then whole solutions of a system, for its residual.
        let mut measured =
            lane_times(&[machine.first(1)], &sizes, effort, &mut |n| watch(&format!("{n} rows")))?;
        let mut residuals = Vec::new();
        for size in &mut measured {
            watch(&format!("{} rows on lanes", size.n))?;
            let (_, system) = bands(&format!("random:{}", size.n))?;
            let counts = LANE_COUNTS.iter().filter(|&&count| count <= machine.lanes.len());
            let sets: Vec<Machine> = counts.map(|&count| machine.first(count)).collect();
            let HostTimes { runs, residual, .. } = system_lane_times(&sets, &system, false, effort)?;
            size.runs = runs;
            residuals.push(residual);
        }
        let cost = measured.first().map_or(0.0, |size| size.lane_cost());
        let device = machine.lanes[0].device();
        let mut lines = Vec::new();
        for (size, residual) in measured.iter().zip(residuals) {
            for run in &size.runs {
                let seconds = Spread::from(run);
                let case = format!("{} rows, host to host, {} lanes", size.n, run.lanes);
                let record = Record {
                    lanes: run.lanes,
                    repetitions: self.jobs.repeat,
                    ..Record::tridiagonal(case, device, machine.precision, (size.n, 1, 1), seconds, residual)
                };
                let hidden = (run.lanes - 1) as f64 / run.lanes as f64 * size.stages.sum();
                let more = json!({
                    "figure": STREAMS,
                    "resident": false,
                    "rows_per_s": size.n as f64 / seconds.median,
                    "stages_ms": size.stages,
                    "sum_ms": size.stages.sum(),
                    "overhead_ms": run.median - size.one_lane() + hidden,
                    "lane_cost_ms": cost,
                    "gomez_luna": gomez_luna(size.stages.sum(), cost),
                    "lanes_best": size.best().lanes,
                });
                lines.push(line(record, copy, more));
            }
        }
        Ok(lines)
    }
}

/// Measures Algorithm 1 and kolmo's uniformization run on one device.
fn table_ii(seed: &Seed, machine: &Machine, copy: f64) -> Result<Vec<Value>> {
    let machine = &Machine::new(&machine.lanes[..], Precision::F64);
    let row = Row::new(machine, seed.chain.name.clone(), seed.k, &*seed.chain.transitions)?;
    let wanted = Wanted { times: &[TIME], epsilon: EPSILON, theta: 100.0, seconds: 2.0 };
    let first = if machine.lanes[0].device().host { Column::Cpu } else { Column::OneSubdivided };
    let mut lines = Vec::new();
    for column in [first, Column::One] {
        let mut error = f64::NAN;
        let mut distance = |time: usize, p: &[f64]| {
            error = p.iter().zip(&seed.reference[time]).map(|(a, b)| (a - b).abs()).sum();
            Ok(())
        };
        let cells = row.measure(machine, column, &wanted, &mut (&mut (), &mut distance))?;
        lines.extend(cells.iter().map(|cell| of_cell(cell, seed.k, error, copy)));
    }
    Ok(lines)
}

fn of_cell(cell: &Cell, k: usize, error: f64, copy: f64) -> Value {
    let bytes = cell.products * (12 * cell.nnz + 32 * cell.n as u64);
    let (method, format) =
        if cell.column == Column::One { ("one sweep", "smallest") } else { ("Algorithm 1", "hyb") };
    let record = Record {
        bench: "seed-table",
        case: format!("{} t={}, {method}", cell.case, cell.t),
        device: cell.device.clone(),
        backend: cell.backend,
        precision: cell.precision.clone(),
        n: cell.n,
        nnz: cell.nnz,
        format: format.to_owned(),
        lanes: cell.lanes,
        seconds: Spread { min: cell.seconds, median: cell.seconds },
        relative_error: error,
        repetitions: 1,
        terms: Some(cell.products),
        ..Record::default()
    };
    let more = json!({
        "figure": TABLE_II,
        "k": k,
        "column": cell.column,
        "timed": cell.timed,
        "alpha_t": cell.alpha_t,
        "device_bytes": cell.device_bytes,
    });
    line(record.moving(bytes, bytes), copy, more)
}
