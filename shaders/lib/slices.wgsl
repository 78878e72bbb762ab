// Rows of a matrix in slices.

@group(0) @binding(0) var<storage, read> slices: array<u32>;  // headers, COO pointers, what the format adds

fn word_at(place: u32) -> u32 { return slices[place]; }

// Where a row's ELL entries begin and end, and its pointers to COO entries, if there are some.
struct Entries { first: u32, end: u32, pointers: u32 }

fn entries_of(row: u32) -> Entries {
    let header = 3u * (row >> 6u);
    let first = (slices[header] << 6u) + (row & 63u);
    return Entries(first, first + (slices[header + 1u] << 6u), slices[header + 2u]);
}

// The sum with a row's COO entries.
fn with_tail(s: Products, base: u32, row: u32, pointers: u32) -> Products {
    if pointers == 0u { return s; }
    return with_entries(s, base, slices[pointers + (row & 63u)], slices[pointers + (row & 63u) + 1u]);
}
