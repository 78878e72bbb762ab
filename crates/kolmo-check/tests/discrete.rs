//! Properties of chains in discrete time, compared with exact fractions and closed forms.

use fastrand::Rng;
use kolmo::Machine;
use kolmo::kernel::Precision;
use kolmo::transient::Options;
use kolmo_check::{Case, ChainRef, PropertyAnswer, Questions, Subject, language};
use kolmo_model::PrismModel;

use crate::continuous::{paths, solved};
use crate::double_word::DoubleWord;
use crate::{chain, each_seed, machine};

/// Denominator of all probabilities: halves, thirds and their products.
const PARTS: i128 = 12;

/// Random chain with probabilities in twelfths, sets "a" and "b", and a reward.
#[derive(Debug)]
struct Random {
    parts: Vec<Vec<i128>>,
    a: Vec<bool>,
    b: Vec<bool>,
    reward: Vec<i128>,
    initial: usize,
}

impl Random {
    fn new(rng: &mut Rng) -> Self {
        let n = rng.usize(2..8);
        let mut parts = vec![vec![0; n]; n];
        for row in &mut parts {
            // Few targets, or all twelfths spread out; periodic chains have one target a state.
            let targets = [1, 2, 3, 12][rng.usize(0..4)];
            for _ in 0..targets {
                row[rng.usize(0..n)] += PARTS / targets;
            }
        }
        let mut set = |share: u8| -> Vec<bool> { (0..n).map(|_| rng.u8(0..4) < share).collect() };
        let (a, b) = (set(3), set(1));
        let reward = (0..n).map(|_| i128::from(rng.u8(0..5))).collect();
        Self { parts, a, b, reward, initial: rng.usize(0..n) }
    }

    fn n(&self) -> usize {
        self.parts.len()
    }

    fn rows(&self) -> Vec<Vec<f64>> {
        let row = |row: &Vec<i128>| row.iter().map(|part| *part as f64 / PARTS as f64).collect();
        self.parts.iter().map(row).collect()
    }

    /// Answers properties from the initial state.
    fn ask(&self, properties: &[String], machine: &Machine) -> Vec<PropertyAnswer> {
        let reward = self.reward.iter().map(|reward| *reward as f64).collect();
        let chain = chain(&self.rows(), true, [&self.a, &self.b], reward);
        crate::ask(chain, self.initial, properties, machine, &Options::default())
    }

    /// Σ P v, in units smaller by a factor of [`PARTS`].
    fn step(&self, v: &[i128]) -> Vec<i128> {
        self.parts.iter().map(|row| row.iter().zip(v).map(|(part, v)| part * v).sum()).collect()
    }

    /// Probability of `a U[from,to] b` from each state, by its definition; times PARTS^to.
    fn until(&self, from: u32, to: u32) -> Vec<i128> {
        let one = PARTS.pow(to);
        let next = (to > 0).then(|| self.step(&self.until(from.saturating_sub(1), to - 1)));
        let of = |s: usize| match &next {
            _ if from == 0 && self.b[s] => one,
            Some(next) if self.a[s] => next[s],
            _ => 0,
        };
        (0..self.n()).map(of).collect()
    }

    /// Twice the probability of `a U<=to b` less that of `X b`, from each state; times PARTS^to.
    fn difference(&self, to: u32) -> Vec<i128> {
        let next = self.next().into_iter().map(|next| next * PARTS.pow(to - 1));
        self.until(0, to).into_iter().zip(next).map(|(until, next)| 2 * until - next).collect()
    }

    /// Probability that the next state is in "b" from each state; times PARTS.
    fn next(&self) -> Vec<i128> {
        self.step(&self.b.iter().map(|b| i128::from(*b)).collect::<Vec<_>>())
    }

    /// Expected reward after `steps` steps, or `cumulative` before that, times PARTS^steps.
    ///
    /// One value for each initial state.
    fn reward(&self, steps: u32, cumulative: bool) -> Vec<i128> {
        let own = |k: u32| self.reward.iter().map(move |reward| reward * PARTS.pow(k));
        match (steps, cumulative) {
            (0, true) => vec![0; self.n()],
            (0, false) => self.reward.clone(),
            (_, true) => {
                own(steps).zip(self.step(&self.reward(steps - 1, true))).map(|(a, b)| a + b).collect()
            }
            (_, false) => self.step(&self.reward(steps - 1, false)),
        }
    }
}

