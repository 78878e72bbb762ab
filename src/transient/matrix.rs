//! The matrix of a part: which format it takes, and its chunks on the lane.

use std::ops::Range;

use super::capacity::Need;
use super::iteration::Sum;
use super::partitioning::{self, Path};
use super::parts::Part;
use super::region::{Kind, Leaving, Region};
use super::step::{self, step as step_hyb, step_packed, step_pair, step_pattern};
use crate::kernel::Real;
use crate::lane::{Arg, Buffer, Lane, Launch};
use crate::ranks::Ranks;
use crate::sparse::patterns::Patterns;
use crate::sparse::repetition::{self, Repetition};
use crate::sparse::tiles;
use crate::sparse::{
    BLOCK, Dictionary, Hyb, Layout, MatrixFormat, Packed, PairTable, Pairs, RowSource, SLICE, column_bits,
    cut,
};
use crate::{Error, Result};

/// Largest chunk built at once on the host, in entries: bounds what building takes beside the result.
const CHUNK_ENTRIES: u64 = 1 << 26;
/// The same for devices with memory of their own, where fewer and larger launches count for more.
const CHUNK_ENTRIES_DEVICE: u64 = 1 << 28;

/// Largest share of tiles that a CPU has to work out again at every step, which takes it some hundred times as long
/// as to use one.
const MOST_MISSED: f64 = 1.0 / 256.0;

/// Some rows of a part's matrix.
#[derive(Debug)]
pub struct Chunk<T> {
    /// Who wants them.
    pub kind: Kind,
    /// First row, in the part's computed rows.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// What leaves of the rows, where they are stored for that alone.
    pub(super) leaving: Option<Leaves>,
    stored: Stored<T>,
}

/// Rows of a chunk that another region takes over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaves {
    /// Number of that region.
    pub(super) taker: usize,
    /// Their places among all that it takes over.
    places: (u32, u32),
    /// Where the chunk's words list them.
    listed: u32,
}

/// A chunk's arrays.
#[derive(Debug)]
enum Stored<T> {
    Hyb { slices: Buffer<u32>, columns: Buffer<u32>, values: Buffer<T> },
    Packed { slices: Buffer<u32>, entries: Buffer<u32>, values: Buffer<T>, column_bits: u32 },
    Pair { slices: Buffer<u32>, entries: Buffer<u32>, values: Buffer<T>, offsets: u32 },
    Pattern { ids: Buffer<u32>, patterns: Buffer<u32>, values: Buffer<T>, params: step_pattern::Params },
}

/// Facts of a matrix as it was stored.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct MatrixInfo {
    /// `hyb`, `packed`, `pair` or `pattern`; several joined by `+` where parts differ.
    pub format: String,
    /// Why formats with fewer bytes were not taken.
    pub passed_over: Vec<String>,
    /// Largest ELL width of a slice.
    pub ell_width: u32,
    /// Share of the entries (without the diagonal, which lies apart) in the COO part.
    pub coo_share: f64,
    /// Share of ELL elements that are padding.
    pub padding: f64,
    /// Bytes of the matrix, the diagonal included.
    pub bytes: u64,
    /// Largest number of halo elements of a part, and of parts.
    pub halo: u64,
    /// Number of parts.
    pub parts: usize,
    /// Steps between two exchanges.
    pub halo_depth: usize,
    /// The way of values from lane to lane.
    pub exchange: Path,
    /// How rows were shared out over lanes; empty for one lane.
    pub plan: Vec<partitioning::LanePlan>,
}

impl MatrixInfo {
    /// Sums up what parts said, those of other ranks included.
    pub(super) fn over(&mut self, ranks: Ranks, formats: Vec<&str>) {
        self.bytes = ranks.all_reduce_sum(self.bytes);
        self.halo = ranks.all_reduce_max(self.halo as f64) as u64;
        self.ell_width = ranks.all_reduce_max(f64::from(self.ell_width)) as u32;
        let mut all: Vec<String> = Vec::new();
        for format in ranks.all_gather_text(&formats.join("+")).iter().flat_map(|text| text.split('+')) {
            if !format.is_empty() && !all.iter().any(|known| known == format) {
                all.push(format.to_owned());
            }
        }
        self.format = all.join("+");
        let reasons = ranks.all_gather_text(&self.passed_over.join("\n"));
        self.passed_over = reasons.iter().flat_map(|text| text.lines().map(str::to_owned)).collect();
        self.passed_over.sort_unstable();
        self.passed_over.dedup();
    }
}

/// A part's matrix, built.
pub(super) struct Matrix<T> {
    pub(super) chunks: Vec<Chunk<T>>,
    /// Exit rates of the rows, or one number in their place where patterns hold them.
    pub(super) exit: Buffer<T>,
    pub(super) format: MatrixFormat,
    pub(super) passed_over: Vec<String>,
    pub(super) bytes: u64,
}

/// The rows of a part, and how its vectors are laid out.
pub(super) struct Source<'a, T> {
    pub(super) lane: &'a Lane,
    pub(super) region: &'a Region,
    /// The rows of a step in pieces of one kind, global; some rows may lie in two.
    pub(super) pieces: &'a [(Range<usize>, Kind)],
    /// What leaves of each piece, where pieces are stored for that alone.
    pub(super) leaving: Option<Vec<Option<Leaving>>>,
    pub(super) layout: &'a Layout,
    pub(super) exit: &'a [T],
    /// Computed rows of the region, columns local.
    pub(super) row: RowSource<'a>,
}

/// What a matrix may be stored in, and what that takes.
enum Choice<T> {
    Hyb,
    Packed(Dictionary<T>),
    Pair(PairTable<T>),
    Pattern(Patterns<T>),
}

impl<T> Choice<T> {
    fn format(&self) -> MatrixFormat {
        match self {
            Self::Hyb => MatrixFormat::Hyb,
            Self::Packed(_) => MatrixFormat::Packed,
            Self::Pair(_) => MatrixFormat::Pair,
            Self::Pattern(_) => MatrixFormat::Pattern,
        }
    }
}

