//! Arrays of a model: 64-bit numbers, bit sets, and offsets of ranges.

use std::ops::Range;

use super::Files;
use super::index::Type;

/// Returns the positions of the set bits among the first `len`; `None` without a file.
pub(super) fn bits(files: &Files, name: &str, len: usize) -> Result<Option<Vec<u32>>, String> {
    let Some(bytes) = files.get(name) else {
        return Ok(None);
    };
    if bytes.len() < len.div_ceil(8) {
        return Err(format!("{name}: {} bytes; {len} states need {}", bytes.len(), len.div_ceil(64) * 8));
    }
    let mut set = Vec::new();
    for (at, &byte) in bytes[..len.div_ceil(8)].iter().enumerate().filter(|&(_, &byte)| byte != 0) {
        set.extend(
            (0..8)
                .filter(|bit| byte >> bit & 1 == 1)
                .map(|bit| 8 * at + bit)
                .filter(|&s| s < len)
                .map(|s| s as u32),
        );
    }
    Ok(Some(set))
}

/// Returns an array of `len` elements of 8 bytes; `None` if the file does not exist.
pub(super) fn words<'a>(files: &'a Files, name: &str, len: u64) -> Result<Option<&'a [[u8; 8]]>, String> {
    let Some(bytes) = files.get(name) else {
        return Ok(None);
    };
    let (elements, rest) = bytes.as_chunks();
    if elements.len() as u64 != len || !rest.is_empty() {
        return Err(format!("{name}: {} bytes; {len} elements of 8 bytes are expected", bytes.len()));
    }
    Ok(Some(elements))
}

/// An array of 64-bit numbers.
pub(super) struct Array<'a> {
    elements: &'a [[u8; 8]],
    of: fn([u8; 8]) -> f64,
}

impl<'a> Array<'a> {
    pub(super) fn new(
        files: &'a Files,
        name: &str,
        element: &Type,
        len: u64,
    ) -> Result<Option<Self>, String> {
        let of: fn([u8; 8]) -> f64 = match (&element.name[..], element.size.unwrap_or(64)) {
            ("double", 64) => f64::from_le_bytes,
            ("int", 64) => |bytes| i64::from_le_bytes(bytes) as f64,
            ("uint", 64) => |bytes| u64::from_le_bytes(bytes) as f64,
            _ => return Err(format!("its values are of type {element}: expected doubles")),
        };
        Ok(words(files, name, len)?.map(|elements| Self { elements, of }))
    }

    pub(super) fn get(&self, at: usize) -> f64 {
        (self.of)(self.elements[at])
    }
}

/// Map from each source to a range of targets; without a file it is the identity.
pub(super) struct Csr<'a> {
    offsets: Option<&'a [[u8; 8]]>,
    pub(super) targets: usize,
}

impl<'a> Csr<'a> {
    pub(super) fn new(
        files: &'a Files,
        name: &str,
        [sources, targets]: [&str; 2],
        len: u64,
        count: u64,
    ) -> Result<Self, String> {
        let elements = len.checked_add(1).ok_or_else(|| format!("index.json: {len} {sources}"))?;
        let offsets = words(files, name, elements)?;
        match offsets {
            None if len != count => {
                return Err(format!("{name} is missing, although {len} {sources} have {count} {targets}"));
            }
            None => {}
            Some(offsets) => {
                let at = |k: usize| u64::from_le_bytes(offsets[k]);
                if at(0) != 0 {
                    return Err(format!("{name}: invalid first number {}: expected 0", at(0)));
                }
                if let Some(k) = (1..offsets.len()).find(|&k| at(k) < at(k - 1)) {
                    return Err(format!(
                        "{name}: {} after {} at {k}: expected ascending numbers",
                        at(k),
                        at(k - 1)
                    ));
                }
                if at(offsets.len() - 1) != count {
                    return Err(format!(
                        "{name}: ends with {}; there are {count} {targets}",
                        at(offsets.len() - 1)
                    ));
                }
            }
        }
        let targets = usize::try_from(count).map_err(|_| format!("index.json: {count} {targets}"))?;
        Ok(Self { offsets, targets })
    }

    pub(super) fn range(&self, source: usize) -> Range<usize> {
        match self.offsets {
            None => source..source + 1,
            Some(offsets) => {
                let at = |k: usize| u64::from_le_bytes(offsets[k]) as usize;
                at(source)..at(source + 1)
            }
        }
    }
}
