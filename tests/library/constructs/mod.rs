//! One small kernel per operation that is translated to CUDA, with its expected output.
//!
//! Control flow, functions, structs and workgroup memory are tested by the kernels themselves, whose
//! results on CUDA are compared with those of the CPU.
//!
//! Every kernel runs on two groups (512 threads), reads binding 0 and writes binding 1.

#![allow(dead_code, reason = "a program that only compiles them leaves the results unread")]

use bytemuck::Pod;

/// Threads that run a construct: two groups.
pub(crate) const THREADS: usize = 512;
/// Immediates of every construct: number of the step, number of threads.
pub(crate) const PARAMS: [u32; 2] = [3, THREADS as u32];

/// Comparison of two numbers of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// Bit by bit.
    Bits,
    /// Bit by bit, but any NaN of f32 equals any other.
    F32,
    /// Bit by bit, but any NaN of f64 equals any other.
    F64,
}

/// A kernel, its input and its expected output.
pub(crate) struct Construct {
    pub(crate) name: String,
    pub(crate) wgsl: String,
    pub(crate) input: Vec<u8>,
    /// Expected content of the output buffer after the run.
    pub(crate) after: Vec<u8>,
    pub(crate) element: Element,
}

impl Construct {
    /// Returns a message on the first number that differs from the expected output, if any.
    pub(crate) fn complaint(&self, result: &[u8]) -> Option<String> {
        assert_eq!(result.len(), self.after.len(), "{}: bytes of the output", self.name);
        let width = if self.element == Element::F64 { 8 } else { 4 };
        // Different numbers have different texts.
        let show = |bytes: &[u8]| match self.element {
            Element::Bits => format!("{:#010x}", bytemuck::pod_read_unaligned::<u32>(bytes)),
            Element::F32 => format!("{:?}", bytemuck::pod_read_unaligned::<f32>(bytes)),
            Element::F64 => format!("{:?}", bytemuck::pod_read_unaligned::<f64>(bytes)),
        };
        let mut numbers = result.chunks(width).zip(self.after.chunks(width));
        let place = numbers.position(|(got, wanted)| show(got) != show(wanted))?;
        let at = width * place..width * (place + 1);
        Some(format!(
            "{}: number {place} of the output is {}, not {}",
            self.name,
            show(&result[at.clone()]),
            show(&self.after[at])
        ))
    }
}

/// A numeric type of Rust and WGSL.
pub(crate) trait Number: Pod + PartialOrd + std::fmt::Debug {
    const NAME: &'static str;
    const ELEMENT: Element;
    /// Edge cases.
    const EDGES: &'static [Self];
}

macro_rules! number {
    ($t:ident, $element:ident, $edges:expr) => {
        impl Number for $t {
            const NAME: &'static str = stringify!($t);
            const ELEMENT: Element = Element::$element;
            const EDGES: &'static [Self] = &$edges;
        }
    };
}

number! { i32, Bits, [
    0, 1, -1, 2, -3, 7, -8, 31, 32, 33, -64, 1000, 0x5555_5555, 16_777_217, Self::MAX, Self::MIN,
    Self::MAX - 1, Self::MIN + 1,
] }
number! { u32, Bits, [
    0, 1, 2, 3, 7, 8, 31, 32, 33, 64, 1000, 0x5555_5555, 16_777_217, 0x7fff_ffff, 0x8000_0000, 0x8000_0001,
    Self::MAX - 1, Self::MAX,
] }
number! { u64, Bits, [
    0, 1, 2, 3, 7, 31, 63, 64, 65, 1000, 1 << 32, (1 << 53) + 1, 0x5555_5555_5555_5555, i64::MAX as Self,
    1 << 63, (1 << 63) + 1, Self::MAX - 1, Self::MAX,
] }
macro_rules! float {
    ($t:ident, $element:ident, $huge:literal) => {
        // Without −0, which min and max may order either way.
        number! { $t, $element, [
            0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.5, 0.1, -0.3, 0.999_999_9, 1e10, -3e9, 1e-10, 2_147_483_648.0,
            9_223_372_036_854_775_808.0, 1.9e19, $huge, -$huge, Self::MIN_POSITIVE,
            1.5 * Self::MIN_POSITIVE * Self::EPSILON, Self::MAX, Self::INFINITY,
        ] }
    };
}
float!(f32, F32, 1e30);
float!(f64, F64, 1e300);

