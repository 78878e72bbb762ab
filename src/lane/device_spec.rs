//! Device names of the command line, and the lanes that they open.

use std::iter::repeat_n;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::backend::Backend;
use super::backends::AnyLane;
use super::{Device, Lane, Listing, cpu};
use crate::kernel::Precision;
use crate::parallel::{at_once, threads};
use crate::util::options::options;
use crate::{Error, Result};

/// A device as the user names it.
#[derive(Debug, Clone, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum DeviceSpec {
    /// CUDA, else a hardware adapter with the requested precision, else the CPU.
    Auto,
    /// A pool of CPU threads.
    Cpu,
    /// The wgpu adapter of this number.
    #[strum(to_string = "wgpu:{0}")]
    Wgpu(usize),
    /// All hardware GPUs, each once.
    #[strum(to_string = "wgpu:all")]
    WgpuAll,
    /// The CUDA device of this number.
    #[strum(to_string = "cuda:{0}")]
    Cuda(usize),
    /// The WebGPU device of the page that runs this program.
    #[cfg(target_family = "wasm")]
    WebGpu,
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let unknown = || {
            Error::Device(format!(
                "invalid device '{s}': expected auto, cpu, wgpu:N, wgpu:all, cuda:N or a comma \
                 list of them; {}",
                known()
            ))
        };
        Ok(match s.split_once(':') {
            None if s == "auto" => Self::Auto,
            None if s == "cpu" => Self::Cpu,
            #[cfg(target_family = "wasm")]
            None if s == "webgpu" => Self::WebGpu,
            Some(("wgpu", "all")) => Self::WgpuAll,
            Some(("wgpu", n)) => Self::Wgpu(n.parse().map_err(|_| unknown())?),
            Some(("cuda", n)) => Self::Cuda(n.parse().map_err(|_| unknown())?),
            _ => return Err(unknown()),
        })
    }
}

options! {
    /// Options for opening lanes.
    #[derive(Debug, Clone, Copy)]
    pub struct OpenOptions {
        /// Precision of the run. `None` is f64, or [`Self::without_f64`] if a selected device lacks
        /// f64.
        pub precision: Option<Precision> = None,
        /// Precision of a run without a requested one, if a device lacks f64.
        pub without_f64: Precision = Precision::F32,
        /// Number of lanes per device.
        pub lanes: usize = 1,
        /// True if kernels check their indices at run time; CUDA lanes cannot and return an error.
        pub checked: bool = false,
        /// True if wgpu lanes compute fixed point without 64-bit integers. For tests of adapters
        /// that lack them.
        pub limbs: bool = false,
        /// Maximum number of bytes that each lane may allocate.
        pub memory_limit: Option<u64> = None,
        /// Number of threads of a CPU lane; `None` divides the available threads among the CPU
        /// lanes.
        pub cpu_threads: Option<usize> = None,
    }
}

/// Lists every device that this build can detect.
pub fn list() -> Vec<Listing> {
    let mut all = Vec::new();
    all.extend([Listing {
        device: cpu::CpuLane::at_hand(None).device().clone(),
        driver: format!("{} hardware threads", threads()),
        workgroups: None,
        unusable: None,
    }]);
    #[cfg(feature = "cuda")]
    all.extend(super::cuda::list());
    #[cfg(feature = "wgpu")]
    all.extend(super::wgpu::list());
    #[cfg(target_family = "wasm")]
    all.extend(super::browser::device().map(|device| Listing {
        device,
        driver: "the browser's".to_owned(),
        workgroups: Some(super::browser::workgroups()),
        unusable: None,
    }));
    all
}

/// Keeps drivers from writing to this process's stderr.
///
/// With `queues`, CUDA uses that many hardware queues per device instead of eight, unless the
/// environment sets a number. Each queue adds 20 ms to start and exit on an H200 host. Work in
/// several streams of a device overlaps only in different queues.
///
/// # Safety
/// It writes to the environment, so no other thread of the process may run yet.
#[expect(unsafe_code, reason = "the environment is how drivers are configured")]
pub unsafe fn prepare_drivers(queues: Option<u32>) {
    #[cfg(all(feature = "wgpu", target_os = "linux"))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        super::wgpu::quiet();
    }
    #[cfg(feature = "cuda")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        super::cuda::prepare(queues);
    }
    #[cfg(not(feature = "cuda"))]
    let _ = queues;
}

