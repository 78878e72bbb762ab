//! Probability of PHI U PSI: reaching PSI through PHI, within a time bound or interval.

use crate::truncation::Edge;
use crate::{compensated, state_sets};
use kolmo::transient::{Bound, Chain, Initial, Options, Problem, Solution, Status, solve};
use kolmo::{Error, Machine, Progress, Result};

/// Path formula PHI U PSI by its states.
#[derive(Debug)]
pub struct Until {
    /// Text of the formula.
    name: String,
    /// States outside PHI.
    lost: Vec<u32>,
    /// States in PSI.
    reached: Vec<u32>,
    /// Boundary states of a truncated model.
    edge: Vec<u32>,
    /// Results of the run up to the start of an interval.
    before: Option<FirstRun>,
}

/// Results of the run up to the start of an interval.
#[derive(Debug)]
struct FirstRun {
    bound: Bound,
    /// Probability in states of PSI outside PHI: these paths left PHI before the interval.
    early: f64,
    /// Probability in each boundary state, from which a path might have reached any state.
    left: Vec<f64>,
}

/// Parses an interval `T1,T2` or `[T1,T2]`.
/// Fails for anything but two times, the second not below the first.
pub fn interval(text: &str) -> Result<(f64, f64)> {
    let inside = text.trim();
    let inside = inside.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')).unwrap_or(inside);
    let times: Vec<Option<f64>> = inside.split(',').map(|t| t.trim().parse().ok()).collect();
    match times[..] {
        [Some(from), Some(to)] if 0.0 <= from && from.is_finite() && from <= to => Ok((from + 0.0, to + 0.0)),
        _ => Err(Error::invalid(format!(
            "invalid `within` '{text}': expected two times ≥ 0, the second not below the first, such as 1,3"
        ))),
    }
}

impl Until {
    /// Creates `through` U `to` from expressions of labels.
    ///
    /// Methods that restrict a chain make states outside `through` absorbing, and states of `to`,
    /// with an interval only from its start on. Here the interval is a part of the name. Fails for
    /// unknown labels or invalid expressions.
    pub fn new(through: &str, to: &str, interval: Option<(f64, f64)>, chain: &Chain) -> Result<Self> {
        let lost = state_sets::states(&format!("!({through})"), chain)?;
        let name = match interval {
            None => format!("{through} U {to}"),
            Some((from, until)) => format!("{through} U[{from},{until}] {to}"),
        };
        Ok(Self::between(name, lost, state_sets::states(to, chain)?))
    }

    /// Creates the formula from the states outside PHI (`lost`) and in PSI (`reached`).
    pub fn between(name: String, lost: Vec<u32>, reached: Vec<u32>) -> Self {
        Self { name, lost, reached, edge: Vec::new(), before: None }
    }

    /// Sets the boundary states of a truncated model.
    pub fn truncated(self, edge: &[u32]) -> Self {
        Self { edge: edge.to_vec(), ..self }
    }

    /// Label with its states: their probability at the time bound is the answer.
    pub fn label(&self) -> (String, Vec<u32>) {
        (self.name.clone(), self.reached.clone())
    }

    /// Makes states outside PHI and in PSI absorbing, for a time bound that starts at 0.
    pub fn bounded(&self, chain: Chain) -> Chain {
        chain.absorbing(&[&self.lost[..], &self.reached].concat())
    }

    /// Runs up to the start of an interval through states of PHI alone.
    ///
    /// Returns the chain and the initial distribution for the second run. The first run gets an
    /// eighth of ε, and the deviation of its sum from 1 another eighth. The rest is left to the
    /// second run. Fails like [`solve`](fn@solve).
    pub fn first(
        &mut self,
        chain: Chain,
        initial: &Initial,
        from: f64,
        machine: &Machine,
        options: &mut Options,
        watch: &mut dyn Progress,
    ) -> Result<(Chain, Initial)> {
        let chain = chain.absorbing(&self.lost);
        // In discrete time a path may leave PHI for PSI in the step to the start of the interval.
        let discrete = chain.transitions.is_discrete();
        let times = if discrete { vec![from - 1.0, from] } else { vec![from] };
        let problem = Problem::new(&*chain.transitions, initial, &times);
        let own = options.epsilon(options.epsilon / 8.0);
        options.epsilon *= 0.75;
        let mut found = vec![Vec::new(); times.len()];
        let keep = |index: usize, probabilities: &[f64]| {
            found[index] = probabilities.to_vec();
            Ok(())
        };
        let solution = solve(machine, &problem, &own, &mut (watch, keep))?;
        found.iter_mut().for_each(|found| *found = machine.ranks.all_gather(found).concat());
        let mut p = found[times.len() - 1].clone();
        let lost = |state: &&u32| self.lost.binary_search(state).is_ok();
        let left = |state: &u32| if lost(&state) { 0.0 } else { p[*state as usize].max(0.0) };
        let left = self.edge.iter().map(left).collect();
        let sum = compensated(p.iter().copied());
        p.iter_mut().for_each(|p| *p /= sum);
        let passed = if discrete { &found[0] } else { &p };
        let early = compensated(self.reached.iter().filter(lost).map(|&state| passed[state as usize]));
        let mut bound = solution.bound;
        if discrete {
            // The early probability is that of another vector.
            bound.rounding += solution.times[0].bound.total() + (1.0 - sum).abs();
        }
        // Scaling to sum 1 changes the probabilities by |1 − sum|, and each is rounded twice.
        bound.truncation += (1.0 - sum).abs();
        bound.rounding += 2.0 * f64::EPSILON;
        self.before = Some(FirstRun { bound, early, left });
        Ok((self.bounded(chain), Initial::Distribution(p)))
    }

    /// Probability of being in PSI outside PHI at the start of the interval: these paths failed.
    pub fn early(&self) -> f64 {
        self.before.as_ref().map_or(0.0, |before| before.early)
    }

    /// Boundary states; those that the last run makes absorbing are marked.
    pub fn edge(&self) -> Edge {
        Edge::new(&self.edge, &[&self.lost, &self.reached])
    }

    /// Probability in each boundary state at the start of the interval; empty without one.
    pub fn left(&self) -> &[f64] {
        self.before.as_ref().map_or(&[], |before| &before.left)
    }

    /// Adds the first run's bound to the second's, and restores the requested times.
    pub fn add_to(&self, solution: &mut Solution, times: &[f64], epsilon: f64) {
        solution.times.iter_mut().zip(times).for_each(|(result, &time)| result.time = time);
        let Some(FirstRun { bound: first, .. }) = &self.before else { return };
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
