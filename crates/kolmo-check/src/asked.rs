//! What is asked, of what, and the answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::language::{self, refused};
use crate::questions::{Answer, Found, Needs, Plan, Planned, Solved, Source};
use crate::state_values::EachState;
use crate::{Assigned, Notice, Watch};
use kolmo::transient::{Bound, Chain, Options, StateNames, Status};
use kolmo::{Error, Machine, Result};
use kolmo_model::constants::{Given, combinations};
use kolmo_model::properties::{self, Properties, Property};
use kolmo_model::{Instance, Model, Names, Value};

/// What is asked about.
pub enum Subject {
    /// A model, whose chains its constants make.
    Language(Model),
    /// The one chain of a file, or a built-in.
    Chain(Chain),
}

impl Subject {
    fn names(&self) -> Names {
        match self {
            Self::Language(model) => model.names().clone(),
            Self::Chain(chain) => Names::bare(
                chain.labels.sets.iter().map(|(name, _)| &name[..]),
                chain.rewards.iter().map(|reward| &reward.name[..]),
            ),
        }
    }

    fn has(&self, constant: &str) -> bool {
        match self {
            Self::Language(model) => model.undefined_constants().any(|(name, _)| name == constant),
            Self::Chain(_) => false,
        }
    }
}

/// True for a file of properties, by its name.
pub fn is_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    ["csl", "props", "pctl", "prctl"].contains(&extension) || path.is_file()
}

/// Properties, with values for constants that are theirs alone.
pub struct Questions {
    texts: Vec<Properties>,
    values: Vec<Vec<(String, Value)>>,
    /// Numbers or names of those that are asked.
    pub only: Option<String>,
    /// Bound asked for on errors of what is computed from every state.
    pub epsilon: f64,
    /// True if answers from every state are wanted, too.
    pub all_states: bool,
    /// Hears of what is computed from every state.
    pub watch: Option<Box<Notice>>,
}

impl Questions {
    /// Properties of every argument, which is a text or the name of a file.
    ///
    /// # Errors
    /// Files that cannot be read, texts that are wrong, and none.
    pub fn read(arguments: &[String], subject: &Subject) -> Result<Self> {
        let names = subject.names();
        let mut texts = Vec::new();
        for argument in arguments {
            let path = Path::new(argument);
            let text = match is_file(path) {
                true => std::fs::read_to_string(path)
                    .map_err(|source| Error::Io { path: PathBuf::from(path), source })?,
                false => argument.clone(),
            };
            let name = if is_file(path) { &argument[..] } else { "property" };
            let properties = properties::parse(name, &text, &names).map_err(refused)?;
            if properties.is_empty() {
                return Err(Error::Invalid(format!(
                    "{name} has no property; write one, such as P=? [ F<=10 \"full\" ]"
                )));
            }
            texts.push(properties);
        }
        Ok(Self {
            texts,
            values: vec![Vec::new()],
            only: None,
            epsilon: Options::default().epsilon,
            all_states: false,
            watch: None,
        })
    }

    /// Takes the values of constants of the properties alone; gives every combination of those of the model, which takes
    /// what nobody knows too.
    ///
    /// # Errors
    /// Too many combinations.
    pub fn take(&mut self, given: &[Given], subject: &Subject) -> Result<Vec<Vec<(String, Value)>>> {
        let asked =
            |name: &str| self.texts.iter().any(|text| text.undefined_constants().any(|(own, _)| own == name));
        let of_texts = |given: &Given| {
            let in_texts = matches!(subject, Subject::Chain(_)) || asked(&given.name);
            in_texts && !subject.has(&given.name)
        };
        let (texts, model): (Vec<Given>, Vec<Given>) = given.iter().cloned().partition(of_texts);
        self.values = combinations(&texts).map_err(refused)?;
        combinations(&model).map_err(refused)
    }

