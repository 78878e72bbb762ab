//! State rewards: PRISM's `.srew` and Storm's `.state.rew`.

use super::*;
use crate::io::write::push_number;

/// Suggestion about rewards that do not fit the chain.
const OTHER_MODEL: &str = "name the rewards of this very model";

/// Reads the rate rewards of a chain: one structure or more, `values` of shape `[states]`.
///
/// PRISM's form has a header `states lines` and that many lines `state reward`; states count from
/// 0. Comments name the structure and allow several in one file. Storm's form has only lines
/// `state reward`. States that do not occur have reward 0. A structure without a name takes the
/// file's stem, with `-2`, `-3` … from the second on.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for states that are out of range or occur twice,
/// rewards that are not finite, and lines of another form. [`Error::File`] for fewer lines than
/// promised and for a file without rewards.
pub fn read(path: &Path, states: usize) -> Result<Vec<Reward>> {
    parse(&text::read(path)?, path, states, false)
}

/// Writes state rewards in PRISM's form, all structures in one file.
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

/// Reads rewards like [`read`], from bytes. With `any`, infinity and NaN are accepted as infinite.
pub(super) fn parse(bytes: &[u8], path: &Path, states: usize, any: bool) -> Result<Vec<Reward>> {
    let none = || ParsedRewards { values: vec![f64::NAN; states], lines: 0, first: (0, 0.0), highest: 0 };
    let finish = |Structure { name, rewards: ParsedRewards { mut values, lines, first, highest }, alone }| {
        // A PRISM header of a smaller model has the form `state reward`. Its number of states is
        // above all indices that follow, and its number of lines is exact.
        if let Some(line) = alone
            && lines > 1
            && first.0 > highest
            && first.1 == (lines - 1) as f64
        {
            return Err(line.error(format!(
                "{line} looks like a header for {} states, the chain has {states}: {OTHER_MODEL}",
                first.0
            )));
        }
        values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = 0.0);
        Ok(Reward { name, values })
    };
    let take = |all: &mut ParsedRewards, line: TextLine| all.take(line, any);
    structures(bytes, path, &STATES, states, none, take)?.into_iter().map(finish).collect()
}

/// Rewards of states in the lines read so far.
struct ParsedRewards {
    /// Reward of each state; NaN if no line has given it yet.
    values: Vec<f64>,
    lines: u64,
    /// State and reward of the first line.
    first: (u64, f64),
    /// Highest state number in the lines after the first one.
    highest: u64,
}

impl ParsedRewards {
    fn take(&mut self, line: TextLine, any: bool) -> Result<()> {
        let mut scanner = Scanner::new(line.bytes);
        let number = scanner.unsigned().filter(|_| scanner.is_delimited());
        scanner.blanks();
        let reward = reward(&mut scanner, any);
        let (Some(number), Some(reward)) = (number, reward) else {
            return Err(line.error(format!(
                "invalid line {line}: expected `state reward`, with a finite reward above the \
                 smallest double or 0"
            )));
        };
        let states = self.values.len();
        let Some(value) = self.values.get_mut(number as usize) else {
            return Err(line.error(out_of_range(number, states, "rewards")));
        };
        if !value.is_nan() {
            return Err(line.error(format!(
                "state {number} has a second reward, {reward} after {value}; remove one of the lines"
            )));
        }
        *value = reward;
        match self.lines {
            0 => self.first = (number, reward),
            _ => self.highest = self.highest.max(number),
        }
        self.lines += 1;
        Ok(())
    }
}

/// Reads the reward that ends a line. With `any`, infinity and NaN are accepted as infinite.
pub(super) fn reward(scanner: &mut Scanner<'_>, any: bool) -> Option<f64> {
    let field = std::str::from_utf8(scanner.rest()).ok()?;
    let infinite = || {
        let value = field.parse::<f64>().ok().filter(|value| any && !value.is_finite());
        value.map(|_| f64::INFINITY)
    };
    scanner.number().filter(|_| scanner.rest().is_empty()).or_else(infinite)
}

/// Kind of reward: of states or of transitions.
#[derive(PartialEq)]
pub(super) struct Earner {
    /// PRISM's comment line above rewards of this kind.
    comment: &'static str,
    /// Extension of PRISM's files for rewards of this kind.
    extension: &'static str,
    /// Form of a line with a reward, for messages.
    form: &'static str,
}

