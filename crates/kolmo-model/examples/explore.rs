//! Prints the numbers of states and transitions of a model: `explore FILE [N=3,T=1]`.

use std::time::Instant;

use kolmo_model::{Model, Options, constants};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("explore FILE [N=3,T=1]")?;
    let given = constants::parse(&arguments.next().unwrap_or_default()).map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(&path)?;
    let start = Instant::now();
    let model = Model::parse(&path, &text).map_err(|e| e.to_string())?;
    for values in constants::combinations(&given)? {
        let instance = model.with_constants(&values).map_err(|e| e.to_string())?;
        let space = instance.explore(&Options::default()).map_err(|e| e.to_string())?;
        let seconds = start.elapsed().as_secs_f64();
        let (others, all) = space.transitions();
        println!(
            "states {} transitions {others} with_self_loops {all} deadlocks {} seconds {seconds:.3} states_per_second {:.0} peak {}",
            space.states(),
            space.deadlocks().len(),
            space.states() as f64 / seconds,
            peak().unwrap_or_default(),
        );
    }
    Ok(())
}

/// Returns the peak memory of the process, on Linux.
fn peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
}
