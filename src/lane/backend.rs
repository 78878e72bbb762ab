//! What a lane asks of a kind of device, and the list of those kinds.

use std::fmt::Debug;
use std::sync::Arc;

use bytemuck::Pod;

use super::{Arg, Batch, Device, Foreign, HostArray, Program, Window, foreign};
use crate::Result;
use crate::kernel::{Kernel, Precision};

/// Receives the number of steps done; its error stops a run.
pub(super) type Watch<'a> = &'a mut (dyn FnMut(u64) -> Result<()> + Send);

/// An in-order queue of work on a device of one kind.
///
/// `Lane` has checked what it hands on: lengths, and that memory, launches and buffers of transfers were made by this
/// very queue, or are memory that it reaches.
pub(super) trait Backend: Into<AnyLane> {
    /// An array in the device's memory; a clone is the same array.
    type Memory: In<AnyMemory> + Clone + PartialEq;
    /// A kernel with its arguments.
    type Launch: In<AnyLaunch>;
    /// Staging of an array on its way to the host.
    type SendBuffer: In<AnySendBuffer> + SendStaging<Self>;
    /// Staging of values of the host on their way to a place in an array.
    type ReceiveBuffer: In<AnyReceiveBuffer> + ReceiveStaging<Self>;

    fn device(&self) -> &Device;

    /// Bytes that can still be allocated while `used` are in use, if that is known.
    fn free_bytes(&self, used: u64) -> Option<u64>;

    /// A zeroed array.
    fn alloc(&self, bytes: u64) -> Result<Self::Memory>;

    /// A zeroed array that kernels store and the host reads.
    fn alloc_for_send(&self, bytes: u64) -> Result<Self::Memory> {
        self.alloc(bytes)
    }

    /// Copies host bytes into `dst`; they may change when this returns.
    fn upload(&self, src: &[u8], dst: &Self::Memory, at: u64) -> Result<()>;

    /// Copies bytes of `src` to the host, and waits.
    fn download(&self, src: &Self::Memory, at: u64, dst: &mut [u8]) -> Result<()>;

    /// Copies as [`Self::upload`], from page-locked memory that stays as it is until [`Self::finish`].
    fn send(&self, src: &[u8], dst: &Self::Memory, at: u64) -> Result<()> {
        self.upload(src, dst, at)
    }

    /// Copies as [`Self::download`], to page-locked memory that nobody looks at until [`Self::finish`].
    fn fetch(&self, src: &Self::Memory, at: u64, dst: &mut [u8]) -> Result<()> {
        self.download(src, at, dst)
    }

    /// Sets all `bytes` of an array to zero.
    fn clear(&self, dst: &Self::Memory, bytes: u64) -> Result<()>;

    /// Copies the first `bytes` of `src` into another array, `times` over, and waits.
    fn copy(&self, src: &Self::Memory, dst: &Self::Memory, at: u64, bytes: u64, times: u32) -> Result<()>;

    /// Whether kernels of this lane may be given that memory of another.
    fn reaches_memory(&self, _: &Self::Memory) -> bool {
        false
    }

    /// Prepares a launch on a problem of `items` rows or elements.
    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<Self::Launch>;

    /// Runs steps `first .. first + count` of a program in pieces of about [`super::PIECE`], and waits for them.
    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: Watch<'_>) -> Result<()>;

    /// Puts a batch whose first step is `first` into the queue.
    fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()>;

    /// Waits for everything in the queue.
    fn finish(&self) -> Result<()>;

    /// A zeroed array on the host that copies to and from the device are fastest with.
    fn host_array<T: Pod>(&self, len: usize) -> Result<HostArray<T>> {
        Ok(HostArray::plain(len))
    }

    /// The host's array as one of this lane's, if it works in the same memory.
    fn adopt<T: Pod>(&self, _: &HostArray<T>) -> Option<Self::Memory> {
        None
    }

    /// Begins to note when the device begins and ends batches, if it can.
    fn trace(&self) {}

    /// Seconds at which batches began and ended since [`Self::trace`].
    fn traced(&self) -> Result<Vec<(f64, f64)>> {
        Ok(Vec::new())
    }

    /// The queue as others of this process name it.
    fn stream(&self) -> Option<u64> {
        None
    }

    /// The address of an array, where the device has addresses.
    fn address(&self, _: &Self::Memory) -> Option<u64> {
        None
    }

    /// Lets the queue wait for what is in a stream of others.
    ///
    /// # Safety
    /// As of `Lane::wait_for`.
    #[expect(unsafe_code, reason = "a stream that others give")]
    unsafe fn wait_for(&self, _: u64) -> Result<()> {
        Err(foreign::refused(&self.device().spec))
    }

    /// Copies rows of others into `dst` from byte `at` on, `pitch` bytes from row to row, and waits.
    ///
    /// # Safety
    /// As of `Lane::copy_from`; `dst` has the rows' places.
    #[expect(unsafe_code, reason = "an address that others give")]
    unsafe fn copy_from(&self, _: Foreign, _dst: &Self::Memory, _at: u64, _pitch: usize) -> Result<()> {
        Err(foreign::refused(&self.device().spec))
    }

