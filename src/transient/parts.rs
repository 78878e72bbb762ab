//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part wherever it can bind the gathered vector, and more where it cannot. Rows are cut at multiples
//! of 256; a part keeps x locally as \[left halo | own rows | right halo\]. Columns are renumbered so, in ascending
//! order: every row adds its terms in the order of the whole matrix, and the answer has the same bits however rows
//! are cut. Halos are brought up to date after every step, by a kernel between parts of one lane and through the
//! host between lanes. Accumulators never travel.

use std::ops::Range;

use super::bound::Survey;
use super::chain::Transitions;
use super::kernels::{GATHER, SWEEP_ROWS};
use super::matrix::{Chunk, MatrixInfo, Source};
use super::split::{self, Region};
use crate::Result;
use crate::kernel::Real;
use crate::lane::{Buffer, Lane, Launch};
use crate::sparse::{Layout, MatrixFormat, SLICE, WidthRule};

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
    /// Exit rates of the own rows, unless its patterns hold them.
    pub exit: Buffer<T>,
    /// The matrix.
    pub chunks: Vec<Chunk<T>>,
    /// What of its halo lies on its own lane.
    halos: Vec<Halo>,
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

impl<T: Real> Parts<T> {
    /// Lays the chain out on the lanes, and copies the matrix there.
    pub fn build(
        lanes: &[Lane],
        transitions: &dyn Transitions,
        survey: &Survey<T>,
        rule: WidthRule,
        format: MatrixFormat,
        how: split::How,
    ) -> Result<Self> {
        let real = T::PRECISION.bytes();
        let (regions, plan) = split::split(lanes, transitions, &survey.lengths, real, how)?;
        let layout = lanes[0].host(|| Layout::new(&survey.lengths, rule, real));
        let mut matrix = MatrixInfo {
            ell_width: layout.widths.iter().copied().max().unwrap_or(0),
            halo: regions.iter().map(|r| r.halo.len() as u64).max().unwrap_or(0),
            parts: regions.len(),
            plan,
            ..MatrixInfo::default()
        };
        let tail: u64 = layout.tails.iter().map(|&t| u64::from(t)).sum();
        let entries: u64 = survey.lengths.iter().map(|&l| u64::from(l)).sum();
        let ell = layout.stored() - tail;
        matrix.coo_share = tail as f64 / entries.max(1) as f64;
        matrix.padding = (ell - (entries - tail)) as f64 / ell.max(1) as f64;

        let mut parts = Vec::with_capacity(regions.len());
        let mut formats: Vec<&str> = Vec::new();
        for region in &regions {
            let lane = &lanes[region.lane];
            let slices = region.rows.start / SLICE..region.rows.end.div_ceil(SLICE);
            let layout = Layout {
                widths: layout.widths[slices.clone()].to_vec(),
                tails: layout.tails[slices].to_vec(),
            };
            let row = |row: usize, entries: &mut Vec<(u32, f64)>| {
                transitions.incoming(region.rows.start + row, entries);
                if !region.halo.is_empty() {
                    for (column, _) in entries {
                        *column = region.local(*column);
                    }
                }
            };
            let exit = &survey.exit[region.rows.clone()];
            // Small chains run in one workgroup, which reads HYB, and lie in its caches whatever their format.
            let small = regions.len() == 1 && region.rows.len() <= SWEEP_ROWS;
            let format = if small && format == MatrixFormat::Auto { MatrixFormat::Hyb } else { format };
            let built = Source { lane, region, layout: &layout, exit, row: &row }.build(format)?;
            matrix.bytes += built.bytes;
            matrix.passed_over.extend(built.passed_over);
            if !formats.contains(&built.format.name()) {
                formats.push(built.format.name());
            }
            parts.push(Part {
                lane: region.lane,
                rows: region.rows.clone(),
                own: region.left,
                x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
                exit: built.exit,
                chunks: built.chunks,
                halos: halos(lane, region, &regions)?,
            });
        }
        matrix.format = formats.join("+");
        matrix.passed_over.sort_unstable();
        matrix.passed_over.dedup();
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

    /// Launches that store the values of iterate `which` that other lanes read straight into their halos.
    #[cfg(feature = "cuda")]
    pub(super) fn pushes(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let own = self.links.iter().filter(|link| self.parts[link.from].lane == lane);
        own.map(|link| {
            let args =
                [link.index.arg(), self.parts[link.from].x[which].arg(), self.parts[link.to].x[which].arg()];
            let items = link.index.len();
            lanes[lane].bind(&GATHER, T::PRECISION, items, &[0, items as u32, link.first as u32], &args)
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

fn halos(lane: &Lane, region: &Region, regions: &[Region]) -> Result<Vec<Halo>> {
    let mut halos = Vec::new();
    for (owner, other) in regions.iter().enumerate().filter(|(_, other)| other.lane == region.lane) {
        if let rows @ [first, ..] = region.reads(other) {
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
            if let rows @ [first, ..] = region.reads(other) {
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
