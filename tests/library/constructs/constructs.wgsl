// Constructs that are translated to CUDA: declarations, and statements of thread i.
//
// $T stands for the type of the input.

// == if, else if, else
// --
    let x = a[i];
    if x == 0 { out[i] = 1; } else if x < 0 { if x < -5 { out[i] = 2; } else { out[i] = 3; } } else { out[i] = 4; }

// == for, while, loop
// --
    var s = 0u;
    for (var k = 0u; k < i % 7u; k++) { s += k * k; }
    var n = i;
    while n > 1u { if (n & 1u) == 0u { n /= 2u; } else { n = 3u * n + 1u; } s += 1u; }
    var m = 0u;
    loop { if m * m > i { break; } m++; }
    out[2u * i] = s; out[2u * i + 1u] = m;

// == return out of loops and functions
fn first(limit: u32) -> u32 {
    for (var k = 1u; ; k++) { if k * k * k > limit { return k; } }
    return 0u;
}
fn nothing(k: u32) { if k > 3u { return; } }
// --
    nothing(i);
    out[i] = first(i) + 10u * first(2u * i);

// == functions with values, vectors and structs
struct Pair { first: f64, second: vec3<f64>, third: bool }
fn pair(x: f64, third: bool) -> Pair { return Pair(x, vec3(x, 2.0 * x, 3.0 * x), third); }
fn total(p_: Pair) -> f64 { if p_.third { return p_.first; } return p_.second.x + p_.second.y + p_.second.z; }
fn turned(v: vec2<f64>) -> vec2<f64> { return vec2(-v.y, v.x); }
// --
    let x = f64(i);
    let t = turned(vec2(x * x, x * x * x));
    out[i] = total(pair(x, (i & 1u) == 1u)) + t.x + 2.0 * t.y;

// == functions with pointers
struct State { k: u32, v: vec3<f64>, }
fn bump(x: ptr<function, u32>, by: u32) -> u32 { let old = *x; *x += by; return old; }
fn keep(x: ptr<function, array<u32, 4>>, k: u32) { (*x)[k % 4u] += k; }
fn scale(s: ptr<function, State>) { (*s).v *= 2.0; (*s).v.y = 7.0; (*s).k++; }
fn part(v: ptr<function, vec3<f64>>) -> f64 { return (*v).z; }
// --
    var k = i;
    let old = bump(&k, 5u);
    var s = State(k, vec3(1.0, 2.0, f64(i)));
    scale(&s);
    var v = s.v;
    var mine: array<u32, 4>;
    for (var j = 0u; j < 9u; j++) { keep(&mine, j); }
    let q = &mine[1];
    *q += 1000u;
    out[i] = f64(old + k + s.k) + part(&v) + v.y + f64(mine[0] + mine[1]);

// == functions that use the module's variables
var<workgroup> shared_: array<u32, 256>;
fn fetch(k: u32) -> u32 { return a[k] + p.items + p.step; }
fn both(k: u32) -> u32 { shared_[k % 256u] = k; return fetch(k); }
fn put(k: u32, v: u32) { out[k] = v; }
// --
    let v = both(i) + both(i);
    workgroupBarrier();
    put(i, v + shared_[local]);

// == names that mean something to C++ and CUDA, and the same name in several scopes
struct dim3 { at: u32, float2: u32, größe: u32, gr_e: u32 }
const unsigned = 3u;
const long = 2u;
fn fmaf(int: u32) -> u32 { let double = int * unsigned; return double + long; }
fn atomic_add(Vec: u32) -> u32 { return Vec; }
// --
    let threadIdx = i; var Array = 1u; let a__b = 2u; let a_b = 3u; let _x = 4u; let e_5 = 5u;
    let größe = dim3(i, 7u, a__b, a_b);
    { let Array = 10u; { var Array = 100u; Array += threadIdx; out[2u * i] = Array; } out[2u * i] += Array; }
    Array += fmaf(größe.at) + größe.float2 + 10u * größe.größe + größe.gr_e + atomic_add(_x) + e_5;
    out[2u * i + 1u] = Array;

// == values before and after a store
fn put(k: u32, v: u32) -> u32 { out[k] = v; return v; }
// --
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
    out[k + 3u] = n;

// == && and || look at their right side only where they must
fn look(v: bool, looks: ptr<function, u32>) -> bool { *looks += 1u; return v; }
// --
    let x = (i & 1u) == 0u; let y = (i & 2u) == 0u;
    var looks = 0u;
    let both = x && look(y, &looks); let either = x || look(y, &looks);
    out[i] = looks + 10u * u32(both) + 100u * u32(either);

// == literals of f64
const tenth = 0.1lf;
// --
    let k = 8u * i;
    out[k] = tenth; out[k + 1u] = 1e300; out[k + 2u] = -0.3; out[k + 3u] = 123456789.0;
    out[k + 4u] = 4.9e-324; out[k + 5u] = -1.7976931348623157e308; out[k + 6u] = 2.2250738585072014e-308;
    out[k + 7u] = a[i] * -1.0 - (-2.0);

