//! `kolmo check`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde_json::{Value as Json, json};

use super::files::Files;
use super::language::{self, Constants, refused};
use super::progress::Progress;
use super::questions::{Answer, Found, Plan, Planned, Solved, Source, Told};
use super::state_values::{EachState, shared};
use super::{Common, Outcome, no_format, say, transient, write_report};
use crate::report::{self, grouped, number, seconds};
use kolmo::io::npy::NpyWriter;
use kolmo::io::output::OutputFile;
use kolmo::io::write::push_field;
use kolmo::kernel::Precision;
use kolmo::transient::{Chain, Options, StateNames, Status, Transitions};
use kolmo::{Error, Machine, Result};
use kolmo_model::constants::{Given, combinations};
use kolmo_model::properties::{self, Properties, Property};
use kolmo_model::{Instance, Model, Names, Value};

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A model in PRISM's language (.sm, .prism), a chain's file (.tra, .drn, .umb, .mtx, .npz, .npy) or a built-in
    model: String,
    /// Properties in CSL, such as 'P=? [ F<=10 "full" ]', or files of them (.csl, .props, .pctl)
    #[arg(required = true)]
    properties: Vec<String>,
    /// Values of constants, such as N=64,T=1:0.5:5; a range gives a line for each of its values
    #[arg(long = "const", value_name = "NAME=V,…")]
    values: Option<Constants>,
    /// Only these properties, by their numbers from 1 or their names
    #[arg(long, value_name = "1,3|NAME")]
    prop: Option<String>,
    /// Bound on the total l1 error of the probabilities behind each answer
    #[arg(long, value_name = "E", default_value = "1e-9", allow_hyphen_values = true)]
    epsilon: f64,
    /// Also write the answers from every state, true as 1, false as 0, undecided as NaN, to the file of -o
    #[arg(long, requires = "output")]
    all_states: bool,
    /// File for --all-states: .npy (a row a property) or .csv (a line a state, with its variables)
    #[arg(short, long, value_name = "FILE", requires = "all_states")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Check {
    /// The files that are named.
    pub(super) fn files<'a>(&'a self, files: Files<'a>) -> Files<'a> {
        files
            .read("MODEL", [Path::new(&self.model)])
            .read("PROPERTIES", self.properties.iter().map(Path::new).filter(|path| is_file(path)))
            .written("-o", self.output.as_deref())
            .written("--report", self.common.report.as_deref())
    }
}

/// True for a file of properties, by its name.
fn is_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    ["csl", "props", "pctl", "prctl"].contains(&extension) || path.is_file()
}

/// Values of constants.
type Assigned = [(String, Value)];

/// What is asked about.
enum Subject {
    Language(Model),
    Chain(Chain, Arc<dyn Transitions>),
}

impl Subject {
    fn read(spec: &str) -> Result<Self> {
        match language::is_model(spec) {
            true => language::read(spec).map(Self::Language),
            false => {
                let (chain, transitions) = shared(transient::model(spec, None)?);
                Ok(Self::Chain(chain, transitions))
            }
        }
    }

    fn names(&self) -> Names {
        match self {
            Self::Language(model) => model.names().clone(),
            Self::Chain(chain, _) => Names::bare(
                chain.labels.sets.iter().map(|(name, _)| &name[..]),
                chain.rewards.iter().map(|reward| &reward.name[..]),
            ),
        }
    }

    fn has(&self, constant: &str) -> bool {
        match self {
            Self::Language(model) => model.undefined_constants().any(|(name, _)| name == constant),
            Self::Chain(..) => false,
        }
    }
}

/// An answer, and what it answers.
struct Row {
    name: Option<String>,
    text: String,
    constants: Vec<(String, Value)>,
    found: Found,
}

/// All answers, and what they took.
struct Run<'a> {
    args: &'a Check,
    machine: &'a Machine,
    rows: Vec<Row>,
    /// Constants and number of states of each chain.
    chains: Vec<(Vec<(String, Value)>, usize)>,
    status: Status,
    sweeps: usize,
    terms: u64,
    /// Seconds of sweeps.
    solve: f64,
    /// Of each answer that from every state, and the names of these.
    columns: Vec<(String, Vec<f64>)>,
    names: Option<Arc<StateNames>>,
}

