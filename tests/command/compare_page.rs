//! `kolmo bench compare`: its lines, its table, and its page, which is compared with the lines.

use std::collections::BTreeMap;

use crate::support::{Place, RECORD, float, has};
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

/// The devices of the test: a software adapter as well if it is required.
fn devices() -> &'static str {
    if crate::devices::required("wgpu:0") { "cpu,wgpu:0" } else { "cpu" }
}

fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).expect("the page is well-formed")
}

fn elements<'a, 'b>(node: Node<'a, 'b>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    node.descendants().filter(move |n| n.has_tag_name(tag))
}

fn attribute(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name)
        .and_then(|v| v.parse().ok())
        .unwrap_or_else(|| panic!("no number '{name}' in {node:?}"))
}

#[test]
#[ignore = "slow: measures"]
fn the_page_shows_the_lines_and_loads_nothing() {
    let place = Place::new();

    // Copies are measured on as much memory as is available.
    let run = place.ok(&format!(
        "bench compare --size tiny --repeat 1 --device {} --memory-limit 100MiB --report lines.json --html page.html",
        devices()
    ));

    let (lines, html) = (place.json_lines("lines.json"), place.text("page.html"));
    the_lines_keep_the_contract(&lines);
    let page = parse(&html);
    let root = page.root_element();
    nothing_comes_from_elsewhere(root, &html);
    the_cells_are_the_lines(root, &lines);
    the_bars_are_the_lines(root, &lines);
    the_conclusion_is_first(root);
    for words in ["error", "speed", "1 ×"] {
        assert!(run.stdout.contains(words), "{}", run.stdout);
    }
}

fn the_lines_keep_the_contract(lines: &[Value]) {
    let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in lines {
        has(line, RECORD);
        let number = |key: &str| float(line, key);
        assert!(number("seconds.min") <= number("seconds.median") && number("seconds.min") > 0.0, "{line}");
        assert!(number("speed") > 0.0, "{line}");
        // All of this work is in double precision; the coarsest results are from 16 chains.
        assert!(number("relative_error") >= 0.0 && number("relative_error") < 1.0, "{line}");
        let exact = matches!(line["part"].as_str(), Some("step" | "transient" | "tridiagonal"));
        assert!(!exact || number("relative_error") < 1e-6, "{line}");
        parts.entry(line["part"].as_str().unwrap()).or_default().push(line["spec"].as_str().unwrap());
    }
    let specs: Vec<&str> = devices().split(',').collect();
    for part in ["step", "transient", "walk", "tridiagonal", "transfer", "figures"] {
        for spec in &specs {
            assert!(parts[part].contains(spec), "{spec} has no line of {part}");
        }
    }
}

fn nothing_comes_from_elsewhere(root: Node<'_, '_>, html: &str) {
    for node in root.descendants() {
        for name in ["src", "href", "srcset", "data", "action", "poster"] {
            if let Some(value) = node.attribute(name) {
                assert!(value.starts_with("data:") || value.starts_with('#'), "{name}=\"{value}\"");
            }
        }
        assert!(!node.attributes().any(|a| a.name().starts_with("on")), "a script in {node:?}");
    }
    for script in elements(root, "script") {
        assert_eq!(script.attribute("type"), Some("application/json"));
    }
    for word in ["http:", "https:", "@import", "url("] {
        assert!(!html.contains(word), "the page has {word}");
    }
}

/// Returns the seconds that a page prints, and half a unit of the last digit.
fn written_seconds(text: &str) -> Option<(f64, f64)> {
    let (number, unit) = text.rsplit_once(' ')?;
    let (scale, digit) = match unit {
        "µs" => (1e-6, 0.5),
        "ms" => (1e-3, 0.05),
        "s" => (1.0, 0.005),
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * scale, digit * scale))
}

