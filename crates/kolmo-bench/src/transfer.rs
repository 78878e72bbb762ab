//! Benchmark of transfers between host and device, on one or several lanes of one device.

use super::*;
use std::sync::{Barrier, Mutex};
use std::thread;

use kolmo::internals::no_thread;
use kolmo::lane::bandwidth::bind_copy;
use kolmo::lane::{Buffer, Copies, HostArray, Launch, Program};

/// Measured transfers: their names in a report.
pub const CASES: [&str; 4] = ["host to device", "device to host", "round trip", "copy on the device"];

/// Bytes that a round trip sends before it fetches them again.
const PIECE: usize = 16 << 20;

/// Number of copies in one measurement of copies on the device.
const COPIES: u64 = 8;

struct Share<'a> {
    lane: &'a Lane,
    source: HostArray<u32>,
    target: HostArray<u32>,
    first: Buffer<u32>,
    second: Buffer<u32>,
    copy: Launch,
}

impl Share<'_> {
    fn perform(&mut self, case: &str) -> Result<()> {
        let Self { lane, source, target, first, second, .. } = self;
        let (lane, locked, source) = (*lane, source.locked(), &source[..]);
        match case {
            "host to device" => lane.queued(|copies| up(copies, lane, locked, source, first, 0)),
            "device to host" => lane.queued(|copies| down(copies, lane, locked, first, 0, target)),
            "round trip" => lane.queued(|copies| {
                let pieces = source.chunks(PIECE / 4).zip(target.chunks_mut(PIECE / 4));
                for (i, (source, target)) in pieces.enumerate() {
                    let at = i * (PIECE / 4);
                    up(copies, lane, locked, source, second, at)?;
                    down(copies, lane, locked, second, at, target)?;
                }
                Ok(())
            }),
            // By a kernel, since the copy commands of some drivers reach a tenth of the bandwidth.
            "copy on the device" => {
                let program = Program { cycle: vec![vec![&self.copy]] };
                lane.run(&program, 0, COPIES, &mut |_| Ok(()))
            }
            other => unreachable!("{other} is not measured"),
        }
    }
}

/// Copies from the host to the device.
///
/// The device copies page-locked memory itself; other memory goes through a page-locked buffer.
fn up<'a>(
    copies: &Copies<'_, 'a>,
    lane: &Lane,
    locked: bool,
    from: &'a [u32],
    to: &'a Buffer<u32>,
    at: usize,
) -> Result<()> {
    if locked { copies.send(from, to, at) } else { lane.upload(from, to, at) }
}

/// Copies from the device to the host; see [`up`].
fn down<'a>(
    copies: &Copies<'_, 'a>,
    lane: &Lane,
    locked: bool,
    from: &'a Buffer<u32>,
    at: usize,
    to: &'a mut [u32],
) -> Result<()> {
    if locked { copies.fetch(from, at, to) } else { lane.download(from, at, to) }
}

/// Bytes counted for a case that moves `bytes`.
///
/// They count once for one way, twice for a round trip, and twice per copy on the device, which
/// reads and writes.
fn counted(case: &str, bytes: u64) -> u64 {
    match case {
        "round trip" => 2 * bytes,
        "copy on the device" => 2 * bytes * COPIES,
        _ => bytes,
    }
}

/// Kinds of host memory that a lane can transfer: page-locked (true) or not (false).
pub fn kinds_of_memory(lane: &Lane) -> &'static [bool] {
    if lane.device().queued_copies { &[false, true] } else { &[false] }
}

/// Measures all transfers of [`CASES`] with `bytes` shared by the lanes; returns one record each.
///
/// `bytes` is rounded down to pairs of numbers. Each lane has its own thread. The received data is
/// compared with the sent data.
pub fn transfer(machine: &Machine, bytes: u64, repeat: usize, locked: bool) -> Result<Vec<Record>> {
    let pair = 2 * machine.precision.bytes();
    let (pairs, words) = ((bytes / pair) as usize, (pair / 4) as usize);
    let bytes = pairs as u64 * pair;
    // Bit patterns that are also finite numbers, with all bits in use.
    let word = |i: usize| (i as u32).wrapping_mul(0x9E37_79B9) >> 2 ^ 0x2000_0000;
    let (all, share) = (pairs * words, pairs.div_ceil(machine.lanes.len()).max(1) * words);
    let mut shares = Vec::new();
    for (lane, from) in machine.lanes.iter().zip((0..all).step_by(share)) {
        let len = share.min(all - from);
        let array = || lane.alloc::<u32>("a transfer", len);
        let (first, second) = (array()?, array()?);
        let host = || match locked {
            true => lane.host_array(len),
            false => Ok(HostArray::plain(len)),
        };
        let (mut source, target) = (host()?, host()?);
        source.par_iter_mut().enumerate().for_each(|(i, w)| *w = word(from + i));
        let pairs = len / words;
        let copy = bind_copy(lane, machine.precision, pairs, &first, &second)?;
        shares.push(Share { lane, source, target, first, second, copy });
    }

    let mut spreads = Vec::new();
    for case in CASES {
        let seconds = together(&mut shares, repeat, |share| share.perform(case))?;
        // The first measurement allocates memory and does not count.
        spreads.push((case, Spread::of(seconds[1..].to_vec())));
        if case != "host to device" {
            arrived(&mut shares, case)?;
        }
    }
    let record = |(case, seconds): (&str, Spread)| {
        let record = Record {
            n: (bytes / machine.precision.bytes()) as usize,
            format: "contiguous".to_owned(),
            lanes: machine.lanes.len(),
            repetitions: repeat,
            more: Some(serde_json::json!({ "locked": locked })),
            ..Record::new("transfer", case.to_owned(), machine.lanes[0].device(), machine.precision, seconds)
        };
        let bytes = counted(case, bytes);
        record.moving(bytes, bytes)
    };
    let mut records: Vec<Record> = spreads.into_iter().map(record).collect();
    let copy = records.iter().find(|r| r.case == "copy on the device").map_or(0.0, |r| r.gb_per_s);
    records.iter_mut().for_each(|record| record.copy_gb_per_s = copy);
    Ok(records)
}

