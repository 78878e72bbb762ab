// Arithmetic of fractions of 2^64, rounded down, with integers of 32 bits: the same bits as `lib/q64.wgsl`, on every
// device. The low word of a number comes first.

// The type in which products are added up: a fraction of 2^128.
alias Sum = vec4<u32>;

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

fn product(a: real, b: real) -> Sum {
    let low = word_product(a.x, b.x);
    let high = word_product(a.y, b.y);
    let cross = long_sum(word_product(a.x, b.y), word_product(a.y, b.x));
    let middle = long_sum(real(low.y, high.x), cross.xy);
    return Sum(low.x, middle.xy, high.y + cross.z + middle.z);
}

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

fn plus_product(a: real, b: real, s: Sum) -> Sum { return plus(s, product(a, b)); }

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
