// Two rows, as they lie in memory and eliminated with one division. The kernel binds dl, d, du and rhs.

// Two rows a, b, c | r, eliminated behind a row x_before = l.x - l.y x_left - l.z x_first: what gives them from x_left and
// the unknown behind them.
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

// Two rows of the four diagonals.
struct Rows { a: vec2<real>, b: vec2<real>, c: vec2<real>, r: vec2<real> }

fn rows_at(pair: u32) -> Rows { return rows_of(pair, 0u); }

// Those of the right-hand side that begins `beside` pairs further on.
fn rows_of(pair: u32, beside: u32) -> Rows { return Rows(dl[pair], d[pair], du[pair], rhs[beside + pair]); }
