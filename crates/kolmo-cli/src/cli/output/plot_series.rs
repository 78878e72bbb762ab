//! `--plot FILE.svg`: probabilities over time, half-widths over chains, times over sizes.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::ops::Range;

use crate::cli::output::values::{Selection, Style};
use crate::cli::prelude::*;
use crate::plot::palette::REFERENCE;
use crate::plot::{Axis, ChartLine, HeatMap, LineChart, Stroke};
use kolmo::internals::larger_first;
use kolmo::settings::{Key, Tuned};
use kolmo::tridiagonal::lane_count::{SizeTimes, choice};
use kolmo::walk::{Component, Solution};
use kolmo_check::PropertyAnswer;
use kolmo_model::Value;

/// Maximum number of lines in a chart: one per colour, except the colour of reference lines.
const MOST: usize = REFERENCE;

/// Number of most likely states that are drawn by default.
const LIKELY: usize = 5;

/// Maximum bytes of the vectors that are kept to find the most likely states.
const ROOM: usize = 1 << 30;

/// Opens the file of a chart, before the work starts.
pub(crate) fn create(path: &Path) -> Result<OutputFile> {
    extension(path, "charts", ".svg")?;
    OutputFile::create(path)
}

fn write(file: OutputFile, svg: &str) -> Result<()> {
    complete(file, |file| file.write_all(svg.as_bytes()))
}

/// Probabilities over the times of `kolmo transient`.
pub(crate) struct Curves {
    ranks: Ranks,
    /// This rank's states, to which the received vectors belong.
    pub(crate) rows: Range<usize>,
    /// File of the chart, only on rank 0.
    file: Option<OutputFile>,
    model: String,
    times: Vec<f64>,
    wanted: PlottedStates,
    style: Style,
}

enum PlottedStates {
    /// Labels or states, with (name, value) at each time.
    Named(Selection, Vec<Vec<(String, f64)>>),
    /// The `k` most likely states, and this rank's part of the vector at each time.
    Likely(usize, Vec<Vec<f64>>),
}

impl Curves {
    /// Prepares the chart of selected labels or states, else of the most likely states.
    pub(crate) fn new(
        file: Option<OutputFile>,
        model: &str,
        selection: &Selection,
        times: &[f64],
        states: usize,
        style: &Style,
        ranks: Ranks,
    ) -> Result<Self> {
        let finite = times.iter().filter(|t| t.is_finite()).count();
        if finite < 2 {
            return fail(format!(
                "--plot draws probabilities over time, and {finite} finite times were asked for; give more, such as \
                 --times 0:0.5:10"
            ));
        }
        let empty = || vec![Vec::new(); times.len()];
        let many = |what: &str, count: usize| {
            fail(format!("--plot draws at most {MOST} lines, and {count} {what} were named; name fewer"))
        };
        let wanted = match selection {
            Selection::Labels(labels) if labels.len() > MOST => return many("labels", labels.len()),
            Selection::States(named) if named.len() > MOST => return many("states", named.len()),
            Selection::Labels(_) | Selection::States(_) => PlottedStates::Named(selection.clone(), empty()),
            Selection::Top(k) if *k > MOST => return many("states", *k),
            Selection::All | Selection::Top(_) => {
                let bytes = 8 * (states / ranks.size()) * times.len();
                if bytes > ROOM {
                    return fail(format!(
                        "--plot would keep {} vectors of {states} states ({}) to find the most likely ones; name states or \
                         labels with --states or --label, or give fewer times",
                        times.len(),
                        report::bytes(bytes as u64)
                    ));
                }
                let k = if let Selection::Top(k) = selection { *k } else { LIKELY };
                PlottedStates::Likely(k, vec![Vec::new(); times.len()])
            }
        };
        let (model, times, style) = (model.to_owned(), times.to_vec(), style.clone());
        Ok(Self { ranks, rows: 0..states, file, model, times, wanted, style })
    }