    /// The properties that are asked, or all.
    fn chosen(&self, all: Vec<Property>) -> Result<Vec<Property>> {
        let Some(wanted) = &self.only else { return Ok(all) };
        let place = |word: &str| {
            let number = kolmo::internals::count(word).filter(|number| (1..=all.len()).contains(number));
            let place = all.iter().position(|p| p.name.as_deref() == Some(word));
            place.or(number.map(|number: usize| number - 1)).ok_or_else(|| {
                let names: Vec<&str> = all.iter().filter_map(|p| p.name.as_deref()).collect();
                let names = if names.is_empty() {
                    String::new()
                } else {
                    format!(", and names: {}", names.join(", "))
                };
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
    fn resolved(&self, instance: Option<&Instance>, values: &Assigned) -> Result<Vec<Property>> {
        let mut all = Vec::new();
        for text in &self.texts {
            // A text that knows none of them says so.
            let known = |name: &str| {
                let own = |text: &Properties| text.undefined_constants().any(|(own, _)| own == name);
                own(text) || !self.texts.iter().any(own)
            };
            let own: Vec<(String, Value)> = values.iter().filter(|(name, _)| known(name)).cloned().collect();
            all.extend(text.with_constants(instance, &own).map_err(refused)?);
        }
        self.chosen(all)
    }

    /// An error where a property is wrong, which is not worth a search.
    ///
    /// # Errors
    /// Constants without a value or of another type; numbers and names of properties that are not there.
    pub fn expect_sound(&self, instance: &Instance) -> Result<()> {
        self.resolved(Some(instance), &self.values[0]).map(drop)
    }

    /// Plans all properties of one chain, whose constants have these values. What is needed from every state, for operators inside
    /// of others and filters, is computed at once, on the host.
    ///
    /// # Errors
    /// What cannot be answered, with the property.
    pub fn plan(&self, source: Source<'_>, values: &Assigned) -> Result<Asked> {
        let instance = match source {
            Source::Explored(space) => Some(space.instance()),
            Source::File(_) => None,
        };
        let each = EachState::new(source, self.epsilon, self.watch.as_deref());
        let mut plan = Plan::new(each);
        let (mut asked, mut columns) = (Vec::new(), Vec::new());
        for own in &self.values {
            for property in self.resolved(instance, own)? {
                let planned = plan.add(&property.formula).map_err(|error| match error {
                    Error::Invalid(why) => Error::Invalid(format!("{}: {why}", property.text)),
                    other => other,
                })?;
                if self.all_states {
                    columns.push((property.text.clone(), plan.column(&property.formula)?));
                }
                asked.push((property, planned, [values, own].concat()));
            }
        }
        let names = match source {
            _ if !self.all_states => None,
            Source::Explored(space) => Some(Arc::new(language::names(space))),
            Source::File(chain) => chain.names.clone(),
        };
        let (needs, (met, sweeps, notes)) = plan.needs();
        Ok(Asked { properties: asked, needs, met, sweeps, notes, columns, names })
    }
}

/// Constants and their values.
type Constants = Vec<(String, Value)>;

/// Properties of one chain, planned into sweeps.
pub struct Asked {
    properties: Vec<(Property, Planned, Constants)>,
    needs: Needs,
    /// Of what was computed from every state: true if its bounds are met, how many sweeps there were, and the rest as in [`Answers`].
    met: bool,
    sweeps: usize,
    notes: Vec<String>,
    columns: Vec<(String, Vec<f64>)>,
    names: Option<Arc<StateNames>>,
}

/// An answer, and what it answers.
#[derive(Debug)]
pub struct Row {
    /// The property's name, where it has one.
    pub name: Option<String>,
    /// The property as it is written.
    pub text: String,
    /// Values of the constants, the model's and its own.
    pub constants: Vec<(String, Value)>,
    /// The answer.
    pub found: Found,
}

/// The answers to all properties of one chain, and what they took.
#[derive(Debug)]
pub struct Answers {
    /// One for each property and each of its constants' values.
    pub rows: Vec<Row>,
    /// How the worst sweep ended.
    pub status: Status,
    /// How many sweeps there were.
    pub sweeps: usize,
    /// Multiplications.
    pub terms: u64,
    /// What people should know.
    pub notes: Vec<String>,
    /// Where they are wanted, of each property the answers from every state: numbers, or 1 for true, 0 for false and NaN for undecided.
    pub columns: Vec<(String, Vec<f64>)>,
    /// Names of the states of `columns`.
    pub names: Option<Arc<StateNames>>,
    /// Bound on the errors of the probabilities behind the answers: the worst of each part.
    pub bound: Bound,
    /// Probability in each state at the edge of what is explored, the largest that it is for any property.
    pub left: Vec<f64>,
}

impl Asked {
    /// Makes the sweeps.
    ///
    /// # Errors
    /// As [`kolmo::transient::solve`].
    pub fn answer(
        self,
        chain: Chain,
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
    ) -> Result<Answers> {
        let Self { properties, needs, met, sweeps: before, notes, columns, names } = self;
        let Solved { answers, status, sweeps, terms, bound, left } =
            needs.solve(chain, machine, options, watch)?;
        let status = if met { status } else { Status::NotMet };
        let row = |(property, planned, constants): (Property, Planned, _)| {
            let found = planned.found(&answers)?;
            Ok(Row { name: property.name, text: property.text, constants, found })
        };
        let rows = properties.into_iter().map(row).collect::<Result<_>>()?;
        Ok(Answers { rows, status, sweeps: before + sweeps, terms, notes, columns, names, bound, left })
    }
}

impl Row {
    /// True or false, or neither where the error leaves it open; none for a property that asks for a number.
    pub fn truth(&self) -> Option<Option<bool>> {
        match self.found {
            Found::Number(_) => None,
            Found::Truth(truth, _) => Some(truth),
        }
    }

    /// The number, where there is one.
    pub fn value(&self) -> Option<f64> {
        self.answer().map(|answer| answer.value)
    }

    /// Bound on the number's error.
    pub fn error(&self) -> f64 {
        self.answer().map_or(0.0, |answer| answer.error)
    }

    /// The part of it that is due to states which are not explored.
    pub fn loss(&self) -> f64 {
        self.answer().map_or(0.0, |answer| answer.loss)
    }

    fn answer(&self) -> Option<Answer> {
        match self.found {
            Found::Number(answer) => Some(answer),
            Found::Truth(_, answer) => answer,
        }
    }
}
