//! Properties to check, the chains or models they refer to, and the answers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::answer::{Answer, Verdict};
use crate::errors::{refused, unprefixed};
use crate::executor::{Decisions, Needs, Solved, solve_all};
use crate::gradient::Derivative;
use crate::planned::ValuePlan;
use crate::planner::Plan;
use crate::source::{ChainRef, refuse};
use crate::state_values::EachState;
use crate::{Assigned, language};
use kolmo::transient::{Bound, Chain, Options, StateNames, Status};
use kolmo::{Error, Machine, Progress, Result};
use kolmo_model::constants::{ConstValues, combinations};
use kolmo_model::properties::{self, Properties, Property, Wrong};
use kolmo_model::{Instance, ModelDerivatives, Names, PrismModel, Value, decoded};

/// Chain or model that properties refer to.
pub enum Subject {
    /// A model. Values of its constants give its chains.
    Language(PrismModel),
    /// A chain from a file, or a built-in chain.
    Chain(Chain),
}

impl Subject {
    fn names(&self) -> Names {
        match self {
            Self::Language(model) => model.names().clone(),
            Self::Chain(chain) => Names::bare(
                chain.labels.sets.iter().map(|(name, _)| &name[..]),
                chain.rewards.iter().map(|reward| &reward.name[..]),
                chain.names.as_deref().map_or_else(Vec::new, |names| {
                    let named = |(place, ty): (usize, _)| (names.variables()[place].clone(), ty);
                    language::variables(names).into_iter().map(named).collect()
                }),
            )
            .discrete(chain.transitions.is_discrete()),
        }
    }

    /// Constants of the model without a value.
    fn constants(&self) -> impl Iterator<Item = &str> {
        let model = match self {
            Self::Language(model) => Some(model),
            Self::Chain(_) => None,
        };
        model.into_iter().flat_map(PrismModel::undefined_constants).map(|(name, _)| name)
    }
}

/// True if an argument names a file of properties.
pub fn is_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    ["csl", "props", "pctl", "prctl"].contains(&extension) || path.is_file()
}

