//! An empty library; the tests are in `rounds.rs`.
