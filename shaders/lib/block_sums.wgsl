// Sums of term(i) over the rows i of a block. The kernel defines `term` and binds `out`.

struct Params { step: u32, rows: u32, own: u32, out: u32, out_step: u32, first_step: u32 }
var<immediate> p: Params;

alias Value = Sum;

fn join(a: Value, b: Value) -> Value { return capped(a, b); }

fn block_of_rows(block: u32, local: u32) {
    let i = block * 256u + local;
    var s = none();
    if i < p.rows { s = term(i); }
    let sum = tree(local, s);
    if local == 0u && i < p.rows { out[p.out + (p.step - p.first_step) * p.out_step + block] = number(sum); }
}
