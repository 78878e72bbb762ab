//! Detection of the dialects of `.tra` files, and of other formats.

use std::path::Path;

use super::MOST_STATES;
use crate::io::text::{Line, Lines, error, number, quote, unsigned};
use crate::{Error, Result};

/// Suggestion for files with rows of transitions.
pub(super) const EXPORT_ROWS: &str =
    "export one transition a line with `prism MODEL -exportmodel out.tra,lab`, without `:rows`";

const EXPORT: &str = "export it with `prism MODEL -exportmodel out.tra,lab` and read out.tra";

/// Words that PRISM's modelling language can start with.
const LANGUAGE: &[&str] = &[
    "module",
    "const",
    "label",
    "formula",
    "global",
    "rewards",
    "init",
    "system",
    "stochastic",
    "probabilistic",
    "nondeterministic",
];

/// Types of models other than CTMC, as hints and as first words of the modelling language.
const OTHER_TYPES: &[&str] =
    &["dtmc", "mdp", "ma", "pomdp", "pta", "popta", "smg", "idtmc", "imdp", "ctmdp", "lts"];

/// Header: everything before the transitions.
pub(super) struct Head {
    /// Number of the first state.
    pub(super) base: u64,
    /// True if the file declares a continuous-time chain.
    pub(super) says_ctmc: bool,
    /// Number of states promised.
    pub(super) states: Option<u64>,
    /// Number of transitions promised.
    pub(super) transitions: Option<u64>,
    /// Line with the number of transitions.
    pub(super) count_line: u64,
    /// Offset of the first line of transitions.
    pub(super) body: usize,
    /// Number of lines before `body`.
    pub(super) lines: u64,
}

impl Head {
    /// Returns warnings about the numbering of states.
    pub(super) fn warnings(&self, path: &Path) -> Vec<String> {
        let from_one = (self.base == 1).then(|| {
            format!(
                "{} counts its states from 1; outputs, `states` and `initial` count them from 0",
                path.display()
            )
        });
        from_one.into_iter().collect()
    }
}

/// Lines with content; the flag is true if a comment declared a continuous-time chain.
struct Content<'a>(Lines<'a>, bool);

impl<'a> Content<'a> {
    /// Returns the next line with content, and its offset.
    fn next(&mut self, path: &Path) -> Result<Option<(Line<'a>, usize)>> {
        loop {
            let start = self.0.offset();
            let Some(line) = self.0.next() else {
                return Ok(None);
            };
            if line.bytes.starts_with(b"#") {
                self.1 |= says_ctmc(line, path)?;
            } else if !line.bytes.is_empty() {
                return Ok(Some((line, start)));
            }
        }
    }
}

