//! The probability of reaching PSI through states of PHI, until a time or within an interval.

use crate::Watch;
use crate::compensated;
use crate::sets;
use crate::truncation::Edge;
use kolmo::transient::{Bound, Chain, Initial, Observer, Options, Problem, Solution, Status, solve};
use kolmo::{Error, Machine, Result};

/// States to be reached, and those on the way.
#[derive(Debug)]
pub struct Until {
    /// As it is written.
    name: String,
    /// States that end the way, one way or the other: not in PHI.
    lost: Vec<u32>,
    /// States in PSI.
    reached: Vec<u32>,
    /// States that are not explored.
    edge: Vec<u32>,
    /// Results of the first of two sweeps.
    before: Option<Before>,
}

/// Results of a sweep up to the beginning of an interval.
#[derive(Debug)]
struct Before {
    bound: Bound,
    /// Probability in states of PSI that are not in PHI: what is there has left PHI too early.
    early: f64,
    /// Probability in each state that is not explored: what is there may have come anywhere.
    left: Vec<f64>,
}

/// An interval `T1,T2` or `[T1,T2]`.
///
/// # Errors
/// What is not two times, the second not below the first.
pub fn interval(text: &str) -> Result<(f64, f64)> {
    let inside = text.trim();
    let inside = inside.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')).unwrap_or(inside);
    let times: Vec<Option<f64>> = inside.split(',').map(|t| t.trim().parse().ok()).collect();
    match times[..] {
        [Some(from), Some(to)] if 0.0 <= from && from.is_finite() && from <= to => Ok((from + 0.0, to + 0.0)),
        _ => Err(Error::Invalid(format!(
            "invalid `within` '{text}': expected two times ≥ 0, the second not below the first, such as 1,3"
        ))),
    }
}

impl Until {
    /// Makes what `through` lacks and what is `to` be reached absorbing: with an interval, the latter only in
    /// a second sweep.
    ///
    /// # Errors
    /// Labels that the chain has not.
    pub fn new(through: &str, to: &str, interval: Option<(f64, f64)>, chain: &Chain) -> Result<Self> {
        let lost = sets::states(&format!("!({through})"), chain)?;
        let name = match interval {
            None => format!("{through} U {to}"),
            Some((from, until)) => format!("{through} U[{from},{until}] {to}"),
        };
        Ok(Self::between(name, lost, sets::states(to, chain)?))
    }

    /// The same of states: `lost` ends the way, `reached` is to be reached.
    pub fn between(name: String, lost: Vec<u32>, reached: Vec<u32>) -> Self {
        Self { name, lost, reached, edge: Vec::new(), before: None }
    }

    /// The same where these states are not explored.
    pub fn truncated(self, edge: &[u32]) -> Self {
        Self { edge: edge.to_vec(), ..self }
    }

    /// The label whose probability is the answer.
    pub fn label(&self) -> (String, Vec<u32>) {
        (self.name.clone(), self.reached.clone())
    }

    /// The chain for a plain time bound.
    pub fn bounded(&self, chain: Chain) -> Chain {
        chain.absorbing(&[&self.lost[..], &self.reached].concat())
    }

    /// Goes to the beginning of an interval through states of PHI alone; gives the chain that goes on, and where it begins.
    /// An eighth of ε is for this sweep, and as much for what its sum is off; the rest is left to the second.
    ///
    /// # Errors
    /// As [`solve`](fn@solve).
    pub fn first(
        &mut self,
        chain: Chain,
        initial: &Initial,
        from: f64,
        machine: &Machine,
        options: &mut Options,
        watch: &mut Watch<'_>,
    ) -> Result<(Chain, Initial)> {
        let chain = chain.absorbing(&self.lost);
        let problem = Problem {
            transitions: &*chain.transitions,
            initial,
            times: &[from],
            rewards: &[],
            vectors: true,
        };
        let own = Options { epsilon: options.epsilon / 8.0, ..*options };
        options.epsilon *= 0.75;
        let mut keep = Keep { probabilities: Vec::new(), watch };
        let solution = solve(machine, &problem, &own, &mut keep)?;
        let mut p = machine.ranks.all_gather(&keep.probabilities).concat();
        let lost = |state: &&u32| self.lost.binary_search(state).is_ok();
        let left = |state: &u32| if lost(&state) { 0.0 } else { p[*state as usize].max(0.0) };
        let left = self.edge.iter().map(left).collect();
        let sum = compensated(p.iter().copied());
        p.iter_mut().for_each(|p| *p /= sum);
        let early = compensated(self.reached.iter().filter(lost).map(|&state| p[state as usize]));
        let mut bound = solution.bound;
        // Divided by their sum, the probabilities move by what it is off, and each is rounded twice.
        bound.truncation += (1.0 - sum).abs();
        bound.rounding += 2.0 * f64::EPSILON;
        self.before = Some(Before { bound, early, left });
        Ok((self.bounded(chain), Initial::Distribution(p)))
    }

    /// Probability in the states to be reached that came there through states it must not.
    pub fn early(&self) -> f64 {
        self.before.as_ref().map_or(0.0, |before| before.early)
    }

    /// The states that are not explored and that the last sweep could leave.
    pub fn edge(&self) -> Edge {
        Edge::new(&self.edge, &[&self.lost, &self.reached])
    }

    /// Probability in the states that are not explored at the beginning of the interval; none without one.
    pub fn left(&self) -> &[f64] {
        self.before.as_ref().map_or(&[], |before| &before.left)
    }

    /// Adds the first sweep's bound to the second's, and gives times as they were asked for.
    pub fn add_to(&self, solution: &mut Solution, times: &[f64], epsilon: f64) {
        solution.times.iter_mut().zip(times).for_each(|(result, &time)| result.time = time);
        let Some(Before { bound: first, .. }) = &self.before else { return };
        let add = |bound: &mut Bound| {
            bound.truncation += first.truncation;
            bound.steady_state += first.steady_state;
            bound.rounding += first.rounding;
        };
        add(&mut solution.bound);
        solution.times.iter_mut().for_each(|time| add(&mut time.bound));
        if solution.bound.total() > epsilon {
            solution.status = Status::NotMet;
        }
    }
}

/// Keeps this rank's probabilities.
struct Keep<'a, 'b> {
    probabilities: Vec<f64>,
    watch: &'a mut Watch<'b>,
}

impl Observer for Keep<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.watch)(done, all)
    }

    fn result(&mut self, _: usize, probabilities: &[f64]) -> Result<()> {
        self.probabilities = probabilities.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_two_times() {
        assert_eq!(interval("1,3").expect("an interval"), (1.0, 3.0));
        assert_eq!(interval(" [ 0.5 , inf ] ").expect("an interval"), (0.5, f64::INFINITY));
        assert_eq!(interval("2,2").expect("an interval"), (2.0, 2.0));
        for text in ["1", "3,1", "-1,2", "inf,inf", "1,2,3", "a,b", "[1,2", "nan,1", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
