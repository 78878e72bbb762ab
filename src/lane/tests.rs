//! Tests of the contracts that every lane asserts in every build.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytemuck::Pod;

use super::*;
use crate::kernel::Precision;
use crate::transient::step::vector_kernels::{ACCUMULATE, SCALE, accumulate, scale};
use crate::{Error, Result};

/// Returns pairs of lanes of one kind: on the CPU, and on the first adapter if there is one.
pub(crate) fn pairs() -> Vec<[Lane; 2]> {
    let two = |spec: DeviceSpec| {
        let (lanes, _) = open(&[spec.clone(), spec], &OpenOptions::default())?;
        Ok::<_, Error>(<[Lane; 2]>::try_from(lanes).expect("two lanes"))
    };
    let mut pairs = vec![two(DeviceSpec::Cpu).expect("the CPU opens")];
    if cfg!(feature = "wgpu") {
        match two(DeviceSpec::Wgpu(0)) {
            Ok(pair) => pairs.push(pair),
            Err(e) => crate::devices::skip("wgpu:0", format!("wgpu:0 cannot be opened: {e}")),
        }
    }
    pairs
}

/// Asserts that `work` panics with a message that contains all of `said`.
#[track_caller]
fn panics<R>(said: &[&str], work: impl FnOnce() -> R) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { panic!("no panic that says {said:?}") };
    let message = panic.downcast_ref::<String>().cloned();
    let message =
        message.unwrap_or_else(|| panic.downcast_ref::<&str>().map_or(String::new(), |&m| m.into()));
    assert!(said.iter().all(|part| message.contains(part)), "{message:?} does not say {said:?}");
}

fn real<T: Pod>(lane: &Lane, value: T) -> Buffer<T> {
    lane.alloc_with("a test", &[value; 4]).expect("it fits")
}

#[test]
fn a_written_array_is_bound_once() {
    for [lane, _] in pairs() {
        let bind = |x: &Buffer<f32>, y: &Buffer<f32>, acc: &Buffer<f32>| {
            let (x, y, acc) = (x.arg(), y.arg(), acc.arg());
            let args = accumulate::Args { scalars: x, x, y, acc };
            lane.bind(&ACCUMULATE, Precision::F32, 4, accumulate::Params::default(), args).map(drop)
        };
        let (a, b, c) = (real(&lane, 1.0f32), real(&lane, 2.0f32), real(&lane, 3.0f32));

        for (y, second) in [(&a, "argument 0, scalars"), (&b, "argument 2, y")] {
            panics(&["argument 3", "'accumulate'", "acc, is written", second], || bind(&a, &b, y));
        }
        panics(&["two different sides"], || lane.copy(&a, &a, 0, 1));
        // An array that is only read may be bound twice.
        bind(&a, &b, &c).expect("a launch");
    }
}

#[test]
fn memory_of_a_lane_is_used_on_that_lane_alone() {
    for [lane, other] in pairs() {
        let (mine, theirs) = (real(&lane, 1u32), real(&other, 2u32));
        let bind = |lane: &Lane, factors: &Buffer<u32>, y: &Buffer<u32>| {
            let args = scale::Args { factors: factors.arg().untyped(), y: y.arg().untyped() };
            lane.bind(&SCALE, Precision::F32, 1, scale::Params::default(), args)
        };
        let (numbers, own) = (real(&lane, 0u32), format!("on lane {}", lane.number()));
        let foreign = format!("of lane {}", other.number());

        panics(&["argument 0", "'scale'", "factors", &foreign, &own], || bind(&lane, &theirs, &mine));
        panics(&["argument 1", "'scale'", "y, is memory", &foreign, &own], || bind(&lane, &mine, &theirs));
        panics(&["an array", &foreign, &own], || lane.upload(&[1], &theirs, 0));
        panics(&["an array", &foreign, &own], || lane.download(&theirs, 0, &mut [0]));
        panics(&["an array", &foreign, &own], || lane.clear(&theirs));
        panics(&["an array", &foreign, &own], || lane.copy(&theirs, &mine, 0, 1));
        panics(&["an array", &foreign, &own], || lane.copy(&mine, &theirs, 0, 1));
        panics(&["an array", &foreign, &own], || lane.send_buffer(&theirs));
        panics(&["an array", &foreign, &own], || lane.receive_buffer(&theirs, 0, 4));
        let launch = bind(&other, &theirs, &real(&other, 0)).expect("a launch");
        panics(&["a launch", &foreign, &own], || lane.launch(&[&launch], 0));
        let batch = LaneBatch { launches: vec![(0, &launch)], ..LaneBatch::default() };
        panics(&["a launch", &foreign, &own], || lane.submit(&batch, 0));
        let sent = other.send_buffer(&theirs).expect("a buffer of a transfer");
        let received = other.receive_buffer(&theirs, 0, 4).expect("a buffer of a transfer");
        let of_transfer: [&str; 3] = ["a buffer of a transfer", &foreign, &own];
        panics(&of_transfer, || lane.read_sent(&sent, &mut [0u32; 4]));
        panics(&of_transfer, || lane.write_received(&received, &[0u32; 4]));
        panics(&of_transfer, || lane.submit(&LaneBatch { sends: vec![&sent], ..LaneBatch::default() }, 0));
        // The lane accepts its own arrays.
        bind(&lane, &mine, &numbers).expect("a launch");
    }
}

