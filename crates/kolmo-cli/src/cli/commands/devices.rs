//! `kolmo devices`.

use crate::cli::prelude::*;
use kolmo::lane::{Listing, list};

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Output format
    #[arg(long, default_value = "text", value_parser = named(&FORMATS))]
    format: Format,
}

type Format = fn(&[Listing]) -> String;

const FORMATS: [(&str, &str, Format); 2] = [
    ("text", "A table", table),
    ("json", "A JSON array with one object per device, with all limits", |all| {
        format!("{:#}\n", json!(all.iter().map(object).collect::<Vec<_>>()))
    }),
];

pub(crate) fn run(args: &Devices) -> Result<Status> {
    print((args.format)(&list())).map(|()| Status::Met)
}

fn table(all: &[Listing]) -> String {
    let limit = |b: u64| if b == u64::MAX { "memory".to_owned() } else { bytes(b) };
    let table = report::table(
        all,
        &[
            ("device", &|l| l.device.spec.clone()),
            ("name", &|l| l.device.name.clone()),
            ("backend", &|l| l.device.backend.to_owned()),
            ("precision", &|l| if l.device.f64 { "f64, q64, f32" } else { "q64, f32" }.to_owned()),
            ("largest binding", &|l| limit(l.device.limits.binding)),
            ("largest buffer", &|l| limit(l.device.limits.buffer)),
            ("remarks", &|l| match (&l.unusable, l.device.software) {
                (Some(reason), _) => format!("not usable: {reason}"),
                (None, true) => format!("software, only by name; {}", l.driver),
                (None, false) => l.driver.clone(),
            }),
        ],
    );
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
