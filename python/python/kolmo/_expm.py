"""SciPy's expm_multiply for matrices of Markov chains."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Compressed, Floats, Progress
from .errors import BoundWarning, InvalidInput

# Unit roundoff and smallest positive number. The error of a product is at most u times its value,
# or half of the smallest number.
_U, _TINY = 2.0**-53, 2.0**-1074

# A line (row or column of A) counts as summing to 0 if its sum is at most this fraction of its
# absolute sum. All such sums together contribute at most epsilon / 10 over all times.
_ROUNDING = 1e-12

# Smallest epsilon for the solver if the matrix grows: rounding allows no smaller bound.
_LEAST_EPSILON = 1e-13

# Rounding of a bound itself: a sum of fewer than 64 terms and factors, each rounded once.
_OUTWARD = 1 + 128 * _U


class _Source(NamedTuple):
    """A chain with generator Q', where A' = Q' + growth I, or its transpose, is close to A."""

    chain: Compressed
    forward: bool
    """True if A' has the transpose of Q'."""
    growth: float
    apart: float
    """Bound on the norm of A' - A: the largest column sum if `forward`, else row sum."""


class Exponential(np.ndarray[Any, np.dtype[np.float64]]):
    """An array with the bounds of its errors."""

    bound: Floats | None
    """Bound on the error of each column, for each time; see :func:`expm_multiply`."""

    def __array_finalize__(self, other: object) -> None:
        # Bounds are those of whole results; slices and sums have none.
        self.bound = None


def _column_sums(columns: Any, data: Floats, size: Floats) -> tuple[Floats, Floats, Floats]:
    """Sum lines as high + low, with a bound on the error of this sum.

    Entries are split at a multiple of u M, where M is a power of two above four times the line's
    `size`. The parts above add up without rounding. Those below are at most u M each (Rump, Ogita,
    Oishi: Accurate floating-point summation, 2008).
    """
    n = size.size
    cut = np.ldexp(4.0, np.frexp(size)[1])[columns]
    above = (cut + data) - cut
    below = data - above
    high, low, left = (_sums(columns, part, n) for part in (above, below, np.abs(below)))
    return high, low, np.bincount(columns, minlength=n) * _U * left * _OUTWARD


def _sums(columns: Any, data: Floats, n: int) -> Floats:
    return np.asarray(np.bincount(columns, data, minlength=n), dtype=np.float64)


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _source(A: Any, latest: float, epsilon: float) -> _Source:
    """Make the chain of a matrix: of its columns if these sum to 0 or less, else of its rows."""
    matrix = _input.compressed("A", A)
    n, data = matrix.n, matrix.data.astype(np.float64, copy=False)
    if not np.all(np.isfinite(data)):
        raise InvalidInput("A holds numbers that are not finite")
    major = np.repeat(np.arange(n), np.diff(matrix.indptr))
    columns, rows = (major, matrix.indices) if matrix.by_columns else (matrix.indices, major)
    negative = np.flatnonzero((data < 0) & (rows != columns))
    if negative.size:
        k = negative[0]
        raise InvalidInput(
            f"A[{rows[k]}, {columns[k]}] is {data[k]}; off the diagonal of a generator no entry is negative: set it to 0 if it "
            "is a rounding error"
        )
    turned = matrix._replace(by_columns=not matrix.by_columns)
    found = _of_lines(turned, True, (columns, rows, data), latest, epsilon)
    if found.growth > 0:
        other = _of_lines(matrix, False, (rows, columns, data), latest, epsilon)
        found = other if other.growth < found.growth else found
    if found.growth * latest > math.log(1e3):
        raise InvalidInput(
            f"rows and columns of A sum to {found.growth:.3g} and more: exp(tA) may grow by exp({found.growth * latest:.3g}), "
            "and no bound is proved of that; expected a generator, whose rows sum to 0, or its transpose"
        )
    return found


