//! Files on several ranks: the bits of one process, and its errors.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use crate::mpirun::{bits, bits_on, launcher, ranks, refused, side_by_side};
use crate::support::{THREE_DRN, array, gzip, npy_file, npz, three_umb};

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
    bits(
        &place,
        &[
            (&[1, 2, 3, 5], "tridiagonal three.npz -o OUT.npy"),
            (&[3], "tridiagonal three.npz -o OUT.csv"),
            (&[2], "tridiagonal none.npz -o OUT.npy"),
            // Two right-hand sides with one matrix, one after the other.
            (&[5], "tridiagonal none.npz -b b.npy -o OUT.npy"),
            (&[2], "tridiagonal small.npz -o OUT.npy"),
        ],
    );
}

#[test]
fn interleaved_systems_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    let (n, batch) = (301, 23);
    let [dl, d, du] = diagonals(n * batch).map(|values| array(&[n, batch], &values));
    place.put("columns.npz", npz(false, &[("dl", dl), ("d", d), ("du", du)]));
    place.put("b.npy", array(&[n, batch, 2], &numbers(2 * n * batch, 4)));
    for (counts, line) in [
        (&[2, 5][..], "columns.npz -o OUT.npy"),
        (&[3], "columns.npz -b b.npy -o OUT.npy"),
        (&[2], "columns.npz -o OUT.csv"),
        (&[3], "random:301,23 -b b.npy -o OUT.npy"),
        (&[5], "random:301,23 -o OUT.npy"),
    ] {
        bits_on(counts, &place, &format!("tridiagonal {line} --layout interleaved"), "");
    }
}

#[test]
fn chains_of_files_give_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    for name in ["m.tra", "m.npz", "m.mtx"] {
        place.ok(&format!("generate wlan:4,3 -o {name} --quiet"));
    }
    place.put("m.tra.gz", gzip(place.get("m.tra"))).put("m.mtx.gz", gzip(place.get("m.mtx")));
    let initial: String = (0..3748).step_by(5).map(|s| format!("{s} s\n")).collect();
    place.put("labels", format!("#DECLARATION\ns\n#END\n{initial}"));
    place.put("three.umb", three_umb());
    place.put(
        "odd.tra",
        "ctmc\n# a comment\n0 1 2.5\n1 0 1/4\n\n# another\n1 1 7\n1 2 0\n300 0 2 go\n2 300 1e-1",
    );
    place.put("generator.npz", generator());
    place.put("generator.mtx", ring(900, true)).put("symmetric.mtx", ring(900, false));
    place.put("r.srew", "3748 3\n3 1\n2000 2.5\n3747 4\n").put("r.trew", "301 2\n0 1 3\n2 300 4\n");
    bits(
        &place,
        &[
            (&[1, 2, 3, 5], "transient m.tra --time 0.4,3 -o OUT.npy"),
            (&[3], "transient m.npz --time 0.4,3 -o OUT.npy --precision f32"),
            (&[2], "transient m.mtx --time 0.4 -o OUT.npy"),
            (&[3], "transient m.tra.gz --time 0.4 -o OUT.npy"),
            (&[2], "transient m.mtx.gz --time 0.4 -o OUT.npy"),
            // Three states for five ranks.
            (&[5], "transient three.umb --time 0.4 -o OUT.npy"),
            (&[3], "transient m.tra --time 2 --labels labels --absorbing s --label s --initial 7"),
            (&[5], "transient m.tra --time 2 --rewards r.srew"),
            (&[2], "transient odd.tra --time 2 --rewards r.trew"),
            (&[2], "transient m.tra --time 2 --halo-depth 3 --top 9"),
            // Hand-written: comments, no final line end, self-loops, zeros, no sizes in line 1.
            (&[5], "transient odd.tra --time 2 -o OUT.npy"),
            (&[3], "transient generator.npz --time 0.7 -o OUT.npy"),
            // Entries that are not listed.
            (&[5], "transient generator.mtx --time 0.7 -o OUT.npy"),
            (&[2], "transient symmetric.mtx --time 0.7 -o OUT.npy"),
        ],
    );
}

/// A chain in Storm's format: a ring with chords.
///
/// With late labels, state and transition rewards, and a wrong number of choices.
fn drn(n: usize) -> String {
    let mut text = format!(
        "// of Storm\n@type: CTMC\n@value_type: double\n@parameters\n\n@reward_models\nup jumps \n@nr_states\n{n}\n\
         @nr_choices\n1\n@model\n"
    );
    for s in 0..n {
        let mut row = vec![((s + 1) % n, 1.0 + (s % 7) as f64), (s, 0.5)];
        if s % 3 == 0 {
            row.push(((s + n / 2) % n, 0.125));
        }
        let exit: f64 = row.iter().map(|(_, rate)| rate).sum();
        let label = |when: bool, name: &'static str| if when { name } else { "" };
        text += &format!(
            "state {s} !{exit} [{}, 0]{}{}{}\n//[x={s}]\n\taction {s} [0, {}]\n",
            s % 5,
            label(s == 0 || s == 500, " init"),
            label(s % 3 == 1, " \"größer als x\""),
            label(s > 650, " late"),
            if s % 2 == 0 { 0.25 } else { 0.0 },
        );
        row.iter().for_each(|(to, rate)| text += &format!("\t\t{to} : {rate}\n"));
    }
    text
}

