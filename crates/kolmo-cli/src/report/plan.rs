//! Report of `kolmo transient --dry-run`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{bytes, grouped, number, seconds};
use kolmo::kernel::Precision;
use kolmo::transient::LaneExchange;
use kolmo::transient::estimate::{MemoryRequirement, Plan};

/// A dry run and its result.
pub(crate) struct Run<'a> {
    pub(crate) model: &'a str,
    /// Precision of the planned run.
    pub(crate) precision: Precision,
    pub(crate) plan: &'a Plan,
}

impl Run<'_> {
    pub(crate) fn json(&self) -> Value {
        let mut value = json!(self.plan);
        value["command"] = json!("transient");
        value["dry_run"] = json!(true);
        value["model"] = json!(self.model);
        value["precision"] = json!(self.precision.to_string());
        value["fits"] = json!(self.plan.fits());
        value["seconds"] = json!(self.plan.terms.map(|terms| terms as f64 * self.plan.step));
        value
    }

    pub(crate) fn text(&self) -> String {
        let p = self.plan;
        let mut out = String::new();
        let Self { model, precision, .. } = self;
        let [n, nnz] = [p.n as u64, p.nnz].map(grouped);
        let alpha = number(p.alpha);
        let _ = writeln!(out, "model    {model}  {n} states, {nnz} entries, alpha = {alpha}, {precision}");
        p.lanes.iter().for_each(|need| memory(&mut out, need));
        for lane in &p.plan {
            let _ = writeln!(
                out,
                "plan     {}  {:.1} % of the entries local, halo {}, {:.0} % of a step communication",
                lane.device,
                100.0 * lane.local_share,
                grouped(lane.halo as u64),
                100.0 * lane.communication_share,
            );
        }
        let way = match p.exchange {
            LaneExchange::None => "",
            LaneExchange::Peer => "exchange stored into each other's memory",
            LaneExchange::Host => "exchange through the host",
        };
        if !way.is_empty() {
            let _ = writeln!(out, "{way}, every {} steps", p.halo_depth);
        }
        let step = seconds(p.step);
        let _ = match p.terms {
            Some(terms) => {
                let (time, terms) = (seconds(terms as f64 * p.step), grouped(terms));
                writeln!(out, "time     {time} for at most {terms} multiplications of {step} each")
            }
            None => writeln!(out, "time     {step} a multiplication; the host computes the steady state"),
        };
        out
    }
}

/// Writes the line on the needed and free memory of a lane.
fn memory(out: &mut String, need: &MemoryRequirement) {
    // A lane with all rows has all entries, so they are not printed.
    let entries = match need.entries {
        0 => String::new(),
        entries => format!(", {} entries off the diagonal", grouped(entries)),
    };
    let [total, matrix, vectors] = [need.total(), need.matrix, need.vectors].map(bytes);
    let _ = writeln!(
        out,
        "memory   {} {}  {} rows{entries}: {total} = matrix {matrix} ({}) + vectors {vectors}; {}",
        need.device,
        need.name,
        grouped(need.rows as u64),
        need.format,
        free(need.free, need.total()),
    );
}

/// Text on the free memory of a device that needs some.
pub(crate) fn free(free: Option<u64>, needed: u64) -> String {
    match free {
        Some(free) if free < needed => format!("{} free: does NOT fit", bytes(free)),
        Some(free) => format!("{} free", bytes(free)),
        None => "available memory unknown".to_owned(),
    }
}
