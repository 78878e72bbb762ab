//! Where a run's probabilities go: a file, stdout, a table of what was asked for.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::io::npy::NpyWriter;
use crate::io::output::OutputFile;
use crate::io::write;
use crate::transient::Solution;
use crate::{Error, Result};

/// What is wanted of each vector.
#[derive(Debug, Clone)]
pub(super) enum Selection {
    /// All of it.
    All,
    /// These states.
    States(Vec<u32>),
    /// The probability of each label: (name, states).
    Labels(Vec<(String, Vec<u32>)>),
    /// The largest.
    Top(usize),
}

/// Format of whole vectors.
#[derive(Debug)]
enum Vectors {
    /// Rows wait until those before them are written.
    Npy {
        writer: NpyWriter<OutputFile>,
        waiting: Vec<Option<Vec<f64>>>,
        next: usize,
    },
    Csv {
        output: OutputFile,
        columns: Vec<Vec<f64>>,
    },
    Text {
        output: OutputFile,
        values: Vec<f64>,
    },
}

/// The file of `-o`, opened before the work starts.
#[derive(Debug)]
pub(super) struct Named {
    path: PathBuf,
    extension: String,
    file: OutputFile,
}

impl Named {
    /// Opens the file for whole vectors at `times` times or for the table of a selection.
    pub(super) fn create(path: &Path, table: bool, times: usize) -> Result<Self> {
        let fail = |reason: String| Err(Error::File { path: path.into(), reason });
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        match extension {
            "csv" => {}
            _ if table => {
                return fail(
                    "what --states, --label and --top select is written as .csv; use that".to_owned(),
                );
            }
            "txt" if times > 1 => {
                return fail(format!(".txt holds one time, and {times} were asked for; use .csv or .npy"));
            }
            "npy" | "txt" => {}
            _ => {
                return fail(format!("'.{extension}' is no format of probabilities; use .npy, .csv or .txt"));
            }
        }
        Ok(Self { path: path.into(), extension: extension.to_owned(), file: OutputFile::create(path)? })
    }
}

/// Rows `time,what,value` of a selection.
#[derive(Debug)]
struct Table {
    selection: Selection,
    rows: Vec<Vec<(String, f64)>>,
    output: Option<OutputFile>,
}

/// Receives each time's probabilities and writes what was asked for.
#[derive(Debug)]
pub(super) struct Sink {
    times: Vec<f64>,
    vectors: Option<Vectors>,
    table: Option<Table>,
    /// The ten largest, for a terminal.
    glance: Option<Table>,
    rewards: Option<OutputFile>,
}

/// Entries shown on a terminal in place of a vector.
const GLANCE: usize = 10;

impl Sink {
    /// Prepares the outputs. `rewards` says whether rewards take the place of the vector on stdout.
    pub(super) fn open(
        file: Option<Named>,
        selection: Selection,
        rewards: bool,
        times: &[f64],
        states: usize,
    ) -> Result<Self> {
        let mut sink =
            Self { times: times.to_vec(), vectors: None, table: None, glance: None, rewards: None };
        let table = |output, selection| Table { selection, rows: vec![Vec::new(); times.len()], output };
        if rewards {
            sink.rewards = Some(OutputFile::stdout());
        }
        match (selection, file) {
            (Selection::All, Some(file)) => sink.vectors = Some(Vectors::create(file, times, states)?),
            (Selection::All, None) if rewards => {}
            (Selection::All, None) if std::io::stdout().is_terminal() => {
                sink.glance = Some(table(Some(OutputFile::stdout()), Selection::Top(GLANCE)));
            }
            (Selection::All, None) => {
                sink.vectors = Some(Vectors::Csv {
                    output: OutputFile::stdout(),
                    columns: vec![Vec::new(); times.len()],
                });
            }
            (some, Some(named)) => sink.table = Some(table(Some(named.file), some)),
            (_, None) if rewards => {
                return Err(Error::Invalid(
                    "rewards and --states, --label or --top both go to stdout; give the latter a file with -o".to_owned(),
                ));
            }
            (some, None) => sink.table = Some(table(Some(OutputFile::stdout()), some)),
        }
        Ok(sink)
    }

    /// Whether any probability is wanted.
    pub(super) fn wants_vectors(&self) -> bool {
        self.vectors.is_some() || self.table.is_some() || self.glance.is_some()
    }

    pub(super) fn result(&mut self, index: usize, p: &[f64]) -> Result<()> {
        for table in [&mut self.table, &mut self.glance].into_iter().flatten() {
            table.rows[index] = table.selection.pick(p);
        }
        match &mut self.vectors {
            None => {}
            Some(Vectors::Csv { columns, .. }) => columns[index] = p.to_vec(),
            Some(Vectors::Text { values, .. }) => *values = p.to_vec(),
            Some(Vectors::Npy { writer, waiting, next }) => {
                waiting[index] = Some(p.to_vec());
                while let Some(row) = waiting.get_mut(*next).and_then(Option::take) {
                    writer.write(&row).map_err(|source| Error::Io { path: "the output".into(), source })?;
                    *next += 1;
                }
            }
        }
        Ok(())
    }

