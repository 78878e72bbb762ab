//! Reports of a run: summaries as text, and JSON.

use std::borrow::Cow;

use clap::builder::styling::{AnsiColor, Style};
use serde::{Deserialize, Serialize};

use kolmo::Machine;
use kolmo::internals::Size;
use kolmo::io::write::push_number;
use kolmo::lane::Lane;
use kolmo::output::printable;
use kolmo::transient::{Bound, ExchangeCost};

pub mod graph;
pub mod page;
pub mod plan;
pub mod transient;
pub mod tridiagonal;
pub mod walk;

/// Summary of a run as text.
pub trait Summary {
    /// Returns the summary: a few lines, or all details if `verbose`.
    fn text(&self, verbose: bool) -> String;
    /// Returns the line on the bound.
    fn bound(&self) -> String;
}

/// A device in a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Name.
    pub name: String,
    /// Name on the command line.
    pub spec: String,
    /// Backend: `cpu`, `vulkan`, `metal`, `dx12`, `cuda`.
    pub backend: Cow<'static, str>,
    /// Number of its lanes that the run used.
    pub lanes: usize,
    /// Precision: `f32`, `f64` or `q64`.
    pub precision: String,
}

/// Formats a bound as the sum of its parts.
pub fn parts(bound: &Bound) -> String {
    let loss = match bound.loss {
        0.0 => String::new(),
        loss => format!("loss {loss:.1e} + "),
    };
    format!(
        "{:.1e} = {loss}truncation {:.1e} + steady state {:.1e} + rounding {:.1e}",
        bound.total(),
        bound.truncation,
        bound.steady_state,
        bound.rounding
    )
}

/// Returns the devices of a run, each once.
pub fn devices(machine: &Machine) -> Vec<DeviceReport> {
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
pub fn devices_of(machine: &Machine) -> Vec<DeviceReport> {
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
    match missed {
        None => format!("{BOUND}{bound}: met"),
        Some(reason) => format!("{BOUND}{bound}: NOT met: {reason}"),
    }
}

/// Text for a terminal: control characters made visible, verdicts of [`bound_line`] coloured.
///
/// Colours are added last, so that escape sequences in names of files or labels have no effect.
pub fn painted(text: &str) -> String {
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
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RankMemory {
    /// Number of the rank.
    pub rank: usize,
    /// Peak bytes allocated on all its lanes.
    pub device_bytes: u64,
    /// Peak bytes of the process in host memory, where the system reports them.
    pub process_bytes: Option<u64>,
}

/// Returns the peak memory of every rank. Collective.
pub fn memory_of(machine: &Machine) -> Vec<RankMemory> {
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
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Formats a count of things, such as `1 state` or `2 000 states`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats a number with the fewest digits that read back exactly, with an exponent if shorter.
pub fn number(value: f64) -> String {
    let mut text = Vec::new();
    push_number(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}

/// Formats the measured cost of an exchange through the host.
fn exchange_cost(cost: ExchangeCost) -> String {
    let whole = format!("{} and {:.1} GB/s", seconds(cost.latency), cost.rate / 1e9);
    match cost.busy > 0.0 {
        true => {
            format!(
                "{whole}, of which {} and {:.0} GB/s hide behind no rows,",
                seconds(cost.busy),
                cost.drain / 1e9
            )
        }
        false => whole,
    }
}

/// Formats a time with a suitable unit.
pub fn seconds(s: f64) -> String {
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

/// Formats a relative speed as faster or slower.
pub fn times(speed: f64) -> String {
    let (ratio, word) = if speed >= 1.0 { (speed, "faster") } else { (1.0 / speed, "slower") };
    match ratio {
        1.0 => "1 ×".to_owned(),
        ..1.05 => "about 1 ×".to_owned(),
        ..9.95 => format!("{ratio:.1} × {word}"),
        _ => format!("{ratio:.0} × {word}"),
    }
}

/// Formats a number of bytes with a suitable unit.
pub fn bytes(b: u64) -> String {
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
    fn counts_of_one_are_singular() {
        assert_eq!([0, 1, 2000].map(|n| counted(n, "state")), ["0 states", "1 state", "2 000 states"]);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1234), "1 234");
        assert_eq!(grouped(35_985_604), "35 985 604");
    }

    #[test]
    fn sizes_and_times_have_their_units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(seconds(0.0000042), "4 µs");
        assert_eq!(seconds(12.345), "12.35 s");
        assert_eq!(seconds(100.2), "1 min 40 s");
        assert_eq!(seconds(4_000.0), "1 h 6 min");
        assert_eq!(seconds(109_576.0), "30 h");
        assert_eq!(seconds(1e6), "12 days");
        assert_eq!([1.0, 0.97, 2.5, 0.0253].map(times), ["1 ×", "about 1 ×", "2.5 × faster", "40 × slower"]);
    }
}
