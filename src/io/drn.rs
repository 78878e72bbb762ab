//! Storm's `.drn` files of continuous-time Markov chains.

mod header;
mod names;
mod write;

use indexmap::IndexMap;

use self::header::DrnHeader;
use self::names::names;
pub(super) use self::write::labels_of_states;
pub use self::write::write;
use super::*;
use crate::io::text::{Pieces, error};
use crate::transient::chain::Labels;
use crate::transient::chain::transitions::exit_rate;

/// Significant digits that Storm prints by default.
const DIGITS: u32 = 6;

/// Approximate length in bytes of a line `target : rate`.
const LINE: u64 = 16;

/// Significant digits from which a number counts as exact.
const EXACT: u32 = 17;

/// Reads a chain with its labels and rewards from a DRN file of `@type: CTMC` or `DTMC`.
///
/// Values after targets are rates, or probabilities of a DTMC; self-loops stay in the list. State
/// rewards are rewards per unit of time. An action's reward is earned at each jump. It adds
/// E(s) · reward per unit of time, where E(s) is the sum of the rates listed for state s, including
/// self-loops. Exit rates in the file (`!10.0067`) have to equal these sums within the precision of
/// their digits. Values of variables, which Storm writes in comments, become names of the states.
///
/// # Errors
/// Errors of [`text::read`], and [`Error::File`] for a file that ends early. [`Error::Parse`] for:
///
/// * Other types of models and values, and several actions in a state.
/// * States not numbered 0, 1, 2 …, and targets out of range.
/// * Rates that are negative or not finite, and exit rates that are not the sums.
/// * Lines of unknown form.
pub fn read(path: &Path) -> Result<ChainFile> {
    // Errors are reported by the serial parser, which reads the whole file.
    match by_pieces(path) {
        Ok(Some(file)) => Ok(file),
        _ => parse(&text::read(path)?, path),
    }
}

/// Parses a file while it is read in pieces; `None` if it has to be in memory as a whole.
pub(super) fn by_pieces(path: &Path) -> Result<Option<ChainFile>> {
    let Some(mut pieces) = Pieces::open(path)? else { return Ok(None) };
    let mut lines = TextLines::new(pieces.start(), path);
    let header = DrnHeader::read(&mut lines, path)?;
    let body = lines.offset;
    // Names of states in comments.
    let named = pieces.start().windows(3).any(|bytes| bytes == b"//[");
    pieces.skip(body);
    let mut model = ParsedLines::new(&header, path, Some(0));
    model.list = TransitionList::with_capacity(pieces.about(LINE));
    let lines = |model: &mut ParsedLines, text: &[u8]| {
        TextLines::new(text, path).try_for_each(|line| model.line(line, |_, _| {}))
    };
    let mut fits = true;
    let read = pieces.each(&mut |bytes| {
        // Lines of a state that began in the previous piece.
        let before: usize =
            bytes.split_inclusive(|&b| b == b'\n').take_while(|line| !begins(line)).map(<[u8]>::len).sum();
        let (before, states) = bytes.split_at(before);
        lines(&mut model, before)?;
        let parsed = text::blocks(states, begins).into_par_iter().map(|text| {
            let mut part = ParsedLines::new(&header, path, None);
            lines(&mut part, text).map(|()| part)
        });
        for part in parsed.collect::<Vec<_>>() {
            fits &= model.append(part?)?;
        }
        Ok(())
    })?;
    if read.is_none() || !fits {
        return Ok(None);
    }
    let names = if named { names(&text::read(path)?, path) } else { None };
    Ok(Some(ChainFile { names, ..model.finish()? }))
}

