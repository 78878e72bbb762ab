// Rows of a HYB matrix times the vector x, which the kernel binds, or times several vectors.

// Number of vectors side by side: element (i, c) is x[COLUMNS * i + c].
override COLUMNS = 1u;

@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;

// Adds one entry's product.
fn add_entry(base: u32, e: u32, sum: Products) -> Products {
    return plus_product(values[e], x[COLUMNS * columns[e] + base], sum);
}

// Adds a row's products with vector `base` to `begin`.
fn row_sum(row: u32, base: u32, begin: Products) -> Products {
    let ell = entries_of(row);
    var e = ell.first;
    let end = ell.end;
    // Several entries at a time, with all loads before the first use: the loads in flight limit the
    // speed.
    var s = begin;
    if FOUR {
        for (; e + 192u < end; e += 256u) {
            let c0 = COLUMNS * columns[e] + base; let c1 = COLUMNS * columns[e + 64u] + base;
            let c2 = COLUMNS * columns[e + 128u] + base; let c3 = COLUMNS * columns[e + 192u] + base;
            let v0 = values[e]; let v1 = values[e + 64u]; let v2 = values[e + 128u]; let v3 = values[e + 192u];
            let x0 = x[c0]; let x1 = x[c1]; let x2 = x[c2]; let x3 = x[c3];
            s = plus_product(v3, x3, plus_product(v2, x2, plus_product(v1, x1, plus_product(v0, x0, s))));
        }
        if e + 64u < end {
            let c0 = COLUMNS * columns[e] + base; let c1 = COLUMNS * columns[e + 64u] + base;
            let v0 = values[e]; let v1 = values[e + 64u];
            let x0 = x[c0]; let x1 = x[c1];
            s = plus_product(v1, x1, plus_product(v0, x0, s));
            e += 128u;
        }
    } else {
        for (; e + 64u < end; e += 128u) {
            let c0 = COLUMNS * columns[e] + base; let c1 = COLUMNS * columns[e + 64u] + base;
            let v0 = values[e]; let v1 = values[e + 64u];
            let x0 = x[c0]; let x1 = x[c1];
            s = settled(plus_product(v1, x1, plus_product(v0, x0, s)));
        }
    }
    if e < end { s = add_entry(base, e, s); }
    return with_tail(s, base, row, ell.pointers);
}
