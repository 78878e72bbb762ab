//! How well unknowns solve a system: one pass over rows, on all threads.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::rows::{Span, View};
use super::system::System;
use crate::lane::cpu::simd::{Body, dispatch};

/// How well x solves a system.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Residual {
    /// max ‖b − A·x‖ / (‖A‖·‖x‖ + ‖b‖) over systems and right-hand sides, in the maximum norm: the normwise backward
    /// error (Rigal, Gaches 1967).
    pub normwise: f64,
    /// max_i |b − A·x|_i / (|A|·|x| + |b|)_i: the componentwise backward error (Oettli, Prager 1964).
    pub componentwise: f64,
}

impl Residual {
    /// The larger of both errors of two.
    pub fn max(self, other: Self) -> Self {
        // A residual that is no number is the worst there is.
        let max = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) };
        Self {
            normwise: max(self.normwise, other.normwise),
            componentwise: max(self.componentwise, other.componentwise),
        }
    }
}

/// The larger; NaN is kept, since it compares with nothing.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// What a residual is put together from.
#[derive(Debug, Clone, Copy, Default)]
struct Norms {
    r: f64,
    a: f64,
    x: f64,
    b: f64,
    component: f64,
}

impl Norms {
    #[inline(always)]
    fn join(self, other: Self) -> Self {
        Self {
            r: larger(self.r, other.r),
            a: larger(self.a, other.a),
            x: larger(self.x, other.x),
            b: larger(self.b, other.b),
            component: larger(self.component, other.component),
        }
    }

    fn residual(self) -> Residual {
        let all = self.a * self.x + self.b;
        let normwise = if self.r == 0.0 { 0.0 } else { self.r / all };
        let bad = |v: f64| if v.is_nan() { f64::INFINITY } else { v };
        Residual { normwise: bad(normwise), componentwise: bad(self.component) }
    }
}

/// A row: coefficients, the right-hand side, and its three unknowns.
#[inline(always)]
fn row([a, d, c]: [f64; 3], b: f64, [left, own, right]: [f64; 3]) -> (f64, Norms) {
    // Products are exact but for one rounding each; the sum's rounding is within the measure.
    let r = (-d).mul_add(own, (-c).mul_add(right, (-a).mul_add(left, b)));
    let scale = (a * left).abs() + (d * own).abs() + (c * right).abs() + b.abs();
    let component = if r == 0.0 { 0.0 } else { r.abs() / scale };
    (r, Norms { r: r.abs(), a: a.abs() + d.abs() + c.abs(), x: own.abs(), b: b.abs(), component })
}

/// Rows side by side.
const LANES: usize = 8;

/// Rows that have neighbours on both sides, `x` being one longer than them on either side.
struct Inner<'a> {
    dl: &'a [f64],
    d: &'a [f64],
    du: &'a [f64],
    b: &'a [f64],
    x: &'a [f64],
    /// As long as the rows, or empty.
    r: &'a mut [f64],
    norms: &'a mut Norms,
}

impl Body for Inner<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let rows = self.d.len();
        let (dl, du, b, x) = (&self.dl[..rows], &self.du[..rows], &self.b[..rows], &self.x[..rows + 2]);
        let one = |i: usize| row([dl[i], self.d[i], du[i]], b[i], [x[i], x[i + 1], x[i + 2]]);
        let mut all = [Norms::default(); LANES];
        let full = rows - rows % LANES;
        for first in (0..full).step_by(LANES) {
            let mut r = [0.0; LANES];
            for (j, all) in all.iter_mut().enumerate() {
                let norms;
                (r[j], norms) = one(first + j);
                *all = all.join(norms);
            }
            if !self.r.is_empty() {
                self.r[first..first + LANES].copy_from_slice(&r);
            }
        }
        for i in full..rows {
            let (r, norms) = one(i);
            all[0] = all[0].join(norms);
            if !self.r.is_empty() {
                self.r[i] = r;
            }
        }
        *self.norms = all.into_iter().fold(*self.norms, Norms::join);
    }
}

impl System {
    /// r = b − A·x for one right-hand side, and how small it is. `r` may be the right-hand side's own length or empty.
    pub fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        View::from(self).residual(b, x, r)
    }
}

/// Rows that a thread takes at a time.
const BLOCK: usize = 1 << 14;

