//! Errors on several lanes are reported, and all memory is freed.

use crate::support::{limited, model, problem};
use kolmo::kernel::Precision::F64;
use kolmo::lane::Lane;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::estimate::{plan, seconds_on_cores};
use kolmo::transient::{Initial, Options, Partitioning, solve};
use kolmo::{Error, Machine};

fn cpu(memory_limit: u64) -> Lane {
    let lane = limited("cpu", F64, memory_limit).lanes.remove(0);
    // Rows are divided by bandwidth; a fixed value gives every run the same division.
    lane.remember(1e10);
    lane
}

#[test]
fn missing_memory_of_a_second_device_is_reported_and_the_first_is_freed() {
    let chain = model("wlan:5,4");
    let initial = Initial::State(0);
    let problem = problem(&*chain, &initial, &[1.0]);
    // A fixed format, since the automatic choice may depend on the free memory.
    let split = Partitioning::default().halo_depth(Some(1));
    let options = Options::default().format(MatrixFormat::Hyb).split(split);
    let plenty = 1 << 30;
    let two = |limit| Machine::new([cpu(plenty), cpu(limit)], F64);
    let needed = plan(&two(plenty), &problem, &options).unwrap();
    assert!(needed.fits());
    let second = needed.lanes[1].total();

    // Half the memory is rejected before the work starts. The exact prediction fails during the
    // work, after the first device has its share.
    for limit in [second / 2, second] {
        let machine = two(limit);
        let error = solve(&machine, &problem, &options, &mut ()).unwrap_err();

        assert!(matches!(error, Error::OutOfMemory { .. }), "{limit}: {error}");
        assert!(error.to_string().contains(" KiB"), "{error}");
        assert_eq!(machine.lanes[0].free_bytes(), Some(plenty), "{limit}: the first lane");
        assert_eq!(machine.lanes[1].free_bytes(), Some(limit), "{limit}: the second lane");
    }
    solve(&two(second + second / 4), &problem, &options, &mut ()).expect("a quarter more is enough");
}

#[test]
fn small_chains_are_predicted_to_be_fast_on_the_cpu() {
    let measured = |spec: &str, time: f64, speed: Option<f64>| {
        let (chain, times, initial) = (model(spec), [time], Initial::State(0));
        seconds_on_cores(&problem(&*chain, &initial, &times), &Options::default(), speed).unwrap()
    };
    let seconds = |spec: &str, time: f64| measured(spec, time, Some(5e9));

    let short = seconds("tandem:15", 10.0).unwrap();
    assert!(short > 0.0 && short < 0.1, "{short} s");
    assert!(measured("tandem:15", 10.0, Some(1e6)).unwrap() > 10.0 * short, "on slow cores");
    // More products in the ratio of the times, limited only by the window.
    let long = seconds("tandem:15", 1e6).unwrap();
    assert!(long / short > 1e4, "{long} s, {short} s");
    assert_eq!(seconds("tandem:15", f64::INFINITY), None, "products until the limit are not known");
    assert_eq!(seconds("wlan:60,6", 10.0), None, "too many states to look at first");
}
