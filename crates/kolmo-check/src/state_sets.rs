//! Sets of states, given by expressions of labels and variables.

use std::sync::Arc;

use crate::meant;
use crate::source::listed;
use kolmo::transient::{Chain, Labels};
use kolmo::{Error, Result};

/// Set of states in ascending order, shared by queries.
pub(crate) type States = Arc<Vec<u32>>;

/// Returns the states that satisfy an expression of labels and comparisons of variables.
///
/// Expressions are `up`, `"a b"`, `q=3`, `q<=2`, `!up`, `up & !late`, `up | late` or `up, late`,
/// `(…)`, `true` and `false`. Two labels are known for all files: `init` has the initial states,
/// and `deadlock` the absorbing states. Fails for an unknown label or variable, or an invalid
/// expression.
pub fn states(text: &str, chain: &Chain) -> Result<Vec<u32>> {
    // A label may look like an expression.
    if let Some(set) = known(text, chain) {
        return Ok(set);
    }
    let mut parser = StateSetParser { text, rest: text, chain };
    let set = parser.union()?;
    match parser.rest.trim_start() {
        "" => Ok(members(&set)),
        rest => Err(parser.wrong(rest)),
    }
}

/// Returns the states of a label, or `None` if there is no such label.
fn known(name: &str, chain: &Chain) -> Option<Vec<u32>> {
    if let Some(set) = chain.labels.get(name) {
        return Some(set.to_vec());
    }
    let n = chain.transitions.states();
    match name {
        "true" => Some((0..n as u32).collect()),
        "false" => Some(Vec::new()),
        "init" => Some(listed(&chain.initial)),
        "deadlock" => {
            let mut exit_rates = vec![0.0; n];
            chain.transitions.exit_rates(0..n, &mut exit_rates);
            Some((0u32..).zip(exit_rates).filter(|(_, rate)| *rate == 0.0).map(|(s, _)| s).collect())
        }
        _ => None,
    }
}

/// True if an expression may compare variables.
pub fn is_comparison(text: &str) -> bool {
    text.contains(['=', '<', '>'])
}

/// Returns the states where a comparison holds, or `None` if the text is not a comparison.
fn compared(text: &str, chain: &Chain) -> Option<Result<Vec<u32>>> {
    let at = text.find(['!', '=', '<', '>'])?;
    let (variable, rest) = (text[..at].trim(), &text[at..]);
    let sign = ["!=", "<=", ">=", "=", "<", ">"].into_iter().find(|sign| rest.starts_with(sign))?;
    let wanted = rest[sign.len()..].trim();
    let wrong = |why: String| Some(Err(Error::invalid(format!("'{text}' names no set of states: {why}"))));
    let Some(names) = &chain.names else {
        return wrong(
            "the states of this chain have no variables; name labels, or numbers of states".to_owned(),
        );
    };
    let Some(place) = names.variables().iter().position(|name| name == variable) else {
        let meant = meant(variable, names.variables().iter().map(String::as_str));
        let meant = meant.map_or(String::new(), |meant| format!("did you mean '{meant}'? "));
        return wrong(format!(
            "there is no variable '{variable}': {meant}there are: {}",
            names.variables().join(", ")
        ));
    };
    let number = wanted.parse::<f64>().ok();
    if number.is_none() && !matches!((sign, wanted), ("=" | "!=", "true" | "false")) {
        return wrong(format!(
            "a variable is compared with a number, or with true or false by = and !=, and '{wanted}' is none"
        ));
    }
    let holds = |state: usize| {
        let value = names.values(state).nth(place).unwrap_or("");
        let order = match number {
            Some(number) => value.parse::<f64>().ok().and_then(|value| value.partial_cmp(&number)),
            None => Some(value.cmp(wanted)),
        };
        order.is_some_and(|order| match sign {
            "=" => order.is_eq(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        })
    };
    Some(Ok((0..names.states()).filter(|&state| holds(state)).map(|state| state as u32).collect()))
}

struct StateSetParser<'a> {
    text: &'a str,
    rest: &'a str,
    chain: &'a Chain,
}

