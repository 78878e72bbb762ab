// Rows of a matrix stored in slices of 64 rows.

// Headers, COO pointers, data of the format.
@group(0) @binding(0) var<storage, read> slices: array<u32>;

// Bounds of a row's ELL entries, and the offset of its slice's COO pointers, 0 if it has none.
struct Entries { first: u32, end: u32, pointers: u32 }

fn entries_of(row: u32) -> Entries {
    let header = 3u * (row >> 6u);
    let first = (slices[header] << 6u) + (row & 63u);
    return Entries(first, first + (slices[header + 1u] << 6u), slices[header + 2u]);
}

// Adds a row's COO entries.
fn with_tail(s: Products, base: u32, row: u32, pointers: u32) -> Products {
    if pointers == 0u { return s; }
    return with_entries(s, base, slices[pointers + (row & 63u)], slices[pointers + (row & 63u) + 1u]);
}
