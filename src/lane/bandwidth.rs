//! Measurement of a lane's memory bandwidth.

use std::time::Instant;

use bytemuck::Pod;

use super::{Buffer, Lane, Launch, Program};
use crate::Result;
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::cpu::{Call, blocks};
use crate::kernel::{Precision, Real, kernel};
use crate::parallel::*;

impl Lane {
    /// Returns the memory bandwidth in bytes per second: the remembered one, or the result of a
    /// measurement, which the first call makes.
    pub(crate) fn bandwidth(&self) -> Result<f64> {
        if let Some(known) = self.known_bandwidth() {
            return Ok(known);
        }
        let measured = self.unnoticed(|| triad_bandwidth(self, 32 << 20, 3))? * 1e9;
        Ok(*self.measured.estimate.get_or_init(|| measured))
    }
}

kernel! {
    /// STREAM triad: a = b + 3 c.
    pub(crate) static TRIAD = triad(items)(b: &[T], c: &[T], a: &mut [T]);
    pub(crate) static COPY = copy(items)(b: &[T], a: &mut [T]);
}

struct Triad<'a, T> {
    a: &'a mut [T],
    b: &'a [T],
    c: &'a [T],
}

impl<T: Real> Body for Triad<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let three = T::of(3.0);
        for ((a, &b), &c) in self.a.iter_mut().zip(self.b).zip(self.c) {
            *a = if fused(LEVEL) { T::fma::<true>(three, c, b) } else { T::fma::<false>(three, c, b) };
        }
    }
}

fn triad<T: Real>(call: &Call<'_>, _: triad::Params, arrays: triad::Bindings<'_, T>) {
    let triad::Bindings { a, b, c, .. } = arrays;
    blocks(call, a, |first, a| {
        let here = first..first + a.len();
        dispatch(Triad { a, b: &b[here.clone()], c: &c[here] });
    });
}

fn copy<T: Real>(call: &Call<'_>, _: copy::Params, arrays: copy::Bindings<'_, T>) {
    let copy::Bindings { a, b, .. } = arrays;
    blocks(call, a, |first, a| a.copy_from_slice(&b[first..first + a.len()]));
}

/// Prepares a kernel that copies `pairs` pairs of numbers; the elements may have any type.
pub fn bind_copy<T: Pod>(
    lane: &Lane,
    precision: Precision,
    pairs: usize,
    from: &Buffer<T>,
    to: &Buffer<T>,
) -> Result<Launch> {
    let args = copy::Args { b: from.arg().untyped(), a: to.arg().untyped() };
    lane.bind(&COPY, precision, pairs, copy::Params { step: 0, items: pairs as u32 }, args)
}

/// Measures the bandwidth of a copy on the device in GB/s, bytes read plus bytes written.
///
/// The array has a gibibyte if memory allows. The result is the better of the driver's own copy and
/// a kernel's.
pub fn copy_bandwidth(lane: &Lane, repeat: usize) -> Result<f64> {
    let limit = lane.device().limits.binding.min(1 << 30);
    let free = lane.free_bytes().unwrap_or(u64::MAX) / 4;
    let single = !lane.device().f64;
    let real = if single { 4 } else { 8 };
    let pairs = (limit.min(free) / (2 * real)) as usize;
    let bytes = 2 * real * pairs as u64;
    let words: Vec<u32> = (0..bytes as usize / 4).into_par_iter().map(|i| i as u32).collect();
    let src = lane.alloc_with("the source of a copy", &words)?;
    let dst = lane.alloc::<u32>("the target of a copy", words.len())?;
    let precision = if single { Precision::F32 } else { Precision::F64 };
    let launch = bind_copy(lane, precision, pairs, &src, &dst)?;
    let program = Program { cycle: vec![vec![&launch]] };
    const TIMES: u32 = 16;
    let mut best = 0.0f64;
    for kernel in [true, false] {
        let once = |times: u32| match kernel {
            true => lane.run(&program, 0, u64::from(times), &mut |_| Ok(())),
            false => lane.copy(&src, &dst, 0, times),
        };
        best = best.max(2.0 * bytes as f64 / seconds(repeat, TIMES, once)? / 1e9);
    }
    Ok(best)
}

/// Measures the bandwidth of a STREAM triad in GB/s. Its three arrays have `bytes` each if memory
/// allows.
pub fn triad_bandwidth(lane: &Lane, bytes: u64, repeat: usize) -> Result<f64> {
    let limit = lane.device().limits.binding.min(bytes);
    let free = lane.free_bytes().unwrap_or(u64::MAX) / 6;
    let elements = (limit.min(free) / 8) as usize;
    let values: Vec<f64> = (0..elements).into_par_iter().map(|i| i as f64).collect();
    let (b, c) = (lane.alloc_with("a triad", &values)?, lane.alloc_with("a triad", &values)?);
    let a = lane.alloc::<f64>("a triad", elements)?;
    let params = triad::Params { step: 0, items: elements as u32 };
    let args = triad::Args { b: b.arg(), c: c.arg(), a: a.arg() };
    let launch = lane.bind(&TRIAD, Precision::F64, elements, params, args)?;
    let program = Program { cycle: vec![vec![&launch]] };
    // A GPU finishes some megabytes faster than the host notices, so 64 launches are timed
    // together.
    let device = lane.device();
    let times = if device.on_host_cores() { 2 } else { 64 };
    let run = |times| lane.run(&program, 0, u64::from(times), &mut |_| Ok(()));
    Ok(24.0 * elements as f64 / seconds(repeat, times, run)? / 1e9)
}

/// Returns the seconds per repetition: median of `repeat` runs of `times` repetitions each.
fn seconds(repeat: usize, times: u32, run: impl Fn(u32) -> Result<()>) -> Result<f64> {
    run(1)?;
    let measured = (0..repeat.max(3)).map(|_| {
        let at = Instant::now();
        run(times).map(|()| at.elapsed().as_secs_f64() / f64::from(times))
    });
    Ok(median(measured.collect::<Result<_>>()?))
}

pub(crate) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
