// The sum of a row's COO entries. The kernel adds an entry's share with add_entry.

fn tail(base: u32, first: u32, end: u32) -> Sum {
    var t = first;
    // Entry t goes to partial sum t mod 4: one chain would wait for each addition.
    var p0 = none(); var p1 = none(); var p2 = none(); var p3 = none();
    for (; t + 4u <= end; t += 4u) {
        p0 = add_entry(base, t, p0);
        p1 = add_entry(base, t + 1u, p1);
        p2 = add_entry(base, t + 2u, p2);
        p3 = add_entry(base, t + 3u, p3);
    }
    if t < end { p0 = add_entry(base, t, p0); }
    if t + 1u < end { p1 = add_entry(base, t + 1u, p1); }
    if t + 2u < end { p2 = add_entry(base, t + 2u, p2); }
    return plus(plus(p0, p2), plus(p1, p3));
}
