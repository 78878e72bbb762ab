//! A chain from a matrix of sprs: distribution of an M/M/1 queue with four places at time 10.
//!
//! `cargo run --example sprs --features sprs`

use kolmo::transient::Chain;
use sprs::TriMat;

fn main() -> kolmo::Result<()> {
    let mut rates = TriMat::new((5, 5));
    for customers in 0..4 {
        rates.add_triplet(customers, customers + 1, 0.9); // arrivals an hour
        rates.add_triplet(customers + 1, customers, 1.0); // services an hour
    }
    let solution = Chain::try_from(rates.to_csr::<usize>().view())?.transient(&[10.0])?;
    for (customers, p) in solution.probabilities[0].iter().enumerate() {
        println!("{customers} customers: {p:.6}");
    }
    println!("the errors add up to {:.1e} at most", solution.bound.total());
    Ok(())
}
