// Indices of BiCGSTAB's scalars.

const RHO = 0u;         // <shadow, r>
const ALPHA = 1u;
const OMEGA = 2u;
const BETA = 3u;
const ENOUGH = 4u;      // threshold of the norm max abs(r_i) w_i
const ITERATIONS = 5u;
const ACTIVE = 6u;      // 0 after the end: kernels then change nothing
