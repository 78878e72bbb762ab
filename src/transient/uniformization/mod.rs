//! Uniformization: Poisson-weighted sums of the iterates x_k, for all finite times.
//!
//! [`batches`] groups times so that their accumulators fit the lanes' memory. [`run`] iterates once for a batch,
//! ends early where a proof allows, and may switch to Chebyshev's or Krylov's method.

pub(crate) mod batches;
pub(super) mod run;
