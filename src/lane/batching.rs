//! Long loops of steps, submitted in pieces: the next one is queued while one runs.

use std::collections::VecDeque;
use std::time::Instant;

use super::PIECE;
use crate::Result;

/// Maximum number of steps in a piece, which limits the memory of its commands.
const MOST: u64 = 8192;

/// Submits `count` steps in pieces of about [`PIECE`], two at a time, and waits for them.
///
/// `submit` gets the first step of a piece, counted from 0, and its number of steps. `wait` gets
/// the result of `submit`. `watch` gets the number of steps done so far.
pub(crate) fn pieces<Ticket>(
    count: u64,
    mut submit: impl FnMut(u64, u64) -> Result<Ticket>,
    mut wait: impl FnMut(Ticket) -> Result<()>,
    watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
) -> Result<()> {
    let (mut submitted, mut piece) = (0, 1);
    let mut flying: VecDeque<(Ticket, u64, u64)> = VecDeque::new();
    let mut last = Instant::now();
    let mut stopped = Ok(());
    while (submitted < count && stopped.is_ok()) || !flying.is_empty() {
        while submitted < count && flying.len() < 2 && stopped.is_ok() {
            let steps = piece.min(count - submitted);
            let ticket = submit(submitted, steps)?;
            submitted += steps;
            flying.push_back((ticket, steps, submitted));
        }
        let Some((ticket, steps, done)) = flying.pop_front() else { break };
        wait(ticket)?;
        let took = last.elapsed();
        last = Instant::now();
        let fit = PIECE.as_secs_f64() / took.as_secs_f64().max(1e-6) * steps as f64;
        piece = (fit as u64).clamp(1, MOST).min(piece * 4);
        if stopped.is_ok() {
            stopped = watch(done);
        }
    }
    stopped
}
