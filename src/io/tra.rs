//! Transitions in `.tra` files: PRISM's explicit form and Storm's triples.

mod dialect;

use self::dialect::TraHeader;
use super::*;
use crate::io::rate_matrix_kind;
use crate::io::text::{KnownNumbers, LineError, Pieces, TripleSpace, Triples, error};
use crate::transient::chain::csr::NumberedRows;

/// Fewest bytes of a transition's line, including its end: `0 0 0`.
const SHORTEST: usize = 6;

/// Approximate length in bytes of a usual line `from to rate`.
const LINE: u64 = 20;

/// Reads a chain's transitions; labels and rewards stay empty.
///
/// The first line determines the dialect:
///
/// * PRISM: `n m`, then m lines `from to rate [action]`.
/// * Storm: `ctmc`, `dtmc` or nothing, then triples; n is the highest index + 1.
///
/// `#` comments and blank lines are ignored. Rates may be quotients such as `1/4000`. The list
/// keeps the file's order, self-loops, zero rates and duplicates; `lines_of` finds the lines of
/// duplicates. More transitions than promised are a warning.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for a line that is not a transition between two
/// states with a finite rate ≥ 0, and for headers of other kinds of model and other formats.
/// [`Error::File`] if the header promises more transitions than there are, or the file is empty.
pub fn read(path: &Path) -> Result<ChainFile> {
    // Errors are reported by the serial parser, which reads the whole file.
    match by_pieces(path) {
        Ok(Some(file)) => Ok(file),
        _ => parse(&text::read(path)?, path),
    }
}

/// Reads a chain like [`read`], but transitions that are sorted by source as [`NumberedRows`].
///
/// These take a tenth of the memory. The [`ChainFile`] then has no transitions.
pub(crate) fn read_numbered(path: &Path) -> Result<(ChainFile, Option<NumberedRows>)> {
    match numbered(path) {
        Ok(Some(found)) => Ok(found),
        _ => read(path).map(|file| (file, None)),
    }
}

/// Parses a file in pieces, to rows if sorted by source; `None` if it has to be read whole.
fn numbered(path: &Path) -> Result<Option<(ChainFile, Option<NumberedRows>)>> {
    let Some(mut pieces) = Pieces::open(path)? else { return Ok(None) };
    let head = dialect::detect(pieces.start(), path)?;
    if head.discrete == Some(true) {
        // Self-loops are needed.
        return Ok(None);
    }
    pieces.skip(head.body);
    let mut found = Triples::new(SHORTEST);
    let mut rows = Some(NumberedRows::default());
    let (mut listed, mut highest, mut sum) = (0, 0, 0.0);
    let read = pieces.each(&mut |bytes| {
        parse_lines(bytes, &head, &mut found, path)?;
        let Some(known) = &mut rows else { return Ok(()) };
        let (from, to, rate) = found.take_lists();
        let looked_at = known.push(from, to, rate);
        if looked_at == rate.len() {
            listed += rate.len();
            sum +=
                rate.par_chunks(1 << 12).map(|rates| rates.iter().sum::<f64>()).reduce(|| 0.0, |a, b| a + b);
            if head.states.is_none() {
                highest = highest_of(from).max(highest_of(to)).max(highest);
            }
            return Ok(());
        }
        // From here on all transitions are kept in a list.
        let TransitionList { from: mut all_from, to: mut all_to, rate: mut all_rates } = known.list();
        // The list contains this piece's first `looked_at` transitions, unless some were dropped.
        let whole = all_rates.len() == listed + looked_at;
        all_from.extend(&from[looked_at..]);
        all_to.extend(&to[looked_at..]);
        all_rates.extend(&rate[looked_at..]);
        found.begin_with((all_from, all_to, all_rates));
        rows = None;
        whole.then_some(()).ok_or_else(|| error(path, 0, "transitions were dropped"))
    })?;
    if read.is_none() {
        return Ok(None);
    }
    let Some(rows) = rows else {
        return Ok(Some((head.file(found, path)?, None)));
    };
    let states = head.states.unwrap_or(highest) as usize;
    let whole = head.transitions.is_none_or(|promised| promised == listed as u64) && states > 0;
    // Checking that every row sums to 1 needs the list; the caller then reads the file whole.
    let suspect = head.discrete.is_none() && rate_matrix_kind::may_be_stochastic(states, sum);
    let file = ChainFile { states, ..ChainFile::default() };
    Ok((whole && !suspect).then_some((file, Some(rows))))
}