impl View<'_> {
    /// As of a [`System`]; of all rows where ranks share them, each with its own b, x and r.
    pub(crate) fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        let Span { n, first, rows, ranks, .. } = self.span;
        let beyond = self.span.beyond(x.first().zip(x.last()).map(|(&first, &last)| [first, last]));
        // A system that begins elsewhere, whole ones, and one that ends elsewhere.
        let head = rows.min((n - first % n) % n);
        let whole = (rows - head) / n * n;
        let (begun, rest) = r.split_at_mut(head.min(r.len()));
        let (inner, ended) = rest.split_at_mut(whole.min(rest.len()));
        let most = |a: Residual, b: Residual| a.max(b);
        let systems = match inner.is_empty() {
            true => (0..whole / n)
                .into_par_iter()
                .map(|s| self.norms(b, x, beyond, head + s * n..head + (s + 1) * n, &mut []).residual())
                .reduce(Residual::default, most),
            false => inner
                .par_chunks_mut(n)
                .enumerate()
                .map(|(s, r)| self.norms(b, x, beyond, head + s * n..head + (s + 1) * n, r).residual())
                .reduce(Residual::default, most),
        };
        if !ranks.several() {
            return systems;
        }
        let mut mine = vec![systems.normwise, systems.componentwise];
        for (part, r) in [(0..head, begun), (head + whole..rows, ended)] {
            if !part.is_empty() {
                let norms = self.norms(b, x, beyond, part.clone(), r);
                mine.push(((first + part.start) / n) as f64);
                mine.extend([norms.r, norms.a, norms.x, norms.b, norms.component]);
            }
        }
        let all = ranks.all(&mine);
        let mut cut: BTreeMap<u64, Norms> = BTreeMap::new();
        let mut residual = Residual::default();
        for list in &all {
            residual = residual.max(Residual { normwise: list[0], componentwise: list[1] });
            for &[system, r, a, x, b, component] in list[2..].as_chunks().0 {
                let norms = cut.entry(system as u64).or_default();
                *norms = norms.join(Norms { r, a, x, b, component });
            }
        }
        cut.into_values().map(Norms::residual).fold(residual, most)
    }

    /// Norms of rows of one system, and their r.
    fn norms(
        &self,
        b: &[f64],
        x: &[f64],
        [before, behind]: [f64; 2],
        rows: Range<usize>,
        r: &mut [f64],
    ) -> Norms {
        let Span { n, cyclic, first, .. } = self.span;
        let whole = rows.len() == n;
        let (start, last) = (rows.start, rows.end - 1);
        let block = |from: usize, to: usize, r: &mut [f64]| {
            let mut norms = Norms::default();
            let mut end = |i: usize, r: &mut [f64]| {
                let place = (first + i) % n;
                let left = if i > start {
                    x[i - 1]
                } else if whole {
                    x[last]
                } else {
                    before
                };
                let right = if i < last {
                    x[i + 1]
                } else if whole {
                    x[start]
                } else {
                    behind
                };
                let dl = if place > 0 || cyclic { (self.dl[i], left) } else { (0.0, 0.0) };
                let du = if place + 1 < n || cyclic { (self.du[i], right) } else { (0.0, 0.0) };
                let (own, row) = row([dl.0, self.d[i], du.0], b[i], [dl.1, x[i], du.1]);
                norms = norms.join(row);
                if let Some(r) = r.first_mut() {
                    *r = own;
                }
            };
            let kept = !r.is_empty();
            let keep = |range: Range<usize>| if kept { range } else { 0..0 };
            let (inner_from, inner_to) = (from.max(start + 1), to.min(last));
            if from == start {
                end(start, &mut r[keep(0..1)]);
            }
            if to == last + 1 && last > start {
                end(last, &mut r[keep(to - from - 1..to - from)]);
            }
            if inner_from < inner_to {
                let here = inner_from..inner_to;
                let kept = keep(inner_from - from..inner_to - from);
                dispatch(Inner {
                    dl: &self.dl[here.clone()],
                    d: &self.d[here.clone()],
                    du: &self.du[here.clone()],
                    b: &b[here.clone()],
                    x: &x[here.start - 1..here.end + 1],
                    r: &mut r[kept],
                    norms: &mut norms,
                });
            }
            norms
        };
        if r.is_empty() {
            let one = |i: usize| block(start + i * BLOCK, rows.end.min(start + (i + 1) * BLOCK), &mut []);
            (0..rows.len().div_ceil(BLOCK)).into_par_iter().map(one).reduce(Norms::default, Norms::join)
        } else {
            let one = |(i, r): (usize, &mut [f64])| {
                let from = start + i * BLOCK;
                block(from, from + r.len(), r)
            };
            r.par_chunks_mut(BLOCK).enumerate().map(one).reduce(Norms::default, Norms::join)
        }
    }
}
