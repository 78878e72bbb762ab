// x_i += sum of w_f v_fi over `functionals` vectors v_f, with the weights of this step. Stores the
// sum as vector `step` mod `slots` of `all`. One thread per element. Moves 3 numbers per element,
// and one for each weight that is not 0.
alias real = f64;

struct Params { step: u32, rows: u32, slots: u32, functionals: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> weights: array<real>;  // by step and functional
@group(0) @binding(1) var<storage, read> values: array<real>;   // by functional and element
@group(0) @binding(2) var<storage, read_write> x: array<real>;
@group(0) @binding(3) var<storage, read_write> all: array<real>;

@compute @workgroup_size(256)
fn adjoint_store(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    var sum = x[i];
    for (var f = 0u; f < p.functionals; f++) {
        let w = weights[p.step * p.functionals + f];
        if w != real(0) { sum = fma(w, values[f * p.rows + i], sum); }
    }
    if p.functionals > 0u { x[i] = sum; }
    all[(p.step % p.slots) * p.rows + i] = sum;
}
