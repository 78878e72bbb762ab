//! Rules for comments and documents that a program can check: first words, worn phrases, widths,
//! lengths of sentences, and names in documents that the code has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::devices::skip;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Widest line of a comment or of a document's text.
const COLUMNS: usize = 100;

/// Longest sentence in words, and the share of a document's sentences that may be longer.
const WORDS: usize = 30;
const LONG: f64 = 0.1;

/// Minimum number of a document's sentences for which the share of long ones is checked.
const SENTENCES: usize = 20;

/// First words of a doc comment that defer its noun or verb.
const FIRST: &str =
    r"^(What|Whether|Where|Of|How|As|Those|That|The same|Which|Whatever|Whoever|None yet|In the same)\b";

/// Phrases that stand for a term of the field, or for a person that is not the user.
const WORN: &str = r"(?i)\b(nobody|everybody|somebody|whoever|let go of|in the place of|in their place|at hand|so many|by and by|of one's own|ways? out|can (still )?be left|never left|way ahead|is no (time|number|file|length|size|state|memory|splitting|matrix)|lives? with|asks? nothing|stands? (in|where|for itself)|looks? (whether|at whether)|foretold|anew|one behind the other|has nothing to say|comes to nothing|is let|told of|errs by|rounds by)\b";

/// Names of other projects in documents.
const FOREIGN: [&str; 4] = ["device_from_raw", "MAX_COUNT", "MPI_Abort", "gtsv2_nopivot"];

/// A text file of the repository, with its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Text files below a folder.
fn files(folder: &Path, all: &mut Vec<File>) {
    const LEFT_OUT: [&str; 5] = ["target", "node_modules", "data", "proptest-regressions", "words.rs"];
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if LEFT_OUT.contains(&&*name) || name.starts_with('.') || path.ends_with("tests/models") {
            continue;
        }
        if path.is_dir() {
            files(&path, all);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(ROOT).expect("a file of the repository").to_string_lossy();
            all.push(File { path: path.into_owned(), text });
        }
    }
}

/// All text files of the repository; none, with a message, where the test runs apart from it.
pub(crate) fn repository() -> Option<Vec<File>> {
    let mut all = Vec::new();
    if Path::new(ROOT).join("Cargo.toml").exists() {
        files(Path::new(ROOT), &mut all);
    }
    if all.is_empty() {
        skip("sources", "no sources here");
        return None;
    }
    assert!(all.len() > 300, "{} files", all.len());
    Some(all)
}

impl File {
    fn ends_with(&self, ends: &[&str]) -> bool {
        ends.iter().any(|end| self.path.ends_with(end))
    }

    fn is_document(&self) -> bool {
        self.ends_with(&[".md"])
    }

    /// Numbers of lines, the lines, and the text of their comments without code in backticks.
    fn comments(&self) -> Vec<(usize, &str, String)> {
        let mark = if self.ends_with(&[".rs", ".wgsl", ".cuh", ".js", ".mjs"]) {
            r"^\s*//[/!]?\s?(.*)$"
        } else if self.ends_with(&[".py", ".sh", ".toml"]) {
            r"^\s*#\s?(.*)$"
        } else {
            return Vec::new();
        };
        let (mark, code) = (Regex::new(mark).expect("valid"), Regex::new("`[^`]*`").expect("valid"));
        let comment = |(number, line)| {
            let found = mark.captures(line)?;
            Some((number, line, code.replace_all(&found[1], "x").into_owned()))
        };
        (1..).zip(self.text.lines()).filter_map(comment).collect()
    }

    /// Numbers and lines of a document's text: no code, tables, headings or images.
    fn prose(&self) -> Vec<(usize, &str)> {
        let mut code = false;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(self.text.lines()).filter(|_| self.is_document()) {
            let start = line.trim_start();
            code ^= start.starts_with("```");
            let left_out = code || line.starts_with("    ") || start.starts_with(['|', '#', '!', '`', '<']);
            lines.push((number, if left_out { "" } else { line }));
        }
        lines
    }
}

fn expect_none(found: Vec<String>, remedy: &str) {
    assert!(found.is_empty(), "{}\n{} findings; {remedy}", found.join("\n"), found.len());
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let Some(all) = repository() else { return };
    let (first, doc) = (Regex::new(FIRST).expect("valid"), Regex::new(r"^\s*//[/!]\s?(.*)$").expect("valid"));
    assert!(first.is_match("What is counted.") && !first.is_match("Whatsoever"));
    let mut found = Vec::new();
    for file in all.iter().filter(|file| file.ends_with(&[".rs"])) {
        let mut before = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            let text = doc.captures(line);
            if let Some(text) = text.as_ref().filter(|text| !before && first.is_match(&text[1])) {
                found.push(format!("{}:{number}: {}", file.path, &text[1]));
            }
            before = text.is_some();
        }
    }
    expect_none(found, "begin with the noun of a type or value, or with the verb of a function");
}

