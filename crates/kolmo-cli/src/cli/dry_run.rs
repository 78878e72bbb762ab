//! `--dry-run` of `kolmo walk` and `kolmo tridiagonal`: what it would take, by a pilot.

use serde_json::json;

use super::{Outcome, say, write_report};
use crate::report::{bytes, devices, devices_of, grouped, seconds};
use kolmo::Machine;
use kolmo::lane::{Lane, available_memory};
use kolmo::output::OutputFile;
use kolmo::tridiagonal::{Residual, Rows, Span, System};
use kolmo::walk::{Count, Options, Problem, solve};
use kolmo::{Error, Result, tridiagonal};

/// Components of a pilot, and chains of each replicate.
const COMPONENTS: usize = 16;
const CHAINS: u64 = 256;

/// Rows of a pilot.
const ROWS: usize = 1 << 20;

/// The memory that a lane is to hold, and that it has.
#[derive(Clone)]
struct Room {
    device: String,
    needed: u64,
    free: Option<u64>,
}

impl Room {
    fn line(&self, what: &str) -> String {
        let there = match self.free {
            Some(free) if free < self.needed => format!("{} free: does NOT fit", bytes(free)),
            Some(free) => format!("{} free", bytes(free)),
            None => "what is free is not known".to_owned(),
        };
        format!("memory   {}  {what} {}; {there}", self.device, bytes(self.needed))
    }

