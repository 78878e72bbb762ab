//! Components and functionals of a run, and their scales.

use super::Table;
use super::functional::ScaledFunctional;
use crate::Result;
use crate::util::quantity::times_power_of_two;
use crate::walk::convergence::certificate::Certificate;
use crate::walk::options::{Options, Problem};
use crate::walk::solution::{Component, Quantity};

/// Components and functionals of a run, as start rows: of n unknowns, functional k is row n + k.
pub(crate) struct Targets<'a> {
    certificate: &'a Certificate,
    pub(crate) components: &'a [u32],
    pub(crate) functionals: Vec<ScaledFunctional>,
    first: u32,
    /// Requested half-width ε and truncation bound δ (`delta`); `None` for defaults.
    epsilon: Option<f64>,
    delta: Option<f64>,
}

impl<'a> Targets<'a> {
    pub(crate) fn new(
        problem: &Problem<'a>,
        options: &Options,
        certificate: &'a Certificate,
    ) -> Result<Self> {
        let functionals = problem.functionals.iter().map(|h| ScaledFunctional::new(h, certificate));
        Ok(Self {
            certificate,
            components: problem.components,
            functionals: functionals.collect::<Result<_>>()?,
            first: problem.matrix.rows() as u32,
            epsilon: options.epsilon,
            delta: options.delta,
        })
    }

    pub(crate) fn functional_rows(&self) -> Vec<u32> {
        (self.first..).take(self.functionals.len()).collect()
    }

    /// Maximum of `component` over the requested components and of `functional` over functionals.
    pub(crate) fn most(
        &self,
        component: impl Fn(u32) -> f64,
        functional: impl Fn(&ScaledFunctional) -> f64,
    ) -> f64 {
        let components = self.components.iter().map(|&m| component(m));
        components.chain(self.functionals.iter().map(functional)).fold(0.0, f64::max)
    }

    fn functional(&self, row: u32) -> Option<&ScaledFunctional> {
        row.checked_sub(self.first).map(|k| &self.functionals[k as usize])
    }

    /// True if walks of a row start with negative signs, and true if with positive ones.
    pub(crate) fn signs(&self, row: u32) -> (bool, bool) {
        self.functional(row).map_or((false, true), |h| h.signs)
    }

    /// Scale of the error bound: v_m (v: certificate's vector), or Σ |h_i| v_i for a functional.
    pub(crate) fn scale(&self, row: u32) -> f64 {
        self.functional(row).map_or_else(|| self.certificate.scale(row as usize), |h| h.scale)
    }

    /// Scale of the walks: `scale` on the scaled system, else 1, or Σ |h_i| for a functional.
    pub(crate) fn walk_scale(&self, row: u32) -> f64 {
        self.functional(row).map_or_else(|| self.certificate.walk_scale(row as usize), |h| h.walk_scale)
    }

    /// Ratio of the error bound ε of a functional ⟨h, x⟩ to the ε of components.
    ///
    /// It is for h / 2^exponent, the form in which [`ScaledFunctional`] stores h.
    pub(crate) fn epsilon_of(&self, h: &ScaledFunctional) -> f64 {
        self.epsilon.map_or(h.norm.max(f64::MIN_POSITIVE), |_| h.unit())
    }

    /// Ratio of the truncation bound δ of a functional ⟨h, x⟩ to the δ of components.
    ///
    /// It is for h / 2^exponent, the form in which [`ScaledFunctional`] stores h.
    pub(crate) fn delta_of(&self, h: &ScaledFunctional) -> f64 {
        self.delta.map_or_else(|| self.epsilon_of(h), |_| h.unit())
    }

    /// Half-width ε of a row, from that of components, in the scaling of right-hand side and h.
    pub(crate) fn scaled_epsilon(&self, row: u32, epsilon: f64) -> f64 {
        self.functional(row).map_or(epsilon, |h| epsilon * self.epsilon_of(h))
    }

    /// Data of the start of a functional's walks, none for a component.
    ///
    /// They are the number of steps before the system, the number of roundings of a product with h,
    /// and the error of the start probabilities.
    pub(crate) fn start(&self, row: u32, table: &Table) -> Option<(u32, f64, f64)> {
        let h = self.functional(row)?;
        Some((h.steps(), h.terms(), table.starts[(row - self.first) as usize].error))
    }

    /// Converts an estimate of the system scaled by 2^−exponent to the units of the caller.
    ///
    /// `epsilon` is that of components, in the caller's units.
    pub(crate) fn unscaled(&self, row: u32, c: Component, exponent: i32, epsilon: f64) -> Result<Component> {
        let Some(h) = self.functional(row) else {
            return Ok(Component { epsilon, ..c.times_power_of_two(exponent)? });
        };
        let (quantity, component) = (Quantity::Functional, row - self.first);
        let c = Component { quantity, component, ..c }.times_power_of_two(exponent + h.exponent)?;
        let default = epsilon * times_power_of_two(h.norm, h.exponent);
        Ok(Component { epsilon: self.epsilon.unwrap_or(default), ..c })
    }
}
