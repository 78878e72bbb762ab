//! `kolmo transient` under `mpirun`, in addition to its probability vectors.
//!
//! Checkpoints, plots, the steady state, files, memory.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::mpirun::{
    PATIENCE, Ran, bits_on, children, finish, finish_within, launcher, mpirun, ranks, side_by_side,
};
use crate::support::{Place, THREE_DRN, binary, gzip, three_umb};
use kolmo::transient::checkpoint::inspect;

/// Starts `kolmo` on `count` ranks.
fn start(place: &Place, count: usize, line: &str) -> std::process::Child {
    let mut command = mpirun(place);
    command.args(["-n", &count.to_string()]).arg(binary()).args(line.split_whitespace());
    command.spawn().expect("mpirun starts")
}

/// Runs `line` on 3, 2, 1, 3, 2 … ranks and kills all ranks at random; returns the number of kills.
fn killed(place: &Place, line: &str, longest: u64, random: &mut fastrand::Rng) -> u32 {
    let mut kills = 0;
    loop {
        let count = [3, 2, 1][kills as usize % 3];
        let mut child = start(place, count, line);
        if kills < 3 {
            let since = Instant::now();
            while children(child.id()).len() < count && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Spread over orders of magnitude: early moments are as frequent as late ones.
            std::thread::sleep(Duration::from_millis(random.u64(1..longest) >> random.u32(0..4)));
            if child.try_wait().expect("mpirun was started").is_none() {
                let ranks = children(child.id()).iter().map(u32::to_string).collect::<Vec<_>>();
                let _ = Command::new("kill").arg("-KILL").args(&ranks).status();
                // A launcher may miss ranks that end during the start, and is ended as well.
                let (ran, _) = finish_within(child, Duration::from_secs(2));
                if ran.code == Some(0) {
                    return kills;
                }
                kills += 1;
                continue;
            }
        }
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{count} ranks: {line}\n{ran:?}");
        return kills;
    }
}

#[test]
#[ignore = "slow: kills ranks at random moments"]
fn killed_ranks_resume_on_any_number_of_ranks_with_the_bytes_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let mut random = fastrand::Rng::with_seed(31);
    let mut all = 0;
    for line in [
        "transient wlan:10,5 --time 9,14,15 --device cpu --halo-depth 1",
        "transient tandem:60 --time 4,5 --device cpu --precision f32 --epsilon 1e-2",
        "transient tandem:60 --time 1 --method subdivided --theta 10 --device cpu",
    ] {
        let started = Instant::now();
        assert_eq!(place.kolmo(&format!("{line} -o whole.npy")).code, 0, "{line}");
        let longest = started.elapsed().as_millis() as u64 + 600;
        let with = format!("{line} -o p.npy --report r.json --checkpoint c --checkpoint-every 0.01 --resume");

        let kills = killed(&place, &with, longest, &mut random);

        assert!(place.get("p.npy") == place.get("whole.npy"), "{line}: killed {kills} times");
        let resumed = place.json("r.json")["checkpoint"]["resumed"].as_u64();
        println!("{line}: killed {kills} times, at last resumed at {resumed:?}");
        // A complete checkpoint delivers all results again, also to one process.
        for again in [place.kolmo(&with).code, ranks(&place, 2, &with).code.unwrap_or(-1)] {
            assert_eq!(again, 0);
            assert!(place.get("p.npy") == place.get("whole.npy"), "{line}");
        }
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
        all += kills;
    }
    assert!(all > 2, "killed {all} times");
}

