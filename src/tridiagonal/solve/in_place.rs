//! One pass on the CPU over the caller's arrays: the windows of `one_pass/windows.rs`, without a
//! plan.

use std::time::Instant;

use crate::kernel::Precision;
use crate::lane::Lane;
use crate::tridiagonal::host::scaling;
use crate::tridiagonal::kernels::alignment::ChunkPlace;
use crate::tridiagonal::kernels::tiles::LANES;
use crate::tridiagonal::kernels::windows::{
    SEAMS, count_uncertified, solve_tiles, tridiagonal_seam, tridiagonal_window,
};
use crate::tridiagonal::one_pass::windows;
use crate::tridiagonal::options::{Options, Pivot, PlanOptions, Refine};
use crate::tridiagonal::residual::{AllNorms, BLOCK, Residual};
use crate::tridiagonal::scheme::Scheme;
use crate::tridiagonal::solution::{Pass, Solution, growth};
use crate::tridiagonal::system::view::{PIECE, View};
use crate::{Progress, Result};

/// Solves into `x`, with the result of a plan bit for bit.
///
/// Returns `None`, with `x` undefined, unless the only lane is the host, one pass over the rows
/// suffices, and no correction is needed.
pub(crate) fn solve(
    lanes: &[Lane],
    view: &View<'_>,
    options: &Options,
    x: &mut [&mut [f64]],
    watch: &mut dyn Progress,
) -> Result<Option<Solution>> {
    let ([lane], span) = (lanes, view.span) else { return Ok(None) };
    let plain = options.pivot != Pivot::Scaled && matches!(options.refine, Refine::Auto | Refine::Steps(0));
    let in_tiles = !span.cyclic && Scheme::of(span.n, span.rows, false, false) == Scheme::Tiles;
    let counted = span.n < 1 << 31 && u32::try_from(span.rows + windows::MOST).is_ok();
    if !(plain && in_tiles && counted && lane.device().host) || span.ranks.is_distributed() {
        return Ok(None);
    }
    let began = Instant::now();
    let read = |rows: std::ops::Range<usize>| {
        Ok([view.dl, view.d, view.du].map(|array| array[rows.clone()].to_vec()))
    };
    let Some(overlap) = windows::overlap(span.n, span.rows, read)? else { return Ok(None) };
    let mut residuals = Vec::with_capacity(view.b.len());
    let mut largest = [0.0f64; 2];
    let all = (view.b.len() * span.rows) as u64;
    for (first, (b, x)) in (0u64..).step_by(span.rows).zip(view.b.iter().zip(x.iter_mut())) {
        let watch = &mut |done, _| watch.progress(first + done, all);
        let Some((residual, [x_size, b_size])) = certified(view, b, x, overlap, watch)? else {
            return Ok(None);
        };
        let enough = options.refine != Refine::Auto || residual.settled(true);
        // An unknown that is NaN or infinite has a residual above any tolerance.
        let sound = enough && residual.within(options.tolerance);
        if !sound || scaling::shift(b_size, scaling::headroom(Precision::F64)) != 0 {
            return Ok(None);
        }
        residuals.push(residual);
        largest = [largest[0].max(x_size), largest[1].max(b_size)];
    }
    let mut done = Pass::new(Vec::new(), &PlanOptions::default());
    (done.solution.residuals, done.solution.chunks) = (residuals, 1);
    done.solution.solve_seconds = began.elapsed().as_secs_f64();
    let solution = done.finish(&[], span.ranks, options.tolerance);
    Ok(Some(Solution { growth: growth(largest[0], largest[1]), ..solution }))
}

/// Strips of tiles that a thread solves before it computes their residual from cache.
const STRIPS: usize = 4;

/// Solves one right-hand side in windows. Returns the residual and the maxima of |x| and |b| if the
/// unknowns are certified.
fn certified(
    view: &View<'_>,
    b: &[f64],
    x: &mut [f64],
    overlap: usize,
    watch: &mut dyn Progress,
) -> Result<Option<(Residual, [f64; 2])>> {
    let (rows, tile) = (view.span.rows, windows::tile(overlap));
    let tiles = rows.div_ceil(tile);
    let place = ChunkPlace { n: view.span.n, first: 0, cyclic: false };
    let whole = windows::params::<f64>(place, rows, 0..rows, overlap, (1, rows));
    // A multiple of the tiles that are solved together.
    let stretch_tiles = STRIPS * LANES * crate::parallel::threads();
    let (View { dl, d, du, .. }, mut flags) = (view, vec![0; tiles + tiles.div_ceil(SEAMS)]);
    let alone = view.span.batch == 1;
    let (mut norms, mut done, mut watched) = (AllNorms::default(), 0, 0);
    for (stretch, flags) in flags[..tiles].chunks_mut(stretch_tiles).enumerate() {
        let at = stretch * stretch_tiles * tile;
        if at >= watched {
            watch.progress(at as u64, rows as u64)?;
            watched = at + PIECE;
        }
        let params = tridiagonal_window::Params { at: at as u32, tiles: flags.len() as u32, ..whole };
        let bindings = tridiagonal_window::Bindings::over(dl, d, du, b, &mut *x, flags);
        solve_tiles(params, bindings);
        if flags.contains(&1) {
            return Ok(None);
        }
        // The residual of rows with known neighbours, in whole blocks, so that its bits are those
        // of one pass over all rows.
        let end = at + flags.len() * tile;
        let known = if end >= rows { rows } else { (end - 1) / BLOCK * BLOCK };
        if alone && known > done {
            norms = norms.with(view.norms_of(b, x, done..known));
            done = known;
        }
    }
    count_uncertified(whole, tridiagonal_seam::Bindings::over(dl, d, du, b, x, &mut flags));
    if flags[tiles..].iter().any(|&bad| bad != 0) {
        return Ok(None);
    }
    Ok(Some(match alone {
        true => (norms.residual(), norms.sizes()),
        false => (view.residual_watched(b, x, watch)?, [scaling::largest(x), scaling::largest(b)]),
    }))
}
