//! Parser of models: constants, formulas, modules, rewards, `init`, `system`.

use super::{Parsed, Parser};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::TokenKind;
use crate::syntax::{
    Command, Composition, ModelText, Module, ModuleDefinition, Name, Renaming, RewardItem, Rewarded, Rewards,
    Update, Variable, VariableRange,
};

/// Parses a model. Also returns the errors.
pub(crate) fn model(text: &str) -> (ModelText, Vec<Diagnostic>) {
    let mut parser = Parser::new(text, false);
    let mut model = ModelText::default();
    let mut kind = None;
    while parser.token().kind != TokenKind::End {
        let started = parser.at;
        if let Err(error) = parser.item(&mut model, &mut kind) {
            parser.recover(error, started);
        }
    }
    if kind.is_none() && parser.errors.is_empty() {
        let message = "the model does not say what kind of Markov chain it is";
        let help = "write 'ctmc' (continuous time) or 'dtmc' (discrete time) at its beginning";
        parser.errors.push(Diagnostic::new(Span::default(), message, help));
    }
    (model, parser.errors)
}

impl Parser<'_> {
    fn item(&mut self, model: &mut ModelText, kind: &mut Option<Span>) -> Parsed<()> {
        let start = self.span();
        let word = self.word();
        let refused = |message: String, help: &str| Err(Diagnostic::new(start, message, help));
        if self.token().kind != TokenKind::Keyword {
            let help = "such as const, formula, module, label, rewards";
            return Err(self.unexpected("a part of a model", help));
        }
        self.advance();
        match word {
            "ctmc" | "stochastic" | "dtmc" | "probabilistic" if kind.replace(start).is_none() => {
                model.discrete = matches!(word, "dtmc" | "probabilistic");
            }
            "ctmc" | "stochastic" | "dtmc" | "probabilistic" => {
                return refused("the kind of the model is said twice".into(), "keep one");
            }
            "mdp" | "pta" | "pomdp" | "popta" | "nondeterministic" => {
                kind.get_or_insert(start);
                self.errors.push(Diagnostic::new(
                    start,
                    format!("the model is of the kind '{word}', which is not supported"),
                    "Markov chains are: 'ctmc' (or 'stochastic') and 'dtmc' (or 'probabilistic')",
                ));
            }
            "const" | "rate" | "prob" => model.constants.push(self.constant()?),
            "formula" => {
                let name = self.name("a formula")?;
                let form = "a formula is written formula name = expression;";
                model.formulas.push(self.definition(name, form, "a formula ends with ';'")?);
            }
            "label" => model.labels.push(self.label()?),
            "global" => model.globals.push(self.variable()?),
            "module" => self.module(model)?,
            "rewards" => self.rewards(model)?,
            "init" => {
                let states = self.expression()?;
                self.expect("endinit", "the initial states are written init condition endinit")?;
                if model.init.replace(states).is_some() {
                    return refused("there are two 'init' … 'endinit'".into(), "join them with '|'");
                }
            }
            "system" => {
                let system = self.system()?;
                self.expect("endsystem", "the composition is written system A || B endsystem")?;
                if model.system.replace(system).is_some() {
                    return refused("there are two 'system' … 'endsystem'".into(), "keep one");
                }
            }
            "invariant" | "clock" | "observable" | "observables" => {
                let message = "belongs to models that are no Markov chains";
                return refused(format!("'{word}' {message}"), "remove it");
            }
            _ => return refused(format!("'{word}' begins no part of a model"), "remove it"),
        }
        Ok(())
    }

    /// Parses `x : [0..3] init 0;`.
    fn variable(&mut self) -> Parsed<Variable> {
        let name = self.name("a variable")?;
        self.expect(":", "a variable is written x : [0..3] init 0; or x : bool init false;")?;
        let range = if self.take("bool") {
            VariableRange::Bool
        } else if self.take("int") {
            VariableRange::Unbounded
        } else if self.is("clock") {
            let message = "clocks belong to models that are no Markov chains";
            return Err(Diagnostic::new(self.span(), message, "remove it"));
        } else {
            self.expect("[", "the type of a variable is [low..high], bool or int")?;
            let low = self.expression()?;
            self.expect("..", "a range is written [low..high]")?;
            let high = self.expression()?;
            self.expect("]", "a range is written [low..high]")?;
            VariableRange::Int(low, high)
        };
        let init = self.optional("init")?;
        self.expect(";", "a variable ends with ';'")?;
        Ok(Variable { name, range, init })
    }

    fn module(&mut self, model: &mut ModelText) -> Parsed<()> {
        let name = self.name("a module")?;
        if self.take("=") {
            let original = self.name("a module")?;
            self.expect("[", "a module is renamed by module B = A [ x=y, a=b ] endmodule")?;
            let pairs = self.separated(|p| {
                let old = p.name("what is renamed")?;
                p.expect("=", "a renaming is written old=new")?;
                Ok((old, p.name("what it becomes")?))
            })?;
            self.expect("]", "renamings are separated by ','")?;
            self.expect("endmodule", "a module ends with 'endmodule'")?;
            model.modules.push(ModuleDefinition::Renaming(Renaming { name, original, pairs }));
            return Ok(());
        }
        let mut module = Module { name, variables: Vec::new(), commands: Vec::new() };
        while !self.take("endmodule") {
            let part = if self.is("[") {
                self.command().map(|command| module.commands.push(command))
            } else if self.token().kind == TokenKind::Name {
                self.variable().map(|variable| module.variables.push(variable))
            } else if self.token().kind == TokenKind::End || self.is("module") {
                return Err(self.unexpected("'endmodule'", "a module ends with 'endmodule'"));
            } else {
                let help = "a command begins with [action] or []";
                Err(self.unexpected("a variable, a command or 'endmodule'", help))
            };
            if let Err(error) = part {
                // The loop handles a token that ends the module.
                self.errors.push(error);
                while !matches!(self.word(), ";" | "endmodule" | "") {
                    self.advance();
                }
                self.take(";");
            }
        }
        model.modules.push(ModuleDefinition::Module(module));
        Ok(())
    }

    fn action(&mut self) -> Parsed<Option<Name>> {
        self.expect("[", "an action must be in brackets")?;
        let action = if self.is("]") { None } else { Some(self.name("an action")?) };
        self.expect("]", "an action is one name: [name]")?;
        Ok(action)
    }

    /// Parses `[a] guard -> rate : (x'=1) & (y'=2) + …;`.
    fn command(&mut self) -> Parsed<Command> {
        let start = self.span();
        let action = self.action()?;
        let guard = self.expression()?;
        self.expect("->", "a command is written [action] condition -> rate : (x'=value);")?;
        let mut updates = vec![self.update()?];
        let mut unrated = (updates[0].rate.is_none()).then(|| self.span());
        while self.is("+") {
            let plus = self.advance().span;
            updates.push(self.update()?);
            if updates.last().is_some_and(|update| update.rate.is_none()) {
                unrated.get_or_insert(plus);
            }
        }
        // PRISM, too, demands a rate of each of several updates.
        if let Some(plus) = unrated.filter(|_| updates.len() > 1) {
            let message = "'+' separates updates that each need a rate, and one has none";
            let help = "was '&' meant, which joins the changes of one update? Else write rate : (x'=value)";
            return Err(Diagnostic::new(plus, message, help));
        }
        let end = self.expect(";", "a command ends with ';', its updates are separated by '+'")?.span;
        Ok(Command { action, guard, updates, span: start.to(end) })
    }

    fn update(&mut self) -> Parsed<Update> {
        let bare = self.ahead(0) == "(" && self.ahead(2) == "'";
        let nothing = self.is("true") && matches!(self.ahead(1), ";" | "+");
        let rate = if bare || nothing {
            None
        } else {
            let rate = self.expression()?;
            self.expect(":", "a rate and its update are written rate : (x'=value)")?;
            Some(rate)
        };
        let mut assignments = Vec::new();
        if !self.take("true") {
            loop {
                self.expect("(", "an update is written (x'=value) & (y'=value), or true")?;
                let name = self.name("a variable")?;
                self.expect("'", "the variable's next value is written x'")?;
                self.expect("=", "an update is written (x'=value)")?;
                let value = self.expression()?;
                self.expect(")", "each part of an update must be in parentheses: (x'=value)")?;
                assignments.push((name, value));
                if !self.take("&") {
                    break;
                }
            }
        }
        Ok(Update { rate, assignments })
    }

    fn rewards(&mut self, model: &mut ModelText) -> Parsed<()> {
        let named = self.token().kind == TokenKind::Quoted;
        let name = named.then(|| self.quoted("a reward structure")).transpose()?;
        let mut items = Vec::new();
        while !self.take("endrewards") {
            if self.token().kind == TokenKind::End {
                return Err(self.unexpected("'endrewards'", "rewards end with 'endrewards'"));
            }
            let of = if self.is("[") { Rewarded::Transitions(self.action()?) } else { Rewarded::States };
            let guard = self.expression()?;
            self.expect(":", "a reward is written condition : value; or [action] condition : value;")?;
            let value = self.expression()?;
            self.expect(";", "a reward ends with ';'")?;
            items.push(RewardItem { of, guard, value });
        }
        model.rewards.push(Rewards { name, items });
        Ok(())
    }

    fn system(&mut self) -> Parsed<Composition> {
        let interleaved = |p: &mut Self| p.joined("|||", Self::synchronised, Composition::Interleaved);
        self.nested(|p| p.joined("||", interleaved, Composition::Parallel))
    }

    /// Parses compositions separated by `sign`, and joins them if there are several.
    fn joined(
        &mut self,
        sign: &str,
        part: impl Fn(&mut Self) -> Parsed<Composition>,
        join: fn(Vec<Composition>) -> Composition,
    ) -> Parsed<Composition> {
        let mut all = vec![part(self)?];
        while self.take(sign) {
            all.push(part(self)?);
        }
        Ok(if all.len() > 1 { join(all) } else { all.remove(0) })
    }

    fn synchronised(&mut self) -> Parsed<Composition> {
        let left = self.hidden()?;
        if !(self.is("|") && self.ahead(1) == "[") {
            return Ok(left);
        }
        self.advance();
        self.advance();
        let actions = self.actions("]")?;
        self.expect("|", "actions of a composition are written A |[a, b]| B")?;
        let right = self.hidden()?;
        Ok(Composition::On(Box::new(left), actions, Box::new(right)))
    }

    fn actions(&mut self, end: &str) -> Parsed<Vec<Name>> {
        let mut actions = Vec::new();
        while !self.take(end) {
            if !actions.is_empty() {
                self.expect(",", "actions are separated by ','")?;
            }
            actions.push(self.name("an action")?);
        }
        Ok(actions)
    }

    fn hidden(&mut self) -> Parsed<Composition> {
        let mut system = if self.take("(") {
            let inner = self.system()?;
            self.expect(")", "close the parenthesis")?;
            inner
        } else {
            Composition::Module(self.name("a module")?)
        };
        let mut levels = 0;
        while self.is("/") || self.is("{") {
            levels += 1;
            if levels > 50 {
                return Err(super::too_deep(self.span()));
            }
            if self.take("/") {
                self.expect("{", "actions are hidden by A / {a, b}")?;
                system = Composition::Hide(Box::new(system), self.actions("}")?);
                continue;
            }
            self.advance();
            const FORM: &str = "actions are renamed by A {old<-new}";
            let pairs = self.separated(|p| {
                let old = p.name("an action")?;
                p.expect("<", FORM)?;
                p.expect("-", FORM)?;
                Ok((old, p.name("an action")?))
            })?;
            self.expect("}", FORM)?;
            system = Composition::Rename(Box::new(system), pairs);
        }
        Ok(system)
    }
}
