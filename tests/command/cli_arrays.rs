//! `-o FILE.npz`: several arrays in one file, as `numpy.load` reads them.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use crate::support::{Place, TWO, npy, two};

/// Returns the members of an archive by name, each with header and data.
fn members(place: &Place, name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(place.get(name))).expect("an archive");
    let mut all = BTreeMap::new();
    for k in 0..archive.len() {
        let mut member = archive.by_index(k).expect("a member");
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).expect("a member's bytes");
        all.insert(member.name().expect("UTF-8").trim_end_matches(".npy").to_owned(), bytes);
    }
    all
}

/// Returns the doubles of a member, and asserts its shape.
#[track_caller]
fn floats(members: &BTreeMap<String, Vec<u8>>, name: &str, shape: &str) -> Vec<f64> {
    let (found, values) = npy(&members[name]);
    assert_eq!(found, shape, "{name}");
    values
}

fn keys(members: &BTreeMap<String, Vec<u8>>) -> Vec<&str> {
    members.keys().map(String::as_str).collect()
}

#[test]
fn a_run_over_times_is_one_archive() {
    let place = Place::new();
    place.put("two.tra", TWO).put("two.srew", "2 1\n1 3\n");

    place.transient("two.tra --time 0.1,0.2,0.4 --rewards two.srew -o p.npz");

    let all = members(&place, "p.npz");
    assert_eq!(keys(&all), ["bound", "cumulative", "instantaneous", "probabilities", "rewards", "times"]);
    assert_eq!(floats(&all, "times", "3,"), [0.1, 0.2, 0.4]);
    let p = floats(&all, "probabilities", "3, 2");
    let bound = floats(&all, "bound", "3,");
    let instantaneous = floats(&all, "instantaneous", "3, 1");
    for (k, t) in [0.1, 0.2, 0.4].into_iter().enumerate() {
        let exact = two(t);
        let off = (p[2 * k] - exact[0]).abs() + (p[2 * k + 1] - exact[1]).abs();
        assert!(off <= bound[k] && bound[k] < 1e-9, "{off} at {t}, bound {}", bound[k]);
        approx::assert_abs_diff_eq!(instantaneous[k], 3.0 * p[2 * k + 1], epsilon = 1e-8);
    }
}

#[test]
fn selections_are_arrays_with_their_names() {
    let place = Place::new();
    place.put("two.tra", TWO).put("two.lab", "0=\"init\" 1=\"däwn\"\n0: 0\n1: 1\n");

    place.transient("two.tra --time 0.1,0.2 --label init --label däwn -o l.npz");
    place.transient("two.tra --time 0.1,0.2 --states 1 -o s.npz");
    place.transient("two.tra --time 0.1,9 --top 1 -o t.npz");

    let all = members(&place, "l.npz");
    let text = &all["labels"];
    let name: Vec<u8> = "däwn".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    assert!(text.ends_with(&name) && String::from_utf8_lossy(text).contains("'<U4'"));
    let labels = floats(&all, "values", "2, 2");
    let all = members(&place, "s.npz");
    let states = floats(&all, "values", "2, 1");
    assert_eq!([labels[1], labels[3]], states[..]);
    assert_eq!(all["states"][all["states"].len() - 8..], 1i64.to_le_bytes());
    // The most likely state changes.
    let all = members(&place, "t.npz");
    let bytes = &all["states"];
    assert_eq!(bytes[bytes.len() - 16..], [0i64.to_le_bytes(), 1i64.to_le_bytes()].concat());
}

#[test]
fn components_of_walks_are_arrays() {
    let place = Place::new();
    for output in ["x.npz", "x.csv"] {
        let line = "walk random-dominant:50,4,0.8,positive --component 3,7 --epsilon 1e-3";
        place.ok(&format!("{line} -o {output}"));
    }

    let all = members(&place, "x.npz");
    assert_eq!(keys(&all), ["chains", "component", "estimate", "half_width", "length", "rhs"]);
    let estimates = floats(&all, "estimate", "2,");
    let table = place.text("x.csv");
    for (row, estimate) in table.lines().skip(1).zip(estimates) {
        assert_eq!(row.split(',').nth(1).and_then(|x| x.parse().ok()), Some(estimate), "{row}");
    }
}
