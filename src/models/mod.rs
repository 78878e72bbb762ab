//! Built-in models: chains with rows that are generated from a closed form instead of stored.

mod birth_death;
mod circulant;
mod graphs;
mod systems;
mod tandem;
mod tridiagonal;
mod wlan;

use birth_death::BirthDeath;
use circulant::Circulant;
pub use graphs::{GRAPHS, Links, graph, links};
pub use systems::{SYSTEMS, System, system};
use tandem::Tandem;
pub use tridiagonal::{BANDED, BuiltIn, TRIDIAGONAL, Tridiagonal, banded, tridiagonal};
use wlan::Wlan;

use crate::transient::chain::MOST_STATES;
use crate::transient::{Chain, Initial, Transitions};
use crate::util::quantity;
use crate::{Error, Result};

/// A built-in chain with its initial state.
pub struct Model {
    /// Normalised specification, such as `wlan:40,6`.
    pub name: String,
    /// Transitions; rates are per ms for `wlan`, per unit of time otherwise.
    pub transitions: Box<dyn Transitions>,
    /// Initial state, an index from 0.
    pub initial: usize,
}

impl Model {
    fn new(name: String, chain: impl Transitions + 'static) -> Self {
        Self { name, transitions: Box::new(chain), initial: 0 }
    }
}

impl From<Model> for Chain {
    fn from(model: Model) -> Self {
        Self::new(model.name, model.transitions).starting(Initial::State(model.initial))
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("states", &self.transitions.states())
            .field("initial", &self.initial)
            .finish()
    }
}

/// Returns the built-in chain with the specification `spec`.
///
/// Specifications are `wlan:K,S`, `tandem:C`, `birth-death:N,LAMBDA,MU` and `circulant:N,O1,O2,…`.
/// Returns `None` if `spec` does not begin with one of the names and a colon; it may be a path.
/// Invalid parameters are [`Error::Invalid`].
///
/// ```
/// let model = kolmo::models::parse("tandem:5").unwrap()?;
/// assert_eq!(model.transitions.states(), 66);
/// let chain = kolmo::transient::Chain::from(model);
/// assert!(kolmo::models::parse("chains/tandem.tra").is_none());
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn parse(spec: &str) -> Option<Result<Model>> {
    let examples = ["wlan:40,6", "tandem:127", "birth-death:1000,0.9,1", "circulant:1000,-1,1,30"];
    let parameters = Parameters::of(spec, &examples)?;
    Some(match parameters.name {
        "wlan" => wlan(&parameters),
        "tandem" => tandem(&parameters),
        "birth-death" => birth_death(&parameters),
        _ => circulant(&parameters),
    })
}

fn wlan(parameters: &Parameters) -> Result<Model> {
    parameters.expect(&["K", "S"])?;
    let queue = parameters.whole(0, "K (packets that a device can queue)", u64::MAX)?;
    let stages = parameters.whole(1, "S (back-off stages)", Wlan::MAX_STAGES)?;
    // n = 6M² + 12M + 4 with M = 2KS, in arithmetic that no u64 K overflows.
    let m = 2 * u128::from(queue) * u128::from(stages);
    let states =
        m.checked_mul(m).and_then(|square| square.checked_mul(6)).and_then(|six| six.checked_add(12 * m + 4));
    parameters.fits(states, "K·S", "at most 13376")?;
    Ok(Model::new(format!("wlan:{queue},{stages}"), Wlan::new(queue as usize, stages as usize)))
}

fn tandem(parameters: &Parameters) -> Result<Model> {
    parameters.expect(&["C"])?;
    let capacity = parameters.whole(0, "C (capacity of each queue)", u64::MAX)?;
    let c = u128::from(capacity);
    let states = (c + 1).checked_mul(2 * c + 1);
    parameters.fits(states, "C", "at most 46340")?;
    Ok(Model::new(format!("tandem:{capacity}"), Tandem::new(capacity as usize)))
}