pub(super) fn run(args: &Check) -> Result<Outcome> {
    let started = Instant::now();
    let options = Options { epsilon: args.epsilon, ..Options::default() };
    if !(args.epsilon > 0.0 && args.epsilon < 1.0) {
        return Err(Error::Invalid(format!(
            "--epsilon {} must lie between 0 and 1, both excluded",
            args.epsilon
        )));
    }
    if let Some(path) = &args.output
        && !path.extension().is_some_and(|extension| extension == "npy" || extension == "csv")
    {
        return Err(no_format(path, "values of states", ".npy or .csv"));
    }
    let values_file = args.output.as_deref().map(OutputFile::create).transpose()?;
    let report_file = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let mut subject = Subject::read(&args.model)?;
    let texts = texts(&args.properties, &subject.names())?;
    let given = args.values.as_ref().map_or(&[][..], |constants| &constants.0);
    let (of_model, of_texts) = split(given, &subject, &texts);
    let of_texts = combinations(&of_texts).map_err(refused)?;
    let common = Common { without_f64: Some(Precision::Q64), ..args.common.clone() };
    let machine = common.open()?;
    super::tuned::recall(&machine, args.common.quiet);
    let mut run = Run {
        args,
        machine: &machine,
        rows: Vec::new(),
        chains: Vec::new(),
        status: Status::Met,
        sweeps: 0,
        terms: 0,
        solve: 0.0,
        columns: Vec::new(),
        names: None,
    };
    let of_model = combinations(&of_model).map_err(refused)?;
    if args.all_states && of_model.len() > 1 {
        return Err(Error::Invalid(format!(
            "--all-states is of one chain, and --const gives {}; give one value of each of the model's constants",
            of_model.len()
        )));
    }
    for values in of_model {
        run.answer(&mut subject, &values, &texts, &of_texts, &options)?;
    }
    run.print(given)?;
    if let Some(file) = values_file {
        run.write_values(file)?;
    }
    write_report(report_file, [format_args!("{:#}", run.json(started.elapsed().as_secs_f64()))])?;
    run.conclude(started.elapsed().as_secs_f64())
}

/// Properties of every argument.
fn texts(arguments: &[String], names: &Names) -> Result<Vec<Properties>> {
    let mut all = Vec::new();
    for argument in arguments {
        let path = Path::new(argument);
        let text = match is_file(path) {
            true => std::fs::read_to_string(path)
                .map_err(|source| Error::Io { path: PathBuf::from(path), source })?,
            false => argument.clone(),
        };
        let name = if is_file(path) { &argument[..] } else { "property" };
        let properties = properties::parse(name, &text, names).map_err(refused)?;
        if properties.is_empty() {
            return Err(Error::Invalid(format!(
                "{name} has no property; write one, such as P=? [ F<=10 \"full\" ]"
            )));
        }
        all.push(properties);
    }
    Ok(all)
}

/// Constants of the model, which takes what nobody knows too, and of the properties alone.
fn split(given: &[Given], subject: &Subject, texts: &[Properties]) -> (Vec<Given>, Vec<Given>) {
    let asked = |name: &str| texts.iter().any(|text| text.undefined_constants().any(|(own, _)| own == name));
    let of_texts = |given: &&Given| {
        let in_texts = matches!(subject, Subject::Chain(..)) || asked(&given.name);
        in_texts && !subject.has(&given.name)
    };
    let (texts, model): (Vec<&Given>, Vec<&Given>) = given.iter().partition(of_texts);
    (model.into_iter().cloned().collect(), texts.into_iter().cloned().collect())
}

/// The properties that `--prop` names, or all.
fn chosen(all: Vec<Property>, wanted: Option<&str>) -> Result<Vec<Property>> {
    let Some(wanted) = wanted else { return Ok(all) };
    let place = |word: &str| {
        let number = word.parse().ok().filter(|number| (1..=all.len()).contains(number));
        let place = all.iter().position(|p| p.name.as_deref() == Some(word));
        place.or(number.map(|number: usize| number - 1)).ok_or_else(|| {
            let names: Vec<&str> = all.iter().filter_map(|p| p.name.as_deref()).collect();
            let names =
                if names.is_empty() { String::new() } else { format!(", and names: {}", names.join(", ")) };
            Error::Invalid(format!(
                "--prop: there is no '{word}'; there are numbers 1 to {}{names}",
                all.len()
            ))
        })
    };
    let places: Vec<usize> = wanted.split(',').map(|word| place(word.trim())).collect::<Result<_>>()?;
    Ok(places.into_iter().map(|place| all[place].clone()).collect())
}

/// The properties with these constants.
fn resolved(
    texts: &[Properties],
    instance: Option<&Instance>,
    values: &Assigned,
    wanted: Option<&str>,
) -> Result<Vec<Property>> {
    let mut all = Vec::new();
    for text in texts {
        // A text that knows none of them says so.
        let known = |name: &str| {
            let own = |text: &Properties| text.undefined_constants().any(|(own, _)| own == name);
            own(text) || !texts.iter().any(own)
        };
        let own: Vec<(String, Value)> = values.iter().filter(|(name, _)| known(name)).cloned().collect();
        all.extend(text.with_constants(instance, &own).map_err(refused)?);
    }
    chosen(all, wanted)
}

