//! Operations across threads.
//!
//! Built-in values, workgroup memory, barriers, atomics, subgroups.

use super::{Construct, Number, THREADS, bytes, construct, text, thread};

pub(super) fn all() -> Vec<Construct> {
    let mut list = vec![
        built_in_values(),
        thread(
            "built-in values in a struct",
            "
struct Place { @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32 }
fn at(place: Place) -> u32 { return 256u * place.group.x + place.local; }",
            "    out[i] = at(Place(group, local)) + p.items + p.step;",
            |i, _: &[u32]| [i as u32 + 515],
        ),
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
            "workgroupUniformLoad",
            "
var<workgroup> one: u32;
var<workgroup> count: atomic<u32>;",
            "
    if local == 3u { one = i; }
    if local == 0u { atomicStore(&count, 0u); }
    let before = workgroupUniformLoad(&one);
    atomicAdd(&count, 2u);
    let all = workgroupUniformLoad(&count);
    if local == 4u { one = 5u; }
    out[i] = before + 1000u * all + 1000000u * workgroupUniformLoad(&one);",
            |i, _: &[u32]| [(i / 256 * 256 + 3 + 512_000 + 5_000_000) as u32],
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
        shared_count(),
        workgroup_atomics(),
        subgroup_values(),
        subgroup_moves(),
        subgroup_votes(),
    ];
    list.push(atomics::<u32>("u32", [0, 1, 2, 3, 4, 5, 6, 7].map(|k| k * 0x1357_9bdf)));
    list.push(atomics::<i32>("i32", [0, -1, 2, -3, 4, -5, i32::MAX, i32::MIN]));
    list.push(atomics::<u64>("u64", [0, 1, 2, 3, 4, 5, 6, 7].map(|k| k * 0x1357_9bdf_0246_8ace)));
    list.push(atomics::<i64>("i64", [0, -1, 2, -3, 4, -5, i64::MAX, i64::MIN]));
    list.push(subgroup_reductions::<u32>());
    list.push(subgroup_reductions::<i32>());
    list.push(subgroup_reductions::<u64>());
    list.push(subgroup_sums());
    list
}

fn built_in_values() -> Construct {
    let wgsl = "// The built-in values of a thread.
alias real = f64;
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
struct More { @builtin(global_invocation_id) at: vec3<u32>, @builtin(subgroup_id) subgroup: u32 }

@compute @workgroup_size(256)
fn construct(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32, more: More,
             @builtin(num_subgroups) subgroups: u32, @builtin(subgroup_size) size: u32,
             @builtin(subgroup_invocation_id) lane: u32) {
    let k = 12u * more.at.x;
    out[k] = group.x; out[k + 1u] = group.y + group.z; out[k + 2u] = groups.x; out[k + 3u] = groups.y * groups.z;
    out[k + 4u] = id.x; out[k + 5u] = id.y + id.z; out[k + 6u] = local; out[k + 7u] = more.at.y + more.at.z;
    out[k + 8u] = more.subgroup; out[k + 9u] = subgroups; out[k + 10u] = size; out[k + 11u] = lane;
}
";
    let thread = |i: u32| {
        let local = i % 256;
        [i / 256, 0, 2, 1, local, 0, local, 0, local / 32, 8, 32, local % 32]
    };
    let after: Vec<u32> = (0..THREADS as u32).flat_map(thread).collect();
    construct("built-in values, without immediates", wgsl.into(), &[0u32; 4], &after)
}

/// An integer type with the operations of atomics.
trait Integer: Number + Eq + Ord {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn bits(self, other: Self, f: fn(u64, u64) -> u64) -> Self;
}

macro_rules! integer {
    ($($t:ident)*) => {$(
        impl Integer for $t {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn bits(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
                f(self as u64, other as u64) as Self
            }
        }
    )*};
}
integer!(u32 i32 u64 i64);