/// Runs until a checkpoint with some work exists, then ends the ranks or their launcher.
fn until_kept(place: &Place, count: usize, line: &str, signal: &str, to_ranks: bool) -> Ran {
    let child = start(place, count, line);
    let since = Instant::now();
    let path = place.path().join("c");
    let terms = || inspect(&path, &std::fs::read(&path).ok()?).ok().map(|kept| kept.terms);
    while terms() < Some(20) {
        assert!(since.elapsed() < PATIENCE, "no checkpoint is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let targets = if to_ranks { children(child.id()) } else { vec![child.id()] };
    let targets: Vec<String> = targets.iter().map(u32::to_string).collect();
    assert!(Command::new("kill").arg(signal).args(&targets).status().is_ok_and(|s| s.success()));
    finish(child)
}

#[test]
#[ignore = "slow: kills ranks"]
fn checkpoints_are_resumed_on_other_numbers_of_ranks() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient wlan:8,5 --time 20,30 --device cpu --quiet";
    assert_eq!(place.kolmo(&format!("{line} -o whole.npy")).code, 0);
    let kept = format!("{line} -o p.npy --checkpoint c --checkpoint-every 0");
    for (before, after) in [(3, 2), (1, 3)] {
        let ended = until_kept(&place, before, &kept, "-KILL", true);
        assert_ne!(ended.code, Some(0), "the run ended before it could be killed");
        let stored = place.get("c");

        let ran = ranks(&place, after, &format!("{kept} --resume --report r.json"));

        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then {after}");
        assert!(place.json("r.json")["checkpoint"]["resumed"].as_u64() > Some(0));
        // One process continues from equal bytes.
        place.put("c", &stored);
        assert_eq!(place.kolmo(&format!("{kept} --resume")).code, 0);
        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then one process");
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
    }
}

#[test]
fn an_interruption_of_ranks_writes_a_checkpoint() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient wlan:10,5 --time 30,40 --device cpu --order natural -o p.npy --checkpoint c --checkpoint-every";
    let ended = until_kept(&place, 3, &format!("{line} 0"), "-INT", false);
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.names(), ["c"], "{ended:?}");

    let ran = ranks(&place, 2, &format!("{line} 1000 --resume"));

    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("kept     c: went on after"), "{ran:?}");
    assert_eq!(place.kolmo("transient wlan:10,5 --time 30,40 --device cpu -o q.npy").code, 0);
    assert!(place.get("p.npy") == place.get("q.npy"));
}

#[test]
fn checkpoint_errors_of_ranks_are_reported_once() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    place.put("text", "0.5\n");
    let first = ranks(&place, 2, "transient tandem:35 --time 1 --device cpu --quiet --top 1 --checkpoint c");
    assert_eq!(first.code, Some(0), "{first:?}");
    let stored = place.get("c");
    let mut damaged = stored.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    place.put("damaged", &damaged);
    let refused = [
        ("tandem:35 --time 1 --checkpoint no/where", "does not exist"),
        ("tandem:35 --time 1 --checkpoint text --resume", "not a checkpoint"),
        ("tandem:35 --time 2 --checkpoint c --resume", "the times (there 1, here 2)"),
        ("tandem:36 --time 1 --checkpoint c --resume", "the chain (there 2556 states, here 2701 states)"),
        ("tandem:35 --time 1 --checkpoint damaged --resume", "its bytes have changed"),
    ];
    side_by_side(&refused, |(line, part)| {
        let ran = ranks(&place, 2, &format!("transient {line} --device cpu --top 1"));

        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains(part) && ran.stdout.is_empty(), "{line}: {ran:?}");
    });
    assert!(place.get("c") == stored, "a refusal leaves the file alone");
    assert_eq!(place.names(), ["c", "damaged", "text"]);
}

/// A chain with four closed classes, unreachable states, and transient states.
///
/// States 0 … 699 are a path with exits everywhere. Chords keep distances and the number of steps
/// small.
fn classes() -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |from: usize, to: usize, rate: f64| lines.push(format!("{from} {to} {rate}\n"));
    for i in 0..699 {
        add(i, i + 1, 2.0);
        add(i + 1, i, 1.5);
    }
    let chords = |len: usize| (0..len).map(move |i| (i, (7 * i + 3) % len));
    chords(700).filter(|(i, to)| to.abs_diff(*i) > 1).for_each(|(i, to)| add(i, to, 2.5));
    // Two rings far apart, two absorbing states, and one unreachable state.
    for (from, first, len) in [(350, 700, 300), (699, 1700, 257)] {
        add(from, first, 0.5);
        (0..len).for_each(|i| add(first + i, first + (i + 1) % len, 3.0 + (i % 4) as f64));
        let distant = chords(len).filter(|(i, to)| to != i && *to != (i + 1) % len);
        distant.for_each(|(i, to)| add(first + i, first + to, 2.0));
    }
    (0..700).step_by(5).for_each(|i| add(i, 1000, 0.25));
    (3..700).step_by(5).for_each(|i| add(i, 1699, 0.125));
    add(1001, 5, 1.0);
    // The states between them lead back to the path, and are unreachable as well.
    (1002..1699).for_each(|i| add(i, i - 1, 1.0));
    lines.sort_by_key(|line| {
        let mut numbers = line.split(' ').map(|n| n.parse::<f64>().unwrap_or(0.0) as usize);
        (numbers.next(), numbers.next())
    });
    lines.dedup_by_key(|line| line.rsplit_once(' ').map(|(states, _)| states.to_owned()));
    format!("1957 {}\n{}", lines.len(), lines.concat())
}

