//! Report of `kolmo transient`.

use serde_json::{Value, json};

use super::{DeviceReport, RankMemory, RunReport, bytes, counted, grouped, number, seconds};
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{Expanded, Expansion, LaneExchange, Solution, Status, Stopped, TimeResult};

pub(crate) struct TransientReport<'a> {
    pub(crate) model: &'a str,
    /// Requested bound.
    pub(crate) epsilon: f64,
    pub(crate) devices: Vec<DeviceReport>,
    /// True if the CPU was chosen because it finishes before a GPU would have started.
    pub(crate) small: bool,
    /// Memory of each rank.
    pub(crate) memory: Vec<RankMemory>,
    pub(crate) solution: &'a Solution,
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    /// Selected values at each time: labels or states.
    pub(crate) values: Option<Vec<Value>>,
}

impl TransientReport<'_> {
    fn per_time(&self, place: usize) -> Value {
        let t = &self.solution.times[place];
        let mut value = json!(t);
        value["deficit"] = t.mass.map_or(Value::Null, |m| json!(1.0 - m));
        if let Some(values) = &self.values {
            value["values"] = values[place].clone();
        }
        value
    }

    /// Further lines of the detailed summary.
    fn details(&self) -> String {
        let s = self.solution;
        let mut out = super::device_lines(&self.devices);
        let (parts, halo) = (s.matrix.parts, grouped(s.matrix.halo));
        let parts = if parts > 1 { format!(", {parts} parts, halo {halo}") } else { String::new() };
        let (format, width, coo) = (&s.matrix.format, s.matrix.ell_width, 100.0 * s.matrix.coo_share);
        let held = bytes(s.device_bytes);
        if !format.starts_with("none") {
            out += &format!(
                "matrix   {format}, width {width}, {coo:.1} % in the COO part, {held} on the device{parts}\n"
            );
        }
        for why in &s.matrix.passed_over {
            out += &format!("         not {why}\n");
        }
        for lane in &s.matrix.plan {
            let [rows, entries, halo] = [lane.rows as u64, lane.entries, lane.halo as u64].map(grouped);
            let many = lane.communication_share > 0.25;
            out += &format!(
                "plan     {}  {rows} rows, {entries} entries off the diagonal, {:.1} % of them local, halo {halo}, {:.0} % of \
                 a step communication{}\n",
                lane.device,
                100.0 * lane.local_share,
                100.0 * lane.communication_share,
                if many { " (above 25 %: fewer lanes may be faster)" } else { "" }
            );
        }
        for rank in self.memory.iter().filter(|_| self.memory.len() > 1) {
            let process = rank.process_bytes.map_or(String::new(), |b| format!(", {} the process", bytes(b)));
            let (rank, held) = (rank.rank, bytes(rank.device_bytes));
            out += &format!("memory   rank {rank}: {held} on its devices{process}\n");
        }
        out += &self.exchange();
        out += &self.windows();
        out
    }

    /// Lines on the uniformization rate and the window of each time.
    fn windows(&self) -> String {
        let s = self.solution;
        let eliminated = |n| format!(", {n} states eliminated for the steady state");
        let eliminated = super::if_any(s.eliminated as u64, eliminated);
        let mut out = format!("rate     alpha = {}{eliminated}\n", number(s.alpha));
        for t in worst(&s.times) {
            let mass = t.mass.map_or(String::new(), |m| format!(", mass {m}, deficit {:.1e}", 1.0 - m));
            let alpha_t = match t.alpha_t {
                // Plain decimals within this range.
                x if (1e-3..1e9).contains(&x) => format!("{x:.6}"),
                x => number(x),
            };
            let (time, (first, last), bound) = (number(t.time), t.window, super::parts(&t.bound));
            let summed = s.matrix.format != "none";
            let terms = if summed { format!(", terms {first} to {last}") } else { String::new() };
            out += &format!("t = {time}   alpha t = {alpha_t}{terms}{mass}\n         bound {bound}\n");
            if let Some(stopped) = t.stopped {
                out += &format!("         {}\n", stop(stopped));
            }
        }
        out
    }

    /// Line on the exchange between devices; empty without one.
    fn exchange(&self) -> String {
        let every = match self.solution.matrix.halo_depth {
            0 | 1 => "after every step".to_owned(),
            halo_depth => format!("every {halo_depth} steps, rows of neighbours computed between"),
        };
        match self.solution.matrix.exchange {
            LaneExchange::None => String::new(),
            LaneExchange::Peer => format!("exchange stored into each other's memory, {every}\n"),
            LaneExchange::Host => {
                let unreached = self.devices.iter().all(|d| d.backend == "cuda");
                let why = if unreached { ", as these devices do not reach each other's memory" } else { "" };
                format!("exchange through the host{why}, {every}\n")
            }
        }
    }

    /// Reason why the bound is not met, with a suggestion.
    fn reason(&self) -> String {
        if let Some(time) = self.solution.times.iter().find(|time| time.contradiction.is_some()) {
            let (t, what) = (number(time.time), time.contradiction.as_deref().unwrap_or_default());
            return format!(
                "at time {t} {what}, which contradicts the bound {:.1e}; use another --device, and please report this",
                time.bound.total()
            );
        }
        let worst = self.solution.times.iter().max_by(|a, b| a.bound.total().total_cmp(&b.bound.total()));
        if let Some(limit) = worst.filter(|time| time.time.is_infinite()) {
            let bound = limit.bound.total();
            return format!(
                "the solver shows {bound:.1e} for the limit; use a larger --epsilon or finite times"
            );
        }
        let b = self.solution.bound;
        let f32 = self.devices.iter().any(|d| d.precision == "f32");
        if b.rounding > 0.5 * self.epsilon {
            let remedy =
                if f32 { "use --precision f64 or a larger --epsilon" } else { "use a larger --epsilon" };
            format!("rounding alone is bounded by {:.1e}; {remedy}", b.rounding)
        } else if b.steady_state > 0.5 * self.epsilon {
            format!(
                "the error of early termination is bounded by {:.1e}; use a larger --epsilon",
                b.steady_state
            )
        } else {
            "use a larger --epsilon".to_owned()
        }
    }
}

