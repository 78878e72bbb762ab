//! Jobs of the three solvers, and transfers.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Known, Open, Part, Whole, Work, line};
use crate::{HostTimes, Record, Spread};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::Options;
use kolmo::tridiagonal::lane_count::LaneTime;
use kolmo::tridiagonal::lane_count::measure::Effort;
use kolmo::{Machine, Result};

/// Numbers of lanes for tridiagonal systems and transfers.
const LANES: [usize; 4] = [1, 2, 4, 8];

impl Work {
    pub(super) fn engine(&self, part: Part, open: Open<'_>, copy: f64) -> Result<Vec<Value>> {
        match part {
            Part::Step => self.steps(open, copy),
            Part::Transient => self.wholes(open, copy),
            Part::Walk => self.walks(open, copy),
            Part::Tridiagonal => self.bands(open, copy),
            Part::Transfer => self.transfers(open),
        }
    }

    fn steps(&self, open: Open<'_>, copy: f64) -> Result<Vec<Value>> {
        let Some(model) = &self.step else { return Ok(Vec::new()) };
        let machine = open(1)?;
        let mut lines = Vec::new();
        for format in [MatrixFormat::Hyb, MatrixFormat::Auto] {
            let options = Options::default().format(format);
            let records =
                crate::spmv(&machine, &model.name, &*model.transitions, &options, self.jobs.repeat, copy)?;
            for mut record in records {
                let rule = if format == MatrixFormat::Hyb { "hyb" } else { "smallest format" };
                // A multiplication and an addition per entry; per row the scaling and, with an
                // accumulator, its update.
                let (with, per_row) =
                    if record.accumulate == Some(true) { ("with", 4) } else { ("without", 2) };
                record.case = format!("{}, {rule}, {with} accumulator", model.name);
                let flops = 2 * record.nnz + per_row * record.n as u64;
                lines.push(line(record, copy, json!({ "flops": flops })));
            }
        }
        Ok(lines)
    }

    fn wholes(&self, open: Open<'_>, copy: f64) -> Result<Vec<Value>> {
        let machine = open(1)?;
        let mut lines = Vec::new();
        for whole in &self.whole {
            let Whole { chain, time, reference } = whole;
            let case = crate::Case { name: &chain.name, chain, time: *time, reference };
            let options = Options::default().epsilon(1e-6);
            let repeat = self.jobs.repeat.min(3);
            let record = crate::transient(&machine, &case, &options, repeat, copy)?;
            let flops = record.terms.unwrap_or(0) * (2 * record.nnz + 4 * record.n as u64);
            lines.push(line(record, copy, json!({ "flops": flops })));
        }
        Ok(lines)
    }

    fn walks(&self, open: Open<'_>, copy: f64) -> Result<Vec<Value>> {
        let Some(known) = &self.walk else { return Ok(Vec::new()) };
        let machine = open(1)?;
        let what = crate::walk::Rate::of_sobol(self.jobs.chains);
        let rate = crate::walk::rate(&machine, &known.system, &known.x, what, self.jobs.repeat)?;
        let flops = rate.steps_per_s.map(|s| 3.0 * s * rate.seconds.median);
        let interval = self.interval(known, &machine, copy)?;
        Ok(vec![line(rate, copy, json!({ "flops": flops })), interval])
    }

    /// Measures one component to its default half-width, from the matrix in host memory to the
    /// result.
    fn interval(&self, known: &Known, machine: &Machine, copy: f64) -> Result<Value> {
        use kolmo::walk::{Options, Problem, solve};
        let system = &known.system;
        let n = system.matrix.rows();
        let component = n / 2;
        let rhs = std::slice::from_ref(&system.rhs);
        let components = [component as u32];
        let problem = Problem::new(&system.matrix, rhs, &components);
        let options = Options::default();
        let mut seconds = Vec::new();
        let mut last = None;
        for _ in 0..self.jobs.repeat.min(3) {
            let from = Instant::now();
            last = Some(solve(machine, &problem, &options, &mut ())?);
            seconds.push(from.elapsed().as_secs_f64());
        }
        let Some(solution) = last else { unreachable!("at least one repetition") };
        let c = &solution.components[0];
        let exact = known.x[component];
        let spread = Spread::of(seconds);
        let case = format!("{}, one component to {:.1e}", system.name, solution.epsilon);
        let record = Record {
            relative_error: (c.estimate - exact).abs() / exact.abs(),
            repetitions: self.jobs.repeat.min(3),
            more: None,
            ..crate::walk::record(machine, system, case, spread, Value::Null)
        };
        let more = json!({
            "chains": c.chains, "length": c.length, "half_width": c.half_width, "epsilon": solution.epsilon,
            "phases": solution.seconds,
        });
        Ok(line(record, copy, more))
    }

    fn bands(&self, open: Open<'_>, copy: f64) -> Result<Vec<Value>> {
        let Some((name, system)) = &self.tridiagonal else { return Ok(Vec::new()) };
        let machine = open_most(open)?;
        let device = machine.lanes[0].device();
        let counts = &LANES[..machine.lanes.len().ilog2() as usize + 1];
        let effort = Effort { least: self.jobs.repeat, most: self.jobs.repeat, seconds: 0.0 };
        let sets: Vec<Machine> = counts.iter().map(|&count| machine.first(count)).collect();
        // Rows are in the memory from which the device copies fastest.
        let HostTimes { runs, residual, .. } = crate::system_lane_times(&sets, system, false, effort)?;
        let best = runs.iter().min_by(|a, b| a.median.total_cmp(&b.median)).map_or(1, |run| run.lanes);
        let rows = system.rows();
        let record = |run: &LaneTime, case: String| {
            let (seconds, shape) = (Spread::from(run), (system.n, system.batch, 1));
            let record = Record {
                lanes: run.lanes,
                repetitions: self.jobs.repeat,
                ..Record::tridiagonal(case, device, machine.precision, shape, seconds, residual)
            };
            // Elimination along the rows takes eight operations per row.
            let more = json!({
                "rows_per_s": rows as f64 / seconds.median, "resident": false, "lanes_best": best, "flops": 8 * rows,
            });
            line(record, copy, more)
        };
        let mut lines = vec![record(&runs[0], format!("{name}, host to host, one lane"))];
        if let Some(run) = runs.iter().find(|run| run.lanes == best) {
            lines.push(record(run, format!("{name}, host to host, best of 1 to 8 lanes")));
        }
        Ok(lines)
    }

    fn transfers(&self, open: Open<'_>) -> Result<Vec<Value>> {
        let machine = open_most(open)?;
        let mut lines = Vec::new();
        for &count in LANES.iter().filter(|&&count| count <= machine.lanes.len()) {
            for &locked in crate::kinds_of_memory(&machine.lanes[0]) {
                let (bytes, repeat) = (self.jobs.transfer, self.jobs.repeat);
                for record in crate::transfer(&machine.first(count), bytes, repeat, locked)? {
                    // The received data was compared with the sent data.
                    let copy = record.copy_gb_per_s;
                    lines.push(line(record, copy, json!({ "compared": true })));
                }
            }
        }
        Ok(lines)
    }
}

/// Opens eight lanes; on a CPU one lane, since lanes would share its threads.
fn open_most(open: Open<'_>) -> Result<Machine> {
    let one = open(1)?;
    if one.lanes[0].device().host {
        return Ok(one);
    }
    drop(one);
    open(LANES[LANES.len() - 1])
}
