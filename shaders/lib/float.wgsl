// Arithmetic of floating-point numbers. For fractions of 2^64, `lib/q64.wgsl` or
// `lib/q64_limbs.wgsl` replaces this file.

// Types of sums of magnitudes and of a row's products.
alias Sum = real;
alias Products = real;

// True if COO products are added in four sums, since a single sum waits for each addition.
const APART = true;
// True if registers suffice for four entries at a time; not so if sums must be settled.
const FOUR = true;

fn no_products() -> Products { return real(0); }
fn plus_product(a: real, b: real, s: Products) -> Products { return fma(a, b, s); }
fn plus(a: Products, b: Products) -> Products { return a + b; }

// Prepares a sum for more products. Floating-point sums need nothing.
fn settled(s: Products) -> Products { return s; }

// Converts a sum of products to one of magnitudes.
fn total(s: Products) -> Sum { return s; }

fn none() -> Sum { return real(0); }
fn whole(a: real) -> Sum { return a; }
fn product(a: real, b: real) -> Sum { return a * b; }
fn number(s: Sum) -> real { return s; }

// Adds magnitudes; the sum may exceed 1.
fn capped(a: Sum, b: Sum) -> Sum { return a + b; }

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return fma(w, a, sum); }

// Returns s: in this arithmetic `stepped` adds the part of `own` that stays in the state.
fn with_own(leave: real, own: real, s: Products) -> Products { return s; }

// own + (s - leave own) / alpha.
fn stepped(s: Products, leave: real, own: real, inverse_alpha: real) -> real {
    return fma(fma(-leave, own, s), inverse_alpha, own);
}

// abs(y - factor x).
fn deviation(factor: real, x: real, y: real) -> Sum { return abs(fma(-factor, x, y)); }
