//! `kolmo tune`.

use std::io::Write;
use std::time::SystemTime;

use crate::cli::output::plot_series;
use crate::cli::planning::lanes::LaneSets;
use crate::cli::prelude::*;
use crate::report::{DeviceReport, TableColumn, devices};
use kolmo::bench::{bandwidth, lane_times, largest_system};
use kolmo::settings::{self, Key, SCHEMA, StoredTuning, Tuned};
use kolmo::tridiagonal::lane_count::choice::{self, Regret};
use kolmo::tridiagonal::lane_count::measure::Effort;
use kolmo::tridiagonal::lane_count::{BEST_GAIN, FEWEST_SIZES, LANE_COUNTS, SizeTimes, sizes};

#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Largest tridiagonal system to measure, in rows, if memory permits; at least 7500
    #[arg(long, value_name = "ROWS", default_value = "1e8", value_parser = whole::<usize>)]
    max_size: usize,
    /// Largest number of lanes to measure; the numbers are 1, 2, 4, 8, 16, 32
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<usize>)]
    max_lanes: usize,
    /// Minimum number of measurements of each size and number of lanes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<usize>)]
    repeat: usize,
    /// Draw the time per row over the sizes, for each number of lanes of one device, as an SVG
    /// chart
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Tune) -> Result<Status> {
    let wanted: Vec<usize> = sizes().into_iter().filter(|&n| n <= args.max_size).collect();
    let (common, count) = (&args.common, wanted.len());
    let why = format_args!(
        "--max-size {} leaves {count} of the sizes 1000, 2500, 4000, 5000, 7500, …; the choice of lanes needs {FEWEST_SIZES}: give 7500 \
         or more",
        args.max_size
    );
    expect(count >= FEWEST_SIZES, why)?;
    let why = "tune measures 1, 2, 4, … lanes, several times: give --max-lanes, 1 or more, to stop earlier, and --repeat, 1 or \
               more";
    expect(common.lanes.is_none() && args.max_lanes > 0 && args.repeat > 0, why)?;
    let Some(folder) = settings::folder() else {
        return fail(format!("this system names no folder for settings; set {} to one", settings::VARIABLE));
    };
    settings::prepare(&folder)?;
    let counts: Vec<usize> = LANE_COUNTS.into_iter().filter(|&lanes| lanes <= args.max_lanes).collect();
    let report = common.report_file(Ranks::ALONE)?;
    if let (Some(plot), devices @ 2..) = (&args.plot, common.device.len()) {
        let plot = plot.display();
        return fail(format!("--plot {plot} draws one device, and {devices} are named; name one"));
    }
    let mut plot = args.plot.as_deref().map(plot_series::create).transpose()?;
    let mut out = OutputFile::stdout();
    let begun = Instant::now();
    let (mut all, mut files, mut used) = (Vec::new(), Vec::new(), Vec::new());
    for spec in &common.device {
        let tuned = tune(args, spec, &folder, &wanted, &counts, &mut used)?;
        let path = settings::save(&folder, &tuned)?;
        writeln!(out, "{}", text(&tuned)).map_err(|e| out.error(e))?;
        if !args.common.quiet {
            say(format_args!("stored in {}", path.display()));
        }
        plot.take().map(|file| plot_series::lanes(file, &tuned)).transpose()?;
        files.push(path);
        all.push(tuned);
    }
    out.commit()?;
    let object = json!({
        "command": "tune",
        "status": "met",
        "bound": {"regret": all.iter().map(|t| regret(t).worst).fold(0.0, f64::max)},
        "devices": used,
        "seconds": {"total": begun.elapsed().as_secs_f64()},
        "files": files,
        "tuned": all,
    });
    write_object(report, &object).map(|()| Status::Met)
}

/// Measures one device.
fn tune(
    args: &Tune,
    spec: &DeviceSpec,
    folder: &Path,
    wanted: &[usize],
    counts: &[usize],
    used: &mut Vec<DeviceReport>,
) -> Result<Tuned> {
    let at = Instant::now();
    let machine = args.common.open_lanes(std::slice::from_ref(spec), 1)?;
    let start = Some(1e3 * at.elapsed().as_secs_f64());
    let device = machine.lanes[0].device().clone();
    let precision = machine.precision;
    drop(machine);
    let key = Key::new(&device, precision);
    settings::replaceable(folder, &key)?;
    if let StoredTuning::Unusable(why) = settings::load(folder, &key)
        && !args.common.quiet
    {
        say(format_args!("repeating unusable measurements: {why}"));
    }
    // The first lane has loaded drivers and compiled kernels, so this times opening alone.
    let at = Instant::now();
    let LaneSets { sets, opened } = LaneSets::open(&args.common, spec, counts)?;
    let lane_opening = 1e3 * at.elapsed().as_secs_f64() / opened as f64;
    used.extend(devices(&sets[sets.len() - 1]));
    let largest = largest_system(&sets[0].lanes[0], precision, wanted[wanted.len() - 1]);
    let fitting: Vec<usize> = wanted.iter().copied().filter(|&n| n <= largest).collect();
    let what = format!("{} ({}, {precision})", device.name, device.backend);
    let (held, left_out) = (fitting.len(), wanted.len() - fitting.len());
    if left_out > 0 && !args.common.quiet {
        let rows = grouped(largest as u64);
        say(format_args!("{what}: memory holds {rows} rows; {left_out} larger sizes are left out"));
    }
    let why = format_args!(
        "{what}: memory holds {held} of the sizes to measure, and the choice of lanes needs {FEWEST_SIZES}; free some of it, or raise \
         --memory-limit"
    );
    expect(held >= FEWEST_SIZES, why)?;
    let effort =
        Effort { least: args.repeat, most: args.repeat.max(Effort::default().most), ..Effort::default() };
    if !args.common.quiet {
        say(format_args!("{what}: {}", predicted(&sets, &fitting, effort)?));
    }
    let mut done = 0;
    let measured = lane_times(&sets, &fitting, effort, &mut |n| {
        interrupt::check()?;
        done += 1;
        if !args.common.quiet {
            say(format_args!("{what}: {} rows, size {done} of {}", grouped(n as u64), fitting.len()));
        }
        Ok(())
    })?;
    let speed = 1e9 * bandwidth(&sets[0].lanes, args.repeat)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Tuned {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        measured_at: since.map_or(0, |d| d.as_secs()),
        key,
        driver: device.driver.clone(),
        repetitions: args.repeat,
        lane_opening,
        start,
        lane_cost: measured[0].lane_cost(),
        bytes_per_second: Some(speed),
        unknown: Vec::new(),
        sizes: measured,
    })
}

