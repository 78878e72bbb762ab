// Arithmetic of floating-point numbers. `lib/q64.wgsl` or `lib/q64_limbs.wgsl` stands in its place for fractions of 2^64.

// The type in which products are added up.
alias Sum = real;

fn none() -> Sum { return real(0); }
fn whole(a: real) -> Sum { return a; }
fn product(a: real, b: real) -> Sum { return a * b; }
fn plus_product(a: real, b: real, s: Sum) -> Sum { return fma(a, b, s); }
fn plus(a: Sum, b: Sum) -> Sum { return a + b; }

// The same for sums that may exceed 1.
fn capped(a: Sum, b: Sum) -> Sum { return a + b; }

fn number(s: Sum) -> real { return s; }

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return fma(w, a, sum); }

// own + (s - leave own) / alpha.
fn stepped(s: Sum, leave: real, own: real, inverse_alpha: real) -> real {
    return fma(fma(-leave, own, s), inverse_alpha, own);
}

// abs(y - factor x).
fn deviation(factor: real, x: real, y: real) -> Sum { return abs(fma(-factor, x, y)); }
