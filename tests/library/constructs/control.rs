//! Control flow, functions, the order of evaluation.

use super::{Construct, thread};

pub(super) fn all() -> Vec<Construct> {
    vec![
        thread(
            "if, else if, else",
            "",
            "
    let x = a[i];
    if x == 0 { out[i] = 1; } else if x < 0 { if x < -5 { out[i] = 2; } else { out[i] = 3; } } else { out[i] = 4; }",
            |i, a: &[i32]| [if a[i] == 0 { 1 } else if a[i] < -5 { 2 } else if a[i] < 0 { 3 } else { 4 }],
        ),
        thread(
            "for, while, loop",
            "",
            "
    var s = 0u;
    for (var k = 0u; k < i % 7u; k++) { s += k * k; }
    var n = i;
    while n > 1u { if (n & 1u) == 0u { n /= 2u; } else { n = 3u * n + 1u; } s += 1u; }
    var m = 0u;
    loop { if m * m > i { break; } m++; }
    out[2u * i] = s; out[2u * i + 1u] = m;",
            |i, _: &[u32]| {
                let mut s: usize = (0..i % 7).map(|k| k * k).sum();
                let mut n = i;
                while n > 1 {
                    n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                    s += 1;
                }
                [s as u32, (0..).find(|m| m * m > i).unwrap_or_default() as u32]
            },
        ),
        thread(
            "return out of loops and functions",
            "
fn first(limit: u32) -> u32 {
    for (var k = 1u; ; k++) { if k * k * k > limit { return k; } }
    return 0u;
}
fn nothing(k: u32) { if k > 3u { return; } }",
            "
    nothing(i);
    out[i] = first(i) + 10u * first(2u * i);",
            |i, _: &[u32]| {
                let first = |limit| (1..).find(|k| k * k * k > limit).unwrap_or_default();
                [(first(i) + 10 * first(2 * i)) as u32]
            },
        ),
        thread(
            "functions with values, vectors and structs",
            "
struct Pair { first: f64, second: vec3<f64>, third: bool }
fn pair(x: f64, third: bool) -> Pair { return Pair(x, vec3(x, 2.0 * x, 3.0 * x), third); }
fn total(p_: Pair) -> f64 { if p_.third { return p_.first; } return p_.second.x + p_.second.y + p_.second.z; }
fn turned(v: vec2<f64>) -> vec2<f64> { return vec2(-v.y, v.x); }",
            "
    let x = f64(i);
    let t = turned(vec2(x * x, x * x * x));
    out[i] = total(pair(x, (i & 1u) == 1u)) + t.x + 2.0 * t.y;",
            |i, _: &[f64]| {
                let x = i as f64;
                [(if i % 2 == 1 { x } else { 6.0 * x }) - x * x * x + 2.0 * (x * x)]
            },
        ),
        thread(
            "functions with pointers",
            "
struct State { k: u32, v: vec3<f64>, }
fn bump(x: ptr<function, u32>, by: u32) -> u32 { let old = *x; *x += by; return old; }
fn keep(x: ptr<function, array<u32, 4>>, k: u32) { (*x)[k % 4u] += k; }
fn scale(s: ptr<function, State>) { (*s).v *= 2.0; (*s).v.y = 7.0; (*s).k++; }
fn part(v: ptr<function, vec3<f64>>) -> f64 { return (*v).z; }",
            "
    var k = i;
    let old = bump(&k, 5u);
    var s = State(k, vec3(1.0, 2.0, f64(i)));
    scale(&s);
    var v = s.v;
    var mine: array<u32, 4>;
    for (var j = 0u; j < 9u; j++) { keep(&mine, j); }
    let q = &mine[1];
    *q += 1000u;
    out[i] = f64(old + k + s.k) + part(&v) + v.y + f64(mine[0] + mine[1]);",
            |i, _: &[f64]| {
                let whole = i + (i + 5) + (i + 6) + 2 * i + 7 + (4 + 8) + (1 + 5 + 1000);
                [whole as f64]
            },
        ),
        thread(
            "functions that use the module's variables",
            "
var<workgroup> shared_: array<u32, 256>;
fn fetch(k: u32) -> u32 { return a[k] + p.items + p.step; }
fn both(k: u32) -> u32 { shared_[k % 256u] = k; return fetch(k); }
fn put(k: u32, v: u32) { out[k] = v; }",
            "
    let v = both(i) + both(i);
    workgroupBarrier();
    put(i, v + shared_[local]);",
            |i, a: &[u32]| [a[i].wrapping_mul(2).wrapping_add(2 * 515 + i as u32)],
        ),
        thread(
            "names that mean something to C++ and CUDA, and the same name in several scopes",
            "
struct dim3 { at: u32, float2: u32, größe: u32, gr_e: u32 }
const unsigned = 3u;
const long = 2u;
fn fmaf(int: u32) -> u32 { let double = int * unsigned; return double + long; }
fn atomic_add(Vec: u32) -> u32 { return Vec; }",
            "
    let threadIdx = i; var Array = 1u; let a__b = 2u; let a_b = 3u; let _x = 4u; let e_5 = 5u;
    let größe = dim3(i, 7u, a__b, a_b);
    { let Array = 10u; { var Array = 100u; Array += threadIdx; out[2u * i] = Array; } out[2u * i] += Array; }
    Array += fmaf(größe.at) + größe.float2 + 10u * größe.größe + größe.gr_e + atomic_add(_x) + e_5;
    out[2u * i + 1u] = Array;",
            |i, _: &[u32]| [110 + i as u32, 1 + 3 * i as u32 + 2 + 7 + 20 + 3 + 4 + 5],
        ),
        thread(
            "values before and after a store",
            "fn put(k: u32, v: u32) -> u32 { out[k] = v; return v; }",
            "
    var x = i;
    let before = x;
    x = x + 1u;
    let after = x;
    x = x * x + before;
    let k = 4u * i;
    out[k] = before + 2u * after + 3u * x;
    let kept = out[k];
    out[k] = 9u;
    out[k + 1u] = kept;
    let sum = out[k] + put(k, 11u) + out[k];
    out[k + 2u] = sum;
    var n = k;
    out[n] = 5u; n++; let place = &out[n]; n++; *place += 1u;
    out[k + 3u] = n;",
            |i, _: &[u32]| {
                let i = i as u32;
                let kept = i + 2 * (i + 1) + 3 * ((i + 1) * (i + 1) + i);
                [5, kept + 1, 9 + 11 + 11, 4 * i + 2]
            },
        ),
        thread(
            "&& and || look at their right side only where they must",
            "
fn look(v: bool, looks: ptr<function, u32>) -> bool { *looks += 1u; return v; }",
            "
    let x = (i & 1u) == 0u; let y = (i & 2u) == 0u;
    var looks = 0u;
    let both = x && look(y, &looks); let either = x || look(y, &looks);
    out[i] = looks + 10u * u32(both) + 100u * u32(either);",
            |i, _: &[u32]| {
                let (x, y) = (i & 1 == 0, i & 2 == 0);
                [1 + 10 * u32::from(x && y) + 100 * u32::from(x || y)]
            },
        ),
    ]
}
