//! State rewards: PRISM's `.srew`, Storm's `.state.rew`, MRMC's `.rew`.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use crate::io::text::{self, Line, Lines, Scanner, error, quote};
use crate::io::write::{push_integer, push_number, write_lines};
use crate::transient::chain::Reward;
use crate::{Error, Result};

/// Reads the rate rewards of a chain: one structure or more, `values` of shape `[states]`.
///
/// `numbers` are the states' numbers in the chain's files. PRISM's form has a header `states lines`
/// and that many lines `state reward`; states always count from 0. Comments name the structure and
/// allow several in one file. Storm's and MRMC's form has only lines `state reward`. States that do
/// not occur have reward 0. A structure without a name takes the file's stem, with `-2`, `-3` …
/// from the second on.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for states that are out of range or occur twice,
/// rewards that are not finite, and lines of another form. [`Error::File`] for fewer lines than
/// promised and for a file without rewards.
pub fn read(path: &Path, numbers: Range<u64>) -> Result<Vec<Reward>> {
    parse(&text::read(path)?, path, numbers)
}

/// Writes state rewards in PRISM's form, all structures in one file.
///
/// # Errors
/// Errors of `writer`.
pub fn write(writer: &mut dyn Write, rewards: &[Reward]) -> io::Result<()> {
    for Reward { name, values } in rewards {
        let earning = values.iter().filter(|value| **value != 0.0).count();
        writeln!(writer, "# Reward structure \"{name}\"\n# State rewards\n{} {earning}", values.len())?;
        write_lines(writer, values.len(), &|state, text| {
            if values[state] != 0.0 {
                push_integer(text, state as u64);
                text.push(b' ');
                push_number(text, values[state]);
                text.push(b'\n');
            }
        })?;
    }
    Ok(())
}

/// Parses rewards like [`read`], from bytes; `path` is named in messages.
pub fn parse(bytes: &[u8], path: &Path, numbers: Range<u64>) -> Result<Vec<Reward>> {
    let states = (numbers.end - numbers.start) as usize;
    let structures = structures(bytes, path, States, |line, lines, announced| {
        let mut values = vec![f64::NAN; states];
        match header(line, announced, path, &numbers)? {
            Some(count) => {
                let numbers = 0..states as u64;
                promised(line, count, lines, path, |line| {
                    assign(&mut values, &numbers, line, path).map(|_| ())
                })?;
                Ok((fill(values), true))
            }
            None => lines_alone(values, line, lines, path, &numbers).map(|values| (values, false)),
        }
    })?;
    Ok(structures.into_iter().map(|(name, values)| Reward { name, values }).collect())
}

/// Kind of reward: of states or of transitions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Earner {
    States,
    Transitions,
}
use Earner::{States, Transitions};

impl Earner {
    /// Returns PRISM's comment above such rewards.
    fn comment(self) -> &'static [u8] {
        match self {
            States => b"State rewards",
            Transitions => b"Transition rewards",
        }
    }

    /// Returns the extension of PRISM's files and the form of a line.
    fn form(self) -> (&'static str, &'static str) {
        match self {
            States => ("srew", "state reward"),
            Transitions => ("trew", "from to reward"),
        }
    }
}

/// Reads the reward structures of a file, by name.
///
/// `read` receives a structure's first line, the lines after it, and true if comments announced it.
/// It also returns true if a header gave the structure's number of lines.
pub(super) fn structures<'a, T>(
    bytes: &'a [u8],
    path: &Path,
    earner: Earner,
    mut read: impl FnMut(Line<'a>, &mut Lines<'a>, bool) -> Result<(T, bool)>,
) -> Result<Vec<(String, T)>> {
    let mut lines = Lines::new(bytes);
    let mut structures: Vec<(String, T)> = Vec::new();
    let (mut name, mut announced) = (None, false);
    let (extension, form) = earner.form();
    while let Some(line) = lines.next() {
        if line.bytes.is_empty() {
            continue;
        }
        if let Some(comment) = line.bytes.strip_prefix(b"#") {
            let comment = comment.trim_ascii();
            if let Some(rest) = comment.strip_prefix(b"Reward structure") {
                let quoted = rest.trim_ascii().strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
                name = quoted.map(|quoted| text::name(quoted, path, line.number)).transpose()?;
                announced = true;
            } else if comment == earner.comment() {
                announced = true;
            } else if let Some(other) = [States, Transitions].into_iter().find(|e| comment == e.comment()) {
                let reason = format!(
                    "{} starts rewards of another kind; give the file the extension .{}",
                    quote(line.bytes),
                    other.form().0
                );
                return Err(error(path, line.number, reason));
            }
            continue;
        }
        let (structure, ended) = read(line, &mut lines, announced)?;
        // Only a structure with a header can follow another one.
        if !ended && !structures.is_empty() {
            return Err(error(
                path,
                line.number,
                format!(
                    "{} follows the last line that the header counts; correct the header",
                    quote(line.bytes)
                ),
            ));
        }
        announced = false;
        let name = name.take().unwrap_or_else(|| match structures.len() {
            0 => stem(path),
            earlier => format!("{}-{}", stem(path), earlier + 1),
        });
        structures.push((name, structure));
    }
    if structures.is_empty() {
        return Err(Error::File {
            path: path.into(),
            reason: format!(
                "holds no rewards; write lines `{form}`, or export with `prism MODEL -exportmodel out.{extension}`"
            ),
        });
    }
    Ok(structures)
}

