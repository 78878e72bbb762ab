//! Suggestions for misspelt names of files and built-ins.

use crate::cli::prelude::*;
use kolmo_check::meant;

/// Example arguments of the built-in chains.
pub(crate) const CHAINS: [&str; 4] =
    ["wlan:12,6", "tandem:15", "birth-death:100,1,2", "circulant:1000,-1,1,30"];
/// Example arguments of the built-in linear systems.
pub(crate) const SYSTEMS: [&str; 3] =
    ["poisson2d:100,0.9", "poisson3d:20,0.9", "random-dominant:1000,10,0.8,positive"];
/// Example arguments of the built-in graphs.
pub(crate) const GRAPHS: [&str; 2] = ["rmat:16,8", "barabasi:100000,6"];
/// Example arguments of the built-in tridiagonal systems.
pub(crate) const TRIDIAGONAL: [&str; 6] = [
    "random:1e6",
    "toeplitz:1000,-1,4,-1",
    "laplace:1000",
    "pentadiagonal:1e6",
    "blocks:1e6",
    "biharmonic:1000",
];

/// Error if `spec` is not a file but resembles the name of a built-in.
///
/// The built-in is misspelt, lacks its parameters, or belongs to another command. `own` are the
/// built-ins of the current command.
pub(crate) fn expect_file(spec: &str, own: &[&str]) -> Result<()> {
    let name = |built_in: &'static str| built_in.split(':').next().unwrap_or(built_in);
    if Path::new(spec).exists() {
        return Ok(());
    }
    let given = spec.split(':').next().unwrap_or(spec);
    let all = [
        (&CHAINS[..], "transient"),
        (&SYSTEMS, "walk"),
        (&GRAPHS, "walk --pagerank 0.85"),
        (&TRIDIAGONAL, "tridiagonal"),
    ];
    let examples = all.iter().flat_map(|(examples, of)| examples.iter().map(move |example| (*example, *of)));
    let Some(near) = meant(given, examples.clone().map(|(example, _)| name(example))) else { return Ok(()) };
    let Some((example, of)) = examples.into_iter().find(|(example, _)| name(example) == near) else {
        return Ok(());
    };
    fail(match (near == given, own.contains(&example)) {
        (true, false) => {
            format!("{spec} is built in for `kolmo {of}`, and no file of that name is here; give it to that")
        }
        (true, true) => format!("{spec} lacks its parameters; give them as in {example}"),
        (false, _) => format!("{spec} is neither a file nor built in; did you mean {near}, as in {example}?"),
    })
}

/// Returns the path of a file that exists. `readable` are files and built-ins for the error.
pub(crate) fn existing<'a>(spec: &'a str, own: &[&str], readable: (&str, &str)) -> Result<&'a Path> {
    expect_file(spec, own)?;
    let (path, (files, built_in)) = (Path::new(spec), readable);
    if path.exists() {
        return Ok(path);
    }
    let reason = format!("there is no such file; give {files}, or a built-in: {built_in}");
    Err(Error::File { path: path.into(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_differ_in_few_letters() {
        let near = |given| meant(given, ["wlan", "tandem", "birth-death"]);
        assert_eq!(near("wlam"), Some("wlan"));
        assert_eq!(near("WLAN"), Some("wlan"));
        assert_eq!(near("brith_death"), Some("birth-death"));
        assert_eq!(near("plan.tra"), None);
        assert_eq!(near("x"), None);
    }

    #[test]
    fn every_suggested_built_in_exists() {
        assert!(CHAINS.iter().all(|spec| kolmo::models::parse(spec).is_some_and(|model| model.is_ok())));
        assert!(
            SYSTEMS.iter().all(|spec| kolmo::models::system(spec, 0).is_some_and(|system| system.is_ok()))
        );
        assert!(GRAPHS.iter().all(|spec| kolmo::models::graph(spec, 0).is_some_and(|graph| graph.is_ok())));
        assert!(TRIDIAGONAL.iter().all(|spec| {
            let made = kolmo::models::tridiagonal(spec, 0).map(|made| made.is_ok());
            made.or(kolmo::models::banded(spec, 0).map(|made| made.is_ok())) == Some(true)
        }));
    }
}