    /// Writes what waits for the end, and gives files their names.
    pub(super) fn finish(self, solution: &Solution) -> Result<()> {
        if let Some(mut out) = self.rewards {
            let mut text = b"time,reward,instantaneous,cumulative\n".to_vec();
            for time in &solution.times {
                for reward in &time.rewards {
                    write::push_number(&mut text, time.time);
                    text.push(b',');
                    field(&mut text, &reward.name);
                    for value in [reward.instantaneous, reward.cumulative] {
                        text.push(b',');
                        write::push_number(&mut text, value);
                    }
                    text.push(b'\n');
                }
            }
            out.write_all(&text).map_err(|e| out.error(e))?;
            out.commit()?;
        }
        match self.vectors {
            None => {}
            Some(Vectors::Npy { writer, .. }) => {
                writer
                    .finish()
                    .map_err(|source| Error::Io { path: "the output".into(), source })?
                    .commit()?;
            }
            Some(Vectors::Csv { mut output, columns }) => {
                let columns: Vec<&[f64]> = columns.iter().map(|c| &c[..]).collect();
                write::write_csv(&mut output, &self.times, &columns).map_err(|e| output.error(e))?;
                output.commit()?;
            }
            Some(Vectors::Text { mut output, values }) => {
                write::write_text(&mut output, &values).map_err(|e| output.error(e))?;
                output.commit()?;
            }
        }
        if let Some(table) = self.table {
            table.write(&self.times, "")?;
        }
        if let Some(table) = self.glance {
            let n = solution.n;
            let note = format!(
                "the {} largest of {n} states; all of them: -o FILE.npy, FILE.csv or FILE.txt",
                GLANCE.min(n)
            );
            table.write(&self.times, &note)?;
        }
        Ok(())
    }
}

impl Vectors {
    fn create(named: Named, times: &[f64], states: usize) -> Result<Self> {
        let Named { path, extension, file: output } = named;
        Ok(match &extension[..] {
            "npy" => {
                let shape = if times.len() == 1 { vec![states] } else { vec![times.len(), states] };
                let writer = NpyWriter::new(output, &shape).map_err(|source| Error::Io { path, source })?;
                Self::Npy { writer, waiting: vec![None; times.len()], next: 0 }
            }
            "csv" => Self::Csv { output, columns: vec![Vec::new(); times.len()] },
            _ => Self::Text { output, values: Vec::new() },
        })
    }
}

impl Selection {
    fn pick(&self, p: &[f64]) -> Vec<(String, f64)> {
        match self {
            Self::All => Vec::new(),
            Self::States(states) => states.iter().map(|&s| (s.to_string(), p[s as usize])).collect(),
            Self::Labels(labels) => {
                let sum = |states: &[u32]| {
                    crate::transient::chain::exit_rate(states.iter().map(|&s| p[s as usize]))
                };
                labels.iter().map(|(name, states)| (name.clone(), sum(states))).collect()
            }
            Self::Top(k) => {
                let k = (*k).min(p.len());
                if k == 0 {
                    return Vec::new();
                }
                // Equal probabilities stand in the order of their states.
                let order = |a: &u32, b: &u32| p[*b as usize].total_cmp(&p[*a as usize]).then(a.cmp(b));
                let mut states: Vec<u32> = (0..p.len() as u32).collect();
                if k < states.len() {
                    states.select_nth_unstable_by(k - 1, order);
                    states.truncate(k);
                }
                states.sort_unstable_by(order);
                states.iter().map(|&s| (s.to_string(), p[s as usize])).collect()
            }
        }
    }
}

impl Table {
    fn write(self, times: &[f64], note: &str) -> Result<()> {
        let Some(mut out) = self.output else { return Ok(()) };
        let mut text = b"time,what,value\n".to_vec();
        for (time, rows) in times.iter().zip(&self.rows) {
            for (what, value) in rows {
                write::push_number(&mut text, *time);
                text.push(b',');
                field(&mut text, what);
                text.push(b',');
                write::push_number(&mut text, *value);
                text.push(b'\n');
            }
        }
        out.write_all(&text).map_err(|e| out.error(e))?;
        out.commit()?;
        if !note.is_empty() {
            super::say(note);
        }
        Ok(())
    }
}

/// A field of CSV, quoted where it must be.
fn field(text: &mut Vec<u8>, value: &str) {
    if value.contains([',', '"', '\n']) {
        text.extend_from_slice(format!("\"{}\"", value.replace('"', "\"\"")).as_bytes());
    } else {
        text.extend_from_slice(value.as_bytes());
    }
}
