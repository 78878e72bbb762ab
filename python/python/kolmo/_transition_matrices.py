"""Transition matrices P(t) of many small chains."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _device, _input, _kolmo
from ._input import Floats, Place, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class TransitionMatrices(Result):
    """Transition matrices of small chains, with error bounds.

    Attributes
    ----------
    p : ndarray, (..., n, n)
        P(t) of each chain: entry (i, j) is the probability of state j at time t from state i. An
        array of the library of `Q`, on its device, if `Q` is on a CUDA device.
    bound : ndarray, (...)
        Proved bound on the sum of the errors of each row of P(t).
    met : bool
        True if every bound is at most epsilon.
    seconds : float
        Seconds of the solver. On a CUDA device, the work that still runs after the call is not
        included.
    """

    p: Any
    bound: Floats
    met: bool
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        size = f"{counted(self.bound.size, 'chain')}, {counted(self.p.shape[-1], 'state')}"
        met = "met" if self.met else "not met"
        return f"TransitionMatrices({size}, bound up to {self.bound.max(initial=0.0):.2g}: {met})"


def transition_matrices(
    Q: ArrayLike, t: ArrayLike, *, epsilon: float = 1e-9, device: str = "cpu", progress: Progress = None
) -> TransitionMatrices:
    """Compute P(t) = exp(Q t) of many small chains, on all cores of the CPU or on a GPU.

    Parameters
    ----------
    Q : array_like, (..., n, n)
        Generators. Entries off the diagonal are rates; the diagonal is minus their sum, or 0. An
        array of CuPy, Torch or JAX on a CUDA device stays there, with at most 1024 states.
    t : array_like, (...)
        Times, finite and at least 0. Leading axes of `Q` and `t` are broadcast.
    epsilon : float
        Requested bound on the sum of the errors of each row.
    device : str
        Device for arrays of the host: 'cpu', or one such as 'cuda:0' or 'wgpu:0' with double
        precision. Chains of more than 1024 states are computed on the CPU. Digits are those of
        the CPU, but for software adapters.
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
    The bound grows with the largest exit rate α: about 3 αt (min(n, 16) + n/16 + 13) 1e-16 for αt from 1 to 1e11.
    With more than some hundred states, :func:`transient` is faster for few initial states.

    Examples
    --------
    Substitutions between two nucleotides at rates 1 and 2, after the times 0.1 and 10:

    >>> import kolmo
    >>> r = kolmo.transition_matrices([[-1, 1], [2, -2]], [0.1, 10])
    >>> r.p[:, 0].round(4).tolist()
    [[0.9136, 0.0864], [0.6667, 0.3333]]
    >>> bool(r.bound.max() < 1e-12)
    True
    """
    limit = _input.number("epsilon", epsilon)
    place = _input.place(device, "f64")
    there = _device.common_place({"Q": Q}, Place("auto", "f64") if device == "cpu" else place)
    times = _input.floats("t", t)
    p: Any
    if there is None:
        q = _input.real("Q", Q)
        shape = _shape(q.shape, times)
        n = q.shape[-1]
        q = np.ascontiguousarray(np.broadcast_to(q, (*shape, n, n)), dtype=np.float64).reshape(-1)
        with _input.watched(progress) as tell:
            p, bound, seconds = _kolmo.transition_matrices(n, q, _spread(times, shape), place, tell)
        p = p.reshape((*shape, n, n))
    else:
        lane = _kolmo.DeviceLane(Place(there.spec, "f64"), (there.kind, there.number))
        borrowed = _device.borrowed("Q", Q, lane, there)
        shape, n = _shape(tuple(borrowed.shape), times), borrowed.shape[-1]
        if shape != tuple(borrowed.shape[:-2]):
            raise InvalidInput(f"Q has the shape {tuple(borrowed.shape)} on {there.spec} and t {times.shape}; give a chain for each time")
        p, bound, seconds = lane.transition_matrices(n, borrowed, _spread(times, shape), [*shape, n, n])
        take = _device.way_into(Q)
        p = p if take is None else take(p)
    bound = bound.reshape(shape)
    result = TransitionMatrices(p, bound, bool(bound.max(initial=0.0) <= limit), seconds)
    if not result.met:
        told = f"the bound is {bound.max():.2g}, more than epsilon; see TransitionMatrices.bound"
        warnings.warn(told, BoundWarning, stacklevel=2)
    return result


def _shape(shape: tuple[int, ...], times: Floats) -> tuple[int, ...]:
    """Return the leading axes of generators with these times."""
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] == 0:
        raise InvalidInput(f"Q has the shape {shape}; give square matrices in the last two axes")
    try:
        return np.broadcast_shapes(shape[:-2], times.shape)
    except ValueError:
        raise InvalidInput(f"Q has the shape {shape} and t {times.shape}; give equal leading axes") from None


def _spread(times: Floats, shape: tuple[int, ...]) -> Floats:
    return np.ascontiguousarray(np.broadcast_to(times, shape), dtype=np.float64).reshape(-1)
