//! `kolmo check`.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::cli::arguments::expect_fraction;
use crate::cli::commands::{transient, walk::time_limit};
use crate::cli::input::changing_constants::{self, TimedConstants};
use crate::cli::input::explore::{self, expect_model, explore, part, say_enough};
use crate::cli::output::values::field;
use crate::cli::output::{npy, plot_series};
use crate::cli::planning::tuning_store;
use crate::cli::prelude::*;
use crate::cli::terminal::option_names::with_options;
use crate::cli::terminal::progress::IterationObserver;
use kolmo::io::write::{push_integer, push_number, write_lines};
use kolmo::transient::{Bound, Chain, Options, StateNames};
use kolmo_check::language::{self, refused};
use kolmo_check::{
    Answers, Assigned, Case, ChainRef, Derivative, PropertyAnswer, Questions, Scheduled, Study, Subject,
    Truncation,
};
use kolmo_model::{Instance, PrismModel, Value};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// PRISM model (.sm, .prism), file of a chain (.tra, .drn, .mtx, .npz, .npy) or built-in
    /// (tandem:15)
    model: String,
    /// CSL property such as 'P=? [ F<=10 "full" ]', or file of properties (.csl, .props, .pctl)
    #[arg(required = true)]
    properties: Vec<String>,
    /// Values of constants, such as N=64,T=1:0.5:5 (T from 1 to 5 in steps of 0.5)
    ///
    /// T=1:5 has steps of 1, and T=1|2.5|10 lists values. Each value gives a separate answer.
    /// mu=0.1@0,0.3@10 changes at time 10, and mu=1@0,0@8%24 repeats with the period 24.
    #[arg(long = "const", value_name = "NAME=V,…", value_parser = changing_constants::constants)]
    values: Option<TimedConstants>,
    /// Answer for each sample of a .csv file: a line of names of constants, then lines of values
    ///
    /// Each sample gives a line of output per property, in which the constants are columns. A
    /// sample that fails is printed as refused, and the exit code is 1. Not with --all-states.
    #[arg(long, value_name = "FILE", conflicts_with = "all_states")]
    samples: Option<PathBuf>,
    /// Check only these properties of a file: their numbers from 1, or their names
    #[arg(long, value_name = "1,3|NAME")]
    prop: Option<String>,
    /// Bound on the l1 error of the probabilities that answers are computed from, 0 < E < 1
    ///
    /// Each answer is printed with the error bound of its own value.
    #[arg(long, value_name = "E", default_value = "1e-9", allow_hyphen_values = true)]
    epsilon: f64,
    /// Also compute the derivatives of the answers by these constants, with bounds
    ///
    /// The constants must be doubles that change only rates and rewards. A property must ask for
    /// the number of one operator P, R, S or T, without a lower time bound.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "truncate", value_parser = constant)]
    gradient: Vec<String>,
    /// Explore only part of a PRISM model, losing at most this probability, 0 < LOSS < --epsilon
    ///
    /// For models with infinitely many states, or too many. States are added until the probability
    /// of leaving the explored part is at most LOSS. LOSS is part of the bound --epsilon.
    #[arg(long, value_name = "LOSS", conflicts_with = "all_states", allow_hyphen_values = true)]
    truncate: Option<f64>,
    /// Also compute the answers for every initial state, and write them to the file of -o
    ///
    /// true is written as 1, false as 0, undecided and refused as NaN.
    #[arg(long, requires = "output")]
    all_states: bool,
    /// Write the answers to this .csv file instead of stdout
    ///
    /// With --all-states, the file has the answers for every state: .npy with a row per property,
    /// or .csv with a line per state.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the answers over the values of a constant, as a chart (.svg)
    ///
    /// The constant is the last one with several values. Each property has a line, and so does each
    /// value of the other constants. One property over many values of two constants is drawn as a
    /// heat map.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Read a file of a chain (.tra, .mtx, .npz, .npy) as probabilities of a step
    ///
    /// Times then count steps. PRISM models and .drn declare discrete time themselves.
    #[arg(long)]
    discrete: bool,
    /// Seconds after which iterations for the long run end with the bound reached
    ///
    /// They are counted from the start. Elimination and runs for finite times are not ended.
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    time_limit: Option<f64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl CheckArgs {
    /// Returns the values of --const if some of them change with time.
    fn changing(&self) -> Option<&TimedConstants> {
        self.values.as_ref().filter(|values| !values.changing.is_empty())
    }
}

