//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part wherever it can bind the gathered vector, and more where it cannot. Rows are cut at multiples
//! of 256; a part keeps x locally as \[left halo | own rows | right halo\]. Columns are renumbered so, in ascending
//! order: every row adds its terms in the order of the whole matrix, and the answer has the same bits however rows
//! are cut. Halos are brought up to date after every step, by a kernel between parts of one lane and through the
//! host between lanes. Accumulators never travel.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::bound::Survey;
use super::chain::Transitions;
use super::kernels::GATHER;
use crate::kernel::Real;
use crate::lane::{Buffer, Lane, Launch};
use crate::sparse::{BLOCK, Hyb, Layout, SLICE, WidthRule, cut};
use crate::{Error, Result};

/// Largest chunk built at once on the host, in entries: bounds what building takes beside the result.
const CHUNK_ENTRIES: u64 = 1 << 26;
/// The same for devices with memory of their own, where fewer and larger launches count for more.
const CHUNK_ENTRIES_DEVICE: u64 = 1 << 28;

/// Consecutive rows on a lane.
#[derive(Debug)]
pub struct Part<T> {
    /// Its lane.
    pub lane: usize,
    /// Global rows.
    pub rows: Range<usize>,
    /// Length of the left halo: place of the first own row in `x`.
    pub own: usize,
    /// Two iterates, halos included.
    pub x: [Buffer<T>; 2],
    /// Exit rates of the own rows.
    pub exit: Buffer<T>,
    /// The matrix.
    pub chunks: Vec<Chunk<T>>,
    /// What of its halo lies on its own lane.
    halos: Vec<Halo>,
}

/// Some rows of a part's matrix.
#[derive(Debug)]
pub struct Chunk<T> {
    /// First row, in the part's own rows.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// See [`Hyb`].
    pub slices: Buffer<u32>,
    /// See [`Hyb`].
    pub columns: Buffer<u32>,
    /// See [`Hyb`].
    pub values: Buffer<T>,
}

/// Values of another part that a part reads.
#[derive(Debug)]
struct Halo {
    owner: usize,
    /// Places in the owner's vector.
    index: Buffer<u32>,
    /// Place of the first in this part's vector.
    first: usize,
}

/// Values that a part of another lane reads.
#[derive(Debug)]
pub struct Link<T> {
    /// The part that owns them.
    pub from: usize,
    /// The part that reads them.
    pub to: usize,
    /// Place of the first in the reader's vector.
    pub first: usize,
    /// Places in the owner's vector, on its lane.
    index: Buffer<u32>,
    /// The values side by side, on the owner's lane.
    pub values: Buffer<T>,
}

/// A chain on its lanes.
#[derive(Debug)]
pub struct Parts<T> {
    /// The parts, in the order of their rows.
    pub parts: Vec<Part<T>>,
    /// What parts of different lanes read of each other.
    pub links: Vec<Link<T>>,
    /// What was built.
    pub matrix: MatrixInfo,
}

/// Facts of a matrix as it was stored.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct MatrixInfo {
    /// `hyb`.
    pub format: &'static str,
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
}

/// Rows of a part, its halo's global rows in ascending order, and how many of them lie left.
struct Region {
    lane: usize,
    rows: Range<usize>,
    halo: Vec<u32>,
    left: usize,
}

impl Region {
    fn len(&self) -> usize {
        self.rows.len() + self.halo.len()
    }

    fn local(&self, column: u32) -> u32 {
        let c = column as usize;
        (if self.rows.contains(&c) {
            c - self.rows.start + self.left
        } else {
            let place = self.halo.partition_point(|&h| h < column);
            if place < self.left { place } else { place + self.rows.len() }
        }) as u32
    }
}

