//! Lists of components or nodes, and their output files.

use std::path::Path;
use std::time::Duration;

use crate::cli::output::no_format;
use kolmo::internals::count;
use kolmo::output::OutputFile;
use kolmo::{Error, Result};

/// Parses a list I,J,K-L and maps each number by `known`, keeping the order.
pub(crate) fn listed(
    list: &str,
    option: &str,
    known: impl Fn(u64) -> std::result::Result<u32, String>,
) -> Result<Vec<u32>> {
    let fail = |reason: String| Error::Invalid(format!("{option}: {reason}"));
    let mut all = Vec::new();
    for item in list.split(',') {
        let number = |s: &str| match count::<u64>(s.trim()) {
            Some(i) => known(i).map(|_| i).map_err(fail),
            None => {
                Err(fail(format!("invalid entry '{item}': expected I,J,K-L, whole numbers counted from 0")))
            }
        };
        match item.split_once('-') {
            Some((a, b)) => {
                let (a, b) = (number(a)?, number(b)?);
                if b < a {
                    return Err(fail(format!(
                        "the range {item} runs backwards; give the smaller number first"
                    )));
                }
                for i in a..=b {
                    all.push(known(i).map_err(fail)?);
                }
            }
            None => all.push(known(number(item)?).map_err(fail)?),
        }
    }
    Ok(all)
}

pub(crate) fn open(output: Option<&Path>) -> Result<OutputFile> {
    let Some(path) = output else { return Ok(OutputFile::stdout()) };
    match path.extension().and_then(|e| e.to_str()) {
        Some("csv" | "npz") => OutputFile::create(path),
        _ => Err(no_format(path, "components", ".csv or .npz")),
    }
}

pub(crate) fn is_npz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// Converts the seconds of `--time-limit`; an error unless they are finite and above 0.
pub(crate) fn time_limit(limit: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(limit).ok().filter(|_| limit > 0.0).ok_or_else(|| {
        Error::Invalid(format!("--time-limit {limit} must be a finite number of seconds above 0"))
    })
}