/// Runs `work` on all shares at once, 1 + `repeat` times, and returns the seconds of each round.
///
/// All threads begin a round together. A round lasts from the first start to the last end.
fn together<S: Send>(
    shares: &mut [S],
    repeat: usize,
    work: impl Fn(&mut S) -> Result<()> + Sync,
) -> Result<Vec<f64>> {
    let barrier = Barrier::new(shares.len());
    let spans = Mutex::new(vec![Vec::new(); repeat + 1]);
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        // Threads begin after all of them have been started.
        let mut refused = failed.lock().unwrap_or_else(|e| e.into_inner());
        for share in shares {
            let started = thread::Builder::new().spawn_scoped(scope, || {
                if failed.lock().unwrap_or_else(|e| e.into_inner()).is_some() {
                    return;
                }
                for round in 0..=repeat {
                    barrier.wait();
                    let begin = Instant::now();
                    if let Err(e) = work(share) {
                        failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
                    }
                    let span = (begin, Instant::now());
                    spans.lock().unwrap_or_else(|e| e.into_inner())[round].push(span);
                }
            });
            if let Err(error) = started {
                *refused = Some(no_thread("a lane", &error));
                break;
            }
        }
    });
    if let Some(e) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(e);
    }
    let rounds = spans.into_inner().unwrap_or_else(|e| e.into_inner());
    let length = |round: &Vec<(Instant, Instant)>| {
        let (begin, end) = (round.iter().map(|s| s.0).min(), round.iter().map(|s| s.1).max());
        begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64())
    };
    Ok(rounds.iter().map(length).collect())
}

/// Returns an error if the received data differs from the sent data; then clears it.
fn arrived(shares: &mut [Share<'_>], case: &str) -> Result<()> {
    for share in shares {
        if case == "copy on the device" {
            share.lane.download(&share.second, 0, &mut share.target)?;
        }
        let wrong = share.source.par_iter().zip(&share.target[..]).filter(|(a, b)| a != b).count();
        if wrong > 0 {
            let device = share.lane.device();
            return Err(Error::Device(format!(
                "{} ({}): {wrong} of {} words differ after '{case}'; do not trust this device or its driver",
                device.spec,
                device.name,
                share.source.len()
            )));
        }
        share.target.par_iter_mut().for_each(|word| *word = 0);
        if case == "round trip" {
            share.lane.clear(&share.second)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolmo::kernel::Precision;
    use kolmo::lane::{DeviceSpec, OpenOptions};

    #[test]
    fn ragged_shares_arrive_and_count_their_bytes() {
        let options = OpenOptions::default().lanes(3);
        let machine = Machine::open(&[DeviceSpec::Cpu], &options).unwrap();

        let records = transfer(&machine, 40_000 * 4 + 24, 2, false).unwrap();

        assert_eq!(records.iter().map(|r| &r.case[..]).collect::<Vec<_>>(), CASES);
        assert_eq!(records.iter().map(|r| r.bytes / 160_016).collect::<Vec<_>>(), [1, 1, 2, 16]);
        for record in records {
            assert_eq!((record.lanes, record.n, record.repetitions), (3, 20_002, 2));
            let rate = record.bytes as f64 / record.seconds.median / 1e9;
            assert!(record.gb_per_s == rate && record.seconds.min <= record.seconds.median);
        }
    }

    #[test]
    fn all_lanes_finish_before_an_error_is_told() {
        let mut counts = [0; 4];

        let failed = together(&mut counts, 2, |count| {
            *count += 1;
            if *count == 2 { Err(Error::Interrupted) } else { Ok(()) }
        });

        assert!(matches!(failed, Err(Error::Interrupted)));
        assert_eq!(counts, [3; 4]);
        assert_eq!(together(&mut counts, 4, |_| Ok(())).unwrap().len(), 5);
    }

    #[test]
    fn words_that_changed_on_the_way_are_an_error() {
        let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default()).unwrap();
        let array = || machine.lanes[0].alloc::<u32>("a test", 4).unwrap();
        let (first, second) = (array(), array());
        let copy = bind_copy(&machine.lanes[0], Precision::F64, 1, &first, &second).unwrap();
        let (mut source, mut target) = (HostArray::plain(4), HostArray::plain(4));
        source.copy_from_slice(&[5, 6, 0, 1]);
        target.copy_from_slice(&[5, 7, 0, 1]);
        let share = Share { lane: &machine.lanes[0], source, target, first, second, copy };

        let error = arrived(&mut [share], "device to host").unwrap_err().to_string();

        assert!(error.contains("1 of 4 words") && error.contains("device to host"), "{error}");
    }
}
