//! State valuations: values of variables, packed by bits.

use serde::Deserialize;
use serde_json::Value;

use super::Files;
use super::index::Type;
use crate::transient::chain::state_names::StateNames;

const FOLDER: &str = "valuations/states";

/// Description of valuations in `index.json`.
#[derive(Deserialize)]
struct Description {
    classes: Vec<Class>,
}

#[derive(Deserialize)]
struct Class {
    variables: Vec<Variable>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Variable {
    Padding {
        padding: usize,
    },
    Named {
        name: String,
        #[serde(rename = "is-optional", default)]
        optional: bool,
        #[serde(rename = "type")]
        kind: Type,
        #[serde(default)]
        offset: i64,
    },
}

/// Reads the valuations of all states, if there are any; the error is why they are unusable.
///
/// Supported are states with equal variables, all of which have a value.
pub(super) fn names(files: &Files, description: &Value, states: usize) -> Result<Option<StateNames>, String> {
    let Some(description) = description.get("states") else { return Ok(None) };
    let Description { classes } = Description::deserialize(description).map_err(|e| e.to_string())?;
    let [class] = &classes[..] else {
        return Err(format!("{} classes of states are not supported: expected one", classes.len()));
    };
    let bytes = files.get(&format!("{FOLDER}/valuations.bin")).ok_or("valuations.bin is missing")?;
    let size = class.bytes()?;
    if size.checked_mul(states) != Some(bytes.len()) {
        let held = bytes.len();
        return Err(format!("valuations.bin has {held} bytes: expected {size} for each of {states} states"));
    }
    let variables = class.variables.iter().filter_map(|variable| match variable {
        Variable::Padding { .. } => None,
        Variable::Named { name, .. } => Some(name.clone()),
    });
    let mut names = StateNames::new(variables.collect());
    for state in 0..states {
        names.push(class.values(&bytes[state * size..][..size])?.iter().map(String::as_str));
    }
    Ok(Some(names))
}

impl Class {
    /// Returns the number of bytes of a valuation.
    fn bytes(&self) -> Result<usize, String> {
        let mut all = 0usize;
        for variable in &self.variables {
            let bits = match variable {
                Variable::Padding { padding } => *padding,
                Variable::Named { optional: true, name, .. } => {
                    return Err(format!("the optional variable {name} is not supported"));
                }
                Variable::Named { kind, .. } => bits(kind)?,
            };
            all = all.checked_add(bits).ok_or("the size of a valuation is out of range")?;
        }
        if all.is_multiple_of(8) {
            Ok(all / 8)
        } else {
            Err(format!("a valuation has {all} bits: expected whole bytes"))
        }
    }

    /// Returns the values of the variables in a valuation.
    fn values(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut at = 0;
        let mut values = Vec::new();
        for variable in &self.variables {
            match variable {
                Variable::Padding { padding } => at += padding,
                Variable::Named { kind, offset, .. } => {
                    let count = bits(kind)?;
                    let bit = |k: usize| u128::from(bytes[(at + k) / 8] >> ((at + k) % 8) & 1) << k;
                    values.push(text(kind, (0..count).map(bit).fold(0, |all, bit| all | bit), *offset)?);
                    at += count;
                }
            }
        }
        Ok(values)
    }
}

/// Returns the number of bits of a variable.
fn bits(kind: &Type) -> Result<usize, String> {
    let usual = if kind.name == "bool" { 1 } else { 64 };
    match (&kind.name[..], kind.size.unwrap_or(usual)) {
        ("bool" | "int" | "uint", size @ 1..=64) | ("double", size @ 64) => Ok(size as usize),
        _ => Err(format!("variable type {kind} is not supported: expected bool, int, uint or double")),
    }
}

fn text(kind: &Type, raw: u128, offset: i64) -> Result<String, String> {
    Ok(match &kind.name[..] {
        "bool" => (raw != 0).to_string(),
        "double" => f64::from_bits(raw as u64).to_string(),
        "int" => {
            let size = bits(kind)?;
            let negative = raw >> (size - 1) & 1 == 1;
            (raw as i128 - (i128::from(negative) << size) + i128::from(offset)).to_string()
        }
        _ => (raw as i128 + i128::from(offset)).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An example in the format's specification, and variables that are not supported.
    #[test]
    fn an_example_of_the_specification() {
        let of = |variables: Value, bytes: &[u8], states| {
            let description = json!({"states": {"unique": true, "classes": [{"variables": variables}]}});
            let files = [(format!("{FOLDER}/valuations.bin"), bytes.to_vec())].into();
            names(&files, &description, states).map(|names| names.expect("names").name(0))
        };
        let own = json!([
            {"name": "sv0", "type": {"type": "uint", "size": 8}, "offset": -128},
            {"name": "sv1", "type": {"type": "int", "size": 16}}
        ]);
        let bytes = [0b1011_1000, 0b1111_1111, 0b1011_1101];
        assert_eq!(of(own.clone(), &bytes, 1).unwrap(), "(sv0=56, sv1=-16897)");
        let packed = json!([
            {"name": "v0", "type": {"type": "bool", "size": 2}},
            {"padding": 5},
            {"name": "v1", "type": {"type": "uint", "size": 9}}
        ]);
        assert_eq!(of(packed, &[0b1000_0010, 0b101], 1).unwrap(), "(v0=true, v1=11)");
        let string = json!([{"name": "s", "type": {"type": "string", "size": 64}}]);
        let optional = json!([{"name": "x", "type": {"type": "uint", "size": 7}, "is-optional": true}]);
        for (variables, states, words) in [
            (own, 2, "3 bytes: expected 3 for each of 2 states"),
            (string, 1, "type string"),
            (optional, 1, "optional variable x"),
        ] {
            let reason = of(variables, &bytes, states).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
        assert_eq!(names(&Files::new(), &json!({}), 2), Ok(None));
    }
}
