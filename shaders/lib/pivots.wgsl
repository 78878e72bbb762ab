// Small pivots and rows that are not dominant.

// A pivot is small that is at most this share of its row: 4^-s, from its bits.
fn share_of(s: u32) -> real { return real(bitcast<f32>((127u - 2u * s) << 23u)); }

// Small pivots are counted, the bit above says that a row is not dominant.
fn both_flags(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }
