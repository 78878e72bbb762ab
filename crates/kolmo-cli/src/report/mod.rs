//! Reports of a run: summaries as text, and JSON.

use std::borrow::Cow;

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::Table;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use kolmo::internals::Size;
use kolmo::io::write::push_number;
use kolmo::lane::Lane;
use kolmo::output::printable;
use kolmo::transient::Bound;
use kolmo::{Machine, Status};

pub(crate) mod facts;
pub(crate) mod graph;
pub(crate) mod plan;
pub(crate) mod transient;
pub(crate) mod tridiagonal;
pub(crate) mod walk;

/// A run and its result, for the report and the summary.
pub(crate) trait RunReport {
    /// Returns the JSON object of `--report`.
    fn json(&self) -> Value;
    fn status(&self) -> Status;
    /// Returns the summary: a few lines, or all details if `verbose`.
    fn text(&self, verbose: bool) -> String;
    /// Returns the summary's line on the error bound.
    fn bound(&self) -> String;
}

/// A device in a report.
#[derive(Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    name: String,
    /// Name on the command line.
    spec: String,
    /// Backend: `cpu`, `vulkan`, `metal`, `dx12`, `cuda`.
    backend: Cow<'static, str>,
    /// Number of the device's lanes that the run used.
    lanes: usize,
    precision: String,
}

