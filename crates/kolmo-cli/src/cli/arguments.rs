//! Options that several commands share: devices, precision, memory, reports.

use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::cli::prelude::*;
use kolmo::internals::count;
use kolmo::lane::OpenOptions;

/// Value of an option that can be `auto`, and a list that is one value.
///
/// Their names differ from `Option` and `Vec`, by which clap recognises optional and repeatable
/// options.
pub(crate) type Auto<T> = Option<T>;
pub(crate) type List<T> = Vec<T>;

/// Options of the commands that solve one problem.
#[derive(Debug, Clone, Args)]
pub(crate) struct Solving {
    /// Print all details in the summary
    #[arg(long, short, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of all commands that compute: devices, precision, memory, reports.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Devices: auto, cpu, wgpu:N, wgpu:all, cuda:N, or a comma-separated list
    ///
    /// auto is a CUDA device if the build supports CUDA, else a GPU with the required precision,
    /// else the CPU. Small chains run on the CPU, which needs no start-up time. `kolmo devices`
    /// lists the names.
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = devices)]
    pub(crate) device: List<DeviceSpec>,
    /// Precision of the computation
    #[arg(long, value_name = "P", default_value = "auto", value_parser = named(&PRECISIONS))]
    pub(crate) precision: Auto<Precision>,
    /// Lanes (in-order queues) per device: auto, or 1 to 64
    ///
    /// auto is 1, except for `tridiagonal`: there it is the number that `kolmo tune` measured, or a
    /// default.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = auto_or("number of lanes", 1..=64))]
    pub(crate) lanes: Auto<usize>,
    /// Check every array index in the kernels at run time (not available on CUDA)
    #[arg(long)]
    pub(crate) checked: bool,
    /// Precision of `auto` on devices without f64; `None` is f32.
    #[arg(skip)]
    pub(crate) without_f64: Option<Precision>,
    /// Memory limit of each lane, such as 3GiB
    ///
    /// On the CPU this is host memory. The limit also applies to the exploration of PRISM models
    /// and to compressed input once it is unpacked. Units: KiB, MiB, GiB, TiB (also K, M, G, T),
    /// kB, MB, GB, TB; a number without a unit is in bytes.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory_limit: Option<u64>,
    /// File for a report with all results, as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Suppress the summary, notes and the progress display
    ///
    /// A bound that is not met is still reported, in one line.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Precisions: name, help, value.
const PRECISIONS: [(&str, &str, Auto<Precision>); 4] = [
    ("auto", "f64; if a device lacks it, q64 for `transient` and `check`, f32 for other commands", None),
    ("f64", "Double precision", Some(Precision::F64)),
    ("f32", "Single precision", Some(Precision::F32)),
    ("q64", "64-bit fixed point, on every GPU; for `transient` and `check` only", Some(Precision::Q64)),
];

fn devices(list: &str) -> Result<List<DeviceSpec>> {
    list.split(',').map(|d| d.trim().parse()).collect()
}

/// Returns a parser of named values: name, help, value. Names without a help are hidden.
pub(crate) fn named<T: Clone + Send + Sync>(
    values: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let shown = |&(name, help, _): &(&'static str, &'static str, T)| {
        let value = PossibleValue::new(name).hide(help.is_empty());
        if help.is_empty() { value } else { value.help(help) }
    };
    PossibleValuesParser::new(values.iter().map(shown)).map(|given| {
        let value = values.iter().find(|(name, ..)| *name == given);
        value.expect("one of the names is accepted").2.clone()
    })
}

/// Returns a parser of `auto` or a number in `range`.
pub(crate) fn auto_or(
    what: &'static str,
    range: RangeInclusive<usize>,
) -> impl Fn(&str) -> std::result::Result<Auto<usize>, String> + Clone {
    move |s| match (s, count(s)) {
        ("auto", _) => Ok(None),
        (_, Some(n)) if range.contains(&n) => Ok(Some(n)),
        _ => Err(format!("invalid {what} '{s}': expected auto or {} to {}", range.start(), range.end())),
    }
}

