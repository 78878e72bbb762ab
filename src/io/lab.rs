//! Labels of states: PRISM's `.lab` and the form that Storm reads.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use super::*;
use crate::io::drn::labels_of_states;
use crate::io::text::fields;
use crate::transient::chain::Labels;

/// Reads the labels of a chain with `states` states, which count from 0.
///
/// PRISM's form declares labels in its first line (`0="init" 1="deadlock"`) and continues with
/// lines `state: index index`. Storm's form declares names between `#DECLARATION` and `#END` and
/// continues with lines `state name name`.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for labels not declared or declared twice, for states
/// out of range, and for lines of another form. [`Error::File`] if no labels are declared.
pub fn read(path: &Path, states: usize) -> Result<Labels> {
    parse(&text::read(path)?, path, states)
}

fn parse(bytes: &[u8], path: &Path, states: usize) -> Result<Labels> {
    let mut lines = TextLines::new(bytes, path);
    let mut labels = loop {
        let Some(line) = lines.next() else {
            let reason = "declares no labels; export them with `prism MODEL -exportmodel out.tra,lab`";
            return fail(path, reason);
        };
        if line.bytes == b"#DECLARATION" {
            break storm(&mut lines, path, states)?;
        }
        if !line.is_comment() {
            break prism(line, &mut lines, states)?;
        }
    };
    for (_, set) in &mut labels.sets {
        set.sort_unstable();
        set.dedup();
    }
    Ok(labels)
}

/// Writes labels in PRISM's form.
pub fn write(writer: &mut dyn Write, labels: &Labels) -> io::Result<()> {
    let names = labels.sets.iter().enumerate().map(|(k, (name, _))| format!("{k}=\"{name}\""));
    writeln!(writer, "{}", names.collect::<Vec<_>>().join(" "))?;
    let sets: Vec<(&str, &[u32])> = labels.sets.iter().map(|(name, set)| (&name[..], &set[..])).collect();
    let last = sets.iter().filter_map(|(_, set)| set.last()).max();
    let states = last.map_or(0, |&last| last as usize + 1);
    let (ends, of_states) = labels_of_states(&sets, states);
    write_lines(writer, states, &|state, text| {
        let here = &of_states[ends[state]..ends[state + 1]];
        if here.is_empty() {
            return;
        }
        push_integer(text, state as u64);
        text.push(b':');
        for &label in here {
            text.push(b' ');
            push_integer(text, label as u64);
        }
        text.push(b'\n');
    })
}

fn prism(header: TextLine, lines: &mut TextLines, states: usize) -> Result<Labels> {
    let mut labels = Labels::default();
    let mut position: HashMap<_, usize, FixedState> = HashMap::default();
    let mut names: HashSet<_, FixedState> = HashSet::default();
    let mut scanner = Scanner::new(header.bytes);
    while !scanner.rest().is_empty() {
        let wrong = || {
            let expected = "expected label declarations as in `0=\"init\" 1=\"deadlock\"`";
            header.error(format!("invalid header {header}: {expected}"))
        };
        let index = scanner.unsigned().ok_or_else(wrong)?;
        if !(scanner.byte(b'=') && scanner.byte(b'"')) {
            return Err(wrong());
        }
        let rest = scanner.rest();
        let length = rest.iter().position(|&b| b == b'"').ok_or_else(wrong)?;
        let name = header.name(&rest[..length])?;
        scanner.skip(length + 1);
        if !scanner.is_delimited() {
            return Err(wrong());
        }
        scanner.blanks();
        if !names.insert(&rest[..length]) || position.insert(index, labels.sets.len()).is_some() {
            return Err(header.error(format!("label {index}=\"{name}\" is declared twice")));
        }
        labels.sets.push((name, Vec::new()));
    }
    let position = |word: &[u8]| text::unsigned(word).and_then(|index| position.get(&index).copied());
    let declare = format!(" in line {}; declare it there", header.number);
    label_states(labels, lines, states, true, &declare, position)
}

fn storm(lines: &mut TextLines, path: &Path, states: usize) -> Result<Labels> {
    let mut labels = Labels::default();
    let mut position: HashMap<_, usize, FixedState> = HashMap::default();
    loop {
        let Some(line) = lines.next() else {
            let reason = "#DECLARATION has no #END: the file is truncated, or the line is missing";
            return fail(path, reason);
        };
        if line.bytes == b"#END" {
            break;
        }
        for field in line.fields() {
            let name = line.name(field)?;
            if position.insert(field, labels.sets.len()).is_some() {
                return Err(line.error(format!("label \"{name}\" is declared twice")));
            }
            labels.sets.push((name, Vec::new()));
        }
    }
    let position = |word: &[u8]| position.get(word).copied();
    label_states(labels, lines, states, false, "; add it between #DECLARATION and #END", position)
}

/// Reads lines with a state and its labels; `find` returns a label's index in `labels`.
///
/// With `colon`, a colon follows the state. `remedy` ends the message about an unknown label.
fn label_states(
    mut labels: Labels,
    lines: &mut TextLines,
    states: usize,
    colon: bool,
    remedy: &str,
    find: impl Fn(&[u8]) -> Option<usize>,
) -> Result<Labels> {
    for line in lines.filter(|line| !line.is_comment()) {
        let mut scanner = Scanner::new(line.bytes);
        let Some(number) = scanner.unsigned().filter(|_| colon || scanner.is_delimited()) else {
            return Err(line.error(format!("invalid line {line}: expected a state's number first")));
        };
        if number >= states as u64 {
            return Err(line.error(out_of_range(number, states, "labels")));
        }
        // Chains have fewer than 2³² states.
        let state = number as u32;
        scanner.blanks();
        if colon && !scanner.byte(b':') {
            return Err(line.error(format!("invalid line {line}: expected `state: index index`")));
        }
        for word in fields(scanner.rest()) {
            let undeclared = || line.error(format!("label {} is not declared{remedy}", quote(word)));
            labels.sets[find(word).ok_or_else(undeclared)?].1.push(state);
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Result<Labels> {
        parse(text.as_bytes(), Path::new("m.lab"), 4)
    }

    #[test]
    fn forms_of_prism_and_storm() {
        let prism = "# Labels\r\n0=\"init\" 1=\"two\"  7=\"no one\"\r\n3: 1\r\n0: 0 1\r\n\r\n2:\r\n0: 1";
        let storm = "#DECLARATION\ninit two\n none\n#END\n0 init two\n3 two\n# done\n1\n";
        for (text, none) in [(prism, "no one"), (storm, "none")] {
            let expected = [("init", vec![0]), ("two", vec![0, 3]), (none, vec![])];
            assert_eq!(labels(text).unwrap().sets, expected.map(|(n, s)| (n.to_string(), s)));
        }
    }

    /// Comparing every pair of names takes minutes for this many labels.
    #[test]
    fn time_is_proportional_to_the_number_of_labels() {
        const MANY: u32 = 100_000;
        let names: String = (0..MANY).map(|k| format!("{k}=\"label{k}\" ")).collect();
        let lines: String = (0..MANY).map(|k| format!("{k}: {k} {}\n", (k + 1) % MANY)).collect();
        let begun = std::time::Instant::now();
        let text = format!("{names}\n{lines}");
        let read = parse(text.as_bytes(), Path::new("m.lab"), MANY as usize).unwrap();
        let mut written = Vec::new();
        write(&mut written, &read).unwrap();
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        let again = parse(&written, Path::new("m.lab"), MANY as usize).unwrap();
        assert_eq!(again.sets, read.sets);
        assert_eq!(read.sets[7], ("label7".to_owned(), vec![6, 7]));
    }
}
