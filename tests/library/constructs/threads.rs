//! Operations across threads.
//!
//! Built-in values, workgroup memory, barriers.

use super::{Construct, THREADS, construct, thread};

pub(super) fn all() -> Vec<Construct> {
    vec![
        built_in_values(),
        thread(
            "workgroup memory and barriers",
            "
struct Two { first: u32, second: vec2<u32> }
var<workgroup> shared_: array<u32, 256>;
var<workgroup> two: Two;",
            "
    shared_[local] = i;
    if local == 17u { two = Two(a[i], vec2(i, 2u * i)); }
    workgroupBarrier();
    let other = shared_[255u - local];
    workgroupBarrier();
    shared_[local] = other + two.second.y;
    storageBarrier();
    out[i] = shared_[(local + 1u) % 256u] + two.first;",
            |i, a: &[u32]| {
                let first = i / 256 * 256;
                let next = (i + 1) % 256;
                [((first + 255 - next + 2 * (first + 17)) as u32).wrapping_add(a[first + 17])]
            },
        ),
        thread(
            "override constants",
            "
override SIZE: u32 = 256u;
override ADD = true;
var<workgroup> shared_: array<u32, SIZE>;",
            "
    shared_[local] = i;
    workgroupBarrier();
    out[i] = shared_[SIZE - 1u - local] + a[i];
    if ADD { out[i] += SIZE / 2u; }",
            |i, a: &[u32]| [((i / 256 * 256 + 255 - i % 256 + 128) as u32).wrapping_add(a[i])],
        ),
        thread(
            "a tree of sums in workgroup memory",
            "var<workgroup> sums: array<f64, 256>;",
            "
    sums[local] = f64(i);
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { sums[local] += sums[local + half]; }
    }
    workgroupBarrier();
    out[i] = sums[0];",
            |i, _: &[f64]| [(0..256).map(|k| (i / 256 * 256 + k) as f64).sum::<f64>()],
        ),
    ]
}

fn built_in_values() -> Construct {
    let wgsl = "// The built-in values of a thread.
alias real = f64;
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn construct(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {
    let k = 5u * (256u * group.x + local);
    out[k] = group.x; out[k + 1u] = group.y + group.z; out[k + 2u] = groups.x; out[k + 3u] = groups.y * groups.z;
    out[k + 4u] = local;
}
";
    let thread = |i: u32| [i / 256, 0, 2, 1, i % 256];
    let after: Vec<u32> = (0..THREADS as u32).flat_map(thread).collect();
    construct("built-in values, without immediates", wgsl.into(), &[0u32; 4], &after)
}
