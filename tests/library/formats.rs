//! `auto` tries the matrix formats that store the chain, and says why it takes no other.

use crate::support::{chain, cpu, model, problem};
use kolmo::internals::Csr;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Initial, Options, Transitions};

/// Returns rows of one to five entries, some longer, with few distinct rates and no structure.
pub(crate) fn irregular(n: u32, values: u32) -> Csr {
    let mut list = Vec::new();
    let mut state = 12345u64;
    let mut next = |below: u32| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 % below
    };
    for from in 0..n {
        let mut to: Vec<u32> = (0..1 + next(5)).map(|_| next(n)).filter(|&to| to != from).collect();
        if from % 9 == 0 {
            to.push((from + 1) % 7);
        }
        to.sort_unstable();
        to.dedup();
        list.extend(
            to.into_iter().filter(|&to| to != from).map(|to| (from, to, 0.25 * f64::from(1 + next(values)))),
        );
    }
    chain(n as usize, &list)
}

#[test]
fn auto_tries_the_formats_that_store_the_chain() {
    let machine = cpu();
    // Every format is taken, or passed over with a reason.
    let taken = |chain: &dyn Transitions| {
        // A trial pays for 200 steps or more.
        let mut exit = vec![0.0; chain.states()];
        chain.exit_rates(0..chain.states(), &mut exit);
        let times = [220.0 / exit.into_iter().fold(0.0, f64::max)];
        let problem = problem(chain, &Initial::State(1), &times);
        let answer = crate::support::answer(&machine, &problem, &Options::default());
        let (_, solution) = answer.expect("a sound chain");
        let matrix = solution.matrix;
        let why = |format: &MatrixFormat| {
            let mut passed = matrix.passed_over.iter();
            passed.find_map(|why| why.strip_prefix(format.name())?.strip_prefix(": ")).map(str::to_owned)
        };
        for format in MatrixFormat::STORED {
            assert_eq!(why(&format).is_none(), matrix.format == format.name(), "{format}: {matrix:?}");
        }
        MatrixFormat::STORED.map(|format| why(&format).unwrap_or_default())
    };
    let slower = |why: &str| why.is_empty() || why.starts_with("a step took ");

    let [hyb, packed, pattern] = taken(&*model("birth-death:50000,1,2"));
    assert!(slower(&hyb) && slower(&packed) && slower(&pattern), "{hyb}, {packed}, {pattern}");
    // So small that tiles hardly recur.
    let [hyb, packed, pattern] = taken(&*model("wlan:6,4"));
    let rare = pattern.ends_with("do not recur");
    assert!(slower(&hyb) && slower(&packed) && rare, "{hyb}, {packed}, {pattern}");
    let [hyb, packed, _] = taken(&irregular(5000, 7));
    assert!(slower(&hyb) && slower(&packed), "{hyb}, {packed}");
    // 144 000 transitions with distinct rates: more than the spare bits of 17-bit columns index.
    let n = 72_000u32;
    let all_differ: Vec<(u32, u32, f64)> = (0..n)
        .flat_map(|i| [(i, (i * 7 + 1) % n), (i, (i + 17) % n)])
        .enumerate()
        .filter(|(_, (from, to))| from != to)
        .map(|(k, (from, to))| (from, to, 1.0 + k as f64 * 1e-7))
        .collect();
    let why = taken(&chain(n as usize, &all_differ));
    assert!(why[0].is_empty() && why[1..].iter().all(|why| why.starts_with("more than")), "{why:?}");
}