const STATES: Earner = Earner { comment: "State rewards", extension: "srew", form: "state reward" };
pub(super) const TRANSITIONS: Earner =
    Earner { comment: "Transition rewards", extension: "trew", form: "from to reward" };

/// Reward structure of a file.
pub(super) struct Structure<'a, T> {
    pub(super) name: String,
    pub(super) rewards: T,
    /// First line of a structure without a header.
    alone: Option<TextLine<'a>>,
}

/// Reads reward structures: `none` returns an empty one, and `take` adds the reward of a line.
pub(super) fn structures<'a, T>(
    bytes: &'a [u8],
    path: &'a Path,
    earner: &Earner,
    states: usize,
    none: impl Fn() -> T,
    take: impl Fn(&mut T, TextLine<'a>) -> Result<()>,
) -> Result<Vec<Structure<'a, T>>> {
    let mut lines = TextLines::new(bytes, path);
    let mut structures = Vec::new();
    let (mut name, mut announced) = (None, false);
    while let Some(line) = lines.next() {
        if line.bytes.is_empty() {
            continue;
        }
        if let Some(comment) = line.bytes.strip_prefix(b"#") {
            let comment = comment.trim_ascii();
            if let Some(rest) = comment.strip_prefix(b"Reward structure") {
                let quoted = rest.trim_ascii().strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
                name = quoted.map(|quoted| line.name(quoted)).transpose()?;
                announced = true;
            } else if comment == earner.comment.as_bytes() {
                announced = true;
            } else if let Some(other) =
                [STATES, TRANSITIONS].iter().find(|other| comment == other.comment.as_bytes())
            {
                return Err(line.error(format!(
                    "{line} starts rewards of another kind; give the file the extension .{}",
                    other.extension
                )));
            }
            continue;
        }
        let mut rewards = none();
        let header = header(line, announced, earner, states as u64)?;
        if let Some(count) = header {
            for found in 0..count {
                let due = format!("expected {count} rewards as of line {}, found {found}", line.number);
                let Some(next) = lines.find(|line| !line.bytes.is_empty()) else {
                    let reason = format!("{due}: the file is truncated; export or copy it again");
                    return fail(path, reason);
                };
                if next.is_comment() {
                    return Err(next.error(format!("{due}; correct the header")));
                }
                take(&mut rewards, next)?;
            }
        } else {
            take(&mut rewards, line)?;
            let mut others = lines.by_ref().filter(|line| !line.is_comment());
            others.try_for_each(|line| take(&mut rewards, line))?;
            // Only a structure with a header can follow another one.
            if !structures.is_empty() {
                return Err(line.error(format!(
                    "{line} follows the last line that the header counts; correct the header"
                )));
            }
        }
        announced = false;
        let name = name.take().unwrap_or_else(|| match structures.len() {
            0 => stem(path),
            earlier => format!("{}-{}", stem(path), earlier + 1),
        });
        structures.push(Structure { name, rewards, alone: header.is_none().then_some(line) });
    }
    if structures.is_empty() {
        let Earner { form, extension, .. } = earner;
        let export = format!("export with `prism MODEL -exportmodel out.{extension}`");
        return fail(path, format!("holds no rewards; write lines `{form}`, or {export}"));
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

/// Returns the number of lines that a header `states lines` promises; `None` for other lines.
fn header(line: TextLine, announced: bool, earner: &Earner, states: u64) -> Result<Option<u64>> {
    let fields: Vec<&[u8]> = line.fields().take(3).collect();
    let count = fields.get(1).copied().and_then(text::unsigned).filter(|_| fields.len() == 2);
    // Other lines of transitions have three fields.
    let announced = announced || *earner == TRANSITIONS && fields.len() == 2;
    match (count, text::unsigned(fields[0])) {
        (Some(_), Some(first)) if first == states => Ok(count),
        _ if !announced => Ok(None),
        (Some(_), Some(first)) => {
            Err(line.error(format!("the header says {first} states, the chain has {states}: {OTHER_MODEL}")))
        }
        _ => Err(line.error(format!("invalid header {line}: expected `STATES LINES` in numbers"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewards(text: &str) -> Result<Vec<Reward>> {
        parse(text.as_bytes(), Path::new("d/m.state.rew.gz"), 4, false)
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
}
