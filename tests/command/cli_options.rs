//! Every option of every command with an invalid value.
//!
//! Each ends with exit code 2 before any work, with a message that names the error, and writes no
//! file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Place, TWO};

/// Every command with its required arguments.
const COMMANDS: [(&str, &str); 13] = [
    ("transient", "m.tra --time 1"),
    ("walk", "poisson2d:5,0.8 --component 3"),
    ("tridiagonal", "random:100"),
    ("devices", ""),
    ("tune", "--max-size 7500"),
    ("generate", "poisson2d:4,0.9 -o g.mtx"),
    ("bench spmv", "tandem:5"),
    ("bench transient", "tandem:5"),
    ("bench walk", ""),
    ("bench tridiagonal", "random:100"),
    ("bench transfer", ""),
    ("bench seed-table", ""),
    ("bench compare", ""),
];

fn place() -> Place {
    let place = Place::new();
    place.put("m.tra", TWO).put("m.lab", "0=\"init\" 1=\"up\"\n0: 0\n1: 1\n").put("b.txt", "1\n2\n");
    place
}

/// Calls `work` for each item, on all processors.
fn each<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A failure does not skip the other cases.
                    if catch_unwind(AssertUnwindSafe(|| work(one))).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "of {} cases", all.len());
}

fn refused(line: &str, said: &str) {
    let place = place();
    let before = place.names();
    let run = place.kolmo_with(line, &[("KOLMO_CONFIG_DIR", "settings")]);
    assert_eq!(run.code, 2, "kolmo {line}\n{}", run.stderr);
    assert!(run.stderr.starts_with("error: "), "kolmo {line}\n{}", run.stderr);
    assert!(run.stderr.contains(said), "kolmo {line} should say '{said}':\n{}", run.stderr);
    assert!(run.stdout.is_empty(), "kolmo {line}\n{}", run.stdout);
    let mut after = place.names();
    after.retain(|name| name != "settings");
    assert_eq!(after, before, "kolmo {line}");
}

/// Returns the options of a command that take a value, as its help lists them.
fn options(command: &str) -> Vec<String> {
    let help = Place::new().kolmo(&format!(
        "{command} {}",
        if matches!(command, "transient" | "walk" | "tridiagonal") { "--help-all" } else { "--help" }
    ));
    assert_eq!(help.code, 0, "{command}");
    let option = |line: &str| {
        let line = line.trim_start();
        let from = &line[line.starts_with('-').then(|| line.find("--")).flatten()?..];
        let (name, value) = from.split_once(' ')?;
        value.starts_with('<').then(|| name.to_owned())
    };
    help.stdout.lines().filter_map(option).collect()
}

#[test]
fn every_option_rejects_an_invalid_value_by_name() {
    let mut cases = Vec::new();
    for (command, needed) in COMMANDS {
        let options = options(command);
        assert!(!options.is_empty(), "{command} has options");
        for option in options {
            // A required option is given only once.
            let mut words: Vec<&str> = needed.split_whitespace().collect();
            let short = if option == "--output" { "-o" } else { &option[..] };
            if let Some(at) = words.iter().position(|word| *word == option || *word == short) {
                words.drain(at..at + 2);
            }
            if option == "--times" || option == "--within" {
                words.truncate(1);
            }
            let (also, behind) = match &option[..] {
                "--checkpoint-every" => (" --checkpoint c", ""),
                "--within" => (" --until init up", ""),
                "--until" => ("", " up"),
                _ => ("", ""),
            };
            cases.push(format!("{command} {}{also} {option} no/@{behind}", words.join(" ")));
        }
    }
    println!("{} options", cases.len());
    each(&cases, |line| refused(line, "no/@"));
}

