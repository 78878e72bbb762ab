//! Selection of the largest of many values.

use std::cmp::Ordering;

use crate::parallel::*;

const BLOCK: usize = 1 << 16;
/// Capacity of the candidate buffer beyond 2k values.
const SPARE: usize = 256;

/// Orders larger values first, and equal ones by their positions.
pub fn larger_first(a: &(usize, f64), b: &(usize, f64)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Returns position and size of the `k` values with the largest `size`, in descending order.
pub fn largest(values: &[f64], k: usize, size: fn(f64) -> f64) -> Vec<(usize, f64)> {
    let select = |all: &mut Vec<(usize, f64)>| {
        if k < all.len() && k > 0 {
            all.select_nth_unstable_by(k - 1, larger_first);
        }
        all.truncate(k);
    };
    // Candidates of a block: values larger than the k-th largest so far. A full buffer is reduced
    // to its k largest.
    let of_block = |all: &mut Vec<(usize, f64)>, block: usize| {
        let places = block * BLOCK..values.len().min((block + 1) * BLOCK);
        let (room, mut least) = (k.saturating_mul(2).saturating_add(SPARE), None);
        all.clear();
        for (place, &value) in places.clone().zip(&values[places]) {
            let own = size(value);
            // Of equal values the first is kept.
            if least.is_some_and(|least: f64| own.total_cmp(&least).is_le()) {
                continue;
            }
            all.push((place, own));
            if all.len() == room {
                select(all);
                least = all.last().map(|&(_, least)| least);
            }
        }
        select(all);
        all.clone()
    };
    let blocks = (0..values.len().div_ceil(BLOCK)).into_par_iter().map_init(Vec::new, of_block);
    let mut all = blocks.collect::<Vec<_>>().concat();
    select(&mut all);
    all.sort_unstable_by(larger_first);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_equal_ones_by_their_places() {
        let values: Vec<f64> = (0..3 * BLOCK + 5).map(|i| ((i * 7919) % 1000) as f64).collect();
        let mut all: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for k in [0, 1, 10, 3 * BLOCK, 4 * BLOCK] {
            assert_eq!(largest(&values, k, |x| x), all[..k.min(all.len())]);
        }
        assert_eq!(largest(&[1.0, -3.0, 2.0], 2, f64::abs), [(1, 3.0), (2, 2.0)]);
    }
}