#[test]
fn bounded_properties_of_random_chains_are_those_by_exact_fractions() {
    let machines = [machine(Precision::F64), machine(Precision::Q64)];
    each_seed(60, |rng| {
        let random = Random::new(rng);
        let from = rng.u32(1..5);
        let to = from + rng.u32(0..5);
        let cases = [
            (format!("P=? [ \"a\" U<={to} \"b\" ]"), random.until(0, to), to),
            (format!("P=? [ \"a\" U[{from},{to}] \"b\" ]"), random.until(from, to), to),
            (format!("P=? [ \"a\" U={from} \"b\" ]"), random.until(from, from), from),
            (format!("P=? [ \"a\" U<{to} \"b\" ]"), random.until(0, to - 1), to - 1),
            ("P=? [ X \"b\" ]".to_owned(), random.next(), 1),
            (format!("R=? [ C<={to} ]"), random.reward(to, true), to),
            (format!("R=? [ I={to} ]"), random.reward(to, false), to),
            ("P=? [ X (\"a\" U<=2 \"b\") ]".to_owned(), random.step(&random.until(0, 2)), 3),
            (format!("2*P=? [ \"a\" U<={to} \"b\" ] - P=? [ X \"b\" ]"), random.difference(to), to),
        ];
        let mut properties: Vec<String> = cases.iter().map(|(text, ..)| text.clone()).collect();
        properties.extend(cases.iter().map(|(text, ..)| format!("filter(sum, {text})")));
        for machine in &machines {
            for (k, row) in random.ask(&properties, machine).iter().enumerate() {
                let (_, exact, steps) = &cases[k % cases.len()];
                let exact: i128 = if k < cases.len() { exact[random.initial] } else { exact.iter().sum() };
                // Numerators are far below 2⁵³ times their denominator's rounding.
                let exact = exact as f64 / PARTS.pow(*steps) as f64;
                let (value, bound) = (row.value().expect("a number"), row.error());
                // In fixed point the bound is for the thirds as stored.
                let stored = match machine.precision {
                    Precision::Q64 => 8.0 * f64::EPSILON * f64::from(*steps) * (1.0 + exact.abs()),
                    _ => 0.0,
                };
                if (value - exact).abs() > bound + f64::EPSILON * exact.abs() + stored || bound >= 1e-11 {
                    return Err(format!("{}: {value} ± {bound}, {exact}; {random:?}", row.text));
                }
            }
        }
        Ok(())
    });
}

/// Formula of LTL, built from few operators.
#[derive(Debug, Clone)]
enum Tree {
    Set(Vec<bool>),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Next(Box<Self>),
    Until(Box<Self>, Box<Self>),
}

/// Random formula with up to `left` temporal operators, as text and as tree.
fn formula(rng: &mut Rng, random: &Random, left: &mut u32) -> (String, Tree) {
    use Tree as T;
    let set = |set: &Vec<bool>| T::Set(set.clone());
    let not = |tree: T| T::Not(Box::new(tree));
    let until = |a: T, b: T| T::Until(Box::new(a), Box::new(b));
    let next = |own: T| T::Next(Box::new(own));
    let both = |a: T, b: T| T::And(Box::new(a), Box::new(b));
    let or = |a: T, b: T| not(both(not(a), not(b)));
    let always = || T::Set(vec![true; random.n()]);
    match rng.u8(0..10) {
        0 => ("\"a\"".to_owned(), set(&random.a)),
        1 => ("\"b\"".to_owned(), set(&random.b)),
        2 | 3 => {
            let ((a, one), (b, other)) = (formula(rng, random, left), formula(rng, random, left));
            match rng.bool() {
                true => (format!("(({a}) & ({b}))"), both(one, other)),
                false => (format!("(({a}) => ({b}))"), or(not(one), other)),
            }
        }
        _ if *left == 0 => ("\"b\"".to_owned(), set(&random.b)),
        4..=7 => {
            *left -= 1;
            let (a, own) = formula(rng, random, left);
            match rng.u8(0..4) {
                0 => (format!("(X ({a}))"), next(own)),
                1 => (format!("(F ({a}))"), until(always(), own)),
                2 => (format!("(G ({a}))"), not(until(always(), not(own)))),
                _ => (format!("(F[1,2] ({a}))"), next(or(own.clone(), next(own)))),
            }
        }
        _ => {
            *left -= 1;
            let ((a, one), (b, other)) = (formula(rng, random, left), formula(rng, random, left));
            match rng.u8(0..4) {
                0 => (format!("(({a}) U ({b}))"), until(one, other)),
                3 => {
                    let later = both(one.clone(), next(other.clone()));
                    (format!("(({a}) U[1,2] ({b}))"), both(one, next(or(other, later))))
                }
                1 => (format!("(({a}) R ({b}))"), not(until(not(one), not(other)))),
                _ => {
                    let kept = not(until(always(), not(one.clone())));
                    (format!("(({a}) W ({b}))"), or(until(one, other), kept))
                }
            }
        }
    }
}