/// True for a text that may be a misspelt file name: words with an extension.
fn looks_like_file(text: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || "._-+~/\\: ".contains(c);
    let extension = Path::new(text).extension().and_then(|e| e.to_str()).unwrap_or("");
    text.chars().all(name) && extension.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn no_file(path: &str) -> Error {
    let reason = "No such file; give a file of properties, or a property such as P=? [ F<=10 \"full\" ]";
    Error::File { path: PathBuf::from(path), reason: reason.to_owned() }
}

/// Values of constants for one chain and its properties.
#[derive(Clone, Debug)]
pub struct Case {
    /// Values of the model's constants.
    pub model: Vec<(String, Value)>,
    /// Combinations of values of the constants that only the properties declare.
    pub properties: Arc<Vec<Vec<(String, Value)>>>,
    /// Reason why the values are invalid. The case then has no answers.
    pub invalid: Option<String>,
}

impl Case {
    /// Creates a case with values of the model's constants only.
    pub fn of(model: &Assigned) -> Self {
        Self { model: model.to_vec(), properties: Arc::new(vec![Vec::new()]), invalid: None }
    }
}

/// Properties to check, and options that select and evaluate them.
pub struct Questions {
    texts: Vec<Properties>,
    /// Comma-separated numbers or names of the selected properties. `None` selects all.
    pub only: Option<String>,
    /// Requested error bound of values that are computed from every state.
    pub epsilon: f64,
    /// Constants by which answers are differentiated.
    pub gradient: Vec<String>,
    /// True if values from every state are requested, too.
    pub all_states: bool,
    /// Machine for values from every state at a time; `None` is the CPU.
    ///
    /// The CPU also replaces a machine without double precision.
    pub machine: Option<Machine>,
    /// Probability that may be lost in a truncated model. A run ends early if it loses more.
    pub allowed: f64,
    /// True if rates change with time, see [`Scheduled`](crate::Scheduled).
    pub timed: bool,
}

/// Name of a property, if it has one, and its text.
type NameAndText = (Option<String>, String);

impl Questions {
    /// Reads the properties of all arguments, each of which is a text or the name of a file.
    /// Fails for unreadable files, texts without a property, and errors in constants or labels. A
    /// property with errors is kept and rejected by itself.
    pub fn read(arguments: &[String], subject: &Subject) -> Result<Self> {
        let names = subject.names();
        let mut texts = Vec::new();
        for argument in arguments {
            let path = Path::new(argument);
            let text = match is_file(path) {
                true => std::fs::read(path).map(decoded).map_err(|source| match source.kind() {
                    std::io::ErrorKind::NotFound => no_file(argument),
                    _ => Error::Io { path: PathBuf::from(path), source },
                })?,
                false if looks_like_file(argument) => return Err(no_file(argument)),
                false => argument.clone(),
            };
            let name = if is_file(path) { &argument[..] } else { "property" };
            let properties = properties::parse(name, &text, &names).map_err(refused)?;
            if properties.is_empty() {
                return Err(Error::invalid(format!(
                    "{name} has no property; write one, such as P=? [ F<=10 \"full\" ]"
                )));
            }
            texts.push(properties);
        }
        Ok(Self {
            texts,
            only: None,
            epsilon: Options::default().epsilon,
            gradient: Vec::new(),
            all_states: false,
            machine: None,
            allowed: f64::INFINITY,
            timed: false,
        })
    }

    /// Constants without a value, of the model and of the properties.
    pub fn constants<'a>(&'a self, subject: &'a Subject) -> Vec<&'a str> {
        let own = self.texts.iter().flat_map(Properties::undefined_constants).map(|(name, _)| name);
        let mut all: Vec<&str> = subject.constants().chain(own).collect();
        let mut seen = HashSet::new();
        all.retain(|name| seen.insert(*name));
        all
    }

    /// Returns a case for each combination of values of the model's constants.
    ///
    /// Constants that are declared nowhere are assigned to the model, whose instantiation reports
    /// them. Without a model, they are assigned to the properties. Malformed values of lists give
    /// invalid cases at the end. Fails for too many combinations.
    pub fn cases(&self, given: &[ConstValues], subject: &Subject) -> Result<Vec<Case>> {
        let asked = |name: &str| self.texts.iter().any(|text| has(text, name));
        let of_texts = |given: &ConstValues| {
            let in_texts = matches!(subject, Subject::Chain(_)) || asked(&given.name);
            in_texts && !subject.constants().any(|name| name == given.name)
        };
        let (texts, model): (Vec<ConstValues>, Vec<ConstValues>) = given.iter().cloned().partition(of_texts);
        let properties = Arc::new(combinations(&texts).map_err(refused)?);
        let of_model = combinations(&model).map_err(refused)?;
        let case = |model| Case { model, properties: properties.clone(), invalid: None };
        let mut cases: Vec<Case> = of_model.into_iter().map(case).collect();
        for (k, one) in given.iter().enumerate().filter(|(_, one)| !one.malformed.is_empty()) {
            let mut others = given.to_vec();
            others[..=k].iter_mut().for_each(|other| other.malformed.clear());
            others[k].values.truncate(1);
            let without = |mut case: Case, why: &String| {
                case.model.retain(|(name, _)| *name != one.name);
                let values = case.properties.iter().cloned();
                let own = values.map(|mut own| (own.retain(|(name, _)| *name != one.name), own).1);
                let invalid = case.invalid.or_else(|| Some(why.clone()));
                Case { properties: Arc::new(own.collect()), invalid, ..case }
            };
            let all = self.cases(&others, subject)?;
            let wrong = one.malformed.iter().flat_map(|why| all.iter().map(move |case| (case.clone(), why)));
            cases.extend(wrong.map(|(case, why)| without(case, why)));
        }
        Ok(cases)
    }

    /// Indices of the selected properties.
    fn chosen(&self) -> Result<Vec<usize>> {
        let all: Vec<Option<&str>> = self.texts.iter().flat_map(Properties::property_names).collect();
        let Some(wanted) = &self.only else { return Ok((0..all.len()).collect()) };
        let place = |word: &str| {
            let number = kolmo::internals::count(word).filter(|number| (1..=all.len()).contains(number));
            let place = all.iter().position(|name| *name == Some(word));
            place.or(number.map(|number: usize| number - 1)).ok_or_else(|| {
                let names: Vec<&str> = all.iter().copied().flatten().collect();
                let names = if names.is_empty() {
                    String::new()
                } else {
                    format!(", and names: {}", names.join(", "))
                };
                Error::invalid(format!(
                    "invalid `prop` '{word}': expected a number from 1 to {}{names}",
                    all.len()
                ))
            })
        };
        wanted.split(',').map(|word| place(word.trim())).collect()
    }

    /// Resolves the selected properties with values of constants, with a result for each.
    fn resolved(
        &self,
        instance: Option<&Instance>,
        values: &Assigned,
    ) -> Result<Vec<std::result::Result<Property, Wrong>>> {
        Ok(self.resolved_unless(instance, values, &Err)?.into_iter().flatten().collect())
    }

    /// Resolves the selected properties as [`resolved`](Self::resolved).
    ///
    /// A text with an error is passed to `failed`; its properties are `None` if that returns `Ok`.
    fn resolved_unless(
        &self,
        instance: Option<&Instance>,
        values: &Assigned,
        failed: &dyn Fn(Error) -> Result<()>,
    ) -> Result<Vec<Option<std::result::Result<Property, Wrong>>>> {
        let chosen = self.chosen()?;
        let mut all = vec![None; self.texts.iter().map(Properties::len).sum()];
        let mut first = 0;
        for text in &self.texts {
            // A constant that no text declares is given to all texts, which report it.
            let known = |name: &str| has(text, name) || !self.texts.iter().any(|text| has(text, name));
            let own: Vec<(String, Value)> = values.iter().filter(|(name, _)| known(name)).cloned().collect();
            let wanted = |place: usize| chosen.contains(&(first + place));
            let places = (0..text.len()).filter(|place| wanted(*place));
            match text.with_constants(instance, &own, &wanted).map_err(refused) {
                Ok(found) => {
                    places.zip(found).for_each(|(place, property)| all[first + place] = Some(property));
                }
                Err(error) => failed(error)?,
            }
            first += text.len();
        }
        Ok(chosen.into_iter().map(|place| all[place].clone()).collect())
    }

    /// Name and text of each selected property.
    fn texts(&self) -> Result<impl Iterator<Item = (usize, NameAndText)> + Clone> {
        let named = |text: &Properties| -> Vec<_> {
            let names = text.property_names().map(|name| name.map(str::to_owned));
            names.zip(text.property_texts().map(str::to_owned)).collect()
        };
        let all: Vec<_> = self.texts.iter().flat_map(named).collect();
        let chosen: Vec<_> = self.chosen()?.into_iter().map(|place| all[place].clone()).collect();
        Ok(chosen.into_iter().enumerate())
    }

    /// Returns a row for each property of a case without answers.
    /// Fails for unknown numbers or names of properties.
    pub fn refused(&self, case: &Case, why: &str) -> Result<Vec<PropertyAnswer>> {
        let texts = self.texts()?;
        let of = |own: &Vec<(String, Value)>| {
            let constants = [&case.model[..], own].concat();
            let row = move |(property, (name, text))| {
                let (constants, refused) = (constants.clone(), Some(why.to_owned()));
                let found = Verdict::Refused;
                PropertyAnswer { property, name, text, constants, found, refused, gradient: Vec::new() }
            };
            texts.clone().map(row)
        };
        Ok(case.properties.iter().flat_map(of).collect())
    }

    /// Fails if no selected property is valid, to save the exploration.
    ///
    /// # Errors
    /// The reason why the case is invalid. Missing constants or values of another type; unknown
    /// numbers or names of properties; only properties with errors.
    pub fn expect_sound(&self, instance: &Instance, case: &Case) -> Result<()> {
        let mut first = None;
        for own in &*case.properties {
            let error = match self.resolved(Some(instance), own) {
                Ok(found) if found.iter().any(std::result::Result::is_ok) => return Ok(()),
                Ok(found) => none_is_right(found.into_iter().filter_map(std::result::Result::err)),
                Err(error) => error,
            };
            first.get_or_insert(error);
        }
        first.map_or(Ok(()), Err)
    }

    /// Prepares the derivatives of a model by the constants of the gradient.
    fn derivatives<'s>(&self, source: ChainRef<'s>) -> Result<Vec<ModelDerivatives<'s>>> {
        match source {
            ChainRef::Explored(space) => {
                let of = |name: &String| space.derivatives(name).map_err(refused);
                self.gradient.iter().map(of).collect()
            }
            ChainRef::File(_) if self.gradient.is_empty() => Ok(Vec::new()),
            ChainRef::File(_) => refuse("derivatives need a model with constants, and this is a chain"),
        }
    }

    /// Resolves the selected properties. In `several` cases, invalid constants fail each property.
    fn resolved_or_wrong(
        &self,
        instance: Option<&Instance>,
        own: &[(String, Value)],
        several: bool,
    ) -> Result<Vec<std::result::Result<Property, (NameAndText, String)>>> {
        let wrong = |Wrong { name, text, why }| ((name, text), unprefixed(&why.to_string()));
        match self.resolved(instance, own) {
            Err(Error::Invalid(_, why)) if several => {
                Ok(self.texts()?.map(|(_, named)| Err((named, why.clone()))).collect())
            }
            Ok(found) if !several && found.iter().all(std::result::Result::is_err) => {
                Err(none_is_right(found.into_iter().filter_map(std::result::Result::err)))
            }
            found => Ok(found?.into_iter().map(|found| found.map_err(wrong)).collect()),
        }
    }

    /// Plans all properties of one chain.
    ///
    /// Values from every state, for nested operators and filters, are computed immediately. Fails
    /// if no property can be answered. Otherwise the error of a property is in its
    /// [`PropertyAnswer`].
    pub fn plan(&self, source: ChainRef<'_>, case: &Case, watch: &mut dyn Progress) -> Result<Asked> {
        let instance = match source {
            ChainRef::Explored(space) => Some(space.instance()),
            ChainRef::File(_) => None,
        };
        let mut each = EachState::new(source, self.epsilon, watch);
        each.timed = self.timed;
        each.given.clone_from(&self.machine);
        let states = each.states();
        let mut plan = Plan::new(each, self.allowed);
        let (mut asked, mut columns) = (Vec::new(), Vec::new());
        let several = case.properties.len() > 1;
        let derivatives = self.derivatives(source)?;
        for own in &*case.properties {
            let constants = [&case.model[..], own].concat();
            let found = self.resolved_or_wrong(instance, own, several)?;
            let of = |d: &ModelDerivatives<'_>| self.resolved_unless(Some(&d.symbolic), own, &|_| Ok(()));
            let others = derivatives.iter().map(of).collect::<Result<Vec<_>>>()?;
            let none = || vec![(None, ValuePlan::Found(Verdict::Refused))];
            for (index, found) in found.into_iter().enumerate() {
                let (mut place, mut depends, mut column) = (None, Vec::new(), None);
                let (name, text, all, refused) = match found {
                    Err(((name, text), why)) => (name, text, none(), Some(why)),
                    Ok(Property { name, text, place: of, formula, .. }) => {
                        place = Some(of).filter(|place| !place.starts_with("property:"));
                        let differs =
                            |all: &Vec<Option<std::result::Result<Property, Wrong>>>| match &all[index] {
                                Some(Ok(other)) => other.formula != formula,
                                _ => true,
                            };
                        depends = others.iter().map(differs).collect();
                        let (all, refused) = match plan.add(&formula) {
                            Ok(all) => (all, None),
                            Err(Error::Invalid(_, why)) => {
                                (none(), Some(named(place.as_deref(), &text, &why)))
                            }
                            Err(other) => return Err(other),
                        };
                        if self.all_states && refused.is_none() {
                            column = Some(plan.column(&formula)?);
                        }
                        (name, text, all, refused)
                    }
                };
                if self.all_states {
                    let values = own.iter().map(|(name, value)| format!(" {name}={value}"));
                    let values: String = values.filter(|_| several).collect();
                    let column = column.unwrap_or_else(|| vec![f64::NAN; states]);
                    columns.push((format!("{text}{values}"), column));
                }
                asked.extend(all.into_iter().map(|(of, planned)| PlannedProperty {
                    property: index,
                    name: name.clone(),
                    text: of.map_or_else(|| text.clone(), |of| format!("{text} {of}")),
                    place: place.clone(),
                    planned,
                    refused: refused.clone(),
                    constants: constants.clone(),
                    depends: depends.clone(),
                }));
            }
        }
        none_refused(asked.iter().map(|planning| planning.refused.as_deref()))?;
        plan.differentiate(&derivatives)?;
        let names = match source {
            _ if !self.all_states => None,
            ChainRef::Explored(space) => Some(Arc::new(language::names(space))),
            ChainRef::File(chain) => chain.names.clone(),
        };
        let (needs, (met, sweeps, notes)) = plan.needs();
        let gradient = self.gradient.clone();
        Ok(Asked { properties: asked, needs, met, sweeps, notes, columns, names, gradient })
    }
}

/// True if a constant without a value has this name in the text.
fn has(text: &Properties, name: &str) -> bool {
    text.undefined_constants().any(|(own, _)| own == name)
}

/// Adds the text of a property, and its place in a file, to an error message.
fn named(place: Option<&str>, text: &str, why: &str) -> String {
    match place {
        Some(place) => format!("{place}: {text}: {why}"),
        None => format!("{text}: {why}"),
    }
}

/// Joins the messages of all properties with errors.
fn none_is_right(all: impl Iterator<Item = Wrong>) -> Error {
    let all: Vec<String> = all.map(|wrong| wrong.why.to_string()).collect();
    Error::invalid(unprefixed(&all.join("\n\n")))
}

/// Fails with the first reason if all properties are rejected.
fn none_refused<'a>(all: impl Iterator<Item = Option<&'a str>> + Clone) -> Result<()> {
    match all.clone().flatten().next() {
        Some(why) if all.clone().all(|why| why.is_some()) => Err(Error::invalid(why.to_owned())),
        _ => Ok(()),
    }
}

/// A property and the plan to answer it.
struct PlannedProperty {
    property: usize,
    name: Option<String>,
    text: String,
    /// File and line of a property from a file.
    place: Option<String>,
    planned: ValuePlan,
    /// Reason why the property is not answered.
    refused: Option<String>,
    constants: Vec<(String, Value)>,
    /// True for each constant of the gradient on which the formula depends, for example in a time.
    depends: Vec<bool>,
}

