//! List of the device kinds of this build.

/// Calls the macro `$then` with the backends of this build, each a variant name and its type. To
/// add a backend, add a line here.
macro_rules! backends {
    ($then:ident!($($given:tt)*)) => {
        $crate::lane::backends::$then! {
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

/// Evaluates an expression with the backend of a lane: `on!(lane, backend => work)`.
macro_rules! on {
    ($lane:expr, $backend:ident => $work:expr) => {
        $crate::lane::backends::backends!(arms!($lane, $backend => $work))
    };
}

/// Expands to the match expression of `on!`.
macro_rules! arms {
    (($lane:expr, $backend:ident => $work:expr) $($(#[$feature:meta])? $name:ident($type:ty),)+) => {
        match &*$lane.backend {
            $($(#[$feature])? $crate::lane::backends::AnyLane::$name($backend) => $work,)+
        }
    };
}

/// Defines the enum over all backends.
macro_rules! any_lane {
    (() $($(#[$feature:meta])? $name:ident($type:ty),)+) => {
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
}

pub(super) use {any_lane, arms, backends, on};

backends!(any_lane!());