#[test]
fn values_out_of_range_are_refused_with_the_range_or_the_reason() {
    let run = "transient m.tra --time 1 --device cpu";
    let walk = "walk poisson2d:5,0.8 --device cpu --chains 4096 --component 3";
    let tridiagonal = "tridiagonal random:100 --device cpu";
    let bench = "bench transient tandem:5 --device cpu";
    let table = "bench seed-table --device cpu";
    let cases: Vec<(&str, &str, &str)> = vec![
        ("transient m.tra --device cpu", "--time -1", "invalid time '-1'"),
        ("transient m.tra --device cpu", "--time 1,", "invalid time ''"),
        ("transient m.tra --device cpu", "--time nan", "invalid time 'nan'"),
        ("transient m.tra --device cpu", "--times 1:2", "must read START:STEP:STOP"),
        ("transient m.tra --device cpu", "--times 1:0:2", "the step must be above 0"),
        ("transient m.tra --device cpu", "--times 2:1:1", "STOP at least START"),
        ("transient m.tra --device cpu", "--times 0:1e-9:1", "names 1000000000 times"),
        ("transient m.tra --device cpu", "", "--time <T"),
        ("transient --device cpu --time 1", "", "<MODEL>"),
        (run, "--epsilon 0", "--epsilon 0 must lie between 0 and 1"),
        (run, "--epsilon 1", "--epsilon 1 must lie between 0 and 1"),
        (run, "--epsilon -1", "--epsilon -1 must lie between 0 and 1"),
        (run, "--epsilon nan", "--epsilon NaN must lie between 0 and 1"),
        (run, "--initial 7", "initial state 7 is out of range: expected 0 to 1"),
        (run, "--initial -1", "--initial -1 is neither the number of a state nor a file"),
        (run, "--initial label:x", "no label 'x': there are: init, up"),
        (run, "--initial b.txt", "the initial distribution sums to 3"),
        (run, "--labels b.txt", "b.txt"),
        (run, "--rewards b.txt", "b.txt"),
        (run, "--absorbing x", "no label 'x': there are: init, up"),
        (run, "--method jensen", "[possible values: auto, uniformization, chebyshev, krylov, subdivided]"),
        (run, "--strict", "--strict is about --method chebyshev"),
        (run, "--method chebyshev --checkpoint c.kept", "are not supported; use --method auto"),
        (run, "--theta 5", "--theta 5 divides --method subdivided, and this is a sweep"),
        (run, "--method subdivided --theta 0", "--theta 0 must be a finite number above 0"),
        (run, "--method subdivided --theta -3", "--theta -3 must be a finite number above 0"),
        (run, "--method subdivided --theta nan", "--theta NaN must be a finite number above 0"),
        (run, "--method subdivided --theta 1e9", "expected at most 700 in f64"),
        (run, "--ell-width -1", "invalid ELL width '-1'"),
        (run, "--ell-width 1.5", "invalid ELL width '1.5'"),
        (run, "--matrix-format csr", "auto, hyb, packed, pair, pattern"),
        (run, "--order random", "[possible values: auto, natural, bfs, rcm]"),
        (run, "--exchange none", "[possible values: halo, full]"),
        (run, "--halo-depth 0", "'0' is no number of steps; give auto or 1 to 64"),
        (run, "--halo-depth 65", "'65' is no number of steps"),
        (run, "--halo-depth -1", "'-1' is no number of steps"),
        (run, "--parts 0", "--parts 0 asks for nothing"),
        (run, "--parts x", "invalid value 'x' for '--parts"),
        (run, "--states 2", "'2' is no state; states are 0 to 1"),
        (run, "--states 1-0", "the range 1-0 runs backwards"),
        (run, "--states ,", "'' is no state"),
        (run, "--states 0 --top 1", "cannot be used with"),
        (run, "--label x", "no label 'x': there are: init, up"),
        (run, "--label inti", "no label 'inti': did you mean 'init'? there are: init, up"),
        (
            "transient wlam:12,6",
            "--time 1",
            "wlam:12,6 is neither a file nor built in; did you mean wlan, as in wlan:12,6?",
        ),
        ("transient WLAN:12,6", "--time 1", "did you mean wlan"),
        ("transient tandem", "--time 1", "tandem lacks its parameters; give them as in tandem:15"),
        ("transient random:1e6", "--time 1", "random:1e6 is built in for `kolmo tridiagonal`"),
        ("walk poison2d:5,0.8", "--component 3", "did you mean poisson2d"),
        ("tridiagonal laplce:5", "", "did you mean laplace"),
        ("generate tandm:5", "-o m.tra", "did you mean tandem"),
        (run, "--top 0", "--top 0 asks for nothing"),
        (run, "--top -1", "invalid value '-1' for '--top"),
        (run, "-o p.xyz", "'.xyz' is no format of probabilities"),
        (run, "-o p.csv --report p.csv", "give them two files"),
        (run, "-o m.tra/p.csv", "m.tra"),
        (run, "--checkpoint p.csv -o p.csv", "give them two files"),
        (run, "--checkpoint c --checkpoint-every -1", "--checkpoint-every -1 must be a number of seconds"),
        (run, "--checkpoint c --checkpoint-every inf", "--checkpoint-every inf must be a number of seconds"),
        (run, "--resume", "--checkpoint <FILE>"),
        (run, "--precision f16", "[possible values: auto, f64, f32, q64]"),
        (run, "--lanes 0", "'0' is no number of lanes; give auto or 1 to 64"),
        (run, "--lanes 65", "'65' is no number of lanes"),
        (run, "--memory-limit 0", "'0' is no size"),
        (run, "--memory-limit -1", "'-1' is no size"),
        (run, "--memory-limit 3Gi", "'3Gi' is no size"),
        (run, "--memory-limit 1", "were requested for the self-test; --memory-limit is 1 B"),
        (run, "--device cpu", "cannot be used multiple times"),
        (run, "--no-such-option", "unexpected argument '--no-such-option'"),
        (run, "more", "unexpected argument 'more'"),
        ("transient m.tra --time 1", "--device wgpu:99", "wgpu:99"),
        ("transient m.tra --time 1", "--device cpu,,cpu", "invalid device ''"),
        ("transient m.tra --time 1", "--device wgpu:-1", "invalid device 'wgpu:-1'"),
        (walk, "--epsilon 0", "invalid --epsilon 0: expected a finite number above 0"),
        (walk, "--epsilon -1", "invalid --epsilon -1: expected a finite number above 0"),
        (walk, "--epsilon nan", "invalid --epsilon NaN: expected a finite number above 0"),
        (walk, "--confidence 1", "--confidence 1 is out of range: expected a number between 0 and 1"),
        (walk, "--confidence 0", "--confidence 0 is out of range: expected a number between 0 and 1"),
        (walk, "--confidence nan", "--confidence NaN is out of range: expected a number between 0 and 1"),
        (walk, "--sequence random", "expected one of sobol, halton, faure, philox, mtgp32"),
        (walk, "--scramble all", "expected one of none, owen, shift"),
        (walk, "--max-chains 64", "--max-chains has nothing to limit where --chains 4096 is given"),
        (walk, "--length 30 --delta 1e-3", "--delta has nothing to limit where --length 30 is given"),
        (
            "walk poisson2d:5,0.8 --device cpu --component 3",
            "--max-chains 0",
            "--max-chains 0 is out of range: expected 1 to",
        ),
        (walk, "--max-chains -1", "invalid value '-1' for '--max-chains"),
        (walk, "--replicates 0", "--replicates 0 is out of range: expected 1 to 65536"),
        (walk, "--length -1", "invalid length '-1'"),
        (walk, "--delta 0", "invalid --delta 0: expected a finite number above 0"),
        (walk, "--delta nan", "invalid --delta NaN: expected a finite number above 0"),
        (walk, "--splitting sor", "expected auto, jacobi, scaled-jacobi, richardson:W or given"),
        (walk, "--splitting richardson:0", "invalid factor 0 of richardson:W"),
        (walk, "--splitting richardson:nan", "invalid factor nan of richardson:W"),
        (walk, "--splitting given", "random walks would diverge"),
        (walk, "--row-order size", "[possible values: value, index]"),
        (
            walk,
            "--control -1",
            "invalid control variate '-1': expected auto, none, jacobi, krylov or a number",
        ),
        (walk, "--groups 0", "--groups 0 is out of range: expected 1 to 65535"),
        (walk, "--group-size 33", "invalid --group-size 33: expected 32, 64, 128, 256, 512 or 1024"),
        (walk, "--seed -1", "invalid value '-1' for '--seed"),
        (walk, "-o x.npy", "'.npy' is no format of components"),
        (walk, "-b b.txt", "the right-hand side has 2 entries, but the matrix 25 rows"),
        (walk, "--lazy --sweeps 3", "is not supported with --lazy, which prepares nothing"),
        (
            "walk poisson2d:5,0.8 --device cpu --component 3",
            "--chains 0",
            "--chains 0 is out of range: expected 1 to",
        ),
        ("walk poisson2d:5,0.8 --device cpu --component 3", "--chains -4", "invalid number of chains '-4'"),
        ("walk poisson2d:5,0.8 --device cpu", "--component 25", "they are 0 to 24"),
        ("walk poisson2d:5,0.8 --device cpu", "--component 3-1", "the range 3-1 runs backwards"),
        ("walk poisson2d:5,0.8 --device cpu", "--component ,", "invalid entry ''"),
        ("walk poisson2d:5,0.8 --device cpu", "--component -1", "invalid entry '-1'"),
        ("walk poisson2d:5,0.8 --device cpu", "", "--component <I,J,K-L>"),
        (tridiagonal, "--block 2", "a block has 3 to 1024 rows"),
        (tridiagonal, "--block -1", "'-1' is no block"),
        (tridiagonal, "--interface cpu", "[possible values: host, device, auto]"),
        (tridiagonal, "--pivot full", "[possible values: none, scaled, auto]"),
        (tridiagonal, "--refine -1", "'-1' is no number of corrections; give auto or 0 to 100"),
        (tridiagonal, "--tolerance 0", "--tolerance 0 must lie between 0 and 1"),
        (tridiagonal, "--tolerance nan", "--tolerance NaN must lie between 0 and 1"),
        (tridiagonal, "--seed 1.5", "invalid value '1.5' for '--seed"),
        (tridiagonal, "-o x.xyz", "'.xyz' is no format of unknowns"),
        (tridiagonal, "-b b.txt", "b"),
        ("devices", "--format yaml", "[possible values: text, json]"),
        ("tune --device cpu", "--max-size 10", "--max-size 10 leaves 0 of the sizes"),
        ("tune --device cpu", "--max-lanes 0", "give --max-lanes, 1 or more"),
        ("tune --device cpu", "--repeat 0", "--repeat, 1 or more"),
        ("tune --device cpu", "--repeat -1", "invalid value '-1' for '--repeat"),
        ("tune --device cpu", "--lanes 2", "tune measures 1, 2, 4"),
        ("generate tandem:5", "", "--output <FILE>"),
        ("generate tandem:5", "-o m.xyz", "'.xyz' is no format of chains; use"),
        ("generate tandem:5", "-o g.tra --rhs b.npy", "leave out --rhs"),
        ("generate poisson2d:4,0.9", "-o a.mtx --rhs b.xyz", "'.xyz' is no format of right-hand sides"),
        ("generate random:9", "-o m.tra", "'.tra' is no format of tridiagonal systems"),
        ("generate nothing:5", "-o m.tra", "'nothing:5' is no built-in model"),
        ("generate tandem:0", "-o m.tra", "must be a whole number from 1"),
        ("generate wlan:3", "-o m.tra", "wlan:3"),
        ("generate birth-death:3,-1,2", "-o m.tra", "LAMBDA"),
        ("generate poisson2d:3,2", "-o m.mtx", "RHO"),
        (bench, "--repeat 0", "--repeat 0 measures nothing"),
        (bench, "--time -1", "invalid time -1: expected a number ≥ 0"),
        (bench, "--time nan", "invalid time NaN: expected a number ≥ 0"),
        (bench, "--epsilon 0", "invalid --epsilon 0: expected a number between 0 and 1"),
        (bench, "--theta 0", "--theta 0 must be a finite number above 0"),
        (bench, "--theta inf", "--theta inf must be a finite number above 0"),
        ("bench spmv tandem:5 --device cpu", "--halo-depth 0", "'0' is no number of steps"),
        ("bench spmv tandem:5 --device cpu", "--repeat 0", "--repeat 0 measures nothing"),
        ("bench walk --device cpu", "--repeat 0", "--repeat 0 measures nothing"),
        ("bench tridiagonal random:100 --device cpu", "--repeat 0", "--repeat 0 measures nothing"),
        ("bench transfer --device cpu", "--repeat 0", "--repeat 0 measures nothing"),
        ("bench transfer --device cpu", "--size 0", "'0' is no size"),
        (table, "--sizes 0", "must be a whole number from 1"),
        (table, "--times -1", "-1"),
        (table, "--epsilon 0", "--epsilon 0 must lie between 0 and 1"),
        (table, "--theta 0", "--theta 0 between 0 and 700"),
        ("completions", "csh", "[possible values: bash"),
        ("manual", "no/@", "there is no such folder"),
        ("nothing", "", "unrecognized subcommand 'nothing'"),
        ("bench nothing", "", "unrecognized subcommand 'nothing'"),
    ];
    println!("{} values", cases.len());
    each(&cases, |(line, option, said)| refused(&format!("{line} {option}"), said));
}
