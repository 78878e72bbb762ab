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
        NaN for a chain with an error.
    bound : ndarray, (...)
        Proved bound on the sum of the errors of each row of P(t); NaN for a chain with an error.
    met : bool
        True if every chain has a bound of at most epsilon.
    errors : dict of int to str
        Reason for each chain that was not computed, by its place in the flattened leading axes.
    seconds : float
        Seconds of the solver. On a CUDA device, the work that still runs after the call is not
        included.
    """

    p: Any
    bound: Floats
    met: bool
    errors: dict[int, str]
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        size = f"{counted(self.bound.size, 'chain')}, {counted(self.p.shape[-1], 'state')}"
        met = "met" if self.met else "not met"
        failed = f", {counted(len(self.errors), 'error')}" if self.errors else ""
        return f"TransitionMatrices({size}, bound up to {_largest(self.bound):.2g}: {met}{failed})"


def transition_matrices(
    Q: Any, t: ArrayLike, *, epsilon: float = 1e-9, device: str = "cpu", progress: Progress = None
) -> TransitionMatrices:
    """Compute P(t) = exp(Q t) of many small chains, on all cores of the CPU or on a GPU.

    Parameters
    ----------
    Q : array_like, (..., n, n); sparse matrix, list of them, or pair (pattern, data)
        Generators. Entries off the diagonal are rates; the diagonal is minus their sum, or 0. An
        array of CuPy, Torch or JAX on a CUDA device stays there, with at most 1024 states. A
        pair has a sparse matrix in csr or csc, whose values are ignored, and the values of each
        chain, (B, nnz), in the order of ``pattern.data``. Sparse matrices become dense ones.
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
        For arguments that concern all chains, if no chain is computed, and for any invalid chain of
        an array on a CUDA device. Otherwise, invalid rates and times of a chain are in
        `TransitionMatrices.errors`.

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
    limit = _input.number("epsilon", epsilon, "a number above 0")
    if not limit > 0:
        raise _input.invalid("epsilon", epsilon, "a number above 0")
    Q = _dense(Q)
    place = _input.place(device, "f64")
    there = _device.common_place({"Q": Q}, Place("auto", "f64") if device == "cpu" else place)
    times = _input.floats("t", t)
    p: Any
    errors: dict[int, str] = {}
    if there is None:
        q = _input.real("Q", Q)
        shape = _shape(q.shape, times)
        n = q.shape[-1]
        q = np.ascontiguousarray(np.broadcast_to(q, (*shape, n, n)), dtype=np.float64).reshape(-1)
        with _input.watched(progress) as tell:
            p, bound, seconds = _computed(n, q, _spread(times, shape), place, tell, errors)
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
    met = not errors and _largest(bound) <= limit
    result = TransitionMatrices(p, bound, met, errors, seconds)
    if _largest(bound) > limit:
        told = f"the bound is {_largest(bound):.2g}, more than epsilon; see TransitionMatrices.bound"
        warnings.warn(told, BoundWarning, stacklevel=2)
    return result


def _largest(bound: Floats) -> float:
    """Return the largest bound of all chains without an error."""
    return float(np.fmax.reduce(bound, axis=None, initial=0.0))


def _dense(given: Any) -> Any:
    """Convert sparse matrices, or a pair of a pattern and data, to dense generators."""
    sparse = [hasattr(matrix, "tocsr") for matrix in given] if isinstance(given, (list, tuple)) else []
    if hasattr(given, "tocsr"):
        return given.toarray()
    if sparse == [True, False]:
        pattern, values = given[0], _input.floats("data", given[1])
        if getattr(pattern, "format", None) not in ("csr", "csc"):
            raise InvalidInput("pattern is no csr or csc matrix; give pattern.tocsr()")
        if values.ndim != 2 or values.shape[1] != pattern.nnz:
            raise InvalidInput(f"data has the shape {values.shape}; give a row of {pattern.nnz} values for each chain")
        matrix = _input.compressed("pattern", pattern)
        outer = np.repeat(np.arange(matrix.n), np.diff(matrix.indptr))
        rows, columns = (matrix.indices, outer) if matrix.by_columns else (outer, matrix.indices)
        dense = np.zeros((len(values), matrix.n, matrix.n))
        dense[:, rows, columns] = values
        return dense
    if not any(sparse):
        return given
    if not all(sparse):
        raise InvalidInput(f"Q[{sparse.index(False)}] is not sparse, unlike others; give matrices of one kind")
    shapes = [matrix.shape for matrix in given]
    other = next((k for k, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise InvalidInput(f"Q[0] has the shape {shapes[0]} and Q[{other}] {shapes[other]}; give matrices of one shape")
    return np.stack([matrix.toarray() for matrix in given])


def _computed(
    n: int, q: Floats, times: Floats, place: Place, tell: Any, errors: dict[int, str]
) -> tuple[Floats, Floats, float]:
    """Compute all chains but invalid ones, whose reasons are added to `errors`."""

    def part(first: int, last: int) -> tuple[Floats, Floats, float]:
        try:
            return _kolmo.transition_matrices(n, q[first * n * n : last * n * n], times[first:last], place, tell)
        except InvalidInput as error:
            if last - first == 1:
                errors[first] = str(error).removeprefix("chain 0: ").replace("time 0 is", "its time is", 1)
                return np.full(n * n, np.nan), np.full(1, np.nan), 0.0
        middle = (first + last) // 2
        (p, bounds, seconds), (more_p, more_bounds, more) = part(first, middle), part(middle, last)
        return np.concatenate([p, more_p]), np.concatenate([bounds, more_bounds]), seconds + more

    found = part(0, times.size)
    if errors and len(errors) == times.size:
        raise InvalidInput(f"chain 0: {errors[0]}" if times.size > 1 else errors[0])
    return found


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
