// Up to 256 units become one: its first and last unknown as functions of the unknowns next to it.
// One thread a unit, joined in a tree of `levels` levels; in the place of a unit stays what gives the two unknowns at its
// right end: y = u0 - u1 x_left - u2 x_right, z = u3 - u4 x_left - u5 x_right. Reads and writes 6 numbers a unit.
alias real = f64;

struct Params {
    step: u32,
    count: u32,   // units
    small: u32,   // pivots of at most 4^-small are flagged
    levels: u32,  // 2^levels units become one, 256 at most
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> units: array<vec2<real>>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
@group(0) @binding(2) var<storage, read_write> above: array<vec2<real>>;
@group(0) @binding(3) var<storage, read_write> flags_above: array<u32>;

// Slot s lies at s + s / 16, so that strides of powers of two meet different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;
var<workgroup> flag: array<u32, 272>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

// Small pivots are counted, the bit above says that a row is not dominant.
fn both(a: u32, b: u32) -> u32 { return ((a | b) & 0x80000000u) | ((a & 0x7fffffffu) + (b & 0x7fffffffu)); }

@compute @workgroup_size(256)
fn tridiagonal_merge(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let unit = tile * 256u + local;
    // Of the units that become one the thread's is number `place`.
    let fan = 1u << p.levels;
    let place = local & (fan - 1u);
    let base = local - place;
    let root = real(1u << p.small);
    let small = real(1) / (root * root);
    let own = slot(local);
    // No unit: x_first is x_right and x_last is x_left.
    var v0 = vec2<real>(real(0), real(0));
    var v1 = vec2<real>(real(-1), real(0));
    var v2 = vec2<real>(real(-1), real(0));
    var bad = 0u;
    if unit < p.count {
        v0 = units[3u * unit];
        v1 = units[3u * unit + 1u];
        v2 = units[3u * unit + 2u];
        bad = flags[unit];
    }
    u0[own] = v0.x; u1[own] = v0.y; u2[own] = v1.x;
    u3[own] = v1.y; u4[own] = v2.x; u5[own] = v2.y;
    flag[own] = bad;
    for (var half = 1u; half < 256u; half <<= 1u) {
        workgroupBarrier();
        let behind = (2u * place + 1u) * half;
        if behind < fan {
            let a = slot(base + behind - 1u);
            let b = slot(base + behind + half - 1u);
            let det = fma(-u5[a], u1[b], real(1));
            let g = real(1) / det;
            let y = vec3<real>(g * fma(-u5[a], u0[b], u3[a]), g * u4[a], -g * u5[a] * u2[b]);
            let z = vec3<real>(g * fma(-u1[b], u3[a], u0[b]), -g * u1[b] * u4[a], g * u2[b]);
            flag[b] = both(flag[a], flag[b]) + select(0u, 1u, abs(det) <= small);
            u0[b] = fma(-u2[a], z.x, u0[a]);
            u1[b] = fma(-u2[a], z.y, u1[a]);
            u2[b] = -u2[a] * z.z;
            u3[b] = fma(-u4[b], y.x, u3[b]);
            u5[b] = fma(-u4[b], y.z, u5[b]);
            u4[b] = -u4[b] * y.y;
            // What is left of the two goes where the left one was: the unknowns between them.
            u0[a] = y.x; u1[a] = y.y; u2[a] = y.z;
            u3[a] = z.x; u4[a] = z.y; u5[a] = z.z;
        }
    }
    workgroupBarrier();
    if unit < p.count {
        units[3u * unit] = vec2<real>(u0[own], u1[own]);
        units[3u * unit + 1u] = vec2<real>(u2[own], u3[own]);
        units[3u * unit + 2u] = vec2<real>(u4[own], u5[own]);
    }
    if place == 0u && unit < p.count {
        let all = slot(base + fan - 1u);
        let whole = unit >> p.levels;
        above[3u * whole] = vec2<real>(u0[all], u1[all]);
        above[3u * whole + 1u] = vec2<real>(u2[all], u3[all]);
        above[3u * whole + 2u] = vec2<real>(u4[all], u5[all]);
        flags_above[whole] = flag[all];
    }
}
