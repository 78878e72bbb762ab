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

# A column counts as summing to 0 if its sum is at most this fraction of its absolute sum. All such
# sums together contribute at most epsilon / 10 over all times.
_ROUNDING = 1e-12

# Smallest epsilon for the solver if the matrix grows: rounding allows no smaller bound.
_LEAST_EPSILON = 1e-13

# Rounding of a bound itself: a sum of fewer than 64 terms and factors, each rounded once.
_OUTWARD = 1 + 128 * _U


class _Source(NamedTuple):
    """A chain with probabilities exp(-growth t) exp(tA') p, where A' is close to A."""

    chain: Compressed
    growth: float
    apart: float
    """Bound on the largest column sum of |A' - A|."""


def _column_sums(columns: Any, data: Floats, size: Floats) -> tuple[Floats, Floats, Floats]:
    """Sum columns as high + low, with a bound on the error of this sum.

    Entries are split at a multiple of u M, where M is a power of two above four times the column's
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
    """Make the chain of a matrix.

    Columns that do not sum to 0 have a rate to an additional last state.
    """
    matrix = _input.compressed("A", A)
    n, data = matrix.n, matrix.data.astype(np.float64, copy=False)
    if not np.all(np.isfinite(data)):
        raise InvalidInput("A holds numbers that are not finite")
    # Row i of the chain's matrix is column i of A.
    turned = matrix._replace(by_columns=not matrix.by_columns)
    major = np.repeat(np.arange(n), np.diff(matrix.indptr))
    columns, rows = (major, matrix.indices) if matrix.by_columns else (matrix.indices, major)
    on_diagonal = rows == columns
    if np.any(data[~on_diagonal] < 0):
        k = np.flatnonzero((data < 0) & ~on_diagonal)[0]
        raise InvalidInput(
            f"A[{rows[k]}, {columns[k]}] is {data[k]}; off the diagonal of a generator no entry is negative: set it to 0 if it "
            "is a rounding error"
        )
    size = _sums(columns, np.abs(data), n)
    if not np.all(size < 2.0**1000):
        raise InvalidInput(
            f"a column of A sums to {size.max():.3g} in absolute values; at most 1e301 is possible"
        )
    high, low, summing = _column_sums(columns, data, size)
    sums, error = _two_sum(high, low)
    nearly = np.abs(sums) <= _ROUNDING * size
    if latest * np.max(np.abs(sums), where=nearly, initial=0.0) > epsilon / 10:
        nearly[:] = False
    kept = np.where(nearly, 0.0, sums)
    growth = max(float(kept.max()), 0.0)
    if growth * latest > math.log(1e3):
        raise InvalidInput(
            f"the columns of A sum to as much as {growth:.3g}: exp(tA) may grow by exp({growth * latest:.3g}), and no bound "
            "is proved of that; for distributions give A.T, whose columns sum to 0, as in expm_multiply(t * Q.T, p0)"
        )
    missing, lacking = _two_sum(np.full(n, growth), -kept)
    # The diagonal of A' exceeds that of A by growth - missing - (column sum). That is `lacking`
    # plus the part of the sum that is not in `kept`.
    apart = (
        float(np.max(np.abs(lacking) + np.abs(sums - kept) + np.abs(error) + summing)) * _OUTWARD
    )
    if not kept.any():
        return _Source(turned, 0.0, apart)
    import scipy.sparse as sp

    leaving = ~on_diagonal & (data != 0)
    to = np.concatenate([rows[leaving], np.full(n, n)])
    source = np.concatenate([columns[leaving], np.arange(n)])
    rates = sp.csr_array(
        (np.concatenate([data[leaving], missing]), (source, to)), shape=(n + 1, n + 1)
    )
    return _Source(_input.compressed("A", rates), growth, apart)


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

    A is ``Q.T`` for the generator Q of a chain: no entry off its diagonal is negative, and its
    columns sum to 0 or less. Columns may also sum to more, as those of Q itself may, if exp(t times
    the largest sum) is below 1000.

    Parameters
    ----------
    A : sparse matrix or array_like, (n, n)
        The matrix.
    B : array_like or sparse matrix, (n,) or (n, k)
        Vectors, with entries of any sign.
    start, stop, num, endpoint
        Times t, as in ``numpy.linspace``; by default the single time 1.
    traceA
        Not used; accepted for compatibility with SciPy.
    epsilon : float
        Requested bound on the sum of the errors of a column, relative to the sum of the absolute
        values of that column of `B`.
    device, precision, progress
        As in :func:`transient`.
    return_bound : bool
        Return the bounds as well: for each time and column a bound on the sum of the errors of
        all entries, including rounding.

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
            f"times from {start} to {stop}, {num} of them; give at least one, finite and not negative"
        )
    right = np.asarray(
        _input.real("B", B.toarray() if hasattr(B, "toarray") else B), dtype=np.float64
    )
    return_bound = _input.flag("return_bound", return_bound)
    epsilon, place = (
        _input.number("epsilon", epsilon, "a number above 0"),
        _input.place(device, precision),
    )
    source = _source(A, float(times.max()), epsilon)
    n = int(np.shape(A)[0])
    if right.ndim not in (1, 2) or right.shape[0] != n:
        raise InvalidInput(f"B has the shape {right.shape}; A has {n} rows")
    if not np.all(np.isfinite(right)):
        raise InvalidInput("B holds numbers that are not finite")
    grown, own = _growth(source, times)
    most = epsilon / float(grown.max())
    asked_for = max(most - 2 * float(own.max()), most / 2, min(epsilon, _LEAST_EPSILON))
    columns = np.zeros((times.size, n, 1 if right.ndim == 1 else right.shape[1]))
    bounds = np.zeros((times.size, columns.shape[2]))
    with _input.watched(progress) as tell:
        question = _input.question(source.chain.n, times, {}, place, asked_for, tell)
        for k, column in enumerate(right.T if right.ndim == 2 else [right]):
            _column(
                source,
                _input.floats("B", column),
                question,
                (grown, own),
                columns[:, :, k],
                bounds[:, k],
            )
    with np.errstate(over="ignore"):
        met = np.all(bounds <= epsilon * np.abs(right).sum(axis=0))
    if not met:
        warnings.warn(
            f"a bound is {bounds.max():.2g}, more than epsilon allows", BoundWarning, stacklevel=2
        )
    result = columns[:, :, 0] if right.ndim == 1 else columns
    result, bounds = (result[0], bounds[0]) if single else (result, bounds)
    return (result, bounds) if return_bound else result


def _growth(source: _Source, times: Floats) -> tuple[Floats, Floats]:
    """Return exp(growth t) for each time, and the relative error without that of the solver.

    Relative to exp(growth t) times the sum of |B|, the errors are

    * of the exponential of a rounded product: growth t u, and 4 u for `exp`, accurate to 2 u;
    * of the division by the sum of B: u, and of the product with the two factors: 2 u;
    * of the matrix: |exp(tA') - exp(tA)| <= t |A' - A| exp(t (growth + |A' - A|)), as column sums.
    """
    moved = source.apart * times
    return np.exp(source.growth * times), (source.growth * times + 8) * _U + moved * np.exp(moved)


def _column(
    source: _Source,
    column: Floats,
    question: _input.Question,
    factors: tuple[Floats, Floats],
    result: Floats,
    bound: Floats,
) -> None:
    """Write exp(tA) b of a column b for all times, and bounds on the sum of its errors."""
    n = column.size
    # Scaled to order 1, so that no sum overflows. The exponent is exact.
    exponent = int(np.frexp(np.abs(column).max())[1])
    column = np.ldexp(column, -exponent)
    grown, own = factors
    for sign in (1.0, -1.0):
        part = np.maximum(sign * column, 0.0)
        weight = float(part.sum())
        if weight == 0.0:
            continue
        begin = np.zeros(source.chain.n)
        begin[:n] = part / weight
        answer = _kolmo.transient(source.chain, begin, None, question)
        scale = weight * grown
        result += (sign * scale)[:, None] * answer["p"][:, :n]
        # The solver's bound is for a distribution. `begin` sums to 1 up to rounding.
        most = max(1.0, float(begin.sum()) * (1 + 2 * n * _U))
        bound += scale * most * (answer["bound"] + own) * (1 + own) + 8 * n * _TINY * grown
    # Rounding when the second part is added to the first.
    bound += _U * np.abs(result).sum(axis=1) * (1 + 2 * n * _U)
    with np.errstate(over="ignore"):
        result[:] = np.ldexp(result, exponent)
        bound[:] = np.ldexp(bound * _OUTWARD, exponent) + (2 * n * _TINY if column.any() else 0.0)
    if not np.all(np.isfinite(result)):
        raise InvalidInput("exp(tA) B has numbers above 1.79e308; divide B by a power of two")