/// Returns the file's name without its extensions.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    name.strip_suffix(".state").unwrap_or(name).into()
}

/// Returns the number of lines promised by a header `states lines`; `None` for other lines.
pub(super) fn header(line: Line, announced: bool, path: &Path, numbers: &Range<u64>) -> Result<Option<u64>> {
    let states = numbers.end - numbers.start;
    let mut fields = line.fields().map(text::unsigned);
    let (Some(Some(first)), Some(Some(count)), None) = (fields.next(), fields.next(), fields.next()) else {
        if announced {
            return Err(error(
                path,
                line.number,
                format!("invalid header {}: expected `STATES LINES` in numbers", quote(line.bytes)),
            ));
        }
        return Ok(None);
    };
    // MRMC's files have no header, and the number of their last state equals the number of states.
    if first == states && (announced || numbers.start == 0) {
        Ok(Some(count))
    } else if announced {
        Err(error(
            path,
            line.number,
            format!(
                "the header says {first} states, the chain has {states}: name the rewards of this very model"
            ),
        ))
    } else {
        Ok(None)
    }
}

/// Sets the reward of a line's state and returns its number; NaN marks missing rewards.
fn assign(values: &mut [f64], numbers: &Range<u64>, line: Line, path: &Path) -> Result<u64> {
    let wrong = |reason: String| Err(error(path, line.number, reason));
    let mut scanner = Scanner::new(line.bytes);
    let number = scanner.unsigned().filter(|_| scanner.is_delimited());
    scanner.blanks();
    let reward = scanner.number().filter(|_| scanner.rest().is_empty());
    let (Some(number), Some(reward)) = (number, reward) else {
        return wrong(format!(
            "invalid line {}: expected `state reward`, with a finite reward above the smallest \
             double or 0",
            quote(line.bytes)
        ));
    };
    if !numbers.contains(&number) {
        return wrong(out_of_range(number, numbers));
    }
    let value = &mut values[(number - numbers.start) as usize];
    if !value.is_nan() {
        return wrong(format!(
            "state {number} has a second reward, {reward} after {value}; remove one of the lines"
        ));
    }
    *value = reward;
    Ok(number)
}

/// Returns the message about a state that is out of range.
pub(super) fn out_of_range(number: u64, numbers: &Range<u64>) -> String {
    format!(
        "state {number} is out of range: the chain has {} states, {} to {}; are these another model's rewards?",
        numbers.end - numbers.start,
        numbers.start,
        numbers.end.saturating_sub(1)
    )
}

fn fill(mut values: Vec<f64>) -> Vec<f64> {
    for value in &mut values {
        if value.is_nan() {
            *value = 0.0;
        }
    }
    values
}

/// Passes as many lines to `take` as a header promises.
pub(super) fn promised<'a>(
    header: Line,
    count: u64,
    lines: &mut Lines<'a>,
    path: &Path,
    mut take: impl FnMut(Line<'a>) -> Result<()>,
) -> Result<()> {
    let mut found = 0;
    while found < count {
        let Some(line) = lines.next() else {
            return Err(Error::File {
                path: path.into(),
                reason: format!(
                    "expected {count} rewards as of line {}, found {found}: the file is truncated; \
                     export or copy it again",
                    header.number
                ),
            });
        };
        if line.bytes.is_empty() {
            continue;
        }
        if line.bytes.starts_with(b"#") {
            return Err(error(
                path,
                line.number,
                format!(
                    "expected {count} rewards as of line {}, found {found}; correct the header",
                    header.number
                ),
            ));
        }
        take(line)?;
        found += 1;
    }
    Ok(())
}

