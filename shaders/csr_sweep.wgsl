// y_i = f_i + sum over the entries e of row i of values_e x_(columns_e); changes_b = max over the rows i of block b of
// |y_i - x_i|. One thread a row of a matrix in compressed rows, one workgroup a block of 256 rows.
// Moves 4 bytes and one number an entry, 4 bytes and three numbers a row, gathers of x aside.
alias real = f64;

struct Params { step: u32, rows: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> f: array<real>;
@group(0) @binding(4) var<storage, read> x: array<real>;
@group(0) @binding(5) var<storage, read_write> y: array<real>;
@group(0) @binding(6) var<storage, read_write> changes: array<real>;

alias Value = real;

fn join(a: Value, b: Value) -> Value { return max(a, b); }

@compute @workgroup_size(256)
fn csr_sweep(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    let block = group.y * groups.x + group.x;
    let i = block * 256u + local;
    var change = real(0);
    if i < p.rows {
        var s = f[i];
        let end = starts[i + 1u];
        for (var e = starts[i]; e < end; e++) { s = fma(values[e], x[columns[e]], s); }
        y[i] = s;
        change = abs(s - x[i]);
    }
    let largest = tree(local, change);
    if local == 0u && i < p.rows { changes[block] = largest; }
}
