//! cuSPARSE's matrix–vector product compared with kolmo's fused step, on one device in one run.
//!
//! `cargo bench --features peers --bench cusparse -- [MODEL …] [--repeat N] [--report FILE]`
//!
//! cuSPARSE multiplies the transposed uniformized matrix P^T, with its diagonal, in CSR with 32-bit
//! indices. It uses its default algorithm and the two named ones, each preprocessed. A term of the
//! sum takes two or three calls:
//!
//! * Three calls as in Algorithm 1 of Karwacki, Bylina, Bylina (FedCSIS 2012). They are
//!   y = P^T x, y = c y, acc = acc + y.
//! * Two calls, with the factor in the product: y = c P^T x, acc = acc + w y.
//!
//! The vector operations are kernels with two numbers per thread.

#![expect(unsafe_code, reason = "a foreign interface")]

use std::ffi::c_void;
use std::io::Write;
use std::sync::Arc;

use cudarc::cusparse::{result as cusparse, sys};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, sys as driver,
};
use kolmo::Machine;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::sparse::{CsrMatrix, MatrixFormat};
use kolmo::transient::{Options, Transitions};
use kolmo_bench::{Record, Spread, bandwidth, spmv};
use rayon::prelude::*;
use serde_json::{Value, json};

type Any<T> = Result<T, Box<dyn std::error::Error>>;

/// Kernels y = c y and acc = acc + w y, two numbers per thread.
const VECTORS: &str = r#"
extern "C" __global__ void scale(double c, double2* y, long pairs) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) { double2 v = y[i]; v.x *= c; v.y *= c; y[i] = v; }
}
extern "C" __global__ void add(double w, const double2* y, double2* acc, long pairs) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) { double2 v = y[i], a = acc[i]; a.x += w * v.x; a.y += w * v.y; acc[i] = a; }
}
"#;

/// Default cases. `circulant:…` has six entries per row at fixed distances: no padding, fully
/// regular.
const CASES: [&str; 2] = ["wlan:204,6", "circulant:32000000,3000,-3000,1,-1,-57"];

/// Returns P^T of the uniformized chain, with its diagonal.
fn uniformized(transitions: &dyn Transitions) -> CsrMatrix {
    const ROWS: usize = 4096;
    let n = transitions.states();
    let mut exit = vec![0.0; n];
    exit.par_chunks_mut(ROWS).enumerate().for_each(|(b, out)| {
        transitions.exit_rates(b * ROWS..b * ROWS + out.len(), out);
    });
    let alpha = exit.par_iter().copied().reduce(|| 0.0, f64::max);
    CsrMatrix::from_rows(n, n, |i, row| {
        transitions.incoming(i, row);
        row.iter_mut().for_each(|(_, rate)| *rate /= alpha);
        row.push((i as u32, 1.0 - exit[i] / alpha));
        row.sort_unstable_by_key(|&(column, _)| column);
    })
}

/// A CSR matrix and two vectors with their cuSPARSE descriptors.
struct Peer {
    stream: Arc<CudaStream>,
    handle: sys::cusparseHandle_t,
    matrix: sys::cusparseSpMatDescr_t,
    x: sys::cusparseDnVecDescr_t,
    y: sys::cusparseDnVecDescr_t,
    n: usize,
    out: CudaSlice<f64>,
    acc: CudaSlice<f64>,
    scale: CudaFunction,
    add: CudaFunction,
    /// Arrays that the descriptors point to.
    _held: (CudaSlice<i32>, CudaSlice<u32>, CudaSlice<f64>, CudaSlice<f64>),
}

fn pointer<T>(slice: &CudaSlice<T>, stream: &Arc<CudaStream>) -> *mut c_void {
    slice.device_ptr(stream).0 as *mut c_void
}

