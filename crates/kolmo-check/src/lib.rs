//! CSL properties of Markov chains, answered with error bounds by few solver runs.
//!
//! ```
//! use kolmo::Machine;
//! use kolmo::lane::{DeviceSpec, OpenOptions};
//! use kolmo::transient::Options;
//! use kolmo_check::{Case, ChainRef, Questions, Subject, Verdict, language};
//! use kolmo_model::{PrismModel, Value};
//!
//! let text = r#"
//!     ctmc
//!     const int N;
//!     module queue
//!         q : [0..N];
//!         [] q < N -> 2 : (q'=q+1);
//!         [] q > 0 -> 3 : (q'=q-1);
//!     endmodule
//!     label "full" = q = N;
//! "#;
//! let model = PrismModel::parse("queue.sm", text).expect("a model");
//! let subject = Subject::Language(model.clone());
//! let questions = Questions::read(&["P=? [ F<=10 \"full\" ]".to_owned()], &subject)?;
//! let constants = [("N".to_owned(), Value::Int(4))];
//! let instance = model.with_constants(&constants).expect("values of all constants");
//! let space = language::explore(&instance, None, &|_| true)?;
//! let asked = questions.plan(ChainRef::Explored(&space), &Case::of(&constants), &mut ())?;
//! let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
//! let chain = language::bare("queue.sm", space)?;
//! let answers = asked.answer(chain, &machine, &Options::default(), &mut ())?;
//! let Verdict::Number(answer) = answers.rows[0].found else { panic!("a number is asked for") };
//! assert!((answer.value - 0.711).abs() < 1e-3 && answer.error < 1e-8, "{answer:?}");
//! # Ok::<(), kolmo::Error>(())
//! ```

mod answer;
mod errors;
mod executor;
mod filters;
mod gradient;
pub mod language;
mod ltl;
mod planned;
mod planner;
mod qualitative;
mod query;
mod reduced;
mod schedule;
mod shared_pattern;
mod source;
pub mod state_sets;
mod state_values;
mod study;
mod sums;
pub mod truncation;
mod uniformization;
pub mod until;

pub use answer::{Answer, Verdict};
pub use gradient::Derivative;
pub use query::{Answers, Asked, Case, PropertyAnswer, Questions, Subject, is_file};
pub use schedule::{Changes, Changing, Scheduled, expect_phase, joint, phases};
pub use source::ChainRef;
pub use study::{Ready, Study};
pub use truncation::Truncation;
pub use uniformization::PhaseEnd;

// Compensated sum of rates or probabilities.
use kolmo::transient::exit_rate as compensated;
use kolmo_model::Value;

/// Values of constants.
pub type Assigned = [(String, Value)];

/// Returns the known name that is closest to the given one, if it is close enough.
pub fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let changes = |name: &str| strsim::damerau_levenshtein(&given.to_lowercase(), &name.to_lowercase());
    let (changes, name) = known.into_iter().map(|name| (changes(name), name)).min()?;
    (3 * changes <= name.chars().count()).then_some(name)
}
