//! Benchmark of messages between neighbouring ranks.

use super::*;
use std::sync::atomic::AtomicBool;

use kolmo::ranks::{Envelope, Ranks, Wait, with_messages};

/// Name of the measured transfer in a report.
const CASE: &str = "between ranks, messages";

/// Minimum bytes of a measurement, so that short messages take a measurable time.
const ENOUGH: u64 = 1 << 20;

/// Buffers for the exchange with one neighbouring rank.
struct Neighbour {
    to: Envelope,
    from: Envelope,
    out: Vec<u32>,
    back: Vec<u32>,
}

/// Returns word `i` of the data that a rank sends.
fn word(rank: usize, i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9E37_79B9) ^ (rank as u32).wrapping_mul(0x85EB_CA6B)
}

fn neighbours(ranks: Ranks, words: usize) -> Vec<Neighbour> {
    // Way 0 is towards higher ranks, way 1 towards lower ranks.
    let ways = [(ranks.rank().checked_sub(1), 1), (Some(ranks.rank() + 1), 0)];
    let there = |(rank, way): (Option<usize>, usize)| Some((rank.filter(|&rank| rank < ranks.size())?, way));
    let make = |(rank, way)| Neighbour {
        to: Envelope { rank, tag: way },
        from: Envelope { rank, tag: 1 - way },
        out: (0..words).map(|i| word(ranks.rank(), i)).collect(),
        back: vec![0; words],
    };
    ways.into_iter().filter_map(there).map(make).collect()
}

fn exchange(ranks: Ranks, neighbours: &mut [Neighbour]) -> Result<()> {
    let never = AtomicBool::new(false);
    with_messages(ranks, Wait { stop: &never, spin: false }, |messages| {
        let count = neighbours.len();
        for Neighbour { to, from, out, back } in neighbours {
            messages.receive(*from, back);
            messages.send(*to, out);
        }
        (0..count).try_for_each(|_| messages.wait_received().map(drop))
    })
}

/// Measures exchanges of `bytes` with both neighbours, `repeat` times. Every rank calls this.
///
/// Seconds are those of the slowest rank. The received data is compared with the sent data.
///
/// # Errors
/// If memory does not suffice, or the received data differs from the sent data.
pub fn between_ranks(ranks: Ranks, bytes: u64, repeat: usize) -> Result<Record> {
    let room = kolmo::lane::expect_memory(8 * bytes, || "an exchange between ranks".to_owned());
    ranks.all_ok(room)?;
    let words = (bytes / 4).max(1) as usize;
    let bytes = 4 * words as u64;
    let mut neighbours = neighbours(ranks, words);
    let times = (ENOUGH / bytes).clamp(1, 100);
    let copy = copied(words, times);
    let ways = ranks.size().min(3) - 1;
    let mut rounds = Vec::new();
    for _ in 0..=repeat {
        // A barrier: all ranks begin together.
        ranks.all_reduce_sum(0);
        let at = Instant::now();
        for _ in 0..times {
            exchange(ranks, &mut neighbours)?;
        }
        rounds.push(ranks.all_reduce_max(at.elapsed().as_secs_f64() / times as f64));
    }
    ranks.all_ok(arrived(&neighbours))?;
    // The first measurement touches new memory and does not count.
    let record = Record {
        bench: "transfer",
        case: CASE.to_owned(),
        device: format!("{} ranks", ranks.size()),
        backend: "mpi",
        precision: "f64".to_owned(),
        n: (bytes / 8) as usize,
        format: "contiguous".to_owned(),
        lanes: 1,
        seconds: Spread::of(rounds[1..].to_vec()),
        copy_gb_per_s: copy,
        repetitions: repeat,
        more: Some(serde_json::json!({ "ranks": ranks.size(), "neighbours": ways })),
        ..Record::default()
    };
    // Each rank sends its bytes to all neighbours.
    let moved = ways as u64 * bytes;
    Ok(Record { bytes, ..record.moving(moved, moved) })
}

/// Bandwidth of copies of `words` words in host memory, in GB/s.
fn copied(words: usize, times: u64) -> f64 {
    let (from, mut to) = (vec![1u32; words], vec![0u32; words]);
    to.copy_from_slice(&from);
    let at = Instant::now();
    for _ in 0..times {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    (4 * words as u64 * times) as f64 / at.elapsed().as_secs_f64().max(1e-9) / 1e9
}

/// Returns an error if the received data differs from the sent data.
fn arrived(neighbours: &[Neighbour]) -> Result<()> {
    for Neighbour { from, back, .. } in neighbours {
        let wrong = back.iter().enumerate().filter(|(i, v)| **v != word(from.rank, *i)).count();
        if wrong > 0 {
            return Err(Error::Device(format!(
                "{wrong} of {} words from rank {} differ; do not trust this MPI library or its network",
                back.len(),
                from.rank
            )));
        }
    }
    Ok(())
}
