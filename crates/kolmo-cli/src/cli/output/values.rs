//! Output of probabilities and rewards: whole vectors, selected values, tables.

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::cli::output::collective_file::SharedFile;
use crate::cli::prelude::*;
use kolmo::internals::{add_states, larger_first, largest};
use kolmo::io::npy::NpyWriter;
use kolmo::io::write;
use kolmo::transient::{RewardValue, Solution, StateNames};

/// Format of states and values in the output.
#[derive(Clone, Default)]
pub(crate) struct Style {
    /// Names of the states, if they have names.
    pub(crate) names: Option<Arc<StateNames>>,
    /// True for PRISM's format of results.
    pub(crate) prism: bool,
}

impl Style {
    /// Returns a state's number followed by its name, if it has one.
    pub(crate) fn state(&self, number: &str) -> String {
        self.name(number).map_or_else(|| number.to_owned(), |name| format!("{number} {name}"))
    }

    /// Returns the name of the state with this number.
    fn name(&self, number: &str) -> Option<String> {
        Some(self.names.as_ref()?.name(number.parse().ok()?))
    }
}

/// Values of each probability vector that are written.
#[derive(Clone)]
pub(crate) enum Selection {
    /// The whole vector.
    All,
    /// The probabilities of these states.
    States(Vec<u32>),
    /// The probability of each label: (name, states).
    Labels(Vec<(String, Vec<u32>)>),
    /// The largest probabilities, this many.
    Top(usize),
}

/// Format of whole vectors.
enum VectorOutput {
    /// `.npy`, written row by row. Early rows wait until all rows before them are written.
    Npy { path: PathBuf, writer: NpyWriter<OutputFile>, waiting: Vec<Option<Vec<f64>>>, next: usize },
    /// `.npy` on several ranks.
    Shared(SharedFile),
    /// `.csv`. `output` is `None` on ranks other than 0.
    Csv { output: Option<OutputFile>, columns: Vec<Vec<f64>> },
    /// `.txt`: one vector. `output` is `None` on ranks other than 0.
    Text { output: Option<OutputFile>, values: Vec<f64> },
}

/// The file of `-o`, opened before the work starts.
pub(crate) struct Named {
    path: PathBuf,
    extension: String,
    /// Output file, only on rank 0.
    file: Option<OutputFile>,
}

impl Named {
    /// Opens the file of `-o` after checking its extension.
    ///
    /// `table` is true for selected values, `times` the number of vectors otherwise. `text` selects
    /// text for every extension.
    pub(crate) fn create(path: &Path, table: bool, times: usize, text: bool, ranks: Ranks) -> Result<Self> {
        let stdout = path == Path::new("-");
        let given = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        let reason = match &given[..] {
            "npy" | "npz" if text => format!("--format prism writes text, which no .{given} holds; use .txt"),
            _ if text || stdout => String::new(),
            "csv" => String::new(),
            _ if table => "what --states, --label and --top select is written as .csv; use that".to_owned(),
            "txt" if times > 1 => {
                format!(".txt holds one time, and {times} were asked for; use .csv or .npy")
            }
            "npy" | "txt" => String::new(),
            _ => extension(path, "probabilities", ".npy, .csv or .txt").map(|_| String::new())?,
        };
        if !reason.is_empty() {
            return Err(Error::File { path: path.into(), reason });
        }
        let extension = if text || stdout { "csv" } else { &given };
        let create = || match ranks.is_distributed() {
            _ if stdout => Ok(OutputFile::stdout()),
            true => OutputFile::create_shared(path),
            false => OutputFile::create(path),
        };
        let file = ranks.is_root().then(create).transpose()?;
        Ok(Self { path: path.into(), extension: extension.to_owned(), file })
    }
}

/// Rows `time,what,value` of selected values.
struct ValueTable {
    selection: Selection,
    rows: Vec<Vec<(String, f64)>>,
    output: Option<OutputFile>,
}

/// Receives the probabilities of each time and writes the requested output.
pub(crate) struct Sink {
    ranks: Ranks,
    /// This rank's states, to which the received vectors belong.
    pub(crate) rows: Range<usize>,
    /// Number of states of the chain.
    states: usize,
    times: Vec<f64>,
    vectors: Option<VectorOutput>,
    table: Option<ValueTable>,
    /// The ten largest values, for a terminal.
    glance: Option<ValueTable>,
    rewards: Option<OutputFile>,
    style: Style,
    /// Probability of paths that fail before the lower time bound; subtracted from a table's
    /// values.
    pub(crate) uncounted: Option<f64>,
}

