//! The tests alone: `rounds.rs`.
