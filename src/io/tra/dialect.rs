//! Detection of the dialects of `.tra` files, and of other formats.

use super::*;
use crate::io::text::{number, unsigned};

/// Suggestion for files with rows of transitions.
pub(super) const EXPORT_ROWS: &str =
    "export one transition a line with `prism MODEL -exportmodel out.tra,lab`, without `:rows`";

const EXPORT: &str = "export it with `prism MODEL -exportmodel out.tra,lab` and read out.tra";

/// Words that PRISM's modelling language can start with.
const LANGUAGE: &str = "module const label formula global rewards init system stochastic probabilistic \
                        nondeterministic";

/// Types of models other than Markov chains. Files that start with these words are rejected.
const OTHER_TYPES: &[&str] = &["mdp", "ma", "pomdp", "pta", "popta", "smg", "idtmc", "imdp", "ctmdp", "lts"];

/// Header: everything before the transitions.
pub(super) struct TraHeader {
    /// True if the file declares discrete time, false for continuous time, `None` for neither.
    pub(super) discrete: Option<bool>,
    /// Number of states that the header promises, if it does.
    pub(super) states: Option<u64>,
    /// Number of transitions that the header promises, if it does.
    pub(super) transitions: Option<u64>,
    /// Line with the number of transitions.
    pub(super) count_line: u64,
    /// Offset of the first line of transitions.
    pub(super) body: usize,
    /// Number of lines before `body`.
    pub(super) lines: u64,
}

/// Iterator over the lines that are neither blank nor comments.
struct ContentLines<'a> {
    lines: TextLines<'a>,
    /// Kind of time that a comment or a hint declared: see [`TraHeader`].
    discrete: Option<bool>,
}

impl<'a> ContentLines<'a> {
    /// Returns the next line that is neither blank nor a comment, and its offset.
    fn next(&mut self) -> Result<Option<(TextLine<'a>, usize)>> {
        loop {
            let start = self.lines.offset;
            match self.lines.next() {
                None => return Ok(None),
                Some(line) if line.bytes.starts_with(b"#") => {
                    self.discrete = declared(line)?.or(self.discrete);
                }
                Some(line) if line.bytes.is_empty() => {}
                Some(line) => return Ok(Some((line, start))),
            }
        }
    }

    /// Returns the header that ends with `last`, the line with the number of transitions.
    fn head(&self, states: u64, transitions: u64, last: TextLine) -> TraHeader {
        TraHeader {
            discrete: self.discrete,
            states: Some(states),
            transitions: Some(transitions),
            count_line: last.number,
            body: self.lines.offset,
            lines: last.number,
        }
    }
}

/// Determines the file's dialect and reads its header.
pub(super) fn detect(bytes: &[u8], path: &Path) -> Result<TraHeader> {
    let mut content = ContentLines { lines: TextLines::new(bytes, path), discrete: None };
    let empty = "is empty; a .tra starts with `STATES TRANSITIONS` in numbers, or with `ctmc`";
    let (mut first, mut start) = content.next()?.ok_or_else(|| Error::file(path, empty))?;
    // `//` starts a comment in DRN and in the modelling language. The first line after it decides.
    while first.bytes.starts_with(b"//") {
        match content.next()? {
            Some((next, _)) if next.bytes.starts_with(b"@") => return Err(drn(next)),
            Some((next, _)) if next.bytes.starts_with(b"//") => first = next,
            Some((next, _)) => return Err(language(next)),
            None => return Err(language(first)),
        }
    }
    check_other_format(first)?;
    if first.bytes[0].is_ascii_alphabetic() {
        let discrete = first.bytes.eq_ignore_ascii_case(b"dtmc");
        let is_chain = discrete || first.bytes.eq_ignore_ascii_case(b"ctmc");
        match content.next()? {
            None if is_chain => {
                let reason = format!(
                    "no transitions follow the hint `{}`: the file is truncated; export it again",
                    if discrete { "dtmc" } else { "ctmc" }
                );
                return Err(first.error(reason));
            }
            Some(next) if is_chain && next.0.bytes[0].is_ascii_digit() => (first, start) = next,
            Some(next) if is_other_type(first.bytes) && next.0.bytes[0].is_ascii_digit() => {
                let expected = "expected a Markov chain, with the hint `ctmc` or `dtmc`";
                return Err(first.error(format!("model type {first} is not supported: {expected}")));
            }
            _ => return Err(language_or_unknown(first)),
        }
        content.discrete = Some(discrete);
    }
    let fields: Vec<&[u8]> = first.fields().take(5).collect();
    if fields.get(1).is_some_and(|field| field.contains(&b':')) {
        return Err(first.error(format!("{first} is a row of transitions; {EXPORT_ROWS}")));
    }
    match *fields.as_slice() {
        [states, transitions] => {
            let transitions = count(transitions, "transitions", first)?;
            match count(states, "states", first)? {
                0 => Err(first
                    .error("invalid number of states 0: expected at least 1; export the chain again")),
                states @ 1..=MOST_STATES => Ok(content.head(states, transitions, first)),
                states => Err(first.error(format!(
                    "number of states {states} is out of range: expected at most {MOST_STATES}; correct the header"
                ))),
            }
        }
        [_, _, _, ..] => {
            // `n c m` followed by lines of four numbers is an MDP. Without a header the first line
            // has four.
            let choices = match fields[3..] {
                [] => content.next()?.is_some_and(|(second, _)| {
                    fields.iter().all(|field| unsigned(field).is_some())
                        && second.fields().nth(3).is_some_and(|field| number(field).is_some())
                }),
                [fourth, ..] => number(fourth).is_some(),
            };
            if choices {
                return Err(first.error(format!(
                    "{first} and four numbers in each line: MDPs, with choices, are not supported; \
                     expected a CTMC"
                )));
            }
            Ok(TraHeader {
                states: None,
                transitions: None,
                count_line: 0,
                body: start,
                lines: first.number - 1,
                ..content.head(0, 0, first)
            })
        }
        _ => Err(unknown(first)),
    }
}

