//! Parser of CSL properties in PRISM's syntax.

use super::{Parsed, Parser, size, too_deep};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::TokenKind;
use crate::syntax::{
    Expression, FilterKind, Kind, Modality, Name, Operation, Operator, ParsedProperty, ParsedThreshold,
    PropertiesText, Times, Value,
};
use strum::VariantNames;

/// Parses properties, each with its own errors. Also returns the errors outside of them.
pub(crate) fn properties(text: &str) -> (PropertiesText, Vec<Diagnostic>) {
    let mut parser = Parser::new(text, true);
    let mut all = PropertiesText::default();
    while parser.token().kind != TokenKind::End {
        let (started, begins) = (parser.at, parser.span());
        let is_property = !matches!(parser.word(), ";" | "const" | "label");
        let name = parser.name_of_property();
        let Err(error) = parser.entry(&mut all) else { continue };
        parser.recover(error, started);
        if is_property {
            let errors = parser.errors.pop().into_iter().collect();
            let span = begins.to(parser.last());
            all.properties.push(ParsedProperty { name, span, body: Err(errors) });
        }
    }
    // A character that begins no token is an error of the property that contains it.
    let mut outside = Vec::new();
    for error in parser.errors {
        let inside = |entry: &&mut ParsedProperty| entry.span.range().contains(&(error.span.start as usize));
        match all.properties.iter_mut().find(inside) {
            Some(ParsedProperty { body: Err(errors), .. }) => errors.push(error),
            Some(entry) => entry.body = Err(vec![error]),
            None => outside.push(error),
        }
    }
    (all, outside)
}

/// Contents of an operator's brackets: form, operands and times.
type Inner = (Modality, Vec<Expression>, Times);

const TIMES: &str = "times are written <=t, >=t, [t1,t2] or =t";

