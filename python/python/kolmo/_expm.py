"""SciPy's expm_multiply for the matrices of chains."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Compressed, Floats, Place, Progress
from .errors import BoundWarning, InvalidInput

# A column that sums to this much of its diagonal entry, or less, sums to 0.
_ROUNDING = 1e-12

# What may be asked of the solver where the matrix grows: less than rounding leaves no bound to meet.
_LEAST_EPSILON = 1e-13


def _sources(A: Any, latest: float) -> tuple[Compressed, float]:
    """The chain whose probabilities are exp(tA) p but for the factor exp(growth·t), and that growth.

    Where columns do not sum to 0, what is missing goes to a state behind the others.
    """
    matrix = _input.compressed("A", A)
    n, data = matrix.n, matrix.data
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
            f"A[{rows[k]}, {columns[k]}] is {data[k]}; off the diagonal of a generator no entry is negative"
        )
    sums = np.bincount(columns, data, minlength=n)
    size = np.bincount(columns, np.abs(data), minlength=n)
    sums[np.abs(sums) <= _ROUNDING * size] = 0.0
    growth = max(float(sums.max()), 0.0)
    if not sums.any():
        return turned, 0.0
    if growth * latest > math.log(1e3):
        raise InvalidInput(
            f"the columns of A sum to as much as {growth:.3g}: exp(tA) may grow by exp({growth * latest:.3g}), and no bound "
            "is proved of that; for distributions give A.T, whose columns sum to 0, as in expm_multiply(t * Q.T, p0)"
        )
    import scipy.sparse as sp

    leaving = ~on_diagonal & (data != 0)
    missing = growth - sums
    to = np.concatenate([rows[leaving], np.full(n, n)])
    source = np.concatenate([columns[leaving], np.arange(n)])
    rates = sp.csr_array((np.concatenate([data[leaving], missing]), (source, to)), shape=(n + 1, n + 1))
    return _input.compressed("A", rates), growth


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
    """The action of exp(tA) on B, as ``scipy.sparse.linalg.expm_multiply``, with a proved bound.

    A is ``Q.T`` for the generator Q of a chain: off its diagonal no entry is negative, and its columns sum to 0 or less.
    Columns may also sum to more, as those of Q itself do, as long as exp(t times the largest sum) is below 1000.

    Parameters
    ----------
    A : sparse matrix or array_like, (n, n)
        The matrix.
    B : array_like, (n,) or (n, k)
        Vectors, with entries of any sign.
    start, stop, num, endpoint
        As in ``numpy.linspace``, the times t; 1 alone if none is given.
    traceA
        Not used: SciPy's version takes it.
    epsilon : float
        Bound to be met on the sum of the errors of a column, relative to the sum of its absolute values.
    device, precision, progress
        As in :func:`transient`.
    return_bound : bool
        Whether to return the bounds, too: of each time and column, the largest sum of errors.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        exp(A) B in the shape of `B`, or that for each time.

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
        times = np.linspace(start, stop, num=50 if num is None else num, endpoint=endpoint is not False)
    if times.size == 0 or not np.all(times >= 0) or not np.all(np.isfinite(times)):
        raise InvalidInput(f"times from {start} to {stop}, {num} of them; give at least one, finite and not negative")
    right = _input.real("B", B)
    chain, growth = _sources(A, float(times.max()))
    n = int(np.shape(A)[0])
    if right.ndim not in (1, 2) or right.shape[0] != n:
        raise InvalidInput(f"B has the shape {right.shape}; A has {n} rows")
    asked_for = max(epsilon * math.exp(-growth * float(times.max())), min(epsilon, _LEAST_EPSILON))
    question = _input.question(chain.n, times, {}, Place(device, precision), asked_for, progress)
    columns = np.zeros((times.size, n, 1 if right.ndim == 1 else right.shape[1]))
    bounds = np.zeros((times.size, columns.shape[2]))
    grown = np.exp(growth * times)
    relative = True
    for k, column in enumerate(right.T if right.ndim == 2 else [right]):
        column = _input.floats("B", column)
        if not np.all(np.isfinite(column)):
            raise InvalidInput("B holds numbers that are not finite")
        whole = float(np.abs(column).sum())
        for sign in (1.0, -1.0):
            part = np.maximum(sign * column, 0.0)
            weight = float(part.sum())
            if weight == 0.0:
                continue
            begin = np.zeros(chain.n)
            begin[:n] = part / weight
            answer = _kolmo.transient(chain, begin, None, question)
            columns[:, :, k] += (sign * weight * grown)[:, None] * answer["p"][:, :n]
            bounds[:, k] += weight * grown * answer["bound"]
        relative &= bool(np.all(bounds[:, k] <= epsilon * whole * (1 + 1e-9)))
    if not relative:
        warnings.warn(f"a bound is {bounds.max():.2g}, more than epsilon allows", BoundWarning, stacklevel=2)
    result = columns[:, :, 0] if right.ndim == 1 else columns
    result, bounds = (result[0], bounds[0]) if single else (result, bounds)
    return (result, bounds) if return_bound else result
