//! Labels of states: PRISM's `.lab` and the form that Storm and MRMC read.

use std::collections::HashMap;
use std::path::Path;

use crate::io::text::{self, Line, Lines, Scanner, error, quote};
use crate::transient::chain::Labels;
use crate::{Error, Result};

/// Reads the labels of a chain with that many states.
///
/// PRISM's form declares in its first line (`0="init" 1="deadlock"`) and goes on with `state: index index`; Storm's
/// declares names between `#DECLARATION` and `#END` and goes on with `state name name`.
///
/// # Errors
/// Those of [`text::read`]; [`Error::Parse`] for labels not declared or declared twice, states that the chain has
/// not, and other lines that neither form allows; [`Error::File`] when nothing is declared.
pub fn read(path: &Path, states: usize) -> Result<Labels> {
    parse(&text::read(path)?, path, states)
}

/// As [`read`], from bytes; `path` is for the messages.
pub fn parse(bytes: &[u8], path: &Path, states: usize) -> Result<Labels> {
    let mut lines = Lines::new(bytes);
    let mut labels = loop {
        let Some(line) = lines.next() else {
            return Err(Error::File {
                path: path.into(),
                reason: "declares no labels; export them with `prism MODEL -exportmodel out.tra,lab`".into(),
            });
        };
        if line.bytes == b"#DECLARATION" {
            break storm(&mut lines, path, states)?;
        }
        if !line.bytes.is_empty() && !line.bytes.starts_with(b"#") {
            break prism(line, &mut lines, path, states)?;
        }
    };
    for (_, set) in &mut labels.sets {
        set.sort_unstable();
        set.dedup();
    }
    Ok(labels)
}

/// The state that a line is about, checked.
fn state(field: Option<u64>, line: Line, path: &Path, states: usize) -> Result<u32> {
    match field.map(|state| (state, u32::try_from(state))) {
        Some((_, Ok(state))) if (state as usize) < states => Ok(state),
        Some((state, _)) => Err(error(
            path,
            line.number,
            format!(
                "state {state} is out of range: the chain has {states} states, 0 to {}; are these another model's labels?",
                states.saturating_sub(1)
            ),
        )),
        None => Err(error(
            path,
            line.number,
            format!("{} does not start with a state's number", quote(line.bytes)),
        )),
    }
}

fn prism(header: Line, lines: &mut Lines, path: &Path, states: usize) -> Result<Labels> {
    let mut labels = Labels::default();
    let mut position = HashMap::new();
    let mut scanner = Scanner::new(header.bytes);
    while !scanner.rest().is_empty() {
        let wrong = || {
            error(
                path,
                header.number,
                format!("{} does not declare labels as in `0=\"init\" 1=\"deadlock\"`", quote(header.bytes)),
            )
        };
        let index = scanner.unsigned().ok_or_else(wrong)?;
        if !(scanner.byte(b'=') && scanner.byte(b'"')) {
            return Err(wrong());
        }
        let rest = scanner.rest();
        let length = rest.iter().position(|&b| b == b'"').ok_or_else(wrong)?;
        let name = text::name(&rest[..length], path, header.number)?;
        scanner.skip(length + 1);
        if !scanner.is_delimited() {
            return Err(wrong());
        }
        scanner.blanks();
        if labels.get(&name).is_some() || position.insert(index, labels.sets.len()).is_some() {
            return Err(error(path, header.number, format!("label {index}=\"{name}\" is declared twice")));
        }
        labels.sets.push((name, Vec::new()));
    }
    for line in lines {
        if line.bytes.is_empty() || line.bytes.starts_with(b"#") {
            continue;
        }
        let mut scanner = Scanner::new(line.bytes);
        let state = state(scanner.unsigned(), line, path, states)?;
        scanner.blanks();
        if !scanner.byte(b':') {
            return Err(error(
                path,
                line.number,
                format!("{} is not of the form `state: index index`", quote(line.bytes)),
            ));
        }
        scanner.blanks();
        while !scanner.rest().is_empty() {
            let word = scanner.word();
            scanner.blanks();
            let Some(&at) = text::unsigned(word).and_then(|index| position.get(&index)) else {
                return Err(error(
                    path,
                    line.number,
                    format!(
                        "label {} is not declared in line {}; declare it there",
                        quote(word),
                        header.number
                    ),
                ));
            };
            labels.sets[at].1.push(state);
        }
    }
    Ok(labels)
}

