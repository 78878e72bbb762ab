//! Test of a lane's arithmetic before its first use.

use super::Lane;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Number, Precision, kernel};
use crate::{Error, Result};

kernel! {
    /// A few operations on gathered numbers, to compare a lane with this processor.
    pub(crate) static SELF_TEST = self_test + float(items)(
        index: &[u32], a: &[T], b: &[T], y: &mut [T],
    ) in q64;
}

struct SelfTest<'a, T> {
    index: &'a [u32],
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Number> Body for SelfTest<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (add, weighted, stepped) = match fused(LEVEL) {
            true => (
                T::plus_product::<true> as fn(T, T, T::Sum) -> T::Sum,
                T::weighted::<true> as fn(T, T, T) -> T,
                T::stepped::<true> as fn(T::Sum, T, T, T) -> T,
            ),
            false => (T::plus_product::<false> as _, T::weighted::<false> as _, T::stepped::<false> as _),
        };
        for (i, y) in self.y.iter_mut().enumerate() {
            let mut s = T::NONE;
            for &j in &self.index[3 * i..3 * i + 3] {
                let a = self.a[j as usize];
                s = T::plus_sum(s, add(self.a[i], a, add(a, self.b[i], T::NONE)));
            }
            let (a, b) = (self.a[i], self.b[i]);
            let next = stepped(s, a, b, a);
            *y = weighted(a, next, T::number(T::deviation(a, b, next)));
        }
    }
}

fn self_test<T: Number>(_: &Call<'_>, _: self_test::Params, arrays: self_test::Bindings<'_, T>) {
    let self_test::Bindings { index, a, b, y, .. } = arrays;
    dispatch(SelfTest { index, a, b, y });
}

/// Runs a small kernel and compares it with this processor. An error names a wrong adapter.
pub(super) fn run(lane: &Lane, precision: Precision) -> Result<()> {
    by_precision!(precision, check(lane))
}

fn check<T: Number>(lane: &Lane) -> Result<()> {
    // N is not a multiple of the group, and all products and sums of the numbers round.
    const N: usize = 256 * 7 + 3;
    // Fractions must add up to less than 1; their integer arithmetic has no error.
    let (part, units) = if T::PRECISION == Precision::Q64 { (1.0 / 32.0, 0.0) } else { (1.0, 2.0) };
    let index: Vec<u32> = (0..3 * N).map(|i| ((i * 7919 + 13) % N) as u32).collect();
    let a: Vec<T> = (0..N).map(|i| T::of(1.0 / (3.0 + i as f64))).collect();
    let b: Vec<T> = (0..N).map(|i| T::of((0.1 + (i % 17) as f64 / 7.0) * part)).collect();
    let mut wanted = vec![T::ZERO; N];
    dispatch(SelfTest { index: &index, a: &a, b: &b, y: &mut wanted });

    let what = "the self-test";
    let y = lane.alloc::<T>(what, N)?;
    let (index, da, db) =
        (lane.alloc_with(what, &index)?, lane.alloc_with(what, &a)?, lane.alloc_with(what, &b)?);
    let args = self_test::Args { index: index.arg(), a: da.arg(), b: db.arg(), y: y.arg() };
    let params = self_test::Params { step: 0, items: N as u32 };
    lane.launch(&[&lane.bind(&SELF_TEST, T::PRECISION, N, params, args)?], 0)?;
    let mut got = vec![T::ZERO; N];
    lane.download(&y, 0, &mut got)?;

    // These are ten operations on numbers below 10. An adapter without fused operations, or with
    // another order, may differ by this much. Lost precision, elements or barriers cause far larger
    // errors.
    let allowed = 10.0 * 10.0 * units * T::PRECISION.unit_roundoff();
    for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let error = (got.wide() - wanted.wide()).abs();
        if error > allowed || error.is_nan() || (units == 0.0 && got.bits() != wanted.bits()) {
            let device = lane.device();
            return Err(Error::Device(format!(
                "{} ({}) fails the self-test in {}: element {i} is {:e}, expected {:e}; update its \
                 driver, or use `device` cpu",
                device.spec,
                device.name,
                T::PRECISION,
                got.wide(),
                wanted.wide()
            )));
        }
    }
    Ok(())
}
