// Constructs outside of the subset: the reason, and declarations and statements or the whole text.

// == : ArrayLength:
// --
    x += f32(arrayLength(&a)); // HERE

// == : ArrayLength:
// --
    let unused = arrayLength(&a); // HERE

// == : Matrix:
// --
    let m = mat2x2<f32>(x, x, x, x); x = (m * vec2(x, 1.0)).x; // HERE

// == : a composed value of Array:
// --
    let l = array(x, x); x = l[i & 1u]; // HERE

// == : Continue:
// --
    for (;;) { if x > 1 { continue; } break; } // HERE

// == : Switch:
// --
    switch i { case 0u: { x = 1; } default: {} } // HERE

// == : Loop:
// --
    loop { x += 1.0; continuing { break if x > 2.0; } } // HERE

// == : Private:
var<private> mine: f32; // HERE
// --
    x += mine;

// == : an array of vec3:
var<workgroup> three: array<vec3<f32>, 4>; // HERE
// --
    x += three[1].x;

// == : an array of unknown length that is not a binding:
struct Tail { n: u32, items: array<f32> } // HERE
@group(0) @binding(2) var<storage, read> c: Tail;
// --
    x += c.items[i];

// == : a binding other than an array of unknown length:
@group(0) @binding(2) var<storage, read> c: array<f32, 4>;
// --
    x += c[i];

// == : Uniform:
@group(0) @binding(2) var<uniform> c: vec4<f32>; // HERE
// --
    x += c.x;

// == : Handle:
@group(0) @binding(2) var image: texture_2d<f32>; // HERE
// --

// == : @group(1):
@group(1) @binding(0) var<storage, read> c: array<f32>; // HERE
// --

// == : @binding(3) as number 2 of the bindings:
@group(0) @binding(3) var<storage, read> c: array<f32>; // HERE
// --

// == : @binding(1) as number 2 of the bindings:
@group(0) @binding(1) var<storage, read> c: array<f32>;
// --

// == naga: Missing value for pipeline-overridable constant
override n: u32;
// --
    x += f32(n);

// == naga: error
// --
    x += subgroupAdd(x);

// == : immediates other than u32:
struct P { x: u32, y: f32 }
var<immediate> p: P; // HERE
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256) fn construct() { out[0] = f32(p.x); }

// == : immediates that are not a struct:
var<immediate> p: vec2<u32>; // HERE
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256) fn construct() { out[0] = f32(p.x); }

// == : workgroups of [128, 1, 1]:
@compute @workgroup_size(128) fn construct() {}

// == : workgroups of [256, 2, 1]:
@compute @workgroup_size(256, 2) fn construct() {}

// == : an entry point of the stage Fragment:
@fragment fn construct() {}

// == : 2 entry points:
@compute @workgroup_size(256) fn other() {} @compute @workgroup_size(256) fn construct() {}

// == : the entry point other, not construct:
@compute @workgroup_size(256) fn other() {}

// == : 0 entry points:
fn construct() {}

// == naga: error: expected
fn construct( {

// == naga: error:
@compute @workgroup_size(256) fn construct() { let x: i32 = 1u; }

// == naga: error:
var<workgroup> w: u32;
@compute @workgroup_size(256) fn construct() { _ = w; return 1; }
