//! Properties of chains in continuous time.

use fastrand::Rng;
use kolmo::Machine;
use kolmo::kernel::Precision;
use kolmo::transient::{Chain, Method, Options};
use kolmo_check::{Case, ChainRef, PropertyAnswer, Questions, Subject, Truncation, Verdict, language};
use kolmo_model::{PrismModel, Value};

use crate::double_word::{DoubleWord, eliminate};
use crate::{ask, chain, each_seed, machine};

/// A chain of a few states, with labels "a" and "b" and the reward "r".
#[derive(Clone, Debug)]
struct Small {
    rate: Vec<Vec<f64>>,
    a: Vec<bool>,
    b: Vec<bool>,
    reward: Vec<f64>,
}

impl Small {
    /// Random chain with several classes, absorbing and unreachable states, and cycles.
    fn new(rng: &mut Rng) -> Self {
        let n = rng.usize(2..9);
        let mut rate = vec![vec![0.0; n]; n];
        let stiff = rng.bool();
        for (i, rates) in rate.iter_mut().enumerate() {
            let targets = [0, 1, 1, 2, 3][rng.usize(0..5)];
            for _ in 0..targets {
                let j = if rng.u8(0..3) == 0 { (i + 1) % n } else { rng.usize(0..n) };
                let power = if stiff { rng.f64() * 6.0 - 3.0 } else { rng.f64() };
                rates[j] = if rng.bool() { 1.0 } else { 10f64.powf(power) };
            }
            rates[i] = 0.0;
        }
        let mut set = |share: u8| -> Vec<bool> { (0..n).map(|_| rng.u8(0..4) < share).collect() };
        let (a, b) = (set(3), set(1));
        let reward =
            (0..n).map(|_| f64::from(rng.u16(0..1000)) * [0.1, 1.0, 1e-3][rng.usize(0..3)]).collect();
        Self { rate, a, b, reward }
    }

    fn n(&self) -> usize {
        self.rate.len()
    }

    fn chain(&self) -> Chain {
        chain(&self.rate, false, [&self.a, &self.b], self.reward.clone())
    }

    /// Answers properties from state 0 with these options.
    fn ask(&self, properties: &[String], machine: &Machine, options: &Options) -> Vec<PropertyAnswer> {
        ask(self.chain(), 0, properties, machine, options)
    }

    /// States that reach "b" almost surely.
    fn ever(&self) -> Vec<bool> {
        let whole = Self { a: vec![true; self.n()], ..self.clone() };
        whole.truth(0.0, f64::INFINITY).into_iter().map(|(_, certain)| certain).collect()
    }

    /// (possible, certain) for `a U[from,to] b` from each state, by the definition of paths.
    fn truth(&self, from: f64, to: f64) -> Vec<(bool, bool)> {
        let n = self.n();
        let passing: Vec<bool> = (0..n).map(|s| self.a[s] && !self.b[s]).collect();
        let leads = paths(&self.rate, &passing);
        let may: Vec<bool> = (0..n).map(|s| (0..n).any(|t| self.b[t] && leads[s][t])).collect();
        // In a finite chain b is certain if every state that is reached before it can still reach
        // it.
        let ever: Vec<bool> = (0..n).map(|s| (0..n).all(|t| !leads[s][t] || may[t])).collect();
        let later = paths(&self.rate, &self.a);
        let then = |s: usize| if to.is_infinite() { ever[s] } else { self.b[s] };
        let of = |s: usize| match () {
            () if to == 0.0 => (self.b[s], self.b[s]),
            () if from == 0.0 && to.is_infinite() => (may[s], ever[s]),
            () if from == 0.0 => (may[s], self.b[s]),
            () => {
                let ends = |t: usize| self.b[t] && (from < to || self.a[t]);
                let possible = self.a[s] && (0..n).any(|t| later[s][t] && ends(t));
                (possible, (0..n).all(|t| !later[s][t] || self.a[t] && then(t)))
            }
        };
        (0..n).map(of).collect()
    }
}

