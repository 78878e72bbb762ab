//! A step of uniformization, y = x P, in every format of the matrix.
//!
//! `cargo bench --bench spmv`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

use divan::Bencher;
use divan::counter::ItemsCount;
use kolmo::Machine;
use kolmo::internals::{Iteration, Parts, statistics};
use kolmo::lane::OpenOptions;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::Options;

fn main() {
    divan::main();
}

/// Number of steps in one measurement.
const STEPS: u64 = 16;

/// Steps of 87,000 states. The rate counts the stored entries of the matrix.
#[divan::bench(args = MatrixFormat::STORED, sample_count = 50)]
fn wlan(bencher: Bencher<'_, '_>, format: MatrixFormat) {
    let machine = machine();
    let model = kolmo::models::parse("wlan:10,6").expect("a built-in").expect("sound parameters");
    let (transitions, options) = (&*model.transitions, Options::default());
    let statistics = machine.lanes[0].host(|| statistics::<f64>(transitions)).expect("statistics");
    let parts = Parts::build(&machine, transitions, &statistics, options.width, format, options.split)
        .expect("a matrix in this format");
    let mut iteration =
        Iteration::new(&machine.lanes, &parts, statistics.inverse_alpha, &[], (0, 0)).expect("memory");
    let n = transitions.states();
    let initial = vec![1.0 / n as f64; n];
    bencher.counter(ItemsCount::new(STEPS * statistics.nnz)).bench_local(|| {
        iteration.start(&initial).expect("a start");
        iteration.advance(STEPS, &[], &mut ()).expect("steps");
    });
}

/// Opens the device in `KOLMO_BENCH_DEVICE`, or else the CPU.
fn machine() -> Machine {
    let device = std::env::var("KOLMO_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = device.parse().expect("a device, as `kolmo devices` lists them");
    Machine::open(&[device], &OpenOptions::default()).expect("the device opens")
}
