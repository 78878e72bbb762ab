//! The matrix of a part: the choice of its format, and its chunks on the lane.

use std::ops::Range;

use super::chunk::{Chunk, StoredMatrix};
use super::memory_requirement::MemoryRequirement;
use super::pattern_kernel::step_pattern;
use crate::kernel::Number;
use crate::lane::{Buffer, Lane};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::dictionary_search::{self, Repetition, most_values};
use crate::sparse::pattern_tiles;
use crate::sparse::patterns::Patterns;
use crate::sparse::{BLOCK, Coded, CsrMatrix, Dictionary, Hyb, HybLayout, MatrixFormat, Repeats};
use crate::sparse::{SLICE, column_bits, cut};
use crate::transient::chain::scan::append_entries;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;
use crate::transient::partition::Partition;
use crate::transient::partition::subdomain::{Piece, Region};
pub(crate) use crate::transient::solution::MatrixInfo;
use crate::util::memory::zeroed;
use crate::{Error, Invalid, Limit, Result};

/// Maximum number of entries of a chunk built at once on the host; limits temporary memory.
const CHUNK_ENTRIES: u64 = 1 << 26;
/// Maximum number of entries of a chunk for devices with their own memory.
///
/// There fewer and larger launches matter more.
const CHUNK_ENTRIES_DEVICE: u64 = 1 << 28;

/// Largest share of tiles that a CPU may have to decode again at every step.
///
/// Decoding a tile takes some hundred times as long as using it.
const MOST_MISSED: f64 = 1.0 / 256.0;

impl MatrixInfo {
    /// Describes the layout of a chain's matrix and its partition over lanes.
    pub(crate) fn new(layout: &HybLayout, partition: &Partition) -> Self {
        Self {
            ell_width: layout.widths.iter().copied().max().unwrap_or(0),
            halo: partition.own_regions().iter().map(|r| r.halo.len() as u64).max().unwrap_or(0),
            parts: partition.regions.len(),
            halo_depth: partition.halo_depth,
            exchange: partition.exchange,
            plan: partition.plan.clone(),
            ..Self::default()
        }
    }

    /// Computes the shares of COO entries and of padding over the rows of all ranks.
    ///
    /// `rows` are this rank's own rows; the layout begins at row `first`. Rows of remote ranks that
    /// are computed here as well do not count.
    pub(crate) fn count_entries(
        &mut self,
        layout: &HybLayout,
        first: usize,
        rows: &Range<usize>,
        lengths: &[u32],
        ranks: Ranks,
    ) {
        let own = layout_of(layout, rows.start - first..rows.end - first);
        let tail: u64 = ranks.all_reduce_sum(own.tails.iter().map(|&t| u64::from(t)).sum());
        let entries = lengths.par_iter().map(|&l| u64::from(l)).reduce(|| 0, |a, b| a + b);
        let entries: u64 = ranks.all_reduce_sum(entries);
        let ell = ranks.all_reduce_sum(own.stored()) - tail;
        self.coo_share = tail as f64 / entries.max(1) as f64;
        self.padding = (ell - (entries - tail)) as f64 / ell.max(1) as f64;
    }

