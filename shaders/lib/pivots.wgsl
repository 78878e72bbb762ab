// Flags of small pivots and of rows that are not dominant.

// Returns 4^-s, from its bits. A pivot is small if it is at most this share of its row.
fn share_of(s: u32) -> real { return real(bitcast<f32>((127u - 2u * s) << 23u)); }

// Combines flags: bits 0 to 30 count small pivots, bit 31 is set if a row is not dominant.
fn both_flags(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }
