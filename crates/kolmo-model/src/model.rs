//! Models with checked names and types.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::composition::{Synchronisation, combinations};
use crate::diagnostics::{Diagnostic, Diagnostics, SourceText, Span};
use crate::syntax::{
    Command, ConstantDeclaration, Definition, Expression, Kind, ModelText, Module, ModuleDefinition, Name,
    Operation, Renaming, Rewards, Type, Update, Variable, VariableRange,
};
use crate::types::{Checker, Entity, Names, each_name, ordered, similar};
use crate::{Error, Result, parser};

/// A model in the PRISM language with checked names and types. Constants may be undefined.
#[derive(Clone, Debug)]
pub struct PrismModel(pub(crate) Arc<Checked>);

#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) source: SourceText,
    /// Constants, each after those that its definition uses.
    pub(crate) constants: Vec<ConstantDeclaration>,
    pub(crate) formulas: Vec<Definition>,
    pub(crate) labels: Vec<Definition>,
    /// Variables: global ones first, then module by module.
    pub(crate) variables: Vec<Variable>,
    pub(crate) modules: Vec<Module>,
    pub(crate) rewards: Vec<Rewards>,
    pub(crate) init: Option<Expression>,
    pub(crate) together: Vec<Synchronisation>,
    pub(crate) names: Names,
}

/// Maximum length of a text in bytes. Positions in it have 32 bits.
const LONGEST: usize = 1 << 30;

/// Makes a source of a text, or fails if the text is too long.
pub(crate) fn source(name: &str, text: &str) -> Result<SourceText> {
    if text.len() > LONGEST {
        return Err(Error::Size(format!("{name} has {} bytes, and at most {LONGEST} are read", text.len())));
    }
    Ok(SourceText::new(name, text))
}

impl PrismModel {
    /// Parses a model. `name` identifies the text in messages, such as its path.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let source = source(name, text)?;
        let (model, mut errors) = parser::model(text);
        // After a syntax error the names that the erroneous part declares would be reported as
        // unknown.
        if errors.is_empty() {
            let checked = check(source.clone(), model, &mut errors);
            if let (Some(checked), true) = (checked, errors.is_empty()) {
                return Ok(Self(Arc::new(checked)));
            }
        }
        Err(Error::Text(Diagnostics::new(&source, errors)))
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.0.source.text
    }

    /// True for a chain in discrete time, `dtmc`.
    pub fn is_discrete(&self) -> bool {
        self.0.names.discrete
    }

    /// Constants without a value in the text, which the user has to give.
    pub fn undefined_constants(&self) -> impl Iterator<Item = (&str, Type)> {
        self.0.constants.iter().filter(|c| c.value.is_none()).map(|c| (&*c.name.text, c.ty))
    }

    /// Names that properties of this model may use.
    pub fn names(&self) -> &Names {
        &self.0.names
    }

    /// Names of the variables: global ones first, then module by module.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.variables.iter().map(|variable| &*variable.name.text)
    }

    /// Names of the labels in the order of the text.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.labels.iter().map(|label| &*label.name.text)
    }

    /// Names of the reward structures in the order of the text.
    ///
    /// The name of an unnamed structure is "". It is referenced by its number, from 1.
    pub fn reward_structures(&self) -> impl Iterator<Item = &str> {
        self.0.names.rewards.iter().map(String::as_str)
    }
}

