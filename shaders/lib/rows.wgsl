// Pairs of rows: loads, and elimination with one division. The kernel binds dl, d, du and rhs.

// Elimination of two rows a, b, c | r after a row x_before = l.x - l.y x_left - l.z x_first. Here
// x_first is the first unknown of the two. `first` and `second` express the two unknowns by x_left
// and x_behind, the unknown after them: x = v.x - v.y x_left - v.z x_behind.
struct Pair { first: vec3<real>, second: vec3<real>, det: real }

fn eliminate(l: vec3<real>, a: vec2<real>, b: vec2<real>, c: vec2<real>, r: vec2<real>) -> Pair {
    let pivot = fma(-a.x, l.z, b.x);
    let sum = fma(-a.x, l.x, r.x);
    let left = -a.x * l.y;
    let det = fma(pivot, b.y, -a.y * c.x);
    let g = real(1) / det;
    return Pair(
        vec3<real>(fma(b.y, sum, -c.x * r.y) * g, b.y * left * g, -c.x * c.y * g),
        vec3<real>(fma(pivot, r.y, -a.y * sum) * g, -a.y * left * g, pivot * c.y * g),
        det,
    );
}

// Coefficients and right-hand sides of two rows.
struct Rows { a: vec2<real>, b: vec2<real>, c: vec2<real>, r: vec2<real> }

fn rows_at(pair: u32) -> Rows { return rows_of(pair, 0u); }

// Loads two rows with the right-hand side that begins `beside` pairs further on.
fn rows_of(pair: u32, beside: u32) -> Rows { return Rows(dl[pair], d[pair], du[pair], rhs[beside + pair]); }
