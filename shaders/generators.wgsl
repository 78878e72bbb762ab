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

// Rates of 256 states in 8 columns. Rows are padded, so that adjacent threads use different banks.
var<workgroup> rates: array<real, 2304>;
var<workgroup> exits: array<real, 1024>;

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

// Returns the exit rate; -1 for a diagonal entry that does not balance the row, or a negative,
// infinite or NaN rate.
fn exit_rate(total: Total) -> real {
    let sum = total.sum + total.lost;
    let balanced = total.diagonal == real(0) || abs(total.diagonal + sum) <= real(1e-5) * sum;
    return select(real(-1), sum, total.valid && balanced);
}

@compute @workgroup_size(256)
fn generators(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) local: u32) {
    let each = max(256u / p.n, 1u);
    let chain = (group.y * groups.x + group.x) * each;
    let chains = min(each, p.chains - min(chain, p.chains));
    let first = chain * p.n;
    let states = chains * p.n;
    for (var start = 0u; start < states; start += 256u) {
        let state = start + local;
        var total = Total(real(0), real(0), real(0), true);
        for (var columns = 0u; columns < p.n; columns += 8u) {
            workgroupBarrier();
            // Adjacent threads read adjacent rates.
            for (var at = local; at < 2048u; at += 256u) {
                let row = at / 8u;
                let column = columns + at % 8u;
                if start + row < states && column < p.n { rates[9u * row + at % 8u] = q[(first + start + row) * p.n + column]; }
            }
            workgroupBarrier();
            let width = min(8u, p.n - columns);
            for (var at = 0u; at < width; at++) {
                let rate = rates[9u * local + at];
                if columns + at == state % p.n { total.diagonal = rate; } else { total = plus_rate(total, rate); }
            }
        }
        if state < states {
            exits[state] = exit_rate(total);
            exit[first + state] = exits[state];
        }
    }
    workgroupBarrier();
    if local < chains {
        var largest = real(0);
        var valid = true;
        for (var i = local * p.n; i < (local + 1u) * p.n; i++) {
            valid = valid && exits[i] >= real(0);
            largest = max(largest, exits[i]);
        }
        alpha[chain + local] = select(real(-1), largest, valid);
    }
}
