//! Numbers and statistics that several engines use.
//!
//! [`double_double`] sums with an error of 2⁻¹⁰⁶, [`double_word`] has the four operations.
//! [`confidence`] has intervals from independent replicates, and [`philox`] random words.

pub(crate) mod confidence;
pub(crate) mod double_double;
pub(crate) mod double_word;
pub(crate) mod philox;
