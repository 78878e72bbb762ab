//! Transition rewards: PRISM's `.trew` and Storm's triples.

use super::srew::{Structure, TRANSITIONS};
use super::*;

/// Rewards earned at transitions: one structure of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct TransitionRewards {
    /// Name in the file, or the file's stem.
    pub name: String,
    /// Source, target and reward.
    pub earned: Vec<(u32, u32, f64)>,
}

/// Reads the transition rewards of a chain: one structure or more.
///
/// PRISM's form has a header `states lines` and that many lines `from to reward`; states count from
/// 0. Comments name the structure and allow several in one file. Storm's form has no header.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] for states out of range, rewards that are not finite,
/// and lines of another form. [`Error::File`] for fewer lines than promised and for a file without
/// rewards.
pub fn read(path: &Path, states: usize) -> Result<Vec<TransitionRewards>> {
    parse(&text::read(path)?, path, states, false)
}

/// Reads rewards like [`read`], from bytes. With `any`, infinity and NaN are accepted as infinite.
pub(super) fn parse(bytes: &[u8], path: &Path, states: usize, any: bool) -> Result<Vec<TransitionRewards>> {
    let take = |earned: &mut Vec<_>, line: TextLine| take(earned, line, states, any);
    let structures = srew::structures(bytes, path, &TRANSITIONS, states, Vec::new, take)?;
    let named = |Structure { name, rewards, .. }| TransitionRewards { name, earned: rewards };
    Ok(structures.into_iter().map(named).collect())
}

fn take(earned: &mut Vec<(u32, u32, f64)>, line: TextLine, states: usize, any: bool) -> Result<()> {
    let mut scanner = Scanner::new(line.bytes);
    let mut state = || {
        let number = scanner.unsigned().filter(|_| scanner.is_delimited());
        scanner.blanks();
        number
    };
    let (from, to) = (state(), state());
    let reward = srew::reward(&mut scanner, any);
    let (Some(from), Some(to), Some(reward)) = (from, to, reward) else {
        return Err(
            line.error(format!("invalid line {line}: expected `from to reward`, with a finite reward"))
        );
    };
    if let Some(number) = [from, to].into_iter().find(|number| *number >= states as u64) {
        return Err(line.error(out_of_range(number, states, "rewards")));
    }
    // Chains have fewer than 2³² states.
    earned.push((from as u32, to as u32, reward));
    Ok(())
}

impl TransitionRewards {
    /// Computes each state's earnings per unit of time: Σ rate · reward, with self-loops.
    /// Fails with [`Error::File`] for a transition that the list lacks or that has two rewards, and
    /// for a sum that is not finite.
    pub fn per_time(self, states: usize, transitions: &TransitionList, path: &Path) -> Result<Reward> {
        let sums = self.sums(states, transitions, path)?;
        let Some(state) = sums.values.iter().position(|value| !value.is_finite()) else { return Ok(sums) };
        let value = sums.values[state];
        let reason =
            format!("the reward per unit of time in state {state}, {value}, is not finite; scale it");
        fail(path, reason)
    }

    /// Like [`per_time`](Self::per_time), with sums that need not be finite.
    pub(super) fn sums(mut self, states: usize, transitions: &TransitionList, path: &Path) -> Result<Reward> {
        let fail = |reason: String| fail(path, reason);
        self.earned.sort_by_key(|&(from, to, _)| (from, to));
        if let Some([(from, to, one), (.., other)]) =
            self.earned.array_windows().find(|[a, b]| (a.0, a.1) == (b.0, b.1))
        {
            return fail(format!(
                "the transition {from} -> {to} has two rewards, {one} and {other}; remove one of \
                 them"
            ));
        }
        let mut values = vec![0.0; states];
        let mut found = vec![false; self.earned.len()];
        let list = transitions.from.iter().zip(&transitions.to).zip(&transitions.rate);
        for ((&from, &to), &rate) in list {
            if let Ok(at) = self.earned.binary_search_by_key(&(from, to), |&(from, to, _)| (from, to)) {
                values[from as usize] += rate * self.earned[at].2;
                found[at] = true;
            }
        }
        if let Some(at) = found.iter().position(|found| !found) {
            let (from, to, reward) = self.earned[at];
            return fail(format!(
                "gives the transition {from} -> {to} the reward {reward}, and the chain has no such transition (states \
                 counted from 0); are these another model's rewards?"
            ));
        }
        Ok(Reward { name: self.name, values })
    }

    /// Like [`per_time`](Self::per_time), for a chain that stores no self-loops.
    /// Fails like [`per_time`](Self::per_time).
    pub fn per_time_in(self, chain: &dyn Transitions, path: &Path) -> Result<Reward> {
        let mut from: Vec<u32> = self.earned.iter().map(|&(from, ..)| from).collect();
        from.sort_unstable();
        from.dedup();
        let (mut list, mut row) = (TransitionList::default(), Vec::new());
        for state in from {
            list.extend(chain.leaving(state as usize, &mut row).iter().map(|&(to, rate)| (state, to, rate)));
        }
        self.per_time(chain.states(), &list, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewards(text: &str) -> Result<Vec<TransitionRewards>> {
        parse(text.as_bytes(), Path::new("m.trew"), 4, false)
    }

    #[test]
    fn forms_of_prism_and_storm() {
        let structure =
            |name: &str, earned: &[_]| TransitionRewards { name: name.into(), earned: earned.to_vec() };
        let prism = "# Reward structure \"served\"\n# Transition rewards\n4 2\n0 1 1\n3 2 0.5\n# Reward structure\n\
                     # Transition rewards\n4 0\n";
        assert_eq!(
            rewards(prism).unwrap(),
            [structure("served", &[(0, 1, 1.0), (3, 2, 0.5)]), structure("m-2", &[])]
        );
        assert_eq!(rewards("4 1\n0 1 1/2\n").unwrap(), [structure("m", &[(0, 1, 0.5)])]);
        assert_eq!(rewards("0 1 1\n\n2 2 -3\n").unwrap(), [structure("m", &[(0, 1, 1.0), (2, 2, -3.0)])]);
    }

    #[test]
    fn rates_times_rewards() {
        let list = TransitionList { from: vec![0, 0, 1], to: vec![1, 0, 0], rate: vec![2.0, 3.0, 5.0] };
        let per_time = |earned: &[(u32, u32, f64)]| {
            let structure = TransitionRewards { name: "r".into(), earned: earned.to_vec() };
            structure.per_time(2, &list, Path::new("m.trew")).map(|reward| reward.values)
        };
        assert_eq!(per_time(&[(0, 1, 10.0), (0, 0, 1.0)]).unwrap(), [23.0, 0.0]);
        let reason = |earned| per_time(earned).unwrap_err().to_string();
        assert!(reason(&[(1, 1, 1.0)]).contains("1 -> 1 the reward 1, and the chain has no such transition"));
        assert!(reason(&[(1, 0, 1.0), (1, 0, 2.0)]).contains("two rewards, 1 and 2"));
        assert!(reason(&[(1, 0, 1e308)]).contains("not finite"));
    }
}
