// Computes the largest exit rate of each chain; -1 if one of them is negative. Reads one number per
// state, writes one per chain.
alias real = f64;

struct Params {
    step: u32,
    n: u32,        // states of each chain
    chains: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> exit: array<real>;
@group(0) @binding(1) var<storage, read_write> alpha: array<real>;

@compute @workgroup_size(256)
fn largest_exit_rates(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) local: u32) {
    let chain = (group.y * groups.x + group.x) * 256u + local;
    if chain >= p.chains { return; }
    var largest = real(0);
    var least = real(0);
    for (var i = chain * p.n; i < (chain + 1u) * p.n; i++) {
        largest = max(largest, exit[i]);
        least = min(least, exit[i]);
    }
    alpha[chain] = select(real(-1), largest, least == real(0));
}
