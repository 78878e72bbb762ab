//! Tokens of a text in the PRISM language: words, numbers and signs.

use crate::diagnostics::{Diagnostic, Span};

/// Kind of a token. Its text is given by its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    /// A reserved word, which cannot name a constant, variable or module.
    Keyword,
    Integer,
    Real,
    /// A name in quotation marks. The span includes the marks.
    Quoted,
    Sign,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}

/// Kind of a word. Reserved are those of PRISM; of the functions these are `min` and `max` alone.
fn kind_of_word(word: &str) -> TokenKind {
    match word {
        "A" | "C" | "E" | "F" | "G" | "I" | "P" | "Pmax" | "Pmin" | "R" | "Rmax" | "Rmin" | "S" | "U"
        | "W" | "X" | "bool" | "clock" | "const" | "ctmc" | "double" | "dtmc" | "endinit"
        | "endinvariant" | "endmodule" | "endobservables" | "endrewards" | "endsystem" | "false"
        | "filter" | "formula" | "func" | "global" | "init" | "int" | "invariant" | "label" | "max"
        | "mdp" | "min" | "module" | "nondeterministic" | "observable" | "observables" | "of" | "pomdp"
        | "popta" | "probabilistic" | "pta" | "rate" | "rewards" | "stochastic" | "system" | "true"
        | "prob" => TokenKind::Keyword,
        _ => TokenKind::Name,
    }
}

/// Signs, longer ones before their prefixes.
///
/// `<-` and `|[` are two signs each: `x<-1` is a comparison.
const SIGNS: [&str; 10] = ["<=>", "|||", "||", "->", "=>", "<=", ">=", "!=", "..", "'"];

/// Decodes the bytes of a file as UTF-8.
///
/// Invalid bytes are taken as Latin-1, in which comments of old models are written.
pub fn decoded(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let chunks = error.as_bytes().utf8_chunks();
        let chunks = chunks
            .map(|c| c.invalid().iter().fold(c.valid().to_owned(), |s, b| s + &(*b as char).to_string()));
        chunks.collect()
    })
}

/// Splits a text into tokens up to [`TokenKind::End`]; other text is skipped and reported in
/// `errors`.
pub(crate) fn tokens(text: &str, errors: &mut Vec<Diagnostic>) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let span = |from: usize, length: usize| Span { start: from as u32, end: (from + length) as u32 };
    // Some editors begin a file with a byte order mark.
    let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, length) = match rest[0] {
            b' ' | b'\t' | b'\r' | b'\n' | b'\x0c' => {
                at += 1;
                continue;
            }
            b'/' if rest.get(1) == Some(&b'/') => {
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = while_true(rest, |b| b.is_ascii_alphanumeric() || b == b'_');
                (kind_of_word(&text[at..at + length]), length)
            }
            b'0'..=b'9' => number(rest),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => number(rest),
            b'"' => match rest[1..].iter().position(|b| *b == b'"' || *b == b'\n') {
                Some(end) if rest[1 + end] == b'"' => {
                    // A terminal would interpret it when the name is printed.
                    if let Some((k, c)) = text[at..=at + end].char_indices().find(|(_, c)| c.is_control()) {
                        let message = format!("the control character {c:?} is not allowed in a name");
                        errors.push(Diagnostic::new(span(at + k, c.len_utf8()), message, "remove it"));
                    }
                    (TokenKind::Quoted, end + 2)
                }
                _ => {
                    let length = while_true(rest, |b| b != b'\n');
                    let message = "this quotation mark is not closed on its line";
                    let help = "write the name of a label, a reward structure or a property as \"name\"";
                    errors.push(Diagnostic::new(span(at, length), message, help));
                    at += length;
                    continue;
                }
            },
            _ => match SIGNS.iter().find(|s| rest.starts_with(s.as_bytes())) {
                Some(sign) => (TokenKind::Sign, sign.len()),
                None if b"+-*/^<>=!&|?:;,()[]{}".contains(&rest[0]) => (TokenKind::Sign, 1),
                None => {
                    let c = text[at..].chars().next().expect("a character begins here");
                    let message = format!("unexpected character {c:?}");
                    errors.push(Diagnostic::new(span(at, c.len_utf8()), message, "remove it"));
                    at += c.len_utf8();
                    continue;
                }
            },
        };
        tokens.push(Token { kind, span: span(at, length) });
        at += length;
    }
    tokens.push(Token { kind: TokenKind::End, span: span(text.len(), 0) });
    tokens
}

fn while_true(bytes: &[u8], test: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|b| !test(*b)).unwrap_or(bytes.len())
}

/// Reads a number such as `12`, `1.5`, `.5` or `1e-3`, without the two points of `0..5`.
fn number(bytes: &[u8]) -> (TokenKind, usize) {
    let digits = |at: usize| while_true(&bytes[at.min(bytes.len())..], |b| b.is_ascii_digit());
    let mut length = digits(0);
    let mut kind = TokenKind::Integer;
    if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        kind = TokenKind::Real;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
            kind = TokenKind::Real;
        }
    }
    (kind, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        let mut errors = Vec::new();
        let tokens = tokens(text, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        tokens.iter().map(|t| &text[t.span.range()]).collect()
    }

    #[test]
    fn ranges_signs_and_comments_are_cut_where_the_language_cuts_them() {
        assert_eq!(texts("[0..5]"), ["[", "0", "..", "5", "]", ""]);
        assert_eq!(texts("x<-1e-3//y\n.5"), ["x", "<", "-", "1e-3", ".5", ""]);
        assert_eq!(texts("(x'=x+1)"), ["(", "x", "'", "=", "x", "+", "1", ")", ""]);
        assert_eq!(texts("a<=>b=>c!=2.5"), ["a", "<=>", "b", "=>", "c", "!=", "2.5", ""]);
        assert_eq!(texts("P=?[\"a b\"]"), ["P", "=", "?", "[", "\"a b\"", "]", ""]);
        assert_eq!(texts("a|||b||c|[d]|e"), ["a", "|||", "b", "||", "c", "|", "[", "d", "]", "|", "e", ""]);
    }

    #[test]
    fn what_is_no_token_is_told_and_left_out() {
        let mut errors = Vec::new();
        let found = tokens("x # 2 \u{3b1} \"open\ny", &mut errors);
        assert_eq!(found.len(), 4);
        assert_eq!(errors.len(), 3);
        errors.clear();
        tokens("label \"a\u{1b}]0;b\" // \u{1b}", &mut errors);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].message.contains(r"'\u{1b}'") && errors[0].span.range() == (8..9), "{errors:?}");
    }
}
