// Reduction of a workgroup's values by joining halves, in a tree order common to all lanes. The
// kernel defines Value, the type, and join, which joins two values.

override GROUP = 256u;  // threads of a group
var<workgroup> values_of_group: array<Value, GROUP>;

// Returns the group's value in thread 0.
fn tree(local: u32, own: Value) -> Value {
    values_of_group[local] = own;
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if local < half { values_of_group[local] = join(values_of_group[local], values_of_group[local + half]); }
    }
    return values_of_group[local];
}