    /// Stores the probabilities at a time.
    pub(crate) fn result(&mut self, index: usize, p: &[f64]) {
        match &mut self.wanted {
            PlottedStates::Named(selection, rows) => rows[index] = selection.pick(p, &self.rows, self.ranks),
            PlottedStates::Likely(_, vectors) => vectors[index] = p.to_vec(),
        }
    }

    /// Draws the chart and completes its file. Collective.
    pub(crate) fn finish(self) -> Result<()> {
        let (rows, what) = match self.wanted {
            PlottedStates::Named(Selection::Labels(_), rows) => (rows, "labels"),
            PlottedStates::Named(_, rows) => (rows, "states"),
            PlottedStates::Likely(k, vectors) => {
                (likely(&vectors, k, &self.rows, self.ranks), "the most likely states")
            }
        };
        let Some(file) = self.file else { return Ok(()) };
        let mut order: Vec<usize> = (0..self.times.len()).filter(|&i| self.times[i].is_finite()).collect();
        order.sort_by(|&a, &b| self.times[a].total_cmp(&self.times[b]));
        let line = |(k, (name, _)): (usize, &(String, f64))| {
            let name =
                if what == "labels" { name.clone() } else { format!("state {}", self.style.state(name)) };
            let stroke = if order.len() > 40 { Stroke::Bare } else { Stroke::Solid };
            ChartLine::new(name, k, stroke, order.iter().map(|&i| (self.times[i], rows[i][k].1)).collect())
        };
        let lines = rows.iter().take(1).flatten().enumerate().map(line).collect();
        let (x, y) = (Axis::linear("time (1 / unit of the rates)"), Axis::linear("probability"));
        write(file, &LineChart { title: format!("{}: {what}", self.model), x, y, lines }.svg())
    }
}

/// Values of the `k` states with the largest maximum over all times, largest first.
///
/// `vectors` hold the probabilities of this rank's `rows`. Collective.
fn likely(vectors: &[Vec<f64>], k: usize, rows: &Range<usize>, ranks: Ranks) -> Vec<Vec<(String, f64)>> {
    // Each of them is among the k largest at some time.
    let mut most: HashMap<u32, f64> = HashMap::new();
    for p in vectors {
        for (name, p) in Selection::Top(k).pick(p, rows, ranks) {
            let most =
                most.entry(name.parse().expect("Top should name states by their numbers")).or_default();
            *most = most.max(p);
        }
    }
    let mut states: Vec<(usize, f64)> = most.into_iter().map(|(state, p)| (state as usize, p)).collect();
    states.sort_unstable_by(larger_first);
    states.truncate(k);
    let states = Selection::States(states.into_iter().map(|(state, _)| state as u32).collect());
    vectors.iter().map(|p| states.pick(p, rows, ranks)).collect()
}

/// Draws the half-widths after each round over the number of chains.
pub(crate) fn convergence(file: OutputFile, system: &str, solution: &Solution) -> Result<()> {
    let several = solution.rounds.iter().any(|c| c.rhs > 0);
    let name = |c: &Component| {
        let rhs = if several { format!(" of {}", c.rhs) } else { String::new() };
        format!("{}{rhs}", report::walk::symbol(c))
    };
    let mut names: Vec<String> = Vec::new();
    for c in &solution.rounds {
        if !names.contains(&name(c)) && names.len() < MOST {
            names.push(name(c));
        }
    }
    let line = |(color, line): (usize, &String)| {
        let own = solution.rounds.iter().filter(|c| name(c) == *line);
        let points = own.map(|c| (c.chains as f64, c.half_width)).collect();
        ChartLine::new(line, color, Stroke::Solid, points)
    };
    let mut lines: Vec<ChartLine> = names.iter().enumerate().map(line).collect();
    let chains = solution.rounds.iter().map(|c| c.chains as f64);
    let (least, most) = chains.fold((f64::INFINITY, 0.0f64), |(a, b), n| (a.min(n), b.max(n)));
    if least <= most {
        // Widens the range: with one number of chains the line would be a point.
        let points = [0.7 * least, 1.4 * most].map(|x| (x, solution.epsilon)).to_vec();
        let name = format!("asked for: {}", crate::plot::short(solution.epsilon));
        lines.push(ChartLine::new(name, REFERENCE, Stroke::Dotted, points));
    }
    let (x, y) = (Axis::log("chains"), Axis::log("half-width"));
    write(file, &LineChart { title: format!("{system}: half-widths"), x, y, lines }.svg())
}