/// For each pair of states, true if the first reaches the second through these states.
pub(super) fn paths(rate: &[Vec<f64>], through: &[bool]) -> Vec<Vec<bool>> {
    let n = rate.len();
    let mut leads: Vec<Vec<bool>> =
        (0..n).map(|i| (0..n).map(|j| i == j || through[i] && rate[i][j] > 0.0).collect()).collect();
    for k in 0..n {
        for i in (0..n).filter(|i| *i != k) {
            let (by, through) = (leads[k].clone(), leads[i][k]);
            leads[i].iter_mut().zip(by).for_each(|(leads, by)| *leads |= through && by);
        }
    }
    leads
}

fn truth_of(row: &PropertyAnswer) -> Option<bool> {
    row.truth().unwrap_or_else(|| panic!("{} has no truth", row.text))
}

#[test]
fn paths_are_possible_and_certain_where_the_graph_says_so() {
    let machine = machine(Precision::F64);
    each_seed(60, |rng| {
        let small = Small::new(rng);
        let times =
            [(0.0, f64::INFINITY), (0.0, 1.5), (0.0, 0.0), (1.0, 2.0), (1.0, 1.0), (1.0, f64::INFINITY)];
        let (from, to) = times[rng.usize(0..times.len())];
        let time = match (from, to) {
            (0.0, f64::INFINITY) => String::new(),
            (_, f64::INFINITY) => format!(">={from}"),
            (0.0, _) => format!("<={to}"),
            _ => format!("[{from},{to}]"),
        };
        let path = format!("\"a\" U{time} \"b\"");
        let truth = small.truth(from, to);
        let mut properties = Vec::new();
        for bound in ["P>0", "P>=1", "P<=0", "P<1"] {
            properties.push(format!("{bound} [ {path} ]"));
            properties.push(format!("filter(count, {bound} [ {path} ])"));
        }
        let rows = small.ask(&properties, &machine, &Options::default());
        let holds: [fn((bool, bool)) -> bool; 4] = [|t| t.0, |t| t.1, |t| !t.0, |t| !t.1];
        for (rows, holds) in rows.chunks(2).zip(holds) {
            if truth_of(&rows[0]) != Some(holds(truth[0])) {
                return Err(format!("{}: {:?}, {small:?}", rows[0].text, rows[0].found));
            }
            let count = truth.iter().filter(|t| holds(**t)).count() as f64;
            if rows[1].value() != Some(count) || rows[1].error() != 0.0 {
                return Err(format!("{}: {:?}, {count}, {small:?}", rows[1].text, rows[1].found));
            }
        }
        // Mean times are infinite exactly where the target may be missed.
        let certain = small.ever();
        let means = ["T=? [ F \"b\" ]", "filter(max, T=? [ F \"b\" ])"].map(str::to_owned);
        let rows = small.ask(&means, &machine, &Options::default());
        for (row, finite) in rows.iter().zip([certain[0], certain.iter().all(|c| *c)]) {
            let infinite = row.value() == Some(f64::INFINITY) && row.error() == 0.0;
            if infinite == finite || !row.error().is_finite() {
                return Err(format!("{}: {:?}, {small:?}", row.text, row.found));
            }
        }
        Ok(())
    });
}

/// Probability of being in a set at a time, from each state; states of `fixed` are absorbing.
fn at(small: &Small, fixed: &[bool], start: &[f64], time: f64) -> Vec<f64> {
    let n = small.n();
    let exit = |s: usize| if fixed[s] { 0.0 } else { small.rate[s].iter().sum::<f64>() };
    let alpha = (0..n).map(exit).fold(1e-3, f64::max);
    let (mut v, mut sum) = (start.to_vec(), vec![0.0; n]);
    let mean: f64 = alpha * time;
    let last = (mean + 12.0 * mean.sqrt() + 40.0) as u64;
    let mut log = -mean;
    for k in 0..=last {
        let weight = log.exp();
        sum.iter_mut().zip(&v).for_each(|(sum, v)| *sum += weight * v);
        log += (mean / (k + 1) as f64).ln();
        let step = |s: usize| {
            let moved: f64 = (0..n).map(|t| small.rate[s][t] * (v[t] - v[s])).sum();
            v[s] + if fixed[s] { 0.0 } else { moved / alpha }
        };
        v = (0..n).map(step).collect();
    }
    sum
}

