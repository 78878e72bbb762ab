//! Parser by recursive descent, with precedence climbing for expressions.
//!
//! Precedence follows the PRISM manual, from strongest to weakest: unary minus; `^`; `*` `/`;
//! `+` `-`; `<` `<=` `>=` `>`; `=` `!=`; `!`; `&`; `|`; `<=>`; `=>`; `? :`. All but `^` and `? :`
//! associate to the left.

mod model;
mod property;

pub(crate) use model::model;
pub(crate) use property::{ltl, properties};

use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::{Token, TokenKind, tokens};
use crate::syntax::{ConstantDeclaration, Definition, Expression, Kind, Name, Operation, Type, Value};

/// Maximum depth of an expression. Trees are walked by recursion, on a stack of 2 MiB.
const DEPTH: u16 = 400;

type Parsed<T> = Result<T, Diagnostic>;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: u16,
    /// True if expressions may contain `P`, `R`, `S` and filters.
    operators: bool,
    /// True within `P=? [ … ]`, where parentheses may enclose path formulas.
    paths: bool,
    /// Size of the expressions of the current property that rewriting copies.
    copies: usize,
    errors: Vec<Diagnostic>,
}

/// Parses an expression without properties, if the text is one.
pub(crate) fn expression(text: &str) -> Option<Expression> {
    let mut parser = Parser::new(text, false);
    let found = parser.expression().ok();
    found.filter(|_| parser.errors.is_empty() && parser.token().kind == TokenKind::End)
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, operators: bool) -> Self {
        let mut errors = Vec::new();
        let tokens = tokens(text, &mut errors);
        Self { text, tokens, at: 0, depth: 0, operators, paths: false, copies: 0, errors }
    }

    fn token(&self) -> Token {
        self.tokens[self.at]
    }

    fn ahead(&self, count: usize) -> &'a str {
        let token = self.tokens[(self.at + count).min(self.tokens.len() - 1)];
        &self.text[token.span.range()]
    }

    /// Text of the current token. Only the end has an empty text.
    fn word(&self) -> &'a str {
        self.ahead(0)
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// Span of the previous token.
    fn last(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn is(&self, text: &str) -> bool {
        self.word() == text && self.token().kind != TokenKind::End
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.is(text);
        if found {
            self.advance();
        }
        found
    }

    /// Parses items with commas between them.
    fn separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut all = vec![item(self)?];
        while self.take(",") {
            all.push(item(self)?);
        }
        Ok(all)
    }

    /// Parses `sign` and an expression, if the current token is `sign`.
    fn optional(&mut self, sign: &str) -> Parsed<Option<Expression>> {
        if self.take(sign) { self.expression().map(Some) } else { Ok(None) }
    }

    fn expect(&mut self, text: &str, help: &str) -> Parsed<Token> {
        if self.is(text) { Ok(self.advance()) } else { Err(self.unexpected(&format!("'{text}'"), help)) }
    }

    fn unexpected(&self, wanted: &str, help: &str) -> Diagnostic {
        let message = match self.token().kind {
            TokenKind::End => format!("expected {wanted}, found the end of the text"),
            _ => format!("expected {wanted}, found '{}'", self.word()),
        };
        Diagnostic::new(self.span(), message, help)
    }

    fn name(&mut self, of: &str) -> Parsed<Name> {
        let token = self.token();
        match token.kind {
            TokenKind::Name => {
                self.advance();
                Ok(Name { text: self.text[token.span.range()].to_owned(), span: token.span })
            }
            TokenKind::Keyword => Err(Diagnostic::new(
                token.span,
                format!("'{}' is a reserved word of PRISM and cannot be the name of {of}", self.word()),
                match self.word().len() {
                    1 => "choose another name; Storm takes this one, PRISM does not",
                    _ => "choose another name",
                },
            )),
            _ => Err(self.unexpected(&format!("the name of {of}"), "")),
        }
    }

    fn quoted(&mut self, of: &str) -> Parsed<Name> {
        let token = self.token();
        if token.kind != TokenKind::Quoted {
            return Err(self.unexpected(&format!("the name of {of} in quotation marks"), ""));
        }
        self.advance();
        let text = &self.text[token.span.range()];
        Ok(Name { text: text[1..text.len() - 1].to_owned(), span: token.span })
    }

    /// Records the error and skips to the next item, or past the next ';' or 'end…'.
    fn recover(&mut self, error: Diagnostic, started: usize) {
        const BEGINNINGS: [&str; 7] = ["const", "formula", "global", "label", "module", "rewards", "system"];
        self.errors.push(error);
        // A token that begins no item is skipped.
        if self.at == started {
            self.advance();
        }
        if self.operators && self.next_line(started) {
            return;
        }
        while self.token().kind != TokenKind::End && !BEGINNINGS.contains(&self.word()) {
            let token = self.advance();
            let word = &self.text[token.span.range()];
            if word == ";" || (token.kind == TokenKind::Keyword && word.starts_with("end")) {
                break;
            }
        }
    }

    /// Moves to the property that begins on a line after `started`, outside of all brackets.
    fn next_line(&mut self, started: usize) -> bool {
        let mut depth = 0;
        let word = |k: usize| &self.text[self.tokens[k].span.range()];
        let inside = |word: &str| Operation::of_sign(word).is_some() || "?:!^,-".contains(word);
        for k in started..self.tokens.len() {
            let between = k.checked_sub(1).map(|last| {
                &self.text[self.tokens[last].span.end as usize..self.tokens[k].span.start as usize]
            });
            let begins = between.is_some_and(|between| between.contains('\n'));
            if k >= self.at && depth == 0 && begins && !inside(word(k)) && !inside(word(k - 1)) {
                self.at = k;
                return true;
            }
            match word(k) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                ";" | "const" | "label" => break,
                _ => {}
            }
        }
        false
    }

    fn expression(&mut self) -> Parsed<Expression> {
        self.nested(|p| {
            // `a ? b : c ? d : …` may be long: a loop saves recursion.
            let mut choices = Vec::new();
            let mut last = p.binary(0)?;
            while p.take("?") {
                let yes = p.expression()?;
                p.expect(":", "a choice is written condition ? value : value")?;
                choices.push((last, yes));
                last = p.binary(0)?;
            }
            for (condition, yes) in choices.into_iter().rev() {
                let span = condition.span.to(last.span);
                last = p.apply(Operation::If, vec![condition, yes, last], span)?;
            }
            Ok(last)
        })
    }

    /// Runs `work` one recursion level deeper, or fails if the parser is too deep.
    fn nested<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth > DEPTH / 4 {
            return Err(too_deep(self.span()));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn apply(&self, operation: Operation, parts: Vec<Expression>, span: Span) -> Parsed<Expression> {
        let depth = 1 + parts.iter().map(|part| part.depth).max().unwrap_or(0);
        let kind = Kind::Apply(operation, parts);
        if depth > DEPTH { Err(too_deep(span)) } else { Ok(Expression { kind, span, depth }) }
    }

    fn two(&self, operation: Operation, left: Expression, right: Expression) -> Parsed<Expression> {
        let span = left.span.to(right.span);
        self.apply(operation, vec![left, right], span)
    }

    /// Operator between two operands at the current token, and its precedence.
    fn operator(&self) -> Option<(Operation, u8)> {
        Operation::of_sign(self.word())
    }

    /// Parses an expression of operators with a precedence of `least` or more.
    fn binary(&mut self, least: u8) -> Parsed<Expression> {
        // `!` binds less than a comparison and more than `&`: its operand ends before `&`.
        let mut left = if self.is("!") && least <= 5 {
            let start = self.advance().span;
            let operand = self.nested(|p| p.binary(5))?;
            let span = start.to(operand.span);
            self.apply(Operation::Not, vec![operand], span)?
        } else {
            self.power()?
        };
        while let Some((operator, strength)) = self.operator().filter(|(_, strength)| *strength >= least) {
            self.advance();
            // Long chains of `&` and `|` become balanced trees, to keep them shallow.
            if matches!(operator, Operation::And | Operation::Or) {
                let mut all = vec![left, self.nested(|p| p.binary(strength + 1))?];
                while self.operator() == Some((operator, strength)) {
                    self.advance();
                    all.push(self.nested(|p| p.binary(strength + 1))?);
                }
                left = self.balanced(operator, all)?;
                continue;
            }
            let right = self.nested(|p| p.binary(strength + 1))?;
            left = self.two(operator, left, right)?;
        }
        Ok(left)
    }

    fn balanced(&self, operator: Operation, mut all: Vec<Expression>) -> Parsed<Expression> {
        while all.len() > 1 {
            let mut halved = Vec::with_capacity(all.len().div_ceil(2));
            let mut rest = all.into_iter();
            while let Some(left) = rest.next() {
                halved.push(match rest.next() {
                    Some(right) => self.two(operator, left, right)?,
                    None => left,
                });
            }
            all = halved;
        }
        Ok(all.pop().expect("two operands at least"))
    }

    /// Parses `x^y`, which associates to the right and binds less than unary minus, as in PRISM.
    fn power(&mut self) -> Parsed<Expression> {
        let left = self.unary()?;
        if !self.take("^") {
            return Ok(left);
        }
        let right = self.nested(Self::power)?;
        self.two(Operation::Pow, left, right)
    }

    fn unary(&mut self) -> Parsed<Expression> {
        if self.is("!") {
            let help = "put the negation into parentheses: x = (!y)";
            return Err(Diagnostic::new(self.span(), "'!' binds weaker than the operator before it", help));
        }
        if !self.is("-") {
            return self.primary();
        }
        let start = self.advance().span;
        let operand = self.nested(Self::unary)?;
        let span = start.to(operand.span);
        self.apply(Operation::Negate, vec![operand], span)
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let token = self.token();
        let word = self.word();
        let asked = self.ahead(1) == "=" && self.ahead(2) == "?";
        let kind = match token.kind {
            TokenKind::Integer => Kind::Literal(Value::Int(word.parse().map_err(|_| {
                let message = format!("the whole number {word} does not fit 64 bits");
                Diagnostic::new(token.span, message, "write it with a point to have a double")
            })?)),
            TokenKind::Real => Kind::Literal(Value::Double(word.parse().expect("a number of the lexer"))),
            TokenKind::Quoted => Kind::Label(word[1..word.len() - 1].to_owned()),
            // `T` is a name unless `=?`, or a threshold and '[', follows.
            TokenKind::Name if self.operators && word == "T" && (asked || self.is_bounded_time()) => {
                return self.property_operator();
            }
            TokenKind::Name if self.operators && word == "multi" && self.ahead(1) == "(" => {
                return self.property_operator();
            }
            TokenKind::Sign if self.operators && word == "<" && self.ahead(1) == "<" => {
                let message = "coalitions <<…>> of games are not answered: a Markov chain has no players";
                return Err(Diagnostic::new(token.span, message, "ask for P=? or R=?"));
            }
            TokenKind::Name if self.operators && word == "LRA" && asked => {
                let message = "a long-run average is not written LRA=?, which is Storm's";
                return Err(Diagnostic::new(token.span, message, "write S=? [ condition ], or R=? [ S ]"));
            }
            TokenKind::Name if Operation::of_function(word).is_some() && self.ahead(1) == "(" => {
                return self.call();
            }
            TokenKind::Name => Kind::Name(word.to_owned()),
            TokenKind::Keyword if word == "true" || word == "false" => {
                Kind::Literal(Value::Bool(word == "true"))
            }
            TokenKind::Keyword if Operation::of_function(word).is_some() || word == "func" => {
                return self.call();
            }
            TokenKind::Keyword if self.paths && matches!(word, "F" | "G" | "X") => return self.path(),
            TokenKind::Keyword if self.operators => return self.property_operator(),
            TokenKind::Sign if word == "(" => {
                self.advance();
                let mut inner = if self.paths { self.nested(Self::path)? } else { self.expression()? };
                let close = self.expect(")", "close the parenthesis")?;
                inner.span = token.span.to(close.span);
                return Ok(inner);
            }
            _ => return Err(self.unexpected("an expression", "")),
        };
        self.advance();
        Ok(Expression { kind, span: token.span, depth: 1 })
    }

    /// Parses `min(a, b)`, or `func(min, a, b)` of old models.
    fn call(&mut self) -> Parsed<Expression> {
        let start = self.span();
        let old = self.take("func");
        if old {
            self.expect("(", "a function is called func(name, argument)")?;
        }
        let word = self.word();
        let Some(function) = Operation::of_function(word) else {
            let known = "known are min, max, floor, ceil, round, pow, mod and log";
            return Err(self.unexpected("a function", known));
        };
        self.advance();
        self.expect(if old { "," } else { "(" }, "arguments of a function must be in parentheses")?;
        let arguments = self.separated(Self::expression)?;
        let end = self.expect(")", "arguments of a function end with a parenthesis")?.span;
        let fits = match function {
            Operation::Min | Operation::Max => true,
            Operation::Pow | Operation::Mod | Operation::Log => arguments.len() == 2,
            _ => arguments.len() == 1,
        };
        if !fits {
            let message = format!("{word} is given {} argument(s)", arguments.len());
            let help =
                "min and max take one or more, pow(x, y), mod(i, n) and log(x, base) two, the others one";
            return Err(Diagnostic::new(start.to(end), message, help));
        }
        self.apply(function, arguments, start.to(end))
    }

    /// Parses `const int N = 3;` after the word `const`.
    fn constant(&mut self) -> Parsed<ConstantDeclaration> {
        let types = [Type::Int, Type::Double, Type::Bool];
        let ty = types.into_iter().find(|ty| self.take(&ty.to_string())).unwrap_or(Type::Int);
        let name = self.name("a constant")?;
        let value = self.optional("=")?;
        self.expect(";", "a constant ends with ';'")?;
        Ok(ConstantDeclaration { name, ty, value })
    }

    /// Parses `"x" = e;` after the word `label`, or `x = e;` after `formula`.
    fn definition(&mut self, name: Name, form: &str, end: &str) -> Parsed<Definition> {
        self.expect("=", form)?;
        let body = self.expression()?;
        self.expect(";", end)?;
        Ok(Definition { name, body })
    }

    fn label(&mut self) -> Parsed<Definition> {
        let name = self.quoted("a label")?;
        self.definition(name, "a label is written label \"name\" = condition;", "a label ends with ';'")
    }
}

fn size(e: &Expression) -> usize {
    let mut all = 1;
    e.each_part(&mut |part| all += size(part));
    all
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::new(span, "this expression is nested too deep", "name parts of it by formulas")
}
