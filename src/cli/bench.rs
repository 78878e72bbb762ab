//! `kolmo bench`.

use clap::{Args, Subcommand};

use super::{Common, Outcome};
use crate::Result;

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// One step of uniformization, with and without its accumulator
    Spmv(Job),
}

#[derive(Debug, Args)]
pub(super) struct Job {
    /// A chain, as in `kolmo transient`
    #[arg(default_value = "wlan:60,6")]
    model: String,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(_: &Bench) -> Result<Outcome> {
    Ok(Outcome::Met)
}
