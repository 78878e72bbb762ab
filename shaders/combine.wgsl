// y_i += f_0 a_i + f_1 b_i + f_2 c_i + f_3 d_i. One thread per element. Moves 6 numbers per
// element.
alias real = f64;

struct Params { step: u32, first: u32, rows: u32, own: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> factors: array<real>;
@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read> b: array<real>;
@group(0) @binding(3) var<storage, read> c: array<real>;
@group(0) @binding(4) var<storage, read> d: array<real>;
@group(0) @binding(5) var<storage, read_write> y: array<real>;

@compute @workgroup_size(256)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
           @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    let two = fma(factors[p.first + 1u], b[i], factors[p.first] * a[i]);
    let all = fma(factors[p.first + 3u], d[i], fma(factors[p.first + 2u], c[i], two));
    y[p.own + i] += all;
}
