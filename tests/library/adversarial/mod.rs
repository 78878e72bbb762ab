//! Problems made to break an engine, by the hundred, against independent references in double-word arithmetic.
//!
//! Each kind of problem is run for a few seeds; `KOLMO_SEEDS=5000` runs as many of each kind, `KOLMO_FIRST_SEED=17`
//! begins there, and both together run one case again. A failure names kind and seed.

mod double_word;
mod transient;
mod tridiagonal;
mod walk;

/// The seeds of each kind: `usual` of them, unless the environment asks for another number.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let asked = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is '{text}'; give a number")))
    };
    let first = asked("KOLMO_FIRST_SEED").unwrap_or(0);
    first..first + asked("KOLMO_SEEDS").unwrap_or(usual)
}

/// Runs every kind for its seeds on all cores; panics with the first ten failures, and how many there were.
fn run_all<K: Copy + Send + Sync + std::fmt::Debug>(
    kinds: &[K],
    usual: u64,
    case: impl Fn(K, u64) -> Result<(), String> + Sync,
) {
    use rayon::prelude::*;

    let all: Vec<(K, u64)> = kinds.iter().flat_map(|&kind| seeds(usual).map(move |s| (kind, s))).collect();
    let one =
        |&(kind, seed): &(K, u64)| case(kind, seed).err().map(|e| format!("{kind:?}, seed {seed}: {e}"));
    let failures: Vec<String> = all.par_iter().filter_map(one).collect();
    let shown: Vec<&str> = failures.iter().take(10).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), all.len(), shown.join("\n"));
}
