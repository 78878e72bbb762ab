//! Report of `kolmo walk`.

use serde_json::{Value, json};

use super::{DeviceReport, RunReport, bytes, grouped, seconds};
use kolmo::Status;
use kolmo::walk::{Component, Quantity, Solution};

pub(crate) struct WalkReport<'a> {
    pub(crate) system: &'a str,
    /// Confidence level of the intervals.
    pub(crate) confidence: f64,
    /// Value of `--time-limit` in seconds.
    pub(crate) time_limit: Option<f64>,
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) solution: &'a Solution,
}

impl WalkReport<'_> {
    /// Further lines of the detailed summary.
    fn details(&self) -> String {
        let s = self.solution;
        let mut out = super::device_lines(&self.devices);
        let certificate = match s.products {
            0 => String::new(),
            k => format!(", proved with {k} products; row {} has the sum {:.6}", s.row_norm.1, s.row_norm.0),
        };
        out += &format!("gate     {}, norm {:.6}{certificate}\n", s.splitting, s.norm);
        let length = answers(s).map(|c| c.length).max().unwrap_or(0);
        let padded = match s.tabled {
            k if k < length && s.sequence.0 != kolmo::walk::sequence::Sequence::Philox => {
                format!(", dimensions from {k} on by philox")
            }
            _ => String::new(),
        };
        let krylov = super::if_any(s.krylov as u64, |k| format!(", {k} products of BiCGSTAB"));
        let (sequence, scramble) = s.sequence;
        let (replicates, sweeps, table) = (s.replicates, s.sweeps, bytes(s.table_bytes));
        let steps = grouped(u64::from(length));
        out += &format!(
            "walks    {sequence} ({scramble}), {replicates} replicates, at most {steps} steps a chain, {sweeps} \
             sweeps{krylov}, table {table}{padded}\n"
        );
        for c in shown(s) {
            let rhs = if c.rhs > 0 { format!(" of right-hand side {}", c.rhs) } else { String::new() };
            let (symbol, chains, bound) = (symbol(c), grouped(c.chains), &c.bound);
            out += &format!(
                "{symbol}{rhs} = {:.9} ± {:.1e}   {chains} chains; statistical {:.1e} + truncation {:.1e} + rounding {:.1e}\n",
                c.estimate, c.half_width, bound.statistical, bound.truncation, bound.rounding
            );
        }
        let more = answers(s).count().saturating_sub(SHOWN);
        if more > 0 {
            out += &format!("         and {more} more, of which these have the largest half-widths\n");
        }
        out
    }

    /// Reason why the half-width is not met, with a suggestion.
    fn reason(&self) -> String {
        let (s, b) = (self.solution, self.solution.bound);
        if let Some(limit) = self.time_limit.filter(|&limit| s.seconds.total >= limit) {
            return format!("the time limit of {} has ended the work; give a larger one", seconds(limit));
        }
        let f32 = self.devices.iter().any(|d| d.precision == "f32");
        if s.replicates < 2 {
            "one replicate has no interval; give a scramble and --replicates 2 or more".to_owned()
        } else if b.truncation > 0.5 * s.epsilon {
            format!(
                "the truncation alone is bounded by {:.1e}; give a larger --length or a smaller --delta",
                b.truncation
            )
        } else if b.rounding > 0.5 * s.epsilon {
            let remedy = if f32 { "use --precision f64" } else { "use a larger --epsilon" };
            format!("rounding alone is bounded by {:.1e}; {remedy}", b.rounding)
        } else {
            "give more --chains or --max-chains, --control krylov or a larger --epsilon".to_owned()
        }
    }
}

