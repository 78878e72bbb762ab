//! Every matrix format gives the bits of HYB on the same lanes.
//!
//! A format that cannot store the chain is rejected with the reason.

use crate::support::{Opened, chain, cpu, model, problem, ragged};
use kolmo::internals::Csr;
use kolmo::sparse::{MatrixFormat, WidthRule};
use kolmo::transient::{Initial, Options, Partitioning, Solution, Transitions};
use kolmo::{Error, Invalid, Machine, Result};

/// Two times whose windows overlap.
const TIMES: [f64; 2] = [0.3, 0.4];

fn answer(
    machine: &Machine,
    chain: &dyn Transitions,
    options: &Options,
) -> Result<(Vec<Vec<f64>>, Solution)> {
    crate::support::answer(machine, &problem(chain, &Initial::State(1), &TIMES), options)
}

/// Asserts that every format that stores the chain gives the bits of HYB; returns their number.
fn formats_agree(machine: &Machine, chain: &dyn Transitions, width: WidthRule, parts: usize) -> usize {
    let options =
        |format| Options::default().format(format).width(width).split(Partitioning::default().parts(parts));
    let (hyb, _) = answer(machine, chain, &options(MatrixFormat::Hyb)).expect("HYB stores any chain");
    let mut stored = 1;
    for format in [MatrixFormat::Packed, MatrixFormat::Pair, MatrixFormat::Pattern] {
        match answer(machine, chain, &options(format)) {
            Ok((got, solution)) => {
                assert_eq!(solution.matrix.format, format.name());
                assert!(got == hyb, "{format}, {width}, {parts} parts");
                stored += 1;
            }
            Err(Error::Invalid(Invalid::Argument("matrix_format"), why)) => {
                assert!(why.contains(format.name()) && why.contains("more than"), "{why}");
            }
            Err(e) => panic!("{format}: {e}"),
        }
    }
    stored
}

/// Returns rows of one to five entries, some longer, with few distinct rates and no structure.
fn irregular(n: u32, values: u32) -> Csr {
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

mod suite {
    use super::*;

    pub(super) fn formats_agree_on_several_chains(machine: &Opened) {
        let narrow = WidthRule::Fixed(2);
        for (spec, parts, width) in [
            ("wlan:6,4", 1, WidthRule::Auto),
            ("wlan:6,4", 3, narrow),
            ("tandem:25", 1, narrow),
            ("birth-death:5000,1,2", 4, WidthRule::Auto),
        ] {
            let stored = formats_agree(machine, &*model(spec), width, parts);
            assert_eq!(stored, 4, "{spec}: every format stores it");
        }
        // Few rates but no structure: neighbours share neither rows nor, with 5000 states, pairs.
        assert_eq!(formats_agree(machine, &irregular(5000, 7), WidthRule::Auto, 1), 3, "packed and pattern");
        formats_agree(machine, &ragged(2000), WidthRule::Auto, 2);
    }
}

instances! {
    [formats_agree_on_several_chains]
    cpu_f64("cpu", F64);
    #[ignore = "slow: one instance of many"] cpu_f32("cpu", F32);
    two_cpu_lanes("cpu,cpu", F64);
    #[cfg(feature = "wgpu")] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] wgpu_f32("wgpu:0", F32);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] wgpu_checked("wgpu:0", F64, true);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] two_wgpu_lanes("wgpu:0,wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
    #[cfg(feature = "cuda")] cuda_f32("cuda:0", F32);
    #[cfg(feature = "cuda")] two_cuda_devices("cuda:0,cuda:1", F64);
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

    let [hyb, packed, pair, pattern] = taken(&*model("birth-death:50000,1,2"));
    assert!(slower(&hyb) && slower(&packed) && slower(&pattern), "{hyb}, {packed}, {pattern}");
    assert!(pair.starts_with("three gathers"), "{pair}");
    // So small that tiles hardly recur.
    let [hyb, packed, _, pattern] = taken(&*model("wlan:6,4"));
    assert!(
        slower(&hyb) && slower(&packed) && pattern.ends_with("do not recur"),
        "{hyb}, {packed}, {pattern}"
    );
    let [hyb, packed, pair, _] = taken(&irregular(5000, 7));
    assert!(slower(&hyb) && slower(&packed) && pair.starts_with("more than 256"), "{hyb}, {packed}, {pair}");
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
