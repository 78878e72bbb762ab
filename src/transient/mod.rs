//! Transient probabilities of a continuous-time Markov chain, by uniformization.
//!
//! Users find the method, array shapes, errors and sources on the page of the crate `kolmo`.

mod backward;
pub(crate) mod chain;
mod chebyshev;
pub mod checkpoint;
pub(crate) mod columns;
pub(crate) mod context;
pub(crate) mod cost_model;
mod envelope;
pub mod estimate;
pub(crate) mod exchange;
mod exponential_action;
pub mod gradient;
pub(crate) mod iteration;
mod krylov;
pub(crate) mod lockstep;
pub mod long_run;
pub(crate) mod memory;
mod multilevel;
mod numerics;
pub(crate) mod partition;
mod piecewise;
mod problem;
mod rate_derivative;
mod rounding;
mod scaling_squaring;
pub(crate) mod session;
mod solution;
mod solve;
mod steady_state;
pub(crate) mod step;
pub(crate) mod transition_matrices;
pub(crate) mod uniformization;
mod validation;

pub use backward::absorption::{Absorption, Total, until_absorption};
pub use backward::predecessors::may_reach;
pub use backward::reachability::{Reachability, reachability};
pub use backward::values::{Backward, StateValues};
pub use chain::absorbing_states;
pub use chain::prescan::Prescan;
pub use chain::state_names::StateNames;
pub use chain::transitions::{TransitionList, Transitions, exit_rate};
pub use chain::{Chain, ChainFile, Initial, Labels, Reward};
pub use columns::{Action, Direction};
pub use exponential_action::exponential_action;
pub use lockstep::in_lockstep;
pub use numerics::poisson;
pub use partition::halo_depth::MAX_HALO_DEPTH;
pub use piecewise::{Phase, plan_phases, solve_phases};
pub use problem::{EPSILON, Method, Observer, Options, Partitioning, Problem};
pub use solution::{
    Bound, Expanded, Expansion, LaneExchange, LanePlan, MatrixInfo, RewardValue, Seconds, Solution, Stopped,
    TimeResult,
};
pub use solve::{solve, solve_resumable};
pub use transition_matrices::{MOST_STATES_ON_DEVICES, transition_matrices, transition_matrices_on};

pub use crate::Status;