impl Run<'_> {
    /// Answers all properties of one chain.
    fn answer(
        &mut self,
        subject: &mut Subject,
        values: &Assigned,
        texts: &[Properties],
        of_texts: &[Vec<(String, Value)>],
        options: &Options,
    ) -> Result<()> {
        let (args, quiet) = (self.args, self.args.common.quiet);
        let wanted = args.prop.as_deref();
        let space = match &*subject {
            Subject::Chain(..) => None,
            Subject::Language(model) => {
                let instance = model.with_constants(values).map_err(refused)?;
                // What is wrong with a property is not worth a search.
                resolved(texts, Some(&instance), &of_texts[0], wanted)?;
                let limit = args.common.memory_limit.map(|size| size.0);
                Some(language::explore(model, values, limit, quiet)?)
            }
        };
        let source = match (&space, &*subject) {
            (Some(space), _) => Source::Explored(space),
            (None, Subject::Chain(chain, transitions)) => Source::File(chain, transitions),
            (None, Subject::Language(_)) => unreachable!("it is explored"),
        };
        let began = Instant::now();
        let progress = Progress::new(quiet, "values of every state");
        let mut plan = Plan::new(EachState::new(source, self.machine, options, Told(&progress)));
        let mut asked: Vec<(Property, Planned, &Assigned)> = Vec::new();
        for own in of_texts {
            let instance = space.as_ref().map(|space| space.instance());
            for property in resolved(texts, instance, own, wanted)? {
                let planned = plan.add(&property.formula).map_err(|error| match error {
                    Error::Invalid(why) => Error::Invalid(format!("{}: {why}", property.text)),
                    other => other,
                })?;
                if args.all_states {
                    self.columns.push((property.text.clone(), plan.column(&property.formula)?));
                }
                asked.push((property, planned, own));
            }
        }
        if args.all_states {
            self.names = match source {
                Source::Explored(space) => Some(Arc::new(language::names(space))),
                Source::File(chain, _) => chain.names.clone(),
            };
        }
        let (needs, (met, sweeps, notes)) = plan.needs();
        drop(progress);
        self.sweeps += sweeps;
        if sweeps > 0 {
            self.solve += began.elapsed().as_secs_f64();
        }
        if !met {
            self.status = Status::NotMet;
        }
        for note in notes.iter().filter(|_| !quiet) {
            say(format_args!("note: {note}"));
        }
        let chain = match (space, subject) {
            (Some(space), _) => language::bare(&args.model, space)?,
            // A file has one chain.
            (None, Subject::Chain(chain, _)) => {
                std::mem::replace(chain, Chain::from_csr(1, &[0, 0], &[], &[])?)
            }
            (None, Subject::Language(_)) => unreachable!("it is explored"),
        };
        for warning in chain.warnings.iter().filter(|_| !quiet) {
            say(format_args!("warning: {warning}"));
        }
        self.chains.push((values.to_vec(), chain.transitions.states()));
        let began = Instant::now();
        let progress = Progress::new(quiet, "building the matrix");
        let solved: Solved = needs.solve(chain, self.machine, options, &progress)?;
        drop(progress);
        self.solve += began.elapsed().as_secs_f64();
        self.sweeps += solved.sweeps;
        self.terms += solved.terms;
        if solved.status == Status::NotMet {
            self.status = Status::NotMet;
        }
        for (property, planned, own) in asked {
            let found = planned.found(&solved.answers)?;
            let constants = [values, own].concat();
            self.rows.push(Row { name: property.name, text: property.text, constants, found });
        }
        Ok(())
    }

    /// Writes the answers from every state.
    fn write_values(&self, mut file: OutputFile) -> Result<()> {
        let states = self.columns.first().map_or(0, |(_, column)| column.len());
        if self.args.output.as_deref().is_some_and(|path| path.extension().is_some_and(|e| e == "npy")) {
            let shape = match self.columns.len() {
                1 => vec![states],
                count => vec![count, states],
            };
            let path = self.args.output.clone().unwrap_or_default();
            let io = |source| Error::Io { path: path.clone(), source };
            let mut writer = NpyWriter::new(file, &shape).map_err(io)?;
            self.columns.iter().try_for_each(|(_, column)| writer.write(column)).map_err(io)?;
            return writer.finish().map_err(io)?.commit();
        }
        let mut line = b"state".to_vec();
        let variables = self.names.iter().flat_map(|names| names.variables()).map(String::as_str);
        for name in variables.chain(self.columns.iter().map(|(text, _)| &text[..])) {
            line.push(b',');
            push_field(&mut line, name);
        }
        for state in 0..states {
            line.extend_from_slice(format!("\n{state}").as_bytes());
            for value in self.names.iter().flat_map(|names| names.values(state)) {
                line.push(b',');
                line.extend_from_slice(value.as_bytes());
            }
            for (_, column) in &self.columns {
                line.extend_from_slice(format!(",{}", number(column[state])).as_bytes());
            }
            if line.len() > 1 << 16 {
                file.write_all(&line).map_err(|e| file.error(e))?;
                line.clear();
            }
        }
        line.push(b'\n');
        file.write_all(&line).map_err(|e| file.error(e))?;
        file.commit()
    }

    /// Writes a line a property to stdout.
    fn print(&self, given: &[Given]) -> Result<()> {
        let ranges: Vec<&str> = (given.iter()).filter(|g| g.values.len() > 1).map(|g| &g.name[..]).collect();
        let mut text = b"property".to_vec();
        for name in &ranges {
            text.push(b',');
            push_field(&mut text, name);
        }
        text.extend_from_slice(b",value,bound\n");
        for row in &self.rows {
            push_field(&mut text, &row.text);
            for range in &ranges {
                let value = row.constants.iter().find(|(name, _)| name == range);
                text.push(b',');
                text.extend_from_slice(value.map_or(String::new(), |(_, value)| shown(*value)).as_bytes());
            }
            let (value, error) = row.words();
            text.extend_from_slice(format!(",{value},{}\n", number(error)).as_bytes());
        }
        let mut out = OutputFile::stdout();
        out.write_all(&text).map_err(|e| out.error(e))?;
        out.commit()
    }

    fn json(&self, total: f64) -> Json {
        let constants = |all: &Assigned| -> Json {
            all.iter()
                .map(|(name, value)| (name.clone(), as_json(*value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let property = |row: &Row| {
            let (_, error) = row.words();
            let (truth, number) = match row.found {
                Found::Number(Answer { value, .. }) => (None, Some(value)),
                Found::Truth(truth, number) => {
                    let word = truth.map_or("undecided", |truth| if truth { "true" } else { "false" });
                    (Some(word), number.map(|answer| answer.value))
                }
            };
            json!({
                "name": row.name,
                "property": row.text,
                "constants": constants(&row.constants),
                "truth": truth,
                // JSON has no infinity.
                "value": number.map(|value| if value == f64::INFINITY { json!("inf") } else { json!(value) }),
                "bound": error,
            })
        };
        json!({
            "command": "check",
            "version": env!("CARGO_PKG_VERSION"),
            "model": self.args.model,
            "status": self.status,
            "epsilon": self.args.epsilon,
            "devices": report::devices_of(self.machine),
            "properties": self.rows.iter().map(property).collect::<Vec<_>>(),
            "chains": self.chains.iter().map(|(values, n)| json!({"constants": constants(values), "n": n})).collect::<Vec<_>>(),
            "sweeps": self.sweeps,
            "terms": self.terms,
            "seconds": {"solve": self.solve, "total": total},
        })
    }

    fn conclude(&self, total: f64) -> Result<Outcome> {
        let worst = self.rows.iter().map(|row| row.words().1).fold(0.0f64, f64::max);
        let missed = self.status == Status::NotMet;
        if !self.args.common.quiet {
            let states: usize = self.chains.iter().map(|(_, n)| n).sum();
            say(format_args!(
                "{}  {} answers from {} states in {} sweeps of {} multiplications; {} in all, {} of it sweeps",
                self.args.model,
                grouped(self.rows.len() as u64),
                grouped(states as u64),
                grouped(self.sweeps as u64),
                grouped(self.terms),
                seconds(total),
                seconds(self.solve),
            ));
        }
        if missed || !self.args.common.quiet {
            let met = if missed { "NOT met; every answer's own is printed with it" } else { "met" };
            say(format_args!(
                "bound    {:e} asked of the probabilities: {met}; the largest of an answer is {worst:.2e}",
                self.args.epsilon
            ));
        }
        Ok(if missed { Outcome::NotMet } else { Outcome::Met })
    }
}

impl Row {
    /// The value as it is printed, and the bound on its error.
    fn words(&self) -> (String, f64) {
        match self.found {
            Found::Number(Answer { value, error }) => (number(value), error),
            Found::Truth(truth, answer) => (
                truth.map_or("undecided".to_owned(), |truth| truth.to_string()),
                answer.map_or(0.0, |answer| answer.error),
            ),
        }
    }
}

fn shown(value: Value) -> String {
    match value {
        Value::Double(value) => number(value),
        other => other.to_string(),
    }
}

fn as_json(value: Value) -> Json {
    match value {
        Value::Int(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Bool(value) => json!(value),
    }
}
