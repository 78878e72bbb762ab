// Computes the exit rate of each state, by compensated summation (Neumaier 1974). It is -1 for a
// diagonal entry that does not balance the row, and for a negative, infinite or NaN rate. A
// workgroup processes 256 states. Reads n numbers per state, writes one.
alias real = f64;

struct Params {
    step: u32,
    n: u32,        // states of each chain
    states: u32,   // states of all chains
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<real>;   // rates by rows; diagonal: -exit rate or 0
@group(0) @binding(1) var<storage, read_write> exit: array<real>;

// Rates of 256 states in 8 columns. Rows are padded, so that adjacent threads use different banks.
var<workgroup> rates: array<real, 2304>;

// Sum of the rates of a state, so far: the exit rate is `sum` + `lost`.
struct Total { sum: real, lost: real, diagonal: real, valid: bool }

fn plus_rate(total: Total, rate: real) -> Total {
    var t = total;
    // rate - rate is NaN for infinite rates.
    t.valid = t.valid && rate >= real(0) && rate - rate == real(0);
    let next = t.sum + rate;
    t.lost += select((rate - next) + t.sum, (t.sum - next) + rate, t.sum >= rate);
    t.sum = next;
    return t;
}

fn exit_rate(total: Total) -> real {
    let sum = total.sum + total.lost;
    let balanced = total.diagonal == real(0) || abs(total.diagonal + sum) <= real(1e-5) * sum;
    return select(real(-1), sum, total.valid && balanced);
}

@compute @workgroup_size(256)
fn exit_rates(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) local: u32) {
    let first = (group.y * groups.x + group.x) * 256u;
    let own = (first + local) % p.n;
    var total = Total(real(0), real(0), real(0), true);
    for (var columns = 0u; columns < p.n; columns += 8u) {
        workgroupBarrier();
        // Adjacent threads read adjacent rates.
        for (var at = local; at < 2048u; at += 256u) {
            let state = first + at / 8u;
            let column = columns + at % 8u;
            if state < p.states && column < p.n { rates[9u * (at / 8u) + at % 8u] = q[state * p.n + column]; }
        }
        workgroupBarrier();
        let width = min(8u, p.n - columns);
        for (var at = 0u; at < width; at++) {
            let rate = rates[9u * local + at];
            if columns + at == own { total.diagonal = rate; } else { total = plus_rate(total, rate); }
        }
    }
    if first + local < p.states { exit[first + local] = exit_rate(total); }
}