fn storm(lines: &mut Lines, path: &Path, states: usize) -> Result<Labels> {
    let mut labels = Labels::default();
    let mut position = HashMap::new();
    loop {
        let Some(line) = lines.next() else {
            return Err(Error::File {
                path: path.into(),
                reason: "#DECLARATION has no #END: the file is truncated, or the line is missing".into(),
            });
        };
        if line.bytes == b"#END" {
            break;
        }
        for field in line.fields() {
            let name = text::name(field, path, line.number)?;
            if position.insert(field, labels.sets.len()).is_some() {
                return Err(error(path, line.number, format!("label \"{name}\" is declared twice")));
            }
            labels.sets.push((name, Vec::new()));
        }
    }
    for line in lines {
        if line.bytes.is_empty() || line.bytes.starts_with(b"#") {
            continue;
        }
        let mut fields = line.fields();
        let state = state(fields.next().and_then(text::unsigned), line, path, states)?;
        for field in fields {
            let Some(&at) = position.get(field) else {
                return Err(error(
                    path,
                    line.number,
                    format!("label {} is not declared; add it between #DECLARATION and #END", quote(field)),
                ));
            };
            labels.sets[at].1.push(state);
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(text: &str) -> Result<Labels> {
        parse(text.as_bytes(), Path::new("m.lab"), 4)
    }

    fn message(text: &str) -> String {
        labels(text).unwrap_err().to_string()
    }

    #[test]
    fn prism_form() {
        let read =
            labels("# Labels\r\n0=\"init\" 1=\"up down\"  7=\"none\"\r\n3: 1\r\n0: 0 1\r\n\r\n2:\r\n0: 1")
                .unwrap();
        let expected = [("init", vec![0]), ("up down", vec![0, 3]), ("none", vec![])];
        assert_eq!(read.sets, expected.map(|(n, s)| (n.to_string(), s)));
    }

    #[test]
    fn storm_form() {
        let read = labels("#DECLARATION\ninit one\n two\n#END\n0 init two\n3 two\n# done\n1\n").unwrap();
        let expected = [("init", vec![0]), ("one", vec![]), ("two", vec![0, 3])];
        assert_eq!(read.sets, expected.map(|(n, s)| (n.to_string(), s)));
    }

    #[test]
    fn prism_errors_name_the_line() {
        assert!(message("# x\n").contains("declares no labels"));
        assert!(message("0=\"a\n").starts_with("m.lab:1: "));
        assert!(message("0=\"a\"1=\"b\"\n").starts_with("m.lab:1: "));
        assert!(message("0=\"a\" 0=\"b\"\n").contains("declared twice"));
        assert!(message("0=\"a\" 1=\"a\"\n").contains("declared twice"));
        assert!(
            message("0=\"a\"\n1: 0\n4: 0").starts_with("m.lab:3: state 4 is out of range: the chain has 4")
        );
        assert!(message("0=\"a\"\n1: 1").starts_with("m.lab:2: label `1` is not declared in line 1"));
        assert!(message("0=\"a\"\n1 0").starts_with("m.lab:2: `1 0` is not of the form"));
        assert!(message("0=\"a\"\n99999999999999999999: 0").starts_with("m.lab:2: "));
        assert!(message("0=\"a\"\n4294967296: 0").contains("state 4294967296 is out of range"));
        assert!(message("0=\"a\"\n1: 0x").starts_with("m.lab:2: "));
    }

    #[test]
    fn storm_errors_name_the_line() {
        assert!(message("#DECLARATION\na b").contains("no #END"));
        assert!(message("#DECLARATION\na a\n#END").starts_with("m.lab:2: "));
        assert!(message("#DECLARATION\na\n#END\n1 b").starts_with("m.lab:4: label `b` is not declared"));
        assert!(message("#DECLARATION\na\n#END\n9 a").starts_with("m.lab:4: state 9 is out of range"));
        assert!(message("#DECLARATION\na\n#END\na").starts_with("m.lab:4: "));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Path::new("m.lab"), 3);
        }

        #[test]
        fn never_panics_on_near_text(text in "((0|1|9|=|\"|a| |:|\n|#|#DECLARATION\n|#END\n|0=\"a\")){0,40}") {
            let _ = labels(&text);
        }

        #[test]
        fn both_forms_read_back(states in 1usize..40, picks in proptest::collection::vec(proptest::collection::btree_set(0u32..40, 0..20), 1..6)) {
            let sets: Vec<(String, Vec<u32>)> = picks
                .iter()
                .enumerate()
                .map(|(i, set)| (format!("l{i}"), set.iter().copied().filter(|&s| (s as usize) < states).collect()))
                .collect();
            let mut prism: String = sets.iter().enumerate().map(|(i, (n, _))| format!("{i}=\"{n}\" ")).collect();
            let names: Vec<&str> = sets.iter().map(|(n, _)| n.as_str()).collect();
            let mut storm = format!("#DECLARATION\n{}\n#END", names.join(" "));
            for state in 0..states as u32 {
                prism += &format!("\n{state}:");
                storm += &format!("\n{state}");
                for (i, (name, _)) in sets.iter().enumerate().filter(|(_, (_, set))| set.contains(&state)) {
                    prism += &format!(" {i}");
                    storm += &format!(" {name}");
                }
            }
            let path = Path::new("m.lab");
            prop_assert_eq!(&parse(prism.as_bytes(), path, states).unwrap().sets, &sets);
            prop_assert_eq!(&parse(storm.as_bytes(), path, states).unwrap().sets, &sets);
        }
    }
}
