struct Params { step: u32 }
var<immediate> p: Params;
// DECLARATIONS
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn construct(@builtin(local_invocation_index) i: u32) {
    var x = a[i];
// STATEMENTS
    out[i] = x;
}