/// Chain with states split by the truth of temporal formulas.
///
/// Source: C. Courcoubetis and M. Yannakakis, "The complexity of probabilistic verification", JACM
/// 42, 1995.
struct Split {
    rows: Vec<Vec<f64>>,
    /// Original state of each state, and its share of the original state's probability.
    of: Vec<(usize, f64)>,
}

impl Split {
    /// Splits the chain until a formula is true or false in each state, and returns its truth.
    fn truth(&mut self, tree: &Tree, known: &mut Vec<Vec<bool>>) -> Vec<bool> {
        let both = |own: &mut Self, a: &Tree, b: &Tree, known: &mut Vec<Vec<bool>>| {
            let a = own.truth(a, known);
            known.push(a);
            let b = own.truth(b, known);
            (known.pop().expect("it was added"), b)
        };
        match tree {
            Tree::Set(set) => self.of.iter().map(|(state, _)| set[*state]).collect(),
            Tree::Not(a) => self.truth(a, known).into_iter().map(|a| !a).collect(),
            Tree::And(a, b) => {
                let (a, b) = both(self, a, b, known);
                a.into_iter().zip(b).map(|(a, b)| a && b).collect()
            }
            Tree::Next(a) => {
                let a = self.truth(a, known);
                let of = |row: &Vec<f64>, truth| {
                    row.iter().zip(&a).filter(|(_, a)| **a == truth).map(|(p, _)| p).sum()
                };
                let q: Vec<[f64; 2]> = self.rows.iter().map(|row| [of(row, false), of(row, true)]).collect();
                self.split(&q, &|_, truth, to, _| truth == a[to], known)
            }
            Tree::Until(a, b) => {
                let (a, b) = both(self, a, b, known);
                let open: Vec<bool> = a.iter().zip(&b).map(|(a, b)| *a && !b).collect();
                let never: Vec<bool> = self.may_reach(&b, &open).into_iter().map(|may| !may).collect();
                let fails = self.may_reach(&never, &open);
                let q = self.reached(&never, &fails);
                self.split(&q, &|from, truth, _, next| !open[from] || truth == next, known)
            }
        }
    }

    fn may_reach(&self, goal: &[bool], through: &[bool]) -> Vec<bool> {
        let leads = paths(&self.rows, through);
        leads.iter().map(|leads| leads.iter().zip(goal).any(|(leads, goal)| *leads && *goal)).collect()
    }

    /// Probabilities of false and true of an until formula.
    fn reached(&self, never: &[bool], fails: &[bool]) -> Vec<[f64; 2]> {
        let mut moves = self.rows.clone();
        moves.iter_mut().enumerate().for_each(|(s, row)| row[s] = 0.0);
        let open: Vec<bool> = never.iter().zip(fails).map(|(never, fails)| !never && *fails).collect();
        let into = |s: usize| {
            let sure = moves[s].iter().zip(fails).filter(|(_, fails)| !**fails);
            sure.fold(DoubleWord::ZERO, |sum, (p, _)| sum + (*p).into())
        };
        let q = solved(&moves, &open, &into);
        let of = |s: usize| if open[s] { q[s].to_f64() } else { f64::from(u8::from(!fails[s])) };
        (0..open.len()).map(|s| [1.0 - of(s), of(s)]).collect()
    }

