// Scans the rates out of each state. Stores three arrays, one after the other: the sum of the rates
// of each row (Neumaier 1974), the sum of the rates times the weights of their targets, and the
// smallest rate above 0. That is 0 if there is none, and -1 if a rate is negative, infinite or NaN.
// One thread per row. Moves 24 bytes per entry, and 3 numbers per row.
alias real = f64;

struct Params { step: u32, rows: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;    // index of each entry's rate
@group(0) @binding(3) var<storage, read> weights: array<real>;
@group(0) @binding(4) var<storage, read> rates: array<real>;
@group(0) @binding(5) var<storage, read_write> found: array<real>;

@compute @workgroup_size(256)
fn row_scan(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.rows { return; }
    var sum = real(0);
    var lost = real(0);
    var weighted = real(0);
    var least = real(0);
    for (var e = starts[i]; e < starts[i + 1u]; e++) {
        let rate = rates[order[e]];
        // rate - rate is NaN for infinite rates.
        let valid = rate >= real(0) && rate - rate == real(0);
        if !valid || least < real(0) {
            least = real(-1);
        } else if rate > real(0) && (least == real(0) || rate < least) {
            least = rate;
        }
        let next = sum + rate;
        lost += select((rate - next) + sum, (sum - next) + rate, sum >= rate);
        sum = next;
        weighted += rate * weights[columns[e]];
    }
    found[i] = sum + lost;
    found[p.rows + i] = weighted;
    found[2u * p.rows + i] = least;
}
