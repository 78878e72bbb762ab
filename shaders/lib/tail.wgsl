// Adds a row's COO entries to a sum. The kernel defines add_entry, which adds one entry's product.

fn with_entries(sum: Products, base: u32, first: u32, end: u32) -> Products {
    var t = first;
    if !APART {
        var s = sum;
        for (; t + 4u <= end; t += 4u) {
            s = add_entry(base, t + 1u, add_entry(base, t, s));
            s = settled(add_entry(base, t + 3u, add_entry(base, t + 2u, s)));
        }
        for (; t < end; t++) { s = add_entry(base, t, s); }
        return s;
    }
    // Entry first + k goes to partial sum k mod 4, since a single sum waits for each addition.
    var p0 = no_products(); var p1 = no_products(); var p2 = no_products(); var p3 = no_products();
    for (; t + 4u <= end; t += 4u) {
        p0 = add_entry(base, t, p0);
        p1 = add_entry(base, t + 1u, p1);
        p2 = add_entry(base, t + 2u, p2);
        p3 = add_entry(base, t + 3u, p3);
    }
    if t < end { p0 = add_entry(base, t, p0); }
    if t + 1u < end { p1 = add_entry(base, t + 1u, p1); }
    if t + 2u < end { p2 = add_entry(base, t + 2u, p2); }
    return plus(sum, plus(plus(p0, p2), plus(p1, p3)));
}
