// Arithmetic of fractions of 2^64, rounded down, with integers of 32 bits: the same bits as `lib/q64.wgsl`, on every
// device. The low word of a number comes first.

// The type of sums, a fraction of 2^128, and that in which products are added up: how often each word has wrapped is counted,
// and carried at the end.
alias Sum = vec4<u32>;
struct Products { words: Sum, wraps: vec3<u32> }

fn none() -> Sum { return Sum(); }
fn whole(a: real) -> Sum { return Sum(0u, 0u, a); }

// 1 where an addition to `part` has wrapped.
fn carry(sum: u32, part: u32) -> u32 { return select(0u, 1u, sum < part); }

// The product of two words. No step exceeds 32 bits: (2^16 - 1)^2 + 2^16 - 1 < 2^32.
fn word_product(a: u32, b: u32) -> real {
    let a0 = a & 0xffffu; let a1 = a >> 16u;
    let b0 = b & 0xffffu; let b1 = b >> 16u;
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 16u);
    let other = a0 * b1 + (middle & 0xffffu);
    return real((other << 16u) | (low & 0xffffu), a1 * b1 + (middle >> 16u) + (other >> 16u));
}

// a + b, two words each, and the carry.
fn long_sum(a: real, b: real) -> vec3<u32> {
    let low = a.x + b.x;
    let carried = carry(low, b.x);
    let half = a.y + b.y;
    let high = half + carried;
    return vec3<u32>(low, high, carry(half, b.y) + carry(high, carried));
}

fn products_of(s: Sum) -> Products { return Products(s, vec3<u32>()); }

// With more words.
fn more(s: Products, words: Sum) -> Products {
    let sum = s.words + words;
    return Products(sum, s.wraps + vec3<u32>(sum.xyz < words.xyz));
}

fn plus_product(a: real, b: real, s: Products) -> Products {
    let low = word_product(a.x, b.x);
    let high = word_product(a.y, b.y);
    let one = word_product(a.x, b.y);
    let other = word_product(a.y, b.x);
    return more(more(more(s, Sum(low, high)), Sum(0u, one, 0u)), Sum(0u, other, 0u));
}

fn joined(a: Products, b: Products) -> Products {
    let both = more(a, b.words);
    return Products(both.words, both.wraps + b.wraps);
}

fn sum_of(s: Products) -> Sum { return plus(s.words, Sum(0u, s.wraps)); }

fn product(a: real, b: real) -> Sum { return sum_of(plus_product(a, b, products_of(none()))); }

// a + b, and whether that wraps.
struct Total { sum: Sum, over: bool }

fn total(a: Sum, b: Sum) -> Total {
    let low = long_sum(a.xy, b.xy);
    let high = long_sum(a.zw, b.zw);
    let carried = long_sum(high.xy, real(low.z, 0u));
    return Total(Sum(low.xy, carried.xy), high.z + carried.z != 0u);
}

fn plus(a: Sum, b: Sum) -> Sum { return total(a, b).sum; }

// a + (2^128 - 1 - b) + 1.
fn minus(a: Sum, b: Sum) -> Sum { return plus(plus(a, ~b), Sum(1u, 0u, 0u, 0u)); }

// b + (2^128 - 1 - a) wraps where a < b.
fn below(a: Sum, b: Sum) -> bool { return total(b, ~a).over; }

// The same for sums that may exceed 1: the largest that there is stands for these.
fn capped(a: Sum, b: Sum) -> Sum {
    let all = total(a, b);
    return select(all.sum, ~Sum(), all.over);
}

fn number(s: Sum) -> real { return s.zw; }

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return long_sum(sum, product(w, a).zw).xy; }

// own + s - leave own.
fn stepped(s: Sum, leave: real, own: real, unused: real) -> real {
    return minus(plus(s, whole(own)), product(leave, own)).zw;
}

// abs(y - (1 - leak) x).
fn deviation(leak: real, x: real, y: real) -> Sum {
    let a = whole(y);
    let b = minus(whole(x), product(leak, x));
    if below(a, b) { return minus(b, a); }
    return minus(a, b);
}
