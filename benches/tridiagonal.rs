//! Tridiagonal systems, host to host.
//!
//! `cargo bench --bench tridiagonal`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

mod machine;

use divan::Bencher;
use divan::counter::ItemsCount;
use kolmo::models;
use kolmo::tridiagonal::{Options, solve};

use machine::machine;

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