/// Planned properties of one chain, ready to be answered.
pub struct Asked {
    properties: Vec<PlannedProperty>,
    pub(crate) needs: Needs,
    /// Outcome of the computations from every state.
    ///
    /// `met` is true if their bounds were met, and `sweeps` is the number of runs. The other fields
    /// go to [`Answers`].
    met: bool,
    sweeps: usize,
    notes: Vec<String>,
    columns: Vec<(String, Vec<f64>)>,
    names: Option<Arc<StateNames>>,
    /// Constants by which answers are differentiated.
    gradient: Vec<String>,
}

/// A property and its answer.
#[derive(Debug)]
pub struct PropertyAnswer {
    /// Index of the property among the selected ones.
    pub property: usize,
    /// Name of the property, if it has one.
    pub name: Option<String>,
    /// Text of the property.
    pub text: String,
    /// Values of the constants of the model and the property.
    pub constants: Vec<(String, Value)>,
    /// Answer to the property.
    pub found: Verdict,
    /// Reason why the property is not answered.
    pub refused: Option<String>,
    /// Derivative of the answer by each constant of [`Questions::gradient`].
    ///
    /// Empty for a property without answer.
    pub gradient: Vec<(String, Derivative)>,
}

/// Answers to all properties of one chain, with statistics of the computation.
#[derive(Debug)]
pub struct Answers {
    /// One row for each property and each combination of its constants.
    pub rows: Vec<PropertyAnswer>,
    /// Number of states of the chain.
    pub states: usize,
    /// Worst status of all runs.
    pub status: Status,
    /// Number of uniformization runs and solves of linear systems.
    pub sweeps: usize,
    /// Number of matrix–vector products.
    pub terms: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Values from every state by property, if requested.
    ///
    /// They are numbers, or 1 for true, 0 for false and NaN for undecided.
    pub columns: Vec<(String, Vec<f64>)>,
    /// Names of the states in `columns`.
    pub names: Option<Arc<StateNames>>,
    /// Maximum of each error term over the computed probabilities.
    pub bound: Bound,
    /// Maximum over all properties of the probability in each boundary state.
    pub left: Vec<f64>,
}

