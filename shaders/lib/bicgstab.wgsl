// Places of BiCGSTAB's scalars.

const RHO = 0u;         // <shadow, r>
const ALPHA = 1u;
const OMEGA = 2u;
const BETA = 3u;
const ENOUGH = 4u;      // the norm max abs(r_i) w_i that is small enough
const ITERATIONS = 5u;
const ACTIVE = 6u;      // 0 once there is nothing left to do, and no kernel changes anything any more