    /// Splits each state by the truth of a formula with probabilities `q`, and returns the truth.
    fn split(
        &mut self,
        q: &[[f64; 2]],
        agrees: &dyn Fn(usize, bool, usize, bool) -> bool,
        known: &mut [Vec<bool>],
    ) -> Vec<bool> {
        let pair = |s: usize| [false, true].map(|truth| (s, truth));
        let copies: Vec<(usize, bool)> =
            (0..q.len()).flat_map(pair).filter(|(s, truth)| q[*s][usize::from(*truth)] > 0.0).collect();
        let row = |&(from, truth): &(usize, bool)| {
            let all = copies.iter().map(|&(to, next)| match agrees(from, truth, to, next) {
                true => self.rows[from][to] * q[to][usize::from(next)],
                false => 0.0,
            });
            let all: Vec<f64> = all.collect();
            let sum: f64 = all.iter().sum();
            all.iter().map(|p| p / sum).collect()
        };
        let rows = copies.iter().map(row).collect();
        let of = |&(s, truth): &(usize, bool)| (self.of[s].0, self.of[s].1 * q[s][usize::from(truth)]);
        *self = Self { rows, of: copies.iter().map(of).collect() };
        known.iter_mut().for_each(|set| *set = copies.iter().map(|(s, _)| set[*s]).collect());
        copies.into_iter().map(|(_, truth)| truth).collect()
    }
}

#[test]
fn formulas_of_ltl_have_the_probabilities_of_split_states() {
    let machine = machine(Precision::F64);
    each_seed(400, |rng| {
        let random = Random::new(rng);
        let (text, tree) = formula(rng, &random, &mut 4);
        let mut split = Split { rows: random.rows(), of: (0..random.n()).map(|s| (s, 1.0)).collect() };
        let truth = split.truth(&tree, &mut Vec::new());
        let mut exact = vec![0.0; random.n()];
        let true_ones = split.of.iter().zip(truth).filter(|(_, truth)| *truth);
        true_ones.for_each(|((state, p), _)| exact[*state] += p);
        let properties = [
            format!("P=? [ {text} ]"),
            format!("filter(sum, P=? [ !({text}) ])"),
            format!("filter(forall, P>0 [ {text} ] => E [ {text} ])"),
            format!("filter(forall, A [ {text} ] => P>=1 [ {text} ])"),
        ];
        let rows = random.ask(&properties, &machine);
        let sum: f64 = exact.iter().map(|p| 1.0 - p).sum();
        for (row, exact) in rows.iter().zip([exact[random.initial], sum]) {
            let (value, bound) = (row.value().expect("a number"), row.error());
            // Elimination with doubles is exact to about 1e-13.
            if (value - exact).abs() > bound + 1e-11 || bound >= 1e-8 {
                return Err(format!("{text}: {row:?}, {exact}; {random:?}"));
            }
        }
        // Thresholds of numbers of steps may be undecided.
        match rows[2..].iter().all(|row| row.truth() != Some(Some(false))) {
            true => Ok(()),
            false => Err(format!("{rows:?}; {random:?}")),
        }
    });
}

const GAMBLER: &str = include_str!("inputs/gambler.pm");

/// Answers of properties of a model.
fn of_model(text: &str, properties: &[&str]) -> Vec<PropertyAnswer> {
    let model = PrismModel::parse("test.pm", text).unwrap_or_else(|e| panic!("{e}"));
    let instance = model.with_constants(&[]).expect("constants");
    let space = language::explore(&instance, None, &|_| true).expect("states");
    let properties: Vec<String> = properties.iter().map(|text| (*text).to_owned()).collect();
    let questions = Questions::read(&properties, &Subject::Language(model)).expect("properties");
    let asked = questions.plan(ChainRef::Explored(&space), &Case::of(&[]), &mut ()).expect("a plan");
    let chain = language::bare("test.pm", space).expect("a chain");
    asked.answer(chain, &machine(Precision::F64), &Options::default(), &mut ()).expect("answers").rows
}

#[track_caller]
fn agree(rows: &[PropertyAnswer], exact: &[f64]) {
    assert_eq!(rows.len(), exact.len());
    for (row, exact) in rows.iter().zip(exact) {
        let (value, bound) = (row.value().unwrap_or_else(|| panic!("{row:?}")), row.error());
        let close = (value - exact).abs() <= bound + 4.0 * f64::EPSILON * exact.abs() || value == *exact;
        assert!(close && bound <= 1e-9 * exact.abs().max(1.0), "{}: {value} ± {bound}, {exact}", row.text);
    }
}

