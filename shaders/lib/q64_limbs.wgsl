// Arithmetic of fractions of 2^64, rounded down, with 32-bit integers, for adapters without 64-bit
// ones. The bits are those of `lib/q64.wgsl`. A number is two words, the low one first.

// A sum of magnitudes: a fraction of 2^128, the low word first.
alias Sum = vec4<u32>;
// A row's products, added in nine columns of base 2^13 without carries; the highest has 24 bits.
struct Products { low: vec4<u32>, high: vec4<u32>, top: u32 }

// False: integer additions have a short latency, so one sum suffices.
const APART = false;
// True if registers suffice for four entries of a row at a time.
const FOUR = false;
// The largest digit.
const DIGIT = vec4<u32>(0x1fffu);

// Returns the lower four of five digits; the highest digit has 12 bits.
fn digits(a: real) -> vec4<u32> {
    return vec4<u32>(a.x, a.x >> 13u, (a.x >> 26u) | (a.y << 6u), a.y >> 7u) & DIGIT;
}
fn highest(a: real) -> u32 { return a.y >> 20u; }

fn no_products() -> Products { return Products(); }

// A product adds at most 5 (2^13 - 1)^2 to a column, which has space for twelve: four of a loop,
// one after it, four of the COO part, and the part that stays.
fn plus_product(a: real, b: real, s: Products) -> Products {
    let p = digits(a); let p4 = highest(a);
    let q = digits(b); let q4 = highest(b);
    return Products(
        vec4<u32>(
            s.low.x + p.x * q.x,
            s.low.y + p.x * q.y + p.y * q.x,
            s.low.z + p.x * q.z + p.y * q.y + p.z * q.x,
            s.low.w + p.x * q.w + p.y * q.z + p.z * q.y + p.w * q.x),
        vec4<u32>(
            s.high.x + p.x * q4 + p.y * q.w + p.z * q.z + p.w * q.y + p4 * q.x,
            s.high.y + p.y * q4 + p.z * q.w + p.w * q.z + p4 * q.y,
            s.high.z + p.z * q4 + p.w * q.w + p4 * q.z,
            s.high.w + p.w * q4 + p4 * q.w),
        s.top + p4 * q4);
}

// Adds two sums. If they are settled, the columns stay below those of two products.
fn plus(a: Products, b: Products) -> Products {
    return Products(a.low + b.low, a.high + b.high, a.top + b.top);
}

// Propagates carries, which leaves columns of 20 bits.
fn settled(s: Products) -> Products {
    return Products(
        (s.low & DIGIT) + (vec4<u32>(0u, s.low.xyz) >> vec4<u32>(13u)),
        (s.high & DIGIT) + (vec4<u32>(s.low.w, s.high.xyz) >> vec4<u32>(13u)),
        s.top + (s.high.w >> 13u));
}

fn total(s: Products) -> Sum {
    let c0 = s.low.x;
    let c1 = s.low.y + (c0 >> 13u);
    let c2 = s.low.z + (c1 >> 13u);
    let c3 = s.low.w + (c2 >> 13u);
    let c4 = s.high.x + (c3 >> 13u);
    let c5 = s.high.y + (c4 >> 13u);
    let c6 = s.high.z + (c5 >> 13u);
    let c7 = s.high.w + (c6 >> 13u);
    let c8 = s.top + (c7 >> 13u);
    let low = vec4<u32>(c0, c1, c2, c3) & DIGIT;
    let high = vec4<u32>(c4, c5, c6, c7) & DIGIT;
    return Sum(
        low.x | (low.y << 13u) | (low.z << 26u),
        (low.z >> 6u) | (low.w << 7u) | (high.x << 20u),
        (high.x >> 12u) | (high.y << 1u) | (high.z << 14u) | (high.w << 27u),
        (high.w >> 5u) | (c8 << 8u));
}

// Returns 1 if the addition to `part` wrapped.
fn carry(sum: u32, part: u32) -> u32 { return select(0u, 1u, sum < part); }

// Returns a + b, two words each, and the carry.
fn long_sum(a: real, b: real) -> vec3<u32> {
    let low = a.x + b.x;
    let carried = carry(low, b.x);
    let half = a.y + b.y;
    let high = half + carried;
    return vec3<u32>(low, high, carry(half, b.y) + carry(high, carried));
}

// A sum a + b, and true if it wraps.
struct Wrapped { sum: Sum, over: bool }

fn wrapped(a: Sum, b: Sum) -> Wrapped {
    let low = long_sum(a.xy, b.xy);
    let high = long_sum(a.zw, b.zw);
    let carried = long_sum(high.xy, real(low.z, 0u));
    return Wrapped(Sum(low.xy, carried.xy), high.z + carried.z != 0u);
}

fn none() -> Sum { return Sum(); }
fn whole(a: real) -> Sum { return Sum(0u, 0u, a); }
fn product(a: real, b: real) -> Sum { return total(plus_product(a, b, no_products())); }
fn number(s: Sum) -> real { return s.zw; }

// Returns a - b as a + (2^128 - 1 - b) + 1.
fn minus(a: Sum, b: Sum) -> Sum { return wrapped(wrapped(a, ~b).sum, Sum(1u, 0u, 0u, 0u)).sum; }

// True if a < b: then b + (2^128 - 1 - a) wraps.
fn below(a: Sum, b: Sum) -> bool { return wrapped(b, ~a).over; }

// Adds magnitudes; a sum of at least 1 becomes the largest fraction.
fn capped(a: Sum, b: Sum) -> Sum {
    let all = wrapped(a, b);
    return select(all.sum, ~Sum(), all.over);
}

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return long_sum(sum, number(product(w, a))).xy; }

// Returns s: here `stepped` adds the part of `own` that stays in the state, since `leave` and `own`
// take fewer registers than a sum.
fn with_own(leave: real, own: real, s: Products) -> Products { return s; }

// Returns own + s - leave own. The part that stays is (2^64 - 1 - leave) own + own, in units of
// 2^-128.
fn stepped(s: Products, leave: real, own: real, unused: real) -> real {
    let stays = Products(s.low + digits(own), vec4<u32>(s.high.x + highest(own), s.high.yzw), s.top);
    return number(total(plus_product(~leave, own, stays)));
}

// abs(y - (1 - leak) x).
fn deviation(leak: real, x: real, y: real) -> Sum {
    let a = whole(y);
    let b = minus(whole(x), product(leak, x));
    if below(a, b) { return minus(b, a); }
    return minus(a, b);
}
