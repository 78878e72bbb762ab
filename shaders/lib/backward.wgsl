// Certification of rows by their componentwise backward error.

// True if the row k.x x_left + k.y x_own + k.z x_right = k.w has a residual |r| <= 4^-limit s. Here
// s is the sum of the magnitudes of its terms. No product may have lost digits, so s must be in
// 4^-(8 tiny) to 4^(8 tiny). Also true if all terms are products with 0.
fn is_certified(k: vec4<real>, at: vec3<real>, limit: u32, tiny: u32) -> bool {
    let left = abs(fma(-k.y, at.y, fma(-k.z, at.z, fma(-k.x, at.x, k.w))));
    let scale = abs(k.x * at.x) + abs(k.y * at.y) + abs(k.z * at.z) + abs(k.w);
    var least = share_of(tiny);
    least *= least;
    least *= least;
    least *= least;
    // Comparisons with NaN are false.
    let known = left <= scale * share_of(limit) && scale >= least && scale * least <= real(1);
    let none = vec3<real>();
    return known || (all((k.xyz == none) | (at == none)) && k.w == real(0));
}