/// Number of values shown on a terminal instead of the vector.
const GLANCE: usize = 10;

impl Sink {
    /// Prepares the outputs. If `rewards` is true, rewards go to stdout instead of the vector.
    pub(crate) fn open(
        file: Option<Named>,
        selection: Selection,
        rewards: bool,
        times: &[f64],
        states: usize,
        style: Style,
        ranks: Ranks,
    ) -> Result<Self> {
        let table = |output, selection| ValueTable { selection, rows: vec![Vec::new(); times.len()], output };
        // Rank 0 writes to stdout, and its stdout decides for all ranks.
        let stdout = || ranks.is_root().then(OutputFile::stdout);
        let terminal = ranks.all_gather(&[u8::from(std::io::stdout().is_terminal())])[0] == [1];
        if rewards {
            let why = "rewards and -o - both go to stdout; give the vector a file with -o";
            expect(file.as_ref().is_none_or(|file| file.path != Path::new("-")), why)?;
            let why =
                "rewards and --states, --label or --top both go to stdout; give the latter a file with -o";
            expect(file.is_some() || matches!(selection, Selection::All), why)?;
        }
        let (mut vectors, mut selected, mut glance) = (None, None, None);
        match (selection, file) {
            (Selection::All, Some(file)) => vectors = Some(VectorOutput::create(file, times, states, ranks)?),
            (Selection::All, None) if rewards => {}
            (Selection::All, None) if terminal && !style.prism => {
                glance = Some(table(stdout(), Selection::Top(GLANCE)));
            }
            (Selection::All, None) => {
                vectors =
                    Some(VectorOutput::Csv { output: stdout(), columns: vec![Vec::new(); times.len()] });
            }
            (some, Some(named)) => selected = Some(table(named.file, some)),
            (some, None) => selected = Some(table(stdout(), some)),
        }
        let rewards = if rewards { stdout() } else { None };
        let times = times.to_vec();
        let (table, rows) = (selected, 0..states);
        let sink =
            Self { ranks, rows, states, times, vectors, table, glance, rewards, style, uncounted: None };
        ranks.all_ok(sink.outputs().try_for_each(OutputFile::expect_open))?;
        Ok(sink)
    }

    /// Returns the outputs that may be stdout.
    fn outputs(&self) -> impl Iterator<Item = &OutputFile> {
        let vectors = match &self.vectors {
            Some(VectorOutput::Csv { output, .. } | VectorOutput::Text { output, .. }) => output.as_ref(),
            _ => None,
        };
        let tables = [&self.table, &self.glance].map(|table| table.as_ref()?.output.as_ref());
        tables.into_iter().chain([vectors, self.rewards.as_ref()]).flatten()
    }

    /// True if any output needs probabilities.
    pub(crate) fn wants_vectors(&self) -> bool {
        self.vectors.is_some() || self.table.is_some() || self.glance.is_some()
    }

    pub(crate) fn result(&mut self, index: usize, p: &[f64]) -> Result<()> {
        let ranks = self.ranks;
        for table in [&mut self.table, &mut self.glance].into_iter().flatten() {
            let mut picked = table.selection.pick(p, &self.rows, ranks);
            if let Some(uncounted) = self.uncounted {
                picked.iter_mut().for_each(|(_, value)| *value = (*value - uncounted).clamp(0.0, 1.0));
            }
            table.rows[index] = picked;
        }
        match &mut self.vectors {
            None => {}
            Some(VectorOutput::Csv { columns, .. }) => columns[index] = ranks.gather_to_root(p),
            Some(VectorOutput::Text { values, .. }) => *values = ranks.gather_to_root(p),
            Some(VectorOutput::Shared(file)) => file.write(index * self.states + self.rows.start, p)?,
            Some(VectorOutput::Npy { path, writer, waiting, next }) => {
                let mut write = |row: &[f64]| {
                    writer.write(row).map_err(|source| Error::Io { path: path.clone(), source })
                };
                if index != *next {
                    waiting[index] = Some(p.to_vec());
                    return Ok(());
                }
                write(p)?;
                *next += 1;
                while let Some(row) = waiting.get_mut(*next).and_then(Option::take) {
                    write(&row)?;
                    *next += 1;
                }
            }
        }
        Ok(())
    }

