// Arithmetic of floating-point numbers. `lib/q64.wgsl` or `lib/q64_limbs.wgsl` stands in its place for fractions of 2^64.

// The types in which magnitudes and a row's products are added up.
alias Sum = real;
alias Products = real;

// Whether many products are added up in four sums: one would wait for each addition.
const APART = true;
// Whether there are registers for four entries of a row at a time; where sums have to be settled there are not.
const FOUR = true;

fn no_products() -> Products { return real(0); }
fn plus_product(a: real, b: real, s: Products) -> Products { return fma(a, b, s); }
fn plus(a: Products, b: Products) -> Products { return a + b; }

// The same sum, ready for more products.
fn settled(s: Products) -> Products { return s; }

// A sum of products as one of magnitudes.
fn total(s: Products) -> Sum { return s; }

fn none() -> Sum { return real(0); }
fn whole(a: real) -> Sum { return a; }
fn product(a: real, b: real) -> Sum { return a * b; }
fn number(s: Sum) -> real { return s; }

// The sum of magnitudes, which may exceed 1.
fn capped(a: Sum, b: Sum) -> Sum { return a + b; }

// sum + w a.
fn weighted(w: real, a: real, sum: real) -> real { return fma(w, a, sum); }

// A row's sum with what its state keeps: here `stepped` adds that.
fn with_own(leave: real, own: real, s: Products) -> Products { return s; }

// own + (s - leave own) / alpha.
fn stepped(s: Products, leave: real, own: real, inverse_alpha: real) -> real {
    return fma(fma(-leave, own, s), inverse_alpha, own);
}

// abs(y - factor x).
fn deviation(factor: real, x: real, y: real) -> Sum { return abs(fma(-factor, x, y)); }
