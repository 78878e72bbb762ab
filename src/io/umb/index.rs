//! Description of the model in `index.json`.

use std::fmt;

use indexmap::IndexMap;
use serde::Deserialize;

use crate::util::memory::expect_memory;

/// Relevant content of `index.json`.
#[derive(Deserialize)]
pub(super) struct Index {
    #[serde(rename = "transition-system")]
    pub(super) system: System,
    #[serde(default)]
    pub(super) annotations: Annotations,
    /// Description of state valuations, parsed separately: it may have an unknown form.
    pub(super) valuations: Option<serde_json::Value>,
}

/// Upper bound of the memory in bytes per byte of JSON: an object allocates a tree node.
const PARSED: u64 = 80;

impl Index {
    /// Parses the text of `index.json`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let named = |reason: String| format!("index.json: {reason}");
        let bytes = (text.len() as u64).saturating_mul(PARSED);
        expect_memory(bytes, || "its content".to_owned()).map_err(|e| named(e.to_string()))?;
        serde_json::from_slice(text).map_err(|e| named(e.to_string()))
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct System {
    pub(super) time: String,
    #[serde(rename = "#players")]
    pub(super) players: u64,
    #[serde(rename = "#states")]
    pub(super) states: u64,
    #[serde(rename = "#choices")]
    pub(super) choices: u64,
    #[serde(rename = "#branches")]
    pub(super) branches: u64,
    #[serde(rename = "branch-probability-type")]
    pub(super) probability: Option<Type>,
    #[serde(rename = "exit-rate-type")]
    pub(super) exit_rate: Option<Type>,
}

/// Annotations by name, in the order of the file.
#[derive(Deserialize, Default)]
pub(super) struct Annotations {
    #[serde(default)]
    pub(super) aps: IndexMap<String, Annotation>,
    #[serde(default)]
    pub(super) rewards: IndexMap<String, Annotation>,
}

#[derive(Deserialize)]
pub(super) struct Annotation {
    pub(super) alias: Option<String>,
    #[serde(rename = "applies-to", default)]
    pub(super) applies_to: Vec<String>,
    #[serde(rename = "type")]
    pub(super) element: Type,
    #[serde(rename = "probability-type")]
    pub(super) probability: Option<Type>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Type {
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) size: Option<u64>,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{} ({size} bits)", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Describes the kind of a model by its time and its number of players.
pub(super) fn kind(system: &System) -> String {
    let what = match (&system.time[..], system.players, system.probability.is_some()) {
        ("discrete", 1, true) => "a Markov decision process",
        ("discrete", 1, false) => "a labelled transition system",
        ("stochastic", 1, _) => "a continuous-time Markov decision process",
        ("urgent-stochastic", ..) => "a Markov automaton",
        (_, players, _) if players > 1 => "a game",
        _ => "another kind of model",
    };
    format!("{what} (time {:?}, {} players)", system.time, system.players)
}