def _of_lines(
    chain: Compressed, forward: bool, entries: tuple[Any, Any, Floats], latest: float, epsilon: float
) -> _Source:
    """Make a chain of the lines of a matrix, its columns or its rows.

    Lines that do not sum to 0 have a rate to an additional last state. `entries` has the line and
    the place of each entry.
    """
    (line, place, data), n = entries, chain.n
    size = _sums(line, np.abs(data), n)
    if not np.all(size < 2.0**1000):
        raise InvalidInput(
            f"a row or column of A has the absolute sum {size.max():.3g}; expected at most 1e301"
        )
    high, low, summing = _column_sums(line, data, size)
    sums, error = _two_sum(high, low)
    nearly = np.abs(sums) <= _ROUNDING * size
    if latest * np.max(np.abs(sums), where=nearly, initial=0.0) > epsilon / 10:
        nearly[:] = False
    kept = np.where(nearly, 0.0, sums)
    growth = max(float(kept.max()), 0.0)
    missing, lacking = _two_sum(np.full(n, growth), -kept)
    # The diagonal of A' exceeds that of A by growth - missing - (sum of the line). That is
    # `lacking` plus the part of the sum that is not in `kept`.
    apart = (
        float(np.max(np.abs(lacking) + np.abs(sums - kept) + np.abs(error) + summing)) * _OUTWARD
    )
    if kept.any():
        import scipy.sparse as sp

        leaving = (line != place) & (data != 0)
        to = np.concatenate([place[leaving], np.full(n, n)])
        source = np.concatenate([line[leaving], np.arange(n)])
        numbers = np.concatenate([data[leaving], missing])
        chain = _input.compressed("A", sp.csr_array((numbers, (source, to)), shape=(n + 1, n + 1)))
    return _Source(chain, forward, growth, apart)


def expm_multiply(
    A: Any,
    B: ArrayLike,
    start: float | None = None,
    stop: float | None = None,
    num: int | None = None,
    endpoint: bool | None = None,
    traceA: object = None,
    *,
    epsilon: float = 1e-9,
    device: str = "auto",
    precision: Literal["f64", "f32"] | None = None,
    progress: Progress = None,
    return_bound: bool = False,
) -> Any:
    """Compute exp(tA) B as ``scipy.sparse.linalg.expm_multiply`` does, with a proved bound.

    A is the generator Q of a chain, whose rows sum to 0 or less, or ``Q.T``, whose columns do. No
    entry off its diagonal is negative. With ``Q.T``, columns of B move as distributions do. With
    Q, columns of the result are the expectations of B at time t from every state.

    Rows and columns may both sum to more than 0, if exp(t times the largest sum) is below 1000.
    Up to 8 columns share the products of a step. Long times end early when the vectors no longer
    change, and take fewer products if the chain is nearly reversible, by Chebyshev polynomials.

    Parameters
    ----------
    A : sparse matrix or array_like, (n, n)
        The matrix.
    B : array_like or sparse matrix, (n,) or (n, k)
        Vectors, with entries of any sign.
    start, stop, num, endpoint
        Times t >= 0, as in ``numpy.linspace`` with 50 times by default; or the single time 1.
        The exponential of a negative time may grow without a limit.
    traceA
        Not used; accepted for compatibility with SciPy.
    epsilon : float
        Requested bound on the error of each column of the result, relative to the norm of that
        column of `B`. For ``Q.T`` it is the l1 norm, the sum of absolute values. For Q it is the
        maximum norm, so the bound holds for each entry.
    device, precision, progress
        As in :func:`transient`, without the precision q64. Devices share the columns.
    return_bound : bool
        Return the bounds as well: for each time and column a bound on the norm of its error,
        including rounding. They are also the attribute `bound` of the result.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        exp(A) B in the shape of `B`, or exp(tA) B for each time t along the first axis.

    Examples
    --------
    >>> import numpy as np, kolmo
    >>> Q = np.array([[-0.02, 0.02], [0.25, -0.25]])
    >>> kolmo.expm_multiply(8 * Q.T, np.array([1.0, 0.0])).round(4)
    array([0.9345, 0.0655])
    """
    single = start is None and stop is None and num is None and endpoint is None
    if not single and (start is None or stop is None):
        raise InvalidInput("give start and stop, or neither")
    times: Floats = np.ones(1)
    if start is not None and stop is not None:
        start, stop = _input.number("start", start), _input.number("stop", stop)
        end = endpoint is None or _input.flag("endpoint", endpoint)
        times = np.linspace(
            start, stop, num=50 if num is None else _input.count("num", num), endpoint=end
        )
    if times.size == 0 or not np.all(times >= 0) or not np.all(np.isfinite(times)):
        raise InvalidInput(
            f"times from {start} to {stop}, {num} of them; give at least one, finite and not negative: "
            "exp(-tA) of a generator may grow without a limit"
        )
    right = np.asarray(
        _input.real("B", B.toarray() if hasattr(B, "toarray") else B), dtype=np.float64
    )
    return_bound = _input.flag("return_bound", return_bound)
    epsilon, place = (
        _input.number("epsilon", epsilon, "a number above 0"),
        _input.place(device, precision),
    )
    if not epsilon > 0:
        raise _input.invalid("epsilon", epsilon, "a number above 0")
    source = _source(A, float(times.max()), epsilon)
    n = int(np.shape(A)[0])
    if right.ndim not in (1, 2) or right.shape[0] != n:
        raise InvalidInput(f"B has the shape {right.shape}; A has {n} rows")
    if not np.all(np.isfinite(right)):
        raise InvalidInput("B holds numbers that are not finite")
    block = right[:, None] if right.ndim == 1 else right
    if block.shape[1] == 0:
        values, bounds = np.zeros((times.size, n, 0)), np.zeros((times.size, 0))
    else:
        values, bounds = _acted(source, block, times, (place, epsilon, progress))
    with np.errstate(over="ignore"):
        met = np.all(bounds <= epsilon * _norm(block, source.forward))
    if not met:
        warnings.warn(
            f"a bound is {bounds.max():.2g}, more than epsilon allows", BoundWarning, stacklevel=2
        )
    values = values[:, :, 0] if right.ndim == 1 else values
    values, bounds = (values[0], bounds[0]) if single else (values, bounds)
    result = values.view(Exponential)
    result.bound = bounds
    return (result, bounds) if return_bound else result