#[test]
fn the_steady_state_is_certified_by_ranks_with_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    place.put("classes.tra", classes());
    for (counts, line) in [
        (&[2][..], "transient tandem:15 --time inf,2 -o OUT.npy --report OUT.json"),
        (
            &[5],
            "transient birth-death:513,1,2 --time inf --epsilon 1e-9 -o OUT.npy --precision f32 --report OUT.json",
        ),
        (&[3], "transient classes.tra --time inf --epsilon 1e-3 -o OUT.npy --report OUT.json"),
    ] {
        let line = format!("{line} --device cpu --quiet");
        let alone = place.kolmo(&line.replace("OUT", "alone"));
        assert!(alone.code <= 1, "{}", alone.stderr);
        for &count in counts {
            let ran = ranks(&place, count, &line.replace("OUT", "shared"));

            assert_eq!(ran.code, Some(alone.code), "{count} ranks: {line}: {ran:?}");
            assert!(place.get("shared.npy") == place.get("alone.npy"), "{count} ranks: {line}");
            let (alone, shared) = (place.json("alone.json"), place.json("shared.json"));
            for same in ["status", "bound", "terms", "per_time"] {
                assert_eq!(shared[same], alone[same], "{count} ranks: {line}: {same}");
            }
        }
    }
}

#[test]
fn plots_and_orders_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    place.put("r.srew", "2556 2\n3 1\n2000 2.5\n");
    for (count, line) in [
        (3, "transient tandem:35 --times 0:0.5:3 --plot OUT.svg --top 4"),
        (
            5,
            "transient tandem:35 --time 0.4,3,1 --plot OUT.svg --states 5,900,2555 --rewards r.srew -o OUT.csv",
        ),
        (2, "transient tandem:35 --time 0.4,3 --order bfs -o OUT.npy"),
        (3, "transient wlan:4,3 --time 2,1 --order rcm --precision f32 -o OUT.npy"),
        (5, "transient birth-death:250,0.8,0.7 --time 20 --order rcm -o OUT.npy"),
    ] {
        bits_on(&[count], &place, &format!("{line} --device cpu --quiet"));
    }
    let ran = ranks(&place, 2, "transient tandem:35 --time 1 --plot x.svg --device cpu --quiet");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--plot draws probabilities over time"), "{ran:?}");
}

/// Writes files of one chain in several formats.
fn files(place: &Place, model: &str) {
    for name in ["m.tra", "m.npz", "m.mtx"] {
        assert_eq!(place.kolmo(&format!("generate {model} -o {name} --quiet")).code, 0, "{name}");
    }
    for name in ["m.tra", "m.mtx"] {
        place.put(&format!("{name}.gz"), gzip(place.get(name)));
    }
}