/// True if this line begins the block of a state.
fn begins(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.strip_prefix(b"state").is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

/// Parses a chain like [`read`], from bytes; `path` is named in messages.
pub fn parse(bytes: &[u8], path: &Path) -> Result<ChainFile> {
    let mut lines = TextLines::new(bytes, path);
    let header = DrnHeader::read(&mut lines, path)?;
    let mut model = ParsedLines::new(&header, path, Some(0));
    lines.try_for_each(|line| model.line(line, |_, _| {}))?;
    Ok(ChainFile { names: names(bytes, path), ..model.finish()? })
}

/// Finds the lines, counted from 1, that list a transition: for the message about duplicates.
pub(super) fn lines_of(bytes: &[u8], path: &Path, from: u32, to: u32) -> Result<Vec<u64>> {
    let mut lines = TextLines::new(bytes, path);
    let header = DrnHeader::read(&mut lines, path)?;
    let mut model = ParsedLines::new(&header, path, Some(0));
    let mut found = Vec::new();
    for line in lines {
        model.line(line, |source, target| {
            if (source, target) == (from, to) {
                found.push(line.number);
            }
        })?;
    }
    Ok(found)
}

/// True if the rest of a line is empty or a comment.
fn is_end(scanner: &Scanner) -> bool {
    scanner.rest().is_empty() || scanner.rest().starts_with(b"//")
}

/// True for blank lines and comments.
fn is_comment(line: TextLine) -> bool {
    line.bytes.is_empty() || line.bytes.starts_with(b"//")
}

/// State of which the lines are being parsed.
#[derive(Default)]
struct OpenState {
    actions: usize,
    /// Line number and value of the exit rate, if the file gives one.
    exit: Option<(u64, f64)>,
    /// Largest number of significant digits among the state's rates.
    digits: u32,
    /// Rewards per jump out of the state, by reward structure.
    jump: Vec<f64>,
    /// Rewards per unit of time, by reward structure.
    rate: Vec<f64>,
    /// Index of the state's first transition in `Model::list`.
    start: usize,
}

/// Content of the lines after `@model` that were parsed so far.
struct ParsedLines<'a> {
    header: &'a DrnHeader,
    path: &'a Path,
    /// Number of the first state; `None` until it is read, if parsing began inside the file.
    first: Option<u64>,
    /// Number of the next expected state.
    states: u64,
    choices: u64,
    state: OpenState,
    list: TransitionList,
    labels: IndexMap<Vec<u8>, Vec<u32>>,
    /// One vector per reward, from the first state to the last one with a reward.
    rewards: Vec<Vec<f64>>,
}

impl<'a> ParsedLines<'a> {
    fn new(header: &'a DrnHeader, path: &'a Path, first: Option<u64>) -> Self {
        Self {
            header,
            path,
            first,
            states: first.unwrap_or(0),
            choices: 0,
            state: OpenState::default(),
            list: TransitionList::default(),
            labels: IndexMap::new(),
            rewards: vec![Vec::new(); header.rewards.len()],
        }
    }

    /// Returns the number of states for which a `state` line has been read.
    fn begun(&self) -> u64 {
        self.first.map_or(0, |first| self.states - first)
    }

    /// Parses one line; passes a transition's source and target also to `seen`.
    fn line(&mut self, line: TextLine, seen: impl FnOnce(u32, u32)) -> Result<()> {
        if is_comment(line) {
            return Ok(());
        }
        let mut scanner = Scanner::new(line.bytes);
        if line.bytes[0].is_ascii_digit() {
            let target = self.transition(line, &mut scanner)?;
            seen((self.states - 1) as u32, target);
            return Ok(());
        }
        match scanner.word() {
            b"state" => self.begin_state(line, &mut scanner),
            b"action" => self.action(line, &mut scanner),
            _ => Err(line.error(format!(
                "invalid line {line}: expected `state ...`, `action ...` or `target : rate`"
            ))),
        }
    }

    fn transition(&mut self, line: TextLine, scanner: &mut Scanner) -> Result<u32> {
        if self.state.actions == 0 {
            return Err(line.error("a transition needs a line `state ...` and one `action ...` before it"));
        }
        let target = scanner.unsigned();
        scanner.blanks();
        let colon = scanner.byte(b':');
        scanner.blanks();
        let (Some(target), true) = (target, colon) else {
            return Err(line.error(format!("invalid transition {line}: expected `target : rate`")));
        };
        let text = scanner.rest();
        let rate = scanner.number().filter(|rate| *rate >= 0.0 && scanner.is_delimited());
        let digits = significant_digits(&text[..text.len() - scanner.rest().len()]);
        scanner.blanks();
        let Some(rate) = rate.filter(|_| is_end(scanner)) else {
            return Err(line.error(match text {
                b"" => format!("{line} lacks a rate: the file is truncated; export it again"),
                _ => format!("rate {} {}; give a rate ≥ 0", quote(text), quantity::fault(text)),
            }));
        };
        if target >= self.header.states {
            let states = self.header.states;
            return Err(line.error(format!(
                "target {target} is out of range: @nr_states is {states}; correct one of them"
            )));
        }
        self.state.digits = self.state.digits.max(digits);
        self.list.from.push((self.states - 1) as u32);
        self.list.to.push(target as u32);
        // −0 becomes 0.
        self.list.rate.push(rate + 0.0);
        Ok(target as u32)
    }

