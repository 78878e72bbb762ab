// Stage 3: the inner unknowns of a block, from its first and last unknown and the one after it. One
// thread per block eliminates downwards as in stage 1, then substitutes upwards. It keeps x_i = e_i
// - h_i x_{i+1} - k_i x_{i+2} for every row. Rows of all blocks are interleaved, so that adjacent
// threads write adjacent numbers. Reads 4 numbers per row and 3 per block, writes and reads 3 per
// row, writes 1 per row.
alias real = f64;

// First and last unknown of each block, then the next unknown.
@group(0) @binding(4) var<storage, read> above: array<real>;
@group(0) @binding(5) var<storage, read_write> kept: array<real>;
@group(0) @binding(6) var<storage, read_write> x: array<real>;

@compute @workgroup_size(256)
fn tridiagonal_block_solve(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
      @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 256u + local;
    let small = share_of(p.small);
    if block < p.blocks {
        let ends = ends_of(block);
        let start = ends.x;
        let end = ends.y;
        let x_first = above[2u * block];
        let second = row(start + 1u);
        // u x_i + w x_{i+1} = r, with known x_first.
        var u = second.b;
        var w = second.c;
        var r = fma(-second.a, x_first, second.d);
        var own = size(second.a, second.b, second.c);
        var at = block;
        for (var i = start + 2u; i < end; i++) {
            let next = row(i);
            let other = size(next.a, next.b, next.c);
            let exchange = abs(next.a) * own > abs(u) * other;
            var pu = select(u, next.a, exchange);
            let pw = select(w, next.b, exchange);
            let pz = select(real(0), next.c, exchange);
            let pr = select(r, next.d, exchange);
            let least = small * select(own, other, exchange);
            if abs(pu) <= least { pu = select(max(least, small), -max(least, small), pu < real(0)); }
            let inverse = real(1) / pu;
            kept[at] = pr * inverse;
            kept[at + p.blocks] = pw * inverse;
            kept[at + 2u * p.blocks] = pz * inverse;
            at += 3u * p.blocks;
            let q = select(next.a, u, exchange) * inverse;
            u = fma(-q, pw, select(next.b, w, exchange));
            w = fma(-q, pz, select(next.c, real(0), exchange));
            r = fma(-q, pr, select(next.d, r, exchange));
            own = select(other, own, exchange);
        }
        var next = above[2u * block + 1u];
        var after = above[2u * block + 2u];
        x[start] = x_first;
        x[end - 1u] = next;
        for (var i = end - 2u; i > start; i--) {
            at -= 3u * p.blocks;
            let here = fma(-kept[at + 2u * p.blocks], after, fma(-kept[at + p.blocks], next, kept[at]));
            after = next;
            next = here;
            x[i] = here;
        }
    }
}
