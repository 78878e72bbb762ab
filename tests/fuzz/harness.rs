//! Fuzz targets, one function each: bytes from a user, a disk or a shader's author.
//!
//! A target asserts properties that hold for any input. `tests/library/fuzz.rs` runs the targets a
//! fixed number of times with the tests; cargo-fuzz runs them in `fuzz/`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kolmo::Error;
use kolmo::transient::ChainFile;

/// A function of arbitrary bytes, which panics if a property does not hold.
pub(crate) type Target = fn(&[u8]);

/// Lists the targets with their names.
macro_rules! targets {
    ($($(#[$feature:meta])? $target:ident)*) => {
        pub(crate) const TARGETS: &[(&str, Target)] = &[$($(#[$feature])? (stringify!($target), $target)),*];
    };
}

targets! {
    tra lab srew drn mtx npy npz npz_members system_csv vector links model options tuned checkpoint
    #[cfg(feature = "cuda")] cuda
}

/// Runs a target on an input.
#[allow(dead_code, reason = "the tests call targets themselves")]
pub(crate) fn run(target: &str, bytes: &[u8]) {
    let (_, work) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    work(bytes);
}

/// Calls `work` with a file of these bytes, in a temporary directory of this process.
fn file<R>(name: &str, bytes: &[u8], work: impl FnOnce(&Path) -> R) -> R {
    thread_local! {
        static PLACE: tempfile::TempDir = {
            let memory = PathBuf::from("/dev/shm");
            let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
            place.expect("a temporary directory")
        };
    }
    PLACE.with(|place| {
        let path = place.path().join(name);
        fs::write(&path, bytes).expect("a temporary file");
        let done = work(&path);
        fs::remove_file(&path).expect("readers leave the file where it is");
        done
    })
}

/// Asserts that an error message names the file and is short.
fn named<R>(path: &Path, result: kolmo::Result<R>) -> Option<R> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = error.to_string();
            assert!(
                matches!(error, Error::OutOfMemory { .. }) || text.starts_with(&*path.to_string_lossy()),
                "'{text}' does not name the file"
            );
            assert!(text.len() < 4096, "{} characters in a message", text.len());
            None
        }
    }
}

/// Asserts the properties of a chain that was read, on which the solver relies.
fn chain(path: &Path, read: kolmo::Result<ChainFile>) -> Option<ChainFile> {
    let chain = named(path, read)?;
    let t = &chain.transitions;
    assert!(t.from.len() == t.to.len() && t.to.len() == t.rate.len());
    let n = chain.states;
    for ((from, to), rate) in t.from.iter().zip(&t.to).zip(&t.rate) {
        assert!((*from as usize) < n && (*to as usize) < n, "{from} -> {to} of {n} states");
        assert!(rate.is_finite() && *rate >= 0.0, "rate {rate}");
    }
    for (name, states) in &chain.labels.sets {
        assert!(
            states.is_sorted_by(|a, b| a < b) && states.last().is_none_or(|s| (*s as usize) < n),
            "{name}"
        );
    }
    for reward in &chain.rewards {
        assert!(reward.values.len() == n && reward.values.iter().all(|v| v.is_finite()), "{}", reward.name);
    }
    // A matrix by rows, if that takes only microseconds.
    if n <= 10_000 {
        let _ = kolmo::internals::Csr::from_list(n, t.clone());
    }
    Some(chain)
}

/// PRISM's transitions in two dialects, and a round trip through the writer.
fn tra(bytes: &[u8]) {
    file("m.tra", bytes, |path| {
        let Some(chain) = chain(path, kolmo::io::tra::read(path)) else { return };
        if chain.states > 1000 {
            return;
        }
        let Ok(matrix) = kolmo::internals::Csr::from_list(chain.states, chain.transitions) else {
            // The error names the two lines of the transition that is listed twice.
            assert!(kolmo::io::read_chain(path, None, false).is_err());
            return;
        };
        let mut written = Vec::new();
        kolmo::io::write::write_tra(&mut written, &matrix).expect("memory takes it");
        let again = kolmo::io::tra::parse(&written, path).expect("what is written is read");
        let again = kolmo::internals::Csr::from_list(again.states, again.transitions).expect("as before");
        let mut twice = Vec::new();
        kolmo::io::write::write_tra(&mut twice, &again).expect("memory takes it");
        assert!(written == twice, "a chain does not survive its file");
    });
}

/// PRISM's labels and variables for ten states.
fn lab(bytes: &[u8]) {
    file("m.lab", bytes, |path| {
        if let Some(labels) = named(path, kolmo::io::lab::read(path, 10)) {
            assert!(labels.sets.iter().all(|(_, states)| states.iter().all(|&s| s < 10)));
        }
        if let Some(names) = named(path, kolmo::io::sta::read(path, 10)) {
            assert!((0..10).all(|state| names.values(state).count() == names.variables().len()));
        }
    });
}

/// PRISM's rewards of states and of transitions for ten states.
fn srew(bytes: &[u8]) {
    file("m.srew", bytes, |path| {
        if let Some(rewards) = named(path, kolmo::io::srew::read(path, 10)) {
            assert!(rewards.iter().all(|r| r.values.len() == 10 && r.values.iter().all(|v| v.is_finite())));
        }
        for rewards in named(path, kolmo::io::trew::read(path, 10)).into_iter().flatten() {
            assert!(
                rewards.earned.iter().all(|&(from, to, reward)| from < 10 && to < 10 && reward.is_finite())
            );
        }
    });
}

fn drn(bytes: &[u8]) {
    file("m.drn", bytes, |path| {
        chain(path, kolmo::io::drn::read(path));
    });
}

/// Splits the input into pieces: a number byte, two length bytes, content.
fn pieces(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let [which, low, high, rest @ ..] = bytes {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        all.push((*which, &rest[..len]));
        bytes = &rest[len..];
    }
    all
}

/// Matrix Market files: chains, matrices, right-hand sides, tridiagonal systems.
fn mtx(bytes: &[u8]) {
    file("m.mtx", bytes, |path| {
        chain(path, kolmo::io::rate_matrix_kind::read_chain(path));
        if let Some(matrix) = named(path, kolmo::io::mtx::read_matrix(path)) {
            assert!(matrix.row.iter().all(|&i| (i as usize) < matrix.rows));
            assert!(matrix.column.iter().all(|&j| (j as usize) < matrix.columns));
            assert!(matrix.value.iter().all(|v| v.is_finite()));
            if matrix.rows <= 10_000 && matrix.columns <= 10_000 {
                named(path, kolmo::io::read_matrix(path));
                named(path, kolmo::io::tridiagonal::read(path, false, false, None));
                named(path, kolmo::io::tridiagonal::read(path, true, false, None));
            }
        }
        named(path, kolmo::io::mtx::read_columns(path));
    });
}

/// NumPy arrays as vectors, chains and right-hand sides.
fn npy(bytes: &[u8]) {
    file("m.npy", bytes, |path| {
        named(path, kolmo::io::npy::read_vector(path));
        chain(path, kolmo::io::rate_matrix_kind::read_chain(path));
        if let Some(array) = named(path, kolmo::io::tridiagonal::read_array(path)) {
            assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        }
    });
}

/// Unmodified SciPy archives as chains, matrices and tridiagonal systems.
fn npz(bytes: &[u8]) {
    file("m.npz", bytes, |path| {
        chain(path, kolmo::io::rate_matrix_kind::read_chain(path));
        named(path, kolmo::io::npz::read_matrix(path));
        named(path, kolmo::io::tridiagonal::read(path, false, false, None));
    });
}

/// A SciPy archive of members from the input, with correct checksums.
fn npz_members(bytes: &[u8]) {
    const NAMES: [&str; 9] = ["format", "shape", "indptr", "indices", "data", "dl", "d", "du", "b"];
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (which, piece) in pieces(bytes) {
        let method =
            if which & 0x80 == 0 { zip::CompressionMethod::Stored } else { zip::CompressionMethod::Deflated };
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        let name = format!("{}.npy", NAMES[usize::from(which & 0x7f) % NAMES.len()]);
        // A second member of one name is rejected.
        if archive.start_file(name, options).is_ok() {
            archive.write_all(piece).expect("memory takes it");
        }
    }
    npz(&archive.finish().expect("memory takes it").into_inner());
}

fn system_csv(bytes: &[u8]) {
    file("m.csv", bytes, |path| {
        for cyclic in [false, true] {
            named(path, kolmo::io::tridiagonal::read(path, cyclic, false, None));
        }
    });
}

/// One number per line: initial distributions and right-hand sides.
fn vector(bytes: &[u8]) {
    file("m.txt", bytes, |path| {
        if let Some(values) = named(path, kolmo::io::text::read_vector(path)) {
            assert!(values.iter().all(|v| v.is_finite()));
        }
        named(path, kolmo::io::tridiagonal::read_array(path));
        named(path, kolmo::io::read_distribution(path));
    });
}

/// Lists of edges, one per line.
fn links(bytes: &[u8]) {
    file("g.txt", bytes, |path| {
        if let Some(graph) = named(path, kolmo::io::read_graph(path, false)) {
            assert!((0..graph.nodes() as u32).all(|node| graph.node(graph.name(node)) == Some(node)));
            assert_eq!(graph.pairs().count(), graph.links());
        }
    });
}

/// Names of built-in models and systems.
///
/// Names with large parameters are skipped: they are valid, but need much memory.
fn model(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let large = |p: &str| p.trim().parse::<f64>().is_ok_and(|v| (30.0..1e17).contains(&v.abs()));
    if text.split([':', ',']).any(large) {
        return;
    }
    if let Some(Ok(model)) = kolmo::models::parse(text) {
        let n = model.transitions.states();
        assert!(n > 0 && model.initial < n, "{}", model.name);
        let again = kolmo::models::parse(&model.name).expect("a model").expect("its own name");
        assert_eq!(again.name, model.name);
        let mut row = Vec::new();
        for state in [0, n / 2, n - 1] {
            row.clear();
            model.transitions.outgoing(state, &mut row);
            assert!(row.is_sorted_by(|a, b| a.0 < b.0), "{}: {state}: {row:?}", model.name);
            assert!(row.iter().all(|&(to, rate)| (to as usize) < n && to as usize != state && rate > 0.0));
        }
    }
    if let Some(Ok(system)) = kolmo::models::system(text, 1) {
        assert_eq!(system.matrix.rows(), system.rhs.len(), "{}", system.name);
    }
    if let Some(Ok(made)) = kolmo::models::tridiagonal(text, 1) {
        assert!(!made.system.d.is_empty(), "{}", made.name);
    }
}

/// Values of options, and their round trip through text.
fn options(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(device) = text.parse::<kolmo::lane::DeviceSpec>() {
        assert_eq!(device.to_string().parse::<kolmo::lane::DeviceSpec>().ok(), Some(device));
    }
    let _ = text.parse::<kolmo::sparse::MatrixFormat>();
    let _ = text.parse::<kolmo::walk::Splitting>();
    let _ = text.parse::<kolmo::walk::ControlVariate>();
}

/// Files of measurements of `kolmo tune`.
fn tuned(bytes: &[u8]) {
    use kolmo::settings::{Key, StoredTuning, load};
    let key = Key {
        backend: "cuda".into(),
        device: "Big GPU (2)".into(),
        precision: "f64".into(),
        driver: "1.2".into(),
    };
    // Files of another version are rejected at once, so the version is inserted.
    let text = String::from_utf8_lossy(bytes).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    file("lanes-cuda-big-gpu-2-f64.json", text.as_bytes(), |path| {
        match load(path.parent().expect("a directory"), &key) {
            StoredTuning::Tuned(tuned) => {
                for n in [1, 1000, 1 << 20, usize::MAX / 64] {
                    assert!((1..=1 << 20).contains(&tuned.lanes(n)), "{} lanes for {n}", tuned.lanes(n));
                }
            }
            StoredTuning::Unusable(why) => assert!(why.contains("lanes-cuda-big-gpu-2-f64.json"), "{why}"),
            StoredTuning::Absent => panic!("the file is there"),
        }
    });
}

/// Checkpoints, unmodified and with the correct hash of the head.
fn checkpoint(bytes: &[u8]) {
    let path = Path::new("run.kept");
    named(path, kolmo::transient::checkpoint::inspect(path, bytes));
    // After the version, its length and the length of the head.
    let number = |from: usize, len: usize| -> Option<usize> {
        let mut le = [0; 8];
        le[..len].copy_from_slice(bytes.get(from..from + len)?);
        usize::try_from(u64::from_le_bytes(le)).ok().filter(|&number| number < bytes.len())
    };
    let head = number(20, 4).and_then(|version| Some(32 + version + number(24 + version, 8)?));
    if let Some(head) = head.filter(|head| head + 16 <= bytes.len()) {
        let hash = twox_hash::XxHash3_128::oneshot(&bytes[..head]);
        let right = [&bytes[..head], &hash.to_le_bytes(), &bytes[head + 16..]].concat();
        named(path, kolmo::transient::checkpoint::inspect(path, &right));
    }
}

/// Translates WGSL to CUDA C++ or rejects it.
#[cfg(feature = "cuda")]
fn cuda(bytes: &[u8]) {
    use kolmo::kernel::{Kernel, Precision};
    use kolmo::registry::all;

    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Panics of naga itself are not tested here.
    let parsed = std::panic::catch_unwind(|| {
        let module = naga::front::wgsl::parse_str(text).ok()?;
        let mut validator = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        );
        validator.validate(&module).ok().map(|_| module)
    });
    let Ok(Some(module)) = parsed else { return };
    let Some(entry) = module.entry_points.first() else { return };
    // Kernels have static lifetime.
    let kernel = Kernel {
        name: entry.name.clone().leak(),
        wgsl: text.to_owned().leak(),
        least_cuda_groups: 0,
        ..*all()[0]
    };
    for precision in [Precision::F32, Precision::F64] {
        match kolmo::kernel::cuda::translate(&kernel, precision) {
            Ok(written) => {
                let source = &written.text;
                assert!(source.matches('{').count() == source.matches('}').count(), "unbalanced: {source}");
            }
            Err(refused) => assert!(!refused.to_string().is_empty()),
        }
    }
}