    fn begin_state(&mut self, line: TextLine, scanner: &mut Scanner) -> Result<()> {
        self.end_state()?;
        scanner.blanks();
        let word = scanner.word();
        let Some(state) = text::unsigned(word) else {
            return Err(line.error(format!("invalid state {}: expected a number", quote(word))));
        };
        if self.first.is_none() {
            (self.first, self.states) = (Some(state), state);
        }
        if state != self.states {
            let due = self.states;
            return Err(line
                .error(format!("unexpected state {state}: expected {due}; number the states 0, 1, 2 ...")));
        }
        if state >= self.header.states {
            let states = self.header.states;
            return Err(
                line.error(format!("state {state} is out of range: @nr_states is {states}; correct it"))
            );
        }
        self.states += 1;
        self.state.start = self.list.rate.len();
        scanner.blanks();
        if scanner.byte(b'!') {
            let word = scanner.word();
            let Some(exit) = text::number(word).filter(|exit| *exit >= 0.0) else {
                let fault = quantity::fault(word);
                return Err(line.error(format!("exit rate {} {fault}; give a rate ≥ 0", quote(word))));
            };
            self.state.exit = Some((line.number, exit));
            self.state.digits = significant_digits(word);
            scanner.blanks();
        }
        if scanner.peek() == Some(b'{') {
            return Err(line.error("`{...}` is an observation: POMDPs are not supported; expected a CTMC"));
        }
        self.state.rate = self.rewards(line, scanner)?;
        while !is_end(scanner) {
            let name = if scanner.byte(b'"') {
                let rest = scanner.rest();
                let Some(length) = rest.iter().position(|&b| b == b'"') else {
                    return Err(line.error(format!("label {} has no closing quote; add it", quote(rest))));
                };
                scanner.skip(length + 1);
                &rest[..length]
            } else {
                scanner.word()
            };
            scanner.blanks();
            let set = match self.labels.get_index_of(name) {
                Some(set) => set,
                None => self.labels.insert_full(line.name(name)?.into_bytes(), Vec::new()).0,
            };
            let set = &mut self.labels[set];
            if set.last() != Some(&(state as u32)) {
                set.push(state as u32);
            }
        }
        Ok(())
    }

    fn action(&mut self, line: TextLine, scanner: &mut Scanner) -> Result<()> {
        if self.begun() == 0 {
            return Err(line.error("an action needs a line `state ...` before it"));
        }
        self.state.actions += 1;
        self.choices += 1;
        if self.state.actions > 1 {
            let state = self.states - 1;
            return Err(line.error(format!(
                "state {state} has a second action: expected one action in each state of a CTMC"
            )));
        }
        scanner.blanks();
        if scanner.word().is_empty() {
            return Err(line.error("the action has no name; write `action 0`"));
        }
        scanner.blanks();
        self.state.jump = self.rewards(line, scanner)?;
        if !is_end(scanner) {
            return Err(line.error(format!("unexpected text {} after the action", quote(scanner.rest()))));
        }
        Ok(())
    }

