//! The change of several vectors in a step.

use crate::kernel::block_sums::tree;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, Real, kernel};
use crate::parallel::*;
use crate::util::inline_array::array;

kernel! {
    /// Sum and maximum of |y − x| (`NORM`: |y|), maxima of y and −y, by column and workgroup.
    pub(crate) static COLUMN_CHANGE = column_change(elements, threads)(x: &[T], y: &[T], out: &mut [T]);
}

/// [`COLUMN_CHANGE`] for 2, 4 and 8 columns, and for 3, 5 and 6 columns on a CPU alone.
pub(crate) static CHANGE_COLUMNS: [Kernel; 6] = [
    COLUMN_CHANGE.with(&[("COLUMNS", 2.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 4.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 8.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 3.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 5.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 6.0)]),
];

/// Norms of 1, 2, 4 and 8 columns: [`COLUMN_CHANGE`] with x taken as 0.
pub(crate) static NORM_COLUMNS: [Kernel; 4] = [
    COLUMN_CHANGE.with(&[("NORM", 1.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 2.0), ("NORM", 1.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 4.0), ("NORM", 1.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 8.0), ("NORM", 1.0)]),
];

const GROUP: usize = Kernel::GROUP as usize;

/// Returns the number of threads for a number of elements, in at most `most` workgroups.
pub(super) fn threads(elements: usize, most: usize) -> usize {
    elements.div_ceil(GROUP).clamp(1, most) * GROUP
}

/// Change of a column in a step, and its largest and smallest element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ColumnChange {
    /// l1 norm and maximum norm of the change.
    pub(super) l1: f64,
    pub(super) max: f64,
    /// Largest element minus smallest element.
    pub(super) spread: f64,
}

impl ColumnChange {
    /// Joins the results of all workgroups for each of `width` columns.
    pub(super) fn of_columns<T: Real>(out: &[T], width: usize) -> Vec<Self> {
        let mut all = vec![[0.0, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY]; width];
        for (k, part) in out.chunks_exact(4).enumerate() {
            let [sum, most @ ..] = &mut all[k % width];
            *sum += part[0].wide();
            most.iter_mut().zip(&part[1..]).for_each(|(most, part)| *most = most.max(part.wide()));
        }
        all.into_iter().map(|[l1, max, high, low]| Self { l1, max, spread: high + low }).collect()
    }
}

/// Sum and maximum of |y − x|, maxima of y and −y: one array each for the threads of a workgroup.
struct SumChanges<'a, T> {
    /// `None` for x = 0.
    x: Option<&'a [T]>,
    y: &'a [T],
    numbers: &'a mut [[T; GROUP]; 4],
}

#[inline(always)]
fn largest<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

impl<T: Real> Body for SumChanges<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let [sum, most, high, low] = self.numbers;
        let changes = sum.iter_mut().zip(most).zip(self.y);
        match self.x {
            None => changes.for_each(|((sum, most), &y)| {
                (*sum, *most) = (*sum + y.abs(), largest(*most, y.abs()));
            }),
            Some(x) => changes.zip(x).for_each(|(((sum, most), &y), &x)| {
                (*sum, *most) = (*sum + (y - x).abs(), largest(*most, (y - x).abs()));
            }),
        }
        for ((high, low), &y) in high.iter_mut().zip(low).zip(self.y) {
            (*high, *low) = (largest(*high, y), largest(*low, -y));
        }
    }
}

fn column_change<T: Real>(call: &Call<'_>, p: column_change::Params, b: column_change::Bindings<'_, T>) {
    let (threads, width) = (p.threads as usize, (call.constant("COLUMNS") as usize).max(1));
    let norm = call.is("NORM");
    // A workgroup reads whole rows, 2^k at once.
    let (groups, span) = (threads / GROUP, width << (GROUP / width).ilog2());
    let join =
        |a: [T; 4], b: [T; 4]| [a[0] + b[0], largest(a[1], b[1]), largest(a[2], b[2]), largest(a[3], b[3])];
    let group = |(group, out): (usize, &mut [T])| {
        let (zero, least) = ([T::ZERO; GROUP], [T::of(-4.0); GROUP]);
        let mut numbers = [zero, zero, least, least];
        for first in (group * span..p.elements as usize).step_by(groups * span) {
            let here = first..(first + span).min(p.elements as usize);
            let x = (!norm).then(|| &b.x[here.clone()]);
            dispatch(SumChanges { x, y: &b.y[here], numbers: &mut numbers });
        }
        for (c, out) in out.chunks_exact_mut(4).enumerate() {
            let places = (c..span).step_by(width);
            let mut column: Vec<[T; 4]> = places.map(|i| array(|k| numbers[k][i])).collect();
            out.copy_from_slice(&tree(&mut column, join));
        }
    };
    let len = groups * 4 * width;
    b.out[p.step as usize * len..][..len].par_chunks_mut(4 * width).enumerate().for_each(group);
}
