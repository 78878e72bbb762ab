// Sums of rows. The kernel defines entry(e), a stored entry; entry_x, its x in the row of x[base];
// and entry_value, its value.

// Adds one entry's product.
fn add_entry(base: u32, e: u32, sum: Products) -> Products {
    let a = entry(e);
    return plus_product(entry_value(a), entry_x(base, a), sum);
}

// Adds a row's products to `begin`.
fn row_sum(row: u32, base: u32, begin: Products) -> Products {
    let ell = entries_of(row);
    var e = ell.first;
    let end = ell.end;
    // Several entries at a time, with all loads before the first use.
    var s = begin;
    for (; FOUR && e + 192u < end; e += 256u) {
        let a0 = entry(e); let a1 = entry(e + 64u); let a2 = entry(e + 128u); let a3 = entry(e + 192u);
        let x0 = entry_x(base, a0); let x1 = entry_x(base, a1); let x2 = entry_x(base, a2); let x3 = entry_x(base, a3);
        let v0 = entry_value(a0); let v1 = entry_value(a1); let v2 = entry_value(a2); let v3 = entry_value(a3);
        s = plus_product(v3, x3, plus_product(v2, x2, plus_product(v1, x1, plus_product(v0, x0, s))));
    }
    for (; e + 64u < end; e += 128u) {
        let a0 = entry(e); let a1 = entry(e + 64u);
        let x0 = entry_x(base, a0); let x1 = entry_x(base, a1);
        let v0 = entry_value(a0); let v1 = entry_value(a1);
        s = settled(plus_product(v1, x1, plus_product(v0, x0, s)));
    }
    if e < end { s = add_entry(base, e, s); }
    return with_tail(s, base, row, ell.pointers);
}
