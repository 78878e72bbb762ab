// The maximum over 2048 rows of |b - A x|_i / (|A| |x| + |b|)_i, the backward error of row i
// (Oettli, Prager 1964). NaN counts as 1, and so do rows with products that may have lost digits. A
// thread takes 8 rows, 256 apart. Reads 5 numbers per row, writes 1 per 2048 rows.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,
    n: u32,        // rows of one system; systems are concatenated
    cyclic: u32,   // 1: cyclic system
    tiny: u32,     // no digits are lost in products from 4^-(8 tiny) to 4^(8 tiny)
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> dl: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> du: array<real>;
@group(0) @binding(3) var<storage, read> rhs: array<real>;
@group(0) @binding(4) var<storage, read> x: array<real>;
@group(0) @binding(5) var<storage, read_write> errors: array<real>;   // one per 2048 rows

const ROWS: u32 = 8u;      // rows of a thread

@compute @workgroup_size(256)
fn tridiagonal_residual(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    var least = share_of(p.tiny);
    least *= least;
    least *= least;
    least *= least;
    var worst = real(0);
    for (var k = 0u; k < ROWS; k++) {
        let row = (index * ROWS + k) * 256u + local;
        if row < p.rows { worst = join(worst, error_of(row, least)); }
    }
    let all = tree(local, worst);
    if local == 0u && index * ROWS * 256u < p.rows { errors[index] = all; }
}

alias Value = real;

fn join(a: real, b: real) -> real { return select(a, b, b > a); }

fn error_of(row: u32, least: real) -> real {
    let place = row % p.n;
    let begins = place == 0u;
    let ends = place + 1u == p.n;
    let before = select(row - 1u, row + (p.n - 1u), begins);
    let behind = select(row + 1u, row - place, ends);
    // An open system has no unknowns beyond its ends, so array elements there are ignored.
    let open = p.cyclic == 0u;
    let k = vec3<real>(select(dl[row], real(0), begins && open), d[row], select(du[row], real(0), ends && open));
    let at = vec3<real>(select(x[before], real(0), begins && open), x[row], select(x[behind], real(0), ends && open));
    let b = rhs[row];
    let left = abs(fma(-k.y, at.y, fma(-k.z, at.z, fma(-k.x, at.x, b))));
    let scale = abs(k.x * at.x) + abs(k.y * at.y) + abs(k.z * at.z) + abs(b);
    // Comparisons with NaN are false.
    if left <= scale && scale >= least && scale * least <= real(1) { return left / scale; }
    let none = vec3<real>();
    return select(real(1), real(0), all((k == none) | (at == none)) && b == real(0));
}