impl Parser<'_> {
    fn entry(&mut self, all: &mut PropertiesText) -> Parsed<()> {
        (self.copies, self.paths) = (0, false);
        if self.take(";") {
        } else if self.take("const") {
            all.constants.push(self.constant()?);
        } else if self.take("label") {
            all.labels.push(self.label()?);
        } else {
            let (begins, name) = (self.span(), self.name_of_property());
            if name.is_some() {
                self.advance();
                self.advance();
            }
            let property = self.expression()?;
            if self.token().kind != TokenKind::End && !self.take(";") {
                // The next property may begin on a new line instead of after ';'.
                let between = &self.text[self.last().end as usize..self.span().start as usize];
                if !between.contains('\n') {
                    return Err(self.unexpected("the end of the property", "several are separated by ';'"));
                }
            }
            let span = begins.to(property.span);
            all.properties.push(ParsedProperty { name, span, body: Ok(property) });
        }
        Ok(())
    }

    /// Name of the property that begins here, as in `"name":`.
    fn name_of_property(&self) -> Option<Name> {
        let token = self.token();
        let text = &self.text[token.span.range()];
        let named = token.kind == TokenKind::Quoted && self.ahead(1) == ":";
        named.then(|| Name { text: text[1..text.len() - 1].to_owned(), span: token.span })
    }

    /// True at a mean time with a threshold, `T>=3 [`. In other places `T` may be a name.
    pub(super) fn is_bounded_time(&mut self) -> bool {
        if !matches!(self.ahead(1), "<" | "<=" | ">" | ">=") {
            return false;
        }
        let at = self.at;
        self.advance();
        let found = self.bound().is_ok() && self.word() == "[";
        self.at = at;
        found
    }

    /// Parses `P`, `R`, `S`, `T` or a filter.
    pub(super) fn property_operator(&mut self) -> Parsed<Expression> {
        let start = self.span();
        let word = self.word();
        let (message, help) = match word {
            "P" | "R" | "S" | "T" | "Pmin" | "Pmax" | "Rmin" | "Rmax" => {
                let outer = std::mem::replace(&mut self.paths, false);
                let found = self.bounded(word);
                self.paths = outer;
                return found;
            }
            "A" | "E" if self.ahead(1) == "[" => return self.of_ctl(word),
            "filter" => {
                let outer = std::mem::replace(&mut self.paths, false);
                let found = self.filter();
                self.paths = outer;
                return found;
            }
            "multi" => ("multi-objective properties are not answered".to_owned(), "ask for each by itself"),
            "A" | "E" => (
                format!("{word} [ … ] of CTL is not answered"),
                "ask for a probability: P>=1 [ … ] or P>0 [ … ]",
            ),
            "F" | "G" | "X" | "U" | "W" | "C" | "I" => (
                format!("{word} is outside of an operator, or within another {word}"),
                "path formulas must be in P=? [ … ], and nest by P>=p [ … ]",
            ),
            _ => return Err(self.unexpected("an expression", "")),
        };
        Err(Diagnostic::new(start, message, help))
    }

    /// Parses `P`, `R`, `S` or `T` with its bound and brackets.
    fn bounded(&mut self, word: &str) -> Parsed<Expression> {
        let start = self.advance().span;
        // A Markov chain has no choices, and its best and worst values are equal.
        let word = word.trim_end_matches("min").trim_end_matches("max");
        let structure = if word == "R" && self.take("{") {
            // PRISM counts structures from 1.
            let (number, span) = (self.word().to_owned(), self.span());
            let (name, span) = match number.bytes().all(|b| b.is_ascii_digit()) {
                true => {
                    self.advance();
                    (number, span)
                }
                false => self.quoted("a reward structure").map(|name| (name.text, name.span))?,
            };
            self.expect("}", "a reward structure is named by R{\"name\"}")?;
            (Some(name), span)
        } else {
            (None, start)
        };
        let bound = self.bound()?;
        let form = match word {
            "P" => "a probability is written P=? [ F<=t condition ]",
            "S" => "a probability in the long run is written S=? [ condition ]",
            "R" => "a reward is written R=? [ C<=t ]",
            _ => "the mean time until a condition holds is written T=? [ F condition ]",
        };
        self.expect("[", form)?;
        if word == "P" {
            self.paths = true;
            let path = self.path()?;
            self.paths = false;
            let filter = self.older_filter(bound.is_some())?;
            let end = self.expect("]", "the operator ends with ']'")?.span;
            let path = Expression { span: start.to(end), ..path };
            return Ok(filtered(self.probability(&path, false, &bound)?, filter));
        }
        if word == "R" && !matches!(self.word(), "C" | "I" | "S") {
            self.paths = true;
            let path = self.path()?;
            self.paths = false;
            let filter = self.older_filter(bound.is_some())?;
            let end = self.expect("]", "the operator ends with ']'")?.span;
            let own = Operator { bound, structure, ..Operator::new(Modality::Reach, Vec::new(), start) };
            let path = Expression { span: start.to(end), ..path };
            return Ok(filtered(self.reward_until(&path, own)?, filter));
        }
        let (form, parts, times) = match word {
            "S" => (Modality::SteadyState, vec![self.expression()?], Times::default()),
            "R" => self.goal()?,
            _ => {
                self.expect("F", form)?;
                (Modality::Time, vec![self.state()?], Times::default())
            }
        };
        let filter = self.older_filter(bound.is_some())?;
        let end = self.expect("]", "the operator ends with ']'")?.span;
        let kind = Kind::Operator(Box::new(Operator { form, bound, parts, times, structure }));
        Ok(filtered(Expression { kind, span: start.to(end), depth: 1 }, filter))
    }

    /// Parses `E [ … ]` and `A [ … ]`.
    fn of_ctl(&mut self, word: &str) -> Parsed<Expression> {
        let start = self.advance().span;
        self.advance();
        let outer = std::mem::replace(&mut self.paths, true);
        let path = self.path()?;
        self.paths = outer;
        let span = start.to(self.expect("]", "the operator ends with ']'")?.span);
        if !path.has_path() {
            return Ok(path);
        }
        // A p is !E !p.
        let (path, all) = (Expression { span, ..path }, word == "A");
        let quick = match &path.kind {
            // Here a finite part of the path decides, and E is P>0.
            Kind::Path(own) if !own.parts.iter().any(Expression::has_path) => {
                use Modality as F;
                let finite =
                    [(F::Finally, false), (F::Until, false), (F::Globally, true), (F::NotUntil, true)];
                finite.contains(&(own.form, all)) || own.form == F::Next || own.times.to.is_some()
            }
            _ => false,
        };
        let limit = Expression { kind: Kind::Literal(Value::Double(0.0)), span, depth: 1 };
        let possible = Some(ParsedThreshold { comparison: Operation::Greater, limit });
        let exists = if quick {
            self.probability(&path, all, &possible)?
        } else {
            let formula = if all { path.negated() } else { path };
            let own = Operator::new(Modality::Exists, vec![formula], span);
            Expression::operator(Operator { bound: possible, ..own }, span)
        };
        Ok(if all { exists.negated() } else { exists })
    }

    /// Parses PRISM's older filter at the end of an operator: `{states}`, `{states}{max}`.
    ///
    /// An operator with a threshold then has to hold in all of these states.
    fn older_filter(&mut self, bounded: bool) -> Parsed<Option<(FilterKind, Expression)>> {
        if !self.take("{") {
            return Ok(None);
        }
        let states = self.expression()?;
        self.expect("}", "a filter is written {states}{max}")?;
        let mut kind = if bounded { FilterKind::ForAll } else { FilterKind::State };
        if self.take("{") {
            kind = match self.word() {
                "min" => FilterKind::Min,
                "max" => FilterKind::Max,
                _ => return Err(self.unexpected("min or max", "a filter is written {states}{max}")),
            };
            self.advance();
            self.expect("}", "a filter is written {states}{max}")?;
        }
        Ok(Some((kind, states)))
    }

    /// Parses `=?`, or a threshold such as `>=0.5`.
    fn bound(&mut self) -> Parsed<Option<ParsedThreshold>> {
        if matches!(self.word(), "min" | "max") {
            self.advance();
        }
        if self.is("=") && self.ahead(1) == "?" {
            self.advance();
            self.advance();
            return Ok(None);
        }
        // Comparisons are the operators of this precedence.
        let Some((comparison, 7)) = self.operator() else {
            return Err(self.unexpected("=? or a bound", "such as P=? or P>=0.99"));
        };
        self.advance();
        // A threshold has no operators that bind less than a sum.
        let limit = self.binary(8)?;
        Ok(Some(ParsedThreshold { comparison, limit }))
    }

    /// Parses a path formula, or a condition of states.
    pub(super) fn path(&mut self) -> Parsed<Expression> {
        for (word, form) in [("X", Modality::Next), ("F", Modality::Finally), ("G", Modality::Globally)] {
            let start = self.span();
            if self.take(word) {
                let times = if form == Modality::Next { Times::default() } else { self.times()? };
                let operand = self.nested(Self::path)?;
                return Ok(of_path(form, vec![operand], times, start));
            }
        }
        let left = self.expression()?;
        let word = self.word();
        if !matches!(word, "U" | "W" | "R") {
            return Ok(left);
        }
        self.advance();
        let (start, times) = (left.span, self.times()?);
        let right = self.nested(Self::path)?;
        self.count_copies(&right)?;
        // a W b is !(!b U !a & !b), and a R b is !(!a U !b).
        let (form, parts) = match word {
            "U" => (Modality::Until, vec![left, right]),
            "W" => (Modality::NotUntil, vec![right.negated(), left.negated().and(right.negated())]),
            _ => (Modality::NotUntil, vec![left.negated(), right.negated()]),
        };
        Ok(of_path(form, parts, times, start))
    }

    /// Fails if copies make a property too large, such as one of nested `W`.
    fn count_copies(&mut self, e: &Expression) -> Parsed<()> {
        self.copies += size(e);
        if self.copies > 100_000 { Err(too_deep(e.span)) } else { Ok(()) }
    }

    /// Property that gives the probability of a path formula, or of its negation.
    ///
    /// A state condition in a path formula refers to the first state. It chooses between answers,
    /// as in `a & X b`.
    fn probability(&self, e: &Expression, not: bool, bound: &Option<ParsedThreshold>) -> Parsed<Expression> {
        use Operation as O;
        let span = e.span;
        if !e.has_path() {
            let (yes, no) = (constant(!not, bound, span), constant(not, bound, span));
            return self.apply(O::If, vec![e.clone(), yes, no], span);
        }
        match &e.kind {
            Kind::Path(path) => self.path_probability(e, path, not, bound),
            Kind::Apply(O::Not, parts) => self.probability(&parts[0], !not, bound),
            Kind::Apply(O::Implies, parts) => {
                let parts = vec![parts[0].negated(), parts[1].clone()];
                self.probability(&self.apply(O::Or, parts, span)?, not, bound)
            }
            Kind::Apply(O::If, parts) if !parts[0].has_path() => {
                let answers = [&parts[1], &parts[2]].map(|part| self.probability(part, not, bound));
                let [yes, no] = answers;
                self.apply(O::If, vec![parts[0].clone(), yes?, no?], span)
            }
            Kind::Apply(operation @ (O::And | O::Or), parts) => {
                let (states, path) = match (parts[0].has_path(), parts[1].has_path()) {
                    (true, true) => return Ok(ltl_probability(e, not, bound)),
                    (true, false) => (&parts[1], &parts[0]),
                    _ => (&parts[0], &parts[1]),
                };
                let answer = self.probability(path, not, bound)?;
                let other = constant((*operation == O::Or) != not, bound, span);
                let choices = if *operation == O::And { [answer, other] } else { [other, answer] };
                let [yes, no] = choices;
                self.apply(O::If, vec![states.clone(), yes, no], span)
            }
            _ => Ok(ltl_probability(e, not, bound)),
        }
    }

    /// Property that gives the probability of `X`, `F`, `G`, `U` or its negation.
    fn path_probability(
        &self,
        e: &Expression,
        path: &Operator,
        not: bool,
        bound: &Option<ParsedThreshold>,
    ) -> Parsed<Expression> {
        let (Operator { form, parts, times, .. }, span) = (path, e.span);
        let untimed = times.each().next().is_none();
        let operator = |form: Modality, parts: Vec<Expression>| {
            let own = Operator::new(form, parts, span);
            Ok(Expression::operator(Operator { bound: bound.clone(), times: times.clone(), ..own }, span))
        };
        if !parts.iter().any(Expression::has_path) {
            let (form, parts) = match (form, not) {
                (form, false) => (*form, parts.clone()),
                (Modality::Next, true) => (Modality::Next, vec![parts[0].negated()]),
                (Modality::Finally, true) => (Modality::Globally, vec![parts[0].negated()]),
                (Modality::Globally, true) => (Modality::Finally, vec![parts[0].negated()]),
                (Modality::Until, true) => (Modality::NotUntil, parts.clone()),
                (_, true) => (Modality::Until, parts.clone()),
            };
            return operator(form, parts);
        }
        match (form, &parts[0].kind) {
            (Modality::Next, _) => operator(Modality::Step, vec![self.probability(&parts[0], not, &None)?]),
            // F F a and F (a U b) are F a and F b, also with an end.
            (Modality::Finally | Modality::Globally, Kind::Path(inner))
                if untimed
                    && inner.times.from.is_none()
                    && (inner.form == *form
                        || (*form, inner.form) == (Modality::Finally, Modality::Until)) =>
            {
                let last = inner.parts[inner.parts.len() - 1].clone();
                self.probability(&of_path(*form, vec![last], Times::default(), span), not, bound)
            }
            _ => Ok(ltl_probability(e, not, bound)),
        }
    }

    /// Property that gives the reward until a path formula holds, or infinity if it may not hold.
    fn reward_until(&self, e: &Expression, own: Operator) -> Parsed<Expression> {
        let (span, bound) = (e.span, own.bound.clone());
        let endless = || compared(f64::INFINITY, &bound, span);
        if !e.has_path() {
            let parts = vec![e.clone(), compared(0.0, &bound, span), endless()];
            return self.apply(Operation::If, parts, span);
        }
        match &e.kind {
            Kind::Path(path) if path.times.each().next().is_some() => {
                let message = "reward until a condition holds takes no times";
                Err(Diagnostic::new(span, message, "write C<=t, or F without a time"))
            }
            Kind::Path(path) if path.form == Modality::Finally && !path.parts[0].has_path() => {
                Ok(Expression::operator(Operator { parts: path.parts.clone(), ..own }, span))
            }
            _ => Ok(Expression::operator(Operator { parts: vec![e.clone()], ..own }, span)),
        }
    }

    /// Parses a state formula within a mean time.
    fn state(&mut self) -> Parsed<Expression> {
        let e = self.path()?;
        if e.has_path() { Err(ltl(e.span)) } else { Ok(e) }
    }

    fn times(&mut self) -> Parsed<Times> {
        let word = self.word();
        if !matches!(word, "<=" | "<" | ">=" | ">" | "=" | "[") {
            return Ok(Times::default());
        }
        self.advance();
        if word == "[" {
            let from = Some(self.expression()?);
            self.expect(",", TIMES)?;
            let to = Some(self.expression()?);
            self.expect("]", TIMES)?;
            return Ok(Times { from, to, strict: false });
        }
        let time = self.binary(8)?;
        let strict = matches!(word, "<" | ">");
        Ok(match word {
            "<=" | "<" => Times { from: None, to: Some(time), strict },
            ">=" | ">" => Times { from: Some(time), to: None, strict },
            _ => Times { from: Some(time.clone()), to: Some(time), strict },
        })
    }

    fn goal(&mut self) -> Parsed<Inner> {
        let at = |time: Expression| Times { to: Some(time), ..Times::default() };
        if self.take("C") {
            let times = if self.take("<=") { at(self.binary(8)?) } else { Times::default() };
            return Ok((Modality::Cumulative, Vec::new(), times));
        }
        if self.take("I") {
            self.expect("=", "a reward at a time is written I=t")?;
            return Ok((Modality::Instantaneous, Vec::new(), at(self.binary(8)?)));
        }
        self.expect("S", "rewards are R=? [ C<=t ], [ C ], [ I=t ], [ F condition ] and [ S ]")?;
        Ok((Modality::LongRun, Vec::new(), Times::default()))
    }

    /// Parses `filter(min, property, states)`.
    fn filter(&mut self) -> Parsed<Expression> {
        const FORM: &str = "a filter is written filter(min, property, states)";
        let start = self.advance().span;
        self.expect("(", FORM)?;
        let kind = match self.word() {
            "+" => Some(FilterKind::Sum),
            "&" => Some(FilterKind::ForAll),
            "|" => Some(FilterKind::Exists),
            word => word.parse().ok(),
        };
        let Some(kind) = kind else {
            let names = FilterKind::VARIANTS.join(", ");
            let all = match self.word() {
                "values" => "answers from every state need no filter but `all_states`; ",
                _ => "",
            };
            return Err(self.unexpected("the kind of the filter", &format!("{all}known are {names}")));
        };
        self.advance();
        self.expect(",", FORM)?;
        let mut parts = vec![self.expression()?];
        parts.extend(self.optional(",")?);
        let span = start.to(self.expect(")", FORM)?.span);
        Ok(Expression::operator(Operator::new(Modality::Filter(kind), parts, start), span))
    }
}

