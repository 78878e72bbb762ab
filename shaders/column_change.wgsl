// Change from x to y of COLUMNS vectors side by side. Each workgroup stores four numbers per
// column: the sum and the maximum of abs(y - x), the maximum of y, and the maximum of -y. With
// NORM, x counts as 0. The numbers of step k follow those of all steps before. A thread reads every
// p.threads-th element; workgroups have whole rows. Moves 2 numbers per element, with NORM one.
alias real = f64;

override COLUMNS = 1u;  // number of vectors
override NORM = false;

struct Params { step: u32, elements: u32, threads: u32 }
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<real>;
@group(0) @binding(1) var<storage, read> y: array<real>;
@group(0) @binding(2) var<storage, read_write> out: array<real>;

var<workgroup> parts: array<vec4<real>, 256>;

fn join(a: vec4<real>, b: vec4<real>) -> vec4<real> {
    return vec4<real>(a.x + b.x, max(a.y, b.y), max(a.z, b.z), max(a.w, b.w));
}

@compute @workgroup_size(256)
fn column_change(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) local: u32) {
    let block = group.y * groups.x + group.x;
    // Elements are at most 1 in absolute value, up to rounding.
    var own = vec4<real>(real(0), real(0), real(-4), real(-4));
    for (var i = block * 256u + local; block * 256u < p.threads && i < p.elements; i += p.threads) {
        var before = real(0);
        if !NORM { before = x[i]; }
        let change = abs(y[i] - before);
        own = join(own, vec4<real>(change, change, y[i], -y[i]));
    }
    parts[local] = own;
    for (var half = 128u; half >= COLUMNS; half >>= 1u) {
        workgroupBarrier();
        if local < half { parts[local] = join(parts[local], parts[local + half]); }
    }
    if local < COLUMNS && block * 256u < p.threads {
        let at = 4u * ((p.step * (p.threads / 256u) + block) * COLUMNS + local);
        let all = parts[local];
        out[at] = all.x; out[at + 1u] = all.y; out[at + 2u] = all.z; out[at + 3u] = all.w;
    }
}