    /// Selected values of each time for the report: label or state, and value.
    pub(crate) fn values(&self) -> Option<Vec<Value>> {
        let table = self.table.as_ref()?;
        let one = |(what, value): &(String, f64)| match (&table.selection, what.parse::<u32>()) {
            (Selection::States(_) | Selection::Top(_), Ok(state)) => match self.style.name(what) {
                Some(name) => json!({ "state": state, "name": name, "value": value }),
                None => json!({ "state": state, "value": value }),
            },
            _ => json!({ "label": what, "value": value }),
        };
        Some(table.rows.iter().map(|rows| rows.iter().map(one).collect()).collect())
    }

    /// Writes all remaining output and completes the files.
    pub(crate) fn finish(self, solution: &Solution) -> Result<()> {
        let style = &self.style;
        match self.rewards {
            Some(out) if style.prism => prism_rewards(out, solution)?,
            Some(out) => complete(out, |out| out.write_all(rewards(solution).as_bytes()))?,
            None => {}
        }
        match self.vectors {
            None => {}
            Some(VectorOutput::Npy { path, writer, .. }) => {
                writer.finish().map_err(|source| Error::Io { path, source })?.commit()?;
            }
            Some(VectorOutput::Shared(file)) => file.commit(self.ranks)?,
            Some(VectorOutput::Csv { output: Some(output), columns }) => {
                let columns: Vec<&[f64]> = columns.iter().map(|c| &c[..]).collect();
                let write = if style.prism { write::write_prism } else { write::write_csv };
                complete(output, |output| write(output, &self.times, &columns, style.names.as_deref()))?;
            }
            Some(VectorOutput::Text { output: Some(output), values }) => {
                complete(output, |output| write::write_text(output, &values))?;
            }
            Some(VectorOutput::Csv { output: None, .. } | VectorOutput::Text { output: None, .. }) => {}
        }
        if let Some(table) = self.table {
            table.write(&self.times, "", style)?;
        }
        if let Some(table) = self.glance {
            let (n, shown) = (solution.n, GLANCE.min(solution.n));
            let note =
                format!("the {shown} largest of {n} states; all of them: -o FILE.npy, FILE.csv or FILE.txt");
            table.write(&self.times, &note, style)?;
        }
        Ok(())
    }
}

/// Table of the rewards.
fn rewards(solution: &Solution) -> String {
    let mut text = "time,reward,instantaneous,cumulative\n".to_owned();
    for time in &solution.times {
        for reward in &time.rewards {
            let [t, instantaneous, cumulative] =
                [time.time, reward.instantaneous, reward.cumulative].map(number);
            text += &format!("{t},{},{instantaneous},{cumulative}\n", field(&reward.name));
        }
    }
    text
}

/// A field of a table, in quotation marks where it needs them.
pub(crate) fn field(name: &str) -> String {
    let mut text = Vec::new();
    write::push_field(&mut text, name);
    String::from_utf8_lossy(&text).into_owned()
}

impl VectorOutput {
    fn create(named: Named, times: &[f64], states: usize, ranks: Ranks) -> Result<Self> {
        let Named { path, extension, file: output } = named;
        let shape = if times.len() == 1 { vec![states] } else { vec![times.len(), states] };
        if ranks.is_distributed() && extension == "npy" {
            return SharedFile::open(path, output, &shape, ranks).map(Self::Shared);
        }
        Ok(match (&extension[..], output) {
            ("npy", Some(output)) => {
                let failed = |source| Error::Io { path: path.clone(), source };
                let writer = NpyWriter::new(output, &shape).map_err(failed)?;
                Self::Npy { path, writer, waiting: vec![None; times.len()], next: 0 }
            }
            ("csv", output) => Self::Csv { output, columns: vec![Vec::new(); times.len()] },
            (_, output) => Self::Text { output, values: Vec::new() },
        })
    }
}