/// Column of a table: its heading, and a function from a row to its cell.
pub(crate) type TableColumn<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// Returns a table with these columns.
pub(crate) fn table<R>(rows: &[R], columns: &[TableColumn<'_, R>]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    table.add_rows(rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row)).collect::<Vec<_>>()));
    table
}

/// Formats an error bound with the terms that it is the sum of.
pub(crate) fn parts(bound: &Bound) -> String {
    let loss = if bound.loss == 0.0 { String::new() } else { format!("loss {:.1e} + ", bound.loss) };
    format!(
        "{:.1e} = {loss}truncation {:.1e} + steady state {:.1e} + rounding {:.1e}",
        bound.total(),
        bound.truncation,
        bound.steady_state,
        bound.rounding
    )
}

/// Returns the devices of a run, each once.
pub(crate) fn devices(machine: &Machine) -> Vec<DeviceReport> {
    let mut all: Vec<DeviceReport> = Vec::new();
    for lane in &machine.lanes {
        let device = lane.device();
        match all.iter_mut().find(|d| d.spec == device.spec) {
            Some(known) => known.lanes += 1,
            None => all.push(DeviceReport {
                name: device.name.clone(),
                spec: device.spec.clone(),
                backend: device.backend.into(),
                lanes: 1,
                precision: machine.precision.to_string(),
            }),
        }
    }
    all
}

/// Returns the devices of all ranks, listed per rank. Collective.
pub(crate) fn devices_of(machine: &Machine) -> Vec<DeviceReport> {
    let (own, ranks) = (devices(machine), machine.ranks);
    if !ranks.is_distributed() {
        return own;
    }
    let all = ranks.all_gather_text(&serde_json::to_string(&own).expect("devices are written as JSON"));
    let one = |(rank, text): (usize, &String)| {
        let mut devices: Vec<DeviceReport> =
            serde_json::from_str(text).expect("a rank's devices are read back");
        devices.iter_mut().for_each(|d| d.name = format!("{} (rank {rank})", d.name));
        devices
    };
    all.iter().enumerate().flat_map(one).collect()
}

/// Line of the summary on the devices.
fn device_line(devices: &[DeviceReport]) -> String {
    let one = |d: &DeviceReport| match d.lanes {
        1 => format!("{} {} ({})", d.spec, d.name, d.precision),
        lanes => format!("{} {} ({}, {lanes} lanes)", d.spec, d.name, d.precision),
    };
    match devices {
        [] => String::new(),
        [only] => format!("device   {}\n", one(only)),
        [first, rest @ ..] => format!("device   {} and {} more\n", one(first), rest.len()),
    }
}

/// Lines of the detailed summary on every device; empty for a single one.
fn device_lines(devices: &[DeviceReport]) -> String {
    let devices = if devices.len() > 1 { devices } else { &[] };
    devices
        .iter()
        .map(|d| format!("         {} {} ({}, {})\n", d.spec, d.name, d.backend, d.precision))
        .collect()
}

/// Prefix of the line on the bound.
const BOUND: &str = "bound    ";

/// Line of the summary on the bound: the bound, the requested one, and the reason if it is missed.
fn bound_line(bound: &str, missed: Option<&str>) -> String {
    let verdict = missed.map_or("met".to_owned(), |reason| format!("NOT met: {reason}"));
    format!("{BOUND}{bound}: {verdict}")
}

/// Text for a terminal: control characters made visible, verdicts of [`bound_line`] coloured.
///
/// Colours are added last, so that escape sequences in names of files or labels have no effect.
pub(crate) fn painted(text: &str) -> String {
    let style = |color: AnsiColor| Style::new().bold().fg_color(Some(color.into()));
    let (green, red) = (style(AnsiColor::Green), style(AnsiColor::Red));
    let shown = printable(text);
    let line = |line: &str| match line.strip_suffix(": met") {
        _ if !line.starts_with(BOUND) => line.to_owned(),
        Some(bound) => format!("{bound}: {green}met{green:#}"),
        None => line.replacen(": NOT met: ", &format!(": {red}NOT met{red:#}: "), 1),
    };
    shown.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Peak memory of one rank.
#[derive(Serialize)]
pub(crate) struct RankMemory {
    rank: usize,
    /// Peak number of bytes allocated on all lanes of the rank.
    device_bytes: u64,
    /// Peak bytes of the process in host memory, where the system reports them.
    process_bytes: Option<u64>,
}

/// Returns the peak memory of every rank. Collective.
pub(crate) fn memory_of(machine: &Machine) -> Vec<RankMemory> {
    let peak: u64 = machine.lanes.iter().map(Lane::peak_bytes).sum();
    let all = machine.ranks.all_gather(&[peak, resident().unwrap_or(0)]);
    let one = |(rank, bytes): (usize, &Vec<u64>)| RankMemory {
        rank,
        device_bytes: bytes[0],
        process_bytes: Some(bytes[1]).filter(|&bytes| bytes > 0),
    };
    all.iter().enumerate().map(one).collect()
}

/// Peak resident memory of this process in bytes, on Linux.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Formats a count with spaces between groups of thousands.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b' ')).into_owned()
}

/// Formats a count of things, such as `1 state` or `2 000 states`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Returns a text on a count; empty if the count is 0.
fn if_any(count: u64, text: impl FnOnce(String) -> String) -> String {
    if count == 0 { String::new() } else { text(grouped(count)) }
}

/// Formats a number with the fewest digits that read back exactly, with an exponent if shorter.
pub(crate) fn number(value: f64) -> String {
    let mut text = Vec::new();
    push_number(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}

/// Formats a time with a suitable unit.
pub(crate) fn seconds(s: f64) -> String {
    if s < 0.001 {
        format!("{:.0} µs", s * 1e6)
    } else if s < 1.0 {
        format!("{:.1} ms", s * 1e3)
    } else if s < 100.0 {
        format!("{s:.2} s")
    } else {
        // Up to two units.
        let whole = s.round() as u64;
        let [day, hour, minute] = [86_400, 3_600, 60];
        match whole {
            _ if s > 1e9 => format!("{:.0} years", s / (365.25 * day as f64)),
            _ if whole >= 3 * day => format!("{} days", (whole + day / 2) / day),
            _ if whole >= 10 * hour => format!("{} h", (whole + hour / 2) / hour),
            _ if whole >= hour => format!("{} h {} min", whole / hour, whole % hour / minute),
            _ => format!("{} min {} s", whole / minute, whole % minute),
        }
    }
}

/// Formats a number of bytes with a suitable unit.
pub(crate) fn bytes(b: u64) -> String {
    Size(b).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_alone_are_coloured() {
        let model = "model    a\u{1b}[31m: met";
        let met = painted(&format!("{model}\n{}", bound_line("error at most 1e-10 of 1e-9", None)));
        let begins = "model    a\\u{1b}[31m: met\nbound    error at most 1e-10 of 1e-9: \u{1b}[";
        assert!(met.starts_with(begins) && met.contains("met\u{1b}[0m"), "{met:?}");
        let missed = painted(&bound_line("x", Some("y: NOT met: z")));
        assert!(missed.contains("NOT met\u{1b}[0m: y: NOT met: z"), "{missed:?}");
    }

    #[test]
    fn numbers_have_their_units() {
        assert_eq!([0, 1, 2000].map(|n| counted(n, "state")), ["0 states", "1 state", "2 000 states"]);
        assert_eq!([7, 1234, 35_985_604].map(grouped), ["7", "1 234", "35 985 604"]);
        assert_eq!([512, 3 << 30].map(bytes), ["512 B", "3.0 GiB"]);
        for (time, text) in [
            (0.0000042, "4 µs"),
            (12.345, "12.35 s"),
            (100.2, "1 min 40 s"),
            (4_000.0, "1 h 6 min"),
            (109_576.0, "30 h"),
            (1e6, "12 days"),
        ] {
            assert_eq!(seconds(time), text);
        }
    }
}
