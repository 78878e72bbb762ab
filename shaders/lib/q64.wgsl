// Arithmetic of fractions of 2^64, rounded down, with integers of 64 bits. `docs/certificate.md` proves that nothing
// overflows.

// The type in which products are added up: a fraction of 2^128.
struct Sum { high: u64, low: u64 }

fn none() -> Sum { return Sum(0lu, 0lu); }
fn whole(a: real) -> Sum { return Sum(a, 0lu); }

// The product of two words, which compilers know as one instruction.
fn word_product(a: u32, b: u32) -> u64 { return u64(a) * u64(b); }

fn product(a: real, b: real) -> Sum {
    let a0 = u32(a); let a1 = u32(a >> 32u);
    let b0 = u32(b); let b1 = u32(b >> 32u);
    let low = word_product(a0, b0);
    let middle = word_product(a1, b0) + (low >> 32u);
    let other = word_product(a0, b1) + u64(u32(middle));
    return Sum(word_product(a1, b1) + (middle >> 32u) + (other >> 32u), (other << 32u) | u64(u32(low)));
}

fn plus(a: Sum, b: Sum) -> Sum {
    let low = a.low + b.low;
    return Sum(a.high + b.high + select(0lu, 1lu, low < a.low), low);
}

fn minus(a: Sum, b: Sum) -> Sum { return Sum(a.high - b.high - select(0lu, 1lu, a.low < b.low), a.low - b.low); }

fn below(a: Sum, b: Sum) -> bool { return a.high < b.high || (a.high == b.high && a.low < b.low); }

fn plus_product(a: real, b: real, s: Sum) -> Sum { return plus(s, product(a, b)); }

// The same for sums that may exceed 1: the largest that there is stands for these.
fn capped(a: Sum, b: Sum) -> Sum {
    let sum = plus(a, b);
    if below(sum, a) { return Sum(0xfffffffffffffffflu, 0xfffffffffffffffflu); }
    return sum;
}

fn number(s: Sum) -> real { return s.high; }

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return sum + product(w, a).high; }

// own + s - leave own.
fn stepped(s: Sum, leave: real, own: real, unused: real) -> real {
    return minus(plus(s, whole(own)), product(leave, own)).high;
}

// abs(y - (1 - leak) x).
fn deviation(leak: real, x: real, y: real) -> Sum {
    let a = whole(y);
    let b = minus(whole(x), product(leak, x));
    if below(a, b) { return minus(b, a); }
    return minus(a, b);
}