/// Path formula as an expression.
fn of_path(form: Modality, parts: Vec<Expression>, times: Times, start: Span) -> Expression {
    let span = parts.last().map_or(start, |last| start.to(last.span));
    let depth = 1 + parts.iter().map(|part| part.depth).max().unwrap_or(0);
    let kind = Kind::Path(Box::new(Operator { times, ..Operator::new(form, parts, span) }));
    Expression { kind, span, depth }
}

/// Probability 0 or 1, compared with the threshold if there is one.
fn constant(surely: bool, bound: &Option<ParsedThreshold>, span: Span) -> Expression {
    compared(f64::from(u8::from(surely)), bound, span)
}

/// A number, compared with the threshold if there is one.
fn compared(value: f64, bound: &Option<ParsedThreshold>, span: Span) -> Expression {
    let value = Value::Double(value);
    let literal = Expression { kind: Kind::Literal(value), span, depth: 1 };
    let Some(ParsedThreshold { comparison, limit }) = bound else { return literal };
    let depth = limit.depth + 1;
    Expression { kind: Kind::Apply(*comparison, vec![literal, limit.clone()]), span, depth }
}

/// Property that gives the probability of a formula of LTL, or of its negation.
fn ltl_probability(e: &Expression, not: bool, bound: &Option<ParsedThreshold>) -> Expression {
    let formula = if not { e.negated() } else { e.clone() };
    let own = Operator::new(Modality::Ltl, vec![formula], e.span);
    Expression::operator(Operator { bound: bound.clone(), ..own }, e.span)
}

pub(crate) fn ltl(span: Span) -> Diagnostic {
    let help = "formulas of LTL have no times in continuous time; use P>=p [ … ] for nested paths";
    Diagnostic::new(span, "this path formula of LTL is not answered", help)
}

/// Applies an older filter to an operator.
fn filtered(property: Expression, filter: Option<(FilterKind, Expression)>) -> Expression {
    let Some((kind, states)) = filter else { return property };
    let span = property.span;
    Expression::operator(Operator::new(Modality::Filter(kind), vec![property, states], span), span)
}