#[test]
fn drn_files_give_labels_and_rewards() {
    let Some(place) = launcher() else { return };
    place.put("m.drn", drn(700)).put("m.drn.gz", gzip(drn(700))).put("three.drn", THREE_DRN);
    bits(
        &place,
        &[
            (&[1, 2, 3, 5], "transient m.drn --time 0.4,3 --rewards up --rewards jumps -o OUT.npy"),
            (
                &[5],
                "transient m.drn --time 2 --label late --label init --absorbing late --initial label:init",
            ),
            (&[3], "transient m.drn.gz --time 0,2 --rewards jumps"),
            // Three states for five ranks.
            (&[5], "transient three.drn --time 0.4,inf --rewards cost -o OUT.npy"),
        ],
    );
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

/// A ring in Matrix Market format.
///
/// A generator whose diagonal comes last, or symmetric rates of which half are listed.
fn ring(n: usize, generator: bool) -> String {
    let symmetry = if generator { "general" } else { "symmetric" };
    let mut lines = vec![format!("%%MatrixMarket matrix coordinate real {symmetry}\n% a ring\n")];
    lines.push(format!("{n} {n} {}\n", if generator { 3 * n } else { n }));
    for i in 0..n {
        let (next, rate) = ((i + 1) % n, 1.0 + (i % 7) as f64);
        lines.push(format!("{} {} {rate}\n", i + 1, next + 1));
        if generator {
            lines.push(format!("% row {i}\n{} {} 0.5\n", i + 1, (i + n - 1) % n + 1));
        }
    }
    if generator {
        lines.extend((0..n).map(|i| format!("{} {0} {}\n", i + 1, -1.5 - (i % 7) as f64)));
    }
    lines.concat()
}

/// A ring's generator in SciPy's format without compression.
fn generator() -> Vec<u8> {
    const N: i32 = 900;
    let rate = |i: i32| 1.0 + f64::from(i % 7);
    let values: Vec<f64> = (0..N).flat_map(|i| [-rate(i), rate(i)]).collect();
    let ints = |values: &mut dyn Iterator<Item = i32>| {
        let values: Vec<i32> = values.collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        npy_file("<i4", false, &[values.len()], &bytes)
    };
    npz(
        false,
        &[
            ("indices", ints(&mut (0..N).flat_map(|i| [i, (i + 1) % N]))),
            ("indptr", ints(&mut (0..=N).map(|i| 2 * i))),
            ("format", npy_file("|S3", false, &[], b"csr")),
            ("shape", ints(&mut [N, N].into_iter())),
            ("data", array(&[values.len()], &values)),
        ],
    )
}

#[test]
fn errors_of_a_file_have_the_words_of_one_process() {
    let Some(place) = launcher() else { return };
    let tra = |lines: usize, wrong: usize, line: &str| {
        let line = |i| if i == wrong { line.to_owned() } else { format!("{i} {} 1.5", (i + 1) % 2000) };
        format!("2000 2000\n{}\n", (0..lines).map(line).collect::<Vec<_>>().join("\n"))
    };
    let mut wrong: Vec<(&str, Vec<u8>)> = vec![
        ("letter.tra", tra(2000, 1500, "1500 x 1").into()),
        ("range.tra", tra(2000, 700, "700 2000 1").into()),
        ("twice.tra", tra(2000, 1900, "3 4 1").into()),
        ("short.tra", tra(1999, 2000, "").into()),
        ("none.npz", "no archive".into()),
        (
            "huge.mtx",
            "%%MatrixMarket matrix coordinate real general\n4000000000 4000000000 2\n1 2 1\n2 1 -1\n".into(),
        ),
    ];
    let (chain, matrix) = (drn(700), ring(900, true));
    for (name, from, to) in [
        ("letter.drn", "\t\t641 : 4\n", "\t\t641 : x\n"),
        ("range.drn", "\t\t641 : 4\n", "\t\t700 : 4\n"),
        ("gap.drn", "state 300 ", "state 301 "),
        ("twice.drn", "\t\t641 : 4\n", "\t\t641 : 4\n\t\t641 : 1\n"),
        ("more.drn", "@nr_states\n700", "@nr_states\n701"),
        ("lists.drn", "[0, 0.25]\n\t\t647 ", "[0]\n\t\t647 "),
        ("large.drn", "[0, 0.25]\n\t\t647 : 3", "[0, 1e308]\n\t\t647 : 3e10"),
        ("null.drn", "//[x=640]", "//[x=\0]"),
        ("short.mtx", "900 900 2700", "900 900 2701"),
        ("letter.mtx", "\n700 701 ", "\n700 7o1 "),
        ("unbalanced.mtx", "\n700 700 ", "\n700 700 -1"),
    ] {
        let whole = if name.ends_with("drn") { &chain } else { &matrix };
        assert!(whole.contains(from), "{name}");
        wrong.push((name, whole.replacen(from, to, 1).into()));
    }
    let packed = gzip(&chain);
    wrong.push(("cut.drn.gz", packed[..packed.len() / 2].to_vec()));
    for (name, contents) in &wrong {
        place.put(name, contents);
    }
    let mut names: Vec<&str> = wrong.iter().map(|(name, _)| *name).collect();
    names.push("missing.tra");
    side_by_side(&names, |name| {
        let line = format!("transient {name} --time 1 --device cpu --top 1");
        let alone = place.kolmo(&line).ends(2, &[]);
        let said = alone.stderr.lines().find(|line| line.starts_with("error:")).expect("an error");
        refused(ranks(&place, 2, &line), &[said]);
    });
}
