//! cuSPARSE's tridiagonal and pentadiagonal solvers, with all data on the device.
//!
//! Tridiagonal: `gtsv2` (with pivoting), `gtsv2_nopivot`, `gtsv2StridedBatch`. Pentadiagonal:
//! `gpsvInterleavedBatch` (QR). Each overwrites its right-hand side, the last one also the matrix.
//! Every solution therefore begins with a copy, which is timed separately and subtracted.

#![expect(unsafe_code, reason = "a foreign interface")]

use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use cudarc::cusparse::{result as cusparse, sys};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::{banded_residual, residual, rows};
use crate::{PeerTimes, Spread};
use kolmo::tridiagonal::{BandedSystem, Form, System};

/// A routine of cuSPARSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routine {
    /// `cusparseDgtsv2`.
    Pivot,
    /// `cusparseDgtsv2_nopivot`.
    NoPivot,
    /// `cusparseDgtsv2StridedBatch`.
    StridedBatch,
}

impl Routine {
    /// Name without the prefix for the precision.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pivot => "gtsv2",
            Self::NoPivot => "gtsv2_nopivot",
            Self::StridedBatch => "gtsv2StridedBatch",
        }
    }

    /// Routines that can solve this kind of system.
    pub fn of(system: &System) -> &'static [Self] {
        match (system.cyclic, system.batch) {
            (true, _) => &[],
            (false, 1) => &[Self::Pivot, Self::NoPivot],
            (false, _) => &[Self::StridedBatch],
        }
    }
}

fn text(e: impl Debug) -> String {
    format!("cuSPARSE: {e:?}")
}

fn ok(status: sys::cusparseStatus_t) -> Result<(), String> {
    match status {
        sys::cusparseStatus_t::CUSPARSE_STATUS_SUCCESS => Ok(()),
        other => Err(text(other)),
    }
}

/// Handle of the library, destroyed when dropped.
struct Handle(sys::cusparseHandle_t);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle was created and is not used again. The returned status changes
        // nothing.
        let _ = unsafe { cusparse::destroy(self.0) };
    }
}

/// A tridiagonal system on the device.
pub struct Peer<'a> {
    system: &'a System,
    handle: Handle,
    stream: Arc<CudaStream>,
    diagonals: [CudaSlice<f64>; 3],
    b: CudaSlice<f64>,
    x: CudaSlice<f64>,
}

impl Debug for Peer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer({} rows)", self.system.rows())
    }
}

fn pointer(slice: &CudaSlice<f64>, stream: &Arc<CudaStream>) -> *mut f64 {
    slice.device_ptr(stream).0 as *mut f64
}

/// Opens the library with a stream of CUDA device `ordinal`.
fn open(ordinal: usize) -> Result<(Handle, Arc<CudaStream>), String> {
    // SAFETY: this only searches for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("cuSPARSE's library (libcusparse) is not on this machine".to_owned());
    }
    let stream = CudaContext::new(ordinal).and_then(|c| c.new_stream()).map_err(text)?;
    let handle = Handle(cusparse::create().map_err(text)?);
    // SAFETY: handle and stream are valid.
    unsafe { ok(sys::cusparseSetStream(handle.0, stream.cu_stream().cast()))? };
    Ok((handle, stream))
}

/// Measures the seconds of a solution without the copy that it begins with.
///
/// `run(false)` makes only the copy, `run(true)` also solves.
fn alone(
    stream: &CudaStream,
    rows: usize,
    repeat: usize,
    mut run: impl FnMut(bool) -> Result<(), String>,
) -> Result<Spread, String> {
    let times = if rows < 1 << 22 { 50 } else { 5 };
    let mut timed = |solves: bool| -> Result<f64, String> {
        stream.synchronize().map_err(text)?;
        let at = Instant::now();
        for _ in 0..times {
            run(solves)?;
        }
        stream.synchronize().map_err(text)?;
        Ok(at.elapsed().as_secs_f64() / f64::from(times))
    };
    timed(true)?;
    let (mut copies, mut solutions) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        copies.push(timed(false)?);
        solutions.push(timed(true)?);
    }
    let (copy, all) = (Spread::of(copies), Spread::of(solutions));
    Ok(Spread { min: all.min - copy.min, median: all.median - copy.median })
}

impl<'a> Peer<'a> {
    /// Copies a system's rows to CUDA device `ordinal`.
    ///
    /// # Errors
    /// If there is no cuSPARSE, or the device's memory does not suffice.
    pub fn new(ordinal: usize, system: &'a System) -> Result<Self, String> {
        let (handle, stream) = open(ordinal)?;
        let upload = |v: &[f64]| stream.clone_htod(v).map_err(text);
        let [dl, d, du, b] = rows(system);
        let (diagonals, b) = ([upload(&dl)?, upload(&d)?, upload(&du)?], upload(&b)?);
        let x = stream.alloc_zeros::<f64>(system.rows()).map_err(text)?;
        Ok(Self { system, handle, stream, diagonals, b, x })
    }