    /// Replaces the properties of this rank's rows by those of the matrix over all ranks.
    ///
    /// Bytes are added, halo and ELL width are maxima, formats and reasons are united. `formats`
    /// are those of this rank's parts. All ranks must call this function.
    pub(crate) fn over(&mut self, ranks: Ranks, formats: Vec<&str>) {
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

/// The matrix of a part, stored on its lane.
#[derive(Debug, Clone)]
pub(crate) struct PartMatrix<T> {
    pub(crate) chunks: Vec<Chunk<T>>,
    /// Exit rates of the computed rows; a placeholder if the patterns contain them.
    pub(crate) exit: Buffer<T>,
    pub(crate) format: MatrixFormat,
    pub(crate) passed_over: Vec<String>,
    pub(crate) bytes: u64,
}

/// Computed rows of a part, and the data from which its matrix is built.
pub(crate) struct MatrixSource<'a, T> {
    pub(super) lane: &'a Lane,
    transitions: &'a dyn Transitions,
    pub(super) statistics: &'a MatrixStatistics<T>,
    pub(super) region: &'a Region,
    pieces: Vec<Piece>,
    /// Layout of the computed rows.
    layout: HybLayout,
    exit: &'a [T],
    /// Computed rows that equal other rows.
    repeats: Repeats,
    /// Entries of each element of several vectors side by side, as
    /// [`STEP_DERIVATIVES`](super::kernels::STEP_DERIVATIVES) reads them.
    derivatives: Option<&'a CsrMatrix>,
}

/// Number of steps above which a trial of the formats pays: it takes the time of up to 20 steps,
/// and saves up to a third of each.
const WORTH_A_TRIAL: f64 = 200.0;

/// Size in bytes up to which a GPU reads a HYB matrix in about the time of a launch, so that the
/// search for a smaller format does not pay.
const WITHIN_A_LAUNCH: u64 = 4 << 20;

/// A matrix format with the tables that it needs.
pub(super) enum Choice<T> {
    Hyb,
    Packed(Dictionary<T>),
    Pattern(Patterns<T>),
}

impl<T> Choice<T> {
    fn format(&self) -> MatrixFormat {
        match self {
            Self::Hyb => MatrixFormat::Hyb,
            Self::Packed(_) => MatrixFormat::Packed,
            Self::Pattern(_) => MatrixFormat::Pattern,
        }
    }
}

/// Returns the layout of column `c` of the derivatives, of which `width` are side by side.
fn derivative_layout(derivatives: &CsrMatrix, rows: &Range<usize>, width: usize, c: usize) -> HybLayout {
    let length = |row: usize| derivatives.row(row * width + c).0.len() as u32;
    HybLayout::new(&rows.clone().map(length).collect::<Vec<_>>(), size_of::<f64>() as u64)
}

impl<'a, T: Number> MatrixSource<'a, T> {
    /// Prepares the rows of one region.
    ///
    /// `statistics` and `layout` are those of the chain's computed rows.
    pub(crate) fn new(
        lane: &'a Lane,
        transitions: &'a dyn Transitions,
        statistics: &'a MatrixStatistics<T>,
        layout: &HybLayout,
        region: &'a Region,
        regions: &[Region],
        halo_depth: usize,
    ) -> Self {
        let first = statistics.rows.start;
        let computed = region.computed.start - first..region.computed.end - first;
        let (layout, exit) = (layout_of(layout, computed.clone()), &statistics.exit[computed]);
        let pieces = region.pieces(regions, halo_depth);
        let repeats = transitions.repeats_among(&region.computed);
        Self { lane, transitions, statistics, region, pieces, layout, exit, repeats, derivatives: None }
    }

    /// Adds the entries of derivatives, for the format HYB.
    pub(crate) fn derivatives(self, derivatives: Option<&'a CsrMatrix>) -> Self {
        Self { derivatives, ..self }
    }

    /// Appends a computed row of the region, with local column indices.
    fn row(&self, row: usize, entries: &mut Vec<(u32, T)>) {
        // A part without a halo reads its own rows alone, but does not begin at the chain's first.
        let apart = self.region.rows.start > 0 || self.region.len() > self.region.rows.len();
        let local = |column| if apart { self.region.local(column) } else { column };
        let row = self.region.computed.start + row;
        append_entries(self.transitions, self.statistics, row, local, entries);
    }

    /// Returns the memory that the part will take on the lane.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a requested format that does not fit the matrix.
    pub(crate) fn plan(&self, format: MatrixFormat) -> Result<MemoryRequirement> {
        let (choice, _) = self.choose(format)?;
        Ok(self.need(choice.format(), self.bytes(&choice)))
    }

