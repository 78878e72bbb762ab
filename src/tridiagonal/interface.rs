//! The interface system of all chunks, on the host.

use super::pivot;
use super::unit::{Number, Unit};
use crate::lane::cpu::simd::PORTABLE;

/// What a chunk gives to the host: a unit's six numbers, or the dl, d, du and b of its blocks.
pub(super) enum Piece<'p, T> {
    Unit(&'p [T]),
    Blocks(&'p [T]),
    /// Nothing, as of all others: they are whole systems.
    Nothing,
}

/// Solves it: for each piece the unknowns to the left and to the right of its unit, or those of its blocks and the one
/// behind them; and the number of pivots that had to be replaced.
pub(super) fn solve<T: Number>(pieces: &[Piece<'_, T>], cyclic: bool, exchange: bool) -> (Vec<Vec<T>>, u32) {
    if pieces.iter().all(|piece| matches!(piece, Piece::Nothing)) {
        return (vec![Vec::new(); pieces.len()], 0);
    }
    let units: Option<Vec<Unit<T>>> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Unit(unit) => Some(Unit::of(unit)),
            _ => None,
        })
        .collect();
    if let Some(units) = units {
        return (join(&units, cyclic).into_iter().map(Vec::from).collect(), 0);
    }
    // Rows of all chunks one behind the other; a chunk of one row is a unit: x = u0 − u1·x_left − u2·x_right.
    let mut system: [Vec<f64>; 4] = Default::default();
    for piece in pieces {
        match piece {
            Piece::Unit(unit) => {
                let row = [unit[1].wide(), 1.0, unit[2].wide(), unit[0].wide()];
                system.iter_mut().zip(row).for_each(|(all, v)| all.push(v));
            }
            Piece::Blocks(blocks) => {
                let parts = blocks.chunks_exact(blocks.len() / 4);
                let append = |(all, part): (&mut Vec<f64>, &[T])| all.extend(part.iter().map(|v| v.wide()));
                system.iter_mut().zip(parts).for_each(append);
            }
            Piece::Nothing => {}
        }
    }
    let (x, replaced) = match exchange {
        true => pivot::solve_replaced(&system),
        false => (thomas(&system), 0),
    };
    let of = |i: usize| x.get(i).map_or(T::ZERO, |&x| T::of(x));
    let mut at = 0usize;
    let answers = pieces.iter().map(|piece| match piece {
        Piece::Unit(_) => {
            at += 1;
            vec![(at - 1).checked_sub(1).map_or(T::ZERO, of), of(at)]
        }
        Piece::Blocks(blocks) => {
            let first = at;
            at += blocks.len() / 4;
            (first..=at).map(of).collect()
        }
        Piece::Nothing => Vec::new(),
    });
    (answers.collect(), replaced)
}

/// The unknowns next to each unit, in order.
fn join<T: Number>(units: &[Unit<T>], cyclic: bool) -> Vec<[T; 2]> {
    let mut whole = Unit::EMPTY;
    let nodes: Vec<Unit<T>> = units
        .iter()
        .map(|unit| {
            let (joined, between, _) = whole.join::<PORTABLE>(unit);
            whole = joined;
            between
        })
        .collect();
    let [left, mut right] = if cyclic { whole.ring().0 } else { [T::ZERO; 2] };
    let mut ends = vec![[T::ZERO; 2]; units.len()];
    for (node, ends) in nodes.iter().zip(&mut ends).rev() {
        let (before, first) = node.between::<PORTABLE>(left, right);
        *ends = [before, right];
        right = first;
    }
    ends
}

/// One sweep down and one up (Thomas 1949).
fn thomas([dl, d, du, b]: &[Vec<f64>; 4]) -> Vec<f64> {
    let n = d.len();
    let (mut c, mut x) = (vec![0.0; n], vec![0.0; n]);
    let (mut before_c, mut before_x) = (0.0, 0.0);
    for i in 0..n {
        let inverse = 1.0 / f64::mul_add(-dl[i], before_c, d[i]);
        before_c = du[i] * inverse;
        before_x = f64::mul_add(-dl[i], before_x, b[i]) * inverse;
        (c[i], x[i]) = (before_c, before_x);
    }
    for i in (0..n.saturating_sub(1)).rev() {
        x[i] = f64::mul_add(-c[i], x[i + 1], x[i]);
    }
    x
}