const REAL: sys::cudaDataType = sys::cudaDataType::CUDA_R_64F;
const PLAIN: sys::cusparseOperation_t = sys::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// Signature of cuSPARSE's functions for preprocessing and for the product y = a A x + b y.
type Routine = unsafe fn(
    sys::cusparseHandle_t,
    sys::cusparseOperation_t,
    *const c_void,
    sys::cusparseConstSpMatDescr_t,
    sys::cusparseConstDnVecDescr_t,
    *const c_void,
    sys::cusparseDnVecDescr_t,
    sys::cudaDataType,
    sys::cusparseSpMVAlg_t,
    *mut c_void,
) -> sys::cusparseStatus_t;

impl Peer {
    fn new(context: &Arc<CudaContext>, csr: &CsrMatrix, x: &[f64]) -> Any<Self> {
        let stream = context.new_stream()?;
        let n = x.len();
        let starts: Vec<i32> = csr.starts().iter().map(|&start| start as i32).collect();
        let held = (
            stream.clone_htod(&starts)?,
            stream.clone_htod(csr.column())?,
            stream.clone_htod(csr.value())?,
            stream.clone_htod(x)?,
        );
        let out = stream.alloc_zeros::<f64>(n)?;
        let acc = stream.alloc_zeros::<f64>(n)?;
        let module = context.load_module(cudarc::nvrtc::compile_ptx(VECTORS)?)?;
        let handle = cusparse::create().map_err(|e| format!("{e:?}"))?;
        let (mut matrix, mut from, mut to) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let index = sys::cusparseIndexType_t::CUSPARSE_INDEX_32I;
        let zero = sys::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        // SAFETY: the arrays have the given lengths and live as long as the descriptors (`_held`,
        // `out`).
        unsafe {
            ok(sys::cusparseSetStream(handle, stream.cu_stream().cast()))?;
            ok(sys::cusparseCreateCsr(
                &mut matrix,
                n as i64,
                n as i64,
                csr.nnz() as i64,
                pointer(&held.0, &stream),
                pointer(&held.1, &stream),
                pointer(&held.2, &stream),
                index,
                index,
                zero,
                REAL,
            ))?;
            ok(sys::cusparseCreateDnVec(&mut from, n as i64, pointer(&held.3, &stream), REAL))?;
            ok(sys::cusparseCreateDnVec(&mut to, n as i64, pointer(&out, &stream), REAL))?;
        }
        let (scale, add) = (module.load_function("scale")?, module.load_function("add")?);
        Ok(Self { stream, handle, matrix, x: from, y: to, n, out, acc, scale, add, _held: held })
    }

    /// Returns the workspace of an algorithm, filled by its preprocessing.
    fn prepare(&self, algorithm: sys::cusparseSpMVAlg_t, factor: f64) -> Any<CudaSlice<u8>> {
        let (mut size, beta) = (0usize, 0.0f64);
        let (alpha, beta) = ((&raw const factor).cast(), (&raw const beta).cast());
        let &Self { handle, matrix, x, y, .. } = self;
        // SAFETY: descriptors and scalars are valid.
        unsafe {
            ok(sys::cusparseSpMV_bufferSize(
                handle, PLAIN, alpha, matrix, x, beta, y, REAL, algorithm, &mut size,
            ))?;
        }
        let buffer = self.stream.alloc_zeros::<u8>(size.max(1))?;
        self.call(sys::cusparseSpMV_preprocess, algorithm, factor, &buffer)?;
        Ok(buffer)
    }

    /// Computes y = factor · P^T x.
    fn multiply(&self, algorithm: sys::cusparseSpMVAlg_t, factor: f64, buffer: &CudaSlice<u8>) -> Any<()> {
        self.call(sys::cusparseSpMV, algorithm, factor, buffer)
    }

