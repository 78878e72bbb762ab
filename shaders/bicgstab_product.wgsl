// y = x - M x, and sums_b = (sum over the rows i of block b of y_i z_i, sum of y_i^2). One thread
// per row of the HYB matrix. One workgroup adds a block of 256 rows, in a tree order common to all
// lanes. Moves (value + 4) bytes per entry, and 3 numbers per row (x, y, z), or 2 if z is x. x is
// gathered once per entry, from cache if its rows are adjacent.
alias real = f64;

struct Params {
    step: u32,
    rows: u32,       // rows of this chunk
    first_row: u32,  // first row of this chunk, a multiple of 256
}
var<immediate> p: Params;

@group(0) @binding(3) var<storage, read> scalars: array<real>;
@group(0) @binding(4) var<storage, read> x: array<real>;
@group(0) @binding(5) var<storage, read> z: array<real>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;
@group(0) @binding(7) var<storage, read_write> sums: array<vec2<real>>;

alias Value = vec2<real>;

fn join(a: Value, b: Value) -> Value { return a + b; }

@compute @workgroup_size(256)
fn bicgstab_product(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) local: u32) {
    if scalars[ACTIVE] == real(0) { return; }
    let block = group.y * groups.x + group.x;
    let row = block * 256u + local;
    var terms = Value();
    if row < p.rows {
        let i = p.first_row + row;
        let own = x[i];
        let other = z[i];
        let next = own - number(total(row_sum(row, 0u, no_products())));
        y[i] = next;
        terms = vec2(next * other, next * next);
    }
    let sum = tree(local, terms);
    if local == 0u && row < p.rows { sums[p.first_row / 256u + block] = sum; }
}