fn the_cells_are_the_lines(root: Node<'_, '_>, lines: &[Value]) {
    let script = elements(root, "script").find(|s| s.attribute("id") == Some("lines")).expect("the lines");
    let embedded: Vec<Value> = serde_json::from_str(script.text().expect("JSON")).expect("JSON");
    assert_eq!(embedded, lines);
    let (mut seen, mut seconds) = (vec![false; lines.len()], 0);
    for cell in elements(root, "td").filter(|cell| cell.has_attribute("data-value")) {
        let (index, key) = (attribute(cell, "data-line") as usize, cell.attribute("data-key").unwrap());
        let value = float(&lines[index], key);
        assert_eq!(attribute(cell, "data-value"), value, "{key} of line {index}");
        if let Some((written, digit)) = written_seconds(cell.text().unwrap()) {
            assert!((written - value).abs() <= 1.001 * digit, "{:?} is not {value}", cell.text());
            seconds += 1;
        }
        seen[index] = true;
    }
    assert!(seconds >= lines.len() / 2, "{seconds} times in the tables of {} lines", lines.len());
    for (line, seen) in lines.iter().zip(seen) {
        assert!(seen, "the page does not show {line}");
    }
}

/// Each median has a bar, whose length is the speed relative to the fastest line of its case.
fn the_bars_are_the_lines(root: Node<'_, '_>, lines: &[Value]) {
    for bar in elements(root, "i") {
        let cell = bar.parent().expect("a cell");
        // Published rows have no line.
        let Some(index) = cell.attribute("data-line") else { continue };
        let line = &lines[index.parse::<usize>().expect("an index")];
        let same = lines.iter().filter(|l| ["case", "part", "figure"].iter().all(|key| l[key] == line[key]));
        let fastest = same.map(|l| float(l, "seconds.median")).fold(f64::INFINITY, f64::min);
        let width = bar.attribute("style").and_then(|s| s.strip_prefix("width:")?.strip_suffix('%'));
        let width: f64 = width.and_then(|w| w.parse().ok()).expect("a width");
        let exact = 100.0 * fastest / float(line, "seconds.median");
        assert!((width - exact).abs() <= 0.01, "{width} % for {line}");
    }
    assert!(elements(root, "i").count() >= lines.len());
    // The published numbers are shown for comparison.
    let text: String = root.descendants().filter(Node::is_text).filter_map(|n| n.text()).collect();
    // The CPU has no transfers to overlap.
    let streams: &[&str] = if devices().contains(',') { &["86.8766", "0.004448", "139.8"] } else { &[] };
    for published in ["11 min 45 s", "5 min 52 s", "2012", "2015"].iter().chain(streams) {
        assert!(text.contains(published), "the page does not say {published}");
    }
}

/// The first section compares each other device in each engine, by a factor of speed.
fn the_conclusion_is_first(root: Node<'_, '_>) {
    let first = elements(root, "section").next().expect("a section");
    assert_eq!(first.attribute("id"), Some("conclusion"));
    let text: String = first.descendants().filter(Node::is_text).filter_map(|n| n.text()).collect();
    for device in devices().split(',').skip(1) {
        for part in ["Transient solutions", "Quasi-random walks", "Tridiagonal systems"] {
            let words = format!("{part}: {device} is ");
            let at = text.find(&words).unwrap_or_else(|| panic!("no '{words}' in {text}"));
            let answer = text[at..].lines().next().unwrap_or("");
            assert!(answer.contains("×") && answer.contains(" cpu ("), "{answer}");
        }
    }
    assert!(text.contains("cpu: "), "the machine is not named: {text}");
}

#[test]
#[ignore = "slow: measures"]
fn stored_lines_make_a_page_and_are_shown_next_to_another_run() {
    let place = Place::new();
    let line = "bench compare --size tiny --only transfer --device cpu --memory-limit 100MiB -q";
    let first = place.ok(&format!("{line} --report a.json --html a.html"));

    let run = place.ok("bench compare --from a.json --html b.html --report b.json");

    assert_eq!(run.stdout, first.stdout);
    assert_eq!(place.json_lines("a.json"), place.json_lines("b.json"));
    let cells = |name: &str| -> Vec<String> {
        let html = place.text(name);
        let page = parse(&html);
        let cells = elements(page.root_element(), "td");
        cells.filter_map(|td| td.attribute("data-value").map(str::to_owned)).collect()
    };
    assert_eq!(cells("a.html"), cells("b.html"));

    let run = place.ok(&format!("{line} --with a.json --html page.html"));

    assert!(run.stdout.contains("cpu in a") && run.stderr.is_empty(), "{}{}", run.stdout, run.stderr);
    let html = place.text("page.html");
    let page = parse(&html);
    assert!(elements(page.root_element(), "td").any(|cell| cell.text() == Some("cpu in a")));
}