    /// Measures a routine.
    ///
    /// # Errors
    /// Errors of the library or the driver.
    pub fn times(&mut self, routine: Routine, repeat: usize) -> Result<PeerTimes, String> {
        let count = |v: usize| i32::try_from(v).map_err(|_| format!("{v} rows are too many for cuSPARSE"));
        let [dl, d, du] = [0, 1, 2].map(|k| pointer(&self.diagonals[k], &self.stream).cast_const());
        let (handle, x) = (self.handle.0, pointer(&self.x, &self.stream));
        let (n, batch) = (count(self.system.n)?, count(self.system.batch)?);
        let mut bytes = 0;
        // SAFETY: the arrays have batch·n numbers each and live as long as this value.
        unsafe {
            ok(match routine {
                Routine::Pivot => {
                    sys::cusparseDgtsv2_bufferSizeExt(handle, n, 1, dl, d, du, x, n, &mut bytes)
                }
                Routine::NoPivot => {
                    sys::cusparseDgtsv2_nopivot_bufferSizeExt(handle, n, 1, dl, d, du, x, n, &mut bytes)
                }
                Routine::StridedBatch => sys::cusparseDgtsv2StridedBatch_bufferSizeExt(
                    handle, n, dl, d, du, x, batch, n, &mut bytes,
                ),
            })?;
        }
        let workspace = self.stream.alloc_zeros::<u8>(bytes.max(1)).map_err(text)?;
        let space = workspace.device_ptr(&self.stream).0 as *mut c_void;
        let solve = || {
            // SAFETY: as above; the workspace has the requested size.
            ok(unsafe {
                match routine {
                    Routine::Pivot => sys::cusparseDgtsv2(handle, n, 1, dl, d, du, x, n, space),
                    Routine::NoPivot => sys::cusparseDgtsv2_nopivot(handle, n, 1, dl, d, du, x, n, space),
                    Routine::StridedBatch => {
                        sys::cusparseDgtsv2StridedBatch(handle, n, dl, d, du, x, batch, n, space)
                    }
                }
            })
        };
        let seconds = alone(&self.stream, self.system.rows(), repeat, |solves| {
            self.stream.memcpy_dtod(&self.b, &mut self.x).map_err(text)?;
            if solves { solve() } else { Ok(()) }
        })?;
        let found = self.stream.clone_dtoh(&self.x).map_err(text)?;
        Ok(PeerTimes {
            name: routine.name(),
            library: "cuSPARSE".to_owned(),
            seconds,
            extra_memory: bytes as f64 / (40 * self.system.rows()) as f64,
            residual: residual(self.system, &found),
        })
    }
}

/// Measures `cusparseDgpsvInterleavedBatch` on pentadiagonal systems, stored interleaved.
///
/// # Errors
/// If the system has blocks; errors of the library or the driver.
pub fn gpsv_interleaved(ordinal: usize, system: &BandedSystem, repeat: usize) -> Result<PeerTimes, String> {
    if system.form() != Form::Pentadiagonal {
        return Err("cuSPARSE has no routine for blocks of 2 × 2".to_owned());
    }
    let count = |v: usize| i32::try_from(v).map_err(|_| format!("{v} rows are too many for cuSPARSE"));
    let (handle, stream) = open(ordinal)?;
    let (n, batch) = (system.n(), system.batch());
    let upload = |v: &[f64]| {
        let interleaved: Vec<f64> = (0..v.len()).map(|at| v[at % batch * n + at / batch]).collect();
        stream.clone_htod(&interleaved).map_err(text)
    };
    let given = system.arrays().iter().chain([&system.b[0]]).map(|v| upload(v));
    let given = given.collect::<Result<Vec<_>, String>>()?;
    let empty = |_| stream.alloc_zeros::<f64>(system.rows()).map_err(text);
    let mut own = (0..6).map(empty).collect::<Result<Vec<_>, String>>()?;
    let at: Vec<*mut f64> = own.iter().map(|v| pointer(v, &stream)).collect();
    let (m, count, mut bytes) = (count(n)?, count(batch)?, 0);
    let a: Vec<*const f64> = at.iter().map(|v| v.cast_const()).collect();
    // SAFETY: the arrays have batch·n numbers each and live as long as this function.
    unsafe {
        ok(sys::cusparseDgpsvInterleavedBatch_bufferSizeExt(
            handle.0, 0, m, a[0], a[1], a[2], a[3], a[4], a[5], count, &mut bytes,
        ))?;
    }
    let workspace = stream.alloc_zeros::<u8>(bytes.max(1)).map_err(text)?;
    let space = workspace.device_ptr(&stream).0 as *mut c_void;
    let seconds = alone(&stream, system.rows(), repeat, |solves| {
        for (from, to) in given.iter().zip(&mut own) {
            stream.memcpy_dtod(from, to).map_err(text)?;
        }
        if !solves {
            return Ok(());
        }
        // SAFETY: as above; the workspace has the requested size.
        ok(unsafe {
            sys::cusparseDgpsvInterleavedBatch(
                handle.0, 0, m, at[0], at[1], at[2], at[3], at[4], at[5], count, space,
            )
        })
    })?;
    // The last timed run has solved.
    let found = stream.clone_dtoh(&own[5]).map_err(text)?;
    let x: Vec<f64> = (0..found.len()).map(|at| found[at % n * batch + at / n]).collect();
    Ok(PeerTimes {
        name: "gpsvInterleavedBatch",
        library: "cuSPARSE".to_owned(),
        seconds,
        // The matrix is overwritten; keeping it would take twice its memory, which is not counted.
        extra_memory: bytes as f64 / (56 * system.rows()) as f64,
        residual: banded_residual(system, &x),
    })
}