/// Predicts time and memory of measuring these sizes, from a pilot of at most 250 000 rows.
fn predicted(sets: &[Machine], sizes: &[usize], effort: Effort) -> Result<String> {
    let (largest, first) = (sizes[sizes.len() - 1], &sets[0]);
    let (rows, once) = (largest.min(250_000), Effort { least: 1, most: 1, seconds: 0.0 });
    let pilot = lane_times(&sets[..1], &[rows], once, &mut |_| interrupt::check())?;
    let row = 1e-3 * pilot[0].one_lane() / rows as f64;
    // Each visit has one warm-up solution.
    let solutions = sets.len() * (effort.least + 2);
    let size = |&n: &usize| {
        let solution = n as f64 * row;
        let most = (effort.most * sets.len()) as f64 * solution.max(1e-4);
        effort.seconds.max(solutions as f64 * solution).min(most)
    };
    // Arrays dl, d, du, b and x; twice if device and host share their memory.
    let copies = if first.lanes[0].device().limits.unified { 2 } else { 1 };
    let memory = bytes(copies * 5 * first.precision.bytes() * largest as u64);
    let (count, rows, lanes) = (sizes.len(), grouped(largest as u64), sets[sets.len() - 1].lanes.len());
    let time = seconds(sizes.iter().map(size).sum());
    Ok(format!(
        "{count} sizes up to {rows} rows on up to {lanes} lanes: about {time} and {memory}; --max-size ROWS takes less of both"
    ))
}

/// Returns the additional time of the chosen lane counts over the measured sizes.
fn regret(tuned: &Tuned) -> Regret {
    Regret::of(&tuned.sizes, |i| tuned.lanes(tuned.sizes[i].n))
}

/// Formats milliseconds with four digits.
fn ms(time: f64) -> String {
    let digits = (3 - time.abs().log10().floor().clamp(-3.0, 3.0) as i32).max(0) as usize;
    format!("{time:.digits$}")
}

fn text(tuned: &Tuned) -> String {
    let Key { device, backend, precision, .. } = &tuned.key;
    let table = table(tuned);
    let mut out = format!("{device} ({backend}, {precision}): milliseconds host to host, medians\n{table}\n");
    let mut line = |text: String| out += &format!("{text}\n");
    let [cost, opening] = [tuned.lane_cost, tuned.lane_opening].map(ms);
    line(format!("a lane costs τ = {cost} ms in each solution, and once {opening} ms to open"));
    tuned.bytes_per_second.iter().for_each(|speed| line(format!("copies {:.1} GB/s", speed / 1e9)));
    let Regret { missed: misses, worst, .. } = regret(tuned);
    let best = tuned.sizes.iter().map(|s| s.one_lane() / s.best().median).fold(1.0, f64::max);
    let (sizes, longer) = (tuned.sizes.len(), 100.0 * worst);
    line(format!(
        "--lanes auto misses {misses} of {sizes} sizes by 5 % and 20 µs, the worst takes {longer:.1} % longer than its best"
    ));
    line(format!("largest gain over one lane {best:.2} x (published for an RTX 2080 Ti: {BEST_GAIN:.2} x)"));
    out
}

fn table(tuned: &Tuned) -> comfy_table::Table {
    let lanes: Vec<(usize, String)> = (choice::counts(&tuned.sizes).into_iter())
        .map(|lanes| (lanes, if lanes == 1 { "1 lane".to_owned() } else { lanes.to_string() }))
        .collect();
    let time = |lanes: usize| move |size: &SizeTimes| size.time(lanes).map_or(String::new(), ms);
    let times: Vec<_> = lanes.iter().map(|(lanes, heading)| (heading, time(*lanes))).collect();
    let auto = |size: &SizeTimes| tuned.lanes(size.n);
    let gain = |size: &SizeTimes, time: f64| format!("{:.3}", size.one_lane() / time);
    let mut columns: Vec<TableColumn<'_, SizeTimes>> = vec![("rows", &|size| grouped(size.n as u64))];
    columns.extend(times.iter().map(|(heading, time)| (&heading[..], time as &dyn Fn(&SizeTimes) -> String)));
    let others: [TableColumn<'_, SizeTimes>; 4] = [
        ("best", &|size| size.best().lanes.to_string()),
        ("auto", &|size| auto(size).to_string()),
        ("gain", &|size| gain(size, size.best().median)),
        ("auto's", &|size| size.time(auto(size)).map_or(String::new(), |time| gain(size, time))),
    ];
    columns.extend(others);
    report::table(&tuned.sizes, &columns)
}
