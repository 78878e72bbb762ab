//! A chain from a matrix of sprs: the M/M/1 queue with four places, its distribution after 10 units of time.
//!
//! `cargo run --example sprs --features sprs`

use kolmo::Machine;
use kolmo::lane::{DeviceSpec, OpenOptions, open};
use kolmo::transient::csr::Csr;
use kolmo::transient::{Initial, Observer, Options, Problem, solve};
use sprs::TriMat;

/// Prints the probabilities.
struct Print;

impl Observer for Print {
    fn progress(&mut self, _done: u64, _all: u64) -> kolmo::Result<()> {
        Ok(())
    }

    fn result(&mut self, _time: usize, probabilities: &[f64]) -> kolmo::Result<()> {
        for (customers, p) in probabilities.iter().enumerate() {
            println!("{customers} customers: {p:.6}");
        }
        Ok(())
    }
}

fn main() -> kolmo::Result<()> {
    let mut rates = TriMat::new((5, 5));
    for customers in 0..4 {
        rates.add_triplet(customers, customers + 1, 0.9); // arrivals an hour
        rates.add_triplet(customers + 1, customers, 1.0); // services an hour
    }
    let chain = Csr::try_from(rates.to_csr::<usize>().view())?;
    let machine = Machine::open(&[DeviceSpec::Auto], &OpenOptions::default())?;
    let problem = Problem {
        transitions: &chain,
        initial: &Initial::State(0),
        times: &[10.0],
        rewards: &[],
        vectors: true,
    };
    let solution = solve(&machine, &problem, &Options::default(), &mut Print)?;
    println!("the errors add up to {:.1e} at most", solution.bound.total());
    Ok(())
}
