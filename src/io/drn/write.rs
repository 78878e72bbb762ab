//! Output of chains as Storm's `.drn` files.

use super::*;
use crate::io::write::{push_number, write_in_blocks};
use crate::sparse::group;
use crate::transient::chain::transitions::exit_rate;
use crate::transient::chain::{Chain, Initial};

/// Writes a chain with labels, state names and rewards, for [`read`](super::read).
///
/// Numbers have all their digits. Fails with kind `InvalidInput` for names that the format cannot
/// represent.
pub fn write(writer: &mut dyn Write, chain: &Chain) -> io::Result<()> {
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let blank = |name: &str| name.is_empty() || name.contains(char::is_whitespace);
    if let Some(reward) = chain.rewards.iter().find(|reward| blank(&reward.name)) {
        let name = &reward.name;
        return refused(format!("the name of the reward \"{name}\" is not supported in .drn; write .tra"));
    }
    let mut sets: Vec<(&str, &[u32])> =
        chain.labels.sets.iter().map(|(name, set)| (&name[..], &set[..])).collect();
    if let Some((name, _)) = sets.iter().find(|(name, _)| name.is_empty() || name.contains(['"', '\n'])) {
        return refused(format!("the name of the label '{name}' is not supported in .drn; write .tra"));
    }
    let beginning = match &chain.initial {
        Initial::State(state) => vec![*state as u32],
        Initial::Uniform(states) => states.clone(),
        Initial::Distribution(_) => Vec::new(),
    };
    if chain.labels.get("init").is_none() {
        sets.insert(0, ("init", &beginning));
    }
    let (ends, labels) = labels_of_states(&sets, chain.transitions.states());
    let transitions = &*chain.transitions;
    let names: Vec<&str> = chain.rewards.iter().map(|reward| &reward.name[..]).collect();
    let (n, rewards) = (transitions.states(), names.join(" "));
    let kind = if transitions.is_discrete() { "DTMC" } else { "CTMC" };
    writeln!(writer, "@type: {kind}\n@parameters\n\n@reward_models\n{rewards}")?;
    writeln!(writer, "@nr_states\n{n}\n@nr_choices\n{n}\n@model")?;
    write_in_blocks(writer, n, |states, text| {
        let mut row = Vec::new();
        for state in states {
            row.clear();
            transitions.outgoing(state, &mut row);
            text.extend_from_slice(b"state ");
            push_integer(text, state as u64);
            if !transitions.is_discrete() {
                text.extend_from_slice(b" !");
                push_number(text, exit_rate(row.iter().map(|&(_, rate)| rate)));
            }
            for (k, reward) in chain.rewards.iter().enumerate() {
                text.extend_from_slice(if k == 0 { b" [" } else { b", " });
                push_number(text, reward.values[state]);
            }
            if !chain.rewards.is_empty() {
                text.push(b']');
            }
            for &label in &labels[ends[state]..ends[state + 1]] {
                let name = sets[label].0;
                let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
                text.extend_from_slice(if plain { b" " } else { b" \"" });
                text.extend_from_slice(name.as_bytes());
                text.extend_from_slice(if plain { b"" } else { b"\"" });
            }
            text.push(b'\n');
            if let Some(names) = &chain.names {
                let values = names.variables().iter().zip(names.values(state));
                let values: Vec<String> = values.map(|(v, value)| format!("{v}={value}")).collect();
                text.extend_from_slice(format!("//[{}]\n", values.join(" & ")).as_bytes());
            }
            text.extend_from_slice(b"\taction 0\n");
            for &(target, rate) in &row {
                text.extend_from_slice(b"\t\t");
                push_integer(text, u64::from(target));
                text.extend_from_slice(b" : ");
                push_number(text, rate);
                text.push(b'\n');
            }
        }
    })
}

/// Lists the labels of each state, as positions in `sets`.
///
/// Returns offsets and labels; state s has the labels `labels[offsets[s]..offsets[s + 1]]`.
pub(in crate::io) fn labels_of_states(sets: &[(&str, &[u32])], states: usize) -> (Vec<usize>, Vec<usize>) {
    let set = |label: usize| sets[label].1.iter().map(move |&state| (state, (), label));
    let (offsets, _, labels) = group(states, (sets.len(), set));
    (offsets, labels)
}