/// Parses the name of a constant.
fn constant(text: &str) -> std::result::Result<String, &'static str> {
    Some(text.trim().to_owned()).filter(|name| !name.is_empty()).ok_or("a name is missing")
}

fn subject(args: &CheckArgs) -> Result<Subject> {
    let spec = &args.model;
    match language::is_model(spec) {
        true => {
            let model = language::read(spec)?;
            let why = format_args!("{spec} is a model in continuous time; leave --discrete out");
            expect(!args.discrete || model.is_discrete(), why)?;
            Ok(Subject::Language(model))
        }
        false => transient::model(spec, None, args.discrete).map(Subject::Chain),
    }
}

/// Answers of a run, and statistics of the computation.
struct CheckRun<'a> {
    args: &'a CheckArgs,
    cases: &'a Cases,
    questions: &'a Questions,
    machine: &'a Machine,
    /// Answers, each with the index of its case.
    rows: Vec<(usize, PropertyAnswer)>,
    /// Each chain: index of its case, the case (values of constants), and number of states.
    chains: Vec<(usize, Case, usize)>,
    /// Number of chains whose states were explored.
    explorations: usize,
    status: Status,
    /// Number of uniformization runs and solves of linear systems.
    sweeps: usize,
    /// Number of matrix–vector products, or cycles of the multilevel solver.
    terms: u64,
    /// Seconds spent answering, without exploration.
    solve: f64,
    /// With `--all-states`, each property's text and its answer for every initial state.
    columns: Vec<(String, Vec<f64>)>,
    /// Names of the states in `columns`.
    names: Option<Arc<StateNames>>,
    /// Maximum of each part of the error bounds over all chains.
    bound: Bound,
    /// Time at which `--time-limit` ends iterations.
    end: Option<Instant>,
    /// Last reason why an iteration missed the requested bound.
    limit: Option<&'static str>,
    /// Error of the first case without answers.
    failed: Option<Error>,
    /// Warnings and notes printed so far.
    said: BTreeSet<String>,
}

/// Assignments of constants, each with its own answers.
struct Cases {
    all: Vec<Case>,
    /// Line of each case, if the cases are samples of a file.
    lines: Vec<u64>,
    /// Constants that are columns of the output.
    columns: Vec<String>,
}

impl Cases {
    fn new(args: &CheckArgs, questions: &Questions, subject: &Subject) -> Result<Self> {
        let given = args.values.as_ref().map_or(&[][..], |values| &values.fixed);
        let columns = given.iter().filter(|given| given.range).map(|given| given.name.clone()).collect();
        let Some(path) = &args.samples else {
            return Ok(Self { all: questions.cases(given, subject)?, lines: Vec::new(), columns });
        };
        let mut known = questions.constants(subject);
        let changing = args.changing().map_or(&[][..], |timed| &timed.changing);
        known.retain(|name| changing.iter().all(|one| one.name != *name));
        let samples = explore::samples(path, given, &known)?;
        let mut cases = Self { all: Vec::new(), lines: Vec::new(), columns };
        cases.columns.extend(samples.names);
        for (line, given, invalid) in samples.all {
            let own = questions.cases(&given, subject)?.into_iter();
            cases.all.extend(own.map(|case| Case { invalid: invalid.clone(), ..case }));
            cases.lines.resize(cases.all.len(), line);
        }
        Ok(cases)
    }

