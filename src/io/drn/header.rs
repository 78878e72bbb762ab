//! Header of a DRN file: the keys before `@model`.

use super::*;

/// Header: everything before `@model`.
pub(super) struct DrnHeader {
    pub(super) states: u64,
    /// True for `@type: DTMC`.
    pub(super) discrete: bool,
    pub(super) choices: Option<u64>,
    /// Names of rewards, if the file gives them.
    pub(super) rewards: Vec<String>,
}

impl DrnHeader {
    /// Reads the header, including the `@model` line.
    pub(super) fn read(lines: &mut TextLines, path: &Path) -> Result<Self> {
        let (mut kind, mut states, mut choices, mut rewards) = (false, None, None, Vec::new());
        let mut discrete = false;
        loop {
            let Some(line) = lines.next() else {
                let reason = "has no `@model` line: it is truncated, or not a DRN file; export it \
                              again with `storm ... --exportbuild out.drn`";
                return fail(path, reason);
            };
            if is_comment(line) {
                continue;
            }
            let (key, value) = match line.bytes.iter().position(|&b| b == b':') {
                Some(colon) => (line.bytes[..colon].trim_ascii(), line.bytes[colon + 1..].trim_ascii()),
                None => (line.bytes, &b""[..]),
            };
            // The value follows the colon, or is on the next line, which may be blank.
            let mut value_line = || {
                let mut ahead = lines.clone();
                match ahead.next() {
                    Some(next) if value.is_empty() && !next.bytes.starts_with(b"@") => {
                        *lines = ahead;
                        next
                    }
                    _ => TextLine { bytes: value, ..line },
                }
            };
            match key {
                b"@type" => {
                    kind = true;
                    let value = value_line();
                    discrete = value.bytes.eq_ignore_ascii_case(b"dtmc");
                    if !discrete && !value.bytes.eq_ignore_ascii_case(b"ctmc") {
                        let what = format!("@type {value} is not supported: expected CTMC or DTMC");
                        return Err(value.error(what));
                    }
                }
                b"@value_type" | b"@parameters" | b"@placeholders" => expect_numbers(key, value_line())?,
                b"@reward_models" => {
                    let value = value_line();
                    if !is_comment(value) {
                        for field in value.fields() {
                            rewards.push(value.name(field)?);
                        }
                    }
                }
                b"@nr_states" => states = Some(count(value_line(), "states")?),
                b"@nr_choices" => choices = Some(count(value_line(), "choices")?),
                b"@model" => {
                    let lacks = |what| line.error(format!("no {what} line before @model; add one"));
                    if !kind {
                        return Err(lacks("`@type: CTMC`"));
                    }
                    return match states.ok_or_else(|| lacks("@nr_states"))? {
                        states @ 1..=MOST_STATES => Ok(Self { states, discrete, choices, rewards }),
                        states => Err(line.error(format!(
                            "@nr_states {states} is out of range: expected 1 to {MOST_STATES}"
                        ))),
                    };
                }
                _ => return Err(unknown(line, key)),
            }
        }
    }
}

/// Rejects values of three keys whose files have more than numbers.
fn expect_numbers(key: &[u8], value: TextLine) -> Result<()> {
    Err(value.error(match key {
        b"@value_type" if value.bytes != b"double" && value.bytes != b"rational" => format!(
            "@value_type {value} is not supported; export the model with numbers (double or rational)"
        ),
        b"@parameters" if !is_comment(value) => {
            format!("parameters {value} are not supported; give them values and export the model again")
        }
        b"@placeholders" if !is_comment(value) => {
            "placeholders are not supported; export the model with numbers in their place".to_owned()
        }
        _ => return Ok(()),
    }))
}

fn unknown(line: TextLine, key: &[u8]) -> Error {
    line.error(match line.bytes.starts_with(b"@") {
        true => {
            format!("unknown key {}; remove it and its value if the chain does not need it", quote(key))
        }
        false => format!("{line} before `@model` is not a key; is this a DRN file?"),
    })
}

fn count(line: TextLine, what: &str) -> Result<u64> {
    let wrong = || line.error(format!("invalid number of {what} {line}: expected an integer below 10^18"));
    text::unsigned(line.bytes).ok_or_else(wrong)
}
