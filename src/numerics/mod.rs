//! Numbers and statistics that several engines use.
//!
//! [`double_double`] computes compensated sums, and [`double_word`] adds, multiplies and divides
//! numbers of about 106 bits. [`confidence`] computes intervals from independent replicates, and
//! [`philox`] random words.

pub(crate) mod confidence;
pub(crate) mod double_double;
pub(crate) mod double_word;
pub(crate) mod philox;