/// Every atomic function on a number of one thread: the returned value and the stored value.
fn atomics<T: Integer>(name: &str, operands: [T; 8]) -> Construct {
    let statements = "
    let k = 20u * i; let x = a[2u * i]; let y = a[2u * i + 1u];
    atomicStore(&out[k], x); atomicStore(&out[k + 1u], atomicAdd(&out[k], y));
    atomicStore(&out[k + 2u], x); atomicStore(&out[k + 3u], atomicSub(&out[k + 2u], y));
    atomicStore(&out[k + 4u], x); atomicStore(&out[k + 5u], atomicMin(&out[k + 4u], y));
    atomicStore(&out[k + 6u], x); atomicStore(&out[k + 7u], atomicMax(&out[k + 6u], y));
    atomicStore(&out[k + 8u], x); atomicStore(&out[k + 9u], atomicAnd(&out[k + 8u], y));
    atomicStore(&out[k + 10u], x); atomicStore(&out[k + 11u], atomicOr(&out[k + 10u], y));
    atomicStore(&out[k + 12u], x); atomicStore(&out[k + 13u], atomicXor(&out[k + 12u], y));
    atomicStore(&out[k + 14u], x); atomicStore(&out[k + 15u], atomicExchange(&out[k + 14u], y));
    atomicStore(&out[k + 16u], x);
    let first = atomicCompareExchangeWeak(&out[k + 16u], x, y);
    let second = atomicCompareExchangeWeak(&out[k + 16u], x, x);
    atomicStore(&out[k + 17u], first.old_value + second.old_value);
    atomicStore(&out[k + 18u], select(T(0), T(1), first.exchanged) + select(T(0), T(2), second.exchanged));
    atomicAdd(&out[k + 19u], atomicLoad(&out[k + 16u]));"
        .replace("T(", &format!("{}(", T::NAME));
    let (mut input, mut after) = (Vec::new(), Vec::new());
    let one = T::EDGES[1];
    for i in 0..THREADS {
        let (x, y) = (operands[i % 8], operands[i / 8 % 8]);
        input.extend([x, y]);
        let zero = x.minus(x);
        // The second exchange finds the value of the first, which is x again only if y is.
        let again = if x == y { one.plus(one) } else { zero };
        after.extend([x.plus(y), x, x.minus(y), x, x.min(y), x, x.max(y), x]);
        after.extend([x.bits(y, |x, y| x & y), x, x.bits(y, |x, y| x | y), x, x.bits(y, |x, y| x ^ y), x]);
        after.extend([y, x, y, x.plus(y), one.plus(again), y]);
    }
    let wgsl = text("", &format!("array<{name}>"), &format!("array<atomic<{name}>>"), &statements);
    construct(format!("atomics on {name}"), wgsl, &input, &after)
}

/// All threads update the same numbers.
fn shared_count() -> Construct {
    let n = THREADS as u32;
    let statements = "
    atomicAdd(&out[0], i);
    atomicMax(&out[1], i);
    atomicMin(&out[2], i);
    atomicOr(&out[3], 1u << i);
    if i % 2u == 0u { atomicSub(&out[4], 3u); }
    loop {
        let seen = atomicLoad(&out[5]);
        if atomicCompareExchangeWeak(&out[5], seen, seen + 2u).exchanged { break; }
    }";
    let after = [n * (n - 1) / 2, n - 1, 0, u32::MAX, 0u32.wrapping_sub(3 * n / 2), 2 * n + 1];
    let wgsl = text("", "array<u32>", "array<atomic<u32>>", statements);
    let before = bytes(&[0u32, 0, 9999, 0, 0, 1]);
    Construct { before, ..construct("atomics that all threads share", wgsl, &[0u32; 4], &after) }
}

fn workgroup_atomics() -> Construct {
    let after: Vec<u32> = (0..THREADS as u32).map(|i| if i / 256 == 0 { 32_640 } else { 98_176 }).collect();
    let declarations = "struct Sums { unused: u32, sum: atomic<u32> }\nvar<workgroup> sums: Sums;";
    let statements = "
    if local == 0u { atomicStore(&sums.sum, 0u); }
    workgroupBarrier();
    atomicAdd(&sums.sum, i);
    workgroupBarrier();
    out[i] = atomicLoad(&sums.sum);";
    let wgsl = text(declarations, "array<u32>", "array<u32>", statements);
    construct("atomics in workgroup memory", wgsl, &[0u32; 4], &after)
}

/// A kernel that uses its lane in the subgroup and runs on `array<A>`.
fn subgroup<A: Number, R: Number>(
    name: &str,
    input: &[A],
    statements: &str,
    f: impl Fn(usize, &[A]) -> Vec<R>,
) -> Construct {
    let lanes = "@builtin(subgroup_invocation_id) lane: u32, @builtin(workgroup_id)";
    let wgsl = text("", &format!("array<{}>", A::NAME), &format!("array<{}>", R::NAME), statements).replacen(
        "@builtin(workgroup_id)",
        lanes,
        1,
    );
    let after: Vec<R> = (0..THREADS).flat_map(|i| f(i % 32, &input[i / 32 * 32..][..32])).collect();
    construct(format!("{name} of {}", A::NAME), wgsl, input, &after)
}

fn edges<T: Number>() -> Vec<T> {
    (0..THREADS).map(|i| T::EDGES[(i * i + i / 32) % T::EDGES.len()]).collect()
}