    fn expect(&self, what: &str) -> Result<()> {
        match self.free {
            Some(free) if free < self.needed => Err(Error::OutOfMemory {
                device: self.device.clone(),
                what: what.to_owned(),
                asked: self.needed,
                limit: format!(
                    "{} are free; use --precision f32 where that is enough{}",
                    bytes(free),
                    if self.device.starts_with("cpu ") { "" } else { ", or --device cpu" }
                ),
            }),
            _ => Ok(()),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({ "device": self.device, "needed": self.needed, "free": self.free })
    }
}

fn name(lane: &Lane) -> String {
    format!("{} {}", lane.device().spec, lane.device().name)
}

/// Prepares the walks, walks a few chains of a few components, and says what the rest would take.
pub(super) fn walk(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    system: &str,
    load: f64,
    report: Option<OutputFile>,
) -> Result<Outcome> {
    let free: Vec<Option<u64>> = machine.lanes.iter().map(Lane::free_bytes).collect();
    let few = &problem.components[..problem.components.len().min(COMPONENTS)];
    let asked = problem.components.len() + problem.functionals.len();
    let functionals = &problem.functionals[..problem.functionals.len().min(COMPONENTS)];
    let pilot = Problem { components: few, functionals, ..*problem };
    let piloted = few.len() + functionals.len();
    let chains = CHAINS * u64::from(options.replicates.max(1));
    // A number of chains that is given says that walks are wanted, whatever else would do.
    let walked = match options.chains {
        Count::Grow => Options { max_chains: chains, ..options.clone() },
        _ => Options { chains: Count::Number(chains), ..options.clone() },
    };
    let solution = solve(machine, &pilot, &walked, &mut |_, _| super::interrupt::check())?;
    let rate = solution.steps as f64 / solution.seconds.solve.max(1e-9);
    let answers = || solution.components.iter().chain(&solution.functionals);
    let length = answers().map(|c| c.length).max().unwrap_or(0);
    // Chains that a component needs, should its interval shrink with their root, as pseudo-random ones do.
    let needed = |c: &kolmo::walk::Component| {
        let left = c.epsilon - c.bound.truncation - c.bound.rounding;
        match left > 0.0 {
            true => (c.chains as f64 * (c.bound.statistical / left).powi(2)).max(c.chains as f64),
            false => f64::INFINITY,
        }
    };
    let worst = match options.chains {
        Count::Number(n) => n as f64,
        _ => answers().map(needed).fold(chains as f64, f64::max),
    };
    let capped = worst.min(options.max_chains.max(chains) as f64);
    let all = asked as f64 * problem.rhs.len() as f64;
    let walks = if length > 0 { capped * f64::from(length) * all / rate } else { 0.0 };
    let prepare = solution.seconds.build + solution.seconds.certificate + solution.seconds.upload;
    let rooms: Vec<Room> = machine
        .lanes
        .iter()
        .zip(free)
        .map(|(lane, free)| Room { device: name(lane), needed: lane.peak_bytes(), free })
        .collect();
    let host = (12 * problem.matrix.nnz() + 8 * 8 * problem.matrix.rows()) as u64 + solution.table_bytes;
    let host = Room { device: "the host".to_owned(), needed: host, free: Some(available_memory()) };
    if report.is_some() {
        let object = json!({
            "command": "walk",
            "version": env!("CARGO_PKG_VERSION"),
            "dry_run": true,
            "model": system,
            "devices": devices(machine),
            "n": solution.n,
            "nnz": solution.nnz,
            "norm": solution.norm,
            "epsilon": solution.epsilon,
            "components": asked,
            "chains": capped,
            "length": length,
            "steps_per_s": rate,
            "pilot": {"components": piloted, "chains": chains, "half_width": solution.bound.total()},
            "memory": rooms.iter().map(Room::json).collect::<Vec<_>>(),
            "host": host.json(),
            "seconds": {"load": load, "prepare": prepare, "walks": walks, "total": load + prepare + walks},
        });
        write_report(report, [format_args!("{object:#}")])?;
    }
    say(format_args!(
        "system   {system}  {} unknowns, {} entries, norm {:.6}, {}",
        grouped(solution.n as u64),
        grouped(solution.nnz as u64),
        solution.norm,
        machine.precision
    ));
    for room in &rooms {
        say(room.line(&format!("chain table {} and sums", bytes(solution.table_bytes))));
    }
    say(host.line("matrix, vectors and table"));
    say(format_args!(
        "pilot    {} of the components, {} chains each: half-width {:.1e}, {:.1} million steps/s",
        piloted,
        grouped(chains),
        solution.bound.total(),
        1e-6 * rate
    ));
    if solution.krylov > 0 {
        let products = grouped(solution.krylov as u64);
        say(format_args!(
            "control  {products} products of BiCGSTAB, after which walks have {length} steps at most"
        ));
    }
    let limit = if worst > capped { ", where --max-chains ends; the half-width will not be met" } else { "" };
    say(format_args!(
        "chains   at most about {} a component of at most {} steps for {:.1e}{limit}",
        grouped(capped as u64),
        grouped(u64::from(length)),
        solution.epsilon
    ));
    say(format_args!(
        "time     load {}, prepare {}, walks at most about {}",
        seconds(load),
        seconds(prepare),
        seconds(walks)
    ));
    let steps = walks * rate;
    super::faster::note(options, walks, steps, problem.matrix.nnz()).into_iter().for_each(say);
    Ok(Outcome::Met)
}

/// Solves the first rows, on ranks each its own, and says what all of them would take.
pub(super) fn tridiagonal(
    machine: &Machine,
    rows: &Rows,
    options: &tridiagonal::Options,
    name_: &str,
    load: f64,
    report: Option<OutputFile>,
) -> Result<Outcome> {
    let Span { n, batch, ranks, .. } = rows.span;
    let pilot = ranks.all_ok(pilot(machine, rows, options))?;
    let solve = ranks.all_reduce_max(pilot.solve);
    let of = |text: &str| {
        if ranks.is_distributed() { format!("rank {}, {text}", ranks.rank()) } else { text.to_owned() }
    };
    let [lines, objects] = {
        let line =
            |room: &Room, what: &str| Room { device: of(&room.device), ..room.clone() }.line(what) + "\n";
        let mut lines: String =
            pilot.rooms.iter().map(|room| line(room, "system, unknowns and interface")).collect();
        lines += &line(&pilot.host, "unknowns, beside the system, and what the lanes are sent from");
        let object = json!({
            "memory": pilot.rooms.iter().map(Room::json).collect::<Vec<_>>(),
            "host": pilot.host.json(),
            "pilot": {"rows": pilot.rows, "seconds": pilot.seconds, "residual": pilot.residual},
        });
        [lines, object.to_string()].map(|text| ranks.all_gather_text(&text))
    };
    let told = devices_of(machine);
    let all = ranks.all_reduce_sum(machine.lanes.len() as u64);
    if report.is_some() {
        let mut object = json!({
            "command": "tridiagonal",
            "version": env!("CARGO_PKG_VERSION"),
            "dry_run": true,
            "model": name_,
            "devices": told,
            "n": n,
            "batch": batch,
            "lanes": all,
            "ranks": ranks.size(),
            "seconds": {"load": load, "solve": solve, "total": load + solve},
        });
        let of_rank = |text: &String| serde_json::from_str(text).expect("a rank's report is read back");
        let each: Vec<serde_json::Value> = objects.iter().map(of_rank).collect();
        // One process says it of itself.
        match &each[..] {
            [serde_json::Value::Object(own)] => own.iter().for_each(|(k, v)| object[k] = v.clone()),
            _ => object["each"] = each.into(),
        }
        write_report(report, [format_args!("{object:#}")])?;
    }
    if ranks.is_root() {
        say(format_args!(
            "system   {name_}  {} rows in {batch} of {}, right-hand sides: {}, {}",
            grouped(rows.span.all() as u64),
            grouped(n as u64),
            rows.b.len(),
            machine.precision
        ));
        say(lines.concat().trim_end());
        say(format_args!(
            "pilot    the first {} rows: {}, residual {:.1e}",
            grouped(pilot.rows as u64),
            seconds(pilot.seconds),
            pilot.residual.normwise
        ));
        say(format_args!("time     load {}, solve about {}", seconds(load), seconds(solve)));
    }
    let fits = || pilot.rooms.iter().try_for_each(|room| room.expect(&format!("{} rows", rows.span.rows)));
    ranks.all_ok(fits()).map(|()| Outcome::Met)
}

/// A solution of some rows, and what it says of all that are here.
struct Pilot {
    rows: usize,
    /// Seconds of its solution, and of all rows.
    seconds: f64,
    solve: f64,
    residual: Residual,
    rooms: Vec<Room>,
    host: Room,
}

fn pilot(machine: &Machine, rows: &Rows, options: &tridiagonal::Options) -> Result<Pilot> {
    let all = rows.span.rows;
    let free: Vec<Option<u64>> = machine.lanes.iter().map(Lane::free_bytes).collect();
    let few = all.min(ROWS);
    // The system is there already; to come are x, and what the lanes are sent from and to.
    let host = all as u64 * (8 * rows.b.len() as u64 + 5 * machine.precision.bytes());
    let host = Room { device: "the host".to_owned(), needed: host, free: Some(available_memory()) };
    if few == 0 {
        let (residual, rooms) = (Residual::default(), Vec::new());
        return Ok(Pilot { rows: 0, seconds: 0.0, solve: 0.0, residual, rooms, host });
    }
    let first = |values: &[f64]| values[..few].to_vec();
    let b: Vec<Vec<f64>> = rows.b.iter().map(|b| first(b)).collect();
    let [dl, d, du] = [&rows.dl, &rows.d, &rows.du].map(|own| first(own));
    let pilot = System { n: few, batch: 1, cyclic: false, dl, d, du, b };
    // The first solution allocates; the second is what counts.
    tridiagonal::solve(machine, &pilot, options)?;
    super::interrupt::check()?;
    let peak: Vec<u64> = machine.lanes.iter().map(Lane::peak_bytes).collect();
    let solution = tridiagonal::solve(machine, &pilot, options)?;
    let share = all as f64 / few as f64;
    let room = |((lane, free), peak): ((&Lane, Option<u64>), u64)| Room {
        device: name(lane),
        needed: (peak as f64 * share) as u64,
        free,
    };
    Ok(Pilot {
        rows: few,
        seconds: solution.solve_seconds,
        solve: solution.solve_seconds * share,
        residual: solution.residual,
        rooms: machine.lanes.iter().zip(free).zip(peak).map(room).collect(),
        host,
    })
}