/// Returns the highest state + 1.
fn highest_of(states: &[u32]) -> u64 {
    states.par_iter().map(|&s| u64::from(s) + 1).reduce(|| 0, u64::max)
}

/// Parses a chain like [`read`], from bytes; `path` is named in messages.
pub fn parse(bytes: &[u8], path: &Path) -> Result<ChainFile> {
    let head = dialect::detect(bytes, path)?;
    let mut found = Triples::new(SHORTEST);
    parse_lines(&bytes[head.body..], &head, &mut found, path)?;
    head.file(found, path)
}

/// Parses a file while it is read in pieces; `None` if it has to be in memory as a whole.
pub(super) fn by_pieces(path: &Path) -> Result<Option<ChainFile>> {
    let Some(mut pieces) = Pieces::open(path)? else { return Ok(None) };
    let head = dialect::detect(pieces.start(), path)?;
    pieces.skip(head.body);
    let promised = head.transitions.map_or(pieces.about(LINE), |all| all as usize);
    let mut found = Triples::with_room(SHORTEST, promised, pieces.about(1), path)?;
    let read = pieces.each(&mut |bytes| parse_lines(bytes, &head, &mut found, path))?;
    read.map(|()| head.file(found, path)).transpose()
}

impl TraHeader {
    /// Builds the chain from `found`, the complete list of the file's transitions.
    fn file(&self, found: Triples, path: &Path) -> Result<ChainFile> {
        let (from, to, rate) = found.into_lists();
        let (read, mut warnings) = (rate.len() as u64, Vec::new());
        if let Some(promised) = self.transitions.filter(|&promised| promised != read) {
            let line = self.count_line;
            let said = format!("line {line} says {promised} transitions, but the file has {read}");
            // A truncated file has fewer transitions; its results would be wrong. Surplus ones are
            // complete.
            if read < promised {
                let again = "it is truncated; export or copy it again";
                let reason = format!("{said}: {again}. If nothing is missing, write {read} in line {line}");
                return fail(path, reason);
            }
            warnings.push(format!("{}: {said}; all {read} are used", path.display()));
        }
        let states = self.states.unwrap_or_else(|| highest_of(&from).max(highest_of(&to))) as usize;
        if states == 0 {
            let reason = "contains neither transitions nor a number of states; start it with \
                          `STATES TRANSITIONS` in numbers";
            return fail(path, reason);
        }
        let transitions = TransitionList { from, to, rate };
        if self.discrete.is_none() && rate_matrix_kind::is_stochastic(states, &transitions) {
            warnings.push(rate_matrix_kind::looks_stochastic(path));
        }
        let discrete = self.discrete == Some(true);
        Ok(ChainFile { states, discrete, transitions, warnings, ..ChainFile::default() })
    }
}

/// Finds the lines, counted from 1, that list a transition: for the message about duplicates.
pub(super) fn lines_of(bytes: &[u8], path: &Path, from: u32, to: u32) -> Result<Vec<u64>> {
    let head = dialect::detect(bytes, path)?;
    let mut lines = Vec::new();
    let mut keep = |line, (i, j, _): Transition| {
        if (i, j) == (from, to) {
            lines.push(head.lines + line);
        }
    };
    scan(&bytes[head.body..], &head, &mut keep)
        .map_err(|(line, reason)| error(path, head.lines + line, reason))?;
    Ok(lines)
}

/// Transition in one line of a file: source, target and rate.
type Transition = (u32, u32, f64);

/// Parses lines of transitions, and appends the transitions to `found`.
fn parse_lines(text: &[u8], head: &TraHeader, found: &mut Triples, path: &Path) -> Result<()> {
    let scan = |chunk: &[u8], room: &mut TripleSpace| {
        scan(chunk, head, &mut |_, (from, to, rate)| room.push(from, to, rate))
    };
    found.parse(text, scan).map_err(|(line, reason)| error(path, head.lines + line, reason))
}

