//! State valuations that Storm writes in comments.

use super::*;
use crate::transient::chain::state_names::StateNames;

/// Reads the comments after the lines `state ...`, such as `//[q=2 & up & !late]`.
///
/// Returns `None` unless all states have such a comment with equal variables. Other comments are
/// not an error.
pub(super) fn names(bytes: &[u8], path: &Path) -> Option<StateNames> {
    let mut names: Option<StateNames> = None;
    let mut due = false;
    for line in TextLines::new(bytes, path) {
        match line.bytes {
            [b's', b't', b'a', b't', b'e', b' ' | b'\t', ..] if due => return None,
            [b's', b't', b'a', b't', b'e', b' ' | b'\t', ..] => due = true,
            [b'/', b'/', b'[', inside @ .., b']'] if due => {
                due = false;
                let inside = std::str::from_utf8(inside).ok()?;
                let pairs: Vec<(&str, &str)> = match inside.trim() {
                    "" => Vec::new(),
                    text => text.split('&').map(|part| assignment(part.trim())).collect::<Option<_>>()?,
                };
                let known =
                    || StateNames::new(pairs.iter().map(|(variable, _)| (*variable).to_owned()).collect());
                let names = names.get_or_insert_with(known);
                if !names.variables().iter().eq(pairs.iter().map(|(variable, _)| variable)) {
                    return None;
                }
                names.push(pairs.iter().map(|(_, value)| *value));
            }
            _ => {}
        }
    }
    names.filter(|_| !due)
}

/// Parses `q=2`, `up` or `!up` as a variable and its value.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (variable, value) = match (text.split_once('='), text.strip_prefix('!')) {
        (Some((variable, value)), _) => (variable.trim(), value.trim()),
        (None, Some(variable)) => (variable, "false"),
        (None, None) => (text, "true"),
    };
    let letter = |c: char| c.is_alphabetic() || c == '_';
    variable.starts_with(letter).then_some((variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_storm() {
        let text = "@model\nstate 0 !1 init\n//[q=2\t& up\t& !late]\n\taction 0\n\t\t1 : 1\nstate 1 !1\n//[q=-1\t& !up\t& late]\n";
        let found = names(text.as_bytes(), Path::new("")).expect("names");
        assert_eq!(found.name(0), "(q=2, up=true, late=false)");
        assert_eq!(found.name(1), "(q=-1, up=false, late=true)");
        for other in [
            text.replace("//[q=-1\t& !up\t& late]", "// nothing"),
            text.replace("q=-1", "s=-1"),
            text.replace("q=-1", "4"),
            "@model\nstate 0\n\taction 0\n".to_owned(),
        ] {
            assert!(names(other.as_bytes(), Path::new("")).is_none(), "{other}");
        }
    }
}
