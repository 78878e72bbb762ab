//! Names that most modules use.

pub(crate) use std::path::Path;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Instant;

pub(crate) use kolmo::{Error, Machine, Progress, Result, Status};
pub(crate) use numpy::{PyArray1, PyReadonlyArray1};
pub(crate) use pyo3::prelude::*;
pub(crate) use pyo3::types::{PyAny, PyDict, PyTuple};

pub(crate) use crate::errors::exception;
pub(crate) use crate::machine::{DeviceChoice, expect_own_process, names};
pub(crate) use crate::watch::{Stop, watched};
