//! Running the command under `mpirun` in a directory of its own.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::devices::skip;
use crate::support::{Place, binary};

/// Time after which ranks count as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);

/// Exit code, output and run time of the ranks.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) seconds: f64,
}

/// True if a launcher is present; otherwise the test is skipped with a message.
pub(crate) fn launcher() -> bool {
    let there = Command::new("mpirun").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        skip("mpi", "mpirun does not start");
    }
    there
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
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn finish(child: Child) -> Ran {
    let (ran, ended) = finish_within(child, PATIENCE);
    assert!(ended, "the ranks hang: {ran:?}");
    ran
}

/// Waits for a run, and returns its result and true if it ended within `patience`.
pub(crate) fn finish_within(mut child: Child, patience: Duration) -> (Ran, bool) {
    let started = Instant::now();
    // A full pipe would block the writer.
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let read = |from: &mut dyn std::io::Read| {
        let mut text = Vec::new();
        from.read_to_end(&mut text).expect("a pipe");
        String::from_utf8_lossy(&text).into_owned()
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
        let ran = Ran {
            code: status.and_then(|s| s.code()),
            stdout: stdout.join().expect("text"),
            stderr: stderr.join().expect("text"),
            seconds: started.elapsed().as_secs_f64(),
        };
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
        (ran, status.is_some())
    })
}

/// Runs `kolmo` with the words of `line` on `count` ranks.
pub(crate) fn ranks(place: &Place, count: usize, line: &str) -> Ran {
    let mut command = mpirun(place);
    command.args(["-n", &count.to_string()]).arg(binary()).args(line.split_whitespace());
    finish(command.spawn().expect("mpirun starts"))
}

/// Asserts that ranks give exit code, stdout and output files (`OUT`) of one process.
///
/// A start takes half a second, so only lines with special cases run on several numbers of ranks.
pub(crate) fn bits_on(counts: &[usize], place: &Place, line: &str) {
    let alone = place.kolmo(&line.replace("OUT", "alone"));
    assert!(alone.code <= 1, "kolmo {line}\n{}", alone.stderr);
    for &count in counts {
        let ran = ranks(place, count, &line.replace("OUT", "shared"));

        assert_eq!(ran.code, Some(alone.code), "{count} ranks: {line}\n{}", ran.stderr);
        assert!(
            ran.stdout == alone.stdout,
            "{count} ranks: {line}\n{}\nalone:\n{}",
            ran.stdout,
            alone.stdout
        );
        for name in place.names().iter().filter(|name| name.starts_with("alone")) {
            let shared = place.get(&name.replace("alone", "shared"));
            assert!(shared == place.get(name), "{count} ranks: {line}: {name} differs");
        }
        let left: Vec<String> = place.names().into_iter().filter(|n| n.contains(".partial")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
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
pub(crate) fn apart(place: &Place, lines: &[&str]) -> Ran {
    let mut command = mpirun(place);
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            command.arg(":");
        }
        command.args(["-n", "1"]).arg(binary()).args(line.split_whitespace());
    }
    finish(command.spawn().expect("mpirun starts"))
}

/// Returns the processes of a run: children of `mpirun`.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all = listed.collect::<String>();
    let all = all.split_whitespace().filter_map(|id| id.parse().ok());
    // Excludes copies of the launcher that have not yet started kolmo: it would wait forever for
    // one that is killed.
    let begun =
        |id: &u32| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c.trim() == "kolmo");
    all.filter(begun).collect()
}
