//! The `kolmo` command: arguments, reports and charts around the library `kolmo`.

pub mod cli;
pub mod plot;
pub mod report;
