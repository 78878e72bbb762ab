//! Report of `kolmo transient --dry-run`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{bytes, grouped, number, seconds};
use kolmo::kernel::Precision;
use kolmo::transient::LaneExchange;
use kolmo::transient::estimate::{ManyRanks, MemoryRequirement, Plan};

/// A dry run and its result.
#[derive(Debug)]
pub struct Run<'a> {
    /// Name of the chain.
    pub model: &'a str,
    /// Precision of the planned run.
    pub precision: Precision,
    /// Predicted memory and time.
    pub plan: &'a Plan,
    /// Prediction for many ranks, with `--ranks`.
    pub many: Option<&'a ManyRanks>,
}

impl Run<'_> {
    /// Returns the JSON object of `--report`.
    pub fn json(&self) -> Value {
        let mut value = json!(self.plan);
        value["command"] = json!("transient");
        value["version"] = json!(env!("CARGO_PKG_VERSION"));
        value["dry_run"] = json!(true);
        value["model"] = json!(self.model);
        value["precision"] = json!(self.precision.to_string());
        value["fits"] = json!(self.plan.fits());
        value["seconds"] = json!(self.plan.terms.map(|terms| terms as f64 * self.plan.step));
        if let Some(many) = self.many {
            value["ranks"] = json!(many);
            value["ranks"]["step"] = json!(many.step());
        }
        value
    }

    /// Returns the summary as text.
    pub fn text(&self) -> String {
        let p = self.plan;
        let mut out = String::new();
        let about = if p.looked_at < p.n { "about " } else { "" };
        let _ = writeln!(
            out,
            "model    {}  {} states, {about}{} entries, alpha = {about}{}, {}",
            self.model,
            grouped(p.n as u64),
            grouped(p.nnz),
            number(p.alpha),
            self.precision
        );
        if p.looked_at < p.n {
            let _ = writeln!(
                out,
                "         from {} of the rows; --verbose looks at all of them",
                grouped(p.looked_at as u64)
            );
        }
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
            LaneExchange::None => None,
            LaneExchange::Peer => Some("stored into each other's memory".to_owned()),
            LaneExchange::Host(cost) => {
                Some(format!("through the host ({} expected)", super::exchange_cost(cost)))
            }
        };
        if let Some(way) = way {
            let _ = writeln!(out, "exchange {way}, every {} steps", p.halo_depth);
        }
        let _ = match p.terms {
            Some(terms) => writeln!(
                out,
                "time     {} for at most {} multiplications of {} each",
                seconds(terms as f64 * p.step),
                grouped(terms),
                seconds(p.step)
            ),
            None => writeln!(
                out,
                "time     {} a multiplication; their number shows when the steady state is certified",
                seconds(p.step)
            ),
        };
        if let Some(many) = self.many {
            ranks(&mut out, many, p.terms);
        }
        out
    }
}

/// Writes the line on the needed and free memory of a lane.
fn memory(out: &mut String, need: &MemoryRequirement) {
    let there = match need.free {
        Some(free) if free < need.total() => format!("{} free: does NOT fit", bytes(free)),
        Some(free) => format!("{} free", bytes(free)),
        None => "what is free is not known".to_owned(),
    };
    // A lane with all rows has all entries, so they are not printed.
    let entries = match need.entries {
        0 => String::new(),
        entries => format!(", {} entries off the diagonal", grouped(entries)),
    };
    let _ = writeln!(
        out,
        "memory   {} {}  {} rows{entries}: {} = matrix {} ({}) + vectors {}; {there}",
        need.device,
        need.name,
        grouped(need.rows as u64),
        bytes(need.total()),
        bytes(need.matrix),
        need.format,
        bytes(need.vectors),
    );
}

/// Writes the lines on the predicted work of ranks.
fn ranks(out: &mut String, many: &ManyRanks, terms: Option<u64>) {
    let (latency, rate) = (seconds(many.exchange_cost.latency), many.exchange_cost.rate / 1e9);
    let _ = writeln!(
        out,
        "ranks    {} with an equal share of the rows each, {latency} and {rate:.1} GB/s measured for an exchange",
        many.count
    );
    for rank in &many.ranks {
        let _ = writeln!(
            out,
            "rank     {}: {} rows, {} (matrix {} in {}, vectors {}), halo {}; a step {}, {} of it its own work",
            rank.rank,
            grouped(rank.need.rows as u64),
            bytes(rank.need.total()),
            bytes(rank.need.matrix),
            rank.need.format,
            bytes(rank.need.vectors),
            grouped(rank.halo as u64),
            seconds(rank.step),
            seconds(rank.compute),
        );
    }
    let whole = terms.map_or(String::new(), |terms| format!(": {}", seconds(terms as f64 * many.step())));
    let _ = writeln!(
        out,
        "predicted {} a multiplication, exchanges every {} steps{whole}",
        seconds(many.step()),
        many.halo_depth
    );
}