    /// Names the values of a case in messages.
    fn name(&self, case: usize, constants: &Assigned) -> String {
        let own = constants.iter().filter(|(name, _)| self.columns.contains(name));
        let own: Vec<String> = own.map(|(name, value)| format!("{name}={}", shown(*value))).collect();
        let line = self.lines.get(case).map(|line| format!(" (line {line})"));
        own.join(",") + &line.unwrap_or_default()
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<Status> {
    let started = Instant::now();
    let options = Options::default().epsilon(args.epsilon);
    expect_fraction("--epsilon", args.epsilon)?;
    let end = time_limit(args.time_limit)?.and_then(|limit| started.checked_add(limit));
    let formats = if args.all_states { ".npy or .csv" } else { ".csv" };
    let format = args.output.as_deref().map(|path| extension(path, "answers", formats)).transpose()?;
    let values_file = args.output.as_deref().map(OutputFile::create).transpose()?;
    let plot_file = args.plot.as_deref().map(plot_series::create).transpose()?;
    let report_file = args.common.report_file(Ranks::ALONE)?;
    expect_options_fit(args)?;
    let subject = subject(args)?;
    let alone = args.truncate.is_none() && !args.all_states && args.gradient.is_empty();
    let untimed = alone && matches!(subject, Subject::Language(_));
    let why =
        "constants that change with time need a PRISM model, without --truncate, --all-states and --gradient";
    expect(args.changing().is_none() || untimed, why)?;
    let mut questions = Questions::read(&args.properties, &subject)?;
    questions.only.clone_from(&args.prop);
    questions.gradient.clone_from(&args.gradient);
    (questions.epsilon, questions.all_states) = (args.epsilon, args.all_states);
    questions.allowed = args.truncate.unwrap_or(f64::INFINITY);
    questions.timed = args.changing().is_some();
    let cases = Cases::new(args, &questions, &subject)?;
    let why = format_args!(
        "--all-states is of one chain, and --const gives {}; give one value of each of the model's constants",
        cases.all.len()
    );
    expect(!args.all_states || cases.all.len() <= 1, why)?;
    let common = Common { without_f64: Some(Precision::Q64), ..args.common.clone() };
    let together = args.truncate.is_none() && args.changing().is_none();
    let machine = open(&common, together && cases.all.len() >= 4)?;
    tuning_store::recall(&machine, args.common.quiet);
    questions.machine = Some(machine.clone());
    let mut run = CheckRun {
        args,
        cases: &cases,
        questions: &questions,
        machine: &machine,
        rows: Vec::new(),
        chains: Vec::new(),
        explorations: 0,
        status: Status::Met,
        sweeps: 0,
        terms: 0,
        solve: 0.0,
        columns: Vec::new(),
        names: None,
        bound: Bound::default(),
        end,
        limit: None,
        failed: None,
        said: BTreeSet::new(),
    };
    run.answer(subject, &options)?;
    match (values_file, format) {
        (Some(file), Some(format)) if args.all_states => run.write_values(file, format)?,
        (Some(file), _) => run.print(file)?,
        _ => {}
    }
    if args.all_states || args.output.is_none() {
        run.print(OutputFile::stdout())?;
    }
    if let Some(file) = plot_file {
        plot_series::study(file, &args.model, &cases.columns, run.rows.iter().map(|(_, row)| row))?;
    }
    write_object(report_file, &run.json(started.elapsed().as_secs_f64()))?;
    run.conclude(started.elapsed().as_secs_f64())
}

/// Error for options that need a model, and for a constant listed twice in `--gradient`.
fn expect_options_fit(args: &CheckArgs) -> Result<()> {
    let mut constants = args.gradient.iter().enumerate();
    if let Some((_, name)) = constants.find(|(k, name)| args.gradient[..*k].contains(name)) {
        return fail(format!("--gradient: '{name}' is given twice"));
    }
    let of_models = [
        (args.truncate.is_some(), "--truncate"),
        (args.samples.is_some(), "--samples"),
        (!args.gradient.is_empty(), "--gradient"),
    ];
    let mut given = of_models.into_iter().filter(|(given, _)| *given);
    given.try_for_each(|(_, option)| expect_model(option, &args.model))
}

/// Opens the devices; with `several` values, a single CUDA device gets four lanes.
fn open(common: &Common, several: bool) -> Result<Machine> {
    let machine = common.open(&common.device)?;
    let free = several && common.lanes.is_none() && common.memory_limit.is_none();
    let device = machine.lanes[0].device();
    if !free || machine.lanes.len() > 1 || device.backend != "cuda" {
        return Ok(machine);
    }
    // Further lanes only save time, so a failure to open them is no error.
    let Ok(more) = common.open_lanes(&[device.spec.parse()?], 3) else { return Ok(machine) };
    Ok(Machine::new([&machine.lanes[..], &more.lanes].concat(), machine.precision))
}

impl CheckRun<'_> {
    /// Answers all properties for all values of constants.
    ///
    /// A case with an error gets rows with the reason, and does not stop the other cases.
    fn answer(&mut self, subject: Subject, options: &Options) -> Result<()> {
        let cases = &*self.cases.all;
        match (&subject, self.args.truncate) {
            (Subject::Language(model), None) => match self.args.changing() {
                Some(timed) => self.scheduled(model, timed, options)?,
                None => self.study(model, options)?,
            },
            (Subject::Language(model), Some(allowed)) => {
                let options = options.epsilon(options.epsilon - allowed);
                for (index, case) in cases.iter().enumerate() {
                    let answers = self.truncated(model, allowed, case, &options);
                    self.take(index, answers)?;
                }
            }
            (Subject::Chain(_), _) => {
                let Subject::Chain(chain) = subject else { unreachable!("a chain was matched") };
                chain.warnings.iter().for_each(|warning| self.say("warning", warning));
                let watch = &mut |_, _| interrupt::check();
                let asked = self.questions.plan(ChainRef::File(&chain), &cases[0], watch)?;
                let answers = self.solved((0, 1, 1), |machine, watch| {
                    asked.answer(Chain { warnings: Vec::new(), ..chain }, machine, options, watch)
                });
                self.take(0, answers)?;
                for (index, case) in cases.iter().enumerate().skip(1) {
                    self.take(index, fail(case.invalid.as_deref().unwrap_or_default()))?;
                }
            }
        }
        self.rows.sort_by_key(|(case, _)| *case);
        self.chains.sort_by_key(|(case, ..)| *case);
        let Some(error) = self.failed.take().filter(|_| self.chains.is_empty()) else { return Ok(()) };
        if cases.len() == 1 {
            return Err(error);
        }
        let first = self.cases.name(0, &self.rows[0].1.constants);
        fail(format!("none of {} values has an answer; {first}: {error}", cases.len()))
    }

    /// Answers for a model. Its states are explored again only if constants change them.
    fn study(&mut self, model: &PrismModel, options: &Options) -> Result<()> {
        let (limit, quiet) = (self.args.common.memory_limit, self.args.common.quiet);
        let cases = &*self.cases.all;
        let mut study = Study::new((&self.args.model, model), self.questions, cases, limit);
        let mut explored = |instance: &Instance, _: &mut dyn kolmo::Progress| explore(instance, limit, quiet);
        let mut done = 0;
        while let Some(batch) = study.next(&mut explored, &mut |_, _| interrupt::check()) {
            for (case, ready) in batch.iter().filter_map(|(case, ready)| Some((case, ready.as_ref().ok()?))) {
                self.explorations += usize::from(ready.explored);
                if ready.explored && self.explorations > 1 {
                    let values = cases[*case].model.iter().map(|(name, v)| format!("{name}={}", shown(*v)));
                    let values = values.collect::<Vec<_>>().join(",");
                    self.say("note", &format!("{values} changes the states, which were explored again"));
                }
                ready.chain.warnings.iter().for_each(|warning| self.say("warning", warning));
            }
            let count = batch.len() as u64;
            let answered = self.solved((done, count, cases.len() as u64), |machine, watch| {
                Ok(study.answer(batch, machine, options, watch))
            })?;
            done += count;
            for (case, answers) in answered {
                self.take(case, answers)?;
            }
        }
        Ok(())
    }

    /// Answers for a model with constants that change with time.
    fn scheduled(&mut self, model: &PrismModel, timed: &TimedConstants, options: &Options) -> Result<()> {
        let limit = self.args.common.memory_limit;
        let all = &*self.cases.all;
        let mut scheduled = Scheduled::new((&self.args.model, model), self.questions, &timed.changing);
        for (index, case) in all.iter().enumerate() {
            let mut explorations = 0;
            let mut explored = |instance: &Instance, _: &mut dyn kolmo::Progress| {
                explorations += 1;
                explore(instance, limit, true)
            };
            let more = index + 1 < all.len();
            let answers = self.solved((index as u64, 1, all.len() as u64), |machine, watch| {
                scheduled.answer(case, more, &mut explored, (machine, options), watch)
            });
            self.explorations += explorations;
            self.take(index, answers)?;
        }
        Ok(())
    }

    /// Answers for a truncated model, which is explored until little enough is lost.
    fn truncated(
        &mut self,
        model: &PrismModel,
        allowed: f64,
        case: &Case,
        options: &Options,
    ) -> Result<Answers> {
        let Common { memory_limit, quiet, .. } = self.args.common;
        let questions = self.questions;
        if let Some(why) = &case.invalid {
            return fail(why.clone());
        }
        let instance = model.with_constants(&case.model).map_err(refused)?;
        questions.expect_sound(&instance, case)?;
        let mut truncation = Truncation::new(instance, allowed, self.args.epsilon)?;
        loop {
            let space = part(&mut truncation, memory_limit, quiet)?;
            let asked = questions.plan(ChainRef::Explored(&space), case, &mut |_, _| interrupt::check())?;
            let chain = language::bare(&self.args.model, space)?;
            chain.warnings.iter().for_each(|warning| self.say("warning", warning));
            let answers =
                self.solved((0, 1, 1), |machine, watch| asked.answer(chain, machine, options, watch))?;
            if truncation.is_enough(&answers.left) {
                if !quiet {
                    say_enough(&truncation, answers.states);
                }
                return Ok(answers);
            }
        }
    }

    /// Prints a warning or a note once.
    fn say(&mut self, kind: &str, what: &str) {
        let text = format!("{kind}: {what}");
        if !self.args.common.quiet && !self.said.contains(&text) {
            say(&text);
            self.said.insert(text);
        }
    }

    /// Runs a solver with a progress display.
    ///
    /// `cases` has the number of finished cases, of cases in this call, and of all cases.
    fn solved<T>(
        &mut self,
        cases: (u64, u64, u64),
        solve: impl FnOnce(&Machine, &mut IterationObserver<'_>) -> Result<T>,
    ) -> Result<T> {
        let began = Instant::now();
        let progress = ProgressDisplay::new(self.args.common.quiet, "building the matrix");
        let mut watch = progress.watch(self.end).among(cases);
        let solved = solve(self.machine, &mut watch);
        self.limit = watch.limit.or(self.limit);
        drop(progress);
        self.solve += began.elapsed().as_secs_f64();
        solved
    }

    /// Stores the answers of a case, or the reason why it has none.
    /// Fails for interruptions and errors of devices, which end the whole run.
    fn take(&mut self, index: usize, answers: Result<Answers>) -> Result<()> {
        let case = &self.cases.all[index];
        let answers = match answers {
            Ok(answers) => answers,
            Err(error @ (Error::Invalid(..) | Error::OutOfMemory { .. })) => {
                let rows = self.questions.refused(case, &error.to_string())?;
                self.rows.extend(rows.into_iter().map(|row| (index, row)));
                self.failed.get_or_insert(error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.chains.push((index, case.clone(), answers.states));
        answers.notes.iter().for_each(|note| self.say("note", note));
        (self.columns, self.names) = (answers.columns, answers.names);
        self.bound = self.bound.worst(&answers.bound);
        if answers.status == Status::NotMet {
            self.status = Status::NotMet;
        }
        self.sweeps += answers.sweeps;
        self.terms += answers.terms;
        self.rows.extend(answers.rows.into_iter().map(|row| (index, row)));
        Ok(())
    }

    /// Writes the answers for every initial state to the file of `-o`.
    fn write_values(&self, file: OutputFile, format: &str) -> Result<()> {
        let states = self.columns.first().map_or(0, |(_, column)| column.len());
        if format == "npy" {
            let (shape, columns) =
                ([self.columns.len(), states], self.columns.iter().map(|(_, values)| &values[..]));
            return complete(file, |file| npy(file, &shape[usize::from(shape[0] == 1)..], columns));
        }
        let variables = self.names.iter().flat_map(|names| names.variables());
        let columns = variables.chain(self.columns.iter().map(|(text, _)| text));
        let head: String = columns.map(|name| format!(",{}", field(name))).collect();
        let of_state = |state: usize, line: &mut Vec<u8>| {
            push_integer(line, state as u64);
            for value in self.names.iter().flat_map(|names| names.values(state)) {
                line.push(b',');
                line.extend_from_slice(value.as_bytes());
            }
            for (_, column) in &self.columns {
                line.push(b',');
                push_number(line, column[state]);
            }
            line.push(b'\n');
        };
        complete(file, |file| {
            writeln!(file, "state{head}")?;
            write_lines(file, states, &of_state)
        })
    }

    /// Writes one line per property.
    fn print(&self, file: OutputFile) -> Result<()> {
        let ranges = &self.cases.columns;
        let mut text = "property".to_owned();
        ranges.iter().for_each(|name| text += &format!(",{}", field(name)));
        text += ",value,bound";
        for name in &self.args.gradient {
            text += &format!(",d/d{name},bound of d/d{name}");
        }
        for (_, row) in &self.rows {
            text += &format!("\n{}", field(&row.text));
            for range in ranges {
                let value = row.constants.iter().find(|(name, _)| name == range);
                text += &value.map_or(",".to_owned(), |(_, value)| format!(",{}", shown(*value)));
            }
            let bound = if row.refused.is_some() { String::new() } else { number(row.error()) };
            text += &format!(",{},{bound}", word(row));
            for k in 0..self.args.gradient.len() {
                text += &match row.gradient.get(k) {
                    Some((_, Ok(answer))) => format!(",{},{}", number(answer.value), number(answer.error)),
                    _ => ",refused,".to_owned(),
                };
            }
        }
        complete(file, |out| writeln!(out, "{text}"))
    }

    fn json(&self, total: f64) -> Json {
        let constants =
            |all: &Assigned| Json::from_iter(all.iter().map(|(name, value)| (name.clone(), as_json(*value))));
        let derivative = |(name, found): &(String, Derivative)| match found {
            Ok(answer) => {
                (name.clone(), json!({"value": answer.value, "bound": answer.error, "refused": null}))
            }
            Err(why) => (name.clone(), json!({"value": null, "bound": null, "refused": with_options(why)})),
        };
        let property = |row: &PropertyAnswer| {
            json!({
                "name": row.name,
                "property": row.text,
                "constants": constants(&row.constants),
                "truth": row.truth().map(truth),
                // JSON has no number for infinity.
                "value": row.value().map(|value| if value == f64::INFINITY { json!("inf") } else { json!(value) }),
                "bound": row.refused.is_none().then(|| row.error()),
                "loss": row.loss(),
                "refused": row.refused.as_deref().map(with_options),
                "gradient": row.gradient.iter().map(derivative).collect::<serde_json::Map<_, _>>(),
            })
        };
        json!({
            "command": "check",
            "model": self.args.model,
            "status": self.status(),
            "epsilon": self.args.epsilon,
            "bound": self.bound,
            "limit": self.limit.filter(|_| self.status == Status::NotMet),
            "devices": report::devices_of(self.machine),
            "properties": self.rows.iter().map(|(_, row)| property(row)).collect::<Vec<_>>(),
            "chains": self.chains.iter().map(|(_, case, n)| json!({"constants": constants(&case.model), "n": n})).collect::<Vec<_>>(),
            "explorations": self.explorations,
            "sweeps": self.sweeps,
            "terms": self.terms,
            "seconds": {"solve": self.solve, "total": total},
        })
    }

    /// Status of the run; `NotMet` if an answer is missing.
    fn status(&self) -> Status {
        let answered = self.rows.iter().all(|(_, row)| row.refused.is_none());
        if answered { self.status } else { Status::NotMet }
    }

    /// Prints the values without an answer, with the reasons.
    /// Fails if properties are not answered for any values.
    fn refusals(&self) -> Result<()> {
        let answered = self.rows.iter().filter(|(_, row)| row.refused.is_none());
        let answered: BTreeSet<usize> = answered.map(|(_, row)| row.property).collect();
        let refused = self.rows.iter().filter_map(|(case, row)| Some((*case, row, row.refused.as_deref()?)));
        let (some, never): (Vec<_>, Vec<_>) =
            refused.partition(|(_, row, _)| answered.contains(&row.property));
        let mut said = None;
        for (case, row, why) in some {
            if said.replace((case, why)) != Some((case, why)) {
                let values = self.cases.name(case, &row.constants);
                say(format_args!("no answer for {values}: {}", with_options(why)));
            }
        }
        let (count, all) = (never.len(), self.rows.len());
        let mut reasons: Vec<&str> = never.into_iter().map(|(.., why)| why).collect();
        reasons.dedup();
        let why = format_args!("{count} of {all} properties are refused:\n  {}", reasons.join("\n  "));
        expect(count == 0, why)
    }

    fn conclude(&self, total: f64) -> Result<Status> {
        let refusals = self.refusals();
        let worst = self.rows.iter().map(|(_, row)| row.error()).fold(0.0f64, f64::max);
        let missed = self.status == Status::NotMet;
        if !self.args.common.quiet {
            let states: usize = self.chains.iter().map(|(.., n)| n).sum();
            let (model, [total, solve]) = (&self.args.model, [total, self.solve].map(seconds));
            let answers = counted(self.rows.len() as u64, "answer");
            let (states, runs) = (counted(states as u64, "state"), counted(self.sweeps as u64, "run"));
            // Matrix–vector products, or cycles of the multilevel solver.
            let steps = counted(self.terms, "step");
            say(format_args!(
                "{model}  {answers} from {states} in {runs} of {steps}; {total} in all, {solve} of it for the runs"
            ));
        }
        if missed || !self.args.common.quiet {
            let met = match missed {
                true => "NOT met; each answer has its own bound, the largest",
                false => "met; the largest",
            };
            let epsilon = self.args.epsilon;
            say(format_args!("bound    {epsilon:e} requested for probabilities: {met} is {worst:.2e}"));
            if let Some(limit) = self.limit.filter(|_| missed) {
                say(format_args!("         limited by {limit}"));
            }
            if self.args.truncate.is_some() {
                say(format_args!("         of probabilities {}", report::parts(&self.bound)));
            }
        }
        refusals?;
        let derivatives = self.rows.iter().flat_map(|(_, row)| &row.gradient);
        let mut refused: Vec<&str> =
            derivatives.filter_map(|(_, found)| Some(&**found.as_ref().err()?)).collect();
        let count = counted(refused.len() as u64, "derivative");
        refused.sort_unstable();
        refused.dedup();
        let why = format_args!("no answer for {count}:\n  {}", refused.join("\n  "));
        expect(refused.is_empty(), why).map(|()| self.status())
    }
}

/// Text of a property's value.
fn word(row: &PropertyAnswer) -> String {
    if row.refused.is_some() {
        return "refused".to_owned();
    }
    row.truth().map_or_else(|| number(row.value().unwrap_or(f64::NAN)), |known| truth(known).to_owned())
}

fn truth(known: Option<bool>) -> &'static str {
    known.map_or("undecided", |known| if known { "true" } else { "false" })
}

fn shown(value: Value) -> String {
    if let Value::Double(value) = value { number(value) } else { value.to_string() }
}

fn as_json(value: Value) -> Json {
    match value {
        Value::Int(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Bool(value) => json!(value),
    }
}