impl<T: Real> Source<'_, T> {
    /// What its part is going to take of the lane.
    ///
    /// # Errors
    /// A format that the matrix does not fit, asked for by name.
    pub(super) fn plan(&self, format: MatrixFormat) -> Result<Need> {
        let (choice, _) = self.choose(format)?;
        Ok(self.need(choice.format(), self.bytes(&choice)))
    }

    fn need(&self, format: MatrixFormat, matrix: u64) -> Need {
        let (device, real) = (self.lane.device(), T::PRECISION.bytes());
        Need {
            device: device.spec.clone(),
            name: device.name.clone(),
            rows: self.region.rows.len(),
            entries: self.region.entries,
            format: format.name(),
            matrix,
            vectors: (2 * self.region.len() + self.region.computed.len()) as u64 * real,
            free: self.lane.free_bytes(),
        }
    }

    /// Bytes of the matrix in a format, exit rates included.
    fn bytes(&self, choice: &Choice<T>) -> u64 {
        let real = T::PRECISION.bytes();
        let start = self.region.computed.start;
        let slices = |rows: &Range<usize>| (rows.start - start) / SLICE..(rows.end - start).div_ceil(SLICE);
        let stored: u64 = self.pieces.iter().map(|(rows, _)| self.layout.stored_in(slices(rows))).sum();
        let rows: usize = self.pieces.iter().map(|(rows, _)| rows.len()).sum();
        let exit = self.rows() as u64 * real;
        match choice {
            Choice::Hyb => stored * (4 + real) + exit,
            Choice::Packed(d) => 4 * stored + exit + d.values.len() as u64 * real,
            Choice::Pair(t) => stored + exit + t.values.len() as u64 * (4 + real),
            Choice::Pattern(p) => p.bytes(rows),
        }
    }

    fn rows(&self) -> usize {
        self.region.computed.len()
    }

    /// Builds the matrix in a format on the lane.
    ///
    /// # Errors
    /// A format that the matrix does not fit, asked for by name; lack of memory.
    pub(super) fn build(&self, format: MatrixFormat) -> Result<Matrix<T>> {
        let (choice, passed_over) = self.choose(format)?;
        // What is missing is said before minutes of building, not after.
        self.need(choice.format(), self.bytes(&choice)).expect()?;
        let mut bytes = 0;
        let inside = matches!(&choice, Choice::Pattern(p) if !p.exit_apart);
        let exit = if inside { &self.exit[..self.exit.len().min(1)] } else { self.exit };
        let exit = self.lane.alloc_with("the exit rates", exit)?;
        bytes += exit.bytes();
        let format = choice.format();
        let mut chunks = Vec::new();
        for (piece, rows) in self.cut(&choice)? {
            let (first, (within, kind)) = (rows.start, &self.pieces[piece]);
            let before = within.start - self.region.computed.start;
            let leaving = self.leaving.as_ref().and_then(|leaving| leaving[piece].as_ref());
            let leaving = leaving.map(|leaving| leaving.of(&(first - before..rows.end - before)));
            let list = leaving.as_ref().map_or(&[][..], |leaving| &leaving.rows);
            let (rows, listed, stored) = match &choice {
                Choice::Pattern(patterns) => {
                    let (listed, stored) = self.patterns(patterns, rows.clone(), list)?;
                    (rows.len(), listed, stored)
                }
                _ => self.slices(&choice, rows, list)?,
            };
            bytes += stored.bytes();
            let leaving = leaving.as_ref().filter(|_| !list.is_empty()).map(|leaving| Leaves {
                taker: leaving.taker,
                places: (leaving.place as u32, (leaving.place + list.len()) as u32),
                listed,
            });
            chunks.push(Chunk { kind: *kind, first, rows, leaving, stored });
        }
        Ok(Matrix { chunks, exit, format, passed_over, bytes })
    }

    /// Ranges of rows that are built and bound at once, each with the number of its piece.
    fn cut(&self, choice: &Choice<T>) -> Result<Vec<(usize, Range<usize>)>> {
        let mut all = Vec::new();
        for (piece, (rows, _)) in self.pieces.iter().enumerate() {
            // Local to the computed rows.
            let start = self.region.computed.start;
            let ranges = self.cut_piece(choice, rows.start - start..rows.end - start)?;
            all.extend(ranges.into_iter().map(|range| (piece, range)));
        }
        Ok(all)
    }

    fn cut_piece(&self, choice: &Choice<T>, rows: Range<usize>) -> Result<Vec<Range<usize>>> {
        let (real, limits) = (T::PRECISION.bytes(), self.lane.device().limits);
        let most = limits.binding.min(limits.buffer);
        let entry = match choice {
            Choice::Pattern(p) => {
                let most = ((most / p.id_bytes()) as usize / BLOCK * BLOCK).max(BLOCK);
                let starts = rows.clone().step_by(most);
                return Ok(starts.map(|first| first..first.saturating_add(most).min(rows.end)).collect());
            }
            Choice::Hyb => real,
            Choice::Packed(_) => 4,
            Choice::Pair(_) => 1,
        };
        let host = if limits.unified { CHUNK_ENTRIES } else { CHUNK_ENTRIES_DEVICE };
        let chunks = cut(self.layout, rows.start / SLICE..rows.end.div_ceil(SLICE), host.min(most / entry));
        chunks.iter().try_for_each(|chunk| check_chunk(self.layout, chunk, self.lane, entry))?;
        let whole = |chunk: Range<usize>| chunk.start * SLICE..(chunk.end * SLICE).min(self.rows());
        Ok(chunks.into_iter().map(whole).collect())
    }

    /// Some rows in slices, and where in their words those of `list` are: how many rows, that place, and the arrays.
    fn slices(
        &self,
        choice: &Choice<T>,
        rows: Range<usize>,
        list: &[u32],
    ) -> Result<(usize, u32, Stored<T>)> {
        let (layout, total, row) = (self.layout, self.rows(), self.row);
        let slices = rows.start / SLICE..rows.end.div_ceil(SLICE);
        let put = |what: &str, words: &[u32]| self.lane.alloc_with(what, words);
        const SLICES: &str = "the matrix's slices";
        const ENTRIES: &str = "the matrix's entries";
        Ok(match choice {
            Choice::Packed(dictionary) => {
                let column_bits = column_bits(self.region.len());
                let mut packed =
                    self.lane.host(|| Packed::build(layout, slices, total, column_bits, dictionary, row));
                let at = append(&mut packed.slices, list);
                let (slices, entries) = (put(SLICES, &packed.slices)?, put(ENTRIES, &packed.entries)?);
                let values = self.lane.alloc_with("distinct rates", &dictionary.values)?;
                (packed.rows, at, Stored::Packed { slices, entries, values, column_bits })
            }
            Choice::Pair(table) => {
                let own = self.region.left;
                let mut pairs = self.lane.host(|| Pairs::build(layout, slices, total, own, table, row));
                let offsets = pairs.slices.len() as u32;
                pairs.slices.extend(&table.offsets);
                let at = append(&mut pairs.slices, list);
                let (slices, entries) = (put(SLICES, &pairs.slices)?, put(ENTRIES, &pairs.entries)?);
                let values = self.lane.alloc_with("distinct rates", &table.values)?;
                (pairs.rows, at, Stored::Pair { slices, entries, values, offsets })
            }
            _ => {
                let mut hyb = self.lane.host(|| Hyb::<T>::build(layout, slices, total, row));
                let at = append(&mut hyb.slices, list);
                let columns = put("the matrix's columns", &hyb.columns)?;
                let values = self.lane.alloc_with("the matrix's values", &hyb.values)?;
                (hyb.rows, at, Stored::Hyb { slices: put(SLICES, &hyb.slices)?, columns, values })
            }
        })
    }

    /// Some rows as patterns, and where in their words those of `list` are.
    fn patterns(&self, patterns: &Patterns<T>, rows: Range<usize>, list: &[u32]) -> Result<(u32, Stored<T>)> {
        let ids = &patterns.ids[rows];
        let (words, ids_log) = match patterns.id_bytes() {
            1 => (words::<u8>(ids.iter().map(|&id| id as u8), 4), 2),
            _ => (words::<u16>(ids.iter().copied(), 2), 1),
        };
        let (at, tables) = match list {
            [] => (0, None),
            _ => {
                let mut tables = patterns.words.clone();
                let at = append(&mut tables, list);
                // Kernels read words in fours.
                tables.resize(tables.len().next_multiple_of(4), 0);
                (at, Some(tables))
            }
        };
        let stored = Stored::Pattern {
            ids: self.lane.alloc_with("the rows' patterns", &words)?,
            patterns: self.lane.alloc_with("patterns", tables.as_ref().unwrap_or(&patterns.words))?,
            values: self.lane.alloc_with("patterns", &patterns.values)?,
            params: step_pattern::Params {
                ids_log,
                pointers: patterns.pointers() as u32,
                groups: patterns.groups as u32,
                value_bits: patterns.value_bits,
                least: patterns.least,
                dictionary: patterns.dictionary() as u32,
                exit_apart: u32::from(patterns.exit_apart),
                ..Default::default()
            },
        };
        Ok((at, stored))
    }

    /// Why this lane is slower with a format than with the next, although that moves more bytes.
    fn slow(&self, choice: &Choice<T>) -> Option<String> {
        if !self.lane.device().host {
            return None;
        }
        match choice {
            // A pair costs two lookups beside the gather of x: more than its bytes save.
            Choice::Pair(_) => Some("three gathers an entry are slower here than one".to_owned()),
            Choice::Pattern(p) => {
                let missed = tiles::missed(&p.ids);
                (missed > MOST_MISSED).then(|| format!("{:.1} % of its tiles do not recur", 100.0 * missed))
            }
            _ => None,
        }
    }

    /// The format asked for, or that which moves the fewest bytes, and why smaller ones were passed over.
    fn choose(&self, format: MatrixFormat) -> Result<(Choice<T>, Vec<String>)> {
        if format == MatrixFormat::Hyb {
            return Ok((Choice::Hyb, Vec::new()));
        }
        let bits = column_bits(self.region.len());
        let most_values = if bits < 32 { 1 << (32 - bits) } else { 0 };
        let width = |row: usize| self.layout.widths[row / SLICE];
        let own = self.region.left;
        let rows = repetition::Rows { rows: self.rows(), own, exit: self.exit, width: &width, row: self.row };
        let found = self.lane.host(|| repetition::find(&rows, most_values));
        let Repetition { patterns, pairs, values } = found;
        let candidates = [
            (MatrixFormat::Pattern, patterns.map(Choice::Pattern)),
            (MatrixFormat::Pair, pairs.map(|pairs| Choice::Pair(PairTable::new(&pairs)))),
            (MatrixFormat::Packed, values.map(|values| Choice::Packed(Dictionary::new(values)))),
            (MatrixFormat::Hyb, Ok(Choice::Hyb)),
        ];
        let mut best: Option<(Choice<T>, u64)> = None;
        let mut passed_over = Vec::new();
        for (candidate, choice) in candidates {
            match choice {
                Ok(choice) if candidate == format => return Ok((choice, Vec::new())),
                Ok(choice) => {
                    if self.lane.is_slow_with(candidate.name()) {
                        passed_over
                            .push(format!("{candidate}: measured slower than hyb here by `kolmo tune`"));
                        continue;
                    }
                    if let Some(why) = self.slow(&choice) {
                        passed_over.push(format!("{candidate}: {why}"));
                        continue;
                    }
                    let bytes = self.bytes(&choice);
                    if best.as_ref().is_none_or(|&(_, least)| bytes < least) {
                        best = Some((choice, bytes));
                    }
                }
                Err(why) if candidate == format => {
                    return Err(Error::Invalid(format!(
                        "--matrix-format {format}: {} rows have {why}; give auto, or a format that needs less repetition",
                        self.rows()
                    )));
                }
                Err(why) => passed_over.push(format!("{candidate}: {why}")),
            }
        }
        let (choice, _) = best.expect("HYB stores every matrix");
        Ok((choice, passed_over))
    }
}

