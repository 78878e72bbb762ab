"""Derivatives by every rate, for the modules kolmo.torch and kolmo.jax."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Compressed, Floats
from .errors import InvalidInput


def _states(name: str, values: ArrayLike, n: int) -> Any:
    """Check a list of states and convert it to integers; states may repeat."""
    array = _input.as_array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInput(f"{name} has the shape {array.shape} and the type {array.dtype}; give a list of whole numbers")
    outside = np.flatnonzero((array < 0) | (array >= n))
    if outside.size:
        raise InvalidInput(f"{name}[{outside[0]}] is {array[outside[0]]}; give states from 0 to {n - 1}")
    return array.astype(np.int64)


class Pattern:
    """Transitions from states `rows` to states `columns`, and the times of the probabilities."""

    def __init__(self, rows: ArrayLike, columns: ArrayLike, n: int, times: ArrayLike, epsilon: float) -> None:
        source, target = _states("rows", rows, n), _states("columns", columns, n)
        if source.shape != target.shape:
            raise InvalidInput(f"rows and columns have the shapes {source.shape} and {target.shape}; give equal lengths")
        if np.any(source == target):
            raise InvalidInput(f"state {source[source == target][0]} has a rate to itself; leave the diagonal out")
        self.n, self.count = n, source.size
        self._order = np.lexsort((target, source))
        source, self._indices = source[self._order], target[self._order]
        twice = np.flatnonzero((np.diff(source) == 0) & (np.diff(self._indices) == 0))
        if twice.size:
            raise InvalidInput(f"the rate {source[twice[0]]} -> {self._indices[twice[0]]} occurs twice; add them up")
        self._indptr = np.searchsorted(source, np.arange(n + 1)).astype(np.int64)
        at = np.atleast_1d(_input.floats("times", times))
        if at.ndim != 1 or at.size == 0:
            raise InvalidInput(f"times has the shape {np.shape(times)}; give one time or a list of them")
        self.times: list[float] = at.tolist()
        self._epsilon = _input.number("epsilon", epsilon, "a number above 0")
        self._place = _input.place("cpu", None)

    def _matrix(self, rates: Any) -> Compressed:
        values = _input.vector("rates", np.asarray(rates), self.count)
        return Compressed(self.n, False, self._indptr, self._indices, np.asarray(values[self._order], dtype=np.float64))

    def _begin(self, p0: Any) -> int | Floats:
        return _input.begin(np.asarray(p0), self.n, "transient(rates, rows, columns, p0, times)")

    def probabilities(self, rates: Any, p0: Any) -> Floats:
        """Return the probabilities: a row for each time."""
        question = _input.question(self.n, self.times, {}, self._place, self._epsilon, None)
        p: Floats = _kolmo.transient(self._matrix(rates), self._begin(p0), None, question)["p"]
        return p

    def pulled_back(self, rates: Any, p0: Any, values: Any) -> tuple[Floats, Floats]:
        """Return the derivatives of the sum of `values` times probabilities, by rates and by p0."""
        weights = np.ascontiguousarray(values, dtype=np.float64)
        matrix, begin = self._matrix(rates), self._begin(p0)
        sorted_rates, initial, _, _ = _kolmo.adjoint(matrix, begin, self.times, weights, self._place, self._epsilon)
        by_rates = np.empty(self.count)
        by_rates[self._order] = sorted_rates
        return by_rates, initial
