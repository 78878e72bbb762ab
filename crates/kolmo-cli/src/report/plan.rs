//! Report of `kolmo transient --dry-run`.

use serde_json::{Value, json};

use super::{bytes, grouped, number, seconds};
use kolmo::kernel::Precision;
use kolmo::transient::LaneExchange;
use kolmo::transient::estimate::{MemoryRequirement, Plan};

/// A dry run and its result.
pub(crate) struct DryRunReport<'a> {
    pub(crate) model: &'a str,
    /// Precision of the planned run.
    pub(crate) precision: Precision,
    pub(crate) plan: &'a Plan,
}

impl DryRunReport<'_> {
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
        out += &format!("model    {model}  {n} states, {nnz} entries, alpha = {alpha}, {precision}\n");
        out.extend(p.lanes.iter().map(memory));
        for lane in &p.plan {
            out += &format!(
                "plan     {}  {:.1} % of the entries local, halo {}, {:.0} % of a step communication\n",
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
            out += &format!("{way}, every {} steps\n", p.halo_depth);
        }
        let step = seconds(p.step);
        match p.terms {
            Some(terms) => {
                let (time, terms) = (seconds(terms as f64 * p.step), grouped(terms));
                out + &format!("time     {time} for at most {terms} multiplications of {step} each\n")
            }
            None => out + &format!("time     {step} a multiplication; the host computes the steady state\n"),
        }
    }
}

/// Line on the needed and free memory of a lane.
fn memory(need: &MemoryRequirement) -> String {
    // A lane with all rows has all entries, so they are not printed.
    let entries = super::if_any(need.entries, |n| format!(", {n} entries off the diagonal"));
    let [total, matrix, vectors] = [need.total(), need.matrix, need.vectors].map(bytes);
    format!(
        "memory   {} {}  {} rows{entries}: {total} = matrix {matrix} ({}) + vectors {vectors}; {}\n",
        need.device,
        need.name,
        grouped(need.rows as u64),
        need.format,
        free(need.free, need.total()),
    )
}

/// Text on the free memory of a device that needs some.
pub(crate) fn free(free: Option<u64>, needed: u64) -> String {
    match free {
        Some(free) if free < needed => format!("{} free: does NOT fit", bytes(free)),
        Some(free) => format!("{} free", bytes(free)),
        None => "available memory unknown".to_owned(),
    }
}