/// Appends to words what kernels look for there, and tells where it lies.
fn append(words: &mut Vec<u32>, more: &[u32]) -> u32 {
    let at = words.len() as u32;
    words.extend(more);
    at
}

/// Numbers, `per` of them a word.
fn words<I: bytemuck::Pod + Default>(ids: impl ExactSizeIterator<Item = I>, per: usize) -> Vec<u32> {
    let mut words = vec![0u32; ids.len().div_ceil(per)];
    for (out, id) in bytemuck::cast_slice_mut::<u32, I>(&mut words).iter_mut().zip(ids) {
        *out = id;
    }
    words
}

impl<T: Real> Stored<T> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Hyb { slices, columns, values } => slices.bytes() + columns.bytes() + values.bytes(),
            Self::Packed { slices, entries, values, .. } | Self::Pair { slices, entries, values, .. } => {
                slices.bytes() + entries.bytes() + values.bytes()
            }
            Self::Pattern { ids, patterns, values, .. } => ids.bytes() + patterns.bytes() + values.bytes(),
        }
    }

    /// Threads that the step's kernel runs with. A group of patterns takes several blocks of rows, which share what it
    /// keeps at hand, once there are groups enough for every device.
    fn threads(&self, rows: usize) -> usize {
        const GROUPS: usize = 4096;
        const MOST_BLOCKS: usize = 8;
        match self {
            Self::Pattern { .. } => rows.div_ceil((rows / BLOCK / GROUPS).clamp(1, MOST_BLOCKS)),
            _ => rows,
        }
    }
}

