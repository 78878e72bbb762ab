//! Lists I,J,K-L of states, components or nodes.

use kolmo::internals::count;
use kolmo::{Error, Result};

/// Parses a list, keeping its order.
///
/// `index` maps a number to that of a row. `invalid` gets an entry and its invalid part, and
/// returns the message.
pub(crate) fn listed(
    list: &str,
    option: &str,
    index: impl Fn(u64) -> Result<u32, String>,
    invalid: impl Fn(&str, &str) -> String,
) -> Result<Vec<u32>> {
    let fail = |reason: String| Error::invalid(format!("{option}: {reason}"));
    let mut all = Vec::new();
    for item in list.split(',') {
        let number = |s: &str| {
            let number = count(s.trim()).ok_or_else(|| invalid(item, s));
            number.and_then(|i| index(i).map(|_| i)).map_err(fail)
        };
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(fail(format!("the range {item} runs backwards; give the smaller number first")));
        }
        for i in first..=last {
            all.push(index(i).map_err(fail)?);
        }
    }
    Ok(all)
}
