//! A chain on its lane: parts of consecutive rows, each with its share of every vector.
//!
//! One part holds all rows wherever the lane can bind the gathered vector. Where it cannot, rows are cut at
//! multiples of 256 into parts that keep x locally as \[left halo | own rows | right halo\]; columns are renumbered
//! so, in ascending order, and halos are copied from their owners after every step.

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
    /// Where its halo comes from.
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

/// A chain on one lane.
#[derive(Debug)]
pub struct Parts<T> {
    /// The parts, in the order of their rows.
    pub parts: Vec<Part<T>>,
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
    /// Lays the chain out on the lane, in `wanted` parts or as many more as its bindings ask for, and copies the
    /// matrix there.
    pub fn build(
        lane: &Lane,
        transitions: &dyn Transitions,
        survey: &Survey<T>,
        rule: WidthRule,
        wanted: usize,
    ) -> Result<Self> {
        let n = transitions.states();
        let real = T::PRECISION.bytes();
        let limits = lane.device().limits;
        let largest = (limits.binding.min(limits.buffer) / real) as usize;
        let regions = regions(transitions, n, largest, wanted).ok_or_else(|| Error::OutOfMemory {
            device: lane.device().name.clone(),
            what: format!("a vector of {n} states"),
            asked: n as u64 * real,
            limit: format!(
                "its largest binding is {} bytes, and the chain does not split into parts below that; \
                 use --device cpu",
                limits.binding
            ),
        })?;
        let layout = lane.host(|| Layout::new(&survey.lengths, rule, real));
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

        let host = if limits.unified { CHUNK_ENTRIES } else { CHUNK_ENTRIES_DEVICE };
        let most = host.min(limits.binding / real).min(limits.buffer / real);
        let mut parts = Vec::with_capacity(regions.len());
        for region in &regions {
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
                rows: region.rows.clone(),
                own: region.left,
                x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
                exit: lane.alloc_with("the exit rates", exit)?,
                chunks,
                halos: halos(lane, region, &regions)?,
            });
        }
        Ok(Self { parts, matrix })
    }

    /// Launches that bring the halos of iterate `which` up to date.
    pub fn exchange(&self, lane: &Lane, which: usize) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for part in &self.parts {
            for halo in &part.halos {
                let args = [halo.index.arg(), self.parts[halo.owner].x[which].arg(), part.x[which].arg()];
                let items = halo.index.len();
                let params = [0, items as u32, halo.first as u32];
                launches.push(lane.bind(&GATHER, T::PRECISION, items, &params, &args)?);
            }
        }
        Ok(launches)
    }
}

/// Cuts `n` rows into parts whose vectors, halos included, have at most `largest` elements.
fn regions(transitions: &dyn Transitions, n: usize, largest: usize, wanted: usize) -> Option<Vec<Region>> {
    if n <= largest && wanted <= 1 {
        return Some(vec![Region { rows: 0..n, halo: Vec::new(), left: 0 }]);
    }
    let blocks = n.div_ceil(BLOCK);
    let most = blocks.min(4096);
    let mut count = wanted.max(n.div_ceil(largest.max(1))).min(most);
    loop {
        let per = blocks.div_ceil(count) * BLOCK;
        let starts = (0..n).step_by(per);
        let cut: Vec<Region> = starts.map(|s| region(transitions, s..(s + per).min(n), n)).collect();
        if cut.iter().all(|r| r.len() <= largest) {
            return Some(cut);
        }
        if count == most {
            return None;
        }
        count = (count + count.div_ceil(4)).min(most);
    }
}

fn region(transitions: &dyn Transitions, rows: Range<usize>, n: usize) -> Region {
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
    Region { rows, halo, left }
}

fn halos(lane: &Lane, region: &Region, regions: &[Region]) -> Result<Vec<Halo>> {
    let mut halos = Vec::new();
    for (owner, other) in regions.iter().enumerate() {
        let first = region.halo.partition_point(|&h| (h as usize) < other.rows.start);
        let end = region.halo.partition_point(|&h| (h as usize) < other.rows.end);
        if first == end {
            continue;
        }
        let index: Vec<u32> = region.halo[first..end].iter().map(|&h| other.local(h)).collect();
        let first = region.local(region.halo[first]) as usize;
        halos.push(Halo { owner, index: lane.alloc_with("a halo", &index)?, first });
    }
    Ok(halos)
}
