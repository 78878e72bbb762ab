// A step from b_i with the row sum a_i a_j + a_j b_i over three j from a table. The result is a_i
// next + abs(next - f b_i), where next is the step's result and f is a_i, or 1 - a_i in q64. One
// thread per element, on a folded grid. Moves 3 gathered numbers, 3 indices and 1 result per
// element. Driver errors in gathers, loops, fused operations or the order of additions change the
// bits.
alias real = f64;

struct Params { step: u32, items: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> index: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read> b: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

@compute @workgroup_size(256)
fn self_test(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= p.items { return; }
    var s = with_own(a[i], b[i], no_products());
    for (var k = 0u; k < 3u; k++) {
        let j = index[3u * i + k];
        s = plus(s, settled(plus_product(a[i], a[j], plus_product(a[j], b[i], no_products()))));
    }
    let next = stepped(s, a[i], b[i], a[i]);
    y[i] = weighted(a[i], next, number(deviation(a[i], b[i], next)));
}
