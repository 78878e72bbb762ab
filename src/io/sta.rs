//! State valuations: PRISM's `.sta`, variables and their values.

use std::io::{self, Write};
use std::path::Path;

use crate::io::text::{self, Lines, Scanner, error, quote};
use crate::io::write::{push_integer, write_lines};
use crate::transient::chain::state_names::StateNames;
use crate::{Error, Result};

/// Reads the states of a chain with `states` states.
///
/// The first line names the variables, as in `(s,up)`. Each further line gives the values of a
/// state, as in `0:(1,true)`. States count from 0 and are listed in ascending order.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for lines of another form, for a number of values
/// that differs from the number of variables, and for states in another order. [`Error::File`] for
/// another number of states than the chain has.
pub fn read(path: &Path, states: usize) -> Result<StateNames> {
    parse(&text::read(path)?, path, states)
}

/// Writes the variables and their values in every state.
///
/// # Errors
/// Errors of `writer`.
pub fn write(writer: &mut dyn Write, names: &StateNames) -> io::Result<()> {
    writeln!(writer, "({})", names.variables().join(","))?;
    write_lines(writer, names.states(), &|state, text| {
        push_integer(text, state as u64);
        text.push(b':');
        text.extend_from_slice(names.tuple(state).as_bytes());
        text.push(b'\n');
    })
}

/// Reads states like [`read`], from bytes; `path` is named in messages.
pub fn parse(bytes: &[u8], path: &Path, states: usize) -> Result<StateNames> {
    let mut lines = Lines::new(bytes).filter(|line| !line.bytes.is_empty() && !line.bytes.starts_with(b"#"));
    let Some(head) = lines.next() else {
        let reason = "is empty; export it with `prism MODEL -exportmodel out.tra,sta`";
        return Err(Error::File { path: path.into(), reason: reason.into() });
    };
    let listed = |bytes| -> Result<Vec<String>> {
        let inside = tuple(bytes).ok_or_else(|| {
            error(
                path,
                head.number,
                format!("invalid header {}: expected variables as in `(s,up)`", quote(head.bytes)),
            )
        })?;
        inside.map(|name| text::name(name.trim_ascii(), path, head.number)).collect()
    };
    let mut names = StateNames::new(listed(head.bytes)?);
    for line in lines {
        let wrong = |reason: String| Err(error(path, line.number, reason));
        let mut scanner = Scanner::new(line.bytes);
        let number = scanner.unsigned().filter(|_| scanner.byte(b':'));
        scanner.blanks();
        let (Some(number), Some(values)) = (number, tuple(scanner.rest())) else {
            return wrong(format!("invalid line {}: expected `state:(value,value)`", quote(line.bytes)));
        };
        let due = names.states();
        if number != due as u64 || due == states {
            return wrong(format!(
                "unexpected state {number}: expected {due}, in a chain of {states} states; are \
                 these another model's states?"
            ));
        }
        let values = values.map(|value| text::name(value.trim_ascii(), path, line.number));
        let values = values.collect::<Result<Vec<String>>>()?;
        if values.len() != names.variables().len() {
            let (found, wanted) = (values.len(), names.variables().len());
            return wrong(format!(
                "invalid number of values {found}: expected {wanted}, one for each variable"
            ));
        }
        names.push(values.iter().map(String::as_str));
    }
    if names.states() != states {
        return Err(Error::File {
            path: path.into(),
            reason: format!(
                "has {} states, the chain {states}; are these another model's states?",
                names.states()
            ),
        });
    }
    Ok(names)
}

/// Splits a parenthesized list at its commas.
fn tuple(bytes: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let inside = bytes.strip_prefix(b"(")?.strip_suffix(b")")?;
    // `()` holds no value; it is not one empty value.
    Some(inside.split(|&b| b == b',').filter(move |_| !inside.is_empty()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn states(text: &str) -> Result<StateNames> {
        parse(text.as_bytes(), Path::new("m.sta"), 2)
    }

    #[test]
    fn prism_form() {
        let names = states("(s,up)\r\n0:(1,true)\n1:(-2, false)\n").unwrap();
        assert_eq!((names.name(0), names.name(1)), ("(s=1, up=true)".into(), "(s=-2, up=false)".into()));
        assert_eq!(states("()\n0:()\n1:()\n").unwrap().name(1), "()");
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text| states(text).unwrap_err().to_string();
        assert!(message("").contains("is empty"));
        assert!(message("s,up\n0:(1)").starts_with("m.sta:1: invalid header 's,up': expected variables"));
        assert!(message("(s)\n0:1").starts_with("m.sta:2: invalid line '0:1'"));
        assert!(message("(s)\n0:(1,2)").starts_with("m.sta:2: invalid number of values 2: expected 1"));
        assert!(
            message("(s)\n1:(1)").starts_with("m.sta:2: unexpected state 1: expected 0, in a chain of 2")
        );
        assert!(message("(s)\n0:(1)\n1:(1)\n2:(1)").starts_with("m.sta:4: unexpected state 2"));
        assert!(message("(s)\n0:(1)").contains("has 1 states, the chain 2"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100), near in "[(),:0-2s\n]{0,40}") {
            let _ = parse(&bytes, Path::new("m.sta"), 2);
            let _ = states(&near);
        }
    }
}