fn lines_alone(
    mut values: Vec<f64>,
    first: Line,
    lines: &mut Lines,
    path: &Path,
    numbers: &Range<u64>,
) -> Result<Vec<f64>> {
    let first_number = assign(&mut values, numbers, first, path)?;
    let (mut behind, mut highest) = (0u64, 0);
    for line in lines {
        if !line.bytes.is_empty() && !line.bytes.starts_with(b"#") {
            highest = highest.max(assign(&mut values, numbers, line, path)?);
            behind += 1;
        }
    }
    // A PRISM header of a smaller model has the form `state reward`. Its number of states is
    // above all indices that follow, and its number of lines is exact.
    let first_value = values[(first_number - numbers.start) as usize];
    if behind > 0 && first_number > highest && first_value == behind as f64 {
        return Err(error(
            path,
            first.number,
            format!(
                "{} looks like a header for {first_number} states, the chain has {}: name the rewards of this very model",
                quote(first.bytes),
                values.len()
            ),
        ));
    }
    Ok(fill(values))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewards(text: &str) -> Result<Vec<Reward>> {
        parse(text.as_bytes(), Path::new("d/m.state.rew.gz"), 0..4)
    }

    fn message(text: &str) -> String {
        rewards(text).unwrap_err().to_string()
    }

    #[test]
    fn prism_form() {
        let read = rewards(
            "# Reward structure \"up\"\r\n# State rewards\r\n4 2\r\n3 -1.5\r\n0 1/4\r\n# Reward structure\n# State rewards\n4 0\n\
             # Reward structure \"x y\"\n# State rewards\n4 1\n1 2e3",
        )
        .unwrap();
        let expected =
            [("up", vec![0.25, 0.0, 0.0, -1.5]), ("m-2", vec![0.0; 4]), ("x y", vec![0.0, 2000.0, 0.0, 0.0])];
        assert_eq!(read, expected.map(|(n, values)| Reward { name: n.into(), values }));
        // Old exports have no comments.
        assert_eq!(
            rewards("4 1\n1 3\n").unwrap(),
            [Reward { name: "m".into(), values: vec![0.0, 3.0, 0.0, 0.0] }]
        );
    }

    #[test]
    fn storm_form() {
        let read = rewards("0 1.5\n\n3 2").unwrap();
        assert_eq!(read, [Reward { name: "m".into(), values: vec![1.5, 0.0, 0.0, 2.0] }]);
        assert_eq!(stem(Path::new("a.srew")), "a");
        assert_eq!(stem(Path::new("a.b.srew.gz")), "a.b");
    }

    /// Lines of `prism -exportmrmc`: the last state's number equals the number of states.
    #[test]
    fn mrmc_counts_from_one() {
        let read =
            |text: &str| parse(text.as_bytes(), Path::new("m.srew"), 1..4).map(|mut r| r.remove(0).values);
        assert_eq!(read("1 20\n3 2.5\n").unwrap(), [20.0, 0.0, 2.5]);
        assert_eq!(read("3 0\n").unwrap(), [0.0; 3]);
        assert_eq!(read("3 1\n").unwrap(), [0.0, 0.0, 1.0]);
        let reason = read("0 1\n").unwrap_err().to_string();
        assert!(reason.contains("state 0 is out of range: the chain has 3 states, 1 to 3"), "{reason}");
        assert_eq!(read("# State rewards\n3 1\n0 7\n").unwrap(), [7.0, 0.0, 0.0], "PRISM's own form");
    }

    #[test]
    fn errors_name_the_line() {
        assert!(message("").contains("holds no rewards"));
        assert!(
            message("# State rewards\n5 1\n0 1").contains(":2: the header says 5 states, the chain has 4")
        );
        assert!(message("4 3\n0 1\n1 1").contains("expected 3 rewards as of line 1, found 2"));
        assert!(
            message("4 3\n0 1\n# Reward structure \"b\"\n4 1\n0 1")
                .contains(":3: expected 3 rewards as of line 1, found 1")
        );
        assert!(message("4 1\n0 1\n1 1").contains(":3: '1 1' follows the last line"));
        assert!(message("4 2\n0 1\n0 1").contains(":3: state 0 has a second reward"));
        assert!(message("0 1\n0 1").contains(":2: state 0 has a second reward"));
        assert!(message("0 1\n7 1").contains(":2: state 7 is out of range"));
        assert!(message("0 inf").contains(":1: invalid line '0 inf'"));
        assert!(message("0 1 2").contains(":1: "));
        assert!(message("0").contains(":1: "));
        assert!(message("3 2\n0 1\n1 1").contains(":1: '3 2' looks like a header for 3 states"));
        assert!(message("# Transition rewards\n4 1\n0 1 2").contains("extension .trew"));
        assert!(message("# Reward structure \"a\"\n0 1.5\n").contains(":2: invalid header '0 1.5'"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Path::new("m.srew"), 0..3);
        }

        #[test]
        fn never_panics_on_near_text(text in "((0|1|4| |\n|#|-|1e9|nan|# Reward structure \"a\"\n|# State rewards\n|4 1\n)){0,40}") {
            let _ = rewards(&text);
        }

        #[test]
        fn both_forms_read_back(values in proptest::collection::vec(-1e300f64..1e300, 1..50)) {
            let lines: String = values.iter().enumerate().map(|(i, v)| format!("{i} {v:e}\n")).collect();
            let (n, numbers) = (values.len(), 0..values.len() as u64);
            let prism = format!("# Reward structure \"r\"\n# State rewards\n{n} {n}\n{lines}");
            let expected = [Reward { name: "r".into(), values }];
            prop_assert_eq!(&parse(prism.as_bytes(), Path::new("m.srew"), numbers.clone()).unwrap()[..], &expected);
            prop_assert_eq!(&parse(lines.as_bytes(), Path::new("r.srew"), numbers).unwrap()[..], &expected);
        }
    }
}