    /// Takes the device away, as a driver that gives up does, if that can be done.
    #[cfg(all(test, feature = "wgpu"))]
    fn lose(&self) {}
}

/// Staging of an array on its way to the host, made once.
pub(super) trait SendStaging<Lane: Backend>: Sized {
    /// Staging for all `bytes` of `source`; in the window itself, if there is one and the device reaches it.
    fn new(lane: &Lane, source: &Lane::Memory, bytes: u64, window: Option<&Arc<Window>>) -> Result<Self>;

    /// Waits for the batch that filled it, and shows its first `bytes` to `take`.
    fn read(&self, lane: &Lane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()>;

    /// Waits for the batch that filled it, if it lies in a window itself; returns whether it does.
    fn wait_in_window(&self, _: &Lane) -> Result<bool> {
        Ok(false)
    }
}

/// Staging of values of the host on their way to a place in an array, made once.
pub(super) trait ReceiveStaging<Lane: Backend>: Sized {
    /// Staging for `bytes` of `target` from `at` on; in the window itself, if there is one and the device reaches it.
    fn new(
        lane: &Lane,
        target: &Lane::Memory,
        at: u64,
        bytes: u64,
        window: Option<&Arc<Window>>,
    ) -> Result<Self>;

    /// Fills it, for a later batch to empty.
    fn write(&self, lane: &Lane, values: &[u8]) -> Result<()>;

    /// Has a later batch empty the window's slot of that exchange, if it lies in a window itself; returns whether it does.
    fn take_from_window(&self, _: &Lane, _exchange: u64) -> Result<bool> {
        Ok(false)
    }
}

/// A backend's type among those that all backends have for the same thing: a variant of the enum `Any`.
pub(super) trait In<Any>: Sized + Debug {
    fn any(self) -> Any;
    fn of(any: &Any) -> Option<&Self>;
}

/// The backend's own type behind `any`.
pub(super) fn own<Any, Own: In<Any>>(any: &Any) -> &Own {
    Own::of(any).expect("a lane is given what lanes of its backend made (asserted by `Lane`)")
}

/// Gives `$then` the backends of this build: for each the name of its variants, and its type. A further backend is a
/// line here.
macro_rules! backends {
    ($then:ident!($($given:tt)*)) => {
        $crate::lane::backend::$then! {
            ($($given)*)
            #[cfg(target_family = "wasm")]
            Browser($crate::lane::browser::BrowserLane),
            Cpu($crate::lane::cpu::CpuLane),
            #[cfg(feature = "cuda")]
            Cuda($crate::lane::cuda::CudaLane),
            #[cfg(feature = "wgpu")]
            Wgpu($crate::lane::wgpu::WgpuLane),
        }
    };
}

/// Works on the backend of a lane: `on!(lane, backend => work)`.
macro_rules! on {
    ($lane:expr, $backend:ident => $work:expr) => {
        $crate::lane::backend::backends!(arms!($lane, $backend => $work))
    };
}

/// The match that `on!` is.
macro_rules! arms {
    (($lane:expr, $backend:ident => $work:expr) $($(#[$feature:meta])? $name:ident($type:ty),)+) => {
        match &*$lane.backend {
            $($(#[$feature])? $crate::lane::backend::AnyLane::$name($backend) => $work,)+
        }
    };
}

/// The enum of all backends, and of what each has for one thing.
macro_rules! any {
    (() $($(#[$feature:meta])? $name:ident($type:ty),)+) => {
        /// A lane of any backend.
        #[derive(Debug)]
        pub(super) enum AnyLane {
            $($(#[$feature])? $name($type),)+
        }

        $($(#[$feature])?
        impl From<$type> for AnyLane {
            fn from(lane: $type) -> Self {
                Self::$name(lane)
            }
        })+
    };
    (($any:ident: $kind:ident) $($(#[$feature:meta])? $name:ident($type:ty),)+) => {
        #[doc = concat!("A [`Backend::", stringify!($kind), "`] of any backend.")]
        #[derive(Debug)]
        pub(super) enum $any {
            $($(#[$feature])? $name(<$type as Backend>::$kind),)+
        }

        $($(#[$feature])?
        impl In<$any> for <$type as Backend>::$kind {
            fn any(self) -> $any {
                $any::$name(self)
            }

            fn of(any: &$any) -> Option<&Self> {
                #[allow(unreachable_patterns, reason = "a build may have one backend alone")]
                match any {
                    $any::$name(own) => Some(own),
                    _ => None,
                }
            }
        })+
    };
}

pub(super) use {any, arms, backends, on};

backends!(any!());
backends!(any!(AnyMemory: Memory));
backends!(any!(AnyLaunch: Launch));
backends!(any!(AnySendBuffer: SendBuffer));
backends!(any!(AnyReceiveBuffer: ReceiveBuffer));