impl<T: Real> Parts<T> {
    /// Lays the chain out on the lanes, in `wanted` parts on each or as many more as its bindings ask for, and copies
    /// the matrix there.
    pub fn build(
        lanes: &[Lane],
        transitions: &dyn Transitions,
        survey: &Survey<T>,
        rule: WidthRule,
        wanted: usize,
    ) -> Result<Self> {
        let n = transitions.states();
        let real = T::PRECISION.bytes();
        let mut regions = Vec::new();
        for (lane, rows) in shares(&survey.lengths, lanes.len(), real).into_iter().enumerate() {
            let limits = lanes[lane].device().limits;
            let largest = (limits.binding.min(limits.buffer) / real) as usize;
            let whole = lanes.len() == 1;
            let own = cut_share(transitions, n, lane, rows, largest, wanted, whole).ok_or_else(|| {
                Error::OutOfMemory {
                    device: lanes[lane].device().name.clone(),
                    what: format!("a vector of {n} states"),
                    asked: n as u64 * real,
                    limit: format!(
                        "its largest binding is {} bytes, and the chain does not split into parts below that; use \
                         --device cpu",
                        limits.binding
                    ),
                }
            })?;
            regions.extend(own);
        }
        let layout = lanes[0].host(|| Layout::new(&survey.lengths, rule, real));
        let mut matrix = MatrixInfo {
            format: "hyb",
            ell_width: layout.widths.iter().copied().max().unwrap_or(0),
            halo: regions.iter().map(|r| r.halo.len() as u64).max().unwrap_or(0),
            parts: regions.len(),
            ..MatrixInfo::default()
        };
        let tail: u64 = layout.tails.iter().map(|&t| u64::from(t)).sum();
        let entries: u64 = survey.lengths.iter().map(|&l| u64::from(l)).sum();
        let ell = layout.stored() - tail;
        matrix.coo_share = tail as f64 / entries.max(1) as f64;
        matrix.padding = (ell - (entries - tail)) as f64 / ell.max(1) as f64;

        let mut parts = Vec::with_capacity(regions.len());
        for region in &regions {
            let lane = &lanes[region.lane];
            let limits = lane.device().limits;
            let host = if limits.unified { CHUNK_ENTRIES } else { CHUNK_ENTRIES_DEVICE };
            let most = host.min(limits.binding / real).min(limits.buffer / real);
            let slices = region.rows.start / SLICE..region.rows.end.div_ceil(SLICE);
            let own = Layout {
                widths: layout.widths[slices.clone()].to_vec(),
                tails: layout.tails[slices].to_vec(),
            };
            let mut chunks = Vec::new();
            for chunk in cut(&own, most) {
                let first = chunk.start * SLICE;
                let hyb = lane.host(|| {
                    Hyb::<T>::build(&own, chunk, region.rows.len(), &|row, entries| {
                        transitions.incoming(region.rows.start + row, entries);
                        if !region.halo.is_empty() {
                            for (column, _) in entries {
                                *column = region.local(*column);
                            }
                        }
                    })
                });
                matrix.bytes += hyb.bytes();
                chunks.push(Chunk {
                    first,
                    rows: hyb.rows,
                    slices: lane.alloc_with("the matrix's slices", &hyb.slices)?,
                    columns: lane.alloc_with("the matrix's columns", &hyb.columns)?,
                    values: lane.alloc_with("the matrix's values", &hyb.values)?,
                });
            }
            let exit = &survey.exit[region.rows.clone()];
            matrix.bytes += exit.len() as u64 * real;
            parts.push(Part {
                lane: region.lane,
                rows: region.rows.clone(),
                own: region.left,
                x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
                exit: lane.alloc_with("the exit rates", exit)?,
                chunks,
                halos: halos(lane, region, &regions)?,
            });
        }
        Ok(Self { parts, links: links(lanes, &regions)?, matrix })
    }

    /// The parts of a lane, with their numbers.
    pub fn of(&self, lane: usize) -> impl Iterator<Item = (usize, &Part<T>)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.lane == lane)
    }

    /// Launches that bring up to date what parts of one lane read of each other in iterate `which`.
    pub fn gathers(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for (_, part) in self.of(lane) {
            for halo in &part.halos {
                let args = [halo.index.arg(), self.parts[halo.owner].x[which].arg(), part.x[which].arg()];
                let items = halo.index.len();
                let params = [0, items as u32, halo.first as u32];
                launches.push(lanes[lane].bind(&GATHER, T::PRECISION, items, &params, &args)?);
            }
        }
        Ok(launches)
    }

    /// Launches that lay the values of iterate `which` that other lanes read into the links' `values`.
    pub fn packs(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let own = self.links.iter().filter(|link| self.parts[link.from].lane == lane);
        own.map(|link| {
            let args = [link.index.arg(), self.parts[link.from].x[which].arg(), link.values.arg()];
            let items = link.index.len();
            lanes[lane].bind(&GATHER, T::PRECISION, items, &[0, items as u32, 0], &args)
        })
        .collect()
    }

    /// Brings all halos of iterate `which` up to date, once.
    pub fn exchange(&self, lanes: &[Lane], which: usize) -> Result<()> {
        for (l, lane) in lanes.iter().enumerate() {
            let mut launches = self.gathers(lanes, l, which)?;
            launches.extend(self.packs(lanes, l, which)?);
            if !launches.is_empty() {
                lane.launch(&launches.iter().collect::<Vec<_>>(), 0)?;
            }
        }
        for link in &self.links {
            let mut values = vec![T::ZERO; link.values.len()];
            lanes[self.parts[link.from].lane].download(&link.values, 0, &mut values)?;
            let to = &self.parts[link.to];
            lanes[to.lane].upload(&values, &to.x[which], link.first)?;
        }
        Ok(())
    }
}