/// Determines the file's dialect and reads its header.
pub(super) fn detect(bytes: &[u8], path: &Path) -> Result<Head> {
    let mut content = Content(Lines::new(bytes), false);
    let Some((mut first, mut start)) = content.next(path)? else {
        return Err(Error::File {
            path: path.into(),
            reason: "is empty; a .tra starts with `STATES TRANSITIONS` in numbers, or with `ctmc`".into(),
        });
    };
    // `//` starts a comment in DRN and in the modelling language. The first line after it decides.
    while first.bytes.starts_with(b"//") {
        match content.next(path)? {
            Some((next, _)) if !next.bytes.starts_with(b"@") => first = next,
            Some((next, _)) => return Err(drn(next, path)),
            None => return Err(language(first, path)),
        }
        if !first.bytes.starts_with(b"//") {
            return Err(language(first, path));
        }
    }
    check_other_format(first, path)?;
    if first.bytes[0].is_ascii_alphabetic() {
        if first.bytes.starts_with(b"STATES") {
            return mrmc(first, &mut content, path);
        }
        let hint = first;
        let Some(next) = content.next(path)? else {
            if hint.bytes.eq_ignore_ascii_case(b"ctmc") {
                let reason = "no transitions follow the hint `ctmc`: the file is truncated; export \
                              it again";
                return Err(error(path, hint.number, reason));
            }
            return Err(language_or_unknown(hint, path));
        };
        if !next.0.bytes[0].is_ascii_digit() {
            return Err(language_or_unknown(hint, path));
        }
        check_hint(hint, path)?;
        content.1 = true;
        (first, start) = next;
    }
    let fields: Vec<&[u8]> = first.fields().take(5).collect();
    if fields.get(1).is_some_and(|field| field.contains(&b':')) {
        return Err(error(
            path,
            first.number,
            format!("{} is a row of transitions; {EXPORT_ROWS}", quote(first.bytes)),
        ));
    }
    match *fields.as_slice() {
        [states, transitions] => {
            let transitions = count(transitions, "transitions", first, path)?;
            Ok(Head {
                base: 0,
                says_ctmc: content.1,
                states: Some(check_states(count(states, "states", first, path)?, first, path)?),
                transitions: Some(transitions),
                count_line: first.number,
                body: content.0.offset(),
                lines: first.number,
            })
        }
        [_, _, _, ..] => {
            // `n c m` followed by lines of four numbers is an MDP. Without a header the first line
            // has four.
            let choices = match fields[3..] {
                [] => match content.next(path)? {
                    Some((second, _)) => {
                        fields.iter().all(|field| unsigned(field).is_some())
                            && second.fields().nth(3).is_some_and(|field| number(field).is_some())
                    }
                    None => false,
                },
                [fourth, ..] => number(fourth).is_some(),
            };
            if choices {
                return Err(error(
                    path,
                    first.number,
                    format!(
                        "{} and four numbers in each line: MDPs, with choices, are not supported; \
                         expected a CTMC",
                        quote(first.bytes)
                    ),
                ));
            }
            Ok(Head {
                base: 0,
                says_ctmc: content.1,
                states: None,
                transitions: None,
                count_line: 0,
                body: start,
                lines: first.number - 1,
            })
        }
        _ => Err(unknown(first, path)),
    }
}

/// Reads the header `STATES n`, `TRANSITIONS m`.
fn mrmc(first: Line, content: &mut Content, path: &Path) -> Result<Head> {
    let keyed = |line: Line, key: &str| -> Result<u64> {
        let fields: Vec<&[u8]> = line.fields().take(3).collect();
        match *fields.as_slice() {
            [k, value] if k == key.as_bytes() => count(value, &key.to_lowercase(), line, path),
            _ => Err(error(
                path,
                line.number,
                format!("invalid header {}: expected `{key}` and a number", quote(line.bytes)),
            )),
        }
    };
    let states = check_states(keyed(first, "STATES")?, first, path)?;
    let Some((second, _)) = content.next(path)? else {
        return Err(error(path, first.number, "no `TRANSITIONS` line follows: the file is truncated"));
    };
    Ok(Head {
        base: 1,
        says_ctmc: content.1,
        states: Some(states),
        transitions: Some(keyed(second, "TRANSITIONS")?),
        count_line: second.number,
        body: content.0.offset(),
        lines: second.number,
    })
}

fn count(field: &[u8], what: &str, line: Line, path: &Path) -> Result<u64> {
    unsigned(field).ok_or_else(|| {
        error(
            path,
            line.number,
            format!(
                "invalid number of {what} {}: expected an integer below 10^18; correct the header",
                quote(field)
            ),
        )
    })
}

fn check_states(states: u64, line: Line, path: &Path) -> Result<u64> {
    match states {
        0 => Err(error(
            path,
            line.number,
            "invalid number of states 0: expected at least 1; export the chain again",
        )),
        1..=MOST_STATES => Ok(states),
        _ => Err(error(
            path,
            line.number,
            format!(
                "number of states {states} is out of range: expected at most {MOST_STATES}; \
                 correct the header"
            ),
        )),
    }
}