#[test]
fn chains_of_textbooks_have_their_closed_forms() {
    let odds: f64 = 0.4 / 0.6;
    let rich = (1.0 - odds.powi(3)) / (1.0 - odds.powi(10));
    let plays = (10.0 * rich - 3.0) / 0.2;
    let coupons = "dtmc const int N = 8; module c k : [0..N]; \
        [draw] k<N -> (N-k)/N : (k'=k+1) + k/N : true; [] k=N -> true; endmodule \
        rewards \"draws\" [draw] true : 1; endrewards rewards \"idle\" k=N : 1; endrewards";
    let harmonic: f64 = (1..=8).map(|k| 1.0 / f64::from(k)).sum();
    let all = (1..=8).map(|k| f64::from(k) / 8.0).product::<f64>();
    // A walk on a cycle is periodic: after an even number of steps it is in an even state.
    let cycle =
        "dtmc module w x : [0..7]; [] true -> 0.5 : (x'=mod(x+1,8)) + 0.5 : (x'=mod(x+7,8)); endmodule";
    let angle = |j: i32| std::f64::consts::PI * f64::from(j) / 4.0;
    let spread = (0..8).map(|j| angle(j).cos().powi(100)).sum::<f64>() / 8.0;
    // Ehrenfest's urns. The mean after t steps is N/2 (1 − (1 − 2/N)^t).
    let urns = "dtmc const int N = 12; module u k : [0..N]; \
        [] true -> (N-k)/N : (k'=min(k+1,N)) + k/N : (k'=max(k-1,0)); endmodule \
        rewards \"balls\" true : k; endrewards";
    let mean = 6.0 * (1.0 - (10.0f64 / 12.0).powi(30));
    // Commands that are enabled together are equally likely.
    let choice = "dtmc module m x : [0..3]; [] x=0 -> (x'=1); [] x=0 -> 0.5:(x'=2)+0.5:(x'=3); endmodule";
    let cases = [
        (GAMBLER, "P=? [ F \"rich\" ]", rich),
        (GAMBLER, "S=? [ \"rich\" ]", rich),
        (GAMBLER, "T=? [ F \"over\" ]", plays),
        (GAMBLER, "R{\"plays\"}=? [ C ]", plays),
        (GAMBLER, "R{\"won\"}=? [ F \"over\" ]", 0.6 * plays),
        (GAMBLER, "P=? [ F<=1000000000000 \"rich\" ]", rich),
        (GAMBLER, "P=? [ G !\"rich\" ]", 1.0 - rich),
        (GAMBLER, "filter(max, P=? [ F \"rich\" ], x=3)", rich),
        (GAMBLER, "filter(max, T=? [ F \"over\" ], x=3)", plays),
        (GAMBLER, "R{\"plays\"}=? [ F \"rich\" ]", f64::INFINITY),
        (coupons, "R{\"draws\"}=? [ F k=8 ]", 8.0 * harmonic),
        (coupons, "T=? [ F k=8 ]", 8.0 * harmonic),
        (coupons, "R{\"draws\"}=? [ C<=5 ]", 5.0),
        (coupons, "P=? [ F<=8 k=8 ]", all),
        // The first draw is new; the second repeats it with 1/8.
        (coupons, "P=? [ F=2 k=1 ]", 0.125),
        (coupons, "R{\"idle\"}=? [ S ]", 1.0),
        (cycle, "P=? [ F=100 x=0 ]", spread),
        (cycle, "P=? [ F=101 x=0 ]", 0.0),
        (cycle, "P=? [ F=1000000000000 x=0 ]", 0.25),
        (cycle, "P=? [ F=1000000000001 x=0 ]", 0.0),
        (cycle, "S=? [ x=0 ]", 0.125),
        (cycle, "T=? [ F x=4 ]", 16.0),
        (urns, "S=? [ k=6 ]", 924.0 / 4096.0),
        (urns, "R=? [ S ]", 6.0),
        (urns, "R{\"balls\"}=? [ I=30 ]", mean),
        (urns, "T=? [ F k=1 ]", 1.0),
        (choice, "P=? [ F x=1 ]", 0.5),
        (choice, "P=? [ X x=2 ]", 0.25),
        (choice, "P=? [ F<=7 x=3 ]", 0.25),
        (choice, "P=? [ F<=0 x=3 ]", 0.0),
    ];
    for cases in cases.chunk_by(|one, other| one.0 == other.0) {
        let properties: Vec<&str> = cases.iter().map(|case| case.1).collect();
        let exact: Vec<f64> = cases.iter().map(|case| case.2).collect();
        agree(&of_model(cases[0].0, &properties), &exact);
    }
}