// == literals of f32
// --
    let k = 6u * i;
    out[k] = 0.1f; out[k + 1u] = 16777217.0f; out[k + 2u] = -3.4028235e38f; out[k + 3u] = 1.1754944e-38f;
    out[k + 4u] = 1e-45f; out[k + 5u] = 0.33333334f;

// == literals of i32 and u32
// --
    let k = 4u * i;
    out[k] = -2147483648; out[k + 1u] = 2147483647; out[k + 2u] = i32(4294967295u); out[k + 3u] = -1 - -5;

// == zero is zero and minus zero is minus zero
// --
    var none: f64; var three: vec3<f64>; var many: array<f64, 5>;
    out[4u * i] = none + three.y + many[i % 5u] + f64() + vec2<f64>().x;
    let minus = a[0] * -1.0;
    out[4u * i + 1u] = minus; out[4u * i + 2u] = -a[0]; out[4u * i + 3u] = 1.0 / minus;

// == vectors: compose, swizzle, part, store of a part, dynamic index
// --
    let x = a[i]; let y = a[(i + 1u) % 512u];
    let two = vec2(x, y);
    let three = vec3(two, 5);
    var four = vec4(three.zx, two);
    four.y = 77;
    four[i % 4u] += 3;
    let back = four.wzyx;
    let again = vec4(vec2(x), vec2<i32>(vec2<u32>(7u)));
    var sum = back + again;
    sum = sum - vec4(1);
    let q = &sum;
    (*q).z = (*q).z * 2;
    for (var k = 0u; k < 4u; k++) { out[5u * i + k] = sum[k]; }
    out[5u * i + 4u] = back[(i + 1u) % 4u];

// == vectors of bool: select, all, any
// --
    let x = vec3(a[i], a[(i + 1u) % 512u], a[(i + 2u) % 512u]);
    let up = x > vec3(x.y, x.z, x.x);
    let v = select(x, -x, up);
    let w = vec3<bool>(up.x && up.y, !up.z, i > 9u);
    out[6u * i] = v.x; out[6u * i + 1u] = v.y; out[6u * i + 2u] = v.z;
    out[6u * i + 3u] = f64(u32(all(up))); out[6u * i + 4u] = f64(u32(any(up | w)));
    let bits = vec3<u32>(w & up) * vec3(1u, 2u, 4u);
    out[6u * i + 5u] = f64(bits.x + bits.y + bits.z + u32(all(i > 3u)) + u32(any(i > 3u)));

// == arrays as values and in arrays
// --
    var rows: array<array<u32, 3>, 2>;
    rows[i % 2u][i % 3u] = a[i];
    let copy = rows;
    rows[i % 2u][i % 3u] = i;
    out[2u * i] = rows[i % 2u][i % 3u] + rows[1u - i % 2u][0];
    out[2u * i + 1u] = copy[i % 2u][i % 3u] + copy[1u - i % 2u][0];

// == structs with padding, in bindings
struct Inner { k: u32, v: vec3<f32>, w: f32, }
struct Outer {
    first: u32,
    x: f64,
    inner: array<Inner, 2>,
    @size(16) small: u32,
    @align(32) wide: vec2<f32>,
    tail: vec3<u32>,
}
// --
    var mine = a[i];
    mine.inner[1].v.y += f32(mine.inner[0].k);
    let place = &out[i];
    (*place) = mine;
    out[i].tail = vec3(mine.tail.zy, mine.first);
    out[i].inner[i % 2u].w = f32(mine.x);

// == workgroup memory and barriers
struct Two { first: u32, second: vec2<u32> }
var<workgroup> shared_: array<u32, 256>;
var<workgroup> two: Two;
// --
    shared_[local] = i;
    if local == 17u { two = Two(a[i], vec2(i, 2u * i)); }
    workgroupBarrier();
    let other = shared_[255u - local];
    workgroupBarrier();
    shared_[local] = other + two.second.y;
    storageBarrier();
    out[i] = shared_[(local + 1u) % 256u] + two.first;

// == override constants
override SIZE: u32 = 256u;
override ADD = true;
var<workgroup> shared_: array<u32, SIZE>;
// --
    shared_[local] = i;
    workgroupBarrier();
    out[i] = shared_[SIZE - 1u - local] + a[i];
    if ADD { out[i] += SIZE / 2u; }

// == a tree of sums in workgroup memory
var<workgroup> sums: array<f64, 256>;
// --
    sums[local] = f64(i);
    for (var half = 128u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { sums[local] += sums[local + half]; }
    }
    workgroupBarrier();
    out[i] = sums[0];

// == built-in values, without immediates
// --
// The built-in values of a thread.
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

// == a number times a vector
// --
    let x = vec3<$T>(a[i], a[(i + 1u) % 512u], a[(i + 2u) % 512u]);
    let y = 3.0 * x; let z = x * a[i]; let v = x / a[0u];
    for (var k = 0u; k < 3u; k++) {
        out[9u * i + k] = y[k]; out[9u * i + 3u + k] = z[k]; out[9u * i + 6u + k] = v[k];
    }
