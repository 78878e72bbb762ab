//! Literals, vectors, arrays, structs and their memory layout.

use super::{Construct, THREADS, construct, text, thread, written};

pub(super) fn all() -> Vec<Construct> {
    vec![
        thread("literals of f64", |i, a: &[f64]| {
            [0.1, 1e300, -0.3, 123_456_789.0, 4.9e-324, -f64::MAX, f64::MIN_POSITIVE, -a[i] + 2.0]
        }),
        thread("literals of f32", |_, _: &[f32]| {
            [0.1, 16_777_216.0, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), 1.0 / 3.0]
        }),
        thread("literals of i32 and u32", |_, _: &[i32]| [i32::MIN, i32::MAX, -1, 4]),
        thread("zero is zero and minus zero is minus zero", |_, _: &[f64]| {
            [0.0, -0.0, -0.0, f64::NEG_INFINITY]
        }),
        thread("vectors: compose, swizzle, part, store of a part, dynamic index", |i, a: &[i32]| {
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
        }),
        thread("vectors of bool: select, all, any", |i, a: &[f64]| {
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
        }),
        thread("arrays as values and in arrays", |i, a: &[u32]| [i as u32, a[i]]),
        laid_out(),
    ]
}

/// Structs in a binding, with all padding that WGSL allows.
fn laid_out() -> Construct {
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
    let name = "structs with padding, in bindings";
    let (declarations, statements) = written(name);
    construct(name, text(declarations, "array<Outer>", "array<Outer>", statements), &input, &after)
}