/// Returns the devices of one of several ranks on a host, by its place among them.
///
/// The ranks take the devices of `auto` and `wgpu:all` in turn.
pub fn of_place(specs: &[DeviceSpec], (place, ranks): (usize, usize)) -> Vec<DeviceSpec> {
    let own = |devices: Vec<DeviceSpec>| -> Vec<DeviceSpec> {
        match devices.len() {
            count if count < ranks => devices.into_iter().cycle().skip(place).take(count.min(1)).collect(),
            _ => devices.into_iter().skip(place).step_by(ranks).collect(),
        }
    };
    let each = |spec: &DeviceSpec| match spec {
        #[cfg(feature = "cuda")]
        DeviceSpec::Auto if ranks > 1 && super::cuda::count() > 0 => {
            vec![DeviceSpec::Cuda(place % super::cuda::count())]
        }
        #[cfg(feature = "wgpu")]
        DeviceSpec::Auto if ranks > 1 => {
            let first = own(super::wgpu::hardware().into_iter().map(DeviceSpec::Wgpu).collect());
            first.into_iter().next().map_or(vec![DeviceSpec::Auto], |one| vec![one])
        }
        #[cfg(feature = "wgpu")]
        DeviceSpec::WgpuAll if ranks > 1 && !super::wgpu::hardware().is_empty() => {
            own(super::wgpu::hardware().into_iter().map(DeviceSpec::Wgpu).collect())
        }
        other => vec![other.clone()],
    };
    let _ = (&own, place);
    specs.iter().flat_map(each).collect()
}

/// Opens the lanes of `specs`, all in one precision, and returns this precision.
pub(crate) fn open(specs: &[DeviceSpec], options: &OpenOptions) -> Result<(Vec<Lane>, Precision)> {
    let mut wanted = Vec::new();
    for spec in specs {
        match spec {
            DeviceSpec::Auto => wanted.push(automatic(options)),
            #[cfg(feature = "wgpu")]
            DeviceSpec::WgpuAll => {
                let all = super::wgpu::hardware();
                if all.is_empty() {
                    return Err(Error::Device(format!("wgpu:all: no hardware adapter exists; {}", known())));
                }
                wanted.extend(all.into_iter().map(DeviceSpec::Wgpu));
            }
            other => wanted.push(other.clone()),
        }
    }
    let cpus = options.lanes * wanted.iter().filter(|s| **s == DeviceSpec::Cpu).count();
    let share = threads() / cpus.max(1);

    // A driver needs a tenth of a second per device, most of it waiting, and opens one after the
    // other. Lanes that are open already are tested meanwhile.
    let wanted: Vec<&DeviceSpec> = wanted.iter().flat_map(|spec| repeat_n(spec, options.lanes)).collect();
    // The first lane also measures its bandwidth, by which several lanes share rows.
    let measures = AtomicBool::new(wanted.len() > 1);
    let opened = at_once(wanted, |spec| -> Result<_> {
        let lane = Lane::new(open_one(spec, share, options)?, options.memory_limit);
        let own = common(options.precision, options.without_f64, std::iter::once(lane.device()));
        if let Ok(precision) = own {
            lane.unnoticed(|| super::self_test::run(&lane, precision))?;
        }
        if !lane.device().on_host_cores() && measures.swap(false, Ordering::Relaxed) {
            // An error occurs again in the call that needs the result.
            let _ = lane.bandwidth();
        }
        Ok((lane, own.ok()))
    });
    let (lanes, tested): (Vec<Lane>, Vec<_>) =
        opened.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let precision = common(options.precision, options.without_f64, lanes.iter().map(Lane::device))?;
    for (lane, tested) in lanes.iter().zip(tested) {
        if tested != Some(precision) {
            lane.unnoticed(|| super::self_test::run(lane, precision))?;
        }
    }
    Ok((lanes, precision))
}

