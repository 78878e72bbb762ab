//! Transient probabilities by each method, from the chain to the vector at time t.
//!
//! `cargo bench --bench transient`; `KOLMO_BENCH_DEVICE=wgpu:0` selects a device.

mod machine;

use divan::Bencher;
use kolmo::transient::{Chain, Method, Options};

use machine::machine;

fn main() {
    divan::main();
}

/// A nearly reversible chain of 87,000 states.
#[divan::bench(args = [0.5, 5.0], sample_count = 10)]
fn wlan(bencher: Bencher<'_, '_>, time: f64) {
    solve(bencher, "wlan:10,6", time, Method::Auto);
}

/// Uniformization up to the last Poisson term.
#[divan::bench(args = [10.0, 100.0], sample_count = 10)]
fn tandem_uniformization(bencher: Bencher<'_, '_>, time: f64) {
    solve(bencher, "tandem:63", time, Method::Uniformization);
}

/// Uniformization with early termination.
#[divan::bench(args = [10.0, 100.0, f64::INFINITY], sample_count = 10)]
fn tandem(bencher: Bencher<'_, '_>, time: f64) {
    solve(bencher, "tandem:63", time, Method::Auto);
}

/// Chebyshev polynomials.
#[divan::bench(args = [1000.0], sample_count = 10)]
fn birth_death_chebyshev(bencher: Bencher<'_, '_>, time: f64) {
    solve(bencher, "birth-death:10000,1,2", time, Method::Chebyshev { strict: false });
}

/// Krylov approximations.
#[divan::bench(args = [1000.0], sample_count = 10)]
fn birth_death_krylov(bencher: Bencher<'_, '_>, time: f64) {
    solve(bencher, "birth-death:10000,1,2", time, Method::Krylov { strict: false });
}

fn solve(bencher: Bencher<'_, '_>, model: &str, time: f64, method: Method) {
    let machine = machine();
    let chain = Chain::from(kolmo::models::parse(model).expect("a built-in").expect("sound parameters"));
    let options = Options::default().method(method);
    bencher.bench_local(|| chain.transient_on(&machine, &[time], &options).expect("a solution"));
}