    fn need(&self, format: MatrixFormat, matrix: u64) -> MemoryRequirement {
        let (device, real) = (self.lane.device(), T::PRECISION.bytes());
        MemoryRequirement {
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

    /// Returns the bytes of the matrix in a format, including exit rates.
    pub(super) fn bytes(&self, choice: &Choice<T>) -> u64 {
        let real = T::PRECISION.bytes();
        let start = self.region.computed.start;
        let slices = |rows: &Range<usize>| (rows.start - start) / SLICE..(rows.end - start).div_ceil(SLICE);
        let stored: u64 = self.pieces.iter().map(|piece| self.layout.stored_in(slices(&piece.rows))).sum();
        let rows: usize = self.pieces.iter().map(|piece| piece.rows.len()).sum();
        let exit = self.rows() as u64 * real;
        match choice {
            Choice::Hyb => {
                let pointers = self.derivatives.map_or(0, CsrMatrix::rows) as u64;
                (stored + self.added()) * (4 + real) + exit + 4 * pointers
            }
            Choice::Packed(d) => 4 * stored + exit + d.values.len() as u64 * real,
            Choice::Pattern(p) => p.bytes(rows),
        }
    }

    /// Returns the number of stored entries of derivatives.
    fn added(&self) -> u64 {
        let Some(derivatives) = self.derivatives else { return 0 };
        let (host, rows) = (self.lane.device().host, 0..self.rows());
        let width = derivatives.rows() / rows.len().max(1);
        let sliced = |c| derivative_layout(derivatives, &rows, width, c).stored() + SLICE as u64;
        if host { (1..width).map(sliced).sum() } else { derivatives.nnz() as u64 }
    }

    pub(super) fn rows(&self) -> usize {
        self.region.computed.len()
    }

    /// Builds the matrix in a format on the lane.
    ///
    /// # Errors
    /// A requested format that does not fit the matrix; lack of memory.
    pub(crate) fn build(&self, format: MatrixFormat) -> Result<PartMatrix<T>> {
        let (choice, passed_over) = self.choose(format)?;
        // Lack of memory is reported before minutes of building, not after.
        self.need(choice.format(), self.bytes(&choice)).expect()?;
        let mut bytes = 0;
        let inside = matches!(&choice, Choice::Pattern(p) if !p.exit_apart);
        let exit = if inside { &self.exit[..self.exit.len().min(1)] } else { self.exit };
        let exit = self.lane.alloc_with("the exit rates", exit)?;
        bytes += exit.bytes();
        let format = choice.format();
        let mut chunks = Vec::new();
        for (piece, rows) in self.cut(&choice)? {
            let (first, count) = (rows.start, rows.len());
            let stored = self.stored(&choice, rows)?;
            bytes += stored.bytes();
            chunks.push(Chunk { kind: piece.kind, first, rows: count, stored });
        }
        Ok(PartMatrix { chunks, exit, format, passed_over, bytes })
    }

    /// Returns ranges of computed rows, counted from 0, that are built at once, with their
    /// [`Piece`]s.
    fn cut(&self, choice: &Choice<T>) -> Result<Vec<(&Piece, Range<usize>)>> {
        let mut all = Vec::new();
        let start = self.region.computed.start;
        for piece in &self.pieces {
            let ranges = self.cut_piece(choice, piece.rows.start - start..piece.rows.end - start)?;
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
        };
        let host = if limits.unified { CHUNK_ENTRIES } else { CHUNK_ENTRIES_DEVICE };
        let slices = rows.start / SLICE..rows.end.div_ceil(SLICE);
        // Derivatives take a share of each chunk.
        let stored = self.layout.stored_in(slices.clone()).max(1);
        let share = stored as f64 / (stored + self.added()) as f64;
        let chunks = cut(&self.layout, slices, (host.min(most / entry) as f64 * share) as u64);
        chunks.iter().try_for_each(|chunk| check_chunk(&self.layout, chunk, self.lane, entry))?;
        let whole = |chunk: Range<usize>| chunk.start * SLICE..(chunk.end * SLICE).min(self.rows());
        Ok(chunks.into_iter().map(whole).collect())
    }

    /// Stores some rows.
    pub(super) fn stored(&self, choice: &Choice<T>, rows: Range<usize>) -> Result<StoredMatrix<T>> {
        let row = &|row: usize, entries: &mut Vec<(u32, T)>| self.row(row, entries);
        let (layout, total) = (&self.layout, self.rows());
        let slices = rows.start / SLICE..rows.end.div_ceil(SLICE);
        let put = |what: &str, words: &[u32]| self.lane.alloc_with(what, words);
        const SLICES: &str = "the matrix's slices";
        Ok(match choice {
            Choice::Pattern(patterns) => return self.patterns(patterns, rows),
            Choice::Packed(dictionary) => {
                let column_bits = column_bits(self.region.len());
                let packed = Coded::packed(layout, slices, total, column_bits, dictionary, row);
                let slices = put(SLICES, &packed.slices)?;
                let entries = put("the matrix's entries", &packed.entries)?;
                let values = self.lane.alloc_with("distinct rates", &dictionary.values)?;
                StoredMatrix::Packed { slices, entries, values, column_bits }
            }
            Choice::Hyb => {
                let mut hyb = Hyb::<T>::build(layout, slices, total, row);
                if let Some(derivatives) = self.derivatives {
                    let width = derivatives.rows() / total;
                    if self.lane.device().host {
                        let slices = 0..rows.len().div_ceil(SLICE);
                        hyb.append_parts((1..width).map(|c| {
                            let element = |row: usize| derivatives.row((rows.start + row) * width + c);
                            let entries = |row: usize, to: &mut Vec<(u32, T)>| {
                                let (columns, values) = element(row);
                                let columns = columns.iter().map(|column| column * width as u32);
                                to.extend(columns.zip(values.iter().map(|value| T::entry(*value, 1.0))));
                            };
                            let layout = derivative_layout(derivatives, &rows, width, c);
                            Hyb::build(&layout, slices.clone(), rows.len(), &entries)
                        }));
                    } else {
                        hyb.append(derivatives, rows.start * width..rows.end * width);
                    }
                    expect_entries(hyb.values.len() as u64, self.lane, T::PRECISION.bytes(), || {
                        format!("the rows from {} on with their derivatives", rows.start)
                    })?;
                }
                let columns = put("the matrix's columns", &hyb.columns)?;
                let values = self.lane.alloc_with("the matrix's values", &hyb.values)?;
                StoredMatrix::Hyb { slices: put(SLICES, &hyb.slices)?, columns, values }
            }
        })
    }

    /// Stores some rows as patterns.
    fn patterns(&self, patterns: &Patterns<T>, rows: Range<usize>) -> Result<StoredMatrix<T>> {
        let ids = &patterns.ids[rows];
        let (words, ids_log) = match patterns.id_bytes() {
            1 => (words(ids, |id| id as u8), 2),
            _ => (words(ids, |id| id), 1),
        };
        Ok(StoredMatrix::Pattern {
            ids: self.lane.alloc_with("the rows' patterns", &words)?,
            patterns: self.lane.alloc_with("patterns", &patterns.words)?,
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
        })
    }

    /// Finds repeated values and patterns in the rows.
    fn repetition(&self) -> Repetition<T> {
        let (all, own) = (self.transitions.states(), &self.region);
        let known = self.transitions.prescan().and_then(|prescan| prescan.take_repetition::<T>());
        if let Some((layout, found)) = known
            && (own.rows.len(), own.len()) == (all, all)
            && layout.widths == self.layout.widths
        {
            return found;
        }
        let width = |row: usize| self.layout.widths[row / SLICE];
        let row = &|row: usize, entries: &mut Vec<(u32, T)>| self.row(row, entries);
        let (repeats, exit, own) = (&self.repeats, self.exit, self.region.left);
        let rows = dictionary_search::RowSet { repeats, own, exit, width: &width, row };
        dictionary_search::find(&rows, most_values(self.region.len()))
    }

    /// Returns a reason if patterns are too slow for a CPU lane to try them.
    fn slow(&self, choice: &Choice<T>) -> Option<String> {
        let Choice::Pattern(patterns) = choice else { return None };
        let missed = if self.lane.device().host { pattern_tiles::missed(&patterns.ids) } else { 0.0 };
        (missed > MOST_MISSED).then(|| format!("{:.1} % of its tiles do not recur", 100.0 * missed))
    }

    /// Returns the requested format, or the one with the fastest step.
    ///
    /// A CPU lane measures it if the run has enough steps. Otherwise it is the format that moves
    /// the fewest bytes. Also returns the reasons against other formats.
    fn choose(&self, format: MatrixFormat) -> Result<(Choice<T>, Vec<String>)> {
        let launched = !self.lane.device().on_host_cores() && self.bytes(&Choice::Hyb) <= WITHIN_A_LAUNCH;
        if format == MatrixFormat::Hyb || format == MatrixFormat::Auto && launched {
            return Ok((Choice::Hyb, Vec::new()));
        }
        let Repetition { patterns, values } = self.repetition();
        let candidates = [
            (MatrixFormat::Pattern, patterns.map(Choice::Pattern)),
            (MatrixFormat::Packed, values.map(|values| Choice::Packed(Dictionary::new(values)))),
            (MatrixFormat::Hyb, Ok(Choice::Hyb)),
        ];
        let mut usable = Vec::new();
        let mut passed_over = Vec::new();
        for (candidate, choice) in candidates {
            match choice {
                Ok(choice) if candidate == format => return Ok((choice, Vec::new())),
                Ok(choice) => match self.slow(&choice) {
                    Some(why) => passed_over.push(format!("{candidate}: {why}")),
                    None => usable.push(choice),
                },
                Err(why) if candidate == format => {
                    return Invalid::Argument("matrix_format").fail(format!(
                        "`matrix_format` {format} is not supported for this chain: {} rows have \
                         {why}; use auto, or a format that needs less repetition",
                        self.rows()
                    ));
                }
                Err(why) => passed_over.push(format!("{candidate}: {why}")),
            }
        }
        let choices: Vec<&Choice<T>> = usable.iter().collect();
        let tries = self.lane.device().host && choices.len() > 1 && self.statistics.steps >= WORTH_A_TRIAL;
        // If memory does not suffice, the caller finds out.
        let tried = tries.then(|| self.lane.unnoticed(|| self.trial(&choices)).ok()).flatten();
        let by_bytes = || choices.iter().map(|choice| self.bytes(choice) as f64).collect();
        let costs: Vec<f64> = tried.unwrap_or_else(by_bytes);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let at = costs.iter().position(|&cost| cost == least).expect("HYB stores every matrix");
        if tries {
            let others = usable.iter().zip(&costs).enumerate().filter(|&(i, _)| i != at);
            passed_over.extend(others.map(|(_, (choice, cost))| {
                format!("{}: a step took {:.2} x the time", choice.format(), cost / least)
            }));
        }
        Ok((usable.swap_remove(at), passed_over))
    }
}

/// Returns the layout of a range of rows.
fn layout_of(layout: &HybLayout, rows: Range<usize>) -> HybLayout {
    let slices = rows.start / SLICE..rows.end.div_ceil(SLICE);
    HybLayout { widths: layout.widths[slices.clone()].to_vec(), tails: layout.tails[slices].to_vec() }
}

/// Packs `number(id)` of each id into 32-bit words, several to a word.
fn words<I: bytemuck::Pod + Send>(ids: &[u16], number: impl Fn(u16) -> I + Sync) -> Vec<u32> {
    let mut words: Vec<u32> = zeroed(ids.len().div_ceil(size_of::<u32>() / size_of::<I>()));
    let out = bytemuck::cast_slice_mut::<u32, I>(&mut words);
    out.par_iter_mut().zip(ids).with_min_len(1 << 14).for_each(|(out, &id)| *out = number(id));
    words
}

/// Checks that the entries of a chunk can be numbered in 32 bits on the lane's device.
///
/// A chunk has at least one block of rows. So a chain with rows of hundreds of millions of entries
/// does not fit.
fn check_chunk(layout: &HybLayout, chunk: &Range<usize>, lane: &Lane, entry: u64) -> Result<()> {
    let ell: u64 = layout.widths[chunk.clone()].iter().map(|&w| u64::from(w) * SLICE as u64).sum();
    let entries = ell + layout.tails[chunk.clone()].iter().map(|&t| u64::from(t)).sum::<u64>();
    expect_entries(entries, lane, entry, || {
        format!("the rows from {} on, {entries} entries in {BLOCK} rows", chunk.start * SLICE)
    })
}

/// Returns an error if the lane's device cannot bind an array of `entries` entries.
fn expect_entries(entries: u64, lane: &Lane, entry: u64, what: impl FnOnce() -> String) -> Result<()> {
    let limit = (lane.device().limits.binding / entry).min(u64::from(u32::MAX) - 1);
    if entries <= limit {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: lane.device().name.clone(),
        what: what(),
        asked: entries * (entry + 4),
        limit: Limit::Allocation(format!("the limit is {limit} entries at a time; use `device` cpu")),
    })
}
