//! Parameter studies: answers for many values of the constants of a model.
//!
//! States are explored once for all values that change only rates, rewards and labels. Rates for
//! further values are evaluated on the explored states. The chains share a pattern of transitions,
//! so their uniformization runs can take steps together.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::executor::Decisions;
use crate::language::{self, memory, refused};
use crate::query::{Answers, Asked, Case, Questions, answer_all};
use crate::shared_pattern::{RatedPattern, TransitionPattern};
use crate::source::ChainRef;
use kolmo::transient::{Chain, Options};
use kolmo::{Error, Machine, Progress, Result};
use kolmo_model::{Instance, PrismModel, StateSpace};

/// Maximum number of chains in a batch.
const BATCH: usize = 16;

/// Function that explores the states of an instance, and may report progress.
pub(crate) type Explore<'a> = &'a mut dyn FnMut(&Instance, &mut dyn Progress) -> Result<StateSpace>;

/// Explored states, reused for further values that change only rates, rewards or labels.
struct KnownStates {
    space: StateSpace,
    pattern: Arc<TransitionPattern>,
}

/// Study of a model: its properties for many values of its constants.
///
/// Call [`Study::next`] for a batch of chains and [`Study::answer`] to solve it, until no case is
/// left.
///
/// ```
/// # use kolmo::lane::{DeviceSpec, OpenOptions};
/// # use kolmo::transient::Options;
/// # use kolmo::{Machine, Progress};
/// # use kolmo_check::{Questions, Study, Subject, language};
/// # use kolmo_model::{Instance, PrismModel, constants};
/// let text = "ctmc const double up;
///     module m on : bool init true; [] on -> up : (on'=false); endmodule";
/// let model = PrismModel::parse("m.sm", text).expect("a model");
/// let subject = Subject::Language(model.clone());
/// let questions = Questions::read(&["P=? [ F<=1 !on ]".to_owned()], &subject)?;
/// let cases = questions.cases(&constants::parse("up=0.5|1|2").expect("constants"), &subject)?;
/// let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
/// let mut study = Study::new(("m.sm", &model), &questions, &cases, None);
/// let mut explore =
///     |instance: &Instance, _: &mut dyn Progress| language::explore(instance, None, &|_| true);
/// let mut explorations = 0;
/// while let Some(batch) = study.next(&mut explore, &mut ()) {
///     let ready = batch.iter().flat_map(|(_, ready)| ready);
///     explorations += ready.filter(|ready| ready.explored).count();
///     for (case, answers) in study.answer(batch, &machine, &Options::default(), &mut ()) {
///         let value = answers?.rows[0].value().expect("a number");
///         assert!((value + (-[0.5_f64, 1.0, 2.0][case]).exp_m1()).abs() < 1e-9);
///     }
/// }
/// assert_eq!(explorations, 1);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub struct Study<'a> {
    planning: CaseQueue<'a>,
    /// First cases of the next batch, if they are already planned.
    waiting: CaseBatch,
    /// Results of graph analysis for the pattern of the current batch.
    decisions: Decisions,
}

/// Index of each case of a batch, with its planned chain or its error.
type CaseBatch = Vec<(usize, Result<Ready>)>;

/// Cases that are not planned yet, and the explored states of the current group of cases.
struct CaseQueue<'a> {
    name: &'a str,
    model: &'a PrismModel,
    questions: &'a Questions,
    cases: &'a [Case],
    /// Remaining cases in reverse order: index of the case, and of the first case of its group.
    ///
    /// Cases of a group differ only in rates, rewards and labels, and are adjacent.
    left: Vec<(usize, usize)>,
    /// Cases of the current group with another pattern, because other rates are 0.
    ///
    /// They are planned after the cases with the known pattern, with an exploration of their own.
    deferred: Vec<(usize, usize)>,
    known: Option<KnownStates>,
    limit: Option<u64>,
}

