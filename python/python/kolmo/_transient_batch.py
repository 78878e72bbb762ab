"""Transient probabilities of many chains that differ in their rates."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._input import Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class TransientBatch(Result):
    """Probabilities of B chains at T times, with error bounds.

    Attributes
    ----------
    times : ndarray, (T,)
        Times, in the order of the argument.
    p : ndarray, (B, T, n)
        Probabilities; NaN for a chain with an error.
    bound : ndarray, (B, T)
        Proved bound on the sum of the errors of all probabilities; NaN for a chain with an error.
    met : ndarray of bool, (B,)
        True for chains whose bounds are all at most epsilon.
    rewards : dict of str to ndarray, (B, T)
        Expected rate of each reward.
    accumulated : dict of str to ndarray, (B, T)
        Expected sum of each reward up to each time.
    errors : dict of int to str
        Reason for each chain that was not solved, by its row in `data`.
    device : str
        Devices of the solver.
    alpha : ndarray, (B,)
        Uniformization rates.
    terms : ndarray, (B,)
        Matrix–vector products; 0 for a chain with an error.
    seconds : float
        Seconds of the solver.
    gradient : dict of str to ndarray, (B, T, n)
        Derivatives of `p` by each parameter; NaN for a chain with an error.
    gradient_bound : dict of str to ndarray, (B, T)
        Proved bound on the sum of the errors of all derivatives; NaN for a chain with an error.
    gradient_rewards : dict of str to dict of str to ndarray, (B, T)
        Derivatives of `rewards` by each parameter, for each reward.
    gradient_accumulated : dict of str to dict of str to ndarray, (B, T)
        Derivatives of `accumulated` by each parameter, for each reward.
    """

    times: Floats
    p: Floats
    bound: Floats
    met: NDArray[np.bool_]
    rewards: dict[str, Floats]
    accumulated: dict[str, Floats]
    errors: dict[int, str]
    device: str
    alpha: Floats
    terms: NDArray[np.int64]
    seconds: float = field(compare=False)
    gradient: dict[str, Floats] = field(default_factory=dict)
    gradient_bound: dict[str, Floats] = field(default_factory=dict)
    gradient_rewards: dict[str, dict[str, Floats]] = field(default_factory=dict)
    gradient_accumulated: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def __repr__(self) -> str:
        chains, times, states = self.p.shape
        size = f"{counted(chains, 'chain')}, {counted(times, 'time')}, {counted(states, 'state')}"
        return f"TransientBatch({size}, {counted(len(self.errors), 'error')}, device {self.device!r})"


def transient_batch(
    pattern: Any,
    data: ArrayLike,
    p0: ArrayLike | None = None,
    times: ArrayLike | None = None,
    *,
    device: str = "cpu",
    epsilon: float = 1e-9,
    rewards: Mapping[str, ArrayLike] | None = None,
    gradient: Mapping[str, ArrayLike] | None = None,
    progress: Progress = None,
) -> TransientBatch:
    """Compute p0 exp(Q t) for many matrices Q with one sparsity pattern, such as a parameter study.

    Each row of the result has the bits of :func:`transient` for that matrix on the same device. On
    one CPU, chains of more than 1024 states take their steps together, eight at a time, which takes
    less time.

    Parameters
    ----------
    pattern : scipy.sparse matrix in csr or csc, (n, n)
        Rows and columns of the entries; its values are ignored.
    data : array_like, (B, nnz)
        Values of each matrix, in the order of ``pattern.data``.
    p0 : int or array_like of n numbers, optional
        Initial state or distribution of all chains; by default state 0.
    times : float or array_like
        Times from 0 to ``inf`` (steady state).
    device : str
        As in :func:`transient`.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities.
    rewards : mapping of str to array_like of n numbers, optional
        Reward rate of each state, by the name of the reward.
    gradient : mapping of str to array_like, (nnz,) or (B, nnz), optional
        Derivative of `data` by each parameter, for all chains or for each one; requests the
        derivatives of the probabilities. Chains are then solved in f64, for finite times. `met`
        also compares the bounds of derivatives with `epsilon`.
    progress : callable or bool, optional
        Called about ten times a second with the chains done and their number. An exception stops
        the work. True shows a progress bar.

    Returns
    -------
    TransientBatch

    Raises
    ------
    InvalidInput, DeviceError
        For arguments that concern all chains, and if no chain is solved. Invalid rates of one chain
        are in `TransientBatch.errors`.

    Examples
    --------
    A machine with three failure rates, repaired in 4 hours on average. The probability that it is
    down after 8 hours:

    >>> import kolmo
    >>> from scipy.sparse import csr_array
    >>> pattern = csr_array([[0, 1], [1, 0]])
    >>> r = kolmo.transient_batch(pattern, [[0.02, 0.25], [0.04, 0.25], [0.08, 0.25]], times=8)
    >>> r.p[:, 0, 1].round(4).tolist()
    [0.0655, 0.1244, 0.2251]

    Their derivatives by the failure rate:

    >>> data = [[0.02, 0.25], [0.04, 0.25], [0.08, 0.25]]
    >>> r = kolmo.transient_batch(pattern, data, times=8, gradient={"failure": [1, 0]})
    >>> r.gradient["failure"][:, 0, 1].round(4).tolist()
    [3.1022, 2.789, 2.2703]
    """
    if times is None:
        raise InvalidInput("times is missing: the order of arguments is transient_batch(pattern, data, p0, times)")
    if getattr(pattern, "format", None) not in ("csr", "csc") or not pattern.has_canonical_format:
        raise InvalidInput("pattern is no csr or csc matrix with sorted indices; give pattern.tocsr() after sum_duplicates()")
    values = _input.floats("data", data)
    if values.ndim != 2 or values.shape[1] != pattern.nnz or not values.size:
        raise InvalidInput(f"data has the shape {values.shape}; give a row of {pattern.nnz} values for each matrix, at least one value")
    matrix = _input.compressed("pattern", pattern)._replace(data=values.reshape(-1))
    begin = _input.begin(p0, matrix.n, "transient_batch(pattern, data, p0, times)")
    place = _input.place(device, None)
    with _input.watched(progress) as tell:
        asked = _input.question(matrix.n, times, {} if rewards is None else rewards, place, epsilon, tell)
        if gradient is None:
            answer = _kolmo.transient_batch(matrix, begin, asked)
        else:
            answer = _differentiated(matrix, values, begin, asked, gradient)
    return _made(answer, np.asarray(asked.times), [name for name, _ in asked.rewards])


def _differentiated(
    matrix: _input.Compressed, values: Floats, begin: Any, asked: _input.Question, gradient: Any
) -> dict[str, Any]:
    """Solve the chains, with derivatives; invalid rates of a chain are its error."""
    if not isinstance(gradient, Mapping) or not all(isinstance(name, str) for name in gradient):
        raise _input.invalid("gradient", gradient, "a mapping of names to derivatives of data")
    by = {}
    for name, given in gradient.items():
        change = _input.floats(f"gradient[{name!r}]", given)
        if change.shape not in (values.shape, values.shape[1:]):
            raise InvalidInput(
                f"gradient[{name!r}] has the shape {change.shape}; give {values.shape[1]} derivatives for all matrices, or for each "
                f"of the {len(values)} matrices"
            )
        by[name] = np.ascontiguousarray(np.broadcast_to(change, values.shape))
    asked = asked._replace(place=asked.place._replace(precision="f64"))
    shape = len(values), len(asked.times), matrix.n
    answer: dict[str, Any] = {
        "chains": [], "errors": {}, "p": np.zeros(shape), "device": "", "seconds": 0.0,
        "gradient": {name: np.full(shape, np.nan) for name in by},
        "gradient_bound": {name: np.full(shape[:2], np.nan) for name in by},
    }
    changes: list[_input.Derivative] = [(name, matrix._replace(data=change.reshape(-1)), None) for name, change in by.items()]
    answer["chains"], answer["errors"] = _kolmo.gradient(matrix, begin, None, asked, changes, True)
    for k, chain in enumerate(answer["chains"]):
        if chain is not None:
            answer["p"][k], answer["device"], answer["seconds"] = chain.pop("p"), chain["device"], chain["seconds"]
            for kind in ("gradient", "gradient_bound"):
                for name, found in chain.pop(kind).items():
                    answer[kind][name][k] = found
    return answer


def _made(answer: dict[str, Any], times: Floats, rewards: list[str]) -> TransientBatch:
    chains, none = answer["chains"], np.full(times.size, np.nan)

    def rows(of: Any) -> Floats:
        each = [none if chain is None else of(chain) for chain in chains]
        return np.array(each, dtype=np.float64).reshape(len(chains), times.size)

    def by_parameter(kind: str) -> dict[str, dict[str, Floats]]:
        return {
            parameter: {name: rows(lambda chain, p=parameter, name=name: chain[kind][p][name]) for name in rewards}
            for parameter in answer.get("gradient", {})
        }

    answer["p"][list(answer["errors"])] = np.nan
    for k, chain in enumerate(chains):
        for contradiction in [] if chain is None else chain["contradictions"]:
            warnings.warn(f"chain {k}: {contradiction}", BoundWarning, stacklevel=3)
    result = TransientBatch(
        times=times,
        p=answer["p"],
        bound=rows(lambda chain: chain["bound"]),
        met=np.array([chain is not None and chain["met"] for chain in chains], dtype=np.bool_),
        rewards={name: rows(lambda chain, name=name: chain["rewards"][name]) for name in rewards},
        accumulated={name: rows(lambda chain, name=name: chain["accumulated"][name]) for name in rewards},
        errors=answer["errors"],
        device=answer["device"],
        alpha=np.array([np.nan if chain is None else chain["alpha"] for chain in chains], dtype=np.float64),
        terms=np.array([0 if chain is None else chain["terms"] for chain in chains], dtype=np.int64),
        seconds=answer["seconds"],
        gradient=answer.get("gradient", {}),
        gradient_bound=answer.get("gradient_bound", {}),
        gradient_rewards=by_parameter("gradient_rewards"),
        gradient_accumulated=by_parameter("gradient_accumulated"),
    )
    missed = np.flatnonzero(~result.met & ~np.isnan(result.alpha))
    if missed.size:
        told = f"the bounds of {counted(missed.size, 'chain')} exceed epsilon, first of chain {missed[0]}; see bound and gradient_bound of the result"
        warnings.warn(told, BoundWarning, stacklevel=3)
    return result