impl RunReport for WalkReport<'_> {
    fn json(&self) -> Value {
        let s = self.solution;
        json!({
            "command": "walk",
            "model": self.system,
            "status": s.status,
            "epsilon": s.epsilon,
            "confidence": self.confidence,
            "bound": s.bound,
            "devices": self.devices,
            "seconds": s.seconds,
            "n": s.n,
            "nnz": s.nnz,
            "splitting": s.splitting.to_string(),
            "norm": s.norm,
            "row_norm": s.row_norm.0,
            "worst_row": s.row_norm.1,
            "certificate_products": s.products,
            "sweeps": s.sweeps,
            "krylov_products": s.krylov,
            "components": s.components,
            "functionals": s.functionals,
            "rounds": s.rounds,
            "chains": answers(s).map(|c| c.chains).sum::<u64>(),
            "length": answers(s).map(|c| c.length).max(),
            "steps": s.steps,
            "steps_per_s": s.steps as f64 / s.seconds.solve.max(f64::MIN_POSITIVE),
            "sequence": s.sequence.0.to_string(),
            "scramble": s.sequence.1.to_string(),
            "sequence_dimensions": s.tabled,
            "replicates": s.replicates,
            "table_bytes": s.table_bytes,
            "jacobi": s.jacobi,
            "warnings": s.warnings,
        })
    }

    fn status(&self) -> Status {
        self.solution.status
    }

    fn text(&self, verbose: bool) -> String {
        let s = self.solution;
        let (unknowns, entries) = (grouped(s.n as u64), grouped(s.nnz as u64));
        let mut out = format!("system   {}  {unknowns} unknowns, {entries} entries\n", self.system);
        out += &super::device_line(&self.devices);
        if verbose {
            out += &self.details();
        }
        out += &self.bound();
        let x = &s.seconds;
        let walks = match s.steps {
            0 => "no walk".to_owned(),
            steps => {
                let rate = steps as f64 / x.solve.max(1e-9) / 1e6;
                format!("walks {} ({rate:.1} million steps/s)", seconds(x.solve))
            }
        };
        let [total, load, build, certificate] = [x.total, x.load, x.build, x.certificate].map(seconds);
        out +=
            &format!("\ntime     {total}: load {load}, build {build}, certificate {certificate}, {walks}\n");
        if let Some(j) = s.jacobi.filter(|j| j.seconds < x.solve && x.solve > 1.0) {
            let (sweeps, jacobi, walks) = (grouped(j.sweeps as u64), seconds(j.seconds), seconds(x.solve));
            out += &format!(
                "faster   about {sweeps} Jacobi sweeps would bound the error of every component by {:.1e} in {jacobi} on \
                 this host; the walks took {walks}\n",
                s.epsilon
            );
        }
        out
    }

    fn bound(&self) -> String {
        let s = self.solution;
        let missed = (s.status == Status::NotMet).then(|| self.reason());
        // Without a statistical part the interval is proved.
        let sure = match answers(s).all(|c| c.bound.statistical == 0.0) {
            true => "proved".to_owned(),
            false => format!("{} % confidence", 100.0 * self.confidence),
        };
        let bound = format!("half-width at most {:.1e} of {:.1e}, {sure}", s.bound.total(), s.epsilon);
        super::bound_line(&bound, missed.as_deref())
    }
}

/// Maximum number of components in a summary.
const SHOWN: usize = 10;

/// Returns the components, followed by the functionals.
fn answers(solution: &Solution) -> impl Iterator<Item = &Component> {
    solution.components.iter().chain(&solution.functionals)
}

/// Name of a result: `x_7`, or `<h0, x>`.
pub(crate) fn symbol(c: &Component) -> String {
    match c.quantity {
        Quantity::Component => format!("x_{}", c.component),
        Quantity::Functional => format!("<h{}, x>", c.component),
    }
}

/// Returns all components if there are at most ten, else those with the largest half-widths.
fn shown(solution: &Solution) -> Vec<&Component> {
    let mut all: Vec<&Component> = answers(solution).collect();
    if all.len() > SHOWN {
        all.sort_by(|a, b| b.half_width.total_cmp(&a.half_width));
        all.truncate(SHOWN);
    }
    all
}
