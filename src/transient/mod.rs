//! Transient probabilities of a continuous-time Markov chain, by uniformization.

pub mod chain;
pub mod poisson;