/// Shares rows out over lanes: contiguous, at multiples of 256, with about the same bytes a step for each. A lane
/// may get none.
fn shares(lengths: &[u32], lanes: usize, real: u64) -> Vec<Range<usize>> {
    let n = lengths.len();
    if lanes == 1 {
        return vec![Range { start: 0, end: n }];
    }
    let block = |lengths: &[u32]| lengths.iter().map(|&l| u64::from(l) * (real + 4) + 5 * real).sum::<u64>();
    let mut bytes: Vec<u64> = lengths.par_chunks(BLOCK).map(block).collect();
    let mut sum = 0;
    for b in &mut bytes {
        sum += *b;
        *b = sum;
    }
    let mut starts: Vec<usize> = (0..=lanes as u64)
        .map(|i| (bytes.partition_point(|&b| b <= sum / lanes as u64 * i) * BLOCK).min(n))
        .collect();
    (starts[0], starts[lanes]) = (0, n);
    starts.windows(2).map(|w| w[0]..w[1]).collect()
}

/// Cuts a lane's rows into parts whose vectors, halos included, have at most `largest` elements. `whole` says that
/// there is no other lane, so that a single part needs no halo.
fn cut_share(
    transitions: &dyn Transitions,
    n: usize,
    lane: usize,
    rows: Range<usize>,
    largest: usize,
    wanted: usize,
    whole: bool,
) -> Option<Vec<Region>> {
    if rows.is_empty() {
        return Some(Vec::new());
    }
    if whole && n <= largest && wanted <= 1 {
        return Some(vec![Region { lane, rows, halo: Vec::new(), left: 0 }]);
    }
    let most = rows.len().div_ceil(BLOCK).min(4096);
    let mut count = wanted.max(rows.len().div_ceil(largest.max(1))).min(most);
    loop {
        let per = rows.len().div_ceil(BLOCK).div_ceil(count) * BLOCK;
        let starts = rows.clone().step_by(per);
        let cut: Vec<Region> =
            starts.map(|s| region(transitions, lane, s..(s + per).min(rows.end), n)).collect();
        if cut.iter().all(|r| r.len() <= largest) {
            return Some(cut);
        }
        if count == most {
            return None;
        }
        count = (count + count.div_ceil(4)).min(most);
    }
}

fn region(transitions: &dyn Transitions, lane: usize, rows: Range<usize>, n: usize) -> Region {
    let read: Vec<AtomicU64> = (0..n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    rows.clone().into_par_iter().with_min_len(4096).for_each_init(Vec::new, |row, i| {
        row.clear();
        transitions.incoming(i, row);
        for &(column, _) in row.iter() {
            if !rows.contains(&(column as usize)) {
                read[column as usize / 64].fetch_or(1 << (column % 64), Ordering::Relaxed);
            }
        }
    });
    let mut halo = Vec::new();
    for (word, bits) in read.iter().enumerate() {
        let mut bits = bits.load(Ordering::Relaxed);
        while bits != 0 {
            halo.push((word * 64) as u32 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
    let left = halo.partition_point(|&h| (h as usize) < rows.start);
    Region { lane, rows, halo, left }
}

/// What a region reads of another: the global rows, a slice of its halo.
fn read_of<'a>(region: &'a Region, other: &Region) -> &'a [u32] {
    let first = region.halo.partition_point(|&h| (h as usize) < other.rows.start);
    let end = region.halo.partition_point(|&h| (h as usize) < other.rows.end);
    &region.halo[first..end]
}

fn halos(lane: &Lane, region: &Region, regions: &[Region]) -> Result<Vec<Halo>> {
    let mut halos = Vec::new();
    for (owner, other) in regions.iter().enumerate().filter(|(_, other)| other.lane == region.lane) {
        if let rows @ [first, ..] = read_of(region, other) {
            let index: Vec<u32> = rows.iter().map(|&h| other.local(h)).collect();
            let first = region.local(*first) as usize;
            halos.push(Halo { owner, index: lane.alloc_with("a halo", &index)?, first });
        }
    }
    Ok(halos)
}

fn links<T: Real>(lanes: &[Lane], regions: &[Region]) -> Result<Vec<Link<T>>> {
    let mut links = Vec::new();
    for (to, region) in regions.iter().enumerate() {
        for (from, other) in regions.iter().enumerate().filter(|(_, other)| other.lane != region.lane) {
            if let rows @ [first, ..] = read_of(region, other) {
                let index: Vec<u32> = rows.iter().map(|&h| other.local(h)).collect();
                let lane = &lanes[other.lane];
                links.push(Link {
                    from,
                    to,
                    first: region.local(*first) as usize,
                    index: lane.alloc_with("a halo", &index)?,
                    values: lane.alloc("a halo", index.len())?,
                });
            }
        }
    }
    Ok(links)
}
