//! Krylov bases: vectors stored on the lanes, and the Arnoldi recurrence that computes them.

use crate::kernel::Number;
use crate::lane::{Buffer, Launch};
use crate::sparse::BLOCK;
use crate::transient::chain::statistics::scale_of;
use crate::transient::iteration::{Accumulators, Iteration, Observed, Which};
use crate::transient::step::chunk::LanePart;
use crate::transient::step::vector_kernels::{ADD, COMBINE, SCALE, add, combine, scale};
use crate::{Error, Progress, Result};

/// Number of vectors combined by one launch.
const FOUR: usize = 4;
/// Number of roundings of each product, in the order in which a launch adds four to a vector.
const ROUNDED: [f64; FOUR] = [4.0, 4.0, 3.0, 2.0];

/// Orthogonalization is repeated if it reduces a vector's norm below this fraction.
const AGAIN: f64 = 0.3;

/// The recurrence (P − I) V = V H + w eᵀ + F.
///
/// The columns of V are the basis vectors, and e is the last unit vector.
#[derive(Debug, Default)]
pub(super) struct Recurrence {
    /// Columns of H, each down to the element below the diagonal.
    pub(crate) columns: Vec<Vec<f64>>,
    /// Upper bounds of the l1 norms of the basis vectors.
    pub(crate) norms: Vec<f64>,
    /// Upper bounds of the l1 norms of the columns of F, the rounding errors.
    pub(crate) rounding: Vec<f64>,
    /// Upper bound of the l1 norm of the residual vector w.
    pub(crate) residual: f64,
    /// Rewards of each basis vector.
    pub(crate) rewards: Vec<Vec<f64>>,
}

impl Recurrence {
    /// Returns reward number `r` of a linear combination of the vectors.
    pub(super) fn reward(&self, r: usize, factors: &[f64]) -> f64 {
        factors.iter().zip(&self.rewards).map(|(factor, rewards)| factor * rewards[r]).sum()
    }
}

/// An iteration, and a basis of vectors stored with it.
pub(super) struct Basis<'a, T> {
    pub(crate) iteration: Iteration<'a, T>,
    /// Basis vectors, each with one array for each part.
    vectors: Vec<Vec<Buffer<T>>>,
    /// For each lane: factors of a linear combination of basis vectors.
    factors: Vec<Buffer<T>>,
    /// Block sums of dot products, one array for each part.
    partials: Vec<Buffer<T>>,
    /// Bound of the l1 rounding error of a product x P, for vectors x of norm 1 or less.
    step: f64,
    /// Upper bound of the l1 error of a linear combination from underflow.
    underflow: f64,
}

/// Returns Gram–Schmidt corrections as pairs (index of a basis vector, multiple to add).
///
/// They are added in groups of four, the newest vectors first. The last vector of a group is
/// rounded least often. So the newest vector, usually with the largest multiple, is the last of the
/// first group.
fn decreasing(dots: &[f64], squares: &[f64]) -> Vec<(usize, f64)> {
    let places: Vec<usize> = (0..dots.len()).rev().collect();
    let places = places.chunks(FOUR).flat_map(|four| four.iter().rev());
    places.map(|&place| (place, -dots[place] / squares[place])).collect()
}

