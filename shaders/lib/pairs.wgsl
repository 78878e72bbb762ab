// Downward elimination of rows. The kernel's parameter p.n is the number of rows of a system.

// The rows so far as a unit, the index of the next row in its system, flags, and the last two rows.
struct Sweep { unit: Unit, place: u32, bad: u32, pair: Pair }

// Returns the state before the first row.
fn sweep_from(place: u32) -> Sweep { return Sweep(no_unit(), place, 0u, Pair()); }

// Eliminates two more rows; in0 and in1 are false for rows after the last one. With `cut`, systems
// end at their first and last row.
fn with_pair(s: Sweep, rows: Rows, in0: bool, in1: bool, cut: bool, small: real) -> Sweep {
    var a = rows.a; var b = rows.b; var c = rows.c; var r = rows.r;
    let last0 = s.place + 1u == p.n;
    let place1 = select(s.place + 1u, 0u, last0);
    let last1 = place1 + 1u == p.n;
    // A row after the last one repeats the unknown that follows it.
    a = select(a, vec2<real>(), vec2<bool>((s.place == 0u && cut) || !in0, (place1 == 0u && cut) || !in1));
    c = select(c, vec2<real>(), vec2<bool>(last0 && cut, last1 && cut));
    if !in1 { b.y = real(1); c.y = real(-1); r.y = real(0); }
    if !in0 { b.x = real(1); c.x = real(-1); r.x = real(0); }
    let f = s.unit.f;
    let both = eliminate(s.unit.l, a, b, c, r);
    let rest = abs(a) + abs(c);
    let weight = abs(b) + rest;
    let bad = both_flags(s.bad, select(0u, 0x80000000u, any(abs(b) < rest)))
        + select(0u, 1u, abs(both.det) <= small * weight.x * weight.y);
    return Sweep(
        Unit(
            vec3<real>(fma(-f.z, both.first.x, f.x), fma(-f.z, both.first.y, f.y), -f.z * both.first.z),
            select(select(s.unit.l, both.first, in0), both.second, in1),
        ),
        select(place1 + 1u, 0u, last1), bad, both,
    );
}

// Returns the unknowns of two rows.
fn of_pair(pair: Pair, left: real, behind: real) -> vec2<real> {
    let y = fma(-pair.second.z, behind, fma(-pair.second.y, left, pair.second.x));
    return vec2<real>(fma(-pair.first.z, behind, fma(-pair.first.y, left, pair.first.x)), y);
}
