// x_i += alpha d_i + omega r_i and r_i -= omega t_i, the second half of a BiCGSTAB iteration. Also
// sums_b = (sum over the rows i of block b of shadow_i r_i, max of abs(r_i) w_i), with w = 1 if
// rows are not weighted. One thread per row. One workgroup reduces a block of 256 rows, in a tree
// order common to all lanes. Moves 8 numbers per row.
alias real = f64;

struct Params { step: u32, rows: u32, weighted: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> scalars: array<real>;
@group(0) @binding(1) var<storage, read> d: array<real>;
@group(0) @binding(2) var<storage, read> t: array<real>;
@group(0) @binding(3) var<storage, read> shadow: array<real>;
@group(0) @binding(4) var<storage, read> w: array<real>;
@group(0) @binding(5) var<storage, read_write> x: array<real>;
@group(0) @binding(6) var<storage, read_write> r: array<real>;
@group(0) @binding(7) var<storage, read_write> sums: array<vec2<real>>;

alias Value = vec2<real>;

fn join(a: Value, b: Value) -> Value { return vec2(a.x + b.x, max(a.y, b.y)); }

@compute @workgroup_size(256)
fn bicgstab_whole(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                  @builtin(local_invocation_index) local: u32) {
    if scalars[ACTIVE] == real(0) { return; }
    let block = group.y * groups.x + group.x;
    let i = block * 256u + local;
    var terms = Value();
    if i < p.rows {
        let half = r[i];
        let next = fma(-scalars[OMEGA], t[i], half);
        x[i] = fma(scalars[ALPHA], d[i], fma(scalars[OMEGA], half, x[i]));
        r[i] = next;
        var size = abs(next);
        if p.weighted != 0u { size *= w[i]; }
        terms = vec2(shadow[i] * next, size);
    }
    let sum = tree(local, terms);
    if local == 0u && i < p.rows { sums[block] = sum; }
}
