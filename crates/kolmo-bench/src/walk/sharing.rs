//! Pseudo-random points generated for each component, compared with quasi-random points generated
//! once for all components (Figs. 3 and 4 of Lai et al. 2015).

use super::*;

/// Parameters of [`sharing`].
#[derive(Debug, Clone, Copy)]
pub struct Sharing {
    /// Number of components.
    pub components: u32,
    /// Chains per component.
    pub chains: u32,
    /// Steps per chain.
    pub length: u32,
}

/// Measures many components with points shared or new, generated in advance or on the fly.
///
/// The error is the root mean square over the components, relative to the largest entry of
/// `reference`.
pub fn sharing(
    machine: &Machine,
    system: &System,
    reference: &[f64],
    what: Sharing,
    repeat: usize,
) -> Result<Vec<Record>> {
    let Sharing { components, chains, length } = what;
    let prepared = Prepared::new(machine, system)?;
    let table = prepared.table(&prepared.f, None)?;
    let n = prepared.split.unknowns();
    let mut records = Vec::new();
    let ways: [(&str, Sequence, bool, bool); 7] = [
        ("mtgp32, new for every component", Sequence::Mtgp32, false, true),
        ("philox, new for every component", Sequence::Philox, false, true),
        ("halton, one for all", Sequence::Halton, true, true),
        ("faure, one for all", Sequence::Faure, true, true),
        ("sobol, one for all", Sequence::Sobol, true, true),
        ("philox on the fly", Sequence::Philox, false, false),
        ("sobol on the fly, one for all", Sequence::Sobol, true, false),
    ];
    for (name, sequence, shared, ahead) in ways {
        let source = points(sequence, Scramble::None, length, ahead)?;
        let on = Chains::new(machine, &table, &source)?;
        let task = |row| Task { row, component: if shared { 0 } else { row }, replicate: 0 };
        let tasks: Vec<Task> = (0..components).map(|c| task(spread_row(c, n))).collect();
        let round = Round { points: (0, chains), length, cut: 0.0 };
        let more = json!({"method": name, "components": components, "chains": chains, "length": length});
        let case = (format!("{components} components N={chains} T={length} {name}"), more);
        let walks = (u64::from(components) * u64::from(chains), length);
        let (sums, record) = prepared.measure(case, repeat, walks, || sums(&on, &tasks, round))?;
        let rmse = prepared.rmse(&tasks, &sums, chains, |_| 0.0, reference);
        records.push(Record { relative_error: rmse / largest(reference), ..record });
    }
    Ok(records)
}
