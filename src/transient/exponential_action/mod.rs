//! The action of e^{Qt} on a block of vectors, by the method of the options.

mod krylov;

use super::columns::{Action, ActionRequest, Direction};
use crate::transient::chain::transitions::Transitions;
use crate::transient::problem::{Method, Options};
use crate::{Invalid, Machine, Progress, Result};

/// Computes x e^{Qt} or e^{Qt} f for the vectors of a block, at each time.
///
/// `block` has the shape \[n, k\] by rows: element (i, c) of state i and vector c is at index i k +
/// c. Entries have any sign. ε is relative to the norm of each vector, and determines where Poisson
/// sums are truncated. Bounds may exceed it by rounding. Long runs end early if the vectors no
/// longer change. If Chebyshev polynomials need far fewer products, they replace the run, from the
/// initial vectors on.
///
/// With [`Method::Krylov`], [`solve`](crate::transient::solve) computes x e^{Qt} for one vector
/// after another. That pays for stiff chains if the vectors are close to distributions that hardly
/// change. Only this method uses the format and the partitioning of the options.
///
/// All ranks of the machine pass the same input, and get all results. The lanes of all ranks share
/// the vectors, with the bits of one process with as many lanes. With Krylov, ranks share the
/// vectors, and all lanes of a rank compute one vector at a time.
///
/// # Errors
/// * [`Invalid`] for an empty chain or block, one of another shape, or numbers that are not finite.
/// * [`Invalid`] for a time that is negative, infinite, no whole number of steps in discrete time,
///   or takes more than 10¹³ steps.
/// * [`Invalid`] for an ε that is not above 0, and for a machine in fixed point.
/// * [`Invalid`] for methods other than auto and Krylov. Krylov requires [`Direction::Forward`] and
///   double precision.
/// * [`crate::Error::OutOfMemory`], errors of devices and of the observer.
pub fn exponential_action(
    machine: &Machine,
    transitions: &dyn Transitions,
    direction: Direction,
    block: &[f64],
    times: &[f64],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let backward = direction == Direction::Backward;
    let request =
        ActionRequest { backward, ..ActionRequest::new(transitions, block, times, options.epsilon) };
    match options.method {
        Method::Auto => request.solve(machine, observer),
        Method::Krylov { .. } if !backward => krylov::solve_each(&request, machine, options, observer),
        method => Invalid::Unsupported.fail(format!(
            "`method` {method:?} is not supported for vectors in the direction {direction:?}: expected auto, \
             or krylov with Forward"
        )),
    }
}
