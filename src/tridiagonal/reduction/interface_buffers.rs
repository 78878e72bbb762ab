//! Host buffers of the interface equations sent to stage 2, and of the values that it returns.

use std::ops::Range;

use super::levels::Shape;
use crate::Result;
use crate::lane::HostArray;
use crate::tridiagonal::kernels::number::Number;

pub(crate) struct ChunkEquations<'p, T> {
    pub(crate) columns: Vec<&'p mut [T]>,
    pub(crate) flags: &'p mut [u32],
}

/// Interface equations of the chunks of this rank; on rank 0 also those of all ranks.
#[derive(Debug)]
pub(crate) struct InterfaceEquations<T> {
    pub(crate) shape: Shape,
    /// Number of items (see [`Shape`]) that this rank sends; `capacity` is the number that fit.
    pub(crate) sent: usize,
    capacity: usize,
    /// Columns of the equations (see [`Shape`]), concatenated.
    pub(crate) numbers: HostArray<T>,
    pub(crate) flags: HostArray<u32>,
    pub(crate) values: HostArray<T>,
}

impl<T: Number> InterfaceEquations<T> {
    pub(crate) fn none() -> Self {
        let (numbers, flags, values) = (HostArray::plain(0), HostArray::plain(0), HostArray::plain(0));
        Self { shape: Shape::NOTHING, sent: 0, capacity: 0, numbers, flags, values }
    }

    /// Allocates buffers for `capacity` items (see [`Shape`]), `sent` of which leave this rank.
    pub(crate) fn new(
        shape: Shape,
        [sent, capacity]: [usize; 2],
        array: impl Fn(usize) -> Result<HostArray<T>>,
        flags: impl Fn(usize) -> Result<HostArray<u32>>,
    ) -> Result<Self> {
        let numbers = array(shape.columns * shape.width * capacity)?;
        let flags = flags(shape.flags * capacity)?;
        let values = array(shape.values * capacity + shape.behind)?;
        Ok(Self { shape, sent, capacity, numbers, flags, values })
    }

    fn column(&self) -> usize {
        (self.shape.width * self.capacity).max(1)
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = &[T]> {
        self.numbers.chunks(self.column())
    }

    pub(crate) fn columns_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        let column = self.column();
        self.numbers.chunks_mut(column)
    }

    /// Range of the interface values of some items, with the value after the last item if the shape
    /// has one.
    pub(crate) fn values_of(&self, items: &Range<usize>) -> Range<usize> {
        self.shape.values * items.start..self.shape.values * items.end + self.shape.behind
    }

    pub(crate) fn split(&mut self, items: impl Iterator<Item = usize> + Clone) -> Vec<ChunkEquations<'_, T>> {
        let (Shape { width, flags, .. }, column) = (self.shape, self.column());
        let columns = self.numbers.chunks_mut(column);
        let mut columns: Vec<_> = columns
            .map(|column| split(column, items.clone().map(|items| width * items)).into_iter())
            .collect();
        let flags = split(&mut self.flags, items.map(|items| flags * items));
        let one = |flags| ChunkEquations {
            columns: columns.iter_mut().filter_map(Iterator::next).collect(),
            flags,
        };
        flags.into_iter().map(one).collect()
    }

    /// Returns the numbers that this rank sends: its elements of each column, then the flags.
    pub(crate) fn list(&self) -> Vec<f64> {
        let Shape { columns, width, flags, .. } = self.shape;
        let mut list = Vec::with_capacity((columns * width + flags) * self.sent);
        for column in self.columns() {
            list.extend(column[..width * self.sent].iter().map(|v| v.wide()));
        }
        list.extend(self.flags[..flags * self.sent].iter().map(|&f| f64::from(f)));
        list
    }

    /// Stores the concatenated results of [`Self::list`] from ranks that sent `counts` items each.
    pub(crate) fn fill(&mut self, mut lists: &[f64], counts: &[usize]) {
        let Shape { width, flags: flagged, .. } = self.shape;
        let mut take = |count: usize| {
            let (part, rest) = lists.split_at(count);
            lists = rest;
            part
        };
        let mut to = 0;
        for &count in counts {
            for column in self.columns_mut() {
                let into = &mut column[width * to..width * (to + count)];
                into.iter_mut().zip(take(width * count)).for_each(|(to, v)| *to = T::of(*v));
            }
            let into = &mut self.flags[flagged * to..flagged * (to + count)];
            into.iter_mut().zip(take(flagged * count)).for_each(|(to, v)| *to = *v as u32);
            to += count;
        }
    }
}

/// Splits a slice into consecutive parts of these lengths.
pub(crate) fn split<T>(mut whole: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let part = |length| {
        let (part, rest) = std::mem::take(&mut whole).split_at_mut(length);
        whole = rest;
        part
    };
    lengths.map(part).collect()
}