/// Passes all transitions of some lines to `sink`, with line numbers counted from 1.
///
/// The error is a line number and a reason.
fn scan(bytes: &[u8], head: &TraHeader, sink: &mut impl FnMut(u64, Transition)) -> Result<(), LineError> {
    let limit = head.states.unwrap_or(MOST_STATES);
    let mut scanner = Scanner::new(bytes);
    let mut known = KnownNumbers::default();
    let mut line = 0;
    while scanner.peek().is_some() {
        line += 1;
        let start = scanner.offset();
        match transition(&mut scanner, &mut known, limit) {
            Ok(Some(transition)) => sink(line, transition),
            Ok(None) => {}
            Err(fault) => {
                return Err((line, describe(fault, text::first_line(&bytes[start..]).0, head)));
            }
        }
    }
    Ok(())
}

/// Kind of error in a line.
#[derive(Clone, Copy)]
enum TransitionFault {
    From,
    To,
    Rate,
    Negative,
    Range(u64),
    Behind,
}

/// Reads a line and its end; `None` for blank lines and comments.
#[inline(always)]
fn transition(
    scanner: &mut Scanner,
    known: &mut KnownNumbers,
    limit: u64,
) -> Result<Option<Transition>, TransitionFault> {
    scanner.blanks();
    match scanner.peek() {
        Some(b'0'..=b'9') => {}
        None | Some(b'\n') | Some(b'#') => {
            scanner.skip_line();
            return Ok(None);
        }
        Some(_) => return Err(TransitionFault::From),
    }
    let from = scanner.unsigned().filter(|_| scanner.is_delimited()).ok_or(TransitionFault::From)?;
    scanner.blanks();
    let to = scanner.unsigned().filter(|_| scanner.is_delimited()).ok_or(TransitionFault::To)?;
    scanner.blanks();
    let rate = scanner.known_number(known).filter(|_| scanner.is_delimited()).ok_or(TransitionFault::Rate)?;
    if rate < 0.0 {
        return Err(TransitionFault::Negative);
    }
    if from >= limit {
        return Err(TransitionFault::Range(from));
    }
    if to >= limit {
        return Err(TransitionFault::Range(to));
    }
    if !scanner.byte(b'\n') {
        scanner.blanks();
        if !matches!(scanner.peek(), None | Some(b'\n')) {
            action(scanner)?;
        }
        scanner.byte(b'\n');
    }
    // −0 becomes 0.
    Ok(Some((from as u32, to as u32, rate + 0.0)))
}

/// Skips an action's name up to the end of the line.
#[inline]
fn action(scanner: &mut Scanner) -> Result<(), TransitionFault> {
    // A number here belongs to another format.
    if matches!(scanner.peek(), Some(b'0'..=b'9' | b'.' | b'+' | b'-')) {
        return Err(TransitionFault::Behind);
    }
    while !scanner.is_delimited() {
        scanner.skip(1);
    }
    scanner.blanks();
    if matches!(scanner.peek(), None | Some(b'\n')) { Ok(()) } else { Err(TransitionFault::Behind) }
}

#[cold]
fn describe(fault: TransitionFault, line: &[u8], head: &TraHeader) -> String {
    let fields: Vec<&[u8]> = text::fields(line).take(6).collect();
    let (line, field) = (quote(line), |at: usize| fields.get(at).map(|field| quote(field)));
    if fields.get(1).is_some_and(|field| field.contains(&b':')) {
        return format!("{line} is a row of transitions; {}", dialect::EXPORT_ROWS);
    }
    let form = "expected `from to rate`, optionally followed by an action's name";
    let lacks = |what| format!("{line} lacks {what}: the file is truncated, or not a .tra; {form}");
    match fault {
        TransitionFault::From => format!("invalid state {}; {form}", field(0).as_ref().unwrap_or(&line)),
        TransitionFault::To => match field(1) {
            Some(field) => format!("invalid target {field}; {form}"),
            None => lacks("a target and a rate"),
        },
        TransitionFault::Rate => match fields.get(2) {
            Some(field) => format!("rate {} {}; give a rate ≥ 0", quote(field), quantity::fault(field)),
            None => lacks("a rate"),
        },
        TransitionFault::Negative => format!(
            "rate {} is negative: expected rates ≥ 0, without the diagonal of the generator",
            field(2).unwrap_or_default()
        ),
        TransitionFault::Range(state) => match head.states {
            Some(states) => format!(
                "state {state} is out of range: the header says {states} states, 0 to {}; correct \
                 one of them",
                states - 1
            ),
            None => format!(
                "state {state} is out of range: chains have at most {MOST_STATES} states; correct \
                 the line"
            ),
        },
        TransitionFault::Behind => format!("{line} continues after the action's name; {form}"),
    }
}

#[cfg(test)]
mod tests;
