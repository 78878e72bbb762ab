//! NVIDIA's cuSPARSE against the partition method, on the same device in one run:
//! `cargo bench --features peers --bench cusparse_gtsv -- [--n N[,N…]] [--repeat N] [--report FILE]`
//!
//! Device-resident: `gtsv2` (pivots), `gtsv2_nopivot` and, with the same rows as systems of 512, `gtsv2StridedBatch`,
//! each on a fresh right-hand side, which it overwrites: that copy is timed by itself and taken off. Host to host: this
//! crate alone, on one lane and on several, page-locked and pageable.

#![expect(unsafe_code, reason = "a foreign interface")]

use std::ffi::c_void;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use cudarc::cusparse::{result as cusparse, sys};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use kolmo::bench::Spread;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, Lane, OpenOptions, open};
use kolmo::tridiagonal::{Plan, PlanOptions, Send, System};
use serde_json::json;

type Any<T> = Result<T, Box<dyn std::error::Error>>;

/// Rows of a system of the batch.
const BATCHED: usize = 512;

fn ok(status: sys::cusparseStatus_t) -> Any<()> {
    match status {
        sys::cusparseStatus_t::CUSPARSE_STATUS_SUCCESS => Ok(()),
        other => Err(format!("cuSPARSE: {other:?}").into()),
    }
}

struct Peer {
    stream: Arc<CudaStream>,
    handle: sys::cusparseHandle_t,
    diagonals: [CudaSlice<f64>; 3],
    b: CudaSlice<f64>,
    x: CudaSlice<f64>,
    n: usize,
}

#[derive(Clone, Copy)]
enum Routine {
    Pivot,
    NoPivot,
    StridedBatch,
}

impl Routine {
    fn name(self) -> &'static str {
        match self {
            Self::Pivot => "cusparse-gtsv2",
            Self::NoPivot => "cusparse-gtsv2_nopivot",
            Self::StridedBatch => "cusparse-gtsv2StridedBatch",
        }
    }
}

fn pointer(slice: &CudaSlice<f64>, stream: &Arc<CudaStream>) -> *mut f64 {
    slice.device_ptr(stream).0 as *mut f64
}

impl Peer {
    fn new(context: &Arc<CudaContext>, system: &System) -> Any<Self> {
        let stream = context.new_stream()?;
        let upload = |v: &[f64]| stream.clone_htod(v);
        let n = system.n;
        let diagonals = [upload(&system.dl)?, upload(&system.d)?, upload(&system.du)?];
        let (b, x) = (upload(&system.b[0])?, stream.alloc_zeros::<f64>(n)?);
        let handle = cusparse::create().map_err(|e| format!("{e:?}"))?;
        // SAFETY: handle and stream live.
        unsafe { ok(sys::cusparseSetStream(handle, stream.cu_stream().cast()))? };
        Ok(Self { stream, handle, diagonals, b, x, n })
    }

    /// Bytes of workspace, seconds of one solution, and the unknowns.
    fn measure(&mut self, routine: Routine, repeat: usize) -> Any<(usize, Spread, Vec<f64>)> {
        let [dl, d, du] = [0, 1, 2].map(|k| pointer(&self.diagonals[k], &self.stream).cast_const());
        let (x, n) = (pointer(&self.x, &self.stream), self.n as i32);
        let (m, batch) = (BATCHED as i32, (self.n / BATCHED) as i32);
        let mut bytes = 0;
        // SAFETY: the arrays have n numbers each and live as long as this value.
        unsafe {
            ok(match routine {
                Routine::Pivot => {
                    sys::cusparseDgtsv2_bufferSizeExt(self.handle, n, 1, dl, d, du, x, n, &mut bytes)
                }
                Routine::NoPivot => {
                    sys::cusparseDgtsv2_nopivot_bufferSizeExt(self.handle, n, 1, dl, d, du, x, n, &mut bytes)
                }
                Routine::StridedBatch => sys::cusparseDgtsv2StridedBatch_bufferSizeExt(
                    self.handle,
                    m,
                    dl,
                    d,
                    du,
                    x,
                    batch,
                    m,
                    &mut bytes,
                ),
            })?;
        }
        let workspace = self.stream.alloc_zeros::<u8>(bytes.max(1))?;
        let space = workspace.device_ptr(&self.stream).0 as *mut c_void;
        let times = if self.n < 1 << 22 { 50 } else { 5 };
        let mut run = |solve: bool| -> Any<f64> {
            self.stream.synchronize()?;
            let at = Instant::now();
            for _ in 0..times {
                self.stream.memcpy_dtod(&self.b, &mut self.x)?;
                if solve {
                    // SAFETY: as above; the workspace has the size that was asked for.
                    unsafe {
                        ok(match routine {
                            Routine::Pivot => sys::cusparseDgtsv2(self.handle, n, 1, dl, d, du, x, n, space),
                            Routine::NoPivot => {
                                sys::cusparseDgtsv2_nopivot(self.handle, n, 1, dl, d, du, x, n, space)
                            }
                            Routine::StridedBatch => {
                                sys::cusparseDgtsv2StridedBatch(self.handle, m, dl, d, du, x, batch, m, space)
                            }
                        })?;
                    }
                }
            }
            self.stream.synchronize()?;
            Ok(at.elapsed().as_secs_f64() / f64::from(times))
        };
        run(true)?;
        let mut copies = Vec::new();
        let mut solutions = Vec::new();
        for _ in 0..repeat {
            copies.push(run(false)?);
            solutions.push(run(true)?);
        }
        let copy = Spread::of(copies);
        let all = Spread::of(solutions);
        let seconds = Spread { min: all.min - copy.min, median: all.median - copy.median };
        Ok((bytes, seconds, self.stream.clone_dtoh(&self.x)?))
    }
}

