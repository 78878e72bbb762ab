//! Runs within the memory of a Linux control group.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::devices::skip;
use crate::support::{Place, binary};

/// Control group with a memory limit, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a control group by version 2 or 1 of the interface of Linux.
    fn new(limit: u64) -> std::io::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("kolmo-test-{}", std::process::id());
        let (path, file) = match root.join("cgroup.controllers").exists() {
            true => (root.join(name), "memory.max"),
            false => (root.join("memory").join(name), "memory.limit_in_bytes"),
        };
        std::fs::create_dir(&path)?;
        let group = Self(path);
        std::fs::write(group.0.join(file), limit.to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn every_engine_is_refused_what_its_control_group_lacks() {
    let group = match Group::new(400 << 20) {
        Ok(group) => group,
        Err(why) => return skip("a control group", why),
    };
    let lines = [
        "tridiagonal laplace:20000000 -o x.npy",
        "tridiagonal random:20000000 -o x.npy",
        "transient wlan:120,6 --time 1 -o x.npy",
        "walk random-dominant:8000000,10,0.8,positive --component 0 --chains 4096 -o x.csv",
    ];
    for line in lines {
        let place = Place::new();
        let procs = group.0.join("cgroup.procs");
        let run = format!("exec {} {line} --device cpu", binary().display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo $$ > {} && {run}", procs.display())]);
        let run = shell.current_dir(place.path()).stdin(Stdio::null()).output().expect("a shell");
        let stderr = String::from_utf8_lossy(&run.stderr);

        // Without a look at the group the system kills the process, which then has no exit code.
        assert_eq!(run.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains("were requested") && stderr.contains("are available"), "{line}: {stderr}");
        assert_eq!(place.names(), Vec::<String>::new(), "{line}");
    }
}
