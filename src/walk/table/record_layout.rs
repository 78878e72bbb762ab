//! The layout of the records of a chain table, as kernels read it.

/// Right-hand sides of a table with several columns.
pub(crate) const COLUMNS: usize = 4;
/// Words of the unit in which records are addressed.
pub(crate) const UNIT: usize = 8;
/// Words before a record's entries.
pub(crate) const HEAD: usize = 4;
/// Entries of the longest row that is searched from its start.
pub(crate) const LONG: usize = 16;
/// The last value of every distribution function.
pub(crate) const CERTAIN: u32 = u32::MAX;

/// `value` as the sum of two f32.
pub(crate) fn pair(value: f64) -> [u32; 2] {
    let high = value as f32;
    let low = (value - f64::from(high)) as f32;
    [high.to_bits(), low.to_bits()]
}