fn check(source: SourceText, text: ModelText, errors: &mut Vec<Diagnostic>) -> Option<Checked> {
    let modules = modules(&text, errors);
    let names = names(&text, &modules, errors);
    let owners: HashMap<&str, usize> = (modules.iter().enumerate())
        .flat_map(|(m, module)| module.variables.iter().map(move |v| (&*v.name.text, m)))
        .collect();
    let mut checker = Checker::new(&names, errors);
    for constant in &text.constants {
        if let Some(value) = &constant.value {
            checker.expect_constant(value, constant.ty, "the value of a constant");
        }
    }
    for label in &text.labels {
        checker.expect(&label.body, Type::Bool, "a label");
    }
    for variable in text.globals.iter().chain(modules.iter().flat_map(|m| &m.variables)) {
        check_variable(&mut checker, variable, text.init.is_some());
    }
    for (m, module) in modules.iter().enumerate() {
        for command in &module.commands {
            check_command(&mut checker, command, m, &owners);
        }
    }
    for item in text.rewards.iter().flat_map(|rewards| &rewards.items) {
        checker.expect(&item.guard, Type::Bool, "the condition of a reward");
        checker.expect(&item.value, Type::Double, "a reward");
    }
    if let Some(init) = &text.init {
        checker.expect(init, Type::Bool, "the condition of initial states");
    }
    if modules.is_empty() {
        errors.push(Diagnostic::new(Span::default(), "the model has no module", "write module … endmodule"));
        return None;
    }
    let together = match combinations(text.system.as_ref(), &modules) {
        Ok(together) => together,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let constants = in_order(text.constants, |c| (&c.name.text, c.value.as_ref()));
    let formulas = in_order(text.formulas, |f| (&f.name.text, Some(&f.body)));
    let variables =
        text.globals.into_iter().chain(modules.iter().flat_map(|m| m.variables.iter().cloned())).collect();
    let (labels, rewards, init) = (text.labels, text.rewards, text.init);
    Some(Checked { source, constants, formulas, labels, variables, modules, rewards, init, together, names })
}

/// Sorts definitions so that each follows those that it uses.
pub(crate) fn in_order<T>(all: Vec<T>, parts: impl Fn(&T) -> (&String, Option<&Expression>)) -> Vec<T> {
    let list: Vec<_> = all.iter().map(&parts).map(|(name, body)| (&**name, body)).collect();
    let (order, _) = ordered(&list, each_name);
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    order.into_iter().filter_map(|k| all[k].take()).collect()
}

/// Returns all modules, with renamed modules expanded.
fn modules(text: &ModelText, errors: &mut Vec<Diagnostic>) -> Vec<Module> {
    let formulas: HashMap<&str, &Expression> =
        text.formulas.iter().map(|f| (&*f.name.text, &f.body)).collect();
    let mut known: BTreeMap<String, Module> = BTreeMap::new();
    let know = |module: &Module, known: &mut BTreeMap<_, _>, errors: &mut Vec<Diagnostic>| {
        if known.insert(module.name.text.clone(), module.clone()).is_some() {
            let message = format!("there are two modules '{}'", module.name.text);
            errors.push(Diagnostic::new(module.name.span, message, "rename one of them"));
        }
    };
    for part in &text.modules {
        if let ModuleDefinition::Module(module) = part {
            know(module, &mut known, errors);
        }
    }
    let mut all = Vec::new();
    for part in &text.modules {
        let renaming = match part {
            ModuleDefinition::Module(module) => {
                all.push(module.clone());
                continue;
            }
            ModuleDefinition::Renaming(renaming) => renaming,
        };
        let Some(original) = known.get(&renaming.original.text) else {
            let names = known.keys().map(String::as_str);
            let help = similar(&renaming.original.text, names, "define it before");
            let message = format!("there is no module '{}' to rename", renaming.original.text);
            errors.push(Diagnostic::new(renaming.original.span, message, help));
            continue;
        };
        match renamed(original, renaming, &formulas) {
            Ok(module) => {
                know(&module, &mut known, errors);
                all.push(module);
            }
            Err(error) => errors.push(error),
        }
    }
    all
}

/// Copies a module with other names. Formulas are expanded and renamed inside, as in PRISM.
fn renamed(
    original: &Module,
    renaming: &Renaming,
    formulas: &HashMap<&str, &Expression>,
) -> std::result::Result<Module, Diagnostic> {
    let mut pairs: HashMap<&str, &str> = HashMap::new();
    for (old, new) in &renaming.pairs {
        if pairs.insert(&old.text, &new.text).is_some() {
            let message = format!("'{}' is renamed twice", old.text);
            return Err(Diagnostic::new(old.span, message, "keep one of the renamings"));
        }
    }
    if let Some(missing) = original.variables.iter().find(|v| !pairs.contains_key(&*v.name.text)) {
        let name = &missing.name.text;
        let message = format!("the variable '{name}' of '{}' keeps its name", original.name.text);
        let help = format!("add {name}=…: two modules cannot have the same variable");
        return Err(Diagnostic::new(renaming.name.span, message, help));
    }
    let mut rename = Rename { pairs: &pairs, formulas, at: renaming.name.span, left: 1_000_000 };
    let mut inside = |e: &Expression| rename.expression(e, 0);
    let name = |old: &Name| {
        let text = pairs.get(&*old.text).map_or_else(|| old.text.clone(), |new| (*new).to_owned());
        Name { text, span: old.span }
    };
    let mut module = Module { name: renaming.name.clone(), variables: Vec::new(), commands: Vec::new() };
    for v in &original.variables {
        let range = match &v.range {
            VariableRange::Int(low, high) => VariableRange::Int(inside(low)?, inside(high)?),
            other => other.clone(),
        };
        let init = v.init.as_ref().map(&mut inside).transpose()?;
        module.variables.push(Variable { name: name(&v.name), range, init });
    }
    for c in &original.commands {
        let mut updates = Vec::new();
        for update in &c.updates {
            let rate = update.rate.as_ref().map(&mut inside).transpose()?;
            let mut assignments = Vec::new();
            for (variable, value) in &update.assignments {
                assignments.push((name(variable), inside(value)?));
            }
            updates.push(Update { rate, assignments });
        }
        let (action, guard) = (c.action.as_ref().map(name), inside(&c.guard)?);
        module.commands.push(Command { action, guard, updates, span: c.span });
    }
    Ok(module)
}

struct Rename<'a> {
    pairs: &'a HashMap<&'a str, &'a str>,
    formulas: &'a HashMap<&'a str, &'a Expression>,
    at: Span,
    /// Number of nodes that the expanded expressions may still have.
    left: usize,
}

