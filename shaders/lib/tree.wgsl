// The values of a workgroup as one: halves are joined with halves, the same tree on every lane. The kernel says what a
// Value is, and how two are joined.

override GROUP = 256u;  // threads of a group
var<workgroup> values_of_group: array<Value, GROUP>;

// The group's value in thread 0.
fn tree(local: u32, own: Value) -> Value {
    values_of_group[local] = own;
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { values_of_group[local] = join(values_of_group[local], values_of_group[local + half]); }
    }
    return values_of_group[local];
}
