//! What goes wrong on several lanes is said, and nothing is left behind.

use crate::support::{Keep, model};
use kolmo::kernel::Precision::F64;
use kolmo::lane::{DeviceSpec, Lane, OpenOptions};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::estimate::{plan, seconds_on_cores};
use kolmo::transient::{Initial, Options, Order, Partitioning, Problem, solve};
use kolmo::{Error, Machine};

fn cpu(memory_limit: Option<u64>) -> Lane {
    let options = OpenOptions { memory_limit, precision: Some(F64), ..OpenOptions::default() };
    let lane = Machine::open(&[DeviceSpec::Cpu], &options).expect("the CPU opens").lanes.remove(0);
    // Rows are shared out by bandwidth: by the same in every run.
    lane.remember(1e10, Vec::new());
    lane
}

#[test]
fn what_a_second_device_lacks_is_said_and_the_first_is_left_empty() {
    let chain = model("wlan:5,4");
    let initial = Initial::State(0);
    let problem =
        Problem { transitions: &*chain, initial: &initial, times: &[1.0], rewards: &[], vectors: true };
    // One format: which one a lane takes may depend on what it has room for.
    let split = Partitioning { halo_depth: Some(1), ..Partitioning::default() };
    let options = Options { order: Order::Natural, format: MatrixFormat::Hyb, split, ..Options::default() };
    let plenty = 1 << 30;
    let two = |limit| Machine::new([cpu(Some(plenty)), cpu(Some(limit))], F64);
    let needed = plan(&two(plenty), &problem, &options).unwrap();
    assert!(needed.fits());
    let second = needed.lanes[1].total();

    // Half of it is missed before the work starts; what lies in between, on the way: after the first has its share.
    for limit in [second / 2, second] {
        let machine = two(limit);
        let error = solve(&machine, &problem, &options, &mut Keep::default()).unwrap_err();

        assert!(matches!(error, Error::OutOfMemory { .. }), "{limit}: {error}");
        assert!(error.to_string().contains(" KiB"), "{error}");
        assert_eq!(machine.lanes[0].free_bytes(), Some(plenty), "{limit}: the first lane");
        assert_eq!(machine.lanes[1].free_bytes(), Some(limit), "{limit}: the second lane");
    }
    solve(&two(second + second / 4), &problem, &options, &mut Keep::default())
        .expect("a quarter more is enough");
}

#[test]
fn small_chains_are_predicted_to_be_done_on_the_cores_in_a_moment() {
    let measured = |spec: &str, time: f64, speed: Option<f64>| {
        let (chain, times, initial) = (model(spec), [time], Initial::State(0));
        let problem =
            Problem { transitions: &*chain, initial: &initial, times: &times, rewards: &[], vectors: true };
        seconds_on_cores(&problem, &Options::default(), speed).unwrap()
    };
    let seconds = |spec: &str, time: f64| measured(spec, time, Some(5e9));

    let short = seconds("tandem:15", 10.0).unwrap();
    assert!(short > 0.0 && short < 0.1, "{short} s");
    assert!(measured("tandem:15", 10.0, Some(1e6)).unwrap() > 10.0 * short, "on slow cores");
    // As many times the products, and no bound but the window on them.
    let long = seconds("tandem:15", 1e6).unwrap();
    assert!(long / short > 1e4, "{long} s, {short} s");
    assert_eq!(seconds("tandem:15", f64::INFINITY), None, "products until the limit are not known");
    assert_eq!(seconds("wlan:60,6", 10.0), None, "too many states to look at first");
}