impl Rename<'_> {
    fn expression(&mut self, e: &Expression, level: u16) -> std::result::Result<Expression, Diagnostic> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || level > 300 {
            let message = "expressions of the renamed module grow too large by their formulas";
            return Err(Diagnostic::new(self.at, message, "formulas that use themselves have no value"));
        }
        let kind = match &e.kind {
            Kind::Name(name) => match (self.pairs.get(&**name), self.formulas.get(&**name)) {
                (Some(new), _) => Kind::Name((*new).to_owned()),
                (None, Some(body)) => return self.expression(body, level + 1),
                (None, None) => e.kind.clone(),
            },
            Kind::Literal(_) | Kind::Label(_) | Kind::Operator(_) | Kind::Path(_) => e.kind.clone(),
            Kind::Apply(operation, parts) => {
                let parts = parts.iter().map(|part| self.expression(part, level + 1));
                Kind::Apply(*operation, parts.collect::<std::result::Result<_, _>>()?)
            }
        };
        Ok(Expression { kind, span: e.span, depth: e.depth })
    }
}

/// Collects constants, variables and formulas with their types, and reports duplicates.
fn names(text: &ModelText, modules: &[Module], errors: &mut Vec<Diagnostic>) -> Names {
    let mut names = Names { discrete: text.discrete, ..Names::default() };
    let variables = text.globals.iter().chain(modules.iter().flat_map(|m| &m.variables));
    let all = (text.constants.iter().map(|c| (&c.name, Entity::Constant(Some(c.ty)))))
        .chain(variables.map(|v| (&v.name, Entity::Variable(Some(v.ty())))))
        .chain(text.formulas.iter().map(|f| (&f.name, Entity::Formula(None))));
    for (name, entity) in all {
        if names.entities.insert(name.text.clone(), entity).is_some() {
            let message = format!("the name '{}' is declared twice", name.text);
            errors.push(Diagnostic::new(name.span, message, "rename one of them"));
        }
    }
    for label in &text.labels {
        let name = &label.name;
        if name.text == "init" || name.text == "deadlock" {
            let message = format!("the label \"{}\" is built in", name.text);
            errors.push(Diagnostic::new(name.span, message, "choose another name"));
        } else if !names.labels.insert(name.text.clone()) {
            let message = format!("there are two labels \"{}\"", name.text);
            errors.push(Diagnostic::new(name.span, message, "rename one of them"));
        }
    }
    for (k, rewards) in text.rewards.iter().enumerate() {
        let name = rewards.name.as_ref().map_or("", |name| &*name.text);
        if !name.is_empty() && names.structures.insert(name.to_owned(), k).is_some() {
            let span = rewards.name.as_ref().map_or(Span::default(), |name| name.span);
            let message = format!("there are two reward structures \"{name}\"");
            errors.push(Diagnostic::new(span, message, "rename one of them"));
        }
        names.rewards.push(name.to_owned());
    }
    for k in 0..names.rewards.len() {
        names.structures.entry((k + 1).to_string()).or_insert(k);
        if names.rewards[k].is_empty() {
            names.structures.entry(String::new()).or_insert(k);
        }
    }
    check_circles("constant", text.constants.iter().map(|c| (&c.name, c.value.as_ref())).collect(), errors);
    check_circles("formula", text.formulas.iter().map(|f| (&f.name, Some(&f.body))).collect(), errors);
    let list: Vec<_> = text.formulas.iter().map(|f| (&*f.name.text, Some(&f.body))).collect();
    for k in ordered(&list, each_name).0 {
        let formula = &text.formulas[k];
        let ty = Checker::new(&names, errors).check(&formula.body);
        if let Some(Entity::Formula(known)) = names.entities.get_mut(&formula.name.text) {
            *known = ty;
        }
    }
    names.labels.extend(["init".to_owned(), "deadlock".to_owned()]);
    names
}

