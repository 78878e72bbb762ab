//! Files on several ranks: the bits of one process, and its errors.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use crate::mpirun::{bits, launcher, ranks, refused, side_by_side};
use crate::support::{THREE_DRN, array, npz};

/// Returns distinct numbers in (0, 1).
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f64()).collect()
}

/// Returns diagonals of dominant rows.
fn diagonals(count: usize) -> [Vec<f64>; 3] {
    [numbers(count, 1), numbers(count, 3).iter().map(|v| 2.0 + v).collect(), numbers(count, 2)]
}

#[test]
fn systems_of_files_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    let n = 12_345;
    let ([dl, d, du], b) = (diagonals(n), numbers(3 * n, 4));
    let system = |compressed, n: usize, b: Option<Vec<u8>>| {
        let mut members = vec![
            ("dl", array(&[n - 1], &dl[..n - 1])),
            ("d", array(&[n], &d[..n])),
            ("du", array(&[n - 1], &du[..n - 1])),
        ];
        members.extend(b.map(|b| ("b", b)));
        npz(compressed, &members)
    };
    place
        .put("three.npz", system(false, n, Some(array(&[n, 3], &b))))
        .put("none.npz", system(false, n, None));
    place.put("small.npz", system(true, 9000, Some(array(&[9000], &b[..9000]))));
    place.put("b.npy", array(&[2, n], &b[..2 * n]));
    bits(&place, "systems of files");
}

#[test]
fn interleaved_systems_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    let (n, batch) = (301, 23);
    let [dl, d, du] = diagonals(n * batch).map(|values| array(&[n, batch], &values));
    place.put("columns.npz", npz(false, &[("dl", dl), ("d", d), ("du", du)]));
    place.put("b.npy", array(&[n, batch, 2], &numbers(2 * n * batch, 4)));
    bits(&place, "interleaved systems");
}

#[test]
fn chains_of_files_give_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    for name in ["m.tra", "m.npz"] {
        place.ok(&format!("generate wlan:4,3 -o {name} --quiet"));
    }
    let initial: String = (0..3748).step_by(5).map(|s| format!("{s} s\n")).collect();
    place.put("labels", format!("#DECLARATION\ns\n#END\n{initial}"));
    place.put(
        "odd.tra",
        "ctmc\n# a comment\n0 1 2.5\n1 0 1/4\n\n# another\n1 1 7\n1 2 0\n300 0 2 go\n2 300 1e-1",
    );
    place.put("r.srew", "3748 3\n3 1\n2000 2.5\n3747 4\n").put("r.trew", "301 2\n0 1 3\n2 300 4\n");
    bits(&place, "chains of files");
}

/// A ring in Storm's format with labels and rewards of states and transitions.
///
/// Its number of choices is wrong.
fn drn(n: usize) -> String {
    let head = format!(
        "@type: CTMC\n@parameters\n\n@reward_models\nup jumps\n@nr_states\n{n}\n@nr_choices\n1\n@model\n"
    );
    let state = |s: usize| {
        let (rate, label) = (1 + s % 7, ["init", "", "late"][usize::from(s > 0) + usize::from(s > 650)]);
        let (jump, next) = (s % 2, (s + 1) % n);
        format!("state {s} !{rate} [{}, 0] {label}\n\taction 0 [0, {jump}]\n\t\t{next} : {rate}\n", s % 5)
    };
    head + &(0..n).map(state).collect::<String>()
}

#[test]
fn drn_files_give_labels_and_rewards() {
    let Some(place) = launcher() else { return };
    place.put("m.drn", drn(700)).put("three.drn", THREE_DRN);
    bits(&place, "drn files");
    // A warning is printed once, in the words of one process.
    let line = "transient m.drn --time 1 --rewards up --device cpu --checkpoint c";
    let alone = place.kolmo(line);
    let warnings: Vec<&str> = alone.stderr.lines().filter(|l| l.starts_with("warning:")).collect();
    assert_eq!(warnings.len(), 1, "{}", alone.stderr);
    // Rewards on several ranks equal those in the checkpoint of one process.
    let run = ranks(&place, 3, &format!("{line} --resume --report r.json")).ends(0, &[]);
    assert_eq!(run.stdout, alone.stdout, "{run:?}");
    assert!(place.json("r.json")["checkpoint"]["resumed"].as_u64() > Some(0));
    assert_eq!(run.stderr.matches(warnings[0]).count(), 1, "{run:?}");
    let other = line.replace("--rewards up", "--rewards jumps");
    ranks(&place, 2, &format!("{other} --resume")).ends(2, &["the rewards (there up"]);
}

#[test]
fn errors_of_a_file_have_the_words_of_one_process() {
    let Some(place) = launcher() else { return };
    let tra = |wrong: usize, line: &str| {
        let line = |i| if i == wrong { line.to_owned() } else { format!("{i} {} 1.5", (i + 1) % 2000) };
        format!("2000 2000\n{}\n", (0..2000).map(line).collect::<Vec<_>>().join("\n"))
    };
    place.put("letter.tra", tra(1500, "1500 x 1")).put("twice.tra", tra(1900, "3 4 1"));
    place.put("none.npz", "no archive");
    let names = ["letter.tra", "twice.tra", "none.npz", "missing.tra"];
    side_by_side(&names, |name| {
        let line = format!("transient {name} --time 1 --device cpu --top 1");
        let alone = place.kolmo(&line).ends(2, &[]);
        let said = alone.stderr.lines().find(|line| line.starts_with("error:")).expect("an error");
        refused(ranks(&place, 2, &line), &[said]);
    });
}
