//! Lanes: each is an in-order queue of work on one device.
//!
//! A lane is a wgpu device with its queue, a CUDA stream, or a pool of CPU threads. All lanes have
//! one type, so a run can mix devices, and no solver is generic over a backend. Memory belongs to
//! the lane that allocated it.
//!
//! ```
//! use kolmo::Machine;
//! use kolmo::lane::OpenOptions;
//!
//! // `list()` says what else there is.
//! let machine = Machine::open(&["cpu".parse()?], &OpenOptions::default())?;
//! let lane = &machine.lanes[0];
//! let numbers = lane.alloc_with("some numbers", &[1.0, 2.0, 3.0])?;
//! let mut back = [0.0; 3];
//! lane.download(&numbers, 0, &mut back)?;
//! assert_eq!(back, [1.0, 2.0, 3.0]);
//! # Ok::<(), kolmo::Error>(())
//! ```

mod backend;
mod backends;
pub mod bandwidth;
#[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
mod batching;
#[cfg(target_family = "wasm")]
mod browser;
mod buffer;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod device_spec;
mod fault_injection;
mod host_array;
mod interop;
mod launch;
mod object;
mod queue;
mod self_test;
mod transfer;
#[cfg(feature = "wgpu")]
mod wgpu;
mod work;

pub use crate::util::memory::{available_memory, control_group_limit, expect_memory};
pub use backend::Foreign;
#[cfg(feature = "cuda")]
pub(crate) use batching::pieces;
pub use buffer::{Arg, Buffer};
#[cfg(feature = "cuda")]
pub(crate) use cuda::{CudaLane, Event, Side};
#[cfg(feature = "cuda")]
pub use cuda::{kernel_cache, nvrtc_version};
pub use device::{Device, Limits, Listing};
pub(crate) use device_spec::open;
pub use device_spec::{DeviceSpec, OpenOptions, list, of_place, prepare_drivers};
pub use host_array::HostArray;
pub use queue::Lane;
pub(crate) use self_test::SELF_TEST;
pub(crate) use work::{LaneBatch, ReceiveBuffer, SendBuffer};
pub use work::{Launch, PIECE, Program};

#[cfg(test)]
pub(crate) mod tests;
