//! Layout of the records of a chain table, as kernels read it.

/// Number of columns (right-hand sides) of a table that has more than one.
pub(crate) const COLUMNS: usize = 4;
/// Number of 32-bit words of a unit, in which positions of records are counted.
pub(crate) const UNIT: usize = 8;
/// Number of words before a record's entries.
pub(crate) const HEAD: usize = 4;
/// Number of entries up to which a row is searched linearly.
pub(crate) const LONG: usize = 16;
/// Last value of every distribution function: probability 1 as a fraction of 2³², less 1.
pub(crate) const CERTAIN: u32 = u32::MAX;

/// Splits `value` into the sum of two f32, and returns their bits.
pub(crate) fn pair(value: f64) -> [u32; 2] {
    let high = value as f32;
    let low = (value - f64::from(high)) as f32;
    [high.to_bits(), low.to_bits()]
}