#[test]
fn files_give_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    files(&place, "wlan:4,3");
    let initial: String =
        (0..3748).map(|s| if s % 5 == 0 { format!("{s} s\n") } else { String::new() }).collect();
    place.put("labels", format!("#DECLARATION\ns\n#END\n{initial}"));
    place.put("three.umb", three_umb());
    place.put(
        "odd.tra",
        "ctmc\n# a comment\n0 1 2.5\n1 0 1/4\n\n# another\n1 1 7\n1 2 0\n300 0 2 go\n2 300 1e-1",
    );
    place.put("generator.npz", generator());
    place.put("generator.mtx", ring(900, true));
    place.put("symmetric.mtx", ring(900, false));
    place.put("r.srew", "3748 3\n3 1\n2000 2.5\n3747 4\n");
    place.put("r.trew", "301 2\n0 1 3\n2 300 4\n");
    for (counts, line) in [
        (&[1, 2, 3, 5][..], "transient m.tra --time 0.4,3 -o OUT.npy"),
        (&[3], "transient m.npz --time 0.4,3 -o OUT.npy --precision f32"),
        (&[2], "transient m.mtx --time 0.4 -o OUT.npy"),
        (&[3], "transient m.tra.gz --time 0.4 -o OUT.npy"),
        (&[2], "transient m.mtx.gz --time 0.4 -o OUT.npy"),
        // Three states for five ranks.
        (&[5], "transient three.umb --time 0.4 -o OUT.npy"),
        (&[3], "transient m.tra --time 2 --labels labels --absorbing s --label s --initial 7"),
        (&[5], "transient m.tra --time 2 --rewards r.srew"),
        (&[2], "transient odd.tra --time 2 --rewards r.trew"),
        (&[3], "transient m.tra --time 2 --order rcm --top 9"),
        (&[2], "transient m.tra --time 2 --halo-depth 3 --top 9"),
        // Hand-written: comments, no final line end, self-loops, zeros, a first line without sizes.
        (&[5], "transient odd.tra --time 2 -o OUT.npy"),
        (&[3], "transient generator.npz --time 0.7 -o OUT.npy"),
        // Entries that are not listed.
        (&[5], "transient generator.mtx --time 0.7 -o OUT.npy"),
        (&[2], "transient symmetric.mtx --time 0.7 -o OUT.npy"),
    ] {
        bits_on(counts, &place, &format!("{line} --device cpu --quiet"));
    }
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
    if !launcher() {
        return;
    }
    let place = Place::new();
    place.put("m.drn", drn(700)).put("m.drn.gz", gzip(drn(700))).put("three.drn", THREE_DRN);
    for (counts, line) in [
        (&[1, 2, 3, 5][..], "transient m.drn --time 0.4,3 --rewards up --rewards jumps -o OUT.npy"),
        (&[5], "transient m.drn --time 2 --label late --label init --absorbing late --initial label:init"),
        (&[3], "transient m.drn.gz --time 0,2 --rewards jumps"),
        // Three states for five ranks.
        (&[5], "transient three.drn --time 0.4,inf --rewards cost -o OUT.npy"),
    ] {
        bits_on(counts, &place, &format!("{line} --device cpu --quiet"));
    }
    // A warning is printed once, in the words of one process.
    let line = "transient m.drn --time 1 --rewards up --device cpu --checkpoint c";
    let alone = place.kolmo(line);
    let warnings: Vec<&str> = alone.stderr.lines().filter(|l| l.starts_with("warning:")).collect();
    assert_eq!(warnings.len(), 1, "{}", alone.stderr);
    // Rewards on several ranks equal those in the checkpoint of one process.
    let ran = ranks(&place, 3, &format!("{line} --resume --report r.json"));
    assert_eq!((ran.code, &ran.stdout), (Some(0), &alone.stdout), "{ran:?}");
    assert!(place.json("r.json")["checkpoint"]["resumed"].as_u64() > Some(0));
    for warning in warnings {
        assert_eq!(ran.stderr.matches(warning).count(), 1, "{warning} in {}", ran.stderr);
    }
    let other = ranks(&place, 2, &format!("{} --resume", line.replace("--rewards up", "--rewards jumps")));
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("the rewards (there up"), "{other:?}");
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
    let member = |descr: &str, shape: &str, data: Vec<u8>| {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        header += &" ".repeat(64 - (header.len() + 11) % 64);
        header += "\n";
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    };
    let (mut indices, mut values, mut ends) = (Vec::new(), Vec::new(), vec![0]);
    for i in 0..N {
        let (next, rate) = ((i + 1) % N, 1.0 + f64::from(i % 7));
        for (column, value) in [(i, -rate), (next, rate)] {
            indices.push(column);
            values.push(value);
        }
        ends.push(2 * (i + 1));
    }
    let ints = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let long = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let entries = 2 * N;
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in [
        ("indices", member("<i4", &format!("({entries},)"), ints(&indices))),
        ("indptr", member("<i4", &format!("({},)", N + 1), ints(&ends))),
        ("format", member("|S3", "()", b"csr".to_vec())),
        ("shape", member("<i8", "(2,)", long(&[N.into(), N.into()]))),
        (
            "data",
            member(
                "<f8",
                &format!("({entries},)"),
                values.iter().flat_map(|v: &f64| v.to_le_bytes()).collect(),
            ),
        ),
    ] {
        archive.start_file(format!("{name}.npy"), stored).expect("memory takes it");
        std::io::Write::write_all(&mut archive, &bytes).expect("memory takes it");
    }
    archive.finish().expect("memory takes it").into_inner()
}

