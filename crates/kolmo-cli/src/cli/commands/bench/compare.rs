//! `kolmo bench compare`.

use std::time::SystemTime;

use serde_json::Value;

use crate::cli::arguments::expect_some;
use crate::cli::output::write_records;
use crate::cli::prelude::*;
use crate::plot::short;
use crate::report::{facts, times};
use kolmo::lane::list;
use kolmo_bench::compare::{Jobs, Part, Work};

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Size of the jobs: tiny (seconds), small (for CPUs), medium (for GPUs), large (as in the
    /// papers)
    #[arg(long, value_name = "SIZE", default_value = "small", value_parser = kolmo_bench::compare::jobs)]
    size: Jobs,
    /// Measure only these parts, comma-separated
    #[arg(long, value_name = "PART[,…]", value_delimiter = ',', value_parser = named(&Part::ALL))]
    only: Vec<Part>,
    /// Number of measurements of each case [default: that of the size]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    repeat: Option<usize>,
    /// Show the lines of an earlier --report instead of measuring; repeatable
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "only", "repeat", "device"])]
    from: Vec<PathBuf>,
    /// Also show the lines of a --report of another build or machine; repeatable
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Compare) -> Result<Outcome> {
    let common = &args.common;
    args.repeat.map_or(Ok(()), |repeat| expect_some("--repeat", repeat as u64))?;
    let why = "--lanes N: the lanes of this comparison are 1, 2, 4, …; leave --lanes out";
    expect(common.lanes.is_none(), why)?;
    for (k, device) in common.device.iter().enumerate() {
        let why = format_args!(
            "--device names {device} twice, whose lines would stand on each other; name it once"
        );
        expect(!common.device[..k].contains(device), why)?;
    }
    // Outputs are opened and other reports read before the measurements, so that errors show early.
    let report = common.report_file(Ranks::ALONE)?;
    let mut others = Vec::new();
    for path in &args.with {
        others.extend(read(path)?);
    }
    let (lines, notes) = match &args.from[..] {
        [] => measure(args)?,
        files => (stored(files)?, String::new()),
    };
    write_records(report, &lines)?;
    let own = lines
        .into_iter()
        .map(|line| Measured { device: line["spec"].as_str().unwrap_or("").to_owned(), line });
    let measured: Vec<Measured> = own.chain(others).collect();
    print(format_args!("{}\n{notes}", table(&measured))).map(|()| Outcome::Met)
}

/// Line of a report (one measurement) with the name of its device in the table.
struct Measured {
    /// Device, such as `cuda:0`, followed by the file name for lines of another run.
    device: String,
    line: Value,
}

impl Measured {
    fn text(&self, key: &str) -> &str {
        self.line[key].as_str().unwrap_or("")
    }

    /// Returns the number at a key as `show` writes it, or an empty text.
    fn number(&self, key: &str, show: impl Fn(f64) -> String) -> String {
        self.line[key].as_f64().map_or(String::new(), show)
    }

    fn seconds(&self, key: &str) -> String {
        self.line["seconds"][key].as_f64().map_or(String::new(), seconds)
    }
}

/// Measures, and returns the lines and notes on jobs that did not fit.
fn measure(args: &Compare) -> Result<(Vec<Value>, String)> {
    let common = &args.common;
    // Opens every device once, so that errors show early.
    let mut devices = Vec::new();
    for spec in &common.device {
        let machine = common.open(std::slice::from_ref(spec))?;
        devices.extend(machine.lanes.iter().map(|lane| lane.device().spec.clone()));
    }
    let specs: Vec<DeviceSpec> = devices.iter().map(|spec| spec.parse()).collect::<Result<_>>()?;
    let parts = Part::ALL.into_iter().map(|(.., part)| part);
    let parts: Vec<Part> = parts.filter(|part| args.only.is_empty() || args.only.contains(part)).collect();
    let jobs = Jobs { repeat: args.repeat.unwrap_or(args.size.repeat), ..args.size };
    let started = Instant::now();
    let mut watch = |what: &str| -> Result<()> {
        interrupt::check()?;
        if !common.quiet {
            say(format_args!("{:7.1} s  {what}", started.elapsed().as_secs_f64()));
        }
        Ok(())
    };
    let cpu = common.open_cpu()?;
    let work = Work::new(jobs, &parts, &cpu, &mut watch)?;
    drop(cpu);
    let (mut lines, mut notes) = (Vec::new(), String::new());
    for (spec, device) in specs.iter().zip(&devices) {
        let open = |count: usize| common.open_lanes(std::slice::from_ref(spec), count);
        let mut note = |what: String| notes += &format!("{device}: {what}\n");
        lines.extend(work.measure(&open, device, &mut watch, &mut note)?);
    }
    relate(&mut lines);
    let (host, date, all) = (facts::processor(), httpdate::fmt_http_date(SystemTime::now()), list());
    for line in &mut lines {
        let driver = all.iter().find(|l| line["spec"] == l.device.spec).map(|l| &l.driver);
        line["build"] = json!(facts::build());
        line["host"] = json!(host);
        line["driver"] = json!(driver);
        line["date"] = json!(date);
    }
    Ok((lines, notes))
}