impl<T: Real> Chunk<T> {
    /// The step of these rows from x[source].
    pub(crate) fn step(&self, lane: &Lane, part: &Part<T>, source: usize, sum: &Sum<'_>) -> Result<Launch> {
        self.launch(lane, part, source, sum, 0..self.rows, None)
    }

    /// The step of those that are the part's own, if there are some.
    pub(crate) fn step_own(
        &self,
        lane: &Lane,
        part: &Part<T>,
        source: usize,
        sum: &Sum<'_>,
    ) -> Result<Option<Launch>> {
        let own = part.ghosts()..part.ghosts() + part.rows.len();
        let rows = own.start.max(self.first)..own.end.min(self.first + self.rows);
        if rows.is_empty() {
            return Ok(None);
        }
        let rows = rows.start - self.first..rows.end - self.first;
        self.launch(lane, part, source, sum, rows, None).map(Some)
    }

    /// The step of those that leave, to where they do so from.
    pub(super) fn step_leaving(
        &self,
        lane: &Lane,
        part: &Part<T>,
        source: usize,
        sum: &Sum<'_>,
        (leaves, to): (Leaves, &Buffer<T>),
    ) -> Result<Launch> {
        let (first, end) = leaves.places;
        self.launch(lane, part, source, sum, first as usize..end as usize, Some((leaves.listed, to)))
    }

