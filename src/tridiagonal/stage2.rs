//! Stage 2, which one lane does for all: the interface system of all rows.
//!
//! A chunk that is everything leaves its units, or the interface system of its blocks, where stage 2 finds them, and finds
//! the unknowns there. Pieces of several chunks come from the host, and what is found goes back there.

use super::blocks::{self, BlockTop, Cut};
use super::chunk::{Chunk, Kind, Pieces, Work};
use super::interface;
use super::kernels::both;
use super::partition::Top;
use super::subtrees::{Run, Subtrees};
use super::unit::Number;
use crate::Result;
use crate::lane::{Lane, Launch};

/// What stage 2 works on.
#[derive(Debug)]
pub(super) enum Stage2<T> {
    /// Nothing: systems ask nothing of one another, or another rank's lane does it.
    Nothing,
    /// Units, those of the only chunk or what these become.
    Tiles(Box<(Option<Subtrees<T>>, Top<T>)>),
    /// An interface system, that of the only chunk or this.
    Blocks(Box<(Option<blocks::Level<T>>, BlockTop<T>)>),
    /// The pieces of all chunks, which the host solves as they are.
    Host,
}

impl<T: Number> Stage2<T> {
    /// For pieces of several chunks: the subtrees of `items` units, or `items` rows of the interface system.
    pub(super) fn of_all(
        lane: &Lane,
        kind: Kind,
        items: usize,
        subtrees: Vec<Run>,
        ring: bool,
        cut: Cut,
    ) -> Result<Self> {
        Ok(match kind {
            Kind::Tiles => {
                let subtrees = Subtrees::of_all(lane, items, subtrees)?;
                let top = Top::new(lane, subtrees.top(), ring)?;
                Self::Tiles(Box::new((Some(subtrees), top)))
            }
            Kind::Blocks if cut.host => Self::Host,
            Kind::Blocks => {
                let whole = blocks::Level::new(lane, items / 2)?;
                let top = BlockTop::new(lane, &whole, cut)?;
                Self::Blocks(Box::new((Some(whole), top)))
            }
            Kind::Whole => Self::Nothing,
        })
    }

    /// For the chunk that is everything.
    pub(super) fn of(chunk: &Chunk<'_, T>, ring: bool, cut: Cut) -> Result<Self> {
        Ok(match &chunk.work {
            Work::Tiles(share) => Self::Tiles(Box::new((None, Top::new(chunk.lane, share.units(), ring)?))),
            Work::Blocks(blocks) => {
                Self::Blocks(Box::new((None, BlockTop::new(chunk.lane, blocks.level(), cut)?)))
            }
            Work::Whole(_) => Self::Nothing,
        })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Nothing | Self::Host => 0,
            Self::Tiles(tiles) => tiles.0.as_ref().map_or(0, Subtrees::bytes) + tiles.1.bytes(),
            Self::Blocks(blocks) => blocks.0.as_ref().map_or(0, blocks::Level::bytes) + blocks.1.bytes(),
        }
    }

    /// What does it, where it needs no host.
    pub(super) fn launches(&self) -> Option<Vec<&Launch>> {
        match self {
            Self::Nothing => Some(Vec::new()),
            Self::Tiles(tiles) if tiles.0.is_none() => Some(tiles.1.launches().collect()),
            _ => None,
        }
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots that it knows of.
    pub(super) fn flags(&self, lane: &Lane) -> Result<u32> {
        match self {
            Self::Nothing | Self::Host => Ok(0),
            Self::Tiles(tiles) => tiles.1.flags(lane),
            Self::Blocks(blocks) => blocks.1.flags(lane),
        }
    }

    /// Brings the pieces to the lane.
    pub(super) fn bring(&self, lane: &Lane, pieces: &Pieces<T>) -> Result<()> {
        match self {
            Self::Tiles(tiles) => {
                let gather = |subtrees: &Subtrees<T>| subtrees.gather(lane, &pieces.numbers, &pieces.flags);
                tiles.0.as_ref().map_or(Ok(()), gather)
            }
            Self::Blocks(blocks) => blocks.0.as_ref().map_or(Ok(()), |whole| {
                let mut columns = pieces.numbers.chunks(pieces.room.max(1)).enumerate();
                columns.try_for_each(|(k, column)| {
                    lane.send(&column[..whole.rows], &whole.system, k * whole.rows)
                })
            }),
            Self::Nothing | Self::Host => Ok(()),
        }
    }

    /// Does it, `chunk` being the one that is everything if one is; the number of pivots that the host replaced.
    pub(super) fn perform(
        &self,
        lane: &Lane,
        chunk: Option<&Chunk<'_, T>>,
        pieces: &mut Pieces<T>,
        pivot: bool,
    ) -> Result<u32> {
        match self {
            Self::Nothing => Ok(0),
            Self::Tiles(tiles) => lane.enqueue(&tiles.1.launches().collect::<Vec<_>>()).map(|()| 0),
            Self::Blocks(blocks) => {
                let (given, top) = &**blocks;
                let own = chunk.and_then(|chunk| match &chunk.work {
                    Work::Blocks(share) => Some(share.level()),
                    _ => None,
                });
                let Some(whole) = given.as_ref().or(own) else { unreachable!("an interface system") };
                lane.enqueue(&top.up().collect::<Vec<_>>())?;
                let leaf = top.leaf(whole);
                let mut system = vec![T::ZERO; 4 * leaf.rows];
                lane.download(&leaf.system, 0, &mut system)?;
                let (x, replaced) = interface::solve(&system, pivot);
                lane.upload(&x, &leaf.x, 0)?;
                lane.enqueue(&top.down().collect::<Vec<_>>())?;
                Ok(replaced)
            }
            Self::Host => {
                let (x, replaced) = interface::solve(&pieces.numbers, pivot);
                pieces.answers[..x.len()].copy_from_slice(&x);
                Ok(replaced)
            }
        }
    }

    /// Takes what it found away.
    pub(super) fn take(&self, lane: &Lane, pieces: &mut Pieces<T>) -> Result<()> {
        match self {
            Self::Tiles(tiles) => {
                let scatter = |subtrees: &Subtrees<T>| subtrees.scatter(lane, &mut pieces.answers);
                tiles.0.as_ref().map_or(Ok(()), scatter)
            }
            Self::Blocks(blocks) => {
                let take =
                    |whole: &blocks::Level<T>| lane.fetch(&whole.x, 0, &mut pieces.answers[..=whole.rows]);
                blocks.0.as_ref().map_or(Ok(()), take)
            }
            Self::Nothing | Self::Host => Ok(()),
        }
    }

    /// What flags of chunks and of this are together.
    pub(super) fn together(flags: impl IntoIterator<Item = u32>) -> u32 {
        flags.into_iter().fold(0, both)
    }
}
