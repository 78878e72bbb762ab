"""Components of linear systems by random walks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._input import Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class Walk(Result):
    """Components of a solution, with intervals.

    Attributes
    ----------
    components : ndarray of int
        Indices of the components.
    estimate : ndarray
        Estimates of the components: a row for each of several right-hand sides.
    half_width : ndarray
        Half-width of each interval: ``statistical + truncation + rounding``.
    statistical : ndarray
        Half-width of Student's interval over the replicates.
    truncation : ndarray
        Bound on the terms that are left out where walks end.
    rounding : ndarray
        Bound on all rounding errors.
    functional : ndarray
        Estimates of the functionals: a row for each of several right-hand sides.
    functional_half_width : ndarray
        Half-width of each functional's interval.
    epsilon : float
        Requested half-width.
    met : bool
        True if every half-width is at most epsilon.
    device : str
        Devices of the walks.
    seconds : float
        Seconds of the solver.
    """

    components: NDArray[np.int64]
    estimate: Floats
    half_width: Floats
    statistical: Floats
    truncation: Floats
    rounding: Floats
    functional: Floats
    functional_half_width: Floats
    epsilon: float
    met: bool
    device: str
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        largest = max(self.half_width.max(initial=0.0), self.functional_half_width.max(initial=0.0))
        asked = f"{counted(len(self.components), 'component')}, {counted(self.functional.shape[-1], 'functional')}"
        met = "met" if self.met else "not met"
        return f"Walk({asked}, half-width up to {largest:.2g}: {met}, device {self.device!r})"


def walk(
    A: Any,
    b: ArrayLike,
    components: ArrayLike = (),
    *,
    functional: ArrayLike | None = None,
    epsilon: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    splitting: str = "auto",
    time_limit: float | None = None,
    device: str = "auto",
    precision: Literal["f64", "f32"] | None = None,
    progress: Progress = None,
) -> Walk:
    """Estimate single components of x in A x = b, by quasi-random walks.

    Parameters
    ----------
    A : sparse matrix or array_like, (n, n)
        The matrix A, or L with ``splitting='given'``. It is copied once.
    b : array_like, (n,) or (n, k)
        Right-hand sides.
    components : int or array_like of int
        Indices of components of x, from 0.
    functional : array_like, (n,) or (n, k), optional
        Vectors h, for which <h, x> is estimated, each with its own interval.
    epsilon : float, optional
        Requested half-width; by default a thousandth of the largest value that x may have.
    confidence : float
        Probability that an interval holds its component.
    seed : int
        Seed of all random numbers.
    splitting : str
        Splitting of A x = b into x = L x + f: ``auto``, ``jacobi``, ``scaled-jacobi``,
        ``given``.
    time_limit : float, optional
        Seconds after which walks end with the intervals reached by then.
    device, precision, progress
        As in :func:`transient`.

    Returns
    -------
    Walk

    Raises
    ------
    Divergent
        If walks would diverge, or have an unbounded variance.

    Examples
    --------
    >>> import scipy.sparse as sp, kolmo
    >>> n = 1000
    >>> A = sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    >>> w = kolmo.walk(A, [2.0] * n, components=[500], epsilon=1e-4)
    >>> bool(abs(w.estimate[0] - 1) <= w.half_width[0])
    True
    """
    matrix = _input.compressed("A", A)
    right = _input.real("b", b)
    if right.ndim not in (1, 2) or right.shape[0] != matrix.n:
        raise InvalidInput(f"b has the shape {right.shape}; A has {matrix.n} rows")
    each = [_input.floats("b", column) for column in (right.T if right.ndim == 2 else [right])]
    chosen = _input.whole("components", components, matrix.n).ravel()
    vectors = np.zeros((matrix.n, 0)) if functional is None else _input.real("functional", functional)
    if vectors.ndim not in (1, 2) or vectors.shape[0] != matrix.n:
        raise InvalidInput(f"functional has the shape {vectors.shape}; A has {matrix.n} rows")
    h = [_input.floats("functional", column) for column in (vectors.T if vectors.ndim == 2 else [vectors])]
    if not isinstance(splitting, str):
        raise _input.invalid("splitting", splitting, "a text such as 'auto', 'jacobi' or 'given'")
    with _input.watched(progress) as tell:
        asked = _input.Wish(
            each,
            chosen.tolist(),
            h,
            None if epsilon is None else _input.number("epsilon", epsilon, "a number above 0"),
            _input.number("confidence", confidence, "a probability"),
            _input.count("seed", seed),
            splitting,
            None if time_limit is None else _input.number("time_limit", time_limit, "a number of seconds"),
            tell,
        )
        answer = _kolmo.walk(matrix, asked, _input.place(device, precision))
    for told in answer.pop("warnings"):
        warnings.warn(told, UserWarning, stacklevel=2)
    several = (right.shape[1],) if right.ndim == 2 else ()
    of_components = {fact: values.reshape(*several, chosen.size) for fact, values in answer.pop("components").items()}
    of_functionals = {fact: values.reshape(*several, len(h)) for fact, values in answer.pop("functionals").items()}
    result = Walk(
        components=chosen,
        **of_components,
        functional=of_functionals["estimate"],
        functional_half_width=of_functionals["half_width"],
        **answer,
    )
    if not result.met:
        largest = max(result.half_width.max(initial=0.0), result.functional_half_width.max(initial=0.0))
        told = f"a half-width is {largest:.2g}, more than epsilon {result.epsilon:.2g}"
        warnings.warn(told, BoundWarning, stacklevel=2)
    return result