fn birth_death(parameters: &Parameters) -> Result<Model> {
    parameters.expect(&["N", "LAMBDA", "MU"])?;
    let states = parameters.whole(0, "N (number of states)", MOST_STATES)?;
    let birth = parameters.rate(1, "LAMBDA (birth rate)")?;
    let death = parameters.rate(2, "MU (death rate)")?;
    if !(birth + death).is_finite() {
        return Err(parameters.refuse("LAMBDA + MU", "finite"));
    }
    let chain = BirthDeath { states: states as usize, birth, death };
    Ok(Model::new(format!("birth-death:{states},{birth},{death}"), chain))
}

fn circulant(parameters: &Parameters) -> Result<Model> {
    let states = parameters.whole(0, "N (number of states)", MOST_STATES)?;
    // A count with a sign.
    let step = |text: &str| match text.strip_prefix('-') {
        Some(back) => quantity::count::<i32>(back).map(|o| -i64::from(o)),
        None => quantity::count::<i32>(text.strip_prefix('+').unwrap_or(text)).map(i64::from),
    };
    let offsets: std::result::Result<Vec<i64>, ()> =
        parameters.values[1..].iter().map(|o| step(o).ok_or(())).collect();
    let steps = "O1,O2,… (steps along the ring)";
    let offsets = offsets.map_err(|()| parameters.refuse(steps, "whole numbers"))?;
    if offsets.is_empty() {
        return Err(parameters.refuse(steps, "given"));
    }
    let chain = Circulant::new(states as usize, &offsets)
        .map_err(|o| parameters.refuse(steps, &format!("different modulo N and none 0, unlike {o}")))?;
    let list: Vec<String> = offsets.iter().map(i64::to_string).collect();
    Ok(Model::new(format!("circulant:{states},{}", list.join(",")), chain))
}

/// Name of a built-in model and the parameters after its colon.
struct Parameters<'a> {
    spec: &'a str,
    name: &'a str,
    values: Vec<&'a str>,
    /// Valid specification, for messages.
    example: &'static str,
}

