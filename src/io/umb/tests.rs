use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::io::text::tests::gzip;

/// A UMB file under construction: its index and its arrays.
struct Model {
    index: Value,
    files: Vec<(String, Vec<u8>)>,
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

impl Model {
    /// A model of three states with all arrays.
    ///
    /// 0 → 1, 2 at rate 4 (1/4, 3/4); 1 → 0 at rate 2.5 in two halves; 2 is absorbing.
    fn new() -> Self {
        let double = json!({"type": "double", "size": 64});
        let mut model = Self {
            index: json!({
                "format-version": 0,
                "format-revision": 1,
                "transition-system": {
                    "time": "stochastic", "#players": 0, "#states": 3, "#initial-states": 1, "#choices": 3,
                    "#choice-actions": 0, "#branches": 5, "#branch-actions": 0, "#observations": 0,
                    "branch-probability-type": double, "exit-rate-type": double,
                },
                "annotations": {},
            }),
            files: Vec::new(),
        };
        model.put("state-is-initial.bin", longs(&[0b010]));
        model.put("state-to-choices.bin", longs(&[0, 1, 2, 3]));
        model.put("state-to-exit-rate.bin", doubles(&[4.0, 2.5, 1.0]));
        model.put("choice-to-branches.bin", longs(&[0, 2, 4, 5]));
        model.put("branch-to-target.bin", longs(&[1, 2, 0, 0, 2]));
        model.put("branch-to-probability.bin", doubles(&[0.25, 0.75, 0.5, 0.5, 1.0]));
        model
    }

    fn put(&mut self, name: &str, bytes: Vec<u8>) {
        self.files.retain(|(known, _)| known != name);
        self.files.push((name.into(), bytes));
    }

    fn remove(&mut self, name: &str) {
        self.files.retain(|(known, _)| known != name);
    }

    fn system(&mut self, key: &str, value: Value) {
        self.index["transition-system"][key] = value;
    }

    fn annotate(&mut self, group: &str, id: &str, annotation: Value) {
        self.index["annotations"][group][id] = annotation;
    }

