//! Parser by recursive descent, with precedence climbing for expressions.
//!
//! Precedence follows the PRISM manual, from strongest to weakest: unary minus; `*` `/`; `+` `-`;
//! `<` `<=` `>=` `>`; `=` `!=`; `!`; `&`; `|`; `<=>`; `=>`; `? :`. All but `? :` associate to the
//! left.

mod model;
mod property;

pub(crate) use model::model;
pub(crate) use property::{negated, properties};

use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::{Token, TokenKind, tokens};
use crate::syntax::{Binary, Expression, Function, Kind, Name, Unary, Value};

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
    errors: Vec<Diagnostic>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, operators: bool) -> Self {
        let mut errors = Vec::new();
        let tokens = tokens(text, &mut errors);
        Self { text, tokens, at: 0, depth: 0, operators, errors }
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

    fn expect(&mut self, text: &str, help: &str) -> Parsed<Token> {
        if self.is(text) { Ok(self.advance()) } else { Err(self.unexpected(&format!("'{text}'"), help)) }
    }

    fn unexpected(&self, wanted: &str, help: &str) -> Diagnostic {
        let message = match self.token().kind {
            TokenKind::End => format!("the text ends where {wanted} is expected"),
            _ => format!("'{}' stands where {wanted} is expected", self.word()),
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
        while self.token().kind != TokenKind::End && !BEGINNINGS.contains(&self.word()) {
            let token = self.advance();
            let word = &self.text[token.span.range()];
            if word == ";" || (token.kind == TokenKind::Keyword && word.starts_with("end")) {
                break;
            }
        }
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
                last = p.node(Kind::If(Box::new([condition, yes, last])), span)?;
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

    fn node(&self, kind: Kind, span: Span) -> Parsed<Expression> {
        let deepest = |all: &[Expression]| all.iter().map(|e| e.depth).max().unwrap_or(0);
        let depth = 1 + match &kind {
            Kind::Literal(_) | Kind::Name(_) | Kind::Label(_) | Kind::Operator(_) => 0,
            Kind::Unary(_, a) => a.depth,
            Kind::Binary(_, a, b) => a.depth.max(b.depth),
            Kind::If(all) => deepest(&all[..]),
            Kind::Call(_, all) => deepest(all),
        };
        if depth > DEPTH { Err(too_deep(span)) } else { Ok(Expression { kind, span, depth }) }
    }

    /// Binary operator at the current token, and its precedence.
    fn operator(&self) -> Option<(Binary, u8)> {
        Some(match self.word() {
            "=>" => (Binary::Implies, 1),
            "<=>" => (Binary::Iff, 2),
            "|" => (Binary::Or, 3),
            "&" => (Binary::And, 4),
            "=" => (Binary::Equal, 6),
            "!=" => (Binary::NotEqual, 6),
            "<" => (Binary::Less, 7),
            "<=" => (Binary::LessEqual, 7),
            ">" => (Binary::Greater, 7),
            ">=" => (Binary::GreaterEqual, 7),
            "+" => (Binary::Plus, 8),
            "-" => (Binary::Minus, 8),
            "*" => (Binary::Times, 9),
            "/" => (Binary::Divide, 9),
            _ => return None,
        })
    }

    /// Parses an expression of operators with a precedence of `least` or more.
    fn binary(&mut self, least: u8) -> Parsed<Expression> {
        // `!` binds less than a comparison and more than `&`: its operand ends before `&`.
        let mut left = if self.is("!") && least <= 5 {
            let start = self.advance().span;
            let operand = self.nested(|p| p.binary(5))?;
            let span = start.to(operand.span);
            self.node(Kind::Unary(Unary::Not, Box::new(operand)), span)?
        } else {
            self.unary()?
        };
        while let Some((operator, strength)) = self.operator().filter(|(_, strength)| *strength >= least) {
            self.advance();
            // Long chains of `&` and `|` become balanced trees, to keep them shallow.
            if matches!(operator, Binary::And | Binary::Or) {
                let mut all = vec![left, self.nested(|p| p.binary(strength + 1))?];
                while self.operator() == Some((operator, strength)) {
                    self.advance();
                    all.push(self.nested(|p| p.binary(strength + 1))?);
                }
                left = self.balanced(operator, all)?;
                continue;
            }
            let right = self.nested(|p| p.binary(strength + 1))?;
            let span = left.span.to(right.span);
            left = self.node(Kind::Binary(operator, Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    fn balanced(&self, operator: Binary, mut all: Vec<Expression>) -> Parsed<Expression> {
        while all.len() > 1 {
            let mut halved = Vec::with_capacity(all.len().div_ceil(2));
            let mut rest = all.into_iter();
            while let Some(left) = rest.next() {
                halved.push(match rest.next() {
                    Some(right) => {
                        let span = left.span.to(right.span);
                        self.node(Kind::Binary(operator, Box::new(left), Box::new(right)), span)?
                    }
                    None => left,
                });
            }
            all = halved;
        }
        Ok(all.pop().expect("two operands at least"))
    }

    fn unary(&mut self) -> Parsed<Expression> {
        if self.is("!") {
            return Err(Diagnostic::new(
                self.span(),
                "'!' binds less than what stands before it",
                "put the negation into parentheses: x = (!y)",
            ));
        }
        if !self.is("-") {
            return self.primary();
        }
        let start = self.advance().span;
        let operand = self.nested(Self::unary)?;
        let span = start.to(operand.span);
        self.node(Kind::Unary(Unary::Minus, Box::new(operand)), span)
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let token = self.token();
        let word = self.word();
        let kind = match token.kind {
            TokenKind::Integer => match word.parse() {
                Ok(value) => Kind::Literal(Value::Int(value)),
                Err(_) => {
                    return Err(Diagnostic::new(
                        token.span,
                        format!("the whole number {word} does not fit 64 bits"),
                        "write it with a point to have a double",
                    ));
                }
            },
            TokenKind::Real => Kind::Literal(Value::Double(word.parse().expect("a number of the lexer"))),
            TokenKind::Quoted => Kind::Label(word[1..word.len() - 1].to_owned()),
            // `T` is a name unless `=?`, or a threshold and '[', follows.
            TokenKind::Name
                if self.operators
                    && word == "T"
                    && (self.ahead(1) == "=" && self.ahead(2) == "?" || self.is_bounded_time()) =>
            {
                return self.property_operator();
            }
            TokenKind::Name
                if self.operators && word == "LRA" && self.ahead(1) == "=" && self.ahead(2) == "?" =>
            {
                let message = "a long-run average is not written LRA=?, which is Storm's";
                return Err(Diagnostic::new(token.span, message, "write S=? [ condition ], or R=? [ S ]"));
            }
            TokenKind::Name if Function::of(word).is_some() && self.ahead(1) == "(" => return self.call(),
            TokenKind::Name => Kind::Name(word.to_owned()),
            TokenKind::Keyword if word == "true" || word == "false" => {
                Kind::Literal(Value::Bool(word == "true"))
            }
            TokenKind::Keyword if Function::of(word).is_some() || word == "func" => return self.call(),
            TokenKind::Keyword if self.operators => return self.property_operator(),
            TokenKind::Sign if word == "(" => {
                self.advance();
                let mut inner = self.expression()?;
                let close = self.expect(")", "close the parenthesis")?;
                inner.span = token.span.to(close.span);
                return Ok(inner);
            }
            _ => return Err(self.unexpected("an expression", "")),
        };
        self.advance();
        self.node(kind, token.span)
    }

    /// Parses `min(a, b)`, or `func(min, a, b)` of old models.
    fn call(&mut self) -> Parsed<Expression> {
        let start = self.span();
        let old = self.take("func");
        if old {
            self.expect("(", "a function is called func(name, argument)")?;
        }
        let word = self.word();
        let Some(function) = Function::of(word) else {
            let known = "known are min, max, floor, ceil, round, pow, mod and log";
            return Err(self.unexpected("a function", known));
        };
        self.advance();
        self.expect(if old { "," } else { "(" }, "arguments of a function stand in parentheses")?;
        let mut arguments = vec![self.expression()?];
        while self.take(",") {
            arguments.push(self.expression()?);
        }
        let end = self.expect(")", "arguments of a function end with a parenthesis")?.span;
        let fits = match function {
            Function::Min | Function::Max => arguments.len() >= 2,
            Function::Pow | Function::Mod | Function::Log => arguments.len() == 2,
            Function::Floor | Function::Ceil | Function::Round => arguments.len() == 1,
        };
        if !fits {
            let message = format!("{word} is given {} argument(s)", arguments.len());
            let help =
                "min and max take two or more, pow(x, y), mod(i, n) and log(x, base) two, the others one";
            return Err(Diagnostic::new(start.to(end), message, help));
        }
        self.node(Kind::Call(function, arguments), start.to(end))
    }

    /// Parses `const int N = 3;` after the word `const`.
    fn constant(&mut self) -> Parsed<crate::syntax::Constant> {
        use crate::syntax::Type;
        let ty = match self.word() {
            "int" => Some(Type::Int),
            "double" => Some(Type::Double),
            "bool" => Some(Type::Bool),
            _ => None,
        };
        if ty.is_some() {
            self.advance();
        }
        let name = self.name("a constant")?;
        let value = if self.take("=") { Some(self.expression()?) } else { None };
        self.expect(";", "a constant ends with ';'")?;
        Ok(crate::syntax::Constant { name, ty: ty.unwrap_or(Type::Int), value })
    }

    /// Parses `label "x" = e;` after the word `label`.
    fn label(&mut self) -> Parsed<crate::syntax::Definition> {
        let name = self.quoted("a label")?;
        self.expect("=", "a label is written label \"name\" = condition;")?;
        let body = self.expression()?;
        self.expect(";", "a label ends with ';'")?;
        Ok(crate::syntax::Definition { name, body })
    }
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::new(span, "this expression is nested too deep", "name parts of it by formulas")
}
