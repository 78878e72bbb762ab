//! Properties of the repository.
//!
//! * `unsafe` is limited to few modules. Clippy demands a SAFETY comment for each block.
//! * Layers of the library use lower ones.
//! * Licences of dependencies are accepted.
//! * The library does not depend on crates of the command line.
//! * The package is complete.
//!
//! These tests run cargo, which is missing if the test program was moved to another machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

use crate::devices::skip;
use crate::words::{File, repository};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the output of cargo; without the repository, the test is skipped with a message.
fn cargo(arguments: &str) -> Option<String> {
    let Some(cargo) = std::env::var_os("CARGO").filter(|_| root().join("Cargo.toml").exists()) else {
        skip("sources", "no cargo here");
        return None;
    };
    let output = Command::new(cargo)
        .args(arguments.split_whitespace())
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo {arguments}\n{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

/// A module that uses `unsafe` expects the lint `unsafe_code`, which is denied everywhere else.
#[test]
fn unsafe_code_is_in_few_modules() {
    const PLACES: &str = "src/kernel/cpu src/lane src/parallel src/util/memory.rs src/util/started.rs \
                          crates/kolmo-cli/src/main.rs";

    let Some(files) = repository() else { return };
    let source = |file: &&File| ["src/", "crates/"].iter().any(|folder| file.path.starts_with(folder));
    let expects = |file: &&File| file.text.contains("unsafe_code,");
    let modules: Vec<&str> = files.iter().filter(source).filter(expects).map(|file| &file.path[..]).collect();
    assert!(modules.len() > 5, "{modules:?}");
    for path in modules {
        assert!(PLACES.split(' ').any(|place| Path::new(path).starts_with(place)), "{path} has unsafe code");
    }
}

/// Folders and files of `src/` from the top down, in the order of ARCHITECTURE.md.
const LAYERS: [&str; 11] = [
    "bench internals registry settings",
    "io",
    "models",
    "pagerank transient tridiagonal walk",
    "machine sparse",
    "ranks",
    "lane numerics output",
    "kernel",
    "parallel",
    "util",
    "error",
];

/// Unit tests, at the end of a file, may use any layer.
#[test]
fn code_uses_lower_layers_of_the_library_only() {
    let Some(files) = repository() else { return };
    let layer = |name: &str| LAYERS.iter().position(|names| names.split(' ').any(|one| one == name));
    let uses = Regex::new(r"\bcrate::(\w+|\{[\w, ]+\})").expect("a pattern");
    let mut checked = 0;
    for File { path, text } in files.iter().filter(|file| !file.path.ends_with("tests.rs")) {
        let Some(own) = path.strip_prefix("src/").and_then(|path| path.split(['/', '.']).next()) else {
            continue;
        };
        let Some(above) = layer(own) else { continue };
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = uses.captures_iter(line).map(|found| found.extract::<1>().1[0]);
            for used in found.flat_map(|names| names.split(['{', ',', ' ', '}'])) {
                let used = if ["Error", "Limit", "Result"].contains(&used) { "error" } else { used };
                if let Some(below) = layer(used).filter(|_| used != own) {
                    assert!(below > above, "{path}: {own} uses {used}, which is not in a lower layer");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 300, "{checked} uses");
}

#[test]
#[ignore = "slow: asks cargo of every dependency"]
fn every_dependency_offers_a_licence_that_is_accepted() {
    let Some(text) = cargo("metadata --format-version 1 --locked --all-features") else { return };
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let list = deny.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    let accepted: BTreeSet<&str> = list.split(',').map(|name| name.trim().trim_matches('"')).collect();
    assert!(accepted.contains("MIT") && accepted.len() < 12, "{accepted:?}");
    let metadata: Value = serde_json::from_str(&text).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "{} packages", packages.len());
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
            .unwrap_or_else(|e| panic!("{name}: {licence}: {e}"));
        let own = package["name"].as_str().unwrap_or("");
        let exception = deny.lines().find(|line| line.contains(&format!("crate = \"{own}\"")));
        let fine = expression.evaluate(|one| match &one.license {
            spdx::LicenseItem::Spdx { id, .. } => {
                let quoted = format!("\"{}\"", id.name);
                accepted.contains(id.name) || exception.is_some_and(|line| line.contains(&quoted))
            }
            _ => false,
        });
        assert!(fine, "{name} is under {licence}; accepted are {accepted:?}");
        let source = package["source"].as_str().unwrap_or("");
        assert!(source.is_empty() || source.starts_with("registry+"), "{name} comes from {source}");
    }
    println!("{} packages", packages.len());
}

#[test]
#[ignore = "slow: asks cargo of every dependency"]
fn the_library_has_no_dependency_of_the_command_line() {
    const COMMAND: &str =
        "clap clap_builder indicatif anstream ctrlc comfy-table console terminal_size crossterm";
    let tree = "tree --locked -e normal --prefix none";
    for features in ["", "wgpu", "cuda", "wgpu,cuda"] {
        let line = format!("{tree} -p kolmo --no-default-features --features={features}");
        let Some(tree) = cargo(&line) else { return };
        let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains("kolmo") && names.contains("rayon"), "{features}: {names:?}");
        for name in COMMAND.split(' ') {
            assert!(!names.contains(name), "the features '{features}' bring {name}");
        }
    }
    let Some(tree) = cargo(&format!("{tree} -p kolmo-cli")) else { return };
    assert!(tree.lines().any(|line| line.starts_with("clap ")), "the search finds what it is for");
}

#[test]
#[ignore = "slow: asks cargo of every dependency"]
fn the_package_has_all_that_it_needs() {
    let Some(list) = cargo("package -p kolmo-core --list --allow-dirty --locked") else { return };
    let packed: BTreeSet<&str> = list.lines().collect();
    const EACH: &str = "LICENSE-MIT LICENSE-APACHE README.md Cargo.lock";
    for name in EACH.split(' ').chain(["Cargo.toml", "CHANGELOG.md", "src/lib.rs"]) {
        assert!(packed.contains(name), "{name} is missing");
    }
    for package in ["kolmo", "kolmo-check", "kolmo-cli", "kolmo-model"] {
        let line = format!("package -p {package} --list --allow-dirty --locked");
        let Some(list) = cargo(&line) else { return };
        for name in EACH.split(' ') {
            assert!(list.lines().any(|line| line == name), "{package}: {name} is missing");
        }
    }
    let mut shaders = 0;
    let folder = |name: &str| fs::read_dir(root().join(name)).expect("the kernels");
    for entry in folder("shaders").chain(folder("shaders/lib")) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let name = path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
        assert!(packed.contains(&name[..]), "{name} is missing");
        shaders += 1;
    }
    assert!(shaders > 20, "{shaders} kernels");
    // Files that sources include are packed, too.
    let here = root().canonicalize().expect("a folder");
    let Some(files) = repository() else { return };
    let source = |file: &&File| ["src/", "tests/library/"].iter().any(|folder| file.path.starts_with(folder));
    for File { path, text } in files.iter().filter(source).filter(|file| file.path.ends_with(".rs")) {
        assert!(packed.contains(&path[..]), "{path} is missing");
        for part in text.split("include_str!(\"").chain(text.split("include_bytes!(\"")).skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            let target = root().join(path).parent().expect("a folder").join(name);
            if let Some(target) = target.canonicalize().ok().filter(|_| name.contains('.')) {
                let target = target.strip_prefix(&here).expect("inside");
                assert!(packed.contains(&*target.to_string_lossy()), "{} is missing", target.display());
            }
        }
    }
    for folder in [".ci/", ".github/", "crates/", "target/"] {
        assert!(!packed.iter().any(|name| name.starts_with(folder)), "{folder} is packed");
    }
}
