//! Chains that hold one after another, such as the phases of `kolmo.transient`.

use crate::prelude::*;
use kolmo::transient::{Options, Phase, Reward, solve_phases};
use numpy::{PyArray2, PyArrayMethods};

use crate::chain::PyChain;
use crate::transient::{Begin, Question, told};

/// Solves for chains that hold one after another, each until an end with a bound of its error.
///
/// With `own`, the rewards are those of the chains. Otherwise a reward has a value for each state,
/// the same in all phases, or such values for each phase, one after another.
#[pyfunction]
pub(crate) fn piecewise<'py>(
    py: Python<'py>,
    chains: Vec<(kolmo_check::PhaseEnd, PyRef<'py, PyChain>)>,
    begin: Begin<'py>,
    absorbing: Option<PyReadonlyArray1<'py, bool>>,
    question: Question<'py>,
    own: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (initial, given, stop) = (begin.initial()?, question.rewards()?, Stop::default());
    let n = chains.first().map_or(0, |(_, chain)| chain.transitions().states());
    let of_phase = |k: usize, Reward { name, values }: &Reward| {
        let values = if values.len() == n { &values[..] } else { &values[k * n..][..n] };
        Reward { name: name.clone(), values: values.to_vec() }
    };
    let rewards = |(k, (_, chain)): (usize, &(_, PyRef<'_, PyChain>))| match own {
        true => chain.rewards_of().to_vec(),
        false => given.iter().map(|reward| of_phase(k, reward)).collect(),
    };
    let rewards: Vec<Vec<Reward>> = chains.iter().enumerate().map(rewards).collect();
    let mask = absorbing.as_ref().map_or(Ok(&[][..]), |mask| mask.as_slice())?;
    let held: Vec<_> = chains.iter().map(|(end, chain)| (*end, chain.stoppable(mask, &stop))).collect();
    let times = &question.times[..];
    let p = PyArray2::<f64>::zeros(py, [times.len(), n], false);
    let mut room = p.try_readwrite()?;
    let values = room.as_slice_mut()?;
    let options = Options::default().epsilon(question.epsilon);
    let wanted = question.place.wanted().map_err(|error| exception(py, &error))?;
    let work = |told: &mut dyn Progress| {
        let phases: Vec<Phase<'_>> = (held.iter().zip(&rewards))
            .map(|(((end, late), of), rewards)| Phase { end: *end, late: *late, transitions: &**of, rewards })
            .collect();
        wanted.with(|machine: &Machine| {
            let rows = |index: usize, probabilities: &[f64]| {
                values[index * n..][..n].copy_from_slice(probabilities);
                Ok(())
            };
            let found = solve_phases(machine, &phases, &initial, times, &options, &mut (&mut *told, rows));
            Ok((found?, names(machine)))
        })
    };
    let (solution, device) = watched(py, question.progress.as_ref(), &stop, work)?;
    drop(room);
    let answer = told(py, &solution)?;
    answer.set_item("p", p)?;
    answer.set_item("device", device)?;
    Ok(answer)
}