/// True for PRISM's comment that declares a CTMC.
///
/// Comments that declare another type of model or of file are errors.
fn says_ctmc(line: Line, path: &Path) -> Result<bool> {
    let text = line.bytes[1..].trim_ascii();
    let other = if text == b"DECLARATION" || text == b"Labels" {
        "starts a file of labels"
    } else if text == b"States" {
        "starts a file of states"
    } else if text.starts_with(b"Reward structure")
        || text == b"State rewards"
        || text == b"Transition rewards"
    {
        "starts a file of rewards"
    } else if let Some(kind) = text.strip_prefix(b"Transitions (").and_then(|kind| kind.strip_suffix(b")")) {
        if kind == b"CTMC" {
            return Ok(true);
        }
        return Err(error(
            path,
            line.number,
            format!("model type {} is not supported: expected a CTMC", quote(kind)),
        ));
    } else {
        return Ok(false);
    };
    Err(error(
        path,
        line.number,
        format!("{} {other}; name the .tra with the transitions", quote(line.bytes)),
    ))
}

/// Rejects first lines of other formats.
fn check_other_format(line: Line, path: &Path) -> Result<()> {
    let bytes = line.bytes;
    let compact: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(200).collect();
    let contains = |part: &[u8]| compact.windows(part.len()).any(|window| window == part);
    let remedy = if bytes.starts_with(b"%%MatrixMarket") {
        "starts a Matrix Market file; give it the extension .mtx"
    } else if bytes.starts_with(b"@") {
        return Err(drn(line, path));
    } else if contains(b"=sparse(") {
        "is PRISM's MATLAB form; export with `prism MODEL -exportmodel out.tra,lab`, without `:matlab`"
    } else if bytes.starts_with(b"(") {
        "starts a file of states; name the .tra with the transitions"
    } else if contains(b"=\"") && bytes[0].is_ascii_digit() {
        "starts a file of labels; name the .tra with the transitions"
    } else if bytes.starts_with(b"digraph") {
        "starts a graph in Graphviz's form; export with `prism MODEL -exportmodel out.tra,lab`"
    } else if bytes.starts_with(b"{") || bytes.starts_with(b"[") {
        "starts a JSON file; export a JANI model with `storm --jani MODEL --exportbuild out.drn`"
    } else {
        return Ok(());
    };
    Err(error(path, line.number, format!("{} {remedy}", quote(bytes))))
}

/// Checks a line with the model's type before the transitions.
fn check_hint(hint: Line, path: &Path) -> Result<()> {
    if hint.bytes.eq_ignore_ascii_case(b"ctmc") {
        return Ok(());
    }
    let is = |word: &&str| hint.bytes.eq_ignore_ascii_case(word.as_bytes());
    if OTHER_TYPES.iter().any(is) {
        return Err(error(
            path,
            hint.number,
            format!(
                "model type {} is not supported: expected a CTMC, with the hint `ctmc`",
                quote(hint.bytes)
            ),
        ));
    }
    Err(language_or_unknown(hint, path))
}

fn language_or_unknown(line: Line, path: &Path) -> Error {
    let end =
        line.bytes.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(line.bytes.len());
    let word = &line.bytes[..end];
    let is = |known: &&str| word.eq_ignore_ascii_case(known.as_bytes());
    if word.eq_ignore_ascii_case(b"ctmc") || OTHER_TYPES.iter().any(is) || LANGUAGE.iter().any(is) {
        language(line, path)
    } else {
        unknown(line, path)
    }
}

fn drn(line: Line, path: &Path) -> Error {
    error(
        path,
        line.number,
        format!("{} starts a Storm DRN file; give it the extension .drn", quote(line.bytes)),
    )
}

fn language(line: Line, path: &Path) -> Error {
    error(
        path,
        line.number,
        format!("{} starts a model in PRISM's modelling language; {EXPORT}", quote(line.bytes)),
    )
}

fn unknown(line: Line, path: &Path) -> Error {
    error(
        path,
        line.number,
        format!(
            "{} does not start a list of transitions: expected `STATES TRANSITIONS` in numbers, \
             `ctmc` or a triple `from to rate`",
            quote(line.bytes)
        ),
    )
}
