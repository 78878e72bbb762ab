//! A step of uniformization, y = x P, in every format of the matrix.
//!
//! `cargo bench --bench spmv`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

mod machine;

use divan::Bencher;
use divan::counter::ItemsCount;
use kolmo_core::internals::{ChainParts, Iteration, statistics};
use kolmo_core::sparse::MatrixFormat;
use kolmo_core::transient::Options;

use machine::machine;

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
    let statistics = statistics::<f64>(transitions).expect("statistics");
    let parts = ChainParts::build(&machine, transitions, &statistics, format, options.split)
        .expect("a matrix in this format");
    let mut iteration =
        Iteration::new(&machine.lanes, &parts, statistics.inverse_alpha, &[], (0, 0), false).expect("memory");
    let n = transitions.states();
    let initial = vec![1.0 / n as f64; n];
    bencher.counter(ItemsCount::new(STEPS * statistics.nnz)).bench_local(|| {
        iteration.start(&initial, None).expect("a start");
        iteration.advance(STEPS, &[], &mut ()).expect("steps");
    });
}