/// Reports definitions that depend on themselves.
pub(crate) fn check_circles(
    what: &str,
    all: Vec<(&Name, Option<&Expression>)>,
    errors: &mut Vec<Diagnostic>,
) {
    let list: Vec<_> = all.iter().map(|(name, body)| (&*name.text, *body)).collect();
    for k in ordered(&list, each_name).1 {
        let name = all[k].0;
        let message = format!("the {what} '{}' depends on itself", name.text);
        errors.push(Diagnostic::new(name.span, message, "break the circle"));
    }
}

fn check_variable(checker: &mut Checker<'_>, variable: &Variable, states_given: bool) {
    if let VariableRange::Int(low, high) = &variable.range {
        checker.expect_constant(low, Type::Int, "the end of a range");
        checker.expect_constant(high, Type::Int, "the end of a range");
    }
    if let Some(init) = &variable.init {
        checker.expect_constant(init, variable.ty(), "an initial value");
        if states_given {
            let message = "initial values are given twice: here and by 'init' … 'endinit'";
            checker.error(init.span, message, "keep one of them");
        }
    }
}

fn check_command(checker: &mut Checker<'_>, command: &Command, module: usize, owners: &HashMap<&str, usize>) {
    checker.expect(&command.guard, Type::Bool, "the condition of a command");
    for update in &command.updates {
        if let Some(rate) = &update.rate {
            checker.expect(rate, Type::Double, "a rate");
        }
        let mut assigned = HashSet::new();
        for (name, value) in &update.assignments {
            let Some(Entity::Variable(Some(ty))) = checker.names.entities.get(&name.text) else {
                let known = checker.names.entities.iter();
                let variables =
                    known.filter(|(_, e)| matches!(e, Entity::Variable(_))).map(|(name, _)| &**name);
                let help = similar(&name.text, variables, "declare it in the module: x : [0..3];");
                let message = format!("there is no variable '{}' to change", name.text);
                checker.error(name.span, message, help);
                checker.check(value);
                continue;
            };
            checker.expect(value, *ty, "the next value of this variable");
            let refused = match owners.get(&*name.text) {
                Some(owner) if *owner != module => Some((
                    format!("'{}' belongs to another module, and only that can change it", name.text),
                    "let both modules have the action, or declare the variable 'global'",
                )),
                None if command.action.is_some() => Some((
                    format!("the global variable '{}' is changed by a command with an action", name.text),
                    "change it by a command without one: []",
                )),
                _ => None,
            };
            if let Some((message, help)) = refused {
                checker.error(name.span, message, help);
            }
            if !assigned.insert(&name.text) {
                let message = format!("'{}' is given two next values", name.text);
                checker.error(name.span, message, "keep one of them");
            }
        }
    }
    // `x>0 -> -1 : …` is an error in every state.
    for update in &command.updates {
        if let Some(Expression { kind: Kind::Apply(Operation::Negate, inner), span, .. }) = &update.rate
            && matches!(inner[0].kind, Kind::Literal(_))
        {
            checker.error(*span, "a rate is negative", "rates are 0 or more");
        }
    }
}