impl<'a, T: Number> Basis<'a, T> {
    /// Allocates up to `most` vectors in the lanes' memory; `step` bounds the rounding of a
    /// product.
    pub(crate) fn new(iteration: Iteration<'a, T>, most: usize, states: usize, step: f64) -> Result<Self> {
        let partials = |part: &LanePart<T>| {
            let blocks = part.rows.len().div_ceil(BLOCK);
            iteration.lanes[part.lane].alloc("sums by blocks", (blocks * (most + 1)).max(1))
        };
        let partials = iteration.parts.parts.iter().map(partials).collect::<Result<_>>()?;
        let factors = iteration.lanes.iter().map(|lane| lane.alloc("factors", most.next_multiple_of(FOUR)));
        let factors = factors.collect::<Result<_>>()?;
        let mut vectors = Vec::with_capacity(most);
        while vectors.len() < most {
            match iteration.vector("a vector of a Krylov space") {
                Ok(vector) => vectors.push(vector),
                Err(Error::OutOfMemory { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        vectors.truncate(iteration.parts.ranks.all_reduce_min(vectors.len() as u64) as usize);
        let underflow = 16.0 * states as f64 * T::NEGLIGIBLE.wide().max(f64::MIN_POSITIVE);
        Ok(Self { iteration, vectors, factors, partials, step, underflow })
    }

    /// Returns the number of basis vectors for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.vectors.len()
    }

    /// Computes the recurrence of at most `most` vectors, starting with the newest iterate.
    ///
    /// `check_product` is called after the first product; if it returns true, the result is `None`.
    pub(super) fn span(
        &mut self,
        most: usize,
        observer: &mut dyn Progress,
        check_product: &mut dyn FnMut(&Iteration<'a, T>) -> Result<bool>,
    ) -> Result<Option<Recurrence>> {
        let u = T::PRECISION.unit_roundoff();
        let mut recurrence = Recurrence::default();
        let mut squares: Vec<f64> = Vec::new();
        let mut norm = self.norm()?;
        for j in 0..most.min(self.capacity()) {
            self.keep(j)?;
            let rewards = self.iteration.advance(self.iteration.steps() + 1, &[], observer)?;
            if j == 0 && check_product(&self.iteration)? {
                return Ok(None);
            }
            recurrence.norms.push(norm);
            recurrence.rewards.push(rewards);
            let mut dots = self.products(j)?;
            squares.push(dots.pop().unwrap_or(f64::NAN));
            let (mut column, mut left, mut sum) = (vec![0.0; j + 1], norm, 0.0);
            loop {
                let multiples = decreasing(&dots, &squares);
                let source = self.iteration.source(Which::Newest);
                self.combine(&multiples, |p| {
                    let part = &self.iteration.parts.parts[p];
                    (&part.x[source], part.own)
                })?;
                let before = std::mem::replace(&mut left, self.norm()?);
                sum += self.rounding_of(&multiples, &recurrence.norms, left);
                for &(place, multiple) in &multiples {
                    column[place] -= multiple;
                    sum += u * column[place].abs() * recurrence.norms[place];
                }
                // A vector with a small remainder may not be nearly orthogonal yet.
                let again = left < AGAIN * before && left > sum;
                if !again {
                    break;
                }
                dots = self.products(j)?;
                dots.pop();
            }
            // The diagonal is that of P − I.
            column[j] -= 1.0;
            let rounded = self.step * norm.max(1.0) + u * column[j].abs() * norm;
            recurrence.rounding.push(1.001 * (rounded + sum));
            recurrence.residual = left;
            // A remainder below its rounding error has no further direction.
            let ends = j + 1 == most.min(self.capacity()) || left.is_nan() || left <= recurrence.rounding[j];
            if !ends {
                // Scaling by a power of two brings the norm near 1.
                let factor = scale_of(left);
                column.push(1.0 / factor);
                norm = left * factor;
                self.scale(factor)?;
                self.exchange()?;
            }
            recurrence.columns.push(column);
            if ends {
                break;
            }
        }
        Ok(Some(recurrence))
    }

    /// Bounds the l1 rounding of adding `multiples` of vectors to a sum with the l1 norm `left`.
    pub(super) fn rounding_of(&self, multiples: &[(usize, f64)], norms: &[f64], left: f64) -> f64 {
        let u = T::PRECISION.unit_roundoff();
        let (mut behind, mut rounding) = (left, 0.0);
        for four in multiples.chunks(FOUR).rev() {
            let sizes = four.iter().map(|&(place, factor)| factor.abs() * norms[place]);
            // Each of four products is rounded, and is in up to three sums of the four; their sum
            // is then added.
            let own: f64 = sizes.clone().zip(ROUNDED).map(|(size, times)| times * size).sum();
            rounding += u * (own + behind) + self.underflow;
            behind += sizes.sum::<f64>();
        }
        1.001 * rounding
    }

    /// Stores the newest vector as the basis vector `place`.
    fn keep(&self, place: usize) -> Result<()> {
        let vector = &self.vectors[place];
        self.clear(vector)?;
        let source = self.iteration.source(Which::Newest);
        self.each_part(|p| {
            let part = &self.iteration.parts.parts[p];
            let rows = part.rows.len();
            let params = add::Params { step: 0, rows: rows as u32, own: part.own as u32 };
            let args = add::Args { x: part.x[source].arg(), acc: vector[p].arg() };
            Ok(vec![self.iteration.lanes[part.lane].bind(&ADD, T::PRECISION, rows, params, args)?])
        })
    }

    fn clear(&self, vector: &[Buffer<T>]) -> Result<()> {
        let mut parts = self.iteration.parts.parts.iter().zip(vector);
        parts.try_for_each(|(part, vector)| self.iteration.lanes[part.lane].clear(vector))
    }

    /// Returns dot products of the newest vector with vectors 0 … `last`, and the square of `last`.
    fn products(&self, last: usize) -> Result<Vec<f64>> {
        let [newest, before] = [Which::Newest, Which::Before].map(|which| self.iteration.source(which));
        let kept = self.vectors[..=last].iter().map(|vector| (Observed::Product(vector), newest));
        let square = (Observed::Product(&self.vectors[last]), before);
        self.observe(&kept.chain([square]).collect::<Vec<_>>())
    }

    /// Returns an upper bound of the newest vector's l1 norm.
    fn norm(&self) -> Result<f64> {
        let sums = self.observe(&[(Observed::Norm, self.iteration.source(Which::Newest))])?;
        // Blocks of 256 magnitudes are summed as trees, then the block sums one by one.
        Ok(sums[0] * (1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-8))
    }

    fn observe(&self, what: &[(Observed<'_, T>, usize)]) -> Result<Vec<f64>> {
        self.each_part(|p| self.iteration.observing(p, 0, what, &self.partials[p]))?;
        self.iteration.sums(&self.partials, what.len())
    }

    /// Launches kernels of every part once.
    fn each_part(&self, launches: impl Fn(usize) -> Result<Vec<Launch>>) -> Result<()> {
        self.iteration.parts.launch_each(self.iteration.lanes, 0, launches)
    }

    /// Multiplies the newest vector by a power of two.
    fn scale(&self, factor: f64) -> Result<()> {
        self.give(&[factor])?;
        let source = self.iteration.source(Which::Newest);
        self.each_part(|p| {
            let part = &self.iteration.parts.parts[p];
            let (lane, rows) = (&self.iteration.lanes[part.lane], part.rows.len());
            let params = scale::Params { step: 0, first: 0, rows: rows as u32, own: part.own as u32 };
            let args = scale::Args { factors: self.factors[part.lane].arg(), y: part.x[source].arg() };
            Ok(vec![lane.bind(&SCALE, T::PRECISION, rows, params, args)?])
        })
    }

    /// Replaces the newest vector by a linear combination of the basis vectors.
    pub(super) fn replace_newest(&self, multiples: &[(usize, f64)]) -> Result<()> {
        let source = self.iteration.source(Which::Newest);
        for part in &self.iteration.parts.parts {
            self.iteration.lanes[part.lane].clear(&part.x[source])?;
        }
        self.combine(multiples, |p| {
            let part = &self.iteration.parts.parts[p];
            (&part.x[source], part.own)
        })?;
        self.exchange()
    }

    /// Returns a linear combination of the basis vectors on the host.
    pub(crate) fn sum<'b>(
        &self,
        multiples: &[(usize, f64)],
        acc: &'b Accumulators<T>,
        host: &'b mut Vec<f64>,
    ) -> Result<&'b [f64]> {
        self.clear(&acc.parts)?;
        self.combine(multiples, |p| (&acc.parts[p], 0))?;
        self.iteration.download(acc, host)
    }

    /// Exchanges the newest vector's halo between the parts.
    fn exchange(&self) -> Result<()> {
        self.iteration.parts.exchange(self.iteration.lanes, self.iteration.source(Which::Newest))
    }

    fn give(&self, factors: &[f64]) -> Result<()> {
        let factors: Vec<T> = factors.iter().map(|&f| T::of(f)).collect();
        let mut lanes = self.iteration.lanes.iter().zip(&self.factors);
        lanes.try_for_each(|(lane, buffer)| lane.upload(&factors, buffer, 0))
    }

    /// Adds multiples of basis vectors to the vectors `onto`.
    fn combine<'b>(
        &'b self,
        multiples: &[(usize, f64)],
        onto: impl Fn(usize) -> (&'b Buffer<T>, usize),
    ) -> Result<()> {
        let mut multiples = multiples.to_vec();
        // Padding: the first vector times 0.
        multiples.resize(multiples.len().next_multiple_of(FOUR), (0, 0.0));
        self.give(&multiples.iter().map(|(_, factor)| *factor).collect::<Vec<_>>())?;
        self.each_part(|p| {
            let part = &self.iteration.parts.parts[p];
            let (lane, rows, (y, own)) = (&self.iteration.lanes[part.lane], part.rows.len(), onto(p));
            let launch = |first: usize| -> Result<Launch> {
                let params =
                    combine::Params { step: 0, first: first as u32, rows: rows as u32, own: own as u32 };
                let vector = |k: usize| self.vectors[multiples[first + k].0][p].arg();
                let args = combine::Args {
                    factors: self.factors[part.lane].arg(),
                    a: vector(0),
                    b: vector(1),
                    c: vector(2),
                    d: vector(3),
                    y: y.arg(),
                };
                lane.bind(&COMBINE, T::PRECISION, rows, params, args)
            };
            (0..multiples.len()).step_by(FOUR).map(launch).collect()
        })
    }
}
