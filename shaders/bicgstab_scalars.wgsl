// The next scalar of BiCGSTAB from the sums (a, b) of a product or of a whole iteration:
// * stage 0: alpha = rho / a;
// * stage 1: omega = a / b;
// * stage 2: beta = (a / rho) (alpha / omega), then rho = a; b is the norm, a maximum.
//
// A scalar that is not finite ends the iteration, as does a norm below the threshold. One
// workgroup: thread t adds the blocks t, t + 256, ..., and a tree adds the threads. Moves 2 numbers
// per block.
alias real = f64;

struct Params {
    step: u32,
    blocks: u32,
    stage: u32,  // 0 after the first product, 1 after the second, 2 after the iteration
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> sums: array<vec2<real>>;
@group(0) @binding(1) var<storage, read_write> scalars: array<real>;

alias Value = vec2<real>;

fn join(a: Value, b: Value) -> Value { return vec2(a.x + b.x, select(a.y + b.y, max(a.y, b.y), p.stage == 2u)); }

// Far above any scalar of iterations that make progress.
const LARGEST = 1e30;

@compute @workgroup_size(256)
fn bicgstab_scalars(@builtin(local_invocation_index) local: u32) {
    var own = Value();
    for (var b = local; b < p.blocks; b += 256u) { own = join(own, sums[b]); }
    let sum = tree(local, own);
    if local != 0u || scalars[ACTIVE] == real(0) { return; }
    let rho = scalars[RHO];
    // Only the inverse is rounded alike by all drivers, so quotients are computed with it.
    var scalar = rho * (real(1) / sum.x);
    if p.stage == 0u {
        scalars[ALPHA] = scalar;
    } else if p.stage == 1u {
        // After an exact half step omega is 0.
        scalar = real(0);
        if sum.y > real(0) { scalar = sum.x * (real(1) / sum.y); }
        scalars[OMEGA] = scalar;
    } else {
        scalar = (sum.x * (real(1) / rho)) * (scalars[ALPHA] * (real(1) / scalars[OMEGA]));
        scalars[RHO] = sum.x;
        scalars[BETA] = scalar;
        scalars[ITERATIONS] += real(1);
    }
    if !(abs(scalar) <= real(LARGEST)) || (p.stage == 2u && sum.y <= scalars[ENOUGH]) { scalars[ACTIVE] = real(0); }
}