/// Reads lines of earlier reports as if they were measured now.
fn stored(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut lines = Vec::new();
    for path in files {
        lines.extend(read(path)?.into_iter().map(|measured| measured.line));
    }
    relate(&mut lines);
    Ok(lines)
}

/// Reads the lines of another run and appends the file's name to its device names.
fn read(path: &Path) -> Result<Vec<Measured>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |reason: String| Error::Parse { path: path.into(), line: i as u64 + 1, reason };
        let line: Value = serde_json::from_str(line).map_err(|e| {
            fail(format!("{e}; give a report of `kolmo bench compare --report`, one JSON object a line"))
        })?;
        for key in ["bench", "case", "spec", "part"] {
            if !line[key].is_string() {
                return Err(fail(format!("no \"{key}\"; give a report of `kolmo bench compare --report`")));
            }
        }
        if !line["seconds"]["median"].is_number() {
            return Err(fail("no \"seconds\" with a \"median\"; it is no line of a measurement".to_owned()));
        }
        let device = format!("{} in {stem}", line["spec"].as_str().unwrap_or(""));
        all.push(Measured { device, line });
    }
    if all.is_empty() {
        let reason = "has no line; give a report of `kolmo bench compare --report`".to_owned();
        return Err(Error::File { path: path.into(), reason });
    }
    Ok(all)
}

/// Sets the speed of every line relative to the first line of equal work.
///
/// That line is from the device named first, with one lane if there are several numbers of lanes.
fn relate(lines: &mut [Value]) {
    let work = |line: &Value| ["bench", "case", "part"].map(|key| line[key].clone()).to_vec();
    let all: Vec<_> = lines.iter().map(|line| (work(line), line["seconds"]["median"].as_f64())).collect();
    for (line, own) in lines.iter_mut().zip(&all) {
        let first = all.iter().find(|a| a.0 == own.0);
        if let (Some((_, Some(first))), Some(own)) = (first, own.1) {
            line["speed"] = json!(first / own);
        }
    }
}

fn table(measured: &[Measured]) -> comfy_table::Table {
    let rates =
        [("steps_per_s", " Msteps/s", 1e-6), ("rows_per_s", " Mrows/s", 1e-6), ("gb_per_s", " GB/s", 1.0)];
    report::table(
        measured,
        &[
            ("part", &|m| m.text("part").to_owned()),
            ("case", &|m| m.text("case").to_owned()),
            ("device", &|m| {
                let [device, backend, precision] = ["device", "backend", "precision"].map(|key| m.text(key));
                format!("{} {device} ({backend}, {precision})", m.device)
            }),
            ("format", &|m| m.text("format").to_owned()),
            ("lanes", &|m| m.number("lanes", |lanes| lanes.to_string())),
            ("median", &|m| m.seconds("median")),
            ("least", &|m| m.seconds("min")),
            ("rate", &|m| {
                let rate = rates.iter().find(|(key, ..)| m.line[key].as_f64().is_some_and(|rate| rate > 0.0));
                rate.map_or(String::new(), |(key, unit, scale)| {
                    m.number(key, |rate| short(scale * rate)) + unit
                })
            }),
            ("speed", &|m| m.number("speed", times)),
            ("error", &|m| {
                m.number("relative_error", |e| if e == 0.0 { "0".to_owned() } else { format!("{e:.1e}") })
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_relative_to_the_first_device_of_the_same_work() {
        let line = |case: &str, part: &str, lanes: u64, median: f64| json!({"bench": "b", "case": case, "part": part, "lanes": lanes, "seconds": {"median": median}});
        let mut lines = vec![
            line("a", "step", 1, 8.0),
            line("a", "step", 1, 2.0),
            line("b", "step", 1, 3.0),
            line("t", "transfer", 1, 4.0),
            line("t", "transfer", 2, 2.0),
            line("a", "tridiagonal", 1, 1.0),
            line("a", "tridiagonal", 8, 0.5),
        ];

        relate(&mut lines);

        let speeds: Vec<f64> = lines.iter().map(|l| l["speed"].as_f64().unwrap()).collect();
        assert_eq!(speeds, [1.0, 4.0, 1.0, 1.0, 2.0, 1.0, 2.0]);
    }
}