/// Assembles a kernel from the types of its bindings, and the statements of thread `i`.
fn text(input: &str, output: &str, statements: &str) -> String {
    format!(
        "// A construct.
alias real = f64;
struct Params {{ step: u32, items: u32 }}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> a: array<{input}>;
@group(0) @binding(1) var<storage, read_write> out: array<{output}>;

@compute @workgroup_size(256)
fn construct(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) local: u32) {{
    let i = (group.y * groups.x + group.x) * 256u + local;
{statements}
}}
"
    )
}

/// An operation on up to three numbers `x`, `y`, `z`: scalars and vectors of 2, 3 and 4.
///
/// In its text `$T`, `$R`, `$I`, `$U` and `$B` stand for the type of the numbers, of the result,
/// `i32`, `u32` and `bool`, or for vectors of these types.
fn each<A: Number, R: Number>(operation: &str, f: impl Fn(A, A, A) -> R) -> Construct {
    let (t, r) = (A::NAME, R::NAME);
    let mut statements = format!(
        "    let sx = a[3u * i]; let sy = a[3u * i + 1u]; let sz = a[3u * i + 2u];
    {{ let x = sx; let y = sy; let z = sz; out[10u * i] = {}; }}\n",
        shaped(operation, t, r, 1)
    );
    let mut at = 1;
    for n in 2..=4 {
        let numbers = |names: [&str; 4]| names[..n].join(", ");
        statements += &format!(
            "    {{ let x = vec{n}<{t}>({}); let y = vec{n}<{t}>({}); let z = vec{n}<{t}>({}); let w = {};\n",
            numbers(["sx", "sy", "sx", "sz"]),
            numbers(["sy", "sx", "sz", "sx"]),
            numbers(["sz", "sz", "sy", "sy"]),
            shaped(operation, t, r, n)
        );
        for k in 0..n {
            statements += &format!("    out[10u * i + {}u] = w[{k}];\n", at + k);
        }
        statements += "    }\n";
        at += n;
    }

    let edge = |i: usize| A::EDGES[i % A::EDGES.len()];
    let mut input = Vec::new();
    let mut after = Vec::new();
    for i in 0..THREADS {
        let (x, y, z) = (edge(i), edge(i / A::EDGES.len() + i), edge(7 * i + 3));
        input.extend([x, y, z]);
        let columns = [(x, y, z), (y, x, z), (x, z, y), (z, x, y)];
        after.push(f(x, y, z));
        for n in 2..=4 {
            after.extend(columns[..n].iter().map(|&(x, y, z)| f(x, y, z)));
        }
    }
    let bytes = (bytemuck::cast_slice(&input).to_vec(), bytemuck::cast_slice(&after).to_vec());
    Construct {
        name: format!("{operation} on {t}"),
        wgsl: text(t, r, &statements),
        input: bytes.0,
        after: bytes.1,
        element: R::ELEMENT,
    }
}

fn shaped(operation: &str, t: &str, r: &str, n: usize) -> String {
    let shape = |ty: &str| if n == 1 { ty.to_owned() } else { format!("vec{n}<{ty}>") };
    let types = [("$T", t), ("$R", r), ("$I", "i32"), ("$U", "u32"), ("$B", "bool")];
    types.into_iter().fold(operation.to_owned(), |text, (name, ty)| text.replace(name, &shape(ty)))
}

macro_rules! integers {
    ($list:ident, $t:ident, $($as:ident),*) => {{
        $list.push(each("x + y", |x: $t, y, _| x.wrapping_add(y)));
        $list.push(each("x - y", |x: $t, y, _| x.wrapping_sub(y)));
        $list.push(each("x * y", |x: $t, y, _| x.wrapping_mul(y)));
        $list.push(each("x / y", |x: $t, y, _| if y == 0 { x } else { x.wrapping_div(y) }));
        $list.push(each("x % y", |x: $t, y, _| if y == 0 { 0 } else { x.wrapping_rem(y) }));
        $list.push(each("x & y", |x: $t, y, _| x & y));
        $list.push(each("x | y", |x: $t, y, _| x | y));
        $list.push(each("x ^ y", |x: $t, y, _| x ^ y));
        $list.push(each("~x", |x: $t, _, _| !x));
        $list.push(each("x << $U(y)", |x: $t, y, _| x.wrapping_shl(y as u32)));
        $list.push(each("x >> $U(y)", |x: $t, y, _| x.wrapping_shr(y as u32)));
        $list.push(each("min(x, y)", |x: $t, y, _| x.min(y)));
        $list.push(each("max(x, y)", |x: $t, y, _| x.max(y)));
        $list.push(each("clamp(x, y, z)", |x: $t, y, z| x.max(y).min(z)));
        $list.push(each("reverseBits(x)", |x: $t, _, _| x.reverse_bits()));
        compared!($list, $t);
        $list.push(each("$R(x)", |x: $t, _, _| x as f32));
        $list.push(each("$R(x)", |x: $t, _, _| x as f64));
        $list.push(each("$R(x)", |x: $t, _, _| x as i32));
        $list.push(each("$R(x)", |x: $t, _, _| x as u32));
        $list.push(each("$R(x)", |x: $t, _, _| x as u64));
        $($list.push(each("bitcast<$R>(x)", |x: $t, _, _| x as $as));)*
    }};
}

