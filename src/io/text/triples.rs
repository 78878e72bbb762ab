//! Parallel parser for lines of two indices and a value.

use super::*;

/// Line number, counted from 1, and reason of an error.
pub(in crate::io) type LineError = (u64, String);

/// Triples of the lines read so far, followed by preallocated space for further ones.
pub(in crate::io) struct Triples {
    first: Vec<u32>,
    second: Vec<u32>,
    value: Vec<f64>,
    /// Number of triples found.
    end: usize,
    /// Fewest bytes of a line with a triple, including its end.
    shortest: usize,
    /// Number of lines read.
    lines: u64,
}

/// Preallocated space for the triples of one chunk of lines.
pub(in crate::io) struct TripleSpace<'a> {
    first: &'a mut [u32],
    second: &'a mut [u32],
    value: &'a mut [f64],
    used: usize,
}

impl TripleSpace<'_> {
    #[inline]
    pub(in crate::io) fn push(&mut self, first: u32, second: u32, value: f64) {
        self.first[self.used] = first;
        self.second[self.used] = second;
        self.value[self.used] = value;
        self.used += 1;
    }
}

impl Triples {
    /// Creates an empty list; a triple's line has at least `shortest` bytes including its end.
    pub(in crate::io) fn new(shortest: usize) -> Self {
        Self { first: Vec::new(), second: Vec::new(), value: Vec::new(), end: 0, shortest, lines: 0 }
    }

    /// Allocates space for the triples that a file promises, at most as many as `bytes` can hold.
    pub(in crate::io) fn with_room(
        shortest: usize,
        promised: usize,
        bytes: usize,
        path: &Path,
    ) -> Result<Self> {
        let room = promised.min(bytes / shortest);
        expect_memory(16 * room as u64, || format!("{}: {room} entries", path.display()))?;
        let mut triples = Self::new(shortest);
        (triples.first, triples.second, triples.value) = (vec![0; room], vec![0; room], vec![0.0; room]);
        Ok(triples)
    }

    /// Parses the next lines with `scan`, which pushes the triples of a chunk.
    ///
    /// `scan` reports an error with the number of a line in its chunk.
    pub(in crate::io) fn parse(
        &mut self,
        text: &[u8],
        scan: impl Fn(&[u8], &mut TripleSpace) -> Result<(), LineError> + Sync,
    ) -> Result<(), LineError> {
        // Lines are counted first. Each chunk then writes to its own part of the lists and knows
        // the number of its first line.
        let chunks = chunks(text);
        let lines: Vec<usize> = chunks.par_iter().map(|chunk| count_lines(chunk)).collect();
        let room = |(chunk, &lines): (&&[u8], &usize)| lines.min(chunk.len().div_ceil(self.shortest));
        let room: Vec<usize> = chunks.iter().zip(&lines).map(room).collect();
        let mut start = self.end;
        let due = start + room.iter().sum::<usize>();
        if self.value.is_empty() {
            // Space that blank lines and comments leave unused takes no physical memory.
            (self.first, self.second, self.value) = (vec![0; due], vec![0; due], vec![0.0; due]);
        } else if due > self.value.len() {
            self.first.resize(due, 0);
            self.second.resize(due, 0);
            self.value.resize(due, 0.0);
        }
        let (mut firsts, mut seconds, mut values) =
            (&mut self.first[start..], &mut self.second[start..], &mut self.value[start..]);
        let mut parts = Vec::with_capacity(chunks.len());
        for (chunk, &room) in chunks.iter().zip(&room) {
            let (first, second, value);
            (first, firsts) = firsts.split_at_mut(room);
            (second, seconds) = seconds.split_at_mut(room);
            (value, values) = values.split_at_mut(room);
            parts.push((*chunk, TripleSpace { first, second, value, used: 0 }));
        }
        let results: Vec<Result<usize, LineError>> = parts
            .into_par_iter()
            .map(|(chunk, mut room)| scan(chunk, &mut room).map(|()| room.used))
            .collect();
        for ((result, room), lines) in results.into_iter().zip(room).zip(lines) {
            let used = result.map_err(|(line, reason)| (self.lines + line, reason))?;
            // Chunks with blank lines or comments leave gaps after their triples.
            if self.end < start {
                self.first.copy_within(start..start + used, self.end);
                self.second.copy_within(start..start + used, self.end);
                self.value.copy_within(start..start + used, self.end);
            }
            self.end += used;
            start += room;
            self.lines += lines as u64;
        }
        Ok(())
    }

    /// Returns the lists (first, second, value) read so far; the next lines overwrite them.
    pub(in crate::io) fn take_lists(&mut self) -> (&[u32], &[u32], &[f64]) {
        let end = std::mem::take(&mut self.end);
        (&self.first[..end], &self.second[..end], &self.value[..end])
    }

    /// Replaces the lists; the triples of the next lines are appended.
    pub(in crate::io) fn begin_with(&mut self, (first, second, value): (Vec<u32>, Vec<u32>, Vec<f64>)) {
        self.end = value.len();
        (self.first, self.second, self.value) = (first, second, value);
    }

    /// Returns first indices, second indices and values, in the order of the lines.
    pub(in crate::io) fn into_lists(mut self) -> (Vec<u32>, Vec<u32>, Vec<f64>) {
        self.first.truncate(self.end);
        self.second.truncate(self.end);
        self.value.truncate(self.end);
        (self.first, self.second, self.value)
    }
}
