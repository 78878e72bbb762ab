// Operations at the ends of their ranges.
struct Params { step: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn construct(@builtin(local_invocation_index) i: u32) {
    if i == 0u {
        let least = bitcast<i32>(a[0]); let minus = bitcast<i32>(a[1]);
        let zero = bitcast<i32>(a[2]); let one = bitcast<i32>(a[3]);
        let large = bitcast<f32>(a[5]); let tenth = bitcast<f32>(a[6]);
        let three = bitcast<f32>(a[7]); let nan = bitcast<f32>(a[8]);
        // STORES
    }
}