#[test]
fn comments_and_documents_use_terms_of_the_field() {
    let Some(all) = repository() else { return };
    let worn = Regex::new(WORN).expect("valid");
    assert!(worn.is_match("Nobody looked.") && !worn.is_match("Not yet determined."));
    let mut found = Vec::new();
    for file in &all {
        let prose = file.prose().into_iter().map(|(number, line)| (number, line.to_owned()));
        let comments = file.comments().into_iter().map(|(number, _, text)| (number, text));
        for (number, text) in prose.chain(comments) {
            found.extend(worn.find(&text).map(|word| format!("{}:{number}: {}", file.path, word.as_str())));
        }
    }
    expect_none(found, "CONTRIBUTING.md names the terms");
}

#[test]
fn comments_and_documents_keep_to_100_columns() {
    let Some(all) = repository() else { return };
    let link = Regex::new(r"https?://|\]\(").expect("valid");
    let mut found = Vec::new();
    for file in &all {
        let prose = file.prose().into_iter().filter(|(_, line)| !link.is_match(line));
        // Rows of tables have no line breaks.
        let comments = file.comments().into_iter().filter(|(_, _, text)| !text.trim_start().starts_with('|'));
        let comments = comments.map(|(number, line, _)| (number, line));
        let wide = prose.chain(comments).map(|(number, line)| (number, line.chars().count()));
        let wide = wide.filter(|&(_, columns)| columns > COLUMNS);
        found.extend(wide.map(|(number, columns)| format!("{}:{number}: {columns} columns", file.path)));
    }
    expect_none(found, "wrap them");
}

#[test]
fn sentences_of_documents_are_short() {
    let Some(all) = repository() else { return };
    let (end, word) =
        (Regex::new(r"[.!?:]\s").expect("valid"), Regex::new(r"[A-Za-z][A-Za-z'’-]*").expect("valid"));
    let (code, target) = (Regex::new("`[^`]*`").expect("valid"), Regex::new(r"\]\([^)]*\)").expect("valid"));
    let mut found = Vec::new();
    for file in all.iter().filter(|file| file.is_document()) {
        let text: Vec<&str> = file.prose().into_iter().map(|(_, line)| line).collect();
        let text = text.join("\n");
        let text = target.replace_all(&text, "]");
        let text = code.replace_all(&text, "x");
        let sentences = text.split("\n\n").flat_map(|paragraph| end.split(paragraph));
        let lengths: Vec<usize> = sentences.map(|s| word.find_iter(s).count()).filter(|&n| n >= 3).collect();
        let long = lengths.iter().filter(|&&n| n > WORDS).count();
        if lengths.len() >= SENTENCES && long as f64 > LONG * lengths.len() as f64 {
            found.push(format!("{}: {long} of {} sentences above {WORDS} words", file.path, lengths.len()));
        }
    }
    expect_none(found, "divide them: one idea a sentence");
}

#[test]
fn names_in_documents_exist() {
    let Some(all) = repository() else { return };
    let (code, word) =
        (Regex::new("`([^`\n]+)`").expect("valid"), Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").expect("valid"));
    let name = Regex::new(r"^[A-Za-z_][A-Za-z0-9_]*((::|\.)[A-Za-z_][A-Za-z0-9_]*)*(\(\))?$").expect("valid");
    let file_name = Regex::new(r"^[\w./-]+\.(rs|wgsl|py|sh|md|mjs)$").expect("valid");
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for file in all.iter().filter(|file| !file.is_document()) {
        words.extend(word.find_iter(&file.text).map(|found| found.as_str()));
    }
    let mut found = Vec::new();
    for file in all.iter().filter(|file| file.is_document()) {
        for (number, line) in file.prose() {
            for quoted in code.captures_iter(line) {
                let quoted = &quoted[1];
                // NAME stands for any name.
                if quoted.contains("NAME") || FOREIGN.contains(&quoted) {
                    continue;
                }
                if file_name.is_match(quoted) {
                    let at_end = |f: &File| f.path == quoted || f.path.ends_with(&format!("/{quoted}"));
                    if quoted.contains('/') && !quoted.starts_with('.') && !all.iter().any(at_end) {
                        found.push(format!("{}:{number}: no file {quoted}", file.path));
                    }
                } else if name.is_match(quoted) && quoted.contains(['_', ':']) {
                    let missing = word.find_iter(quoted).find(|part| !words.contains(part.as_str()));
                    found.extend(missing.map(|part| format!("{}:{number}: {}", file.path, part.as_str())));
                }
            }
        }
    }
    expect_none(found, "no code has these names");
}