#[test]
fn untils_have_their_probabilities_by_every_method() {
    let machines = [machine(Precision::F64), machine(Precision::Q64)];
    each_seed(40, |rng| {
        let mut small = Small::new(rng);
        small.rate.iter_mut().flatten().for_each(|rate| *rate = rate.min(20.0));
        let n = small.n();
        let (from, length) = (rng.f64() * 2.0, rng.f64() * 3.0 + 0.01);
        let number =
            |of: &dyn Fn(usize) -> bool| -> Vec<f64> { (0..n).map(|s| f64::from(u8::from(of(s)))).collect() };
        let over: Vec<bool> = (0..n).map(|s| !small.a[s] || small.b[s]).collect();
        let lost: Vec<bool> = small.a.iter().map(|a| !a).collect();
        let bounded = at(&small, &over, &number(&|s| small.b[s]), length);
        let later: Vec<f64> = (0..n).map(|s| if small.a[s] { bounded[s] } else { 0.0 }).collect();
        let within = at(&small, &lost, &later, from);
        let then = at(&small, &lost, &number(&|s| small.a[s] && small.b[s]), from);
        let ever = at(&small, &over, &number(&|s| small.b[s]), 0.0);
        let to = from + length;
        let cases = [
            (format!("P=? [ \"a\" U<={length} \"b\" ]"), &bounded),
            (format!("P=? [ \"a\" U[{from},{to}] \"b\" ]"), &within),
            (format!("P=? [ \"a\" U[{from},{from}] \"b\" ]"), &then),
            ("P=? [ \"a\" U<=0 \"b\" ]".to_owned(), &ever),
        ];
        let mut properties: Vec<String> = cases.iter().map(|(text, _)| text.clone()).collect();
        properties.extend(cases.iter().map(|(text, _)| format!("filter(sum, {text})")));
        properties.extend(cases.iter().map(|(text, _)| format!("filter(min, {text})")));
        let methods = [
            (0, Method::Auto),
            (0, Method::Uniformization),
            (0, Method::Chebyshev { strict: false }),
            (0, Method::Krylov { strict: false }),
            (1, Method::Auto),
        ];
        for (place, method) in methods {
            let options = Options::default().method(method);
            let rows = small.ask(&properties, &machines[place], &options);
            for (k, row) in rows.iter().enumerate() {
                let wanted = cases[k % 4].1;
                let wanted = match k / 4 {
                    0 => wanted[0],
                    1 => wanted.iter().sum(),
                    _ => wanted.iter().copied().fold(f64::INFINITY, f64::min),
                };
                let (value, bound) = (row.value().expect("a number"), row.error());
                // The reference rounds as well, and divides the interval differently.
                let far = (value - wanted).abs() > bound + 1e-12 || bound > 2e-8;
                if far || value < 0.0 || (k < 4 && value > 1.0) {
                    return Err(format!("{method:?} {}: {value} ± {bound}, {wanted}; {small:?}", row.text));
                }
            }
        }
        Ok(())
    });
}

/// Solves E_i v_i − Σ r_ij v_j = b_i on some states by elimination with pivoting, in double-double.
pub(super) fn solved(
    rate: &[Vec<f64>],
    inside: &[bool],
    right: &dyn Fn(usize) -> DoubleWord,
) -> Vec<DoubleWord> {
    let states: Vec<usize> = (0..rate.len()).filter(|s| inside[*s]).collect();
    let m = states.len();
    let entry = |i: usize, j: usize| {
        let sum = rate[states[i]].iter().fold(DoubleWord::ZERO, |sum, rate| sum + (*rate).into());
        if i == j { sum } else { -DoubleWord::from(rate[states[i]][states[j]]) }
    };
    let rows = (0..m).map(|i| (0..m).map(|j| entry(i, j)).chain([right(states[i])]).collect());
    let solution = eliminate(rows.collect()).expect("a regular matrix");
    let mut all = vec![DoubleWord::ZERO; rate.len()];
    states.iter().zip(solution).for_each(|(&state, value)| all[state] = value);
    all
}

