// Arithmetic of fractions of 2^64, rounded down, with 64-bit integers. `docs/certificate.md` proves
// that nothing overflows. A number is two words, the low one first. Thus compilers recognize
// products of words, which are one instruction.

// A sum of magnitudes: a fraction of 2^128.
struct Sum { high: u64, low: u64 }
// A row's products as three sums, in units of 2^-64, 2^-96 and 2^-128. The lower two have 32 bits
// here. They have 64 bits in CUDA's own text of `add_long_product`, since a carry is one
// instruction there.
struct Products { high: u64, middle: u64, low: u64 }

// False: integer additions have a short latency, so one sum suffices.
const APART = false;
// True if registers suffice for four entries of a row at a time.
const FOUR = true;

fn joined(a: real) -> u64 { return (u64(a.y) << 32u) | u64(a.x); }
fn halves(a: u64) -> real { return real(u32(a), u32(a >> 32u)); }
fn word_product(a: u32, b: u32) -> u64 { return u64(a) * u64(b); }
fn low_word(a: u64) -> u64 { return u64(u32(a)); }

fn no_products() -> Products { return Products(0lu, 0lu, 0lu); }

// No sum wraps: (2^32 - 1)^2 + 2 (2^32 - 1) = 2^64 - 1.
fn add_long_product(a: real, b: real, s: Products) -> Products {
    let low = word_product(a.x, b.x) + s.low;
    let middle = word_product(a.y, b.x) + ((low >> 32u) + s.middle);
    let other = word_product(a.x, b.y) + low_word(middle);
    return Products(s.high + word_product(a.y, b.y) + ((middle >> 32u) + (other >> 32u)), low_word(other), low_word(low));
}
fn plus_product(a: real, b: real, s: Products) -> Products { return add_long_product(a, b, s); }
fn plus(a: Products, b: Products) -> Products {
    let s = total(a);
    let t = total(b);
    let low = s.low + t.low;
    return Products(s.high + t.high + carry(low, t.low), low >> 32u, low_word(low));
}

fn settled(s: Products) -> Products { return s; }

// Returns 1 if the addition to `part` wrapped.
fn carry(sum: u64, part: u64) -> u64 { return select(0lu, 1lu, sum < part); }

fn total(s: Products) -> Sum {
    let middle = s.middle + (s.low >> 32u);
    return Sum(s.high + (middle >> 32u) + (carry(middle, s.middle) << 32u), (middle << 32u) | low_word(s.low));
}

fn none() -> Sum { return Sum(0lu, 0lu); }
fn whole(a: real) -> Sum { return Sum(joined(a), 0lu); }
fn product(a: real, b: real) -> Sum { return total(plus_product(a, b, no_products())); }
fn number(s: Sum) -> real { return halves(s.high); }
fn minus(a: Sum, b: Sum) -> Sum { return Sum(a.high - b.high - carry(a.low, b.low), a.low - b.low); }
fn below(a: Sum, b: Sum) -> bool { return a.high < b.high || (a.high == b.high && a.low < b.low); }

// Adds magnitudes; a sum of at least 1 becomes the largest fraction.
fn capped(a: Sum, b: Sum) -> Sum {
    let low = a.low + b.low;
    let sum = Sum(a.high + b.high + carry(low, a.low), low);
    if below(sum, a) { return Sum(0xfffffffffffffffflu, 0xfffffffffffffffflu); }
    return sum;
}

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return halves(joined(sum) + product(w, a).high); }

// Adds the part of `own` that stays in the state: own - leave own = (2^64 - 1 - leave) own + own,
// in units of 2^-128.
fn with_own(leave: real, own: real, s: Products) -> Products {
    return plus_product(~leave, own, plus_product(real(1u, 0u), own, s));
}

// Returns the next number, from a sum that includes the part that stays.
fn stepped(s: Products, leave: real, own: real, unused: real) -> real { return number(total(s)); }

// abs(y - (1 - leak) x).
fn deviation(leak: real, x: real, y: real) -> Sum {
    let a = whole(y);
    let b = minus(whole(x), product(leak, x));
    if below(a, b) { return minus(b, a); }
    return minus(a, b);
}
