// out[d points + i] = coordinate d of point first_point + i: words of MTGP32, a Mersenne Twister of
// period 2^11213 - 1. One workgroup per generator, with its own parameters and state. A round makes
// 256 words, one per thread, for one dimension of a block of 256 points. Generator g makes blocks
// g, g + groups, g + 2 groups, ... Writes 4 bytes per word; the state of 351 words stays in
// workgroup memory. Uses no floating-point numbers.
alias real = f64;

struct Params {
    step: u32,
    groups: u32,       // generators
    first_block: u32,  // first block of this launch; states precede it
    end_point: u32,    // exclusive end
    dimensions: u32,
    points: u32,       // points of this launch; length of each dimension's row
}
var<immediate> p: Params;

// 12 words per generator: pos, sh1, sh2, 0, then entries 1, 2, 4, 8 of the recursion's table and of
// the tempering table.
@group(0) @binding(0) var<storage, read> sets: array<u32>;
@group(0) @binding(1) var<storage, read_write> states: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

// Word k of the sequence x is at index k mod 1024.
var<workgroup> x: array<u32, 1024>;

// XOR of those of the table's four words that the low four bits of `bits` select.
fn entry(table: u32, bits: u32) -> u32 {
    return (sets[table] & (0u - (bits & 1u))) ^ (sets[table + 1u] & (0u - ((bits >> 1u) & 1u)))
        ^ (sets[table + 2u] & (0u - ((bits >> 2u) & 1u))) ^ (sets[table + 3u] & (0u - ((bits >> 3u) & 1u)));
}

@compute @workgroup_size(256)
fn mtgp32(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
          @builtin(local_invocation_index) local: u32) {
    let generator = group.y * groups.x + group.x;
    if generator >= p.groups { return; }
    let first = 12u * generator;
    let pos = sets[first];
    let sh1 = sets[first + 1u];
    let sh2 = sets[first + 2u];
    let state = 351u * generator;
    x[local] = states[state + local];
    if local < 95u { x[256u + local] = states[state + 256u + local]; }
    workgroupBarrier();

    // 256 words are made at a time, since none depends on another of them: pos < 351 - 256.
    var at = 0u;
    let past = p.first_block % p.groups;
    let ahead = select(generator - past, generator + p.groups - past, generator < past);
    let first_point = p.first_block * 256u;
    for (var block = p.first_block + ahead; block * 256u < p.end_point; block += p.groups) {
        let i = block * 256u + local;
        for (var d = 0u; d < p.dimensions; d++) {
            let k = at + local;
            var y = (x[k & 1023u] & 0xfff80000u) ^ x[(k + 1u) & 1023u];
            y ^= y << sh1;
            y ^= x[(k + pos) & 1023u] >> sh2;
            y ^= entry(first + 4u, y);
            var t = x[(k + pos - 1u) & 1023u];
            t ^= t >> 16u;
            t ^= t >> 8u;
            x[(k + 351u) & 1023u] = y;
            if i < p.end_point { out[d * p.points + (i - first_point)] = y ^ entry(first + 8u, t); }
            at += 256u;
            workgroupBarrier();
        }
    }
    states[state + local] = x[(at + local) & 1023u];
    if local < 95u { states[state + 256u + local] = x[(at + 256u + local) & 1023u]; }
}