/// Long-run average of the reward from each state.
///
/// In a closed class it is the reward over the time of a cycle that starts and ends in one state.
fn averages(small: &Small, leads: &[Vec<bool>]) -> Vec<DoubleWord> {
    let n = small.n();
    let closed: Vec<bool> = (0..n).map(|s| (0..n).all(|t| !leads[s][t] || leads[t][s])).collect();
    let mut all = vec![DoubleWord::ZERO; n];
    let sum = |s: usize, of: &dyn Fn(usize) -> DoubleWord| {
        (0..n).fold(DoubleWord::ZERO, |sum, t| sum + DoubleWord::from(small.rate[s][t]) * of(t))
    };
    for s in (0..n).filter(|s| closed[*s]) {
        // The first state of the class.
        let first = (0..n).find(|t| leads[s][*t]).expect("the state itself");
        let others: Vec<bool> = (0..n).map(|t| leads[s][t] && t != first).collect();
        let times = solved(&small.rate, &others, &|_| DoubleWord::ONE);
        let rewards = solved(&small.rate, &others, &|t| small.reward[t].into());
        let cycle = DoubleWord::ONE + sum(first, &|t| times[t]);
        all[s] = (DoubleWord::from(small.reward[first]) + sum(first, &|t| rewards[t])) / cycle;
    }
    let before: Vec<bool> = closed.iter().map(|closed| !closed).collect();
    let into = |s: usize| sum(s, &|t| if closed[t] { all[t] } else { DoubleWord::ZERO });
    let transient = solved(&small.rate, &before, &into);
    (0..n).map(|s| if closed[s] { all[s] } else { transient[s] }).collect()
}

/// Filters of values that are known exactly, or in double-double: bounds hold without slack.
#[test]
fn filters_of_exact_values_are_within_their_bounds() {
    let machines = [machine(Precision::F64), machine(Precision::Q64)];
    each_seed(120, |rng| {
        let small = Small::new(rng);
        let n = small.n();
        let leads = paths(&small.rate, &vec![true; n]);
        let may: Vec<bool> = (0..n).map(|s| (0..n).any(|t| small.b[t] && leads[s][t])).collect();
        let certain = small.ever();
        let open: Vec<bool> = (0..n).map(|s| may[s] && !certain[s]).collect();
        let into = |s: usize| {
            (0..n).filter(|t| certain[*t]).fold(DoubleWord::ZERO, |sum, t| sum + small.rate[s][t].into())
        };
        let solution = solved(&small.rate, &open, &into);
        let ever = (0..n).map(|s| if certain[s] { DoubleWord::ONE } else { solution[s] }).collect();
        let reward: Vec<DoubleWord> = small.reward.iter().map(|r| (*r).into()).collect();
        let mut cases: Vec<(&str, Vec<DoubleWord>)> = vec![
            ("R{\"r\"}=? [ I=0 ]", reward),
            ("P=? [ F \"b\" ]", ever),
            ("R{\"r\"}=? [ S ]", averages(&small, &leads)),
        ];
        if certain.iter().all(|c| *c) {
            let before: Vec<bool> = small.b.iter().map(|b| !b).collect();
            cases.push(("T=? [ F \"b\" ]", solved(&small.rate, &before, &|_| DoubleWord::ONE)));
            cases.push(("R{\"r\"}=? [ F \"b\" ]", solved(&small.rate, &before, &|s| small.reward[s].into())));
        }
        let (mut properties, mut wanted) = (Vec::new(), Vec::new());
        for (text, values) in &cases {
            properties.push(text.to_string());
            wanted.push(values[0]);
            for kind in ["sum", "avg", "min", "max"] {
                properties.push(format!("filter({kind}, {text}, true)"));
                let values = values.iter().copied();
                wanted.push(match kind {
                    "sum" => values.sum(),
                    "avg" => values.sum::<DoubleWord>() / DoubleWord::from(n as f64),
                    "min" => values.reduce(|a, b| if a <= b { a } else { b }).expect("states"),
                    _ => values.reduce(|a, b| if a >= b { a } else { b }).expect("states"),
                });
            }
        }
        let rows = machines.iter().flat_map(|machine| small.ask(&properties, machine, &Options::default()));
        for (row, wanted) in rows.zip(wanted.iter().cycle().copied()) {
            let (value, bound) = (row.value().expect("a number"), row.error());
            let error = (DoubleWord::from(value) - wanted).abs();
            // Rounding error of the reference.
            let slack = DoubleWord::product(1e-24, wanted.abs().to_f64());
            if error > DoubleWord::from(bound) + slack || !bound.is_finite() {
                return Err(format!("{}: {value} ± {bound}, off by {error:?}; {small:?}", row.text));
            }
        }
        Ok(())
    });
}

