//! Options that several commands share: devices, precision, memory, reports.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use kolmo::internals::count;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::ranks::Ranks;
use kolmo::{Error, Machine, Result};

/// Options of the commands that solve one problem.
#[derive(Debug, Clone, Args)]
pub(crate) struct Solving {
    /// Print all details in the summary
    #[arg(long, short, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Predict memory and run time instead of solving
    ///
    /// `transient` predicts from the rows of the chain. `walk` and `tridiagonal` solve a small part
    /// of the problem first.
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    #[arg(long, value_name = "LIST", default_value = "auto")]
    pub(crate) device: Devices,
    /// Precision of the computation
    #[arg(long, value_name = "P", default_value = "auto")]
    pub(crate) precision: PrecisionArg,
    /// Lanes (in-order queues) per device: auto, or 1 to 64
    ///
    /// auto is 1, except for `tridiagonal`: there it is the number that `kolmo tune` measured, or a
    /// default.
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) lanes: Lanes,
    /// Check every array index in the kernels at run time (not available on CUDA)
    #[arg(long)]
    pub(crate) checked: bool,
    /// Compute q64 with 32-bit words on wgpu, as on adapters without 64-bit integers
    #[arg(long, hide = true)]
    pub(crate) limbs: bool,
    /// Precision of `auto` on devices without f64; `None` is f32.
    #[arg(skip)]
    pub(crate) without_f64: Option<Precision>,
    /// Memory limit of each lane, such as 3GiB
    ///
    /// On the CPU this is host memory. The limit also applies to the exploration of PRISM models
    /// and to compressed input once it is unpacked. Units: KiB, MiB, GiB, TiB (also K, M, G, T),
    /// kB, MB, GB, TB; a number without a unit is in bytes.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<Size>,
    /// File for a report with all results, as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Suppress the summary, notes and the progress display
    ///
    /// A bound that is not met is still reported, in one line.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Devices(pub(crate) Vec<DeviceSpec>);

impl FromStr for Devices {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        s.split(',').map(|d| d.trim().parse()).collect::<Result<_>>().map(Self)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// f64; if a device lacks it, q64 for `transient` and `check`, f32 for other commands
    Auto,
    /// Double precision
    F64,
    /// Single precision
    F32,
    /// 64-bit fixed point, on every GPU; for `transient` and `check` only
    Q64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes(pub(crate) Option<usize>);

impl FromStr for Lanes {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(None)),
            s => match count(s) {
                Some(n @ 1..=64) => Ok(Self(Some(n))),
                _ => Err(Error::Invalid(format!("'{s}' is no number of lanes; give auto or 1 to 64"))),
            },
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        // Longer units first, since shorter ones are suffixes of them.
        let units = [
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
            ("TiB", 1099511627776.0),
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("K", 1024.0),
            ("M", 1048576.0),
            ("G", 1073741824.0),
            ("T", 1099511627776.0),
            ("B", 1.0),
        ];
        let with_unit = units.iter().find_map(|&(unit, factor)| Some((s.strip_suffix(unit)?, factor)));
        let (number, factor) = with_unit.unwrap_or((s, 1.0));
        // A whole number in any notation of `count`, or a decimal fraction.
        let number = number.trim_end();
        match count::<u64>(number).map(|n| n as f64).or(number.parse::<f64>().ok()) {
            Some(n) if n * factor >= 1.0 && (n * factor).is_finite() => Ok(Self((n * factor) as u64)),
            _ => Err(Error::Invalid(format!("'{s}' is no size; give a number with KiB, MiB, GiB or TiB"))),
        }
    }
}

/// Parses a whole number of an option.
pub(crate) fn whole<T: TryFrom<u64>>(s: &str) -> std::result::Result<T, &'static str> {
    count(s).ok_or("give a whole number in range, such as 200000 or 2e5")
}

impl Common {
    /// Opens the machine on every rank and checks that all ranks use one precision. Collective.
    pub(crate) fn open_on(&self, ranks: Ranks) -> Result<Machine> {
        let specs = kolmo::lane::of_place(&self.device.0, ranks.place());
        let machine = ranks.all_ok(self.open_all(&specs))?;
        ranks.expect_same("precision", &machine.precision.to_string())?;
        Ok(machine.on_ranks(ranks))
    }

    pub(crate) fn open(&self) -> Result<Machine> {
        self.open_all(&self.device.0)
    }

    /// True if neither `--device` nor `--lanes` is given.
    pub(crate) fn leaves_device_open(&self) -> bool {
        self.device.0 == [DeviceSpec::Auto] && self.lanes.0.is_none()
    }

    pub(crate) fn open_all(&self, specs: &[DeviceSpec]) -> Result<Machine> {
        self.open_lanes(specs, self.lanes.0.unwrap_or(1))
    }

    /// Opens `lanes` lanes on each of the devices.
    pub(crate) fn open_lanes(&self, specs: &[DeviceSpec], lanes: usize) -> Result<Machine> {
        let precision = match self.precision {
            PrecisionArg::Auto => None,
            PrecisionArg::F64 => Some(Precision::F64),
            PrecisionArg::F32 => Some(Precision::F32),
            PrecisionArg::Q64 => Some(Precision::Q64),
        };
        let memory_limit = self.memory_limit.map(|s| s.0);
        let options = OpenOptions {
            precision,
            without_f64: self.without_f64.unwrap_or(Precision::F32),
            lanes,
            checked: self.checked,
            limbs: self.limbs,
            memory_limit,
            cpu_threads: None,
        };
        Machine::open(specs, &options)
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
            assert_eq!(text.parse::<Size>().expect(text).0, bytes, "{text}");
        }
        for text in ["", "0", "B", "-1", "1e999", "inf", "nan", "12XB", "0.5B", "1 2"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
