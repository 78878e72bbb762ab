//! Tridiagonal systems, host to host.
//!
//! `cargo bench --bench tridiagonal`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

use divan::Bencher;
use divan::counter::ItemsCount;
use kolmo::lane::OpenOptions;
use kolmo::tridiagonal::{Options, solve};
use kolmo::{Machine, models};

fn main() {
    divan::main();
}

/// Systems of a million rows: dominant, not dominant, and many small ones. The rate counts rows.
#[divan::bench(args = ["random:1000000", "laplace:1000000", "random:100,10000"], sample_count = 20)]
fn rows(bencher: Bencher<'_, '_>, spec: &str) {
    let machine = machine();
    let built = models::tridiagonal(spec, 0).expect("a built-in").expect("sound parameters");
    let (system, options) = (built.system, Options::default());
    bencher
        .counter(ItemsCount::new(system.rows()))
        .bench_local(|| solve(&machine, &system, &options).expect("a solution"));
}

/// Opens the device in `KOLMO_BENCH_DEVICE`, or else the CPU.
fn machine() -> Machine {
    let device = std::env::var("KOLMO_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = device.parse().expect("a device, as `kolmo devices` lists them");
    Machine::open(&[device], &OpenOptions::default()).expect("the device opens")
}