    fn tar(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let index = ("index.json".to_string(), self.index.to_string().into_bytes());
        for (name, bytes) in [&index].into_iter().chain(&self.files) {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn read(&self) -> Result<ChainFile, String> {
        let tar = self.tar();
        chain(&archive(&tar[..512], &tar[..])?)
    }
}

fn check(chain: &ChainFile) {
    assert_eq!(chain.states, 3);
    assert_eq!(chain.transitions.from, [0, 0, 1, 2]);
    assert_eq!(chain.transitions.to, [1, 2, 0, 2]);
    assert_eq!(chain.transitions.rate, [1.0, 3.0, 2.5, 1.0]);
    assert_eq!(chain.labels.get("init"), Some(&[1][..]));
    assert!(chain.warnings.is_empty(), "{:?}", chain.warnings);
}

#[test]
fn valuations_are_names() {
    let mut model = Model::new();
    let variable =
        |name: &str, kind: &str, size: u64| json!({"name": name, "type": {"type": kind, "size": size}});
    let class = json!({"variables": [variable("q", "uint", 2), variable("up", "bool", 1), {"padding": 5}]});
    model.index["valuations"] = json!({"states": {"unique": true, "classes": [class]}});
    model.put("valuations/states/valuations.bin", vec![0b101, 0b010, 0b011]);
    let names = model.read().unwrap().names.expect("names");
    assert_eq!([0, 1, 2].map(|s| names.name(s)), ["(q=1, up=true)", "(q=2, up=false)", "(q=3, up=false)"]);
    model.put("valuations/states/valuations.bin", vec![0b101]);
    let chain = model.read().unwrap();
    assert!(chain.names.is_none() && chain.warnings[0].contains("valuations of states are left out"));
}

fn reason(change: impl Fn(&mut Model)) -> String {
    let mut model = Model::new();
    change(&mut model);
    model.read().unwrap_err()
}

#[test]
fn plain_and_compressed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chain.umb");
    let tar = Model::new().tar();
    for bytes in [tar.clone(), gzip(&tar)] {
        fs::write(&path, bytes).unwrap();
        check(&read(&path).unwrap());
    }
    for (bytes, wanted) in [
        (gzip(&gzip(&tar)), "compressed with gzip twice"),
        (gzip(b"SL\0 is no header"), "does not contain a tar archive"),
        (b"\xfd7zXZ\0 and more".to_vec(), "xz -dc"),
        (Vec::new(), "not a UMB file"),
    ] {
        fs::write(&path, bytes).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("chain.umb: ") && message.contains(wanted), "{message}");
    }
    assert!(matches!(read(directory.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn arrays_that_may_be_left_out() {
    let mut model = Model::new();
    model.remove("state-to-choices.bin");
    check(&model.read().unwrap());
    model.remove("state-is-initial.bin");
    assert!(model.read().unwrap().labels.sets.is_empty());

    // With one branch per choice, no probabilities are needed.
    let mut model = Model::new();
    model.remove("state-to-choices.bin");
    model.remove("choice-to-branches.bin");
    model.remove("branch-to-probability.bin");
    model.system("#branches", json!(3));
    model.system("branch-probability-type", Value::Null);
    model.put("branch-to-target.bin", longs(&[1, 2, 0]));
    let chain = model.read().unwrap();
    assert_eq!(chain.transitions.to, [1, 2, 0]);
    assert_eq!(chain.transitions.rate, [4.0, 2.5, 1.0]);
}

#[test]
fn a_state_without_choice_is_absorbing() {
    let mut model = Model::new();
    model.system("#choices", json!(2));
    model.system("#branches", json!(4));
    model.put("state-to-choices.bin", longs(&[0, 1, 2, 2]));
    model.put("choice-to-branches.bin", longs(&[0, 2, 4]));
    model.put("state-to-exit-rate.bin", doubles(&[4.0, 2.5, 0.0]));
    model.put("branch-to-target.bin", longs(&[1, 2, 0, 0]));
    model.put("branch-to-probability.bin", doubles(&[0.25, 0.75, 0.5, 0.5]));
    let chain = model.read().unwrap();
    assert_eq!(chain.transitions.from, [0, 0, 1]);
    assert!(chain.warnings.is_empty());
}

#[test]
fn labels_have_their_aliases_and_the_order_of_the_index() {
    let mut model = Model::new();
    let states = json!({"applies-to": ["states"], "type": {"type": "bool"}});
    model.annotate("aps", "z-full", states.clone());
    model.annotate(
        "aps",
        "a-empty",
        json!({"alias": "queue empty", "applies-to": ["states"], "type": {"type": "bool"}}),
    );
    model.annotate("aps", "none", states.clone());
    model.annotate("aps", "number", json!({"applies-to": ["states"], "type": {"type": "double"}}));
    model.annotate("aps", "init", states);
    model.put("annotations/aps/z-full/states/values.bin", longs(&[0b101]));
    // Bits after the last state are padding.
    model.put("annotations/aps/a-empty/states/values.bin", longs(&[0b11110]));
    model.put("annotations/aps/init/states/values.bin", longs(&[0b010]));
    let chain = model.read().unwrap();
    assert_eq!(chain.labels.get("z-full"), Some(&[0, 2][..]));
    assert_eq!(chain.labels.get("queue empty"), Some(&[1, 2][..]));
    assert_eq!(chain.labels.get("none"), Some(&[][..]));
    assert_eq!(chain.labels.sets.len(), 4);
    assert_eq!(chain.warnings.len(), 1);
    assert!(chain.warnings[0].contains("number") && chain.warnings[0].contains("double"));

    // Objects keep their order when they are parsed.
    let text = r#"{"aps": {"z": {"type": {"type": "bool"}}, "a": {"type": {"type": "bool"}}}}"#;
    let annotations: index::Annotations = serde_json::from_str(text).unwrap();
    assert!(annotations.aps.keys().eq(["z", "a"]));

    model.put("annotations/aps/init/states/values.bin", longs(&[0b100]));
    let chain = model.read().unwrap();
    assert_eq!(chain.labels.get("init"), Some(&[1][..]));
    assert!(chain.warnings.iter().any(|w| w.contains("another set")), "{:?}", chain.warnings);
}

/// A cycle of more states than a thread processes at a time; each has one branch.
#[test]
fn blocks_of_states_come_in_order() {
    let n = 2 * BLOCK + 7;
    let mut model = Model::new();
    for what in ["#states", "#choices", "#branches"] {
        model.system(what, json!(n));
    }
    for name in ["state-is-initial.bin", "state-to-choices.bin", "choice-to-branches.bin"] {
        model.remove(name);
    }
    model.put("state-to-exit-rate.bin", doubles(&(0..n).map(|s| s as f64 + 1.0).collect::<Vec<_>>()));
    model.put("branch-to-target.bin", longs(&(0..n).map(|s| (s as u64 + 1) % n as u64).collect::<Vec<_>>()));
    let probability = |s: usize| if [BLOCK + 1, n - 1].contains(&s) { 0.5 } else { 1.0 };
    let probabilities: Vec<f64> = (0..n).map(probability).collect();
    model.put("branch-to-probability.bin", doubles(&probabilities));
    let read = model.read().unwrap();
    assert!(read.transitions.from.iter().copied().eq(0..n as u32));
    assert!((0..n).all(|s| read.transitions.rate[s] == (s as f64 + 1.0) * probability(s)));
    let said = format!("of 2 states do not add up to 1 (those of state {} give 0.5)", BLOCK + 1);
    assert!(read.warnings[0].contains(&said), "{:?}", read.warnings);
    // The first of two errors is reported.
    let wrong: Vec<f64> = (0..n).map(|s| if probability(s) < 1.0 { -1.0 } else { 1.0 }).collect();
    model.put("branch-to-probability.bin", doubles(&wrong));
    assert!(
        model
            .read()
            .unwrap_err()
            .contains(&format!("invalid probability -1 of branch {0} of state {0}", BLOCK + 1))
    );
}

#[test]
fn rewards_are_turned_into_rate_rewards() {
    let mut model = Model::new();
    let double = json!({"type": "double"});
    model.annotate(
        "rewards",
        "cost",
        json!({"alias": "the cost", "applies-to": ["states", "choices", "branches"], "type": double}),
    );
    model.put("annotations/rewards/cost/states/values.bin", doubles(&[1.0, 2.0, 0.0]));
    model.put("annotations/rewards/cost/choices/values.bin", doubles(&[10.0, 0.0, 0.0]));
    model.put("annotations/rewards/cost/branches/values.bin", doubles(&[0.0, 4.0, 0.0, 2.0, 0.0]));
    model.annotate(
        "rewards",
        "exact",
        json!({"applies-to": ["states"], "type": {"type": "rational", "size": 128}}),
    );
    model.annotate(
        "rewards",
        "random",
        json!({"applies-to": ["states"], "type": double, "probability-type": double}),
    );
    model.annotate("rewards", "short", json!({"applies-to": ["states"], "type": double}));
    model.put("annotations/rewards/short/states/values.bin", doubles(&[1.0]));
    let chain = model.read().unwrap();
    // 1 + 4·10 + 4·(0.75·4), 2 + 2.5·(0.5·2), 0
    assert_eq!(chain.rewards, [Reward { name: "the cost".into(), values: vec![53.0, 4.5, 0.0] }]);
    let names: Vec<&str> = chain.left_out.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["exact", "random", "short"]);
    assert!(chain.left_out[0].1.contains("\"exact\"") && chain.left_out[0].1.contains("rational (128 bits)"));
}

#[test]
fn arrays_that_do_not_fit_are_named() {
    for name in [
        "state-to-exit-rate.bin",
        "branch-to-target.bin",
        "branch-to-probability.bin",
        "choice-to-branches.bin",
    ] {
        assert!(reason(|model| model.remove(name)).contains(&format!("{name} is missing")));
        assert!(reason(|model| model.put(name, vec![0; 15])).contains(&format!("{name}: 15 bytes")));
    }
    type Change = fn(&mut Model);
    let cases: [(Change, &str); 19] = [
        (|m| m.system("time", json!("urgent-stochastic")), "a Markov automaton"),
        (|m| m.system("#players", json!(1)), "a continuous-time Markov decision process"),
        (|m| m.system("#players", json!(2)), "a game"),
        (|m| m.system("branch-probability-type", json!({"type": "double-interval"})), "double-interval"),
        (|m| m.system("exit-rate-type", json!({"type": "rational"})), "exit rates"),
        (|m| m.put("state-is-initial.bin", vec![]), "need 8"),
        (|m| m.put("choice-to-branches.bin", longs(&[1, 2, 4, 5])), "invalid first number 1"),
        (|m| m.put("choice-to-branches.bin", longs(&[0, 4, 2, 5])), "2 after 4 at 2"),
        (|m| m.put("choice-to-branches.bin", longs(&[0, 2, 4, 9])), "ends with 9"),
        (|m| m.put("state-to-choices.bin", longs(&[0, 2, 3, 3])), "state 0 has 2 choices"),
        (
            |m| m.put("branch-to-target.bin", longs(&[1, 3, 0, 0, 2])),
            "target 3 of branch 1 of state 0 is out of range",
        ),
        (|m| m.put("state-to-exit-rate.bin", doubles(&[4.0, -1.0, 1.0])), "invalid exit rate -1 of state 1"),
        (
            |m| m.put("branch-to-probability.bin", doubles(&[0.25, 0.75, f64::NAN, 0.5, 1.0])),
            "invalid probability NaN of branch 2 of state 1",
        ),
        (|m| m.system("branch-probability-type", Value::Null), "state 0 has 2 branches"),
        (|m| m.system("#states", json!(u64::MAX)), "4294967294"),
        (|m| m.system("#states", json!(4_000_000_000u64)), "state-to-exit-rate.bin: 24 bytes"),
        (|m| m.system("#choices", json!(u64::MAX)), "ends with 3"),
        (|m| m.index = json!([]), "index.json"),
        (|m| m.system("exit-rate-type", Value::Null), "no type of the exit rates"),
    ];
    for (change, words) in cases {
        let reason = reason(change);
        assert!(reason.contains(words), "{words}: {reason}");
    }
}
