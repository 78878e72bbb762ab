//! Contracts that every lane asserts, in every build.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::bench::TRIAD;
use crate::transient::kernels::SCALE;

/// Pairs of lanes of one kind: the CPU, and the first adapter where there is one.
fn pairs() -> Vec<[Lane; 2]> {
    let two = |spec: DeviceSpec| {
        let (lanes, _) = open(&[spec.clone(), spec], &OpenOptions::default())?;
        Ok::<_, Error>(<[Lane; 2]>::try_from(lanes).expect("two lanes"))
    };
    let mut pairs = vec![two(DeviceSpec::Cpu).expect("the CPU opens")];
    if cfg!(feature = "wgpu") {
        match two(DeviceSpec::Wgpu(0)) {
            Ok(pair) => pairs.push(pair),
            Err(e) => crate::devices::skip("wgpu:0", format!("wgpu:0 does not open: {e}")),
        }
    }
    pairs
}

/// Asserts that `work` panics, and says all of `said`.
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
fn what_a_kernel_writes_is_bound_once() {
    for [lane, _] in pairs() {
        let precision = if lane.device().f64 { Precision::F64 } else { Precision::F32 };
        let bind = |[b, c, a]: [Arg<'_>; 3]| {
            let args = [b, c, a].map(Arg::untyped);
            lane.bind(&TRIAD, precision, 4, &[0, 4], &args).map(drop)
        };
        let (x, y) = (real(&lane, 1u32), real(&lane, 2u32));

        panics(&["argument 2", "'triad'", "a, is written", "argument 0, b"], || {
            bind([x.arg(), y.arg(), x.arg()])
        });
        panics(&["argument 2", "'triad'", "a, is written", "argument 1, c"], || {
            bind([x.arg(), y.arg(), y.arg()])
        });
        panics(&["two different sides"], || lane.copy(&x, &x, 0, 1));
        // What is only read may be bound twice.
        bind([x.arg(), x.arg(), y.arg()]).expect("a launch");
    }
}

#[test]
fn memory_of_a_lane_is_used_on_that_lane_alone() {
    for [lane, other] in pairs() {
        let precision = if lane.device().f64 { Precision::F64 } else { Precision::F32 };
        let (mine, theirs) = (real(&lane, 1u32), real(&other, 2u32));
        let bind = |lane: &Lane, factors: &Buffer<u32>, y: &Buffer<u32>| {
            let args = [factors.arg().untyped(), y.arg().untyped()];
            lane.bind(&SCALE, precision, 1, &[0, 0, 1, 0], &args)
        };
        let (numbers, own) = (real(&lane, 0u32), format!("on lane {}", lane.budget.lane));
        let foreign = format!("of lane {}", other.budget.lane);

        panics(&["argument 0", "'scale'", "factors", &foreign, &own], || bind(&lane, &theirs, &mine));
        panics(&["argument 1", "'scale'", "y, is memory", &foreign, &own], || bind(&lane, &mine, &theirs));
        panics(&["an array", &foreign, &own], || lane.upload(&[1], &theirs, 0));
        panics(&["an array", &foreign, &own], || lane.download(&theirs, 0, &mut [0]));
        panics(&["an array", &foreign, &own], || lane.clear(&theirs));
        panics(&["an array", &foreign, &own], || lane.copy(&theirs, &mine, 0, 1));
        panics(&["an array", &foreign, &own], || lane.copy(&mine, &theirs, 0, 1));
        panics(&["an array", &foreign, &own], || lane.outbox(&theirs));
        panics(&["an array", &foreign, &own], || lane.inbox(&theirs, 0, 4));
        let launch = bind(&other, &theirs, &real(&other, 0)).expect("a launch");
        panics(&["a launch", &foreign, &own], || lane.launch(&[&launch], 0));
        panics(&["a launch", &foreign, &own], || {
            lane.submit(&Batch { launches: vec![(0, &launch)], ..Batch::default() }, 0)
        });
        let (outbox, inbox) =
            (other.outbox(&theirs).expect("a box"), other.inbox(&theirs, 0, 4).expect("a box"));
        panics(&["a box", &foreign, &own], || lane.collect(&outbox, &mut [0u32; 4]));
        panics(&["a box", &foreign, &own], || lane.fill(&inbox, &[0u32; 4]));
        panics(&["a box", &foreign, &own], || {
            lane.submit(&Batch { departures: vec![&outbox], ..Batch::default() }, 0)
        });
        // Its own it takes.
        bind(&lane, &mine, &numbers).expect("a launch");
    }
}

#[test]
fn parameters_and_arguments_are_as_many_as_the_kernel_has() {
    for [lane, _] in pairs() {
        let precision = if lane.device().f64 { Precision::F64 } else { Precision::F32 };
        let (x, y) = (real(&lane, 1u32), real(&lane, 2u32));
        let args = [x.arg().untyped(), y.arg().untyped()];

        panics(&["parameters of kernel 'scale'", "3", "4"], || {
            lane.bind(&SCALE, precision, 4, &[0, 0, 4], &args)
        });
        panics(&["arguments of kernel 'scale'", "1", "2"], || {
            lane.bind(&SCALE, precision, 4, &[0, 0, 4, 0], &args[..1])
        });
    }
}

#[test]
fn an_argument_holds_the_numbers_that_the_kernel_takes() {
    for [lane, _] in pairs() {
        let (single, double, words) = (real(&lane, 1.0f32), real(&lane, 1.0f64), real(&lane, 1u32));
        let bind = |precision, factors: Arg<'_>, y: Arg<'_>| {
            lane.bind(&SCALE, precision, 4, &[0, 0, 4, 0], &[factors, y]).map(drop)
        };

        panics(&["argument 0", "factors", "F32", "F64"], || bind(Precision::F64, single.arg(), double.arg()));
        panics(&["argument 1", "y, holds", "F64", "F32"], || {
            bind(Precision::F32, single.arg(), double.arg())
        });
        panics(&["argument 1", "y, holds", "U32", "F32"], || bind(Precision::F32, single.arg(), words.arg()));
    }
}
