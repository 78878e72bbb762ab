//! `kolmo devices`.

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::outcome::Outcome;
use crate::report::bytes;
use kolmo::Result;
use kolmo::lane::{Listing, list};
use kolmo::output::OutputFile;
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// A JSON array with one object per device, with all limits
    Json,
}

pub(crate) fn run(args: &Devices) -> Result<Outcome> {
    let all = list();
    let mut out = OutputFile::stdout();
    let text = match args.format {
        Format::Text => table(&all),
        Format::Json => format!("{:#}\n", json!(all.iter().map(object).collect::<Vec<_>>())),
    };
    out.write_all(text.as_bytes()).map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

fn precisions(l: &Listing) -> &'static str {
    if l.device.f64 { "f64, q64, f32" } else { "q64, f32" }
}

fn table(all: &[Listing]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "device",
        "name",
        "backend",
        "precision",
        "largest binding",
        "largest buffer",
        "remarks",
    ]);
    for l in all {
        let limit = |b: u64| if b == u64::MAX { "memory".to_owned() } else { bytes(b) };
        let remarks = match (&l.unusable, l.device.software) {
            (Some(reason), _) => format!("not usable: {reason}"),
            (None, true) => format!("software, only by name; {}", l.driver),
            (None, false) => l.driver.clone(),
        };
        table.add_row([
            l.device.spec.clone(),
            l.device.name.clone(),
            l.device.backend.to_owned(),
            precisions(l).to_owned(),
            limit(l.device.limits.binding),
            limit(l.device.limits.buffer),
            remarks,
        ]);
    }
    format!("{table}\n")
}

fn object(l: &Listing) -> serde_json::Value {
    let limit = |b: u64| if b == u64::MAX { serde_json::Value::Null } else { json!(b) };
    json!({
        "device": l.device.spec,
        "name": l.device.name,
        "backend": l.device.backend,
        "driver": l.driver,
        "software": l.device.software,
        "f64": l.device.f64,
        "f32": true,
        "q64": true,
        "largest_binding": limit(l.device.limits.binding),
        "largest_buffer": limit(l.device.limits.buffer),
        "memory": l.device.limits.memory,
        "workgroups_per_dimension": l.workgroups,
        "usable": l.unusable.is_none(),
        "reason": l.unusable,
    })
}
