//! The report of `kolmo tridiagonal`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{DeviceReport, bytes, grouped, seconds};
use kolmo::tridiagonal::{Method, Residual, Solution, Span, Status};

/// Seconds of a run's phases.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seconds {
    /// Reading or making the system.
    pub load: f64,
    /// From the call of the solver to its end.
    pub solve: f64,
    /// All.
    pub total: f64,
}

/// A run and its answer.
#[derive(Debug)]
pub struct Run<'a> {
    /// The system's name.
    pub name: &'a str,
    /// Which rows were solved where: the systems, and, on several ranks, the rows of this one.
    pub span: Span,
    /// Number of right-hand sides.
    pub rhs: usize,
    /// Relative residual asked for.
    pub tolerance: f64,
    /// Devices of the run.
    pub devices: Vec<DeviceReport>,
    /// Lanes of the run.
    pub lanes: usize,
    /// The number of lanes that the model of this machine chose, where it was asked.
    pub lanes_predicted: Option<usize>,
    /// The answer.
    pub solution: &'a Solution,
    /// Phases.
    pub seconds: Seconds,
}

impl Run<'_> {
    /// The JSON object of `--report`.
    pub fn json(&self) -> Value {
        let s = self.solution;
        json!({
            "command": "tridiagonal",
            "version": env!("CARGO_PKG_VERSION"),
            "system": self.name,
            "status": s.status,
            "tolerance": self.tolerance,
            "bound": { "residual": s.residual.normwise },
            "devices": self.devices,
            "seconds": {
                "load": self.seconds.load,
                "build": 0.0,
                "upload": s.stages.upload,
                "solve": self.seconds.solve,
                "download": s.stages.download,
                "total": self.seconds.total,
            },
            "n": self.span.n,
            "batch": self.span.batch,
            "rhs": self.rhs,
            "cyclic": self.span.cyclic,
            "block": s.block,
            "interface": s.interface,
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

    /// The summary for people.
    pub fn text(&self) -> String {
        let (s, span) = (self.solution, &self.span);
        let mut out = String::new();
        let many = |count: usize, what: &str| match count {
            1 => String::new(),
            count => format!("  {} {what}", grouped(count as u64)),
        };
        let _ = writeln!(
            out,
            "system   {}  n = {}{}{}{}",
            self.name,
            grouped(span.n as u64),
            many(span.batch, "systems"),
            many(self.rhs, "right-hand sides"),
            if span.cyclic { "  cyclic" } else { "" }
        );
        for d in &self.devices {
            let lanes = if d.lanes == 1 { String::new() } else { format!(", {} lanes", d.lanes) };
            let _ = writeln!(out, "device   {} {} ({}, {}{lanes})", d.spec, d.name, d.backend, d.precision);
        }
        let method = match s.method {
            Method::Partition => "partition method, no pivoting",
            Method::Pivoted => "partition method, scaled partial pivoting",
            Method::Host => "elimination with partial pivoting on the host",
        };
        let dominant = if s.dominant { "every row is dominant" } else { "not every row is dominant" };
        let small = match s.small_pivots {
            0 => String::new(),
            count => format!(", {count} small pivots"),
        };
        let corrections = match s.refinements {
            0 => String::new(),
            1 => ", 1 correction".to_owned(),
            count => format!(", {count} corrections"),
        };
        let _ = writeln!(out, "method   {method}{corrections}; {dominant}{small}");
        let _ = writeln!(
            out,
            "residual {:.1e} normwise, {:.1e} componentwise; largest |x| / largest |b| {:.1e}",
            s.residual.normwise, s.residual.componentwise, s.growth
        );
        let rate = (span.all() * self.rhs) as f64 / s.solve_seconds;
        let _ = writeln!(
            out,
            "time     load {}, solve {} ({:.3} ns a row), total {}; {} on the device",
            seconds(self.seconds.load),
            seconds(s.solve_seconds),
            1e9 / rate,
            seconds(self.seconds.total),
            bytes(s.device_bytes)
        );
        match (s.status, s.singular) {
            (Status::Met, _) => {
                let _ = writeln!(out, "status   residual {:e} met", self.tolerance);
            }
            (Status::NotMet, Some((number, row))) => {
                let of = if span.batch > 1 { format!(" of system {number}") } else { String::new() };
                let whose = if span.batch > 1 { "unknowns of singular systems" } else { "its unknowns" };
                let _ = writeln!(
                    out,
                    "status   the matrix is singular: elimination with pivoting meets a pivot of 0 in row {row}{of}; \
                     {whose} are written as NaN"
                );
            }
            (Status::NotMet, None) if s.unproved => {
                let _ = writeln!(
                    out,
                    "status   {}; what is left, elimination with pivoting, takes all rows at rank 0, whose host lacks the \
                     memory: start rank 0 where there is more",
                    match s.residual.within(self.tolerance) {
                        true => format!(
                            "residual {:e} met, but pivots were next to nothing: whether the matrix is singular is not known",
                            self.tolerance
                        ),
                        false => self.missed(),
                    }
                );
            }
            (Status::NotMet, None) => {
                let _ = writeln!(
                    out,
                    "status   {}; {}",
                    self.missed(),
                    if s.growth.is_infinite() {
                        "an unknown is larger than 1.8e308, the largest double: divide the right-hand side by a power of two"
                    } else if s.residual.underflows() {
                        "unknowns are smaller than 2.2e-308, where doubles have fewer digits: multiply the right-hand \
                         side by a power of two"
                    } else {
                        match s.method {
                            Method::Host => "the matrix is singular, or as close to it as rounding can tell",
                            _ => "use --pivot auto or scaled, more --refine, or a larger --tolerance",
                        }
                    }
                );
            }
        }
        out
    }

    /// Which of the two residuals is too large.
    fn missed(&self) -> String {
        let Residual { normwise, componentwise } = self.solution.residual;
        match normwise <= self.tolerance {
            true => format!(
                "componentwise residual {:e} NOT met: {componentwise:.1e}",
                Residual::componentwise_limit(self.tolerance)
            ),
            false => format!("residual {:e} NOT met: {normwise:.1e}", self.tolerance),
        }
    }
}
