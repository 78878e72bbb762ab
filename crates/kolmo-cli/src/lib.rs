//! The `kolmo` command: arguments, reports and charts around the library `kolmo`.

pub mod cli;
mod plot;
mod report;