/// Opens a lane of a device; a CPU lane gets `share` threads by default.
fn open_one(spec: &DeviceSpec, share: usize, options: &OpenOptions) -> Result<AnyLane> {
    Ok(match spec {
        DeviceSpec::Cpu => cpu::CpuLane::open(options.cpu_threads, share, options.memory_limit)?.into(),
        #[cfg(feature = "wgpu")]
        DeviceSpec::Wgpu(n) => super::wgpu::WgpuLane::open(*n, options.checked, options.limbs, known)?.into(),
        // A CUDA kernel gets pointers only, so it cannot check array bounds.
        #[cfg(feature = "cuda")]
        DeviceSpec::Cuda(n) if options.checked => {
            return Err(Error::Capability(format!(
                "cuda:{n}: `checked` is not supported on CUDA lanes, whose kernels do not know the \
                 lengths of arrays; use `device` wgpu:N or cpu"
            )));
        }
        #[cfg(feature = "cuda")]
        DeviceSpec::Cuda(n) => super::cuda::CudaLane::open(*n, known)?.into(),
        #[cfg(target_family = "wasm")]
        DeviceSpec::WebGpu => super::browser::BrowserLane::open()?.into(),
        other => {
            return Err(Error::Capability(format!("{other}: this build has no such backend; {}", known())));
        }
    })
}

/// Returns the precision of a run: the requested one, or the best that all devices have.
fn common<'a>(
    wanted: Option<Precision>,
    without_f64: Precision,
    mut devices: impl Iterator<Item = &'a Device>,
) -> Result<Precision> {
    match (wanted, devices.find(|device| !device.f64)) {
        (Some(Precision::F64), Some(device)) => Err(Error::Capability(format!(
            "{} ({}) has no double precision through {}; use `precision` {without_f64}, or \
             `device` cpu",
            device.spec, device.name, device.backend
        ))),
        (Some(precision), _) => Ok(precision),
        (None, Some(_)) => Ok(without_f64),
        (None, None) => Ok(Precision::F64),
    }
}

fn automatic(options: &OpenOptions) -> DeviceSpec {
    #[cfg(feature = "cuda")]
    if let Some(n) = super::cuda::best().filter(|_| !options.checked) {
        return DeviceSpec::Cuda(n);
    }
    #[cfg(feature = "wgpu")]
    let precisions = match (options.precision, options.without_f64) {
        (Some(precision), _) => vec![precision],
        // Fixed point is not less accurate than doubles. f32 is used only on request.
        (None, Precision::Q64) => vec![Precision::F64, Precision::Q64],
        (None, _) => vec![Precision::F64],
    };
    #[cfg(feature = "wgpu")]
    if let Some(n) = precisions.into_iter().find_map(super::wgpu::best) {
        return DeviceSpec::Wgpu(n);
    }
    #[cfg(target_family = "wasm")]
    if options.precision != Some(Precision::F64) && super::browser::device().is_some() {
        return DeviceSpec::WebGpu;
    }
    let _ = options;
    DeviceSpec::Cpu
}

/// Returns the list of usable devices, for error messages.
fn known() -> String {
    let usable = list().into_iter().filter(|listing| listing.unusable.is_none());
    let names: Vec<String> = usable.map(|l| format!("{} ({})", l.device.spec, l.device.name)).collect();
    format!("available: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cuda")]
    #[test]
    fn a_cuda_lane_refuses_run_time_checks() {
        let options = OpenOptions { checked: true, ..OpenOptions::default() };

        let refused = open(&[DeviceSpec::Cuda(0)], &options).unwrap_err().to_string();

        assert!(refused.contains("`checked` is not supported") && refused.contains("wgpu:N"), "{refused}");
    }

    fn device(spec: &str, f64: bool) -> Device {
        let cpu = cpu::CpuLane::at_hand(None).device().clone();
        Device { name: format!("the device {spec}"), spec: spec.to_owned(), backend: "metal", f64, ..cpu }
    }

    #[test]
    fn all_lanes_of_a_run_have_one_precision() {
        let (double, single) = (device("cuda:0", true), device("wgpu:1", false));
        let of = |wanted, devices: &[&Device]| common(wanted, Precision::F32, devices.iter().copied());

        assert_eq!(of(None, &[&double, &double]).unwrap(), Precision::F64);
        assert_eq!(of(None, &[&double, &single]).unwrap(), Precision::F32);
        assert_eq!(of(Some(Precision::F32), &[&double, &double]).unwrap(), Precision::F32);
        let refused = of(Some(Precision::F64), &[&double, &single]).unwrap_err().to_string();
        for part in ["wgpu:1", "the device wgpu:1", "`precision` f32"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
