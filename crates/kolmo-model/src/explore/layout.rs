//! States packed into words. Their order is that of their variables' values.

use crate::instance::VariableInfo;

/// A packed state, with the first variable in the highest bits.
pub(super) type StateKey<const W: usize> = [u64; W];

/// Position of a variable in a packed state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) mask: u64,
    pub(super) low: i64,
    /// Largest minus least value of the variable.
    pub(super) width: u64,
}

impl Field {
    pub(super) fn bits(&self) -> u32 {
        self.mask.count_ones()
    }

    pub(super) fn holds(&self, value: i64) -> bool {
        value.wrapping_sub(self.low) as u64 <= self.width
    }

    pub(super) fn value(&self, key: &[u64]) -> i64 {
        self.low.wrapping_add(((key[self.word] >> self.shift) & self.mask) as i64)
    }

    /// Range of values, or `None` if there are more than `few`.
    pub(super) fn values(&self, few: u64) -> Option<std::ops::RangeInclusive<i64>> {
        (self.width < few).then(|| self.low..=self.low.wrapping_add(self.width as i64))
    }
}

/// Packing of states into words of 64 bits.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    pub(super) fields: Vec<Field>,
    pub(super) words: usize,
    /// Number of bits in use in the last word.
    pub(super) bits: u32,
}

impl Packing {
    pub(super) fn new(variables: &[VariableInfo]) -> Self {
        let mut fields: Vec<Field> = Vec::new();
        let (mut word, mut used) = (0, 0);
        let mut first = 0;
        for variable in variables {
            let bits = variable.bits();
            if used + bits > 64 {
                (word, used, first) = (word + 1, 0, fields.len());
            }
            // The variables before it in the word move up.
            used += bits;
            fields[first..].iter_mut().for_each(|f| f.shift += bits);
            fields.push(Field {
                word,
                shift: 0,
                mask: if bits == 64 { u64::MAX } else { (1 << bits) - 1 },
                low: variable.low,
                width: variable.high.wrapping_sub(variable.low) as u64,
            });
        }
        // A variable with one value has no bits. Its shift may be 64, which would overflow.
        fields.iter_mut().for_each(|f| f.shift = if f.mask == 0 { 0 } else { f.shift });
        Self { fields, words: word + 1, bits: used }
    }

    pub(super) fn pack(&self, values: &[i64], key: &mut [u64]) {
        key.fill(0);
        for (field, value) in self.fields.iter().zip(values) {
            key[field.word] |= (value.wrapping_sub(field.low) as u64) << field.shift;
        }
    }

    pub(super) fn unpack(&self, key: &[u64], values: &mut Vec<i64>) {
        values.clear();
        values.extend(self.fields.iter().map(|field| field.value(key)));
    }
}