def _norm(block: Floats, forward: bool) -> Any:
    """Return the l1 norm or the maximum norm of each column."""
    return np.abs(block).sum(axis=0) if forward else np.abs(block).max(axis=0, initial=0.0)


def _acted(
    source: _Source, block: Floats, times: Floats, how: tuple[_input.Place, float, Progress]
) -> tuple[Floats, Floats]:
    """Return exp(tA) B of a block B for all times, and bounds on the norms of its errors."""
    place, epsilon, progress = how
    n, k = block.shape
    grown, own = _growth(source, times)
    most = epsilon / float(grown.max())
    asked_for = max(most - 2 * float(own.max()), most / 2, min(epsilon, _LEAST_EPSILON))
    # Scaled to order 1, so that no sum overflows. Exponents are exact.
    exponent = np.frexp(np.abs(block).max(axis=0))[1]
    # The additional state starts with zeros, and no rate leads out of it.
    begin = np.zeros((source.chain.n, k))
    begin[:n] = np.ldexp(block, -exponent)
    norm = _norm(begin, source.forward)
    with _input.watched(progress) as tell:
        question = _input.question(source.chain.n, times, {}, place, asked_for, tell)
        found, errors = _kolmo.exponential(source.chain, source.forward, begin, question)
    values = found.reshape(times.size, -1, k)[:, :n] * grown[:, None, None]
    bounds = errors.reshape(times.size, k) + own[:, None] * norm * (1 + 2 * n * _U)
    bounds = grown[:, None] * bounds * (1 + own[:, None]) * _OUTWARD
    with np.errstate(over="ignore"):
        values = np.ldexp(values, exponent)
        bounds = np.ldexp(bounds, exponent) + np.where(norm > 0, 2 * n * _TINY, 0.0)
    if not np.all(np.isfinite(values)):
        raise InvalidInput("exp(tA) B has numbers above 1.79e308; divide B by a power of two")
    return values, bounds


def _growth(source: _Source, times: Floats) -> tuple[Floats, Floats]:
    """Return exp(growth t) for each time, and the relative error without that of the solver.

    Relative to exp(growth t) times the norm of B, the errors are

    * of the exponential of a rounded product: growth t u, and 4 u for `exp`, accurate to 2 u;
    * of the product with that factor: u;
    * of the matrix: |exp(tA') - exp(tA)| <= t |A' - A| exp(t (growth + |A' - A|)) as norms.
    """
    moved = source.apart * times
    return np.exp(source.growth * times), (source.growth * times + 8) * _U + moved * np.exp(moved)