fn count(field: &[u8], what: &str, line: TextLine) -> Result<u64> {
    let expected = "expected an integer below 10^18; correct the header";
    let wrong = || line.error(format!("invalid number of {what} {}: {expected}", quote(field)));
    unsigned(field).ok_or_else(wrong)
}

/// True for PRISM's comment that declares a DTMC, false for a CTMC, `None` for other comments.
///
/// Comments that declare another type of model or of file are errors.
fn declared(line: TextLine) -> Result<Option<bool>> {
    let text = line.bytes[1..].trim_ascii();
    let other = match text {
        b"DECLARATION" | b"Labels" => "labels",
        b"States" => "states",
        b"State rewards" | b"Transition rewards" => "rewards",
        _ if text.starts_with(b"Reward structure") => "rewards",
        b"Transitions (CTMC)" => return Ok(Some(false)),
        b"Transitions (DTMC)" => return Ok(Some(true)),
        _ => {
            let kind = text.strip_prefix(b"Transitions (").and_then(|kind| kind.strip_suffix(b")"));
            let wrong = |kind| {
                line.error(format!("model type {} is not supported: expected a CTMC or DTMC", quote(kind)))
            };
            return kind.map_or(Ok(None), |kind| Err(wrong(kind)));
        }
    };
    Err(line.error(format!("{line} starts a file of {other}; name the .tra with the transitions")))
}

/// Rejects first lines of other formats.
fn check_other_format(line: TextLine) -> Result<()> {
    let bytes = line.bytes;
    let compact: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(200).collect();
    let contains = |part: &[u8]| compact.windows(part.len()).any(|window| window == part);
    let remedy = if bytes.starts_with(b"%%MatrixMarket") {
        "starts a Matrix Market file; give it the extension .mtx"
    } else if bytes.starts_with(b"@") {
        return Err(drn(line));
    } else if contains(b"=sparse(") {
        "is PRISM's MATLAB form; export with `prism MODEL -exportmodel out.tra,lab`, without `:matlab`"
    } else if bytes.starts_with(b"(") {
        "starts a file of states; name the .tra with the transitions"
    } else if contains(b"=\"") && bytes[0].is_ascii_digit() {
        "starts a file of labels; name the .tra with the transitions"
    } else if bytes.starts_with(b"STATES") {
        "is MRMC's form, which counts states from 1; export with `prism MODEL -exportmodel out.tra,lab`"
    } else if bytes.starts_with(b"digraph") {
        "starts a graph in Graphviz's form; export with `prism MODEL -exportmodel out.tra,lab`"
    } else if bytes.starts_with(b"{") || bytes.starts_with(b"[") {
        "starts a JSON file; export a JANI model with `storm --jani MODEL --exportbuild out.drn`"
    } else {
        return Ok(());
    };
    Err(line.error(format!("{line} {remedy}")))
}

fn is_other_type(word: &[u8]) -> bool {
    OTHER_TYPES.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

fn language_or_unknown(line: TextLine) -> Error {
    let word = line.bytes.split(|b| !b.is_ascii_alphanumeric() && *b != b'_').next().unwrap_or_default();
    let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    match is("ctmc") || is("dtmc") || is_other_type(word) || LANGUAGE.split(' ').any(is) {
        true => language(line),
        false => unknown(line),
    }
}

fn drn(line: TextLine) -> Error {
    line.error(format!("{line} starts a Storm DRN file; give it the extension .drn"))
}

fn language(line: TextLine) -> Error {
    line.error(format!("{line} starts a model in PRISM's modelling language; {EXPORT}"))
}

fn unknown(line: TextLine) -> Error {
    let expected = "expected `STATES TRANSITIONS` in numbers, `ctmc`, `dtmc` or a triple `from to rate`";
    line.error(format!("{line} does not start a list of transitions: {expected}"))
}