impl RunReport for TransientReport<'_> {
    fn json(&self) -> Value {
        let s = self.solution;
        json!({
            "command": "transient",
            "model": self.model,
            "status": s.status,
            "epsilon": self.epsilon,
            "bound": s.bound,
            "devices": self.devices,
            "seconds": s.seconds,
            "n": s.n,
            "nnz": s.nnz,
            "alpha": s.alpha,
            "times": s.times.iter().map(|t| t.time).collect::<Vec<_>>(),
            "terms": s.terms,
            "expansion": s.expansion,
            "eliminated": s.eliminated,
            "window": s.times.iter().map(|t| t.window).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            "format": s.matrix.format,
            "passed_over": s.matrix.passed_over,
            "ell_width": s.matrix.ell_width,
            "coo_share": s.matrix.coo_share,
            "padding": s.matrix.padding,
            "matrix_bytes": s.matrix.bytes,
            "device_bytes": s.device_bytes,
            "memory": self.memory,
            "halo": s.matrix.halo,
            "parts": s.matrix.parts,
            "plan": s.matrix.plan,
            "exchange": s.matrix.exchange,
            "halo_depth": s.matrix.halo_depth,
            "per_time": (0..s.times.len()).map(|i| self.per_time(i)).collect::<Vec<_>>(),
            "checkpoint": self.checkpoint.map(|c| json!({
                "file": c.path(),
                "written": c.written(),
                "seconds": c.seconds(),
                "resumed": c.resumed(),
                "note": c.note(),
            })),
        })
    }

    fn status(&self) -> Status {
        self.solution.status
    }

    fn text(&self, verbose: bool) -> String {
        let s = self.solution;
        let states = counted(s.n as u64, "state");
        let entries = if s.nnz == 1 { "1 entry".to_owned() } else { format!("{} entries", grouped(s.nnz)) };
        let mut out = format!("model    {}  {states}, {entries}\n", self.model);
        out += &super::device_line(&self.devices);
        if self.small && verbose {
            out += "         done before a GPU would have started; --device names another\n";
        }
        if verbose {
            out += &self.details();
        }
        if let Some(expansion) = s.expansion {
            out += &format!("method   {}\n", method(expansion));
        }
        if let Some(squarings) = s.times.iter().filter_map(|t| t.squarings).max() {
            out += &format!(
                "method   squaring: e^(Qt) by at most {squarings} squarings in double-double arithmetic\n"
            );
        }
        out += &self.bound();
        if let Some(stopped) = s.times.iter().find_map(|t| t.stopped).filter(|stopped| stopped.mu < 1.0) {
            out += &format!("\nstop     {}", stop(stopped));
        }
        let x = &s.seconds;
        let [total, load, build, solve] = [x.total, x.load, x.build, x.solve].map(seconds);
        let terms = grouped(s.terms);
        out += &format!("\ntime     {total}: load {load}, build {build}, {terms} multiplications {solve}\n");
        if let Some(c) = self.checkpoint {
            let after = |terms| format!("went on after {} multiplications, ", grouped(terms));
            let before = c.resumed().map_or_else(String::new, after);
            let (path, written, time) = (c.path().display(), c.written(), seconds(c.seconds()));
            out += &format!("kept     {path}: {before}{written} written in {time}\n");
            for note in c.note().into_iter() {
                out += &format!("         {note}\n");
            }
        }
        out
    }

    fn bound(&self) -> String {
        let missed = (self.solution.status == Status::NotMet).then(|| self.reason());
        let all = &self.solution.bound;
        let bound = match all.loss {
            0.0 => format!("error at most {:.1e} of {:e}", all.total(), self.epsilon),
            _ => format!("error of {:e} at most {}", self.epsilon, super::parts(all)),
        };
        super::bound_line(&bound, missed.as_deref())
    }
}