impl StateSetParser<'_> {
    fn wrong(&self, at: &str) -> Error {
        let at = if at.is_empty() { "its end" } else { &format!("'{at}'") };
        Error::invalid(format!(
            "'{}' names no set of states: at {at} a label, VARIABLE=VALUE, !A, A & B, A | B or (…) is expected",
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
            let ends = |&(at, c): &(usize, char)| {
                ['|', ',', '&', '!', '(', ')', '"'].contains(&c) && !rest[at..].starts_with("!=")
            };
            rest.split_at(rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at))
        };
        let name = name.trim();
        if name.is_empty() {
            return Err(self.wrong(self.rest.trim_start()));
        }
        self.rest = rest;
        let states = match known(name, self.chain) {
            Some(states) => states,
            None => compared(name, self.chain).unwrap_or_else(|| Err(unknown(name, &self.chain.labels)))?,
        };
        Ok(mask(&states, self.chain.transitions.states()))
    }
}

/// Marks the states of a set among `n` states.
pub(crate) fn mask(set: &[u32], n: usize) -> Vec<bool> {
    let mut all = vec![false; n];
    set.iter().for_each(|&state| all[state as usize] = true);
    all
}

/// Lists the states of a set.
pub(crate) fn members(set: &[bool]) -> Vec<u32> {
    // Sets may have most of the states: a list that grows would need more memory.
    let mut all = Vec::with_capacity(set.iter().filter(|member| **member).count());
    all.extend((0u32..).zip(set).filter(|(_, member)| **member).map(|(state, _)| state));
    all
}

fn unknown(name: &str, labels: &Labels) -> Error {
    let known: Vec<&str> = labels.sets.iter().map(|(n, _)| &n[..]).collect();
    let known = if known.is_empty() {
        "the model has none; give a .lab file in `labels`".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    let meant = meant(name, labels.sets.iter().map(|(n, _)| &n[..]));
    let meant = meant.map_or(String::new(), |meant| format!("did you mean '{meant}'? "));
    Error::invalid(format!("no label '{name}': {meant}{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolmo::transient::Initial;

    /// Chain of five states, the last of which is absorbing.
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
    fn variables_are_compared() {
        let mut names = kolmo::transient::StateNames::new(vec!["q".to_owned(), "up".to_owned()]);
        for state in 0..5 {
            names.push([&(state - 1).to_string()[..], if state % 2 == 0 { "true" } else { "false" }]);
        }
        let named = Chain { names: Some(Arc::new(names)), ..chain() };
        let of = |text| states(text, &named);
        for (text, wanted) in [
            ("q=3", &[4][..]),
            ("q = -1 | a", &[0, 1]),
            ("q!=3 & up=true", &[0, 2]),
            ("!(q<=1)", &[3, 4]),
            ("q>=1, q<0", &[0, 2, 3, 4]),
            ("up!=true & q>0", &[3]),
        ] {
            assert_eq!(of(text).expect("a set"), wanted, "{text}");
        }
        for (text, part) in
            [("p=3", "'p'"), ("q=x", "'x'"), ("up<true", "'true'"), ("q=", "''"), ("=3", "''")]
        {
            let error = of(text).expect_err("no set").to_string();
            assert!(error.contains("names no set of states") && error.contains(part), "{error}");
        }
        assert!(states("q=3", &chain()).expect_err("no set").to_string().contains("have no variables"));
    }

    #[test]
    fn what_is_no_set_is_named() {
        let of = |text| states(text, &chain()).expect_err("no set").to_string();
        for text in ["", "a &", "!(a", "a b c", "\"a", "a)", "& a"] {
            let said = of(text);
            assert!(said.contains("names no set of states") || said.contains("no label"), "{said}");
        }
        assert!(of("a|full").contains("no label 'full': there are: a, b, a b, x,y"));
    }
}