    fn call(
        &self,
        routine: Routine,
        algorithm: sys::cusparseSpMVAlg_t,
        factor: f64,
        buffer: &CudaSlice<u8>,
    ) -> Any<()> {
        let beta = 0.0f64;
        let (alpha, beta) = ((&raw const factor).cast(), (&raw const beta).cast());
        let (&Self { handle, matrix, x, y, .. }, room) = (self, pointer(buffer, &self.stream));
        // SAFETY: descriptors and scalars are valid, and the buffer has the requested size. Scalars
        // are read before the call returns (host pointer mode).
        unsafe { ok(routine(handle, PLAIN, alpha, matrix, x, beta, y, REAL, algorithm, room)) }
    }

    fn grid(&self) -> LaunchConfig {
        let pairs = self.n.div_ceil(2) as u32;
        LaunchConfig { grid_dim: (pairs.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
    }

    fn scale(&mut self, c: f64) -> Any<()> {
        let (pairs, grid) = ((self.n / 2) as i64, self.grid());
        // SAFETY: the kernel accesses n / 2 pairs of a vector of n numbers.
        unsafe {
            self.stream.launch_builder(&self.scale).arg(&c).arg(&mut self.out).arg(&pairs).launch(grid)?
        };
        Ok(())
    }

    fn add(&mut self, w: f64) -> Any<()> {
        let (pairs, grid) = ((self.n / 2) as i64, self.grid());
        // SAFETY: the kernel accesses n / 2 pairs of two vectors of n numbers.
        unsafe {
            let mut launch = self.stream.launch_builder(&self.add);
            launch.arg(&w).arg(&self.out).arg(&mut self.acc).arg(&pairs).launch(grid)?;
        }
        Ok(())
    }

    /// Measures the seconds of a term of the uniformization sum, in `repeat` runs of 32 terms.
    fn time(&mut self, repeat: usize, mut term: impl FnMut(&mut Self) -> Any<()>) -> Any<Spread> {
        const TIMES: u32 = 32;
        let timing = Some(driver::CUevent_flags::CU_EVENT_DEFAULT);
        term(self)?;
        let mut seconds = Vec::new();
        for _ in 0..repeat {
            let from = self.stream.record_event(timing)?;
            for _ in 0..TIMES {
                term(self)?;
            }
            let to = self.stream.record_event(timing)?;
            seconds.push(f64::from(from.elapsed_ms(&to)?) * 1e-3 / f64::from(TIMES));
        }
        Ok(Spread::of(seconds))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
        // SAFETY: created by `new`, and not used again.
        unsafe {
            sys::cusparseDestroyDnVec(self.x);
            sys::cusparseDestroyDnVec(self.y);
            sys::cusparseDestroySpMat(self.matrix);
            let _ = cusparse::destroy(self.handle);
        }
    }
}

fn ok(status: sys::cusparseStatus_t) -> Any<()> {
    status.result().map_err(|e| format!("cuSPARSE: {e:?}").into())
}

fn main() -> Any<()> {
    let (mut cases, mut repeat, mut report) = (Vec::new(), 10usize, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--repeat" => repeat = arguments.next().ok_or("--repeat N")?.parse()?,
            "--report" => report = Some(arguments.next().ok_or("--report FILE")?),
            // Passed by Cargo.
            "--bench" => {}
            model => cases.push(model.to_owned()),
        }
    }
    if cases.is_empty() {
        cases.extend(CASES.map(str::to_owned));
    }
    let mut lines = Vec::new();
    for case in &cases {
        lines.extend(compare(case, repeat)?);
    }
    if let Some(path) = report {
        let mut file = std::fs::File::create(path)?;
        lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
    }
    Ok(())
}

fn compare(case: &str, repeat: usize) -> Any<Vec<Value>> {
    let model = kolmo::models::parse(case).ok_or_else(|| format!("{case} is no built-in model"))??;
    let (transitions, n) = (&*model.transitions, model.transitions.states());
    let machine =
        Machine::open(&[DeviceSpec::Cuda(0)], &OpenOptions::default().precision(Some(Precision::F64)))?;
    // A column and a value per entry, as in cuSPARSE.
    let options = Options::default().format(MatrixFormat::Hyb);
    let copy = bandwidth(&machine.lanes, repeat)?;
    let ours = spmv(&machine, case, transitions, &options, repeat, copy)?;
    drop(machine);
    let fused: &Record =
        ours.iter().find(|r| r.accumulate == Some(true)).ok_or("no step with accumulator")?;

    let csr = uniformized(transitions);
    let x: Vec<f64> = (0..n).into_par_iter().map(|i| 1.0 + (i % 1013) as f64 / 1013.0).collect();
    let context = CudaContext::new(0)?;
    let mut peer = Peer::new(&context, &csr, &x)?;
    let exact = |i: usize| {
        let (columns, values) = csr.row(i);
        columns.iter().zip(values).map(|(&c, &v)| v * x[c as usize]).sum::<f64>()
    };
    println!("{case}  n = {n}  nnz = {}  on {}", csr.nnz(), fused.device);
    println!("{:<44} {:>10} {:>10} {:>9} {:>9}", "", "median ms", "least ms", "GB/s", "to fused");
    let mut lines: Vec<Value> = ours.iter().map(|record| json!(record)).collect();
    let mut say = |name: &str, seconds: Spread, error: f64| {
        let rate = fused.bytes as f64 / seconds.median / 1e9;
        println!(
            "{name:<44} {:>10.4} {:>10.4} {rate:>9.1} {:>8.2}x",
            seconds.median * 1e3,
            seconds.min * 1e3,
            seconds.median / fused.seconds.median
        );
        let mut line = json!(fused);
        line["peer"] = json!(name);
        line["format"] = json!("csr");
        line["seconds"] = json!(seconds);
        line["gb_per_s"] = json!(rate);
        line["relative_error"] = json!(error);
        // Matrix, row starts, x and y; y twice more for a scaling; y and twice the accumulator for
        // the sum.
        let vectors = if name.contains("scale") { 7 } else { 5 };
        line["bytes_moved"] = json!(12 * csr.nnz() + 4 * n + 8 * vectors * n);
        lines.push(line);
    };
    say(&format!("kolmo {} (fused)", fused.format), fused.seconds, fused.relative_error);
    use sys::cusparseSpMVAlg_t as Algorithm;
    for (name, algorithm) in [
        ("cusparse-csr", Algorithm::CUSPARSE_SPMV_ALG_DEFAULT),
        ("cusparse-csr-alg1", Algorithm::CUSPARSE_SPMV_CSR_ALG1),
        ("cusparse-csr-alg2", Algorithm::CUSPARSE_SPMV_CSR_ALG2),
    ] {
        let buffer = peer.prepare(algorithm, 1.0)?;
        peer.multiply(algorithm, 1.0, &buffer)?;
        let y = peer.stream.clone_dtoh(&peer.out)?;
        let worst = |i: usize| ((y[i] - exact(i)).abs(), exact(i).abs());
        let (worst, largest) =
            (0..n).into_par_iter().map(worst).reduce(|| (0.0, 0.0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let error = worst / largest;
        if error > 1e-12 {
            return Err(format!("{name} is wrong by {error:e}").into());
        }
        let alone = peer.time(repeat, |peer| peer.multiply(algorithm, 1.0, &buffer))?;
        say(&format!("{name}, product alone"), alone, error);
        let three = peer.time(repeat, |peer| {
            peer.multiply(algorithm, 1.0, &buffer)?;
            peer.scale(0.999)?;
            peer.add(1.0)
        })?;
        say(&format!("{name}, scale, add"), three, error);
        let two = peer.time(repeat, |peer| {
            peer.multiply(algorithm, 0.999, &buffer)?;
            peer.add(1e-4)
        })?;
        say(&format!("{name} with the factor, axpy"), two, error);
    }
    println!();
    Ok(lines)
}
