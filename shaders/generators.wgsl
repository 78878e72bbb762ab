// Computes the exit rate of each state, by compensated summation (Neumaier 1974), and the largest
// exit rate of each chain. The latter is -1 for an invalid generator. A workgroup processes
// floor(256 / n) chains, or one. Reads n numbers per state; writes one per state and per chain.
alias real = f64;

struct Params {
    step: u32,
    n: u32,        // states of each chain, at most 1024
    chains: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<real>;   // rates by rows; diagonal: -exit rate or 0
@group(0) @binding(1) var<storage, read_write> exit: array<real>;
@group(0) @binding(2) var<storage, read_write> alpha: array<real>;

var<workgroup> rates: array<real, 1024>;

// Returns the exit rate of a state. -1 for a diagonal entry that does not balance the row, or a
// negative, infinite or NaN rate.
fn exit_rate(state: u32) -> real {
    let own = state % p.n;
    var sum = real(0);
    var lost = real(0);
    var valid = true;
    for (var j = 0u; j < p.n; j++) {
        let rate = q[state * p.n + j];
        if j != own {
            // rate - rate is NaN for infinite rates.
            valid = valid && rate >= real(0) && rate - rate == real(0);
            let next = sum + rate;
            lost += select((rate - next) + sum, (sum - next) + rate, sum >= rate);
            sum = next;
        }
    }
    sum += lost;
    let diagonal = q[state * p.n + own];
    let balanced = diagonal == real(0) || abs(diagonal + sum) <= real(1e-5) * sum;
    return select(real(-1), sum, valid && balanced);
}

@compute @workgroup_size(256)
fn generators(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) local: u32) {
    let each = max(256u / p.n, 1u);
    let first = (group.y * groups.x + group.x) * each;
    for (var own = local; own < each * p.n; own += 256u) {
        let state = first * p.n + own;
        if state < p.chains * p.n {
            rates[own] = exit_rate(state);
            exit[state] = rates[own];
        }
    }
    workgroupBarrier();
    if local < each && first + local < p.chains {
        var largest = real(0);
        var valid = true;
        for (var i = local * p.n; i < (local + 1u) * p.n; i++) {
            valid = valid && rates[i] >= real(0);
            largest = max(largest, rates[i]);
        }
        alpha[first + local] = select(real(-1), largest, valid);
    }
}