/// Draws nanoseconds per row over the number of rows, one line per number of lanes.
pub(crate) fn lanes(file: OutputFile, tuned: &Tuned) -> Result<()> {
    let points = |of: &dyn Fn(&SizeTimes) -> Option<f64>| -> Vec<(f64, f64)> {
        tuned.sizes.iter().filter_map(|s| Some((s.n as f64, 1e6 * of(s)? / s.n as f64))).collect()
    };
    let line = |(color, &lanes): (usize, &usize)| {
        let name = if lanes == 1 { "1 lane".to_owned() } else { format!("{lanes} lanes") };
        ChartLine::new(name, color, Stroke::Bare, points(&|s| s.time(lanes)))
    };
    let mut lines: Vec<ChartLine> = choice::counts(&tuned.sizes).iter().enumerate().map(line).collect();
    let chosen = points(&|s| s.time(tuned.lanes(s.n)));
    lines.push(ChartLine::new("auto", REFERENCE, Stroke::Points, chosen));
    let Key { device, backend, precision, .. } = &tuned.key;
    let title = format!("{device} ({backend}, {precision}): host to host");
    write(file, &LineChart { title, x: Axis::log("rows"), y: Axis::log("ns a row"), lines }.svg())
}

/// Draws answers over the values of the last constant that has several.
///
/// Each property has a line for each combination of the other constants. If these are too many
/// lines, one property over two constants is drawn as a heat map.
pub(crate) fn study<'a>(
    file: OutputFile,
    model: &str,
    ranges: &[String],
    rows: impl Iterator<Item = &'a PropertyAnswer>,
) -> Result<()> {
    let Some((x, others)) = ranges.split_last() else {
        return fail("--plot draws answers over values of a constant; give several, such as T=0:5");
    };
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let (mut texts, mut cells) = (BTreeSet::new(), Vec::new());
    for row in rows {
        let of = |name: &str| row.constants.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        let (Some(place), Some(value)) = (of(x).and_then(Value::number), row.value()) else { continue };
        texts.insert(&row.text);
        cells.extend(others.first().and_then(|y| Some((place, of(y)?.number()?, value))));
        let others = others.iter().filter_map(|name| Some(format!(" {name}={}", of(name)?)));
        let name = row.text.clone() + &others.collect::<String>();
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((place, value)),
            None => lines.push((name, vec![(place, value)])),
        }
    }
    if let ([y], [text], true) = (others, &texts.iter().collect::<Vec<_>>()[..], lines.len() > MOST) {
        let (title, x, y) = (format!("{model}: {text}"), x.clone(), y.clone());
        return write(file, &HeatMap { title, x, y, cells }.svg());
    }
    if lines.len() > MOST {
        return fail(format!(
            "--plot draws at most {MOST} lines, one for each property and value of {}, and there are {}; \
             give fewer",
            others.join(", "),
            lines.len()
        ));
    }
    let line = |(color, (name, mut points)): (usize, (String, Vec<(f64, f64)>))| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stroke = if points.len() > 40 { Stroke::Bare } else { Stroke::Solid };
        ChartLine::new(name, color, stroke, points)
    };
    let lines = lines.into_iter().enumerate().map(line).collect();
    let (x, y) = (Axis::linear(x.clone()), Axis::linear("value"));
    write(file, &LineChart { title: format!("{model}: answers"), x, y, lines }.svg())
}