impl Asked {
    /// Reason for the first property that is not answered.
    pub fn refused(&self) -> Option<&str> {
        self.properties.iter().find_map(|planning| planning.refused.as_deref())
    }

    /// Rejects properties with a different plan in another phase; only rates and rewards may
    /// differ.
    pub(crate) fn expect_equal(&mut self, other: &Self) {
        const WHY: &str = "it depends on a constant that changes with time, not by rates and rewards alone";
        let refusal = |answer| {
            let equal = self.needs.request(answer) == other.needs.request(answer);
            (!equal).then(|| WHY.to_owned())
        };
        let differ: Vec<Option<String>> = (0..self.needs.answers.len()).map(refusal).collect();
        for (place, planning) in self.properties.iter_mut().enumerate() {
            let equal = other.properties.get(place).is_some_and(|other| other.planned == planning.planned);
            if planning.refused.is_none() && (!equal || planning.planned.refusal(&differ).is_some()) {
                planning.refused = Some(named(planning.place.as_deref(), &planning.text, WHY));
            }
        }
        let limits = self.needs.limits.iter_mut().zip(&other.needs.limits);
        limits.for_each(|(limit, other)| *limit = limit.max(*other));
    }

    /// Runs the planned computations and evaluates the properties.
    /// Fails like [`kolmo::transient::solve`].
    pub fn answer(
        self,
        chain: Chain,
        machine: &Machine,
        options: &Options,
        watch: &mut dyn Progress,
    ) -> Result<Answers> {
        let one = answer_all(vec![(self, chain)], &mut Decisions::new(false), (machine, options), watch);
        one.into_iter().next().expect("an answer for each chain")
    }

