//! Report of `kolmo tridiagonal`.

use serde_json::{Value, json};

use super::{DeviceReport, RunReport, bytes, counted, grouped, seconds};
use kolmo::tridiagonal::{Method, Residual, RowSpan, Solution, Status};

pub(crate) struct TridiagonalReport<'a> {
    pub(crate) name: &'a str,
    /// Size of the systems, and the rows of this rank.
    pub(crate) span: RowSpan,
    /// Number of right-hand sides.
    pub(crate) rhs: usize,
    /// Requested relative residual.
    pub(crate) tolerance: f64,
    pub(crate) devices: Vec<DeviceReport>,
    /// Number of lanes, over all ranks.
    pub(crate) lanes: usize,
    /// Number of lanes per device that `--lanes auto` predicted; `None` if not used.
    pub(crate) lanes_predicted: Option<usize>,
    pub(crate) solution: &'a Solution,
    /// Seconds of reading or generating the system, of the solver, and of the whole run.
    pub(crate) seconds: [f64; 3],
}

impl TridiagonalReport<'_> {
    /// Further lines of the detailed summary.
    fn details(&self) -> String {
        let s = self.solution;
        let mut out = super::device_lines(&self.devices);
        let method = match s.method {
            Method::OnePass => "one pass over the rows, certified, no pivoting",
            Method::Partition => "partition method, no pivoting",
            Method::Pivoted => "partition method, scaled partial pivoting",
            Method::Host => "elimination with partial pivoting on the host",
        };
        let dominant = if s.dominant { "every row is dominant" } else { "not every row is dominant" };
        let (small, steps) = (s.small_pivots, s.refinements.into());
        let small = if small > 0 { format!(", {small} small pivots") } else { String::new() };
        let corrections = super::if_any(steps, |_| format!(", {}", counted(steps, "correction")));
        let memory = match s.device_bytes {
            0 => "no row was copied".to_owned(),
            held => format!("{} on the device", bytes(held)),
        };
        out += &format!("method   {method}{corrections}; {dominant}{small}; {memory}\n");
        out += &format!(
            "residual {:.1e} normwise, {:.1e} componentwise; largest |x| / largest |b| {:.1e}\n",
            s.residual.normwise, s.residual.componentwise, s.growth
        );
        out
    }

    /// Reason why the residual is not met, with a suggestion.
    fn reason(&self) -> String {
        let (s, span) = (self.solution, &self.span);
        if let Some((number, row)) = s.singular {
            let of = if span.batch > 1 { format!(" of system {number}") } else { String::new() };
            let whose = if span.batch > 1 { "unknowns of singular systems" } else { "its unknowns" };
            return format!(
                "the matrix is singular to working precision, which elimination with pivoting shows in row {row}{of}; \
                 {whose} are written as NaN"
            );
        }
        if s.unproved {
            let known = match s.residual.within(self.tolerance) {
                true => "pivots were nearly 0, so singularity is undetermined; ",
                false => "",
            };
            return format!(
                "{known}elimination with pivoting needs all rows on rank 0, whose host lacks the memory: \
                 start rank 0 on a larger host"
            );
        }
        let remedy = match s.method {
            _ if s.growth.is_infinite() => {
                "an unknown is larger than 1.8e308, the largest double: divide the right-hand side by a power of two"
            }
            _ if s.residual.underflows() => {
                "unknowns are smaller than 2.2e-308, where doubles have fewer digits: multiply the right-hand side by a \
                 power of two"
            }
            Method::Host => {
                "the matrix is not singular to working precision, but elimination with pivoting reaches no less: it is \
                 nearly singular, or its elements differ by too many orders of magnitude; use a larger --tolerance \
                 where only the residual in norms is missed, or other units for rows and unknowns"
            }
            _ => "use --pivot auto or scaled, more --refine, or a larger --tolerance",
        };
        remedy.to_owned()
    }
}

impl RunReport for TridiagonalReport<'_> {
    fn json(&self) -> Value {
        let s = self.solution;
        let [load, solve, total] = self.seconds;
        json!({
            "command": "tridiagonal",
            "system": self.name,
            "status": s.status,
            "tolerance": self.tolerance,
            "bound": { "residual": s.residual.normwise },
            "devices": self.devices,
            "seconds": {
                "load": load,
                "build": 0.0,
                "upload": 0.0,
                "solve": solve,
                "download": 0.0,
                "total": total,
            },
            "n": self.span.n,
            "batch": self.span.batch,
            "rhs": self.rhs,
            "cyclic": self.span.cyclic,
            "block": s.block,
            "ranks": self.span.ranks.size(),
            "lanes": self.lanes,
            "lanes_predicted": self.lanes_predicted,
            "chunks": s.chunks,
            "residual": s.residual.normwise,
            "componentwise": s.residual.componentwise,
            "componentwise_tolerance": Residual::componentwise_limit(self.tolerance),
            "growth": s.growth,
            "method": s.method,
            "dominant": s.dominant,
            "small_pivots": s.small_pivots,
            "unproved": s.unproved,
            "singular": s.singular.map(|(system, row)| json!({ "system": system, "row": row })),
            "refinements": s.refinements,
            "device_bytes": s.device_bytes,
            "stages": s.stages,
        })
    }

    fn status(&self) -> Status {
        self.solution.status
    }

    fn text(&self, verbose: bool) -> String {
        let (s, span) = (self.solution, &self.span);
        let many = |count: usize, what: &str| match count {
            1 => String::new(),
            count => format!(", {} {what}", grouped(count as u64)),
        };
        let mut out = format!(
            "system   {}  {} rows{}{}{}\n",
            self.name,
            grouped(span.n as u64),
            many(span.batch, "systems"),
            many(self.rhs, "right-hand sides"),
            if span.cyclic { ", cyclic" } else { "" }
        );
        out += &super::device_line(&self.devices);
        if verbose {
            out += &self.details();
        }
        out += &self.bound();
        let nanoseconds = 1e9 / ((span.all() * self.rhs) as f64 / s.solve_seconds);
        let [load, solve, total] = [self.seconds[0], s.solve_seconds, self.seconds[2]].map(seconds);
        out += &format!("\ntime     {total}: load {load}, solve {solve} ({nanoseconds:.3} ns a row)\n");
        out
    }

    fn bound(&self) -> String {
        let s = self.solution;
        let missed = (s.status == Status::NotMet).then(|| self.reason());
        let Residual { normwise, componentwise } = s.residual;
        let bound = match normwise <= self.tolerance && missed.is_some() {
            true => format!(
                "residual row by row {componentwise:.1e} of at most {:e}",
                Residual::componentwise_limit(self.tolerance)
            ),
            false => format!("residual {normwise:.1e} of at most {:e}", self.tolerance),
        };
        super::bound_line(&bound, missed.as_deref())
    }
}