/// Chain with its planned properties.
pub struct Ready {
    /// Chain to solve. Its transitions may be wrapped, but not changed.
    pub chain: Chain,
    /// True if the states were explored for this case, not reused from a previous case.
    pub explored: bool,
    /// Planned properties.
    pub asked: Asked,
}

impl<'a> Study<'a> {
    /// Creates the study of a model. `name` is the name of its chains.
    ///
    /// `limit` is the memory limit in bytes; with `None`, it is the available memory.
    pub fn new(
        (name, model): (&'a str, &'a PrismModel),
        questions: &'a Questions,
        cases: &'a [Case],
        limit: Option<u64>,
    ) -> Self {
        let mut groups: HashMap<u64, usize> = HashMap::new();
        let group = |(case, values): (usize, &Case)| {
            // An invalid case has its own group; `next` reports its error.
            let instance = model.with_constants(&values.model).ok().filter(|_| cases.len() > 1);
            let group = instance.map_or(case, |instance| *groups.entry(instance.structure()).or_insert(case));
            (case, group)
        };
        let mut left: Vec<(usize, usize)> = cases.iter().enumerate().map(group).collect();
        left.sort_by_key(|(_, group)| *group);
        left.reverse();
        let (known, deferred) = (None, Vec::new());
        let planning = CaseQueue { name, model, questions, cases, left, deferred, known, limit };
        Self { planning, waiting: Vec::new(), decisions: Decisions::new(cases.len() > 1) }
    }

    /// Plans the next batch: cases whose chains have one pattern, as many as memory allows.
    ///
    /// Returns the index of each case with its planned chain or its error, and `None` after the
    /// last case. `explore` explores the states of an instance.
    pub fn next(&mut self, explore: Explore<'_>, watch: &mut dyn Progress) -> Option<CaseBatch> {
        let mut batch = std::mem::take(&mut self.waiting);
        while batch.len() < self.planning.most() || batch.is_empty() {
            let Some((case, ready)) = self.planning.next(explore, watch) else { break };
            let explored = ready.as_ref().is_ok_and(|ready| ready.explored);
            if explored && !batch.is_empty() {
                self.waiting.push((case, ready));
                break;
            }
            let interrupted = matches!(ready, Err(Error::Interrupted));
            batch.push((case, ready));
            if interrupted {
                break;
            }
        }
        if let Some((_, Ok(Ready { explored: true, .. }))) = batch.first() {
            self.decisions.clear();
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }

    /// Computes the answers of a batch; returns the index of each case with its answers or error.
    ///
    /// Cases that [`Study::next`] returned with an error come first. Each case is solved on one
    /// lane of a GPU, and several cases run concurrently. Meanwhile the host plans the next batch,
    /// if that needs no exploration.
    pub fn answer(
        &mut self,
        batch: Vec<(usize, Result<Ready>)>,
        machine: &Machine,
        options: &Options,
        watch: &mut dyn Progress,
    ) -> Vec<(usize, Result<Answers>)> {
        let (mut all, mut ready, mut cases) = (Vec::new(), Vec::new(), Vec::new());
        for (case, own) in batch {
            match own {
                Ok(Ready { asked, chain, .. }) => {
                    ready.push((asked, chain));
                    cases.push(case);
                }
                Err(error) => all.push((case, Err(error))),
            }
        }
        let Self { planning, waiting, decisions } = self;
        let single = machine.one_lane_per_gpu();
        let machine = if ready.len() == 1 { &single } else { machine };
        let solve = || answer_all(ready, decisions, (machine, options), watch);
        let answers = if waiting.is_empty() && planning.known.is_some() {
            let solved = AtomicBool::new(false);
            thread::scope(|scope| {
                // Without another thread the next batch is planned after this one.
                let ahead = thread::Builder::new().spawn_scoped(scope, || planning.reusing(&solved));
                let answers = solve();
                solved.store(true, Ordering::Relaxed);
                if let Ok(ahead) = ahead {
                    *waiting = ahead.join().unwrap_or_else(|panic| resume_unwind(panic));
                }
                answers
            })
        } else {
            solve()
        };
        all.extend(cases.into_iter().zip(answers));
        all
    }
}

impl CaseQueue<'_> {
    /// Returns the maximum number of chains in a batch. Two batches may take a quarter of memory.
    fn most(&self) -> usize {
        let Some(KnownStates { space, .. }) = &self.known else { return 1 };
        // Two copies of the rates, and eight vectors of the solver.
        let bytes = 16 * space.chain().columns.len() as u64 + 64 * space.states() as u64;
        usize::try_from(memory(self.limit) / 8 / bytes).map_or(BATCH, |most| most.clamp(1, BATCH))
    }

