//! Control flow, functions, the order of evaluation, and operations across threads.

use super::{Construct, THREADS, construct, thread, written};

pub(super) fn all() -> Vec<Construct> {
    vec![
        thread("if, else if, else", |i, a: &[i32]| {
            [match a[i] {
                0 => 1,
                ..-5 => 2,
                -5..0 => 3,
                _ => 4,
            }]
        }),
        thread("for, while, loop", |i, _: &[u32]| {
            let mut s: usize = (0..i % 7).map(|k| k * k).sum();
            let mut n = i;
            while n > 1 {
                n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                s += 1;
            }
            [s as u32, (0..).find(|m| m * m > i).unwrap_or_default() as u32]
        }),
        thread("return out of loops and functions", |i, _: &[u32]| {
            let first = |limit| (1..).find(|k| k * k * k > limit).unwrap_or_default();
            [(first(i) + 10 * first(2 * i)) as u32]
        }),
        thread("functions with values, vectors and structs", |i, _: &[f64]| {
            let x = i as f64;
            [(if i % 2 == 1 { x } else { 6.0 * x }) - x * x * x + 2.0 * (x * x)]
        }),
        thread("functions with pointers", |i, _: &[f64]| {
            let whole = i + (i + 5) + (i + 6) + 2 * i + 7 + (4 + 8) + (1 + 5 + 1000);
            [whole as f64]
        }),
        thread("functions that use the module's variables", |i, a: &[u32]| {
            [a[i].wrapping_mul(2).wrapping_add(2 * 515 + i as u32)]
        }),
        thread(
            "names that mean something to C++ and CUDA, and the same name in several scopes",
            |i, _: &[u32]| [110 + i as u32, 1 + 3 * i as u32 + 2 + 7 + 20 + 3 + 4 + 5],
        ),
        thread("values before and after a store", |i, _: &[u32]| {
            let i = i as u32;
            let kept = i + 2 * (i + 1) + 3 * ((i + 1) * (i + 1) + i);
            [5, kept + 1, 9 + 11 + 11, 4 * i + 2]
        }),
        thread("&& and || look at their right side only where they must", |i, _: &[u32]| {
            let (x, y) = (i & 1 == 0, i & 2 == 0);
            [1 + 10 * u32::from(x && y) + 100 * u32::from(x || y)]
        }),
        built_in_values(),
        thread("workgroup memory and barriers", |i, a: &[u32]| {
            let first = i / 256 * 256;
            let next = (i + 1) % 256;
            [((first + 255 - next + 2 * (first + 17)) as u32).wrapping_add(a[first + 17])]
        }),
        thread("override constants", |i, a: &[u32]| {
            [((i / 256 * 256 + 255 - i % 256 + 128) as u32).wrapping_add(a[i])]
        }),
        thread("a tree of sums in workgroup memory", |i, _: &[f64]| {
            [(0..256).map(|k| (i / 256 * 256 + k) as f64).sum::<f64>()]
        }),
    ]
}

fn built_in_values() -> Construct {
    let name = "built-in values, without immediates";
    let thread = |i: u32| [i / 256, 0, 2, 1, i % 256];
    let after: Vec<u32> = (0..THREADS as u32).flat_map(thread).collect();
    construct(name, written(name).1.to_owned(), &[0u32; 4], &after)
}
