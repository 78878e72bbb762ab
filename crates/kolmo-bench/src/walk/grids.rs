//! Grids of different shapes, and one thread per unknown (sections 3.3 and 3.1 of Lai et al. 2015).

use super::*;

/// Measures one component on grids of many shapes, and many components with one thread each.
///
/// One component is measured with points generated on the fly and in advance, and also in blocks of
/// 256 chains.
pub fn grids(
    machine: &Machine,
    system: &System,
    chains: u32,
    length: u32,
    repeat: usize,
) -> Result<Vec<Record>> {
    let prepared = Prepared::new(machine, system)?;
    let table = prepared.table(&prepared.f, None)?;
    let n = prepared.split.unknowns() as u32;
    let task = |row: u32| Task { row, component: 0, replicate: 0 };
    let one = &[task(n / 2)];
    let round = Round { points: (0, chains), length, cut: 0.0 };
    let mut records = Vec::new();
    let mut push = |case: String, walks: u64, more: Value, run: &dyn Fn() -> Result<Vec<f64>>| {
        records.push(prepared.measure((case, more), repeat, (walks, length), run)?.1);
        Ok(())
    };
    for ahead in [false, true] {
        let source = points(Sequence::Sobol, Scramble::None, length, ahead)?;
        let made = if ahead { "points ahead" } else { "points on the fly" };
        let wide = [14, 28, 42, 56, 84, 132, 264, 528, 1056].map(|groups| (groups, 512));
        let shapes = [(84, 32), (84, 64), (84, 128), (84, 256), (84, 1024), (1056, 256), (4224, 256)];
        for (groups, size) in wide.into_iter().chain(shapes) {
            let on = Chains::new(machine, &table, &source)?.on_grid(Grid { groups, size })?;
            let more = json!({"groups": groups, "group_size": size, "chains": chains, "length": length, "ahead": ahead});
            let case = format!("N={chains} T={length} grid {groups} x {size}, {made}");
            push(case, chains.into(), more, &|| sums(&on, one, round))?;
        }
        let blocks = Chains::new(machine, &table, &source)?;
        let more = json!({"blocks": 256, "chains": chains, "length": length, "ahead": ahead});
        let case = format!("N={chains} T={length} blocks of 256, {made}");
        push(case, chains.into(), more, &|| sums(&blocks, one, round))?;
        for unknowns in [1, 256, 4096].into_iter().filter(|_| !ahead) {
            let tasks: Vec<Task> = (0..n.min(unknowns)).map(task).collect();
            // The total number of steps is constant, except for a single unknown.
            let each = (chains / unknowns).clamp(16, 4096);
            let round = Round { points: (0, each), ..round };
            let walks = u64::from(each) * tasks.len() as u64;
            let more = json!({"unknowns": tasks.len(), "chains": each, "length": length});
            let of = format!("{} unknowns, N={each} T={length}", tasks.len());
            let by_thread = || blocks.unknown_by_thread(&tasks, round);
            push(format!("{of}, one thread an unknown"), walks, more.clone(), &by_thread)?;
            push(format!("{of}, blocks of 256 chains"), walks, more, &|| sums(&blocks, &tasks, round))?;
        }
    }
    Ok(records)
}
