//! Device of the benchmarks.

use kolmo::Machine;
use kolmo::lane::OpenOptions;

/// Opens the device in `KOLMO_BENCH_DEVICE`, or else the CPU.
pub(crate) fn machine() -> Machine {
    let device = std::env::var("KOLMO_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = device.parse().expect("a device, as `kolmo devices` lists them");
    Machine::open(&[device], &OpenOptions::default()).expect("the device opens")
}