#[test]
fn answers_are_operands_of_arithmetic_paths_and_filters() {
    let odds: f64 = 0.4 / 0.6;
    let rich = (1.0 - odds.powi(3)) / (1.0 - odds.powi(10));
    let richest = (1.0 - odds.powi(9)) / (1.0 - odds.powi(10));
    let (properties, exact): (Vec<&str>, Vec<f64>) = [
        ("1 - P=? [ F \"rich\" ]", 1.0 - rich),
        ("P=? [ F \"rich\" ] / P=? [ F x=0 ]", rich / (1.0 - rich)),
        ("min(P=? [ F \"rich\" ], 0.5)^2", 0.25),
        ("round(P=? [ F \"rich\" ]) + x", 4.0),
        ("P=? [ X X x=5 ]", 0.36),
        ("P=? [ X F \"rich\" ]", rich),
        ("P=? [ x=3 & X x=4 ]", 0.6),
        ("P=? [ x=4 & X x=4 ]", 0.0),
        ("P=? [ x=3 ]", 1.0),
        ("filter(sum, 2*P=? [ X x=4 ], x>0)", 2.0),
        ("filter(avg, x*P=? [ X x=4 ], x=3|x=5)", 1.9),
        ("filter(state, P=? [ F \"rich\" ] + filter(count, x>7), x=9)", richest + 3.0),
        ("P=? [ F<=2 filter(max, P=? [ X x=5 ])*P=? [ X x=5 ] > 0.35 ]", 0.6),
        ("filter(range, P=? [ F \"rich\" ], x<10)", 0.0),
        ("", richest),
        ("filter(argmax, P=? [ F \"rich\" ])", 1.0),
        ("filter(print, P=? [ X x=4 ])", 0.6),
        ("", 0.4),
    ]
    .into_iter()
    .unzip();
    let properties: Vec<&str> = properties.into_iter().filter(|text| !text.is_empty()).collect();
    let rows = of_model(GAMBLER, &properties);
    agree(&rows, &exact);
    assert!(rows[15].text.ends_with("(x=10)") && rows[17].text.ends_with("(x=5)"), "{rows:?}");
    let truths = [
        "P=? [ F \"rich\" ] > 0.5 & P=? [ X x=4 ] < 0.7",
        "x=3 => P>=1 [ X F \"rich\" ]",
        "P=? [ X x=4 ] = 0.6",
    ];
    let truths: Vec<_> = of_model(GAMBLER, &truths).iter().map(PropertyAnswer::truth).collect();
    assert_eq!(truths, [Some(Some(true)), Some(Some(false)), Some(Some(true))]);
}

/// Paths of probability 0 count in CTL, and rewards are infinite unless a formula surely holds.
#[test]
fn the_graph_decides_for_all_paths_and_for_some() {
    let text = "dtmc module m x : [0..4]; [] x=0 -> 0.5:(x'=1) + 0.5:(x'=2); \
        [] x=1 -> 0.5:(x'=1) + 0.5:(x'=4); [] x=2 -> (x'=3); [] x=3 -> (x'=2); [] x=4 -> true; endmodule \
        rewards true : 1; endrewards rewards \"early\" x=0 : 1; endrewards";
    let table = |table: &'static str| -> (Vec<&str>, Vec<&str>) {
        let cases = table.lines().filter(|line| !line.starts_with('#'));
        cases.map(|line| line.split_once(" ~ ").expect("an answer")).unzip()
    };
    let (properties, truths) = table(include_str!("inputs/graph.txt"));
    let found: Vec<_> = of_model(text, &properties).iter().map(PropertyAnswer::truth).collect();
    let truths: Vec<_> =
        truths.into_iter().map(|truth| Some(Some(truth.parse().expect("true or false")))).collect();
    assert_eq!(found, truths);
    let (properties, values) = table(include_str!("inputs/graph_values.txt"));
    let exact: Vec<f64> = values.into_iter().map(|value| value.parse().expect("a number")).collect();
    agree(&of_model(text, &properties), &exact);
}

/// The sum of 1/3 and 2/3 as doubles is below 1, which 10¹² steps accumulate.
#[test]
fn rounded_probabilities_count_after_many_steps() {
    let text =
        "dtmc module w x : [0..2]; [] x=1 -> 1/3 : (x'=0) + 2/3 : (x'=2); [] x!=1 -> (x'=1); endmodule";
    let properties = ["P=? [ F=1000000000001 x=0 ]", "P>0 [ F=1000000000001 x=0 ]"];
    let found = of_model(text, &properties);
    // The walk is periodic: after an odd number of steps x is 1.
    assert!(found[0].value().expect("a number") <= found[0].error(), "{:?}", found[0]);
    assert_ne!(found[1].truth(), Some(Some(true)));
}
