// Constructs outside of the subset: the reason, declarations, and statements.

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
