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
pub(super) fn names(files: &Files, description: &Value, states: usize) -> Result<Option<StateNames>, String> {
    let Some(description) = description.get("states") else { return Ok(None) };
    let Description { classes } = Description::deserialize(description).map_err(|e| e.to_string())?;
    let file = |name: &str| files.get(&format!("{FOLDER}/{name}"));
    let Some(bytes) = file("valuations.bin") else { return Err("valuations.bin is missing".to_owned()) };
    let sizes = classes.iter().map(Class::bytes).collect::<Result<Vec<usize>, String>>()?;
    let class_of = file("valuation-to-class.bin").map(|bytes| bytes.as_chunks::<4>().0);
    if class_of.is_some_and(|class_of| class_of.len() != states) || classes.is_empty() {
        return Err("valuation-to-class.bin has a wrong number of states".to_owned());
    }
    let mut variables: Vec<String> = Vec::new();
    for name in classes.iter().flat_map(Class::names) {
        if !variables.iter().any(|known| known == name) {
            variables.push(name.to_owned());
        }
    }
    let place = |name: &str| variables.iter().position(|known| known == name).expect("all names are listed");
    let strings = Strings { starts: file("string-mapping.bin"), bytes: file("strings.bin") };
    let (mut names, mut rest) = (StateNames::new(variables.clone()), &bytes[..]);
    for state in 0..states {
        let class = class_of.map_or(0, |class_of| u32::from_le_bytes(class_of[state]) as usize);
        let (Some(description), Some(&size)) = (classes.get(class), sizes.get(class)) else {
            return Err(format!(
                "class {class} of state {state} is out of range: there are {} classes",
                classes.len()
            ));
        };
        let Some((own, behind)) = rest.split_at_checked(size) else {
            return Err(format!("valuations.bin ends before state {state} of {states}"));
        };
        rest = behind;
        let mut values = vec![String::new(); variables.len()];
        for (name, value) in description.values(own, &strings)? {
            values[place(name)] = value;
        }
        names.push(values.iter().map(String::as_str));
    }
    if !rest.is_empty() {
        return Err(format!("valuations.bin has {} bytes after those of {states} states", rest.len()));
    }
    Ok(Some(names))
}

