//! Parser of models: constants, formulas, modules, rewards, `init`, `system`.

use super::{Parsed, Parser};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::TokenKind;
use crate::syntax::{
    Command, Definition, ModelText, Module, Name, Part, Range, Renaming, RewardItem, Rewarded, Rewards,
    System, Update, Variable,
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
        let help = "write 'ctmc' at its beginning";
        parser.errors.push(Diagnostic::new(
            Span::default(),
            "the model does not say that it is a Markov chain in continuous time",
            help,
        ));
    }
    (model, parser.errors)
}

impl Parser<'_> {
    fn item(&mut self, model: &mut ModelText, kind: &mut Option<Span>) -> Parsed<()> {
        let start = self.span();
        let word = self.word();
        if self.token().kind != TokenKind::Keyword {
            return Err(
                self.unexpected("a part of a model", "such as const, formula, module, label, rewards")
            );
        }
        self.advance();
        match word {
            "ctmc" | "stochastic" => match kind.replace(start) {
                None => {}
                Some(_) => {
                    return Err(Diagnostic::new(start, "the kind of the model is said twice", "keep one"));
                }
            },
            "dtmc" | "mdp" | "pta" | "pomdp" | "popta" | "probabilistic" | "nondeterministic" => {
                kind.get_or_insert(start);
                self.errors.push(Diagnostic::new(
                    start,
                    format!("the model is of the kind '{word}', which is not supported"),
                    "Markov chains in continuous time are: 'ctmc' or 'stochastic'",
                ));
            }
            "const" | "rate" | "prob" => model.constants.push(self.constant()?),
            "formula" => {
                let name = self.name("a formula")?;
                self.expect("=", "a formula is written formula name = expression;")?;
                let body = self.expression()?;
                self.expect(";", "a formula ends with ';'")?;
                model.formulas.push(Definition { name, body });
            }
            "label" => model.labels.push(self.label()?),
            "global" => model.globals.push(self.variable()?),
            "module" => self.module(model)?,
            "rewards" => self.rewards(model)?,
            "init" => {
                let states = self.expression()?;
                self.expect("endinit", "the initial states are written init condition endinit")?;
                if model.init.replace(states).is_some() {
                    return Err(Diagnostic::new(
                        start,
                        "there are two 'init' … 'endinit'",
                        "join them with '|'",
                    ));
                }
            }
            "system" => {
                let system = self.system()?;
                self.expect("endsystem", "the composition is written system A || B endsystem")?;
                if model.system.replace((system, start)).is_some() {
                    return Err(Diagnostic::new(start, "there are two 'system' … 'endsystem'", "keep one"));
                }
            }
            "invariant" | "clock" | "observable" | "observables" => {
                return Err(Diagnostic::new(
                    start,
                    format!("'{word}' belongs to models that are no Markov chains in continuous time"),
                    "remove it",
                ));
            }
            _ => {
                return Err(Diagnostic::new(
                    start,
                    format!("'{word}' begins no part of a model"),
                    "remove it",
                ));
            }
        }
        Ok(())
    }

    /// Parses `x : [0..3] init 0;`.
    fn variable(&mut self) -> Parsed<Variable> {
        let name = self.name("a variable")?;
        self.expect(":", "a variable is written x : [0..3] init 0; or x : bool init false;")?;
        let range = match self.word() {
            "bool" => {
                self.advance();
                Range::Bool
            }
            "int" => {
                self.advance();
                Range::Unbounded
            }
            "clock" => {
                let message = "clocks belong to models that are no Markov chains in continuous time";
                return Err(Diagnostic::new(self.span(), message, "remove it"));
            }
            _ => {
                self.expect("[", "the type of a variable is [low..high], bool or int")?;
                let low = self.expression()?;
                self.expect("..", "a range is written [low..high]")?;
                let high = self.expression()?;
                self.expect("]", "a range is written [low..high]")?;
                Range::Int(low, high)
            }
        };
        let init = if self.take("init") { Some(self.expression()?) } else { None };
        self.expect(";", "a variable ends with ';'")?;
        Ok(Variable { name, range, init })
    }

    fn module(&mut self, model: &mut ModelText) -> Parsed<()> {
        let name = self.name("a module")?;
        if self.take("=") {
            let original = self.name("a module")?;
            self.expect("[", "a module is renamed by module B = A [ x=y, a=b ] endmodule")?;
            let mut pairs = Vec::new();
            loop {
                let old = self.name("what is renamed")?;
                self.expect("=", "a renaming is written old=new")?;
                pairs.push((old, self.name("what it becomes")?));
                if !self.take(",") {
                    break;
                }
            }
            self.expect("]", "renamings are separated by ','")?;
            self.expect("endmodule", "a module ends with 'endmodule'")?;
            model.modules.push(Part::Renaming(Renaming { name, original, pairs }));
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
                Err(self.unexpected(
                    "a variable, a command or 'endmodule'",
                    "a command begins with [action] or []",
                ))
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
        model.modules.push(Part::Module(module));
        Ok(())
    }

    fn action(&mut self) -> Parsed<Option<Name>> {
        self.expect("[", "actions stand in brackets")?;
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
            return Err(Diagnostic::new(
                plus,
                "'+' separates updates that each need a rate, and one has none",
                "was '&' meant, which joins the changes of one update? Else write rate : (x'=value)",
            ));
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
                self.expect(")", "each part of an update stands in parentheses: (x'=value)")?;
                assignments.push((name, value));
                if !self.take("&") {
                    break;
                }
            }
        }
        Ok(Update { rate, assignments })
    }

    fn rewards(&mut self, model: &mut ModelText) -> Parsed<()> {
        let name = if self.token().kind == TokenKind::Quoted {
            Some(self.quoted("a reward structure")?)
        } else {
            None
        };
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

    fn system(&mut self) -> Parsed<System> {
        self.nested(|p| {
            let mut all = vec![p.interleaved()?];
            while p.take("||") {
                all.push(p.interleaved()?);
            }
            Ok(if all.len() > 1 { System::Parallel(all) } else { all.remove(0) })
        })
    }

    fn interleaved(&mut self) -> Parsed<System> {
        let mut all = vec![self.synchronised()?];
        while self.take("|||") {
            all.push(self.synchronised()?);
        }
        Ok(if all.len() > 1 { System::Interleaved(all) } else { all.remove(0) })
    }

    fn synchronised(&mut self) -> Parsed<System> {
        let left = self.hidden()?;
        if !(self.is("|") && self.ahead(1) == "[") {
            return Ok(left);
        }
        self.advance();
        self.advance();
        let actions = self.actions("]")?;
        self.expect("|", "actions of a composition are written A |[a, b]| B")?;
        let right = self.hidden()?;
        Ok(System::On(Box::new(left), actions, Box::new(right)))
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

    fn hidden(&mut self) -> Parsed<System> {
        let mut system = if self.take("(") {
            let inner = self.system()?;
            self.expect(")", "close the parenthesis")?;
            inner
        } else {
            System::Module(self.name("a module")?)
        };
        let mut levels = 0;
        while self.is("/") || self.is("{") {
            levels += 1;
            if levels > 50 {
                return Err(super::too_deep(self.span()));
            }
            if self.take("/") {
                self.expect("{", "actions are hidden by A / {a, b}")?;
                system = System::Hide(Box::new(system), self.actions("}")?);
                continue;
            }
            self.advance();
            let mut pairs = Vec::new();
            loop {
                let old = self.name("an action")?;
                self.expect("<", "actions are renamed by A {old<-new}")?;
                self.expect("-", "actions are renamed by A {old<-new}")?;
                pairs.push((old, self.name("an action")?));
                if !self.take(",") {
                    break;
                }
            }
            self.expect("}", "actions are renamed by A {old<-new}")?;
            system = System::Rename(Box::new(system), pairs);
        }
        Ok(system)
    }
}