    /// Evaluates the properties from the computed answers.
    fn answered(self, states: usize, solved: Solved) -> Result<Answers> {
        let Self { properties, met, sweeps: before, notes, columns, names, gradient, .. } = self;
        let Solved { answers, refused: why, status, sweeps, terms, bound, left, derivatives } = solved;
        let row = |planning: PlannedProperty| {
            let PlannedProperty { property, name, text, place, planned, refused, constants, depends } =
                planning;
            let refused = refused.or_else(|| {
                let why = planned.refusal(&why)?;
                Some(named(place.as_deref(), &text, why))
            });
            let found = if refused.is_some() { Verdict::Refused } else { planned.found(&answers)? };
            let derivative = |(k, constant): (usize, &String)| {
                let found = match depends[k] {
                    true => Err(format!(
                        "the property depends on '{constant}': expected a constant of rates and rewards only"
                    )),
                    false => planned.derivative(&derivatives, k),
                };
                let found = found.map_err(|why| named(place.as_deref(), &text, &why));
                (constant.clone(), found)
            };
            let gradient = if refused.is_some() {
                Vec::new()
            } else {
                gradient.iter().enumerate().map(derivative).collect()
            };
            Ok(PropertyAnswer { property, name, text, constants, found, refused, gradient })
        };
        let rows: Vec<PropertyAnswer> = properties.into_iter().map(row).collect::<Result<_>>()?;
        none_refused(rows.iter().map(|row| row.refused.as_deref()))?;
        // An infinite bound means that no number was found, or that it overflows a double.
        let found = rows.iter().all(|row| row.error().is_finite());
        let status = if met && found { status } else { Status::NotMet };
        let sweeps = before + sweeps;
        Ok(Answers { rows, states, status, sweeps, terms, notes, columns, names, bound, left })
    }
}

/// Answers the properties of chains with equal patterns of transitions.
///
/// Returns the answers of each chain, or its error. `known` caches results of graph analysis for
/// the pattern.
pub(crate) fn answer_all(
    batch: Vec<(Asked, Chain)>,
    known: &mut Decisions,
    solver: (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Vec<Result<Answers>> {
    let (mut all, mut needs) = (Vec::new(), Vec::new());
    for (mut asked, chain) in batch {
        let own = std::mem::take(&mut asked.needs);
        all.push((asked, chain.transitions.states()));
        needs.push((own, chain));
    }
    let solved = solve_all(needs, known, solver, watch);
    all.into_iter().zip(solved).map(|((asked, states), solved)| asked.answered(states, solved?)).collect()
}

impl PropertyAnswer {
    /// Truth of a property with a threshold: `Some(None)` if the error leaves it undecided.
    ///
    /// `None` for a property that asks for a number.
    pub fn truth(&self) -> Option<Option<bool>> {
        match self.found {
            Verdict::Number(_) | Verdict::Refused => None,
            Verdict::Truth(truth, _) => Some(truth),
        }
    }

    /// Number that answers or decides the property, if there is one.
    pub fn value(&self) -> Option<f64> {
        self.answer().map(|answer| answer.value)
    }

    /// Error bound of the number that answers or decides the property.
    pub fn error(&self) -> f64 {
        self.answer().map_or(0.0, |answer| answer.error)
    }

    /// Part of the error bound that is due to unexplored states.
    pub fn loss(&self) -> f64 {
        self.answer().map_or(0.0, |answer| answer.loss)
    }

    fn answer(&self) -> Option<Answer> {
        match self.found {
            Verdict::Number(answer) => Some(answer),
            Verdict::Truth(_, answer) => answer,
            Verdict::Refused => None,
        }
    }
}
