//! Names that most modules of the command line use.

pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use clap::Args;
pub(crate) use serde_json::json;

pub(crate) use crate::cli::arguments::{Common, expect, fail, named, whole};
pub(crate) use crate::cli::outcome::conclude;
pub(crate) use crate::cli::output::{complete, extension, print, write_object};
pub(crate) use crate::cli::terminal::progress::ProgressDisplay;
pub(crate) use crate::cli::terminal::{interrupt, say};
pub(crate) use crate::report::{self, bytes, counted, grouped, number, seconds};
pub(crate) use kolmo::kernel::Precision;
pub(crate) use kolmo::lane::DeviceSpec;
pub(crate) use kolmo::output::OutputFile;
pub(crate) use kolmo::ranks::Ranks;
pub(crate) use kolmo::{Error, Machine, Result, Status};
