//! Accuracy of the point sequences over the number of chains (Fig. 2 of Lai et al. 2015).

use super::*;
use kolmo::walk::error::a_priori;

/// A combination of name, point sequence and scramble.
///
/// The first flag is true if the entries of a row are in value order, the second one if walks
/// sample the residual of a control variate.
type Method = (&'static str, Sequence, Scramble, bool, bool);

static METHODS: [Method; 12] = [
    ("philox", Sequence::Philox, Scramble::None, false, false),
    ("mtgp32", Sequence::Mtgp32, Scramble::None, false, false),
    ("halton", Sequence::Halton, Scramble::None, false, false),
    ("faure", Sequence::Faure, Scramble::None, false, false),
    ("sobol", Sequence::Sobol, Scramble::None, false, false),
    ("halton shift", Sequence::Halton, Scramble::Shift, false, false),
    ("faure shift", Sequence::Faure, Scramble::Shift, false, false),
    ("sobol owen", Sequence::Sobol, Scramble::Owen, false, false),
    ("philox value", Sequence::Philox, Scramble::None, true, false),
    ("sobol owen value", Sequence::Sobol, Scramble::Owen, true, false),
    ("philox sweeps", Sequence::Philox, Scramble::None, false, true),
    ("sobol owen value sweeps", Sequence::Sobol, Scramble::Owen, true, true),
];

/// Number of errors averaged for one point of a curve: components times replicates.
const ERRORS: u32 = 256;
/// Number of replicates for sequences that differ from replicate to replicate.
const REPLICATES: u32 = 16;

/// Measures the root mean square of 256 errors for 2^k chains, for each method and exponent k.
///
/// Methods with different replicates use 16 components and 16 replicates, the others 256
/// components. `seconds` is the time of all 256 estimates. Methods with a control variate are
/// measured with each of `sweeps`.
pub fn accuracy(
    machine: &Machine,
    system: &System,
    reference: &[f64],
    exponents: &[u32],
    sweeps: &[ControlVariate],
) -> Result<Vec<Record>> {
    let prepared = Prepared::new(machine, system)?;
    let Prepared { split, f, certificate, .. } = &prepared;
    let (n, largest) = (split.unknowns(), largest(reference));
    let mut records: Vec<Record> = Vec::new();
    let each = |method: &'static Method| {
        let controlled = method.4;
        let sweeps = if controlled { sweeps } else { &[ControlVariate::Sweeps(0)] };
        sweeps.iter().map(move |&sweeps| (method, sweeps))
    };
    for (&(name, sequence, scramble, ordered, _), sweeps) in METHODS.iter().flat_map(each) {
        let replicates = if sequence.varies(scramble) { REPLICATES } else { 1 };
        let components: Vec<u32> = (0..ERRORS / replicates).map(|c| spread_row(c, n)).collect();
        let asked = Request { components: &components, functionals: &[], goal: Goal::EXACT };
        let krylov = &mut Krylov::new(&machine.lanes[0]);
        let control = Control::new(split, certificate, f, &asked, sweeps, krylov, &mut |_| Ok(true))?;
        let order = ordered.then(|| control.values(split));
        let table = prepared.table(&control.r, order.as_deref())?;
        // The truncation error is far below all measured errors.
        let length =
            a_priori::length(1e-9 * largest, control.norm.max(f64::MIN_POSITIVE), certificate.norm) as u32;
        let source = points(sequence, scramble, length, false)?;
        let chains = Chains::new(machine, &table, &source)?;
        let tasks: Vec<Task> = components
            .iter()
            .flat_map(|&row| (0..replicates).map(move |replicate| Task { row, component: row, replicate }))
            .collect();
        for &exponent in exponents {
            let points = 1u32 << exponent;
            let at = Instant::now();
            let sums = sums(&chains, &tasks, Round { points: (0, points), length, cut: 0.0 })?;
            let seconds = at.elapsed().as_secs_f64();
            let rmse = prepared.rmse(&tasks, &sums, points, |row| control.h(row), reference);
            let of_philox = |r: &&Record| {
                r.more.as_ref().is_some_and(|m| m["method"] == "philox" && m["chains"] == points)
            };
            let philox = records.iter().find(of_philox).map_or(rmse, |r| r.relative_error * largest);
            let more = json!({
                "method": name, "chains": points, "length": length, "sweeps": control.sweeps, "errors": ERRORS,
                "rmse": rmse, "times_smaller_than_philox": philox / rmse,
            });
            let case = format!("{} accuracy", system.name);
            let steps = f64::from(ERRORS) * f64::from(points) * f64::from(length);
            records.push(Record {
                relative_error: rmse / largest,
                steps_per_s: Some(steps / seconds),
                ..record(machine, system, case, Spread::of(vec![seconds]), more)
            });
        }
    }
    Ok(records)
}