    /// The step of some rows, or of listed ones to these places of an array.
    fn launch(
        &self,
        lane: &Lane,
        part: &Part<T>,
        source: usize,
        sum: &Sum<'_>,
        rows: Range<usize>,
        listed: Option<(u32, &Buffer<T>)>,
    ) -> Result<Launch> {
        let all = rows.start == 0 && listed.is_none();
        let (listed, y) = listed.unwrap_or((0, &part.x[1 - source]));
        macro_rules! bind {
            ([$whole:ident, $some:ident], $kernel:ident($($array:ident),*)($($own:tt)*)) => {{
                let params = $kernel::Params {
                    step: 0,
                    window_first: sum.window.start as u32,
                    window_end: sum.window.end as u32,
                    weights: sum.weights as u32,
                    rows: rows.end as u32,
                    first_row: self.first as u32,
                    own: part.base() as u32,
                    begin: rows.start as u32,
                    listed,
                    $($own)*
                };
                let args = $kernel::Args {
                    $($array: $array.arg(),)*
                    exit: part.exit.arg(),
                    scalars: sum.scalars,
                    x: part.x[source].arg(),
                    y: y.arg(),
                    acc: sum.acc,
                };
                let kernel = if all { &step::$whole } else { &step::$some };
                lane.bind(kernel, T::PRECISION, self.stored.threads(rows.len()), params, args)
            }};
        }
        match &self.stored {
            Stored::Hyb { slices, columns, values } => {
                bind!([STEP, STEP_SOME], step_hyb(slices, columns, values)())
            }
            Stored::Packed { slices, entries, values, column_bits } => {
                let own = *column_bits;
                bind!([STEP_PACKED, STEP_PACKED_SOME], step_packed(slices, entries, values)(column_bits: own))
            }
            Stored::Pair { slices, entries, values, offsets } => {
                let own = *offsets;
                bind!([STEP_PAIR, STEP_PAIR_SOME], step_pair(slices, entries, values)(offsets: own))
            }
            Stored::Pattern { ids, patterns, values, params } => {
                bind!([STEP_PATTERN, STEP_PATTERN_SOME], step_pattern(ids, patterns, values)(..*params))
            }
        }
    }

    /// Slices, columns and values, if these rows are stored in HYB.
    pub(crate) fn hyb(&self) -> Option<[Arg<'_>; 3]> {
        match &self.stored {
            Stored::Hyb { slices, columns, values } => Some([slices.arg(), columns.arg(), values.arg()]),
            _ => None,
        }
    }
}

/// Entries are numbered in 32 bits on a device, and a chunk is at least one block of rows: a chain with rows of
/// hundreds of millions of entries does not fit.
fn check_chunk(layout: &Layout, chunk: &Range<usize>, lane: &Lane, entry: u64) -> Result<()> {
    let ell: u64 = layout.widths[chunk.clone()].iter().map(|&w| u64::from(w) * SLICE as u64).sum();
    let entries = ell + layout.tails[chunk.clone()].iter().map(|&t| u64::from(t)).sum::<u64>();
    let limit = (lane.device().limits.binding / entry).min(u64::from(u32::MAX) - 1);
    if entries <= limit {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: lane.device().name.clone(),
        what: format!("the rows from {} on, {entries} entries in {BLOCK} rows", chunk.start * SLICE),
        asked: entries * (entry + 4),
        limit: format!("it takes {limit} entries at a time; use a smaller --ell-width, or --device cpu"),
    })
}
