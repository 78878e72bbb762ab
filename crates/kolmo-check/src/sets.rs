//! Sets of states by expressions of labels.

use crate::meant;
use kolmo::transient::{Chain, Initial, Labels};
use kolmo::{Error, Result};

/// The states of an expression of labels: `up`, `"a b"`, `!up`, `up & !late`, `up | late` or `up, late`, `(…)`, `true`,
/// `false`. Labels that a file need not have: `init`, the states that the chain starts in, and `deadlock`, those that are
/// never left.
///
/// # Errors
/// A label that the chain has not; what is no such expression.
pub fn states(text: &str, chain: &Chain) -> Result<Vec<u32>> {
    // Labels may have any name.
    if let Some(set) = known(text, chain)? {
        return Ok(set);
    }
    let mut parser = Parser { text, rest: text, chain };
    let set = parser.union()?;
    match parser.rest.trim_start() {
        "" => Ok(members(&set)),
        rest => Err(parser.wrong(rest)),
    }
}

/// A label's states; none if there is no such label.
fn known(name: &str, chain: &Chain) -> Result<Option<Vec<u32>>> {
    if let Some(set) = chain.labels.get(name) {
        return Ok(Some(set.to_vec()));
    }
    let n = chain.transitions.states();
    Ok(match name {
        "true" => Some((0..n as u32).collect()),
        "false" => Some(Vec::new()),
        "init" => Some(match &chain.initial {
            Initial::State(state) => vec![*state as u32],
            Initial::Uniform(states) => states.clone(),
            Initial::Distribution(p) => (0u32..).zip(p).filter(|(_, p)| **p > 0.0).map(|(s, _)| s).collect(),
        }),
        "deadlock" => {
            let mut exit_rates = vec![0.0; n];
            chain.transitions.exit_rates(0..n, &mut exit_rates);
            Some((0u32..).zip(exit_rates).filter(|(_, rate)| *rate == 0.0).map(|(s, _)| s).collect())
        }
        _ => None,
    })
}

/// True for an expression that needs to know which states are never left.
pub fn asks_for_deadlocks(text: &str) -> bool {
    text.contains("deadlock")
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    chain: &'a Chain,
}

impl Parser<'_> {
    fn wrong(&self, at: &str) -> Error {
        let at = if at.is_empty() { "its end" } else { &format!("'{at}'") };
        Error::Invalid(format!(
            "'{}' names no set of states: at {at} a label, !LABEL, A & B, A | B or (…) is expected",
            self.text
        ))
    }

    fn takes(&mut self, symbols: &[char]) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.starts_with(symbols);
        if found {
            self.rest = &rest[1..];
        }
        found
    }

    fn union(&mut self) -> Result<Vec<bool>> {
        let mut set = self.intersection()?;
        while self.takes(&['|', ',']) {
            set.iter_mut().zip(self.intersection()?).for_each(|(a, b)| *a |= b);
        }
        Ok(set)
    }

    fn intersection(&mut self) -> Result<Vec<bool>> {
        let mut set = self.factor()?;
        while self.takes(&['&']) {
            set.iter_mut().zip(self.factor()?).for_each(|(a, b)| *a &= b);
        }
        Ok(set)
    }

    fn factor(&mut self) -> Result<Vec<bool>> {
        if self.takes(&['!']) {
            return Ok(self.factor()?.into_iter().map(|member| !member).collect());
        }
        if self.takes(&['(']) {
            let set = self.union()?;
            return if self.takes(&[')']) { Ok(set) } else { Err(self.wrong(self.rest)) };
        }
        let (name, rest) = if self.takes(&['"']) {
            self.rest.split_once('"').ok_or_else(|| self.wrong(self.rest))?
        } else {
            let rest = self.rest.trim_start();
            rest.split_at(rest.find(['|', ',', '&', '!', '(', ')', '"']).unwrap_or(rest.len()))
        };
        let name = name.trim();
        if name.is_empty() {
            return Err(self.wrong(self.rest.trim_start()));
        }
        self.rest = rest;
        let states = known(name, self.chain)?.ok_or_else(|| unknown(name, &self.chain.labels))?;
        let mut set = vec![false; self.chain.transitions.states()];
        states.iter().for_each(|&state| set[state as usize] = true);
        Ok(set)
    }
}

/// States of a set.
pub(crate) fn members(set: &[bool]) -> Vec<u32> {
    (0u32..).zip(set).filter(|(_, member)| **member).map(|(state, _)| state).collect()
}

fn unknown(name: &str, labels: &Labels) -> Error {
    let known: Vec<&str> = labels.sets.iter().map(|(n, _)| &n[..]).collect();
    let known = if known.is_empty() {
        "the model has none; give a .lab file with --labels".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    let meant = meant(name, labels.sets.iter().map(|(n, _)| &n[..]));
    let meant = meant.map_or(String::new(), |meant| format!("did you mean '{meant}'? "));
    Error::Invalid(format!("no label '{name}': {meant}{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of five states the last is never left.
    fn chain() -> Chain {
        let model = kolmo::models::parse("birth-death:5,1,2").expect("a built-in").expect("a model");
        let chain = Chain::new("m", model.transitions).starting(Initial::Uniform(vec![1, 2]));
        let labels = [("a", vec![0, 1]), ("b", vec![1, 2]), ("a b", vec![3]), ("x,y", vec![4])];
        let labels = Labels { sets: labels.map(|(n, s)| (n.to_owned(), s)).to_vec() };
        Chain { labels, ..chain }.absorbing(&[4])
    }

    #[test]
    fn labels_are_joined_negated_and_cut() {
        let of = |text| states(text, &chain()).expect("a set");
        for (text, wanted) in [
            ("a", &[0, 1][..]),
            ("!a", &[2, 3, 4]),
            ("a, b", &[0, 1, 2]),
            ("a|b|\"a b\"", &[0, 1, 2, 3]),
            ("a & !b", &[0]),
            ("a | b & !a", &[0, 1, 2]),
            ("!(a|b) & true", &[3, 4]),
            ("a b", &[3]),
            ("x,y", &[4]),
            ("\"x,y\" | a", &[0, 1, 4]),
            ("init", &[1, 2]),
            ("deadlock", &[4]),
            ("!deadlock & false", &[]),
        ] {
            assert_eq!(of(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_set_is_named() {
        let of = |text| states(text, &chain()).expect_err("no set").to_string();
        for text in ["", "a &", "!(a", "a b c", "\"a", "a)", "& a"] {
            assert!(
                of(text).contains("names no set of states") || of(text).contains("no label"),
                "{}",
                of(text)
            );
        }
        assert!(of("a|full").contains("no label 'full': there are: a, b, a b, x,y"));
    }
}