#[test]
fn operators_inside_of_others_hold_where_they_do_alone() {
    let machine = machine(Precision::F64);
    each_seed(40, |rng| {
        let small = Small::new(rng);
        let inner = ["P>0.5 [ F<=1 \"b\" ]", "P>=1 [ F \"b\" ]", "S>0.25 [ \"b\" ]", "R{\"r\"}<5 [ C<=1 ]"]
            [rng.usize(0..4)];
        let mut named = small.clone();
        // The inner property is evaluated from each state alone.
        for s in 0..small.n() {
            let mut moved = small.clone();
            moved.a = (0..small.n()).map(|t| t == s).collect();
            let alone = [format!("filter(state, {inner}, \"a\")")];
            match truth_of(&moved.ask(&alone, &machine, &Options::default())[0]) {
                Some(truth) => named.b[s] = truth,
                // The value is at the threshold.
                None => return Ok(()),
            }
        }
        let outer =
            ["P=? [ F<=2 X ]", "P=? [ G<=1 X ]", "P=? [ \"a\" U X ]", "filter(count, X)"][rng.usize(0..4)];
        let alone = named.ask(&[outer.replace('X', "\"b\"")], &machine, &Options::default());
        let nested = small.ask(&[outer.replace('X', &format!("({inner})"))], &machine, &Options::default());
        let [one, other] = [&alone[0], &nested[0]].map(|row| (row.value().expect("a number"), row.error()));
        match (one.0 - other.0).abs() <= one.1 + other.1 {
            true => Ok(()),
            false => Err(format!("{outer} with {inner}: {one:?} and {other:?}; {small:?}")),
        }
    });
}

#[test]
fn absorbing_states_count_by_their_labels() {
    // Two counters that step at rate 1 until their sum is 20.
    let (side, n) = (40, 1600);
    let sum = |state: usize| state / side + state % side;
    let mut rates = vec![vec![0.0; n]; n];
    for state in (0..n).filter(|&state| sum(state) < 20) {
        (rates[state][state + 1], rates[state][state + side]) = (1.0, 1.0);
    }
    let low: Vec<bool> = (0..n).map(|s| sum(s) < 20).collect();
    let half: Vec<bool> = (0..n).map(|s| sum(s) == 20 && s / side >= s % side).collect();
    let chain = chain(&rates, false, [&low, &half], vec![0.0; n]);
    let asked = ["P=? [ \"a\" U<=8 \"b\" ]", "P=? [ F<=8 !\"a\" ]"].map(str::to_owned);
    let found = ask(chain, 0, &asked, &machine(Precision::F64), &Options::default());
    let next = |term: &mut f64, k: u32| Some(std::mem::replace(term, *term * 16.0 / f64::from(k)));
    let reached = 1.0 - (1..=20).scan((-16f64).exp(), next).sum::<f64>();
    for (row, share) in found.iter().zip([0.5 + 92_378.0 / f64::from(1 << 20), 1.0]) {
        let error = (row.value().expect("a number") - share * reached).abs();
        assert!(error <= row.error() && row.error() <= 1e-9, "{} has the error {error}", row.text);
    }
}

