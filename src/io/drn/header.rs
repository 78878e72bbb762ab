//! Header of a DRN file: the keys before `@model`.

use std::path::Path;

use super::is_comment;
use crate::io::text::{self, Line, Lines, error, quote};
use crate::io::tra::MOST_STATES;
use crate::{Error, Result};

/// Header: everything before `@model`.
pub(super) struct Header {
    pub(super) states: u64,
    pub(super) choices: Option<u64>,
    /// Names of rewards, if the file gives them.
    pub(super) rewards: Vec<String>,
}

impl Header {
    /// Returns the name of a reward.
    pub(super) fn reward(&self, number: usize) -> String {
        self.rewards.get(number).cloned().unwrap_or_else(|| format!("rewardmodel{number}"))
    }

    /// Reads the header, including the `@model` line.
    pub(super) fn read(lines: &mut Lines, path: &Path) -> Result<Self> {
        let (mut kind, mut states, mut choices, mut rewards) = (false, None, None, Vec::new());
        loop {
            let Some(line) = lines.next() else {
                let reason = "has no `@model` line: it is truncated, or not a DRN file; export it \
                              again with `storm ... --exportbuild out.drn`";
                return Err(Error::File { path: path.into(), reason: reason.into() });
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
                    _ if !value.is_empty() => Line { number: line.number, bytes: value },
                    Some(next) if !next.bytes.starts_with(b"@") => {
                        *lines = ahead;
                        next
                    }
                    _ => Line { number: line.number, bytes: b"" },
                }
            };
            match key {
                b"@type" => {
                    kind = true;
                    let value = value_line();
                    if !value.bytes.eq_ignore_ascii_case(b"ctmc") {
                        return Err(error(
                            path,
                            value.number,
                            format!("@type {} is not supported: expected CTMC", quote(value.bytes)),
                        ));
                    }
                }
                b"@value_type" => {
                    let value = value_line();
                    if value.bytes != b"double" && value.bytes != b"rational" {
                        return Err(error(
                            path,
                            value.number,
                            format!(
                                "@value_type {} is not supported; export the model with numbers \
                                 (double or rational)",
                                quote(value.bytes)
                            ),
                        ));
                    }
                }
                b"@parameters" => {
                    let value = value_line();
                    if !value.bytes.is_empty() && !is_comment(value) {
                        return Err(error(
                            path,
                            value.number,
                            format!(
                                "parameters {} are not supported; give them values and export the \
                                 model again",
                                quote(value.bytes)
                            ),
                        ));
                    }
                }
                b"@placeholders" => {
                    let value = value_line();
                    if !is_comment(value) {
                        return Err(error(
                            path,
                            value.number,
                            "placeholders are not supported; export the model with numbers in their place",
                        ));
                    }
                }
                b"@reward_models" => {
                    let value = value_line();
                    if !is_comment(value) {
                        for field in value.fields() {
                            rewards.push(text::name(field, path, value.number)?);
                        }
                    }
                }
                b"@nr_states" => states = Some(count(value_line(), "states", path)?),
                b"@nr_choices" => choices = Some(count(value_line(), "choices", path)?),
                b"@model" => {
                    let lacks =
                        |what| error(path, line.number, format!("no {what} line before @model; add one"));
                    if !kind {
                        return Err(lacks("`@type: CTMC`"));
                    }
                    let states = states.ok_or_else(|| lacks("@nr_states"))?;
                    if states == 0 || states > MOST_STATES {
                        return Err(error(
                            path,
                            line.number,
                            format!("@nr_states {states} is out of range: expected 1 to {MOST_STATES}"),
                        ));
                    }
                    return Ok(Self { states, choices, rewards });
                }
                _ => {
                    let reason = if line.bytes.starts_with(b"@") {
                        format!(
                            "unknown key {}; remove it and its value if the chain does not need it",
                            quote(key)
                        )
                    } else {
                        format!("{} before `@model` is not a key; is this a DRN file?", quote(line.bytes))
                    };
                    return Err(error(path, line.number, reason));
                }
            }
        }
    }
}

fn count(line: Line, what: &str, path: &Path) -> Result<u64> {
    text::unsigned(line.bytes).ok_or_else(|| {
        let reason =
            format!("invalid number of {what} {}: expected an integer below 10^18", quote(line.bytes));
        error(path, line.number, reason)
    })
}
