"""Transition matrices P(t) of many small chains."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class TransitionMatrices(Result):
    """Transition matrices of small chains, with error bounds.

    Attributes
    ----------
    p : ndarray, (..., n, n)
        P(t) of each chain: entry (i, j) is the probability of state j at time t from state i.
    bound : ndarray, (...)
        Proved bound on the sum of the errors of each row of P(t).
    met : bool
        True if every bound is at most epsilon.
    seconds : float
        Seconds of the solver.
    """

    p: Floats
    bound: Floats
    met: bool
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        size = f"{counted(self.bound.size, 'chain')}, {counted(self.p.shape[-1], 'state')}"
        met = "met" if self.met else "not met"
        return f"TransitionMatrices({size}, bound up to {self.bound.max(initial=0.0):.2g}: {met})"


def transition_matrices(
    Q: ArrayLike, t: ArrayLike, *, epsilon: float = 1e-9, progress: Progress = None
) -> TransitionMatrices:
    """Compute P(t) = exp(Q t) of many small chains, on all cores of the CPU.

    Parameters
    ----------
    Q : array_like, (..., n, n)
        Generators. Entries off the diagonal are rates; the diagonal is minus their sum, or 0.
    t : array_like, (...)
        Times, finite and at least 0. Leading axes of `Q` and `t` are broadcast.
    epsilon : float
        Requested bound on the sum of the errors of each row.
    progress : callable or bool, optional
        Called about ten times a second with the chains done and their number. An exception stops
        the work. True shows a progress bar.

    Returns
    -------
    TransitionMatrices

    Raises
    ------
    InvalidInput

    Notes
    -----
    The bound grows with the largest exit rate α: about 3 αt (n/8 + 8) 1e-16. With more than some
    hundred states, :func:`transient` is faster for few initial states.

    Examples
    --------
    Substitutions between two nucleotides at rates 1 and 2, after the times 0.1 and 10:

    >>> import kolmo
    >>> r = kolmo.transition_matrices([[-1, 1], [2, -2]], [0.1, 10])
    >>> r.p[:, 0].round(4).tolist()
    [[0.9136, 0.0864], [0.6667, 0.3333]]
    >>> bool(r.bound.max() < 1e-13)
    True
    """
    q, times = _input.real("Q", Q), _input.floats("t", t)
    if q.ndim < 2 or q.shape[-1] != q.shape[-2] or q.shape[-1] == 0:
        raise InvalidInput(f"Q has the shape {q.shape}; give square matrices in the last two axes")
    try:
        shape = np.broadcast_shapes(q.shape[:-2], times.shape)
    except ValueError:
        raise InvalidInput(f"Q has the shape {q.shape} and t {times.shape}; give equal leading axes") from None
    n, limit = q.shape[-1], _input.number("epsilon", epsilon)
    q = np.ascontiguousarray(np.broadcast_to(q, (*shape, n, n)), dtype=np.float64)
    times = np.ascontiguousarray(np.broadcast_to(times, shape), dtype=np.float64)
    with _input.watched(progress) as tell:
        p, bound, seconds = _kolmo.transition_matrices(n, q.reshape(-1), times.reshape(-1), tell)
    bound = bound.reshape(shape)
    result = TransitionMatrices(p.reshape(q.shape), bound, bool(np.all(bound <= limit)), seconds)
    if not result.met:
        told = f"the bound is {bound.max():.2g}, more than epsilon; see TransitionMatrices.bound"
        warnings.warn(told, BoundWarning, stacklevel=2)
    return result
