//! Shader files, and code that several kernels share.

use super::*;

/// Returns the differences between a folder of shaders and the registered kernels.
fn differences(folder: &Path, kernels: &[&Kernel]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        // Folders hold code that kernels share.
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_suffix(".wgsl").and_then(|stem| kernels.iter().find(|k| k.name == stem)) {
            None => wrong.push(format!("shaders/{name} is no registered kernel")),
            Some(kernel) => {
                let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                if !kernel.wgsl.starts_with(&text) {
                    let kernel = kernel.name;
                    wrong
                        .push(format!("kernel {kernel} is registered with another text than shaders/{name}"));
                }
                found.insert(kernel.name);
            }
        }
    }
    let missing = kernels.iter().filter(|k| !found.contains(k.name));
    wrong.extend(missing.map(|k| format!("kernel {} is registered without shaders/{}.wgsl", k.name, k.name)));
    wrong
}

/// Returns `shaders/` of this checkout.
fn shaders() -> Option<PathBuf> {
    crate::support::above("shaders/lib").and_then(|path| path.parent().map(Path::to_owned))
}

#[test]
fn every_file_in_shaders_is_a_kernel_that_is_registered_once() {
    let kernels = all();
    if let Some(folder) = shaders() {
        assert_eq!(differences(&folder, &kernels), Vec::<String>::new());
    }
    let names: BTreeSet<_> = kernels.iter().map(|k| k.name).collect();
    assert_eq!(names.len(), kernels.len(), "{names:?}");
}

/// Returns the variants of a kernel's text that use different shared code.
fn texts(kernel: &Kernel) -> Vec<String> {
    let fixed = kernel.has(Precision::Q64).then(|| [kernel.text(Precision::Q64), kernel.text_in_limbs()]);
    fixed.into_iter().flatten().chain([kernel.wgsl.to_owned()]).collect()
}

#[test]
fn code_in_the_library_is_shared() {
    let Some(folder) = shaders() else { return };
    let kernels = all();
    for entry in fs::read_dir(folder.join("lib")).expect("shaders/lib can be read") {
        let path = entry.expect("shaders/lib can be read").path();
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let users = kernels.iter().filter(|k| texts(k).iter().any(|own| own.contains(&text))).count();
        assert!(users > 1, "{} is used by {users} kernels", path.display());
    }
}

/// Compares constants in the texts of kernels with those of the host.
#[test]
fn numbers_that_host_and_kernel_share_are_equal() {
    use kolmo::internals::{EXPONENTIAL_TERMS, SWEEP_ROWS};
    use kolmo::sparse::patterns::MOST_VALUES;
    use kolmo::tridiagonal::kernels::tiles::{TILE, UNIT};
    use kolmo::tridiagonal::kernels::windows::WINDOW_ROWS;

    let (rows, threads) = (TILE / Kernel::GROUP as usize, UNIT * Kernel::GROUP as usize / TILE);
    assert_eq!(threads * rows, UNIT, "threads of a unit");
    for (name, before, number) in [
        ("step_pattern", "const MOST_VALUES = ", MOST_VALUES),
        ("sweep", "let to = ", SWEEP_ROWS),
        ("exponential", "var scale = coefficients[", EXPONENTIAL_TERMS - 1),
        ("exponential", "return coefficients[", EXPONENTIAL_TERMS - 1),
        ("sweep", "var<workgroup> state: array<real, ", 2 * SWEEP_ROWS),
        ("tridiagonal_reduce", "const ROWS: u32 = ", rows),
        ("tridiagonal_solve", "const ROWS: u32 = ", rows),
        ("tridiagonal_window", "const ROWS: u32 = ", WINDOW_ROWS / Kernel::GROUP as usize),
        ("tridiagonal_reduce", "const THREADS: u32 = ", threads),
        ("tridiagonal_solve", "const THREADS: u32 = ", threads),
    ] {
        let (_, behind) = kernel_named(name)
            .wgsl
            .split_once(before)
            .unwrap_or_else(|| panic!("shaders/{name}.wgsl does not say {before:?}"));
        let end = behind.find(|c: char| !c.is_ascii_digit()).expect("more than a number");
        assert_eq!(behind[..end].parse(), Ok(number), "{before:?} in shaders/{name}.wgsl");
    }
}
