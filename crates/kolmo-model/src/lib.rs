//! Markov chains in the PRISM language, in continuous or discrete time.
//!
//! A text becomes a [`PrismModel`]. Constants turn it into an [`Instance`], and exploration into a
//! [`StateSpace`]: the chain with labels and rewards. States are numbered in the order of their
//! variables' values. [`properties`] reads CSL properties.
//!
//! ```
//! use kolmo_model::{Options, PrismModel, Value};
//!
//! let text = r#"
//!     ctmc
//!     const int N;
//!     module queue
//!         q : [0..N];
//!         [] q < N -> 2 : (q'=q+1);
//!         [serve] q > 0 -> 3 : (q'=q-1);
//!     endmodule
//!     label "full" = q = N;
//!     rewards "served" [serve] true : 1; endrewards
//! "#;
//! let model = PrismModel::parse("queue.sm", text)?;
//! let instance = model.with_constants(&[("N".into(), Value::Int(4))])?;
//! let space = instance.explore(&Options::default())?;
//! assert_eq!(space.states(), 5);
//! assert_eq!(space.describe(4), "(q=4)");
//! assert_eq!(space.label("full")?, [false, false, false, false, true]);
//! assert_eq!(space.rewards(Some("served"))?, [0.0, 3.0, 3.0, 3.0, 3.0]);
//! # Ok::<(), kolmo_model::Error>(())
//! ```

mod bytecode;
mod composition;
pub mod constants;
mod diagnostics;
mod explore;
mod instance;
mod intervals;
mod lexer;
mod model;
mod parser;
pub mod properties;
mod syntax;
mod threads;
mod types;
mod values;

pub use diagnostics::Diagnostics;
pub use explore::{ModelDerivatives, Options, PartialExploration, Progress, StateSpace, TransitionMatrix};
pub use instance::{Instance, VariableInfo};
pub use lexer::decoded;
pub use model::PrismModel;
pub use syntax::{FilterKind, Type, Value};
pub use threads::start_threads;
pub use types::Names;
pub use values::PerState;

/// Errors in a model, its constants or its properties, or during exploration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Errors in a text, each with its place and a suggestion.
    #[error("{0}")]
    Text(Diagnostics),
    /// Missing or unknown constants, or values of another type.
    #[error("{0}")]
    Constant(String),
    /// An error in a state, which is named by its variables.
    #[error("{0}")]
    State(String),
    /// The number of states, the memory or the size of a text is above its limit.
    #[error("{0}")]
    Size(String),
    /// An unknown label, reward structure or similar name.
    #[error("{0}")]
    Name(String),
    /// The caller interrupted the exploration.
    #[error("interrupted")]
    Interrupted,
}

/// Result with the [`enum@Error`] of this crate.
pub type Result<T> = std::result::Result<T, Error>;