impl Class {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().filter_map(|variable| match variable {
            Variable::Padding { .. } => None,
            Variable::Named { name, .. } => Some(&name[..]),
        })
    }

    /// Returns the number of bytes of a valuation.
    fn bytes(&self) -> Result<usize, String> {
        let bits = self.variables.iter().map(|variable| match variable {
            Variable::Padding { padding } => Ok(*padding),
            Variable::Named { kind, optional, .. } => bits(kind).map(|bits| bits + usize::from(*optional)),
        });
        let mut all = 0usize;
        for bits in bits {
            all = all.checked_add(bits?).ok_or("the size of a valuation is out of range")?;
        }
        if all.is_multiple_of(8) {
            Ok(all / 8)
        } else {
            Err(format!("a valuation has {all} bits: expected whole bytes"))
        }
    }

    /// Returns the variables of a valuation with their values.
    fn values<'a>(&'a self, bytes: &[u8], strings: &Strings<'_>) -> Result<Vec<(&'a str, String)>, String> {
        let mut at = 0;
        let mut take = |count: usize| {
            let bit = |k: usize| u128::from(bytes[(at + k) / 8] >> ((at + k) % 8) & 1) << k;
            let value = (0..count).map(bit).fold(0, |all, bit| all | bit);
            at += count;
            value
        };
        let mut values = Vec::new();
        for variable in &self.variables {
            match variable {
                // Padding may be longer than 128 bits.
                Variable::Padding { padding } => (0..*padding).for_each(|_| {
                    take(1);
                }),
                Variable::Named { name, optional, kind, offset } => {
                    let raw = take(bits(kind)?);
                    // The bit before an optional value is the next higher one.
                    if !optional || take(1) == 1 {
                        values.push((&name[..], text(kind, raw, *offset, strings)?));
                    }
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
        ("bool" | "int" | "uint", size @ 1..=64) | ("double" | "string", size @ 64) => Ok(size as usize),
        _ => {
            Err(format!("variable type {kind} is not supported: expected bool, int, uint, double or string"))
        }
    }
}

fn text(kind: &Type, raw: u128, offset: i64, strings: &Strings<'_>) -> Result<String, String> {
    Ok(match &kind.name[..] {
        "bool" => (raw != 0).to_string(),
        "double" => f64::from_bits(raw as u64).to_string(),
        "string" => strings.get(raw as usize)?,
        "int" => {
            let size = bits(kind)?;
            let negative = raw >> (size - 1) & 1 == 1;
            (raw as i128 - (i128::from(negative) << size) + i128::from(offset)).to_string()
        }
        _ => (raw as i128 + i128::from(offset)).to_string(),
    })
}

/// Table of the strings that valuations refer to by number.
struct Strings<'a> {
    starts: Option<&'a Vec<u8>>,
    bytes: Option<&'a Vec<u8>>,
}

impl Strings<'_> {
    fn get(&self, number: usize) -> Result<String, String> {
        let starts = self.starts.map_or(&[][..], |bytes| bytes.as_chunks::<8>().0);
        let at = |k: usize| starts.get(k).map(|&start| u64::from_le_bytes(start) as usize);
        let string = match (number.checked_add(1).and_then(at), at(number), self.bytes) {
            (Some(end), Some(start), Some(bytes)) => bytes.get(start..end),
            _ => None,
        };
        let string = string.and_then(|bytes| std::str::from_utf8(bytes).ok());
        string.map(str::to_owned).ok_or_else(|| format!("string {number} is missing or not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(members: &[(&str, &[u8])]) -> Files {
        members.iter().map(|(name, bytes)| (format!("{FOLDER}/{name}"), bytes.to_vec())).collect()
    }

    /// The two examples in the format's specification.
    #[test]
    fn examples_of_the_specification() {
        let first = json!({"states": {"unique": true, "#strings": 3, "classes": [{"variables": [
            {"name": "v0", "type": {"type": "bool", "size": 2}},
            {"name": "v1", "type": {"type": "uint", "size": 6}, "is-optional": true},
            {"padding": 5},
            {"name": "v2", "type": {"type": "string", "size": 64}},
            {"name": "v3", "type": {"type": "bool", "size": 3}},
            {"padding": 7}
        ]}]}});
        let ends: Vec<u8> = [0u64, 3, 5, 6].iter().flat_map(|k| k.to_le_bytes()).collect();
        let valuation = [0b0110_1101, 0b0100_0001, 0, 0, 0, 0, 0, 0, 0, 0b0100_0000, 0];
        let stored =
            [("valuations.bin", &valuation[..]), ("string-mapping.bin", &ends), ("strings.bin", b"xyzabc")];
        let read = names(&files(&stored), &first, 1).unwrap().unwrap();
        assert_eq!(read.name(0), "(v0=true, v1=27, v2=ab, v3=true)");

        let second = json!({"states": {"unique": true, "classes": [{"variables": [
            {"name": "sv0", "type": {"type": "uint", "size": 8}, "offset": -128},
            {"name": "sv1", "type": {"type": "int", "size": 16}}
        ]}]}});
        let valuation = [0b1011_1000, 0b1111_1111, 0b1011_1101];
        let read = names(&files(&[("valuations.bin", &valuation)]), &second, 1).unwrap().unwrap();
        assert_eq!(read.name(0), "(sv0=56, sv1=-16897)");
        let reason = names(&files(&[("valuations.bin", &valuation)]), &second, 2).unwrap_err();
        assert!(reason.contains("ends before state 1 of 2"), "{reason}");
    }

    #[test]
    fn classes_have_variables_of_their_own() {
        let description = json!({"states": {"unique": true, "classes": [
            {"variables": [{"name": "x", "type": {"type": "uint", "size": 8}}]},
            {"variables": [{"name": "y", "type": {"type": "bool"}}, {"padding": 15}]}
        ]}});
        let classes: Vec<u8> = [1u32, 0].iter().flat_map(|k| k.to_le_bytes()).collect();
        let stored = [("valuations.bin", &[1, 0, 7][..]), ("valuation-to-class.bin", &classes)];
        let read = names(&files(&stored), &description, 2).unwrap().unwrap();
        assert_eq!((read.name(0), read.name(1)), ("(y=true)".into(), "(x=7)".into()));
        assert_eq!(names(&Files::new(), &json!({}), 2), Ok(None));
        let real =
            json!({"states": {"classes": [{"variables": [{"name": "x", "type": {"type": "rational"}}]}]}});
        assert!(names(&files(&stored), &real, 2).unwrap_err().contains("type rational"));
    }
}
