//! Benchmark of exchanges between neighbouring ranks, by messages and through shared memory.

use super::*;
use std::sync::atomic::AtomicBool;

use kolmo::internals::{Window, WindowEnd, windows};
use kolmo::ranks::{Envelope, Ranks, Wait, with_messages};

/// Measured transfers: their names in a report.
pub const CASES: [&str; 2] = ["between ranks, messages", "between ranks, windows"];

/// Minimum bytes of a measurement, so that short messages take a measurable time.
const ENOUGH: u64 = 1 << 20;

/// Buffers for the exchange with one neighbouring rank.
struct Neighbour {
    to: Envelope,
    from: Envelope,
    out: Vec<u32>,
    back: Vec<u32>,
    windows: Option<[Window; 2]>,
    /// One-word messages that announce a full window, sent and received.
    news: [[u32; 1]; 2],
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
        windows: None,
        news: [[0], [0]],
    };
    ways.into_iter().filter_map(there).map(make).collect()
}

/// Opens shared-memory windows to neighbours. True if all pairs of neighbours share a host.
fn open_windows(neighbours: &mut [Neighbour], ranks: Ranks, bytes: usize) -> bool {
    let both = |n: &Neighbour| [Some((n.to, true, bytes)), Some((n.from, false, bytes))];
    let ends: Vec<Option<WindowEnd>> = neighbours.iter().flat_map(both).collect();
    let mut windows = windows(&ends, ranks).into_iter();
    let mut next = || windows.next().flatten();
    for neighbour in &mut *neighbours {
        neighbour.windows = next().zip(next()).map(|(out, back)| [out, back]);
    }
    let complete = neighbours.iter().all(|neighbour| neighbour.windows.is_some());
    ranks.all_reduce_min(u64::from(complete)) == 1
}

fn exchange(ranks: Ranks, neighbours: &mut [Neighbour], through_windows: bool, number: u64) -> Result<()> {
    let never = AtomicBool::new(false);
    with_messages(ranks, Wait { stop: &never, spin: false }, |messages| {
        let mut full = Vec::new();
        for neighbour in neighbours {
            let Neighbour { to, from, out, back, windows, news: [there, here] } = neighbour;
            match windows {
                Some([own, other]) if through_windows => {
                    messages.receive(*from, here);
                    own.write(number, bytemuck::cast_slice(out));
                    messages.send(*to, there);
                    full.push(Some((other, back)));
                }
                _ => {
                    messages.receive(*from, back);
                    messages.send(*to, out);
                    full.push(None);
                }
            }
        }
        for full in full {
            messages.wait_received()?;
            if let Some((window, back)) = full {
                window.read(number, bytemuck::cast_slice_mut(back));
            }
        }
        Ok(())
    })
}

/// Measures exchanges of `bytes` with both neighbours, `repeat` times. Every rank calls this.
///
/// Returns one record for messages and, if all neighbours share a host, one for windows. Seconds
/// are those of the slowest rank. The received data is compared with the sent data.
///
/// # Errors
/// If memory does not suffice, or the received data differs from the sent data.
pub fn between_ranks(ranks: Ranks, bytes: u64, repeat: usize) -> Result<Vec<Record>> {
    let room = kolmo::lane::expect_memory(8 * bytes, || "an exchange between ranks".to_owned());
    ranks.all_ok(room)?;
    let words = (bytes / 4).max(1) as usize;
    let bytes = 4 * words as u64;
    let mut neighbours = neighbours(ranks, words);
    let shared = open_windows(&mut neighbours, ranks, bytes as usize);
    let times = (ENOUGH / bytes).clamp(1, 100);
    let copy = copied(words, times);
    let ways = ranks.size().min(3) - 1;
    let mut records = Vec::new();
    for (case, through_windows) in CASES.into_iter().zip([false, true]) {
        if through_windows && !shared {
            continue;
        }
        neighbours.iter_mut().for_each(|neighbour| neighbour.back.fill(0));
        let mut number = 0;
        let mut rounds = Vec::new();
        for _ in 0..=repeat {
            // A barrier: all ranks begin together.
            ranks.all_reduce_sum(0);
            let at = Instant::now();
            for _ in 0..times {
                exchange(ranks, &mut neighbours, through_windows, number)?;
                number += 1;
            }
            rounds.push(ranks.all_reduce_max(at.elapsed().as_secs_f64() / times as f64));
        }
        ranks.all_ok(arrived(&neighbours, case))?;
        // The first measurement touches new memory and does not count.
        let record = Record {
            bench: "transfer",
            case: case.to_owned(),
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
        records.push(Record { bytes, ..record.moving(moved, moved) });
    }
    Ok(records)
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
fn arrived(neighbours: &[Neighbour], case: &str) -> Result<()> {
    for Neighbour { from, back, .. } in neighbours {
        let wrong = back.iter().enumerate().filter(|(i, v)| **v != word(from.rank, *i)).count();
        if wrong > 0 {
            return Err(Error::Device(format!(
                "{wrong} of {} words from rank {} differ ('{case}'); do not trust this MPI library or its network",
                back.len(),
                from.rank
            )));
        }
    }
    Ok(())
}
