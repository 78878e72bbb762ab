//! State valuations: PRISM's `.sta`, variables and their values.

use super::*;
use crate::transient::chain::state_names::StateNames;

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
pub fn write(writer: &mut dyn Write, names: &StateNames) -> io::Result<()> {
    writeln!(writer, "({})", names.variables().join(","))?;
    write_lines(writer, names.states(), &|state, text| {
        push_integer(text, state as u64);
        text.push(b':');
        text.extend_from_slice(names.tuple(state).as_bytes());
        text.push(b'\n');
    })
}

fn parse(bytes: &[u8], path: &Path, states: usize) -> Result<StateNames> {
    let mut lines = TextLines::new(bytes, path).filter(|line| !line.is_comment());
    let empty = "is empty; export it with `prism MODEL -exportmodel out.tra,sta`";
    let head = lines.next().ok_or_else(|| Error::file(path, empty))?;
    let listed = |line: TextLine, list: &[u8], expected: &str| -> Result<Vec<String>> {
        let values = tuple(list).ok_or_else(|| line.error(format!("invalid {expected}")))?;
        values.map(|value| line.name(value.trim_ascii())).collect()
    };
    let variables = listed(head, head.bytes, &format!("header {head}: expected variables as in `(s,up)`"))?;
    let mut names = StateNames::new(variables);
    for line in lines {
        let mut scanner = Scanner::new(line.bytes);
        let number = scanner.unsigned().filter(|_| scanner.byte(b':'));
        scanner.blanks();
        // Without a number there is no list, either.
        let list = number.map_or(&b""[..], |_| scanner.rest());
        let values = listed(line, list, &format!("line {line}: expected `state:(value,value)`"))?;
        let (due, number) = (names.states(), number.unwrap_or_default());
        if number != due as u64 || due == states {
            return Err(line.error(format!(
                "unexpected state {number}: expected {due}, in a chain of {states} states; are \
                 these another model's states?"
            )));
        }
        if values.len() != names.variables().len() {
            let (found, wanted) = (values.len(), names.variables().len());
            return Err(line.error(format!(
                "invalid number of values {found}: expected {wanted}, one for each variable"
            )));
        }
        names.push(values.iter().map(String::as_str));
    }
    match names.states() {
        found if found == states => Ok(names),
        found => {
            fail(path, format!("has {found} states, the chain {states}; are these another model's states?"))
        }
    }
}

/// Splits a parenthesized list at its commas.
fn tuple(bytes: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let inside = bytes.strip_prefix(b"(")?.strip_suffix(b")")?;
    // `()` holds no value; it is not one empty value.
    Some(inside.split(|&b| b == b',').filter(move |_| !inside.is_empty()))
}

#[cfg(test)]
mod tests {
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
}