/// Parses a number of bytes with a unit.
pub(crate) fn size(s: &str) -> Result<u64> {
    // Longer units first, since shorter ones are suffixes of them.
    let units = ["KiB", "MiB", "GiB", "TiB", "kB", "KB", "MB", "GB", "TB", "K", "M", "G", "T", "B"];
    let [k, m, g, t] = [10, 20, 30, 40].map(|bits| 2f64.powi(bits));
    let factors = [k, m, g, t, 1e3, 1e3, 1e6, 1e9, 1e12, k, m, g, t, 1.0];
    let with_unit =
        units.iter().zip(factors).find_map(|(unit, factor)| Some((s.strip_suffix(unit)?, factor)));
    let (number, factor) = with_unit.unwrap_or((s, 1.0));
    // A whole number in any notation of `count`, or a decimal fraction.
    let number = number.trim_end();
    match count::<u64>(number).map(|n| n as f64).or(number.parse::<f64>().ok()) {
        Some(n) if n * factor >= 1.0 && (n * factor).is_finite() => Ok((n * factor) as u64),
        _ => fail(format!("invalid size '{s}': expected a number with KiB, MiB, GiB or TiB")),
    }
}

pub(crate) fn whole<T: TryFrom<u64>>(s: &str) -> std::result::Result<T, &'static str> {
    count(s).ok_or("give a whole number in range, such as 200000 or 2e5")
}

/// Error with the message `why`.
pub(crate) fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::invalid(why))
}

/// Error with the message `why` unless `holds`.
pub(crate) fn expect(holds: bool, why: impl Display) -> Result<()> {
    if holds { Ok(()) } else { fail(why.to_string()) }
}

/// Error unless 0 < `value` < 1.
pub(crate) fn expect_fraction(option: &str, value: f64) -> Result<()> {
    let within = value > 0.0 && value < 1.0;
    expect(within, format_args!("{option} {value} must lie between 0 and 1, both excluded"))
}

/// Error if a number of measurements is 0.
pub(crate) fn expect_some(option: &str, count: u64) -> Result<()> {
    expect(count > 0, format_args!("{option} 0 measures nothing; give 1 or more"))
}

impl Common {
    /// Opens the machine on every rank and checks that all ranks use one precision. Collective.
    pub(crate) fn open_on(&self, ranks: Ranks) -> Result<Machine> {
        let specs = kolmo::lane::of_place(&self.device, ranks.place());
        let machine = ranks.all_ok(self.open(&specs))?;
        ranks.expect_same("precision", &machine.precision.to_string())?;
        Ok(machine.on_ranks(ranks))
    }

    /// True if neither `--device` nor `--lanes` is given.
    pub(crate) fn leaves_device_open(&self) -> bool {
        self.device == [DeviceSpec::Auto] && self.lanes.is_none()
    }

    /// Opens the devices with the lanes of `--lanes`.
    pub(crate) fn open(&self, specs: &[DeviceSpec]) -> Result<Machine> {
        self.open_lanes(specs, self.lanes.unwrap_or(1))
    }

    pub(crate) fn open_lanes(&self, specs: &[DeviceSpec], lanes: usize) -> Result<Machine> {
        let options = OpenOptions::default()
            .precision(self.precision)
            .without_f64(self.without_f64.unwrap_or(Precision::F32))
            .lanes(lanes)
            .checked(self.checked)
            .memory_limit(self.memory_limit)
            .cpu_threads(None);
        Machine::open(specs, &options)
    }

    /// Opens the file of `--report`; `None` on ranks other than 0.
    pub(crate) fn report_file(&self, ranks: Ranks) -> Result<Option<OutputFile>> {
        self.report.as_deref().filter(|_| ranks.is_root()).map(OutputFile::create).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("7", 7),
            ("1e9", 1_000_000_000),
            ("1_000 B", 1000),
            ("1.5GiB", 3 << 29),
            ("64 MiB", 64 << 20),
            ("2e3KB", 2_000_000),
        ] {
            assert_eq!(size(text).expect(text), bytes, "{text}");
        }
        for text in ["", "0", "B", "-1", "1e999", "inf", "nan", "12XB", "0.5B", "1 2"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