struct Report {
    file: Option<std::fs::File>,
}

impl Report {
    #[expect(clippy::too_many_arguments, reason = "a line of the table")]
    fn line(
        &mut self,
        who: &str,
        device: &str,
        backend: &str,
        n: usize,
        lanes: usize,
        resident: bool,
        seconds: Spread,
        error: f64,
        extra: f64,
    ) -> Any<()> {
        let rate = n as f64 / seconds.median;
        println!(
            "{n:>10} {who:<28} {backend:<7} {:<9} lanes {lanes:<2} {:>10.4} ms  {:>8.2} Grow/s  {:>6.0} GB/s (72 B/row)  \
             memory +{:>5.1} %  residual {error:.1e}",
            if resident { "resident" } else { "host" },
            seconds.median * 1e3,
            rate / 1e9,
            72.0 * rate / 1e9,
            100.0 * extra,
        );
        if let Some(file) = &mut self.file {
            let mut line = json!({
                "bench": "tridiagonal", "case": format!("random:{n}"), "device": device, "backend": backend,
                "precision": "f64", "n": n, "nnz": 3 * n - 2, "format": "diagonals", "lanes": lanes,
                "bytes": 40 * n, "bytes_moved": 72 * n, "seconds": seconds, "rows_per_s": rate,
                "gb_per_s": 40.0 * rate / 1e9, "relative_error": error, "resident": resident,
                "extra_memory": extra,
            });
            if who.starts_with("cusparse") {
                line["peer"] = json!(who);
            }
            writeln!(file, "{line}")?;
        }
        Ok(())
    }
}

/// The same rows as systems of their own.
fn batched(system: &System) -> System {
    let batch = system.n / BATCHED;
    let cut = |v: &[f64]| v[..batch * BATCHED].to_vec();
    System {
        n: BATCHED,
        batch,
        dl: cut(&system.dl),
        d: cut(&system.d),
        du: cut(&system.du),
        b: vec![cut(&system.b[0])],
        cyclic: false,
    }
}

fn fill(plan: &mut Plan<'_, f64>, system: &System) {
    let inputs = plan.inputs();
    inputs.dl.copy_from_slice(&system.dl);
    inputs.d.copy_from_slice(&system.d);
    inputs.du.copy_from_slice(&system.du);
    inputs.b.copy_from_slice(&system.b[0]);
}

fn lanes(spec: &str, count: usize) -> Option<Vec<Lane>> {
    let spec: DeviceSpec = spec.parse().ok()?;
    let options = OpenOptions { precision: Some(Precision::F64), lanes: count, ..OpenOptions::default() };
    match open(std::slice::from_ref(&spec), &options) {
        Ok((lanes, _)) => Some(lanes),
        Err(e) => {
            println!("{spec}: {e}");
            None
        }
    }
}