macro_rules! compared {
    ($list:ident, $t:ident) => {{
        $list.push(each("select($R(0), $R(1), x == y)", |x: $t, y, _| u32::from(x == y)));
        $list.push(each("select($R(0), $R(1), x != y)", |x: $t, y, _| u32::from(x != y)));
        $list.push(each("select($R(0), $R(1), x < y)", |x: $t, y, _| u32::from(x < y)));
        $list.push(each("select($R(0), $R(1), x <= y)", |x: $t, y, _| u32::from(x <= y)));
        $list.push(each("select($R(0), $R(1), x > y)", |x: $t, y, _| u32::from(x > y)));
        $list.push(each("$R(x >= y)", |x: $t, y, _| u32::from(x >= y)));
        $list.push(each("$R((x < y) | (y < z))", |x: $t, y, z| u32::from(x < y || y < z)));
        $list.push(each("$R(!(x < y) & !(y < z))", |x: $t, y, z| u32::from(!(x < y || y < z))));
        $list.push(each("$R($B(x))", |x: $t, _, _| u32::from(x != $t::default())));
        $list.push(each("select(x, y, z > y)", |x: $t, y, z| if z > y { y } else { x }));
    }};
}

macro_rules! floats {
    ($list:ident, $t:ident, $bits:ident) => {{
        $list.push(each("x + y", |x: $t, y, _| x + y));
        $list.push(each("x - y", |x: $t, y, _| x - y));
        $list.push(each("x * y", |x: $t, y, _| x * y));
        $list.push(each("x / y", |x: $t, y, _| x / y));
        $list.push(each("x % y", |x: $t, y, _| x % y));
        $list.push(each("-x", |x: $t, _, _| -x));
        // Rounded twice, not fused.
        $list.push(each("x * y + z", |x: $t, y, z| x * y + z));
        $list.push(each("z - x * y", |x: $t, y, z| z - x * y));
        $list.push(each("fma(x, y, z)", |x: $t, y, z| x.mul_add(y, z)));
        $list.push(each("fma(-x, y, z)", |x: $t, y, z| (-x).mul_add(y, z)));
        $list.push(each("abs(x)", |x: $t, _, _| x.abs()));
        $list.push(each("min(x, y)", |x: $t, y, _| x.min(y)));
        $list.push(each("max(x, y)", |x: $t, y, _| x.max(y)));
        $list.push(each("clamp(x, y, z)", |x: $t, y, z| x.max(y).min(z)));
        compared!($list, $t);
        $list.push(each("bitcast<$R>(x)", |x: $t, _, _| x.to_bits()));
        $list.push(each("$R(x)", |x: $t, _, _| x as f32));
        $list.push(each("$R(x)", |x: $t, _, _| x as f64));
    }};
}

/// Conversions to integers clamp to values that both types represent.
macro_rules! clamped {
    ($list:ident, $f:ident, $($i:ident $least:literal $most:literal),*) => {
        $($list.push(each("$R(x)", |x: $f, _, _| x.clamp($least, $most) as $i));)*
    };
}

/// Returns every construct.
pub(crate) fn all() -> Vec<Construct> {
    let mut list = Vec::new();
    integers!(list, i32, u32, i32);
    integers!(list, u32, u32, i32);
    integers!(list, u64, u64);
    floats!(list, f32, u32);
    floats!(list, f64, u64);
    clamped!(list, f32, i32 -2147483648.0 2147483520.0, u32 0.0 4294967040.0, u64 0.0 18446742974197923840.0);
    clamped!(list, f64, i32 -2147483648.0 2147483647.0, u32 0.0 4294967295.0, u64 0.0 18446744073709549568.0);
    list.push(each("-x", |x: i32, _, _| x.wrapping_neg()));
    list.push(each("abs(x)", |x: i32, _, _| x.wrapping_abs()));
    list.push(each("abs(x)", |x: u32, _, _| x));
    list.push(each("bitcast<$R>(x)", |x: u32, _, _| f32::from_bits(x)));
    list.push(each("bitcast<$R>(x)", |x: i32, _, _| f32::from_bits(x as u32)));
    list.push(each("bitcast<$R>(x)", |x: u64, _, _| f64::from_bits(x)));
    list
}
