//! What is written is neither an input nor another output, and what is killed leaves nothing.
#![cfg(unix)]

use crate::support::{Place, THREE, TWO};

/// A directory with a model, what lies beside it, and other names of both.
fn place() -> Place {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.lab", "0=\"init\" 1=\"busy\"\n0: 0\n2: 1\n");
    place
        .put("p.txt", "1\n0\n0\n")
        .put("a.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n");
    place.put("b.txt", "1\n").put("other.tra", TWO);
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("d")).unwrap();
    std::fs::hard_link(at("m.tra"), at("hard")).unwrap();
    std::os::unix::fs::symlink(at("m.tra"), at("soft")).unwrap();
    place
}

#[test]
fn no_output_is_an_input_or_another_output() {
    let place = place();
    let before: Vec<_> = place.names().into_iter().filter(|name| name != "d").collect();
    let contents: Vec<_> = before.iter().map(|name| place.get(name)).collect();
    for (line, both) in [
        ("transient m.tra --time 1 --report m.tra", "MODEL and --report"),
        ("transient m.tra --time 1 --report ./d/../m.tra", "MODEL and --report"),
        ("transient m.tra --time 1 --report hard", "MODEL and --report"),
        ("transient m.tra --time 1 --report soft", "MODEL and --report"),
        ("transient m.tra --time 1 --checkpoint m.tra", "MODEL and --checkpoint"),
        ("transient m.tra --time 1 --checkpoint hard --resume", "MODEL and --checkpoint"),
        ("transient m.tra --time 1 --report m.lab", "a file that is read with the model and --report"),
        ("transient other.tra --labels m.lab --time 1 --report m.lab", "--labels and --report"),
        ("transient m.tra --time 1 --initial p.txt -o p.txt", "--initial and -o"),
        ("transient m.tra --time 1 -o new.csv --report ./new.csv", "-o and --report"),
        (
            "transient m.tra --times 0:1:2 --plot x.svg -o p.csv --checkpoint d/../p.csv",
            "-o and --checkpoint",
        ),
        ("transient m.tra --times 0:1:2 --plot x.svg --report x.svg", "--report and --plot"),
        ("walk a.mtx --component 0 --report a.mtx", "MATRIX and --report"),
        ("walk a.mtx -b b.txt --component 0 --report b.txt", "-b and --report"),
        ("tridiagonal a.mtx --report a.mtx", "SYSTEM and --report"),
        ("tridiagonal a.mtx -b b.txt -o b.txt", "-b and -o"),
        ("bench spmv m.tra --repeat 1 --report m.tra", "what is measured and --report"),
        ("bench compare --from p.txt --html p.txt", "--from and --html"),
        ("generate poisson2d:3,0.9 -o x.mtx --rhs ./x.mtx", "-o and --rhs"),
    ] {
        let run = place.kolmo(line);
        assert_eq!(run.code, 2, "kolmo {line}\n{}", run.stderr);
        assert!(run.stderr.contains(both), "kolmo {line}\n{}", run.stderr);
    }
    let after: Vec<_> = place.names().into_iter().filter(|name| name != "d").collect();
    assert_eq!(after, before);
    assert_eq!(after.iter().map(|name| place.get(name)).collect::<Vec<_>>(), contents);
    // Devices have nothing to lose.
    place.transient("m.tra --time 1 --report /dev/null --checkpoint /dev/null -q");
}

/// With Linux's files without a name.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let place = Place::new();
    place.put("p.npy", "old");
    let mut child = place.start("transient wlan:12,6 --time 1e6 --device cpu -o p.npy --report r.json");
    let started = std::time::Instant::now();
    while !place.is_written_by(&child) {
        assert!(
            started.elapsed() < std::time::Duration::from_secs(60) && child.try_wait().unwrap().is_none()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-KILL", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    child.wait().unwrap();

    assert_eq!(place.names(), ["p.npy"]);
    assert_eq!(place.text("p.npy"), "old");
}