impl<'a> Parameters<'a> {
    /// Splits a specification; `None` unless one of `examples` has its name.
    fn of(spec: &'a str, examples: &[&'static str]) -> Option<Self> {
        let (name, values) = spec.split_once(':')?;
        let is = |example: &&&str| example.split_once(':').is_some_and(|(known, _)| known == name);
        let example = examples.iter().find(is)?;
        Some(Self { spec, name, values: values.split(',').map(str::trim).collect(), example })
    }

    fn refuse(&self, what: &str, must_be: &str) -> Error {
        Error::invalid(format!("{}: {what} must be {must_be}; for example {}", self.spec, self.example))
    }

    fn expect(&self, names: &[&str]) -> Result<()> {
        if self.values.len() == names.len() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: {} parameters are given, but {} expected ({}); for example {}",
            self.spec,
            self.values.len(),
            names.len(),
            names.join(","),
            self.example
        )))
    }

    fn whole(&self, place: usize, what: &str, largest: u64) -> Result<u64> {
        match quantity::count(self.values[place]) {
            Some(value) if (1..=largest).contains(&value) => Ok(value),
            _ if largest == u64::MAX => Err(self.refuse(what, "a whole number from 1")),
            _ => Err(self.refuse(what, &format!("a whole number from 1 to {largest}"))),
        }
    }

    fn rate(&self, place: usize, what: &str) -> Result<f64> {
        let text = self.values[place];
        match text.parse::<f64>() {
            // A negative zero becomes zero.
            Ok(rate)
                if rate >= 0.0 && rate.is_finite() && quantity::out_of_range(text.as_bytes()).is_none() =>
            {
                Ok(rate.abs())
            }
            _ => Err(self.refuse(what, "a finite number, 0 or at least 4.9e-324")),
        }
    }

    fn fits(&self, states: Option<u128>, what: &str, must_be: &str) -> Result<()> {
        if states.is_some_and(|states| states <= u128::from(MOST_STATES)) {
            return Ok(());
        }
        let what = format!("{what}, so that there are no more than {MOST_STATES} states,");
        Err(self.refuse(&what, must_be))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::Repeat;

    #[test]
    fn chains_have_their_transitions_in_both_directions() {
        // The number of transitions, or None where it is not known in closed form.
        let mut cases = vec![
            ("birth-death:5,1,0".to_owned(), Some(4)),
            ("birth-death:5,0,1".to_owned(), Some(4)),
            ("birth-death:5,0,0".to_owned(), Some(0)),
        ];
        cases.extend([1, 2, 3, 6, 7, 50].map(|n: usize| (format!("birth-death:{n},2,3"), Some(2 * (n - 1)))));
        cases.extend([7, 10, 100].map(|n: usize| (format!("circulant:{n},3,-3,1,-1,-5"), Some(5 * n))));
        // Arrivals from the (C+1)(2C−1) states with sc < C, C(C+1) phase changes, C(2C+1) services
        // of the second station and 2C·C departures to it.
        let tandem = |c: usize| (c + 1) * (2 * c - 1) + c * (c + 1) + c * (2 * c + 1) + 2 * c * c;
        cases.extend([1, 2, 5, 15].map(|c| (format!("tandem:{c}"), Some(tandem(c)))));
        // Without the diagonal: n = 864K² + 144K + 4.
        let wlan = |k: usize| 4128 * k * k - 248 * k - 60;
        cases.extend([4, 6, 9, 14].map(|k| (format!("wlan:{k},6"), Some(wlan(k)))));
        let small = ["1,1", "1,2", "2,1", "3,1", "1,6", "2,2", "5,1", "3,4", "4,3", "2,9", "7,1", "9,2"];
        cases.extend(small.map(|queues| (format!("wlan:{queues}"), None)));
        for (spec, count) in cases {
            let chain = parse(&spec).unwrap().unwrap().transitions;
            let found = check_transpose(&*chain);
            assert!(count.is_none_or(|count| count == found), "{spec}: {found} transitions");
            check_repeats(&*chain);
            assert!(spec.contains(",0") || irreducible(&*chain), "{spec}");
        }
    }

    /// Asserts that `incoming` is the transpose of `outgoing`; returns the number of transitions.
    ///
    /// Rows must be ascending, without self-loops and duplicates, and rates positive.
    fn check_transpose(chain: &dyn Transitions) -> usize {
        let n = chain.states();
        let mut transposed = vec![Vec::new(); n];
        let (mut row, mut transitions) = (Vec::new(), 0);
        let mut exits = vec![0.0; n];
        chain.exit_rates(0..n, &mut exits);
        for (state, exit) in exits.iter().enumerate() {
            let row = chain.leaving(state, &mut row);
            check_row(state, row);
            let sum = crate::transient::chain::transitions::exit_rate(row.iter().map(|&(_, rate)| rate));
            assert_eq!(sum.to_bits(), exit.to_bits(), "exit rate of state {state}");
            for &(target, rate) in row {
                assert!((target as usize) < n, "{state} -> {target} of {n} states");
                transposed[target as usize].push((state as u32, rate));
            }
            transitions += row.len();
        }
        for (state, expected) in transposed.iter().enumerate() {
            // Existing content of `row` must be kept.
            row.clear();
            row.push((7, 7.0));
            chain.incoming(state, &mut row);
            assert_eq!(row[0], (7, 7.0));
            check_row(state, &row[1..]);
            assert_eq!(&row[1..], &expected[..], "transitions into state {state}");
        }
        transitions
    }

    /// Asserts that repeating states have the rows of the states one period before them.
    fn check_repeats(chain: &dyn Transitions) {
        let mut seen = 0;
        for Repeat { rows, period, reach } in chain.repeats() {
            assert!(period > 0 && rows.start >= period.max(seen) && rows.end <= chain.states(), "{rows:?}");
            seen = rows.end;
            for state in rows {
                for way in [into as Way, out_of] {
                    let near = |&(other, _): &(u32, f64)| state.abs_diff(other as usize) <= reach;
                    assert!(way(chain, state).iter().all(near), "state {state}");
                    // Relative to the state: the other one, the rate, and the length of its row.
                    let relative = |state: usize| -> Vec<(isize, u64, usize)> {
                        let row = way(chain, state).into_iter().map(|(other, rate)| (other as usize, rate));
                        let from = |to: usize| to as isize - state as isize;
                        row.map(|(to, rate)| (from(to), rate.to_bits(), into(chain, to).len())).collect()
                    };
                    assert_eq!(relative(state), relative(state - period), "state {state}");
                }
            }
        }
    }

    /// Function that returns a state's transitions in one direction.
    type Way = fn(&dyn Transitions, usize) -> Vec<(u32, f64)>;

    fn into(chain: &dyn Transitions, state: usize) -> Vec<(u32, f64)> {
        chain.entering(state, &mut Vec::new()).to_vec()
    }

    fn out_of(chain: &dyn Transitions, state: usize) -> Vec<(u32, f64)> {
        chain.leaving(state, &mut Vec::new()).to_vec()
    }

    fn check_row(state: usize, row: &[(u32, f64)]) {
        assert!(row.windows(2).all(|pair| pair[0].0 < pair[1].0), "{state}: not ascending: {row:?}");
        assert!(row.iter().all(|&(other, rate)| other as usize != state && rate > 0.0), "{state}: {row:?}");
    }

    /// True if every state reaches all states: state 0 reaches all, forwards and backwards.
    fn irreducible(chain: &dyn Transitions) -> bool {
        let n = chain.states();
        [into as Way, out_of].into_iter().all(|way| {
            let (mut seen, mut stack) = (vec![false; n], vec![0]);
            seen[0] = true;
            while let Some(state) = stack.pop() {
                for (other, _) in way(chain, state) {
                    if !std::mem::replace(&mut seen[other as usize], true) {
                        stack.push(other as usize);
                    }
                }
            }
            seen.into_iter().all(|s| s)
        })
    }

    #[test]
    fn names_of_other_kinds_are_not_parsed() {
        for other in ["poisson2d:3,0.9", "graph.txt"] {
            assert!(graph(other, 0).is_none(), "{other}");
        }
        for other in ["matrix.mtx", "wlan:3,4"] {
            assert!(system(other, 0).is_none(), "{other}");
        }
    }

    #[test]
    fn specifications() {
        for (spec, name, states) in [
            ("wlan:113,6", "wlan:113,6", 11_048_692),
            ("wlan:204, 6", "wlan:204,6", 35_985_604),
            ("wlan:1,1", "wlan:1,1", 52),
            ("tandem:15", "tandem:15", 496),
            ("birth-death:1,2.50,3", "birth-death:1,2.5,3", 1),
            ("circulant:8,-1, 1,+3", "circulant:8,-1,1,3", 8),
            ("circulant:1e3,-3e1,1_0", "circulant:1000,-30,10", 1000),
        ] {
            let model = parse(spec).unwrap().unwrap();
            assert_eq!((&model.name[..], model.transitions.states(), model.initial), (name, states, 0));
        }
        for path in ["model.tra", "wlan", "wlan2:3,4", "C:\\chains\\wlan.tra", "", ":", "/tmp/tandem:3"] {
            assert!(parse(path).is_none(), "{path}");
        }
    }

    #[test]
    fn the_largest_number_of_states_is_met_without_overflow() {
        // 6M² + 12M + 4 ≤ 2³² − 2 with M = 2KS first fails at KS = 13377, 2C² + 3C + 1 at C =
        // 46341.
        assert_eq!(parse("tandem:46340").unwrap().unwrap().transitions.states(), 4_294_930_221);
        assert_eq!(parse("wlan:13376,1").unwrap().unwrap().transitions.states(), 4_294_338_052);
        assert_eq!(parse("birth-death:4294967294,1,1").unwrap().unwrap().transitions.states(), 4_294_967_294);
    }
}
