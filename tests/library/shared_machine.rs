//! One machine that tasks of rayon share.
//!
//! A pool thread that waits for the library must not start the next task. That task would wait for
//! a lock of the same thread, or nest until the stack overflows.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use kolmo::lane::Lane;
use kolmo::pagerank::{Graph, page_rank};
use kolmo::transient::{Chain, Options, solve};
use kolmo::{Machine, tridiagonal, walk};
use rayon::prelude::*;

use crate::support::{Opened, cpu, model, problem};

/// Time limit of each test: fifty times that of the slowest.
const LONGEST: Duration = Duration::from_secs(240);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a task, and asserts that no other task is active on this thread.
fn alone(task: impl FnOnce()) {
    assert!(!INSIDE.replace(true), "a task began inside of another, on the same stack");
    task();
    INSIDE.set(false);
}

/// Runs `task` in pools of 2 and of 8 threads: `tasks` calls at once, and some one by one.
fn share(machine: &Opened, tasks: usize, task: impl Fn(&Machine) + Send + Sync + 'static) {
    let machine = machine.machine.clone();
    let (tell, told) = channel();
    let done = AtomicUsize::new(0);
    let work = move || {
        let task = || {
            alone(|| task(&machine));
            done.fetch_add(1, Ordering::Relaxed);
        };
        for threads in [2, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| (0..tasks).into_par_iter().for_each(|_| task()));
            pool.scope(|scope| {
                for _ in 0..tasks.min(8) {
                    scope.spawn(|_| task());
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
        let _ = tell.send(done.load(Ordering::Relaxed));
    };
    std::thread::spawn(work);
    let done = told.recv_timeout(LONGEST).expect("tasks that share a machine end");
    assert_eq!(done, 2 * (tasks + tasks.min(8)));
}

/// Returns a birth-death chain with all rates 1.
fn chain(n: usize) -> Chain {
    Chain::new("a line", model(&format!("birth-death:{n},1,1")))
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * b.abs()
}

fn tridiagonal_systems(machine: &Opened) {
    let n = 100_000;
    let diagonal = |value: f64| vec![value; n];
    let system = tridiagonal::System::new(diagonal(-1.0), diagonal(4.0), diagonal(-1.0), diagonal(2.0));
    let system = system.expect("a system");
    share(machine, 24, move |machine| {
        let solved = tridiagonal::solve(machine, &system, &tridiagonal::Options::default());
        // In the middle x = 2 / (4 − 1 − 1).
        assert!(is_near(solved.expect("it is solved").x[0][n / 2], 1.0));
    });
}

fn large_chains(machine: &Opened) {
    // On a device the size hardly matters to the threads that wait for it.
    chains(machine, 24, if machine.is_cpu() { 30_000 } else { 10_000 }, 10.0);
}

fn many_small_chains(machine: &Opened) {
    chains(machine, 300, 400, 1.0);
}

fn chains(machine: &Opened, tasks: usize, n: usize, time: f64) {
    let chain = chain(n);
    share(machine, tasks, move |machine| {
        let options = Options::default().epsilon(1e-3);
        let solved = chain.transient_on(machine, &[time], &options).expect("it is solved");
        assert!(is_near(solved.probabilities[0].iter().sum(), 1.0));
    });
}

fn walks(machine: &Opened) {
    let n = 60;
    let matrix = kolmo::sparse::CsrMatrix::from_rows(n, n, |i, row| {
        let columns = [i.checked_sub(1), Some(i), Some(i + 1).filter(|&j| j < n)];
        row.extend(columns.into_iter().flatten().map(|j| (j as u32, if i == j { 4.0 } else { -1.0 })));
    });
    share(machine, 16, move |machine| {
        let rhs = [vec![2.0; n]];
        let problem = walk::Problem::new(&matrix, &rhs, &[30]);
        let options = walk::Options::default().epsilon(Some(1e-3));
        let solved = walk::solve(machine, &problem, &options, &mut ()).expect("it is solved");
        assert!((solved.components[0].estimate - 1.0).abs() <= 1e-2);
    });
}

fn copies(machine: &Opened) {
    share(machine, 24, |machine| {
        let lane: &Lane = &machine.lanes[0];
        let numbers = vec![1.5f32; 1 << 18];
        let buffer = lane.alloc_with("numbers", &numbers).expect("it fits");
        let mut back = vec![0.0; numbers.len()];
        lane.download(&buffer, 0, &mut back).expect("it is read");
        assert_eq!(back, numbers);
    });
}

/// PageRank takes no machine: only its parallel loops share the pool.
fn page_ranks(machine: &Opened) {
    let n = 20_000u32;
    let (from, to): (Vec<u32>, Vec<u32>) = (0..n).map(|i| (i, (7 * i + 3) % n)).unzip();
    let graph = Graph::new(n as usize, &from, &to).expect("a graph");
    share(machine, 24, move |_| {
        let ranks = page_rank(&graph, &[5], &Default::default(), &mut ()).expect("it ends");
        assert!(is_near(ranks.nodes[0].estimate, 1.0 / f64::from(n)));
    });
}

instances! {
    [tridiagonal_systems, large_chains, walks, copies]
    cpu_f64("cpu", F64);
    #[cfg(feature = "wgpu")] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
}
instances! {
    [many_small_chains, page_ranks]
    cpu("cpu", F64);
}

#[test]
fn an_observer_may_use_the_lane_that_calls_it() {
    let machine = cpu();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let chain = chain(2000);
        let lane = &machine.lanes[0];
        let buffer = lane.alloc_with("numbers", &[1.0]).expect("it fits");
        let mut calls = 0;
        let mut watch = |_: u64, _: u64| {
            calls += 1;
            lane.download(&buffer, 0, &mut [0.0])
        };
        let problem = problem(&*chain.transitions, &chain.initial, &[500.0]);
        solve(&machine, &problem, &Options::default(), &mut watch).expect("it is solved");
        let _ = tell.send(calls);
    });
    assert!(told.recv_timeout(LONGEST).expect("it ends") > 0, "the watch was called");
}

#[test]
fn an_offset_beyond_the_range_is_out_of_bounds() {
    let machine = cpu();
    let lane = &machine.lanes[0];
    let buffer = lane.alloc::<u8>("bytes", 64).expect("it fits");
    for (offset, len) in [(usize::MAX - 31, 64), (usize::MAX, 1), (1, 64), (65, 0)] {
        let up = || lane.upload(&vec![1u8; len], &buffer, offset);
        let down = || lane.download(&buffer, offset, &mut vec![1u8; len]);
        for copied in [catch_unwind(AssertUnwindSafe(up)), catch_unwind(AssertUnwindSafe(down))] {
            let panic = copied.expect_err("there is no such place");
            let text = panic.downcast_ref::<String>().expect("a message");
            assert!(text.contains(&format!("{len} elements at {offset} of 64")), "{text}");
        }
    }
    assert!(lane.alloc::<u64>("more than there is", usize::MAX / 4).is_err());
}