#[test]
fn errors_of_a_file_have_the_words_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let mut lines: Vec<String> = (0..2000).map(|i| format!("{i} {} 1.5", (i + 1) % 2000)).collect();
    let text = |lines: &[String]| format!("2000 2000\n{}\n", lines.join("\n"));
    let mut wrong = Vec::new();
    for (name, at, line) in
        [("letter.tra", 1500, "1500 x 1"), ("range.tra", 700, "700 2000 1"), ("twice.tra", 1900, "3 4 1")]
    {
        let kept = std::mem::replace(&mut lines[at], line.to_owned());
        place.put(name, text(&lines));
        lines[at] = kept;
        wrong.push(name);
    }
    place.put("short.tra", text(&lines[..1999]));
    let chain = drn(700);
    for (name, from, to) in [
        ("letter.drn", "\t\t641 : 4\n", "\t\t641 : x\n"),
        ("range.drn", "\t\t641 : 4\n", "\t\t700 : 4\n"),
        ("gap.drn", "state 300 ", "state 301 "),
        ("twice.drn", "\t\t641 : 4\n", "\t\t641 : 4\n\t\t641 : 1\n"),
        ("more.drn", "@nr_states\n700", "@nr_states\n701"),
        ("lists.drn", "[0, 0.25]\n\t\t647 ", "[0]\n\t\t647 "),
        ("large.drn", "[0, 0.25]\n\t\t647 : 3", "[0, 1e308]\n\t\t647 : 3e10"),
        ("null.drn", "//[x=640]", "//[x=\0]"),
    ] {
        assert!(chain.contains(from), "{name}");
        place.put(name, chain.replacen(from, to, 1));
        wrong.push(name);
    }
    let packed = gzip(&chain);
    place.put("cut.drn.gz", &packed[..packed.len() / 2]);
    wrong.push("cut.drn.gz");
    place.put("none.npz", "no archive");
    place.put("short.mtx", ring(900, true).replace("900 900 2700", "900 900 2701"));
    place.put("letter.mtx", ring(900, true).replace("\n700 701 ", "\n700 7o1 "));
    place.put("unbalanced.mtx", ring(900, true).replace("\n700 700 ", "\n700 700 -1"));
    place.put(
        "huge.mtx",
        "%%MatrixMarket matrix coordinate real general\n4000000000 4000000000 2\n1 2 1\n2 1 -1\n",
    );
    wrong.extend([
        "short.tra",
        "none.npz",
        "missing.tra",
        "short.mtx",
        "letter.mtx",
        "unbalanced.mtx",
        "huge.mtx",
    ]);
    side_by_side(&wrong, |name| {
        let line = format!("transient {name} --time 1 --device cpu --top 1");
        let alone = place.kolmo(&line);
        let ran = ranks(&place, 2, &line);

        assert_eq!((alone.code, ran.code), (2, Some(2)), "{name}: {ran:?}");
        let said = alone.stderr.lines().find(|line| line.starts_with("error:")).expect("an error");
        assert!(ran.stderr.contains(said), "{name}: '{said}' in {}", ran.stderr);
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{name}: {ran:?}");
    });
}

/// A rank has its share of the memory of one process, its halo, and at most 5 % more.
#[test]
fn ranks_hold_their_share_and_their_halo() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    for (counts, line) in [
        (&[3][..], "transient wlan:20,5 --time 0.1 --halo-depth 1 --matrix-format hyb"),
        (&[2, 4], "transient tandem:400 --time 0.01 --halo-depth 1 --matrix-format pair"),
    ] {
        let line = format!("{line} --device cpu --quiet --top 1 --report r.json");
        assert_eq!(place.kolmo(&line).code, 0);
        let alone = place.json("r.json");
        let (n, whole) = (alone["n"].as_f64(), alone["memory"][0]["device_bytes"].as_f64());
        let (n, whole) = (n.expect("states"), whole.expect("bytes"));
        for &count in counts {
            assert_eq!(ranks(&place, count, &line).code, Some(0));

            let report = place.json("r.json");
            for rank in 0..count {
                let bytes = report["memory"][rank]["device_bytes"].as_f64().expect("bytes");
                let rows = report["plan"][rank]["rows"].as_f64().expect("rows");
                let halo = report["plan"][rank]["halo"].as_f64().expect("a halo");
                // About as many values leave as arrive. Each takes two doubles in the iterates, one
                // in its message, and an index of four bytes.
                let most = 1.05 * whole * rows / n + 2.0 * halo * (2.0 * 8.0 + 8.0 + 4.0);
                assert!(bytes <= most, "{line}: rank {rank} of {count}: {bytes} of {most}");
                assert!(bytes >= 0.9 * whole * rows / n, "{line}: rank {rank} of {count} holds {bytes}");
            }
        }
    }
}