fn subgroup_reductions<T: Integer>() -> Construct {
    subgroup::<T, T>(
        "subgroup reductions and scans",
        &edges(),
        "
    let x = a[i]; let k = 14u * i;
    out[k] = subgroupAdd(x); out[k + 1u] = subgroupMul(x);
    out[k + 2u] = subgroupMin(x); out[k + 3u] = subgroupMax(x);
    out[k + 4u] = subgroupAnd(x); out[k + 5u] = subgroupOr(x); out[k + 6u] = subgroupXor(x);
    out[k + 7u] = subgroupInclusiveAdd(x); out[k + 8u] = subgroupExclusiveAdd(x);
    out[k + 9u] = subgroupInclusiveMul(x); out[k + 10u] = subgroupExclusiveMul(x);
    let v = subgroupExclusiveMul(vec2(x, x + x)); let w = subgroupAdd(vec3(x, a[i], x * x));
    out[k + 11u] = v.x; out[k + 12u] = v.y; out[k + 13u] = w.z;",
        |lane, x| {
            let fold = |n: usize, f: fn(T, T) -> T| x[1..n].iter().fold(x[0], |s, &v| f(s, v));
            let one = T::EDGES[1];
            let zero = one.minus(one);
            let mul = |x: T, y: T| x.times(y);
            let below = |start: T, f: fn(T, T) -> T| x[..lane].iter().fold(start, |s, &v| f(s, v));
            let twice = x[..lane].iter().fold(one, |s, &v| s.times(v.plus(v)));
            let squares = x.iter().fold(zero, |s, &v| s.plus(v.times(v)));
            vec![
                fold(32, T::plus),
                fold(32, mul),
                fold(32, T::min),
                fold(32, T::max),
                fold(32, |x, y| x.bits(y, |x, y| x & y)),
                fold(32, |x, y| x.bits(y, |x, y| x | y)),
                fold(32, |x, y| x.bits(y, |x, y| x ^ y)),
                fold(lane + 1, T::plus),
                below(zero, T::plus),
                fold(lane + 1, mul),
                below(one, mul),
                below(one, mul),
                twice,
                squares,
            ]
        },
    )
}

/// Sums of f64 in the order of a butterfly; here every order is exact.
fn subgroup_sums() -> Construct {
    let input: Vec<f64> = (0..THREADS).map(|i| (i * i % 97) as f64 - 40.5).collect();
    subgroup::<f64, f64>(
        "subgroup sums",
        &input,
        "
    let x = a[i]; let k = 5u * i;
    out[k] = subgroupAdd(x); out[k + 1u] = subgroupMin(x); out[k + 2u] = subgroupMax(x);
    out[k + 3u] = subgroupInclusiveAdd(x); out[k + 4u] = subgroupExclusiveAdd(x);",
        |lane, x| {
            vec![
                x.iter().sum(),
                x.iter().copied().fold(f64::INFINITY, f64::min),
                x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                x[..=lane].iter().sum(),
                x[..lane].iter().fold(0.0, |s, v| s + v),
            ]
        },
    )
}

fn subgroup_values() -> Construct {
    subgroup::<f64, f64>(
        "subgroup shuffles",
        &edges(),
        "
    let x = a[i]; let k = 6u * i;
    out[k] = subgroupBroadcastFirst(x); out[k + 1u] = subgroupBroadcast(x, 5u);
    out[k + 2u] = subgroupShuffle(x, 31u - lane); out[k + 3u] = subgroupShuffleXor(x, 9u);
    let down = subgroupShuffleDown(x, 3u); out[k + 4u] = select(x, down, lane < 29u);
    let up = subgroupShuffleUp(x, 4u); out[k + 5u] = select(x, up, lane >= 4u);",
        |lane, x| {
            vec![
                x[0],
                x[5],
                x[31 - lane],
                x[lane ^ 9],
                x[if lane < 29 { lane + 3 } else { lane }],
                x[if lane >= 4 { lane - 4 } else { lane }],
            ]
        },
    )
}

fn subgroup_moves() -> Construct {
    subgroup::<i64, i64>(
        "subgroup quads and vectors",
        &edges(),
        "
    let x = a[i]; let k = 6u * i;
    out[k] = quadBroadcast(x, 2u); out[k + 1u] = quadSwapX(x); out[k + 2u] = quadSwapY(x);
    out[k + 3u] = quadSwapDiagonal(x);
    let v = subgroupShuffle(vec2(x, -x), lane / 2u); out[k + 4u] = v.x; out[k + 5u] = v.y;
    subgroupBarrier();",
        |lane, x| {
            let half = x[lane / 2];
            vec![x[lane / 4 * 4 + 2], x[lane ^ 1], x[lane ^ 2], x[lane ^ 3], half, half.wrapping_neg()]
        },
    )
}

fn subgroup_votes() -> Construct {
    subgroup::<u32, u32>(
        "subgroup votes",
        &edges(),
        "
    let x = a[i]; let k = 7u * i;
    out[k] = u32(subgroupAll(x > 0u)); out[k + 1u] = u32(subgroupAny(x == 7u));
    let ballot = subgroupBallot(x > 33u); out[k + 2u] = ballot.x; out[k + 3u] = ballot.y + ballot.z + ballot.w;
    out[k + 4u] = subgroupBallot().x; out[k + 5u] = u32(subgroupAll(i < 9999u));
    out[k + 6u] = u32(subgroupAny(lane == 32u));",
        |_, x| {
            let ballot = (0..32).map(|l| u32::from(x[l] > 33) << l).sum();
            let all = u32::from(x.iter().all(|&x| x > 0));
            vec![all, u32::from(x.contains(&7)), ballot, 0, u32::MAX, 1, 0]
        },
    )
}
