//! The change of several vectors in a step.

use crate::kernel::block_sums::tree;
use crate::kernel::cpu::Call;
use crate::kernel::{Kernel, Real, kernel};
use crate::parallel::*;

kernel! {
    /// Sum and maximum of |y − x|, and maxima of y and −y, of each column in each workgroup.
    pub(crate) static COLUMN_CHANGE = column_change(elements, threads)(x: &[T], y: &[T], out: &mut [T]);
}

/// [`COLUMN_CHANGE`] for 2, 4 and 8 columns.
pub(crate) static CHANGE_COLUMNS: [Kernel; 3] = [
    COLUMN_CHANGE.with(&[("COLUMNS", 2.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 4.0)]),
    COLUMN_CHANGE.with(&[("COLUMNS", 8.0)]),
];

/// Maximum number of workgroups.
const MOST_GROUPS: usize = 1024;
const GROUP: usize = Kernel::GROUP as usize;

/// Returns the number of threads for a number of elements.
pub(super) fn threads(elements: usize) -> usize {
    elements.div_ceil(GROUP).clamp(1, MOST_GROUPS) * GROUP
}

/// Change of a column in a step, and its largest and smallest element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    /// l1 norm and maximum norm of the change.
    pub(super) l1: f64,
    pub(super) max: f64,
    /// Largest element minus smallest element.
    pub(super) spread: f64,
}

impl Change {
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

fn column_change<T: Real>(call: &Call<'_>, p: column_change::Params, b: column_change::Bindings<'_, T>) {
    let (threads, width) = (p.threads as usize, (call.constant("COLUMNS") as usize).max(1));
    let largest = |a: T, b: T| if b > a { b } else { a };
    let join =
        |a: [T; 4], b: [T; 4]| [a[0] + b[0], largest(a[1], b[1]), largest(a[2], b[2]), largest(a[3], b[3])];
    let group = |(group, out): (usize, &mut [T])| {
        let mut parts = [[T::ZERO, T::ZERO, T::of(-4.0), T::of(-4.0)]; GROUP];
        for first in (group * GROUP..p.elements as usize).step_by(threads) {
            let here = first..(first + GROUP).min(p.elements as usize);
            for ((part, &x), &y) in parts.iter_mut().zip(&b.x[here.clone()]).zip(&b.y[here]) {
                let change = (y - x).abs();
                *part = join(*part, [change, change, y, -y]);
            }
        }
        for (c, out) in out.chunks_exact_mut(4).enumerate() {
            let mut column: Vec<_> = parts.iter().copied().skip(c).step_by(width).collect();
            out.copy_from_slice(&tree(&mut column, join));
        }
    };
    let out = b.out[..threads / GROUP * 4 * width].par_chunks_mut(4 * width);
    out.enumerate().for_each(group);
}