impl Selection {
    /// Returns the selected values on every rank. `p` holds the probabilities of `rows`.
    /// Collective.
    pub(crate) fn pick(&self, p: &[f64], rows: &Range<usize>, ranks: Ranks) -> Vec<(String, f64)> {
        let here = |s: &u32| rows.contains(&(*s as usize));
        let of = |s: u32| p[s as usize - rows.start];
        match self {
            Self::All => Vec::new(),
            Self::States(states) => {
                let mine = || (0u32..).zip(states).filter(|(_, s)| here(s));
                let places = ranks.all_gather(&mine().map(|(place, _)| place).collect::<Vec<_>>()).concat();
                let values = ranks.all_gather(&mine().map(|(_, &s)| of(s)).collect::<Vec<_>>()).concat();
                let mut all: Vec<(String, f64)> = states.iter().map(|s| (s.to_string(), f64::NAN)).collect();
                places.iter().zip(values).for_each(|(&place, value)| all[place as usize].1 = value);
                all
            }
            Self::Labels(labels) => {
                let mut sums = vec![0.0; 2 * labels.len()];
                ranks.ordered_reduce(&mut sums, |sums| {
                    for (sum, (_, states)) in sums.as_chunks_mut().0.iter_mut().zip(labels) {
                        add_states(sum, states, rows, p);
                    }
                });
                // The exact probability is within [0, 1], so this moves towards it.
                let sums = sums.as_chunks::<2>().0.iter().map(|[sum, lost]| (sum + lost).clamp(0.0, 1.0));
                labels.iter().zip(sums).map(|((name, _), sum)| (name.clone(), sum)).collect()
            }
            Self::Top(k) => {
                let mine = largest(p, *k, |p| p);
                let places: Vec<u64> = mine.iter().map(|(place, _)| (rows.start + place) as u64).collect();
                let values: Vec<f64> = mine.iter().map(|(_, p)| *p).collect();
                let places = ranks.all_gather(&places).concat().into_iter().map(|state| state as usize);
                let mut all: Vec<(usize, f64)> = places.zip(ranks.all_gather(&values).concat()).collect();
                all.sort_unstable_by(larger_first);
                all.truncate(*k);
                all.into_iter().map(|(s, p)| (s.to_string(), p)).collect()
            }
        }
    }
}

impl ValueTable {
    /// Writes the table in PRISM's format: one table per state or label.
    fn write_prism(self, times: &[f64], style: &Style, states: bool) -> Result<()> {
        let Some(out) = self.output else { return Ok(()) };
        let mut tables: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for (&time, rows) in times.iter().zip(&self.rows) {
            for (what, value) in rows {
                let what = if states { style.state(what) } else { what.clone() };
                match tables.iter_mut().find(|(known, _)| *known == what) {
                    Some((_, results)) => results.push((time, *value)),
                    None => tables.push((what, vec![(time, *value)])),
                }
            }
        }
        prism_tables(out, &tables)
    }

    fn write(self, times: &[f64], note: &str, style: &Style) -> Result<()> {
        let states = !matches!(self.selection, Selection::Labels(_));
        if style.prism {
            return self.write_prism(times, style, states);
        }
        let Some(out) = self.output else { return Ok(()) };
        let named = states && style.names.is_some();
        let mut text = format!("time,what,value{}\n", if named { ",name" } else { "" });
        for (time, rows) in times.iter().zip(&self.rows) {
            for (what, value) in rows {
                let name =
                    style.name(what).filter(|_| named).map_or(String::new(), |n| format!(",{}", field(&n)));
                text += &format!("{},{},{}{name}\n", number(*time), field(what), number(*value));
            }
        }
        complete(out, |out| out.write_all(text.as_bytes()))?;
        if !note.is_empty() {
            say(note);
        }
        Ok(())
    }
}

/// Writes tables like PRISM's `-exportresults`: one result, or times with their results.
fn prism_tables(out: OutputFile, tables: &[(String, Vec<(f64, f64)>)]) -> Result<()> {
    let mut text = String::new();
    for (k, (what, results)) in tables.iter().enumerate() {
        let several = results.len() > 1;
        let (between, head) = (if k > 0 { "\n" } else { "" }, if several { "T\t" } else { "" });
        text += &format!("{between}{what}:\n{head}Result\n");
        for (time, value) in results {
            let time = if several { number(*time) + "\t" } else { String::new() };
            text += &format!("{time}{}\n", number(*value));
        }
    }
    complete(out, |out| out.write_all(text.as_bytes()))
}

/// Writes rewards in PRISM's format, named by PRISM's operators.
fn prism_rewards(out: OutputFile, solution: &Solution) -> Result<()> {
    let mut tables: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let names = solution.times.first().map_or(&[][..], |time| &time.rewards);
    for (k, reward) in names.iter().enumerate() {
        let of = |value: fn(&RewardValue) -> f64| {
            solution.times.iter().map(|time| (time.time, value(&time.rewards[k]))).collect()
        };
        tables.push((format!("R{{\"{}\"}}=? [ I=T ]", reward.name), of(|reward| reward.instantaneous)));
        tables.push((format!("R{{\"{}\"}}=? [ C<=T ]", reward.name), of(|reward| reward.cumulative)));
    }
    prism_tables(out, &tables)
}
