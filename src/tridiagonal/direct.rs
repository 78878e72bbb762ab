//! One pass over rows that stay where the caller has them, on the host's cores: the windows of `window.rs`, without a plan.

use std::time::Instant;

use super::kernels::UNIT;
use super::options::{Interface, Options, Pivot, Refine};
use super::place::Place;
use super::range;
use super::residual::Residual;
use super::scheme::Scheme;
use super::solve::{Method, Outcome, Pass, Solution};
use super::view::{PIECE, View, Watch};
use super::window;
use super::window_kernels::{SEAMS, count_uncertified, solve_tiles, tridiagonal_seam, tridiagonal_window};
use crate::Result;
use crate::kernel::Precision;
use crate::lane::Lane;

/// Solves into `x` where the only lane is the host, one pass over the rows is enough, and no correction has to follow; none
/// where that is not so, whatever `x` then holds. The bits are those of a plan.
pub(super) fn solve(
    lanes: &[Lane],
    view: &View<'_>,
    options: &Options,
    x: &mut [&mut [f64]],
    watch: &mut Watch<'_>,
) -> Result<Option<Solution>> {
    let ([lane], span) = (lanes, view.span) else { return Ok(None) };
    let plain = options.block.is_none()
        && options.interface != Interface::Host
        && options.pivot != Pivot::Scaled
        && matches!(options.refine, Refine::Auto | Refine::Steps(0));
    let in_tiles = !span.cyclic && Scheme::of(span.n, span.rows, false, None) == Scheme::Tiles;
    let counted = span.n < 1 << 31 && u32::try_from(span.rows + window::MOST).is_ok();
    if !(plain && in_tiles && counted && lane.device().host) || span.ranks.is_distributed() {
        return Ok(None);
    }
    lane.host(|| {
        let began = Instant::now();
        let read = |rows: std::ops::Range<usize>| {
            Ok([view.dl, view.d, view.du].map(|array| array[rows.clone()].to_vec()))
        };
        let Some(overlap) = window::overlap(span.n, span.rows, read)? else { return Ok(None) };
        let mut residuals = Vec::with_capacity(view.b.len());
        for (b, x) in view.b.iter().zip(x.iter_mut()) {
            if range::shift(range::largest(b), range::roomy(Precision::F64)) != 0
                || !certified(view, b, x, overlap, watch)?
            {
                return Ok(None);
            }
            let residual = view.residual_watched(b, x, watch)?;
            let enough = options.refine != Refine::Auto || residual.settled(true);
            if !(enough && residual.within(options.tolerance)) {
                return Ok(None);
            }
            residuals.push(residual);
        }
        let seconds = began.elapsed().as_secs_f64();
        let largest = |v: &mut dyn Iterator<Item = &[f64]>| v.map(range::largest).fold(0.0, f64::max);
        let growth = [largest(&mut x.iter().map(|x| &**x)), largest(&mut view.b.iter().copied())];
        Ok(Some(solution(view, options, residuals, growth, seconds)))
    })
}

/// Solves one right-hand side in windows; true if the unknowns are certified.
fn certified(
    view: &View<'_>,
    b: &[f64],
    x: &mut [f64],
    overlap: usize,
    watch: &mut Watch<'_>,
) -> Result<bool> {
    let (rows, tile) = (view.span.rows, window::tile(overlap));
    let tiles = rows.div_ceil(tile);
    let place = Place { n: view.span.n, first: 0, cyclic: false };
    let whole = window::params::<f64>(place, rows, 0..rows, overlap, (1, rows));
    // A multiple of the tiles that go together.
    let stretch_tiles = (PIECE / tile).next_multiple_of(8);
    let (View { dl, d, du, .. }, mut flags) = (view, vec![0; tiles + tiles.div_ceil(SEAMS)]);
    for (stretch, flags) in flags[..tiles].chunks_mut(stretch_tiles).enumerate() {
        watch()?;
        let at = stretch * stretch_tiles * tile;
        let params = tridiagonal_window::Params { at: at as u32, tiles: flags.len() as u32, ..whole };
        let bindings = tridiagonal_window::Bindings::over(dl, d, du, b, &mut *x, flags);
        solve_tiles(params, bindings);
        if flags.contains(&1) {
            return Ok(false);
        }
    }
    count_uncertified(whole, tridiagonal_seam::Bindings::over(dl, d, du, b, x, &mut flags));
    Ok(flags[tiles..].iter().all(|&bad| bad == 0))
}

fn solution(
    view: &View<'_>,
    options: &Options,
    residuals: Vec<Residual>,
    [x, b]: [f64; 2],
    seconds: f64,
) -> Solution {
    let done = Pass { residuals, chunks: 1, ..Pass::new(0, 0) };
    let host = super::pivot::Improved::default();
    let (method, interface) = (Method::OnePass, Interface::Device);
    let outcome = Outcome { done, host, unproved: false, method, block: UNIT, interface, seconds };
    let solution = outcome.solution(&[], view.span.ranks, options.tolerance);
    Solution { growth: super::solve::growth(x, b), ..solution }
}