    /// Reads `[r1, r2]`, one value per reward; returns an empty list if there are no brackets.
    fn rewards(&mut self, line: TextLine, scanner: &mut Scanner) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        if !scanner.byte(b'[') {
            return Ok(values);
        }
        scanner.blanks();
        while !scanner.byte(b']') {
            let text = scanner.rest();
            let value = scanner.number();
            scanner.blanks();
            let (Some(value), true) = (value, scanner.byte(b',') || scanner.peek() == Some(b']')) else {
                return Err(line.error(format!(
                    "invalid rewards {}: expected finite numbers as in `[1, 0.5]`",
                    quote(text)
                )));
            };
            values.push(value);
            scanner.blanks();
        }
        scanner.blanks();
        if values.len() != self.rewards.len() {
            let (found, due) = (values.len(), self.rewards.len());
            return Err(line.error(format!(
                "invalid number of rewards {found}: expected {due}, one for each name in @reward_models"
            )));
        }
        Ok(values)
    }

    /// Finishes the current state, if there is one.
    fn end_state(&mut self) -> Result<()> {
        let Some(behind) = self.begun().checked_sub(1) else {
            return Ok(());
        };
        let (behind, state) = (behind as usize, self.states - 1);
        let done = std::mem::take(&mut self.state);
        let rates = &self.list.rate[done.start..];
        let sum = exit_rate(rates.iter().copied());
        if done.rate.iter().chain(&done.jump).any(|&value| value != 0.0) {
            for (reward, values) in self.rewards.iter_mut().enumerate() {
                let rate = done.rate.get(reward).copied().unwrap_or(0.0);
                let jump = done.jump.get(reward).copied().unwrap_or(0.0);
                let value = if jump == 0.0 { rate } else { rate + sum * jump };
                // Earlier states without rewards have 0.
                values.resize(behind, 0.0);
                values.push(value);
            }
        }
        if let Some((line, stated)) = done.exit {
            // A number of d digits has a relative error of at most 5·10⁻ᵈ. Storm's sum also has
            // rounding errors.
            let printed = 5.0 * 0.1f64.powi(done.digits.max(DIGITS) as i32) * (stated + sum);
            let rounding = (rates.len() + 4) as f64 * f64::EPSILON * sum;
            if (stated - sum).abs() > printed + rounding {
                let reason = format!(
                    "the exit rate of state {state} is {stated}, but its transitions sum to {sum}; correct one of them, or \
                     export the model again"
                );
                return Err(error(self.path, line, reason));
            }
        }
        Ok(())
    }

    /// Appends the states of `other`; false if they do not follow the last state of `self`.
    fn append(&mut self, other: Self) -> Result<bool> {
        self.end_state()?;
        let Some(first) = other.first else { return Ok(true) };
        if first != self.states {
            return Ok(false);
        }
        let behind = self.begun() as usize;
        for (values, more) in self.rewards.iter_mut().zip(&other.rewards).filter(|(_, more)| !more.is_empty())
        {
            values.resize(behind, 0.0);
            values.extend_from_slice(more);
        }
        for (name, states) in other.labels {
            self.labels.entry(name).or_default().extend(states);
        }
        self.state = OpenState { start: other.state.start + self.list.rate.len(), ..other.state };
        self.list.append(&other.list);
        self.states = other.states;
        self.choices += other.choices;
        Ok(true)
    }

    fn finish(mut self) -> Result<ChainFile> {
        self.end_state()?;
        if self.states < self.header.states {
            let (stated, found) = (self.header.states, self.states);
            let said = format!("@nr_states is {stated}, but the file has {found} states");
            return fail(self.path, format!("{said}: it is truncated; export or copy it again"));
        }
        let choices = self.choices;
        let differ = self.header.choices.filter(|&stated| stated != choices).map(|stated| {
            format!(
                "{}: @nr_choices is {stated}, but the file has {choices} actions; @nr_choices is \
                 ignored",
                self.path.display()
            )
        });
        let name = |name| String::from_utf8(name).expect("names are checked when they are read");
        let sets = self.labels.into_iter().map(|(label, states)| (name(label), states)).collect();
        let states = self.states as usize;
        let mut rewards = Vec::new();
        for (name, mut values) in self.header.rewards.iter().cloned().zip(self.rewards) {
            values.resize(states, 0.0);
            if values.iter().any(|value| !value.is_finite()) {
                let reason = "an action's reward times its exit rate is not finite; scale it";
                return fail(self.path, format!("reward {name}: {reason}"));
            }
            rewards.push(Reward { name, values });
        }
        Ok(ChainFile {
            states,
            discrete: self.header.discrete,
            transitions: self.list,
            labels: Labels { sets },
            rewards,
            warnings: differ.into_iter().collect(),
            ..ChainFile::default()
        })
    }
}

/// Counts the significant digits of a number as written; quotients are exact.
fn significant_digits(text: &[u8]) -> u32 {
    let mut digits = 0;
    for &byte in text {
        match byte {
            b'1'..=b'9' => digits += 1,
            // Leading zeros do not count.
            b'0' => digits += u32::from(digits > 0),
            b'/' => return EXACT,
            b'e' | b'E' => break,
            _ => {}
        }
    }
    digits.min(EXACT)
}

#[cfg(test)]
mod tests;