fn main() -> Any<()> {
    let mut sizes = vec![100_000, 1_000_000, 4_000_000, 40_000_000, 100_000_000];
    let (mut repeat, mut report) = (5, Report { file: None });
    let mut args = std::env::args().skip(1).filter(|a| a != "--bench");
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--n" => sizes = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--repeat" => repeat = value()?.parse()?,
            "--report" => report.file = Some(std::fs::File::create(value()?)?),
            other => return Err(format!("{other}: there are --n, --repeat, --report").into()),
        }
    }
    let context = CudaContext::new(0)?;
    for n in sizes {
        let mut system = match kolmo::models::tridiagonal(&format!("random:{n}"), 0) {
            Some(made) => made?.system,
            None => unreachable!("a built-in system"),
        };
        // cuSPARSE wants zeros where nothing is.
        system.dl[0] = 0.0;
        system.du[n - 1] = 0.0;
        let mut cut = batched(&system);
        for s in 0..cut.batch {
            cut.dl[s * BATCHED] = 0.0;
            cut.du[(s + 1) * BATCHED - 1] = 0.0;
        }
        let error = |system: &System, x: &[f64]| system.residual(&system.b[0], x, &mut []).normwise;
        for (spec, counts) in [("cuda:0", &[1, 2, 4, 8][..]), ("wgpu:0", &[1, 2, 4, 8][..])] {
            let Some(all) = lanes(spec, if n >= 1_000_000 { 8 } else { 1 }) else { continue };
            let (name, backend) = (all[0].device().name.clone(), all[0].device().backend);
            for &count in counts.iter().filter(|&&count| count <= all.len()) {
                for pageable in [false, true] {
                    if pageable && (count > 1 || backend != "cuda") {
                        continue;
                    }
                    let options = PlanOptions { pageable, ..PlanOptions::default() };
                    let mut plan = match Plan::<f64>::with(&all[..count], n, 1, false, &options) {
                        Ok(plan) => plan,
                        Err(e) => {
                            println!("{spec} {count} lanes: {e}");
                            continue;
                        }
                    };
                    fill(&mut plan, &system);
                    plan.solve(Send::All)?;
                    let mut seconds = Vec::new();
                    for _ in 0..repeat.min(if n > 10_000_000 { 3 } else { 10 }) {
                        seconds.push(plan.solve(Send::All)?.total);
                    }
                    let extra = plan.device_bytes() as f64 / (40 * n) as f64 - 1.0;
                    let off = error(&system, plan.x());
                    let who = if pageable { "kolmo pageable" } else { "kolmo" };
                    report.line(who, &name, backend, n, count, false, Spread::of(seconds), off, extra)?;
                    if count == 1 && !pageable {
                        if plan.locked() {
                            let s = plan.solve_by_stages(Send::All)?;
                            println!(
                                "           stages (ms): upload {:.3} reduce {:.3} units {:.3} interface {:.3} ends {:.3} solve {:.3} download {:.3}",
                                s.upload * 1e3,
                                s.reduce * 1e3,
                                s.units_down * 1e3,
                                s.interface * 1e3,
                                s.ends_up * 1e3,
                                s.solve * 1e3,
                                s.download * 1e3
                            );
                        }
                        let times = if n < 1 << 22 { 100 } else { 20 };
                        plan.solve_resident(2)?;
                        let runs: kolmo::Result<Vec<f64>> =
                            (0..repeat).map(|_| plan.solve_resident(times)).collect();
                        report.line("kolmo", &name, backend, n, 1, true, Spread::of(runs?), off, extra)?;
                    }
                }
            }
        }
        let mut peer = Peer::new(&context, &system)?;
        for routine in [Routine::Pivot, Routine::NoPivot] {
            match peer.measure(routine, repeat) {
                Ok((bytes, seconds, x)) => {
                    let (off, extra) = (error(&system, &x), bytes as f64 / (40 * n) as f64);
                    report.line(routine.name(), "", "cuda", n, 1, true, seconds, off, extra)?;
                }
                Err(e) => println!("{}: {e}", routine.name()),
            }
        }
        drop(peer);
        // The batch.
        if cut.batch > 0 {
            if let Some(all) = lanes("cuda:0", 1) {
                let options = PlanOptions { pageable: true, ..PlanOptions::default() };
                let mut plan = Plan::<f64>::with(&all, BATCHED, cut.batch, false, &options)?;
                fill(&mut plan, &cut);
                plan.solve(Send::All)?;
                let runs: kolmo::Result<Vec<f64>> = (0..repeat).map(|_| plan.solve_resident(20)).collect();
                let extra = plan.device_bytes() as f64 / (40 * cut.rows()) as f64 - 1.0;
                let off = error(&cut, plan.x());
                report.line(
                    "kolmo batch of 512",
                    "",
                    "cuda",
                    cut.rows(),
                    1,
                    true,
                    Spread::of(runs?),
                    off,
                    extra,
                )?;
            }
            let flat = System { n: cut.rows(), batch: 1, ..cut.clone() };
            let mut peer = Peer::new(&context, &flat)?;
            match peer.measure(Routine::StridedBatch, repeat) {
                Ok((bytes, seconds, x)) => {
                    let (off, extra) = (error(&cut, &x), bytes as f64 / (40 * cut.rows()) as f64);
                    report.line(
                        Routine::StridedBatch.name(),
                        "",
                        "cuda",
                        cut.rows(),
                        1,
                        true,
                        seconds,
                        off,
                        extra,
                    )?;
                }
                Err(e) => println!("strided batch: {e}"),
            }
        }
    }
    Ok(())
}