    /// Plans the next case; `None` after the last one.
    fn next(&mut self, explore: Explore<'_>, watch: &mut dyn Progress) -> Option<(usize, Result<Ready>)> {
        loop {
            if let Some(planned) = self.one(explore, watch)? {
                return Some(planned);
            }
        }
    }

    /// Plans cases that reuse the explored states, until `solved` is true or the batch is full.
    fn reusing(&mut self, solved: &AtomicBool) -> CaseBatch {
        let mut batch = Vec::new();
        let explore: Explore<'_> = &mut |_, _| unreachable!("the states are known");
        while self.known.is_some() && batch.len() < self.most() && !solved.load(Ordering::Relaxed) {
            batch.extend(self.one(explore, &mut ()).flatten());
        }
        batch
    }

    /// Plans the next case; `Some(None)` if it is deferred, `None` after the last one.
    fn one(
        &mut self,
        explore: Explore<'_>,
        watch: &mut dyn Progress,
    ) -> Option<Option<(usize, Result<Ready>)>> {
        let (case, group) = self.left.pop()?;
        let more = self.left.last().is_some_and(|(_, next)| *next == group);
        let ready = self.ready(&self.cases[case], more, explore, watch).transpose();
        if ready.is_none() {
            self.deferred.push((case, group));
        }
        if !more {
            self.left.extend(self.deferred.drain(..).rev());
            self.known = None;
        }
        Some(ready.map(|ready| (case, ready)))
    }

    /// Plans a case; `None` if its pattern is not the known one.
    fn ready(
        &mut self,
        case: &Case,
        more: bool,
        explore: Explore<'_>,
        watch: &mut dyn Progress,
    ) -> Result<Option<Ready>> {
        if let Some(why) = &case.invalid {
            return Err(Error::invalid(why.clone()));
        }
        let instance = self.model.with_constants(&case.model).map_err(refused)?;
        self.questions.expect_sound(&instance, case)?;
        let reused = self.known.is_some();
        if let Some(known) = &mut self.known {
            if !known.space.rerate(&instance, &Default::default()).map_err(refused)? {
                return Ok(None);
            }
        } else {
            let space = explore(&instance, watch)?;
            let chain = space.chain();
            // A rate may be 0 by underflow.
            let pattern = match more && !chain.rates.contains(&0.0) {
                true => TransitionPattern::new(chain.offsets.clone(), chain.columns.clone()),
                false => None,
            };
            let Some(pattern) = pattern.map(Arc::new) else {
                self.known = None;
                let asked = self.questions.plan(ChainRef::Explored(&space), case, watch)?;
                return Ok(Some(Ready { chain: language::bare(self.name, space)?, explored: true, asked }));
            };
            self.known = Some(KnownStates { space, pattern });
        }
        let KnownStates { space, pattern } = self.known.as_ref().expect("states are explored");
        let asked = self.questions.plan(ChainRef::Explored(space), case, watch)?;
        let transitions = RatedPattern { pattern: pattern.clone(), rates: language::rates(space)? };
        let chain = Chain::new(self.name, Box::new(transitions));
        let chain = if space.instance().model().is_discrete() { chain.discrete() } else { chain };
        let chain = language::started(chain, space);
        Ok(Some(Ready { chain, explored: !reused, asked }))
    }
}