/// Text on the Chebyshev or Krylov method: its work, or why it was given up.
fn method(expansion: Expansion) -> String {
    let (terms, norm) = (grouped(expansion.terms), expansion.norm);
    match (expansion.method, expansion.given_up) {
        (Expanded::Krylov, 0) => {
            format!("krylov: {} spaces in {terms} multiplications", grouped(expansion.restarts))
        }
        (Expanded::Krylov, count) => format!(
            "krylov gave up {count} of the times in {terms} multiplications, because rounding is too large \
             or uniformization needs no more products; uniformization computed them (--strict says why)"
        ),
        (_, 0) => format!("chebyshev: norms of at most {norm:.2e} in {terms} multiplications"),
        (_, count) => format!(
            "chebyshev gave up {count} of the times in {terms} multiplications, as norms grew to {norm:.1e}: the chain is far \
             from reversible; uniformization computed them"
        ),
    }
}

/// Text on early termination: steady or quasi-stationary, and the decay rate per step.
fn stop(stopped: Stopped) -> String {
    let step = grouped(stopped.step);
    match 1.0 - stopped.mu {
        0.0 => format!("steady state from step {step} on"),
        leak => format!("quasi-stationary from step {step} on; decay rate {leak:.3e} per step"),
    }
}

/// Returns all times if there are at most four, else the one with the largest bound.
fn worst(times: &[TimeResult]) -> Vec<&TimeResult> {
    if times.len() <= 4 {
        return times.iter().collect();
    }
    times.iter().max_by(|a, b| a.bound.total().total_cmp(&b.bound.total())).into_iter().collect()
}
