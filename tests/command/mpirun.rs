//! Running the command under `mpirun` in a directory of its own.

use std::fs::{read_dir, read_to_string, remove_file};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::devices::skip;
use crate::support::{Place, Run, binary, on_cpu, section, words};

/// Time after which ranks count as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);

/// Returns a directory if a launcher is present; otherwise the test is skipped with a message.
pub(crate) fn launcher() -> Option<Place> {
    let there = Command::new("mpirun").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        skip("mpi", "mpirun does not start");
    }
    there.then(Place::new)
}

/// `mpirun` in a directory, with an environment that works for root and in containers.
pub(crate) fn mpirun(place: &Place) -> Command {
    let mut command = Command::new("mpirun");
    command
        .current_dir(place.path())
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        // Several ranks per core, and containers that forbid reading the memory of other processes.
        .envs([
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
            // Skips the search for networks that a test does not use: a fifth of a start.
            ("OMPI_MCA_pml", "ob1"),
            ("OMPI_MCA_btl", "self,vader"),
            // A waiting rank leaves its core to other tests.
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts `kolmo` with the words of `line` on `count` ranks.
pub(crate) fn start(place: &Place, count: usize, line: &str) -> Child {
    let mut command = mpirun(place);
    command.args(["-n", &count.to_string()]).arg(binary()).args(words(line));
    command.spawn().expect("mpirun starts")
}

pub(crate) fn finish(child: Child) -> Run {
    let (run, ended) = finish_within(child, PATIENCE);
    assert!(ended, "the ranks hang: {run:?}");
    run
}

/// Waits for a run, and returns its result and true if it ended within `patience`.
pub(crate) fn finish_within(mut child: Child, patience: Duration) -> (Run, bool) {
    let started = Instant::now();
    // A full pipe would block the writer.
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let read = |from: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe");
        String::from_utf8_lossy(&bytes).into_owned().into_bytes()
    };
    std::thread::scope(|scope| {
        let stdout = scope.spawn(move || read(&mut out));
        let stderr = scope.spawn(move || read(&mut err));
        let status = loop {
            if let Some(status) = child.try_wait().expect("mpirun was started") {
                break Some(status);
            }
            if started.elapsed() > patience {
                let _ = child.kill();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let output = Output {
            status: status.unwrap_or_else(|| ExitStatusExt::from_raw(9)),
            stdout: stdout.join().expect("text"),
            stderr: stderr.join().expect("text"),
        };
        (Run::of("on ranks", output), status.is_some())
    })
}

/// Runs `kolmo` with the words of `line` on `count` ranks.
pub(crate) fn ranks(place: &Place, count: usize, line: &str) -> Run {
    Run { line: format!("{line} on {count} ranks"), ..finish(start(place, count, line)) }
}

/// Asserts that the ranks reported one error with these parts and printed nothing.
#[track_caller]
pub(crate) fn refused(run: Run, parts: &[&str]) {
    let run = run.ends(2, parts);
    assert!(run.stderr.matches("error:").count() == 1 && run.stdout.is_empty(), "{run:?}");
}

/// Asserts that ranks give exit code, stdout and output files (`OUT`) of one process. Reports agree
/// in `keys`.
///
/// A start takes half a second, so only lines with special cases run on several numbers of ranks.
pub(crate) fn bits_on(counts: &[usize], place: &Place, line: &str, keys: &str) {
    let line = on_cpu(&format!("{line} --quiet"));
    let alone = alone(place, &line);
    for &count in counts {
        equal(place, &alone, &ranks(place, count, &line.replace("OUT", "shared")), keys);
    }
}

/// Runs [`bits_on`] for the lines of a section of `inputs/ranks.txt`.
pub(crate) fn bits(place: &Place, name: &str) {
    for case in section(include_str!("inputs/ranks.txt"), name) {
        let counts: Vec<usize> = case[0].split(',').map(|count| count.parse().expect("a number")).collect();
        bits_on(&counts, place, case[1], "");
    }
}

/// Runs one process, after removing the outputs of earlier lines.
pub(crate) fn alone(place: &Place, line: &str) -> Run {
    for name in place.names().iter().filter(|name| name.starts_with("alone") || name.starts_with("shared")) {
        remove_file(place.path().join(name)).expect("an output");
    }
    let run = place.kolmo(&line.replace("OUT", "alone"));
    assert!(run.code <= 1, "kolmo {line}\n{}", run.stderr);
    run
}

/// Asserts that a run on ranks has the results of one process.
pub(crate) fn equal(place: &Place, alone: &Run, shared: &Run, keys: &str) {
    let line = &shared.line;
    assert_eq!(shared.code, alone.code, "{line}\n{}", shared.stderr);
    assert!(shared.stdout == alone.stdout, "{line}\n{}\nalone:\n{}", shared.stdout, alone.stdout);
    let names = place.names();
    for own in names.iter().filter(|name| name.starts_with("alone")) {
        let of_ranks = own.replace("alone", "shared");
        if own.ends_with("json") {
            let (own, of_ranks) = (place.json(own), place.json(&of_ranks));
            for key in keys.split_whitespace() {
                assert_eq!(of_ranks[key], own[key], "{line}: {key}");
            }
        } else {
            assert!(place.get(&of_ranks) == place.get(own), "{line}: {own} differs");
        }
    }
    assert!(!names.iter().any(|name| name.contains(".partial")), "{line}: {names:?}");
}

/// Checks several cases concurrently: a launcher whose ranks fail spends its time waiting.
pub(crate) fn side_by_side<C: Sync>(cases: &[C], check: impl Fn(&C) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(case);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

/// Runs ranks with separate command lines.
pub(crate) fn apart(place: &Place, lines: &[String]) -> Run {
    let mut command = mpirun(place);
    for (i, line) in lines.iter().enumerate() {
        command
            .args(if i > 0 { &[":", "-n", "1"][..] } else { &["-n", "1"] })
            .arg(binary())
            .args(words(line));
    }
    finish(command.spawn().expect("mpirun starts"))
}

/// Returns the processes of a run: children of `mpirun`.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let threads = read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| read_to_string(thread.path().join("children")).ok());
    let all = listed.collect::<String>();
    let all = all.split_whitespace().filter_map(|id| id.parse().ok());
    // Excludes copies of the launcher that have not yet started kolmo: it would wait forever for
    // one that is killed.
    let begun = |id: &u32| read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c.trim() == "kolmo");
    all.filter(begun).collect()
}
