// Definitions for the differences between WGSL and CUDA C++: vectors, arrays that are values,
// wrapping arithmetic, total division and conversions. Every translated kernel
// begins with this text. Names are those of WGSL in snake case. No header is needed.
namespace wgsl {

typedef unsigned char u8;
typedef int i32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#define WGSL_FN __device__ __forceinline__

// Values. WGSL aligns a vec2 and a vec4 to their size, so that each is loaded by one instruction. A
// vec3 has the alignment of a vec4 but the size of three numbers, so that a struct can have a
// number right after it. The struct's own padding aligns a vec3; arrays have none.
template <class T, u32 N>
struct alignas(N == 3 ? sizeof(T) : N * sizeof(T)) Vec {
    T at[N];
};
template <class T, u32 N>
struct Array {
    T at[N];
};

template <u32 N, class T>
WGSL_FN Vec<T, N> splat(T x) {
    Vec<T, N> r;
    for (u32 i = 0; i < N; i++) r.at[i] = x;
    return r;
}
template <u32... I, class T, u32 N>
WGSL_FN Vec<T, sizeof...(I)> swizzle(Vec<T, N> v) {
    return {{v.at[I]...}};
}

// Applies a function of numbers to each component.
#define WGSL_EACH1(f)                                                \
    template <class T, u32 N>                                        \
    WGSL_FN auto f(Vec<T, N> a) {                                    \
        Vec<decltype(f(a.at[0])), N> r;                              \
        for (u32 i = 0; i < N; i++) r.at[i] = f(a.at[i]);            \
        return r;                                                    \
    }
#define WGSL_EACH2(f) WGSL_EACH2_OF(f, T)
#define WGSL_EACH2_OF(f, U)                                          \
    template <class T, u32 N>                                        \
    WGSL_FN auto f(Vec<T, N> a, Vec<U, N> b) {                       \
        Vec<decltype(f(a.at[0], b.at[0])), N> r;                     \
        for (u32 i = 0; i < N; i++) r.at[i] = f(a.at[i], b.at[i]);   \
        return r;                                                    \
    }
#define WGSL_EACH3(f)                                                          \
    template <class T, u32 N>                                                  \
    WGSL_FN auto f(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {                    \
        Vec<decltype(f(a.at[0], b.at[0], c.at[0])), N> r;                      \
        for (u32 i = 0; i < N; i++) r.at[i] = f(a.at[i], b.at[i], c.at[i]);    \
        return r;                                                              \
    }

// Arithmetic. Signed integers wrap, which is undefined in C++, so they are computed as unsigned
// ones.
#define WGSL_UNSIGNED(T)                                            \
    WGSL_FN T add(T a, T b) { return a + b; }                       \
    WGSL_FN T sub(T a, T b) { return a - b; }                       \
    WGSL_FN T mul(T a, T b) { return a * b; }                       \
    WGSL_FN T div(T a, T b) { return b == 0 ? a : a / b; }          \
    WGSL_FN T mod(T a, T b) { return b == 0 ? 0 : a % b; }          \
    WGSL_FN T abs(T a) { return a; }                                \
    WGSL_FN T shl(T a, u32 b) { return a << (b & (8 * sizeof(T) - 1)); }
WGSL_UNSIGNED(u32)
WGSL_UNSIGNED(u64)
#define WGSL_SIGNED(T, U, LEAST)                                                          \
    WGSL_FN T add(T a, T b) { return (T)((U)a + (U)b); }                                  \
    WGSL_FN T sub(T a, T b) { return (T)((U)a - (U)b); }                                  \
    WGSL_FN T mul(T a, T b) { return (T)((U)a * (U)b); }                                  \
    WGSL_FN T neg(T a) { return (T)(0 - (U)a); }                                          \
    WGSL_FN T div(T a, T b) { return b == 0 || (a == LEAST && b == -1) ? a : a / b; }     \
    WGSL_FN T mod(T a, T b) { return b == 0 || (a == LEAST && b == -1) ? 0 : a % b; }     \
    WGSL_FN T abs(T a) { return a < 0 ? neg(a) : a; }                                     \
    WGSL_FN T shl(T a, u32 b) { return (T)((U)a << (b & (8 * sizeof(T) - 1))); }
WGSL_SIGNED(i32, u32, (-2147483647 - 1))
#define WGSL_INTEGER(T)                                                       \
    WGSL_FN T min(T a, T b) { return b < a ? b : a; }                         \
    WGSL_FN T max(T a, T b) { return a < b ? b : a; }                         \
    WGSL_FN T bit_not(T a) { return ~a; }                                     \
    WGSL_FN T bit_and(T a, T b) { return a & b; }                             \
    WGSL_FN T bit_or(T a, T b) { return a | b; }                              \
    WGSL_FN T bit_xor(T a, T b) { return a ^ b; }                             \
    WGSL_FN T shr(T a, u32 b) { return a >> (b & (8 * sizeof(T) - 1)); }
WGSL_INTEGER(i32)
WGSL_INTEGER(u32)
WGSL_INTEGER(u64)
WGSL_FN bool bit_and(bool a, bool b) { return a && b; }
WGSL_FN bool bit_or(bool a, bool b) { return a || b; }
WGSL_FN bool logical_not(bool a) { return !a; }
#define WGSL_FLOAT(T, F)                                                           \
    WGSL_FN T add(T a, T b) { return a + b; }                                      \
    WGSL_FN T sub(T a, T b) { return a - b; }                                      \
    WGSL_FN T mul(T a, T b) { return a * b; }                                      \
    WGSL_FN T div(T a, T b) { return a / b; }                                      \
    WGSL_FN T mod(T a, T b) { return ::fmod##F(a, b); }                            \
    WGSL_FN T neg(T a) { return -a; }                                              \
    WGSL_FN T abs(T a) { return ::fabs##F(a); }                                    \
    WGSL_FN T min(T a, T b) { return ::fmin##F(a, b); }                            \
    WGSL_FN T max(T a, T b) { return ::fmax##F(a, b); }                            \
    WGSL_FN T fma(T a, T b, T c) { return ::fma##F(a, b, c); }
WGSL_FLOAT(f32, f)
WGSL_FLOAT(f64, )

template <class T> WGSL_FN T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T> WGSL_FN T select(bool c, T accept, T reject) { return c ? accept : reject; }
template <class T> WGSL_FN bool eq(T a, T b) { return a == b; }
template <class T> WGSL_FN bool ne(T a, T b) { return a != b; }
template <class T> WGSL_FN bool lt(T a, T b) { return a < b; }
template <class T> WGSL_FN bool le(T a, T b) { return a <= b; }
template <class T> WGSL_FN bool gt(T a, T b) { return a > b; }
template <class T> WGSL_FN bool ge(T a, T b) { return a >= b; }

#define WGSL_BITS(T, S) WGSL_FN T reverse_bits(T a) { return (T)__brev##S(a); }
WGSL_BITS(i32, )
WGSL_BITS(u32, )
WGSL_BITS(u64, ll)

// Conversions. A number beyond the range of an integer type becomes the nearest one that both types
// can represent; NaN becomes the smallest.
#define WGSL_TO_INTEGER(F, I, LEAST, MOST) \
    WGSL_FN I to_integer(F x, I) { return (I)min(max(x, (F)LEAST), (F)MOST); }
WGSL_TO_INTEGER(f32, i32, -2147483648.0, 2147483520.0)
WGSL_TO_INTEGER(f32, u32, 0.0, 4294967040.0)
WGSL_TO_INTEGER(f32, u64, 0.0, 18446742974197923840.0)
WGSL_TO_INTEGER(f64, i32, -2147483648.0, 2147483647.0)
WGSL_TO_INTEGER(f64, u32, 0.0, 4294967295.0)
WGSL_TO_INTEGER(f64, u64, 0.0, 18446744073709549568.0)
template <class T> struct Kind { static constexpr bool real = false, integer = false; };
template <> struct Kind<f32> { static constexpr bool real = true, integer = false; };
template <> struct Kind<f64> { static constexpr bool real = true, integer = false; };
template <> struct Kind<i32> { static constexpr bool real = false, integer = true; };
template <> struct Kind<u32> { static constexpr bool real = false, integer = true; };
template <> struct Kind<u64> { static constexpr bool real = false, integer = true; };
template <class To, class From>
WGSL_FN To convert(From x) {
    if constexpr (Kind<From>::real && Kind<To>::integer) {
        return to_integer(x, To{});
    } else {
        return static_cast<To>(x);
    }
}
template <class To, class From, u32 N>
WGSL_FN Vec<To, N> convert(Vec<From, N> x) {
    Vec<To, N> r;
    for (u32 i = 0; i < N; i++) r.at[i] = convert<To>(x.at[i]);
    return r;
}
// Reads the bits of a value as another type of equal width.
template <class To, class From>
WGSL_FN To bitcast(From x) {
    static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the width");
    To r;
    memcpy(&r, &x, sizeof(To));
    return r;
}
template <class To, class From, u32 N>
WGSL_FN Vec<To, N> bitcast(Vec<From, N> x) {
    Vec<To, N> r;
    for (u32 i = 0; i < N; i++) r.at[i] = bitcast<To>(x.at[i]);
    return r;
}

WGSL_EACH2(add)
WGSL_EACH2(sub)
WGSL_EACH2(mul)
WGSL_EACH2(div)
WGSL_EACH2(mod)
WGSL_EACH2(bit_and)
WGSL_EACH2(bit_or)
WGSL_EACH2(bit_xor)
WGSL_EACH2_OF(shl, u32)
WGSL_EACH2_OF(shr, u32)
WGSL_EACH2(min)
WGSL_EACH2(max)
WGSL_EACH2(eq)
WGSL_EACH2(ne)
WGSL_EACH2(lt)
WGSL_EACH2(le)
WGSL_EACH2(gt)
WGSL_EACH2(ge)
WGSL_EACH1(neg)
WGSL_EACH1(bit_not)
WGSL_EACH1(logical_not)
WGSL_EACH1(abs)
WGSL_EACH1(reverse_bits)
WGSL_EACH3(fma)
WGSL_EACH3(clamp)
template <class T, u32 N> WGSL_FN Vec<T, N> mul(Vec<T, N> a, T b) { return mul(a, splat<N>(b)); }
template <class T, u32 N> WGSL_FN Vec<T, N> mul(T a, Vec<T, N> b) { return mul(splat<N>(a), b); }
template <class T, u32 N>
WGSL_FN Vec<T, N> select(Vec<bool, N> c, Vec<T, N> accept, Vec<T, N> reject) {
    Vec<T, N> r;
    for (u32 i = 0; i < N; i++) r.at[i] = c.at[i] ? accept.at[i] : reject.at[i];
    return r;
}
WGSL_FN bool all(bool a) { return a; }
WGSL_FN bool any(bool a) { return a; }
template <u32 N>
WGSL_FN bool all(Vec<bool, N> a) {
    bool r = true;
    for (u32 i = 0; i < N; i++) r = r && a.at[i];
    return r;
}
template <u32 N>
WGSL_FN bool any(Vec<bool, N> a) {
    bool r = false;
    for (u32 i = 0; i < N; i++) r = r || a.at[i];
    return r;
}

// s + a b, exactly, as three sums of 64 bits at 2^64, 2^32 and 1; carries out of the lower two are
// added to the first. PTX becomes 5 instructions; C++, which has no carries, 14.
template <class S>
WGSL_FN S add_long_product(Vec<u32, 2> a, Vec<u32, 2> b, S s) {
    auto& [high, middle, low] = s;
    asm("{\n\t"
        ".reg .u32 l0, l1, m0, m1, h0, h1;\n\t"
        "mov.b64 {h0, h1}, %0;\n\t"
        "mov.b64 {m0, m1}, %1;\n\t"
        "mov.b64 {l0, l1}, %2;\n\t"
        "mad.lo.cc.u32 l0, %3, %5, l0;\n\t"
        "madc.hi.cc.u32 l1, %3, %5, l1;\n\t"
        "madc.lo.cc.u32 h0, %4, %6, h0;\n\t"
        "madc.hi.u32 h1, %4, %6, h1;\n\t"
        "mad.lo.cc.u32 m0, %3, %6, m0;\n\t"
        "madc.hi.cc.u32 m1, %3, %6, m1;\n\t"
        "addc.u32 h1, h1, 0;\n\t"
        "mad.lo.cc.u32 m0, %4, %5, m0;\n\t"
        "madc.hi.cc.u32 m1, %4, %5, m1;\n\t"
        "addc.u32 h1, h1, 0;\n\t"
        "mov.b64 %0, {h0, h1};\n\t"
        "mov.b64 %1, {m0, m1};\n\t"
        "mov.b64 %2, {l0, l1};\n\t"
        "}"
        : "+l"(high), "+l"(middle), "+l"(low)
        : "r"(a.at[0]), "r"(a.at[1]), "r"(b.at[0]), "r"(b.at[1]));
    return s;
}

// Adds to a tile of 4 by 4 elements the products of four lines of panels in workgroup memory;
// `lib/tiles.wgsl` describes them. `place` is its `place_in`, and `at` returns an element. Tensor
// cores add products in the order of the lines, each with one rounding, so the bits are those of
// the WGSL text.
//
// An instruction multiplies 8 (16 from compute capability 9.0 on) by 4 elements with 4 by 8
// elements, for 32 threads. Thread t passes element (t / 4, t % 4) of the left operand and (t % 4,
// t / 4) of the right one, and receives elements (t / 4, 2 (t % 4)) and (t / 4, 2 (t % 4) + 1).
// These two are a pair of its tile.
template <class S, class P, class E>
WGSL_FN S plus_four_lines(S s, P panels, u32 line, u32 row, u32 pair, E& pairs) {
    auto& [a, b, c, d] = s;
    auto [left, left_width, right, right_width] = panels;
    auto place = [](u32 panel, u32 width, u32 row, u32 pair) {
        return panel + row * width + (pair ^ (((row & 1) << 2 | (row & 2)) & (width - 1)));
    };
    auto at = [&](u32 panel, u32 width, u32 row, u32 column) {
        return pairs.at[place(panel, width, row, column / 2)].at[column % 2];
    };
#if __CUDA_ARCH__ >= 800
    if constexpr (sizeof(a.at[0]) == sizeof(f64)) if (right_width >= 16) {
        const u32 own = line + pair % 4, to = pair / 8 * 16 + row % 8;
        const f64 l0 = at(left, left_width, row, own), l1 = at(left, left_width, row + 8, own);
        const f64 l2 = at(left, left_width, row + 16, own), l3 = at(left, left_width, row + 24, own);
        const f64 r0 = at(right, right_width, own, to), r1 = at(right, right_width, own, to + 8);
        auto product = [](f64 x0, f64 x1, f64 y, f64& s0, f64& s1, f64& s2, f64& s3) {
#if __CUDA_ARCH__ >= 900
            asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+d"(s0), "+d"(s1), "+d"(s2), "+d"(s3) : "d"(x0), "d"(x1), "d"(y));
#else
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(s0), "+d"(s1) : "d"(x0), "d"(y));
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(s2), "+d"(s3) : "d"(x1), "d"(y));
#endif
        };
        product(l0, l1, r0, a.at[0], a.at[1], b.at[0], b.at[1]);
        product(l0, l1, r1, a.at[2], a.at[3], b.at[2], b.at[3]);
        product(l2, l3, r0, c.at[0], c.at[1], d.at[0], d.at[1]);
        product(l2, l3, r1, c.at[2], c.at[3], d.at[2], d.at[3]);
        return s;
    }
#endif
    // As `row_step` and `pair_step`.
    const u32 side = right_width / 2, down = side < 8 ? side : 8, next = side < 4 ? side : 4;
    for (u32 k = line; k < line + 4; k++) {
        const auto r0 = pairs.at[place(right, right_width, k, pair)];
        const auto r1 = pairs.at[place(right, right_width, k, pair + next)];
        const decltype(a) r{{r0.at[0], r0.at[1], r1.at[0], r1.at[1]}};
        a = fma(splat<4>(at(left, left_width, row, k)), r, a);
        b = fma(splat<4>(at(left, left_width, row + down, k)), r, b);
        c = fma(splat<4>(at(left, left_width, row + 2 * down, k)), r, c);
        d = fma(splat<4>(at(left, left_width, row + 3 * down, k)), r, d);
    }
    return s;
}
