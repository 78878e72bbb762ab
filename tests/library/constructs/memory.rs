//! Literals, vectors, arrays, structs and their memory layout.

use super::{Construct, THREADS, construct, text, thread};

pub(super) fn all() -> Vec<Construct> {
    vec![
        thread(
            "literals of f64",
            "const tenth = 0.1lf;",
            "
    let k = 8u * i;
    out[k] = tenth; out[k + 1u] = 1e300; out[k + 2u] = -0.3; out[k + 3u] = 123456789.0;
    out[k + 4u] = 4.9e-324; out[k + 5u] = -1.7976931348623157e308; out[k + 6u] = 2.2250738585072014e-308;
    out[k + 7u] = a[i] * -1.0 - (-2.0);",
            |i, a: &[f64]| {
                [0.1, 1e300, -0.3, 123_456_789.0, 4.9e-324, -f64::MAX, f64::MIN_POSITIVE, -a[i] + 2.0]
            },
        ),
        thread(
            "literals of f32",
            "",
            "
    let k = 6u * i;
    out[k] = 0.1f; out[k + 1u] = 16777217.0f; out[k + 2u] = -3.4028235e38f; out[k + 3u] = 1.1754944e-38f;
    out[k + 4u] = 1e-45f; out[k + 5u] = 0.33333334f;",
            |_, _: &[f32]| [0.1, 16_777_216.0, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), 1.0 / 3.0],
        ),
        thread(
            "literals of i32 and u32",
            "",
            "
    let k = 4u * i;
    out[k] = -2147483648; out[k + 1u] = 2147483647; out[k + 2u] = i32(4294967295u); out[k + 3u] = -1 - -5;",
            |_, _: &[i32]| [i32::MIN, i32::MAX, -1, 4],
        ),
        thread(
            "zero is zero and minus zero is minus zero",
            "",
            "
    var none: f64; var three: vec3<f64>; var many: array<f64, 5>;
    out[4u * i] = none + three.y + many[i % 5u] + f64() + vec2<f64>().x;
    let minus = a[0] * -1.0;
    out[4u * i + 1u] = minus; out[4u * i + 2u] = -a[0]; out[4u * i + 3u] = 1.0 / minus;",
            |_, _: &[f64]| [0.0, -0.0, -0.0, f64::NEG_INFINITY],
        ),
        thread(
            "vectors: compose, swizzle, part, store of a part, dynamic index",
            "",
            "
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
    out[5u * i + 4u] = back[(i + 1u) % 4u];",
            |i, a: &[i32]| {
                let (x, y) = (a[i], a[(i + 1) % THREADS]);
                let mut four = [5i32, 77, x, y];
                four[i % 4] = four[i % 4].wrapping_add(3);
                let back = [four[3], four[2], four[1], four[0]];
                let again = [x, x, 7, 7];
                let mut sum = [0; 5];
                for k in 0..4 {
                    sum[k] = back[k].wrapping_add(again[k]).wrapping_sub(1);
                }
                sum[2] = sum[2].wrapping_mul(2);
                sum[4] = back[(i + 1) % 4];
                sum
            },
        ),
        thread(
            "vectors of bool: select, all, any",
            "",
            "
    let x = vec3(a[i], a[(i + 1u) % 512u], a[(i + 2u) % 512u]);
    let up = x > vec3(x.y, x.z, x.x);
    let v = select(x, -x, up);
    let w = vec3<bool>(up.x && up.y, !up.z, i > 9u);
    out[6u * i] = v.x; out[6u * i + 1u] = v.y; out[6u * i + 2u] = v.z;
    out[6u * i + 3u] = f64(u32(all(up))); out[6u * i + 4u] = f64(u32(any(up | w)));
    let bits = vec3<u32>(w & up) * vec3(1u, 2u, 4u);
    out[6u * i + 5u] = f64(bits.x + bits.y + bits.z + u32(all(i > 3u)) + u32(any(i > 3u)));",
            |i, a: &[f64]| {
                let x = [a[i], a[(i + 1) % THREADS], a[(i + 2) % THREADS]];
                let up = [x[0] > x[1], x[1] > x[2], x[2] > x[0]];
                let v = |k: usize| if up[k] { -x[k] } else { x[k] };
                let w = [up[0] && up[1], !up[2], i > 9];
                let bits: u32 = (0..3).map(|k| u32::from(w[k] && up[k]) << k).sum();
                [
                    v(0),
                    v(1),
                    v(2),
                    f64::from(u8::from(up.iter().all(|&u| u))),
                    f64::from(u8::from((0..3).any(|k| up[k] || w[k]))),
                    f64::from(bits + 2 * u32::from(i > 3)),
                ]
            },
        ),
        thread(
            "arrays as values and in arrays",
            "",
            "
    var rows: array<array<u32, 3>, 2>;
    rows[i % 2u][i % 3u] = a[i];
    let copy = rows;
    rows[i % 2u][i % 3u] = i;
    out[2u * i] = rows[i % 2u][i % 3u] + rows[1u - i % 2u][0];
    out[2u * i + 1u] = copy[i % 2u][i % 3u] + copy[1u - i % 2u][0];",
            |i, a: &[u32]| [i as u32, a[i]],
        ),
        laid_out(),
    ]
}

/// Structs in a binding, with all padding that WGSL allows.
fn laid_out() -> Construct {
    let declarations = "
struct Inner { k: u32, v: vec3<f32>, w: f32, }
struct Outer {
    first: u32,
    x: f64,
    inner: array<Inner, 2>,
    @size(16) small: u32,
    @align(32) wide: vec2<f32>,
    tail: vec3<u32>,
}";
    let statements = "
    var mine = a[i];
    mine.inner[1].v.y += f32(mine.inner[0].k);
    let place = &out[i];
    (*place) = mine;
    out[i].tail = vec3(mine.tail.zy, mine.first);
    out[i].inner[i % 2u].w = f32(mine.x);";
    // Inner: k at 0, v at 16, w at 28, 32 bytes. Outer: first at 0, x at 8, inner at 16, small at
    // 80, wide at 96, tail at 112, 128 bytes.
    let (mut input, mut after) = (Vec::new(), Vec::new());
    for i in 0..THREADS as u32 {
        let mut words = [0u32; 32];
        let mut put = |at: usize, word: u32| words[at / 4] = word;
        let float = |v: f32| v.to_bits();
        put(0, i);
        let x = (f64::from(i) + 0.5).to_bits();
        put(8, x as u32);
        put(12, (x >> 32) as u32);
        for (k, at) in [16, 48].into_iter().enumerate() {
            put(at, 10 * i + k as u32);
            for c in 0..3 {
                put(at + 16 + 4 * c, float((i + c as u32) as f32));
            }
            put(at + 28, float(-1.0));
        }
        put(80, 7);
        put(96, float(1.5));
        put(100, float(2.5));
        (0..3).for_each(|c| put(112 + 4 * c, 1000 * i + c as u32));
        input.extend(words);
        words[(48 + 20) / 4] = float((i + 1) as f32 + (10 * i) as f32);
        words[112 / 4] = 1000 * i + 2;
        words[116 / 4] = 1000 * i + 1;
        words[120 / 4] = i;
        words[(if i % 2 == 0 { 16 } else { 48 } + 28) / 4] = float(i as f32 + 0.5);
        after.extend(words);
    }
    let wgsl = text(declarations, "array<Outer>", "array<Outer>", statements);
    construct("structs with padding, in bindings", wgsl, &input, &after)
}
