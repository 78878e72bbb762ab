//! Values of constants from a command line, such as `N=64,T=1:1:5`.

use crate::bytecode::Meaning;
use crate::types::{Checker, Names};
use crate::{Error, Result, Value, parser};

/// A constant and its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConstValues {
    /// Name of the constant.
    pub name: String,
    /// One value, or all values of ranges and lists.
    pub values: Vec<Value>,
    /// True for a range or a list, also for a range of one value.
    pub range: bool,
    /// Reason for each malformed item of a list that has other values.
    pub malformed: Vec<String>,
}

/// Maximum number of values of a range, and of combinations of values.
const VALUES: usize = 1_000_000;

/// Reads `name=value,name=low:high,name=low:step:high,name=value|value|low:high`.
pub fn parse(text: &str) -> Result<Vec<ConstValues>> {
    let mut all: Vec<ConstValues> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let refused = |why: String| Error::Constant(format!("'{part}': {why}"));
        let (name, value) =
            part.split_once('=').ok_or_else(|| refused("write a constant as name=value".into()))?;
        let name = name.trim().to_owned();
        if all.iter().any(|given| given.name == name) {
            return Err(refused(format!("'{name}' is given twice")));
        }
        let (mut listed, mut malformed) = (Vec::new(), Vec::new());
        for item in value.split('|').map(values) {
            match item {
                Ok(values) => listed.extend(values),
                Err(why) => malformed.push(format!("{name}: {why}")),
            }
        }
        if listed.is_empty() || listed.len() > VALUES {
            let why = malformed.pop().unwrap_or_else(|| format!("a list has at most {VALUES} values"));
            return Err(refused(why));
        }
        all.push(ConstValues { name, values: listed, range: value.contains([':', '|']), malformed });
    }
    Ok(all)
}

/// Values of an item of a list: one number, or a range.
fn values(text: &str) -> std::result::Result<Vec<Value>, String> {
    let numbers: Vec<Value> = text.split(':').map(number).collect::<std::result::Result<_, String>>()?;
    match numbers[..] {
        [value] => Ok(vec![value]),
        [low, high] => range(low, Value::Int(1), high),
        [low, step, high] => range(low, step, high),
        _ => Err("a range is low:high or low:step:high".into()),
    }
}

/// Parses a number, or an expression such as `1/3`.
/// Fails for texts without a value. The message has no suggestion, which depends on the caller.
pub fn number(text: &str) -> std::result::Result<Value, String> {
    text.parse().or_else(|why| {
        let (names, mut errors) = (Names::default(), Vec::new());
        let found = parser::expression(text).filter(|e| Checker::new(&names, &mut errors).check(e).is_some());
        let value = found.filter(|_| errors.is_empty()).and_then(|e| Meaning::default().value(&e).ok());
        value.filter(|value| value.number().is_none_or(f64::is_finite)).ok_or(why)
    })
}

fn range(low: Value, step: Value, high: Value) -> std::result::Result<Vec<Value>, String> {
    let number = |v: Value| v.number().ok_or_else(|| "a range is of numbers".to_owned());
    let (from, by, to) = (number(low)?, number(step)?, number(high)?);
    let count = ((to - from) / by * (1.0 + 1e-12)).floor() + 1.0;
    if !(count >= 1.0 && count <= VALUES as f64) {
        return Err(format!("a range has 1 to {VALUES} values: low:step:high with low <= high, step > 0"));
    }
    // Decimal numbers of at most 15 digits have no rounding errors: 0.3, not 0.1 + 2 · 0.1.
    let decimal = |digits: i32| {
        let scale = 10f64.powi(digits);
        let whole = [from, by].map(|number| (number * scale).round());
        let exact = whole[0].abs() + count * whole[1].abs() < 1e15;
        (exact && whole.map(|number| number / scale) == [from, by]).then_some((whole, scale))
    };
    let (whole, scale) = (0..=15).find_map(decimal).unwrap_or(([from, by], 1.0));
    let value = |k: i64| match (low, step) {
        (Value::Int(low), Value::Int(step)) => Value::Int(low + k * step),
        _ => Value::Double((whole[0] + k as f64 * whole[1]) / scale),
    };
    Ok((0..count as i64).map(value).collect())
}

/// Returns all combinations of the values; the last constant changes fastest.
pub fn combinations(all: &[ConstValues]) -> Result<Vec<Vec<(String, Value)>>> {
    let count = all.iter().try_fold(1_usize, |n, given| n.checked_mul(given.values.len()));
    if count.is_none_or(|n| n > VALUES) {
        return Err(Error::Constant(format!("the constants have more than {VALUES} combinations of values")));
    }
    let mut combined = vec![Vec::new()];
    for given in all {
        let with = |before: &Vec<(String, Value)>| {
            let before = before.clone();
            given
                .values
                .iter()
                .map(move |v| [&before[..], &[(given.name.clone(), *v)]].concat())
                .collect::<Vec<_>>()
        };
        combined = combined.iter().flat_map(with).collect();
    }
    Ok(combined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_their_combinations() {
        let all = parse("N=64, T=1:2:5,b=true,x=0:0.1:0.3").expect("constants");
        assert_eq!(all[1].values, [Value::Int(1), Value::Int(3), Value::Int(5)]);
        assert_eq!(all[3].values, [0.0, 0.1, 0.2, 0.3].map(Value::Double));
        let tiny = parse("x=1e-5:1e-5:3e-5,y=1/3:1/3:1").expect("constants");
        assert_eq!(tiny[0].values, [1e-5, 2e-5, 3e-5].map(Value::Double));
        assert_eq!(tiny[1].values, [1.0, 2.0, 3.0].map(|k| Value::Double(k / 3.0)));
        // Counts in scientific notation are integers.
        let counts = parse("N=1e5,M=2.5e3,x=1e-3").expect("constants");
        assert_eq!(counts[0].values, [Value::Int(100_000)]);
        assert_eq!((counts[1].values[0], counts[2].values[0]), (Value::Int(2500), Value::Double(1e-3)));
        let listed = parse("a=0.1|0.2|1:2:5,b=true|false").expect("constants");
        let numbers: Vec<_> = listed[0].values.iter().map(|value| value.number()).collect();
        assert_eq!(numbers, [0.1, 0.2, 1.0, 3.0, 5.0].map(Some));
        assert!(listed[1].range && listed[1].values == [Value::Bool(true), Value::Bool(false)]);
        let combined = combinations(&all).expect("few");
        assert_eq!(combined.len(), 12);
        assert_eq!(combined[5][1], ("T".to_owned(), Value::Int(3)));
        for wrong in ["N", "N=x", "N=1:0:2", "N=2:1", "N=1,N=2", "N=1:2:3:4", "N=1e999", "N=|", "N=x|2:1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let mixed = parse("x=1|y|2|5:4").expect("two values").swap_remove(0);
        assert_eq!((mixed.values.len(), mixed.malformed.len()), (2, 2), "{mixed:?}");
    }
}