#[test]
fn a_kernel_is_given_its_own_parameters_and_arguments() {
    for [lane, _] in pairs() {
        let (x, y) = (real(&lane, 1.0f32), real(&lane, 2.0f32));
        let bind = |kernel| {
            let args = scale::Args { factors: x.arg(), y: y.arg() };
            lane.bind(kernel, Precision::F32, 4, scale::Params { rows: 4, ..Default::default() }, args)
        };

        panics(&["the kernel whose arguments are bound", "scale", "accumulate"], || bind(&ACCUMULATE));
        let mut launch = bind(&SCALE).expect("a launch");
        panics(&["no parameter items", "rows"], || launch.set("items", 1));
        // Scales only the first two of the four numbers.
        launch.set("rows", 2);
        lane.upload(&[3.0], &x, 0).expect("a factor");
        lane.launch(&[&launch], 0).expect("it runs");
        let mut scaled = [0.0f32; 4];
        lane.download(&y, 0, &mut scaled).expect("a copy");
        assert_eq!(scaled, [6.0, 6.0, 2.0, 2.0]);
    }
}

#[test]
fn an_argument_holds_the_numbers_that_the_kernel_takes() {
    for [lane, _] in pairs() {
        let (single, double, words) = (real(&lane, 1.0f32), real(&lane, 1.0f64), real(&lane, 1u32));
        let bind = |precision, factors: Arg<'_>, y: Arg<'_>| {
            let params = scale::Params::default();
            lane.bind(&SCALE, precision, 4, params, scale::Args { factors, y }).map(drop)
        };

        let (single, double, words) = (single.arg(), double.arg(), words.arg());
        panics(&["argument 0", "factors", "F32", "F64"], || bind(Precision::F64, single, double));
        panics(&["argument 1", "y, holds", "F64", "F32"], || bind(Precision::F32, single, double));
        panics(&["argument 1", "y, holds", "U32", "F32"], || bind(Precision::F32, single, words));
    }
}

struct Made<'a, const PARAMS: usize>(Vec<Arg<'a>>);

impl<'a, const PARAMS: usize> crate::kernel::Arguments<Arg<'a>> for Made<'a, PARAMS>
where
    [u32; PARAMS]: Pod,
{
    type Params = [u32; PARAMS];
    const KERNEL: &'static str = "scale";

    fn list(&self) -> Vec<Arg<'a>> {
        self.0.clone()
    }
}

#[test]
fn a_kernel_is_given_as_many_parameters_and_arguments_as_it_has() {
    for [lane, _] in pairs() {
        let (x, y, z) = (real(&lane, 1.0f32), real(&lane, 2.0f32), real(&lane, 3.0f32));
        let all = [x.arg(), y.arg(), z.arg()];
        let given = |count: usize| all[..count].to_vec();
        let bind = |args| lane.bind(&SCALE, Precision::F32, 4, [0; 4], Made::<4>(args)).map(drop);

        panics(&["arguments of kernel 'scale'"], || bind(given(0)));
        panics(&["arguments of kernel 'scale'"], || bind(given(3)));
        panics(&["parameters of kernel 'scale'", "rows"], || {
            lane.bind(&SCALE, Precision::F32, 4, [], Made::<0>(given(2))).map(drop)
        });
        panics(&["parameters of kernel 'scale'", "rows"], || {
            lane.bind(&SCALE, Precision::F32, 4, [0; 5], Made::<5>(given(2))).map(drop)
        });
        bind(given(2)).expect("step, first, rows, own, and two arrays");
    }
}

#[test]
#[expect(unsafe_code, reason = "a copy from a foreign address")]
fn every_write_changes_the_version_of_an_array() {
    let [lane, _] = pairs().swap_remove(0);
    let (from, to) = (real(&lane, 1u32), real(&lane, 2u32));
    let stamp = || {
        let memory: &Arc<cpu::CpuArray> = to.memory.own();
        crate::kernel::cpu::BindingMemory::contents(&**memory)
    };
    let writes: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("upload", &|| lane.upload(&[3], &to, 0)),
        ("clear", &|| lane.clear(&to)),
        ("copy", &|| lane.copy(&from, &to, 0, 1)),
        ("copy_from", &|| {
            let src = Foreign::run(lane.address(&from).expect("the host's"), 16);
            // SAFETY: all elements of an array that is alive.
            unsafe { lane.copy_from(src, &to, 0, 4) }
        }),
    ];
    for (name, write) in writes {
        let before = stamp();
        write().expect("it is written");
        assert_ne!(stamp(), before, "{name}");
    }
}
