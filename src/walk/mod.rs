//! Chosen components of the solution of A x = b, by quasi-random walks.

pub mod sequence;