/// Value, bound and truncation error of a property of a truncated model.
fn truncated(text: &str, property: &str, constants: &[(String, Value)], machine: &Machine) -> [f64; 3] {
    let model = PrismModel::parse("model.sm", text).expect("a model");
    let subject = Subject::Language(model.clone());
    let mut questions = Questions::read(&[property.to_owned()], &subject).expect("a property");
    let allowed = 1e-8;
    questions.allowed = allowed;
    let options = Options::default().epsilon(1e-7 - allowed);
    let instance = model.with_constants(constants).expect("constants");
    let mut truncation = Truncation::new(instance, allowed, 1e-7).expect("a loss");
    loop {
        let space = truncation.explore(None, &|_| true).expect("a part");
        let asked =
            questions.plan(ChainRef::Explored(&space), &Case::of(constants), &mut ()).expect("a plan");
        let chain = language::bare("model.sm", space).expect("a chain");
        let answers = asked.answer(chain, machine, &options, &mut ()).expect("answers");
        if truncation.is_enough(&answers.left) {
            let Verdict::Number(answer) = answers.rows[0].found else { panic!("a number is asked for") };
            return [answer.value, answer.error, answer.loss];
        }
    }
}

#[test]
fn truncated_models_have_their_closed_forms() {
    let machine = machine(Precision::F64);
    let poisson = |mean: f64, k: u32| (1..=k).fold(-mean, |log, i| log + (mean / f64::from(i)).ln()).exp();
    each_seed(12, |rng| {
        let (l, m, t) = (1.0 + 40.0 * rng.f64(), 0.2 + rng.f64(), 0.1 + 2.0 * rng.f64());
        let mean = l / m * (1.0 - (-m * t).exp());
        let k = (rng.f64() * 1.5 * (l * t)) as u32;
        let below = |mean: f64| (0..k).map(|i| poisson(mean, i)).sum::<f64>();
        let slow = 0.05 * l;
        let yule = 1 + (rng.f64() * 20.0) as u32;
        let grown = (1.0 - (-slow * t).exp()).powi(yule as i32 - 1);
        let head = "ctmc\nconst double l;\nconst double m;\nmodule p\n n : int init";
        let with = |command: &str, first: u32| format!("{head} {first};\n {command}\nendmodule\n");
        let queue = with("[] true -> l : (n'=n+1); [] n>0 -> n*m : (n'=n-1);", 0);
        let cases = [
            (with("[] true -> l : (n'=n+1);", 0), format!("P=? [ F<={t} n>={k} ]"), 1.0 - below(l * t)),
            (queue, format!("P=? [ F={t} n={k} ]"), poisson(mean, k)),
            (with("[] true -> 0.05*l*n : (n'=n+1);", 1), format!("P=? [ F<={t} n>={yule} ]"), grown),
        ];
        let constants = [("l".to_owned(), Value::Double(l)), ("m".to_owned(), Value::Double(m))];
        for (text, property, wanted) in cases {
            let [value, bound, loss] = truncated(&text, &property, &constants, &machine);
            let right = (value - wanted).abs() <= bound + 1e-12 && value <= wanted + bound - loss + 1e-12;
            if !right || bound > 1.1e-7 {
                return Err(format!("{property} of {text}: {value} ± {bound}, {wanted} (l = {l}, m = {m})"));
            }
        }
        Ok(())
    });
}

/// Quadratic birth and cubic death rates: probability settles far from the initial state.
#[test]
fn a_part_that_ends_before_the_state_of_rest_goes_on() {
    let text = "ctmc\nmodule m\n n : int init 200;\n [] true -> n*n/50 : (n'=n+1);\n \
                [] n>0 -> n*n*n/70000 : (n'=n-1);\nendmodule\n";
    let machine = machine(Precision::F64);
    // The sum of all probabilities is 1 less the truncation error.
    let [value, bound, loss] = truncated(text, "P=? [ F=0.4 n>=0 ]", &[], &machine);
    assert!(value >= 1.0 - bound && bound <= 1.1e-7 && loss <= 1e-8, "{value} ± {bound}, {loss}");
}
