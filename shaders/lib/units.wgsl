// Units in workgroup memory, one per slot, and the operation that joins two.

// Slot s is at index s + s / 16, so that power-of-two strides use different banks.
var<workgroup> u0: array<real, 272>;
var<workgroup> u1: array<real, 272>;
var<workgroup> u2: array<real, 272>;
var<workgroup> u3: array<real, 272>;
var<workgroup> u4: array<real, 272>;
var<workgroup> u5: array<real, 272>;

fn slot(s: u32) -> u32 { return s + (s >> 4u); }

// A run of rows as x_first = f.x - f.y x_left - f.z x_right, x_last = l.x - l.y x_left - l.z
// x_right. When two units are joined, one of their slots may hold the two unknowns between them, in
// this form.
struct Unit { f: vec3<real>, l: vec3<real> }

// Returns an empty unit: x_first is x_right and x_last is x_left.
fn no_unit() -> Unit { return Unit(vec3<real>(real(0), real(0), real(-1)), vec3<real>(real(0), real(-1), real(0))); }

// Returns a unit from its layout in arrays.
fn unit_of(v0: vec2<real>, v1: vec2<real>, v2: vec2<real>) -> Unit {
    return Unit(vec3<real>(v0, v1.x), vec3<real>(v1.y, v2));
}

fn unit_in(own: u32) -> Unit { return Unit(vec3<real>(u0[own], u1[own], u2[own]), vec3<real>(u3[own], u4[own], u5[own])); }

fn lay(own: u32, unit: Unit) {
    u0[own] = unit.f.x; u1[own] = unit.f.y; u2[own] = unit.f.z;
    u3[own] = unit.l.x; u4[own] = unit.l.y; u5[own] = unit.l.z;
}

// Two joined units as one, the two unknowns between them, and the pivot.
struct Joined { whole: Unit, between: Unit, det: real }

fn joined(a: Unit, b: Unit) -> Joined {
    let det = fma(-a.l.z, b.f.y, real(1));
    let g = real(1) / det;
    let y = vec3<real>(g * fma(-a.l.z, b.f.x, a.l.x), g * a.l.y, -g * a.l.z * b.f.z);
    let z = vec3<real>(g * fma(-b.f.y, a.l.x, b.f.x), -g * b.f.y * a.l.y, g * b.f.z);
    let f = vec3<real>(fma(-a.f.z, z.x, a.f.x), fma(-a.f.z, z.y, a.f.y), -a.f.z * z.z);
    let l = vec3<real>(fma(-b.l.y, y.x, b.l.x), -b.l.y * y.y, fma(-b.l.y, y.z, b.l.z));
    return Joined(Unit(f, l), Unit(y, z), det);
}

// Evaluates the two unknowns of a slot from the unknowns next to it.
fn unknowns(unit: Unit, left: real, right: real) -> vec2<real> {
    return vec2<real>(
        fma(-unit.f.z, right, fma(-unit.f.y, left, unit.f.x)),
        fma(-unit.l.z, right, fma(-unit.l.y, left, unit.l.x)),
    );
}

// Replaces a slot's expressions by its two unknowns.
fn resolve(own: u32, left: real, right: real) {
    let x = unknowns(unit_in(own), left, right);
    u0[own] = x.x;
    u1[own] = x.y;
}
