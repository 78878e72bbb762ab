//! Decisions before a run: predicted memory and time, stored measurements, lane counts, advice.

pub(crate) mod advice;
pub(crate) mod dry_run;
pub(crate) mod lanes;
pub(crate) mod tuning_store;
