//! Steps of an iteration that are performed together with those of other chains.

use super::{IterateSum, Iteration, within};
use crate::kernel::Number;
use crate::lane::Buffer;
use crate::transient::lockstep::{GroupMember, Leg, WeightedSum};
use crate::{Progress, Result};

impl<T: Number> Iteration<'_, T> {
    /// Performs the steps of [`advance`](Self::advance) in lockstep with runs of other chains.
    ///
    /// The iteration has one subdomain on one CPU lane, in double precision. Returns the rewards,
    /// one row per step.
    pub(super) fn advance_in_lockstep(
        &mut self,
        member: &GroupMember,
        to: u64,
        targets: &[&IterateSum<T>],
        observer: &mut dyn Progress,
    ) -> Result<Vec<f64>> {
        assert!(!self.normed && !self.recurrence, "a group takes plain steps");
        if to == self.k {
            return Ok(Vec::new());
        }
        let ([part], [lane]) = (&self.parts.parts[..], self.lanes) else {
            unreachable!("a group's member has one part on one lane")
        };
        let read = |buffer: &Buffer<T>, first: usize, len: usize| -> Result<Vec<f64>> {
            let mut values = vec![0.0; len];
            lane.download(buffer, first, bytemuck::cast_slice_mut::<f64, T>(&mut values))?;
            Ok(values)
        };
        let (n, from) = (part.rows.len(), self.k);
        let targets: Vec<_> = targets.iter().filter(|target| !target.acc.parts.is_empty()).collect();
        let sum = |target: &&&IterateSum<T>| {
            let window = within(&target.held, &(from..to));
            let weights = match window.is_empty() {
                true => Vec::new(),
                false => {
                    let first = 1 + (window.start - target.held.start) as usize;
                    read(&target.scalars[0], first, (window.end - window.start) as usize)?
                }
            };
            Ok(WeightedSum { values: read(&target.acc.parts[0], 0, n)?, first: window.start - from, weights })
        };
        let leg = Leg {
            steps: to - from,
            inverse_alpha: self.inverse_alpha.wide(),
            x: read(&part.x[self.now], 0, n)?,
            sums: targets.iter().map(sum).collect::<Result<_>>()?,
            rewards: self.rewards.iter().map(|reward| read(&reward[0], 0, n)).collect::<Result<_>>()?,
            ..Leg::default()
        };
        let (before, all) = self.progress;
        let leg = member.advance(leg, &mut |done| observer.progress(before + from + done, all))?;
        let write = |values: &[f64], buffer: &Buffer<T>| {
            lane.upload(bytemuck::cast_slice::<f64, T>(values), buffer, 0)
        };
        self.now = (self.now + leg.steps as usize) % 2;
        write(&leg.x, &part.x[self.now])?;
        write(&leg.before, &part.x[1 - self.now])?;
        for (target, sum) in targets.iter().zip(&leg.sums) {
            write(&sum.values, &target.acc.parts[0])?;
        }
        self.k = to;
        Ok(leg.collected)
    }
}
