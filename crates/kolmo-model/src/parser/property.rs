//! Parser of CSL properties in PRISM's syntax.

use super::{Parsed, Parser};
use crate::diagnostics::Diagnostic;
use crate::lexer::TokenKind;
use crate::syntax::{
    Bound, Entry, Expression, FilterKind, Form, Kind, Name, Operator, PropertiesText, Times,
};

/// Parses properties, each of which keeps its own errors.
///
/// Also returns the errors outside of the properties.
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
            all.properties.push(Entry { name, span, body: Err(errors) });
        }
    }
    // A character that begins no token is an error of the property that contains it.
    let mut outside = Vec::new();
    for error in parser.errors {
        let inside = |entry: &&mut Entry| entry.span.range().contains(&(error.span.start as usize));
        match all.properties.iter_mut().find(inside) {
            Some(Entry { body: Err(errors), .. }) => errors.push(error),
            Some(entry) => entry.body = Err(vec![error]),
            None => outside.push(error),
        }
    }
    (all, outside)
}

/// Contents of an operator's brackets: form, operands and times.
type Inner = (Form, Vec<Expression>, Times);

const TIMES: &str = "times are written <=t, >=t, [t1,t2] or =t";

impl Parser<'_> {
    fn entry(&mut self, all: &mut PropertiesText) -> Parsed<()> {
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
            all.properties.push(Entry { name, span, body: Ok(property) });
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
            "P" | "R" | "S" | "T" => return self.bounded(word),
            "filter" => return self.filter(),
            "Pmin" | "Pmax" | "Rmin" | "Rmax" => (
                format!("{word} asks for the best of several choices, and a Markov chain has none"),
                "write P or R",
            ),
            "A" | "E" => (
                format!("{word} [ … ] of CTL is not answered"),
                "ask for a probability: P>=1 [ … ] or P>0 [ … ]",
            ),
            "F" | "G" | "X" | "U" | "W" | "C" | "I" => (
                format!("{word} stands outside of an operator, or within another {word}"),
                "path formulas stand in P=? [ … ], and nest by P>=p [ … ] only",
            ),
            _ => return Err(self.unexpected("an expression", "")),
        };
        Err(Diagnostic::new(start, message, help))
    }

    /// Parses `P`, `R`, `S` or `T` with its bound and brackets.
    fn bounded(&mut self, word: &str) -> Parsed<Expression> {
        let start = self.advance().span;
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
        let (form, parts, times) = match word {
            "P" => self.path()?,
            "S" => (Form::SteadyState, vec![self.expression()?], Times::default()),
            "R" => self.goal()?,
            _ => {
                self.expect("F", form)?;
                (Form::Time, vec![self.state()?], Times::default())
            }
        };
        let filter = self.older_filter(bound.is_some())?;
        let end = self.expect("]", "the operator ends with ']'")?.span;
        let kind = Kind::Operator(Box::new(Operator { form, bound, parts, times, structure }));
        let property = Expression { kind, span: start.to(end), depth: 1 };
        let Some((kind, states)) = filter else { return Ok(property) };
        let (form, structure) = (Form::Filter(kind), (None, start));
        let (parts, times) = (vec![property, states], Times::default());
        let kind = Kind::Operator(Box::new(Operator { form, bound: None, parts, times, structure }));
        Ok(Expression { kind, span: start.to(end), depth: 1 })
    }

    /// Parses PRISM's older filter at the end of an operator: `{states}`, `{states}{max}`.
    ///
    /// With a threshold it has to hold in all states.
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
    fn bound(&mut self) -> Parsed<Option<Bound>> {
        if matches!(self.word(), "min" | "max") {
            let message = "a Markov chain has no choices to take the best of";
            return Err(Diagnostic::new(self.span(), message, "write =?"));
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
        Ok(Some(Bound { comparison, limit }))
    }

    fn path(&mut self) -> Parsed<Inner> {
        if self.is("(") && self.inner_path(0) {
            self.advance();
            let path = self.nested(Self::path)?;
            self.expect(")", "close the parenthesis")?;
            return Ok(path);
        }
        for (word, form) in [("X", Form::Next), ("F", Form::Finally), ("G", Form::Globally)] {
            if self.take(word) {
                let times = if form == Form::Next { Times::default() } else { self.times()? };
                return Ok((form, vec![self.state()?], times));
            }
        }
        let next = self.ahead(1);
        if self.is("!") && (matches!(next, "F" | "G" | "X") || next == "(" && self.inner_path(1)) {
            let message = "a negated path formula is not answered";
            let help = "!F a is G !a, !G a is F !a";
            return Err(Diagnostic::new(self.span(), message, help));
        }
        let left = self.state()?;
        match self.word() {
            "U" => {
                self.advance();
                let times = self.times()?;
                Ok((Form::Until, vec![left, self.state()?], times))
            }
            // a W b is !(!b U !a & !b), and a R b is !(!a U !b).
            word @ ("W" | "R") => {
                self.advance();
                let times = self.times()?;
                let right = self.state()?;
                let parts = match word {
                    "W" => vec![right.negated(), left.negated().and(right.negated())],
                    _ => vec![left.negated(), right.negated()],
                };
                Ok((Form::NotUntil, parts, times))
            }
            _ => {
                Err(self
                    .unexpected("'U'", "path formulas are X a, F<=t a, G<=t a, a U<=t b, a W b and a R b"))
            }
        }
    }

    /// True if the parenthesis `ahead` tokens after the current one encloses a path formula.
    fn inner_path(&self, ahead: usize) -> bool {
        let mut depth = 0;
        for token in &self.tokens[self.at + ahead..] {
            match &self.text[token.span.range()] {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                "F" | "G" | "X" | "U" | "W" if depth == 1 => return true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        false
    }

    /// Parses a state formula within a path formula.
    fn state(&mut self) -> Parsed<Expression> {
        if matches!(self.word(), "F" | "G" | "X") && self.token().kind == TokenKind::Keyword {
            return Err(Diagnostic::new(
                self.span(),
                format!("{} stands within another path formula, which is not answered", self.word()),
                "CSL nests by P>=p [ … ]",
            ));
        }
        self.expression()
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
            return Ok((Form::Cumulative, Vec::new(), times));
        }
        if self.take("I") {
            self.expect("=", "a reward at a time is written I=t")?;
            return Ok((Form::Instantaneous, Vec::new(), at(self.binary(8)?)));
        }
        if self.take("F") {
            if matches!(self.word(), "<=" | "<" | ">=" | ">" | "=" | "[") {
                let message = "reward until a condition holds takes no times";
                return Err(Diagnostic::new(self.span(), message, "write C<=t, or F without a time"));
            }
            return Ok((Form::Reach, vec![self.state()?], Times::default()));
        }
        if self.take("S") {
            return Ok((Form::LongRun, Vec::new(), Times::default()));
        }
        let help = "rewards are R=? [ C<=t ], [ C ], [ I=t ], [ F condition ] and [ S ]";
        Err(self.unexpected("C<=t, C, I=t, F or S", help))
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
            word => FilterKind::NAMES.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind),
        };
        let Some(kind) = kind else {
            let names = FilterKind::NAMES.map(|(name, _)| name).join(", ");
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
        let (form, structure) = (Form::Filter(kind), (None, start));
        let operator = Operator { form, bound: None, parts, times: Times::default(), structure };
        Ok(Expression { kind: Kind::Operator(Box::new(operator)), span, depth: 1 })
    }
}
