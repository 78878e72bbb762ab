//! Output of chains as UMB.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::INITIAL;
use crate::io::write::count_transitions;
use crate::transient::chain::state_names::StateNames;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::chain::{Chain, Initial};

/// Writes a chain with its labels and rewards, and with state names as valuations.
///
/// Rates are exit rate · probability, to the unit in the last place. A state without transitions
/// gets a self-loop at rate 1.
///
/// # Errors
/// Errors of the writer. Kind `InvalidInput` for an exit rate that overflows, for a variable with
/// values other than integers, `true` and `false`, and for an initial distribution.
///
/// # Panics
/// If labels or rewards have more states than the chain.
pub fn write(writer: &mut dyn Write, chain: &Chain) -> io::Result<()> {
    let transitions = &*chain.transitions;
    let (n, discrete) = (transitions.states(), transitions.is_discrete());
    let initial: Vec<u32> = match &chain.initial {
        Initial::State(state) => vec![*state as u32],
        Initial::Uniform(states) => states.clone(),
        Initial::Distribution(_) => {
            return Err(unfit("an initial distribution is not supported in .umb".into()));
        }
    };
    let Arrays { exit, ends, targets, probabilities } = Arrays::of(transitions)?;
    let double = json!({"type": "double", "size": 64});
    let mut index = json!({
        "format-version": 0,
        "format-revision": 1,
        "model-data": {"name": chain.name},
        "file-data": {"tool": "kolmo", "tool-version": env!("CARGO_PKG_VERSION")},
        "transition-system": {
            "time": if discrete { "discrete" } else { "stochastic" }, "#players": 0, "#states": n, "#initial-states": initial.len(), "#choices": n,
            "#choice-actions": 0, "#branches": targets.len() / 8, "#branch-actions": 0, "#observations": 0,
            "branch-probability-type": double,
        },
    });
    let (mut labels, mut rewards) = (Map::new(), Map::new());
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    if !discrete {
        index["transition-system"]["exit-rate-type"] = double.clone();
        members.push(("state-to-exit-rate.bin".into(), exit));
    }
    // Identifiers sort in the order of their numbers, because objects may be sorted.
    for (k, (name, set)) in chain.labels.sets.iter().filter(|(name, _)| name != INITIAL).enumerate() {
        let id = format!("label{k:06}");
        members.push((format!("annotations/aps/{id}/states/values.bin"), bits(set, n)));
        labels.insert(id, json!({"alias": name, "applies-to": ["states"], "type": {"type": "bool"}}));
    }
    for (k, reward) in chain.rewards.iter().enumerate() {
        let id = format!("reward{k:06}");
        let values = reward.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        members.push((format!("annotations/rewards/{id}/states/values.bin"), values));
        rewards.insert(id, json!({"alias": reward.name, "applies-to": ["states"], "type": double}));
    }
    index["annotations"] = json!({"aps": labels, "rewards": rewards});
    if let Some(names) = &chain.names {
        let (description, values) = valuations(names)?;
        index["valuations"] = json!({"states": description});
        members.push(("valuations/states/valuations.bin".into(), values));
    }
    members.extend([
        ("state-is-initial.bin".into(), bits(&initial, n)),
        ("choice-to-branches.bin".into(), ends),
        ("branch-to-target.bin".into(), targets),
        ("branch-to-probability.bin".into(), probabilities),
    ]);
    let mut archive = tar::Builder::new(writer);
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes)
    };
    add("index.json", index.to_string().as_bytes())?;
    members.iter().try_for_each(|(name, bytes)| add(name, bytes))?;
    archive.finish()
}

/// Encoded transitions: exit rates, ends of rows, target states and probabilities.
struct Arrays {
    exit: Vec<u8>,
    ends: Vec<u8>,
    targets: Vec<u8>,
    probabilities: Vec<u8>,
}

impl Arrays {
    fn of(transitions: &dyn Transitions) -> io::Result<Self> {
        let (n, branches) = (transitions.states(), count_transitions(transitions) as usize);
        let [exit, ends, targets, probabilities] =
            [n, n + 1, branches, branches].map(|count| Vec::with_capacity(8 * count));
        let mut arrays = Self { exit, ends, targets, probabilities };
        let mut row = Vec::new();
        arrays.ends.extend(0u64.to_le_bytes());
        for state in 0..n {
            row.clear();
            transitions.outgoing(state, &mut row);
            if row.is_empty() {
                row.push((state as u32, 1.0));
            }
            let all = exit_rate(row.iter().map(|(_, rate)| *rate));
            if all.is_infinite() {
                let reason = "add up beyond the range of numbers";
                return Err(unfit(format!("the rates out of state {state} {reason}")));
            }
            arrays.exit.extend(all.to_le_bytes());
            for (target, rate) in &row {
                arrays.targets.extend(u64::from(*target).to_le_bytes());
                arrays.probabilities.extend((rate / all).to_le_bytes());
            }
            arrays.ends.extend((arrays.targets.len() as u64 / 8).to_le_bytes());
        }
        Ok(arrays)
    }
}

fn unfit(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Encodes a set as one bit per state, in words of 64 bits.
fn bits(set: &[u32], states: usize) -> Vec<u8> {
    let mut bytes = vec![0; states.div_ceil(64) * 8];
    set.iter().for_each(|state| bytes[*state as usize / 8] |= 1 << (state % 8));
    bytes
}

/// Encodes names as variables; returns their description and their values in minimal bits.
fn valuations(names: &StateNames) -> io::Result<(Value, Vec<u8>)> {
    let number = |text: &str| match text {
        "false" => Ok(0),
        "true" => Ok(1),
        _ => text.parse::<i64>().map_err(|_| {
            unfit(format!(
                "value '{text}' of a variable is not supported in .umb: expected whole numbers, \
                 true or false"
            ))
        }),
    };
    let mut values = Vec::new();
    for state in 0..names.states() {
        for text in names.values(state) {
            values.push(number(text)?);
        }
    }
    let width = names.variables().len();
    let (mut described, mut layout) = (Vec::new(), Vec::new());
    for (v, name) in names.variables().iter().enumerate() {
        let own = || values.iter().skip(v).step_by(width);
        let (low, high) = (own().min().copied().unwrap_or(0), own().max().copied().unwrap_or(0));
        let truth = (0..names.states())
            .all(|state| names.values(state).nth(v).is_some_and(|text| text == "true" || text == "false"));
        let size = (64 - high.abs_diff(low).leading_zeros()).max(1);
        layout.push((if truth { 0 } else { low }, size));
        described.push(match truth {
            true => json!({"name": name, "type": {"type": "bool", "size": 1}}),
            false => json!({"name": name, "type": {"type": "uint", "size": size}, "offset": low}),
        });
    }
    let used: u32 = layout.iter().map(|(_, size)| size).sum();
    let padding = used.next_multiple_of(8) - used;
    if padding > 0 {
        described.push(json!({"padding": padding}));
    }
    let mut bytes = Vec::with_capacity(names.states() * used.div_ceil(8) as usize);
    for state in values.chunks_exact(width.max(1)) {
        let (mut open, mut filled) = (0u128, 0);
        for (value, (low, size)) in state.iter().zip(&layout) {
            open |= u128::from(value.abs_diff(*low)) << filled;
            filled += size;
            while filled >= 8 {
                bytes.push(open as u8);
                (open, filled) = (open >> 8, filled - 8);
            }
        }
        if padding > 0 {
            bytes.push(open as u8);
        }
    }
    Ok((json!({"unique": true, "classes": [{"variables": described}]}), bytes))
}
