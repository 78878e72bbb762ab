//! Direct solution on the coarsest level: elimination without subtractions.

use super::element::Element;
use super::subchain::{Equation, SetTransitions};

/// Maximum number of states to eliminate; larger levels are solved by sweeps.
const MOST: usize = 1500;
/// Number of Gauss–Seidel sweeps if there is no elimination.
pub(super) const SWEEPS: usize = 16;

/// An eliminated generator: w_ij += w_ik w_kj / S_k for states k from the last to the first.
pub(super) struct Coarsest {
    links: std::sync::Arc<SetTransitions>,
    n: usize,
    /// Rates w, row by row; empty without elimination.
    rates: Vec<f64>,
    /// S_k, the sum of the rates from k to the remaining states and out of the set.
    sums: Vec<f64>,
}

impl Coarsest {
    pub(super) fn new(links: &std::sync::Arc<SetTransitions>) -> Self {
        let n = links.states();
        if n > MOST {
            return Self { links: links.clone(), n, rates: Vec::new(), sums: Vec::new() };
        }
        let (mut rates, mut sums, mut kill) = (vec![0.0; n * n], vec![0.0; n], links.kill.clone());
        for i in 0..n {
            let (to, rate) = links.out.row(i);
            to.iter().zip(rate).for_each(|(&j, rate)| rates[i * n + j as usize] = *rate);
        }
        for k in (0..n).rev() {
            let (before, own) = rates.split_at_mut(k * n);
            let own = &own[..k];
            sums[k] = own.iter().sum::<f64>() + kill[k];
            if sums[k] <= 0.0 {
                continue;
            }
            for (i, row) in before.chunks_exact_mut(n).enumerate() {
                let factor = row[k] / sums[k];
                if factor > 0.0 {
                    row[..k].iter_mut().zip(own).for_each(|(w, rate)| *w += factor * rate);
                    row[i] = 0.0;
                    kill[i] += factor * kill[k];
                }
            }
        }
        Self { links: links.clone(), n, rates, sums }
    }

    /// Returns x of xQ = −f, or a stationary vector if f = 0; `None` without elimination.
    pub(super) fn weights(&self, f: &[f64]) -> Option<Vec<f64>> {
        if self.rates.len() < self.n * self.n {
            return None;
        }
        if f.iter().any(|f| *f > 0.0) {
            return Some(self.solve(Equation::Forward, f));
        }
        let mut x = vec![1.0; self.n];
        for k in (0..self.n).filter(|&k| self.sums[k] > 0.0) {
            let before: f64 = (0..k).map(|i| x[i] * self.rates[i * self.n + k]).sum();
            x[k] = before / self.sums[k];
        }
        Some(x)
    }

    /// Solves −Qe = r or −eQ = r; elimination sets e_k = 0 if state k has no rates left, S_k = 0.
    pub(super) fn solve<E: Element>(&self, direction: Equation, r: &[E]) -> Vec<E> {
        let n = self.n;
        let mut e = vec![E::all(0.0); n];
        if self.rates.len() < n * n {
            for k in 0..SWEEPS {
                self.links.sweep(direction, r, &mut e, k % 2 == 0);
            }
            return e;
        }
        let rate = |i: usize, j: usize| match direction {
            Equation::Forward => self.rates[j * n + i],
            Equation::Backward => self.rates[i * n + j],
        };
        let mut r = r.to_vec();
        for k in (0..n).rev().filter(|&k| self.sums[k] > 0.0) {
            let share = r[k] / E::all(self.sums[k]);
            (0..k).for_each(|i| r[i] = r[i] + E::all(rate(i, k)) * share);
        }
        for k in (0..n).filter(|&k| self.sums[k] > 0.0) {
            let before: E = (0..k).map(|j| E::all(rate(k, j)) * e[j]).sum();
            e[k] = (r[k] + before) / E::all(self.sums[k]);
        }
        e
    }
}
