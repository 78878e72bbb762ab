"""Derivatives by every rate, for the modules kolmo.torch and kolmo.jax."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _device, _input, _kolmo
from ._device import There
from ._input import Compressed, Floats, Place
from .errors import BoundWarning, DeviceError, DeviceLost, InvalidInput, OutOfMemory

Result = TypeVar("Result")

CALL = "transient(rates, rows, columns, p0, times)"
ONCE = (
    "second derivatives of kolmo's transient are not supported: expected derivatives of first order; compute a Hessian "
    "matrix from differences of gradients"
)
FORWARD = (
    "derivatives in forward mode are not supported by kolmo's transient: use reverse mode, such as grad or jacrev; second "
    "derivatives are not supported"
)


def _states(name: str, values: ArrayLike, n: int) -> Any:
    """Check a list of states and convert it to integers; states may repeat."""
    array = _input.as_array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInput(f"{name} has the shape {array.shape} and the type {array.dtype}; give a list of whole numbers")
    outside = np.flatnonzero((array < 0) | (array >= n))
    if outside.size:
        raise InvalidInput(f"{name}[{outside[0]}] is {array[outside[0]]}; give states from 0 to {n - 1}")
    # Few bytes, since the lists are compared at each call.
    return array.astype(np.int32 if n <= 2**31 else np.int64)


def expect_shapes(rates: Any, rows: Any, p0: Any, times: Any, gradient_bound: Any) -> None:
    """Check the shapes of arrays of any library; times may also be a single number."""
    if tuple(gradient_bound.shape) != (2,):
        raise InvalidInput(
            f"gradient_bound has the shape {tuple(gradient_bound.shape)}; give two zeros, whose derivatives become the bounds of "
            "the derivatives by rates and by p0"
        )
    count = len(rows) if np.ndim(rows) == 1 else None
    if len(rates.shape) != 1 or count not in (None, rates.shape[0]):
        raise InvalidInput(
            f"rates has the shape {tuple(rates.shape)}; give {'one number' if count is None else f'{count} numbers, one'} for each "
            "transition, and use vmap for several chains"
        )
    if len(p0.shape) != 1 or not p0.shape[0]:
        raise InvalidInput(
            f"p0 has the shape {tuple(p0.shape)}; give the initial probability of each state, and use vmap for several "
            f"distributions (the order of arguments is {CALL})"
        )
    if len(times.shape) > 1 or 0 in times.shape:
        raise InvalidInput(f"times has the shape {tuple(times.shape)}; give one time or a list of them")


class Transitions:
    """Checked transitions between `n` states, and chains with these transitions on devices."""

    def __init__(self, source: NDArray[Any], target: NDArray[Any], n: int) -> None:
        if source.shape != target.shape:
            raise InvalidInput(f"rows and columns have the shapes {source.shape} and {target.shape}; give equal lengths")
        if np.any(source == target):
            raise InvalidInput(f"state {source[source == target][0]} has a rate to itself; leave the diagonal out")
        self.n, self.rows, self.columns = n, source, target
        self.order = np.lexsort((target, source))
        source, self.indices = source[self.order], target[self.order].astype(np.int64)
        twice = np.flatnonzero((np.diff(source) == 0) & (np.diff(self.indices) == 0))
        if twice.size:
            raise InvalidInput(f"the rate {source[twice[0]]} -> {self.indices[twice[0]]} occurs twice; add them up")
        self.indptr = np.searchsorted(source, np.arange(n + 1)).astype(np.int64)
        self._uses = 0
        self._lock = threading.Lock()
        self._chains: dict[str, tuple[_kolmo.DeviceLane, _kolmo.DeviceChain] | None] = {}

    def equal(self, rows: ArrayLike, columns: ArrayLike, n: int) -> bool:
        """Return True for arrays of integers with exactly these transitions, in this order."""
        lists = (self.rows, rows), (self.columns, columns)
        return n == self.n and all(
            isinstance(given, np.ndarray) and given.dtype.kind in "iu" and np.array_equal(own, given) for own, given in lists
        )

    def chain(self, spec: str, there: There | None) -> tuple[_kolmo.DeviceLane, _kolmo.DeviceChain] | None:
        """Return lane and chain on a device; None at the first use of rates of the host.

        Also None if the device does not open, or lacks the memory. `there` is the device of the rates.
        """
        with self._lock:
            self._uses += there is None
            if spec not in self._chains:
                if there is None and self._uses < 2:
                    return None
                backend, _, number = spec.partition(":")
                # Device of the arrays that may be given, in DLPack's numbering.
                given = (2, int(number)) if backend == "cuda" else (there.kind, there.number) if there else (0, 0)
                sources, targets = (states.astype(np.uint32) for states in (self.rows, self.columns))
                try:
                    lane = _kolmo.DeviceLane(Place(spec, "f64"), given)
                    self._chains[spec] = lane, _kolmo.DeviceChain(lane, self.n, sources, targets)
                except (DeviceError, OutOfMemory):
                    self._chains[spec] = None
            return self._chains[spec]

    def forget(self, spec: str, *, lasting: bool) -> None:
        """Drop the chain on a device; if `lasting`, no other one is made there."""
        with self._lock:
            self._chains.pop(spec, None)
            if lasting:
                self._chains[spec] = None


# Transitions of the newest calls, which training repeats, with their chains on devices.
_newest: list[Transitions] = []


def _transitions(rows: ArrayLike, columns: ArrayLike, n: int) -> Transitions:
    known = next((known for known in _newest if known.equal(rows, columns, n)), None)
    if known is None:
        source, target = _states("rows", rows, n), _states("columns", columns, n)
        known = next((known for known in _newest if known.equal(source, target, n)), None) or Transitions(source, target, n)
    _newest[:] = [known, *(other for other in _newest[:2] if other is not known)][:2]
    return known


# Number of rates above which keeping matrices pays on any device.
_MANY = 50_000


def _keeps_matrices(device: str, rates: Floats) -> bool:
    """Return True for one GPU, and on the CPU for many different rates.

    A CPU reads repeated rates faster from matrices in other formats, which each call builds.
    """
    backend, _, number = device.partition(":")
    if backend in ("cuda", "wgpu"):
        return number.isascii() and number.isdigit() and len(number) < 6
    return device == "cpu" and rates.size >= _MANY and np.unique(rates[:4096]).size > 2048


def _is_single(*arrays: Any) -> bool:
    """Return True if rates, p0, times and values of probabilities belong to one chain."""
    return all(array.ndim <= rank for array, rank in zip(arrays, (1, 1, 1, 2), strict=False))


class Pattern:
    """Transitions from states `rows` to states `columns` of a chain of `n` states.

    The methods take arrays of rates (..., k), initial probabilities (..., n) and times (..., m).
    Their leading axes are broadcast. Rates may be an array of another library, which `host` copies
    to the host if they cannot remain on their device.
    """

    def __init__(
        self,
        rows: ArrayLike,
        columns: ArrayLike,
        n: int,
        epsilon: float,
        device: str | None,
        host: Callable[[Any], Floats] = np.asarray,
    ) -> None:
        self._transitions = _transitions(rows, columns, n)
        self.n, self.count = n, self._transitions.rows.size
        self._epsilon = _input.number("epsilon", epsilon, "a number above 0")
        self._device, self._copy = device, host
        self._place = _input.place("cpu" if device is None else device, "f64")

    def _on_host(self, rates: Any) -> Floats:
        return np.asarray(rates if isinstance(rates, np.ndarray) else self._copy(rates), dtype=np.float64)

    def _there(self, rates: Any) -> There | None:
        """Return the device of rates that remain there."""
        try:
            there = _device.place_of(rates)
        except (BufferError, RuntimeError, ValueError):
            # Arrays on several devices, or on one without DLPack.
            return None
        if there is None or not str(rates.dtype).endswith("float64") or _device.way_into(rates) is None:
            return None
        # The host computes small chains faster.
        stays = self._device in ("auto", there.spec) or (self._device is None and self.count >= _MANY)
        return there if stays else None

    def _with_kept(
        self, work: Callable[[_kolmo.DeviceChain, Any], Result], rates: Any, *others: Floats
    ) -> tuple[Any, Result | None]:
        """Return the rates, and the result of `work` on a chain whose matrices are kept.

        Without such a chain, the rates are copied to the host, and the result is None. The same holds
        if memory does not suffice; the matrices are then dropped.
        """
        single = 0 < self.count < 2**32 - 1 and self.n < 2**30 and _is_single(rates, *others)
        fits = single and bool(np.isfinite(others[1]).all())
        there, spec = self._there(rates) if fits else None, self._place.device
        found = None if there is None else self._transitions.chain(there.spec, there)
        if there is not None and found is not None:
            spec = there.spec
        else:
            there, rates = None, self._on_host(rates)
            found = self._transitions.chain(spec, None) if fits and _keeps_matrices(spec, rates) else None
        if found is None:
            return rates, None
        try:
            lane, chain = found
            return rates, work(chain, rates if there is None else _device.borrowed("rates", rates, lane, there))
        except OutOfMemory:
            self._transitions.forget(spec, lasting=True)
        except DeviceLost:
            self._transitions.forget(spec, lasting=False)
            raise
        return self._on_host(rates), None

    def _matrix(self, rates: Floats) -> Compressed:
        known = self._transitions
        data = np.ascontiguousarray(rates[..., known.order], dtype=np.float64).reshape(-1)
        return Compressed(self.n, False, known.indptr, known.indices, data)

    def _expect_rates(self, rates: Floats) -> None:
        """Raise an error that names the first invalid rate by its index."""
        wrong = np.argwhere(~(np.isfinite(rates) & (rates >= 0)))
        if wrong.size:
            at = tuple(wrong[0])
            step = f"{self._transitions.rows[at[-1]]} -> {self._transitions.columns[at[-1]]}"
            raise InvalidInput(
                f"rates[{', '.join(map(str, at))}], from state {step}, is {rates[at]:g}: expected a finite rate, at least 0"
            )

    def probabilities(self, rates: Any, p0: Floats, times: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities, (..., m, n): a row for each time; and bounds, (..., m)."""

        def solve(chain: _kolmo.DeviceChain, rates: Any) -> tuple[Floats, Floats, bool]:
            if isinstance(rates, np.ndarray):
                self._expect_rates(rates)
            return chain.transient(rates, np.ascontiguousarray(p0), np.ascontiguousarray(times), self._epsilon)

        rates, found = self._with_kept(solve, rates, p0, times)
        if found is not None:
            self._expect_met([{"bound": found[1], "met": found[2]}])
            return found[:2]
        self._expect_rates(rates)
        shape = np.broadcast_shapes(rates.shape[:-1], p0.shape[:-1], times.shape[:-1])
        size = times.shape[-1], self.n
        if rates.size > self.count and p0.size == self.n and times.size == size[0]:
            # Bitwise equal to single runs.
            answer = _kolmo.transient_batch(self._matrix(rates), p0.reshape(-1), self._question(times.reshape(-1)))
            for told in answer["errors"].values():
                raise InvalidInput(told)
            self._expect_met(answer["chains"])
            leading, size = rates.shape[:-1], (*shape, *size)
            bound = np.array([chain["bound"] for chain in answer["chains"]]).reshape(*leading, size[-2])
            p = answer["p"].reshape(*leading, *size[-2:])
            return np.broadcast_to(p, size), np.broadcast_to(bound, size[:-1])
        p, bound = np.empty((*shape, *size)), np.empty((*shape, size[0]))
        rates, p0, times = (np.broadcast_to(array, (*shape, array.shape[-1])) for array in (rates, p0, times))
        for k in np.ndindex(shape):
            begin = np.ascontiguousarray(p0[k])
            answer = _kolmo.transient(self._matrix(rates[k]), begin, None, self._question(times[k]))
            self._expect_met([answer])
            p[k], bound[k] = answer["p"], answer["bound"]
        return p, bound

    def _question(self, times: Floats) -> _input.Question:
        return _input.question(self.n, times, {}, self._place, self._epsilon, None)

    def _expect_met(self, answers: list[dict[str, Any]]) -> None:
        largest = max(answer["bound"].max() for answer in answers)
        if not all(answer["met"] for answer in answers):
            told = f"the bound of probabilities is {largest:.2g}, more than epsilon {self._epsilon:.2g}"
            warnings.warn(told, BoundWarning, stacklevel=2)

    def pulled_back(
        self, values: Floats, p: Floats, rates: Any, p0: Floats, times: Floats, *, by_times: bool
    ) -> tuple[Any, Floats, Floats, Floats]:
        """Return the derivatives of the sum of `values` times probabilities `p`.

        They are derivatives by rates, (..., k), by p0, (..., n), and by times, (..., m), for all
        leading axes; those by times are 0 unless they are requested. The last array, (..., 2), has
        the bounds of the derivatives by rates and by p0. Derivatives by rates are on the device of
        rates that remain there.
        """

        def solve(chain: _kolmo.DeviceChain, rates: Any) -> tuple[Any, Floats, list[float]]:
            begin, due, weights = (np.ascontiguousarray(array) for array in (p0, times, values))
            return chain.adjoint(rates, begin, due, weights, self._epsilon)

        rates, kept = self._with_kept(solve, rates, p0, times, values) if values.any() else (self._on_host(rates), None)
        if kept is not None:
            return self._of_kept(*kept, values, p, rates, times, by_times=by_times)
        given, ranks = (values, p, rates, p0, times), (2, 2, 1, 1, 1)
        shape = np.broadcast_shapes(*(array.shape[: array.ndim - rank] for array, rank in zip(given, ranks, strict=True)))
        values, p, rates, p0, times = (
            np.broadcast_to(array, (*shape, *array.shape[array.ndim - rank :])) for array, rank in zip(given, ranks, strict=True)
        )
        of_rates, of_p0, of_times = (np.zeros((*shape, array.shape[-1])) for array in (rates, p0, times))
        bounds = np.zeros((*shape, 2))
        # Errors are in proportion to `values` and to the derivatives.
        scales = np.abs(values).max(axis=(-2, -1))
        wanted, count = np.flatnonzero(scales), math.prod(shape)
        if wanted.size:
            own, begin, due, weights = (
                np.ascontiguousarray(array.reshape(count, *array.shape[len(shape) :])[wanted]) for array in (rates, p0, times, values)
            )
            found = _kolmo.adjoint(self._matrix(own), begin, due, weights, self._place, self._epsilon)
            for into, array in zip((of_rates, of_p0, bounds), found, strict=True):
                into.reshape(count, into.shape[-1])[wanted] = array
            of_rates[..., self._transitions.order] = of_rates.copy()
            sums = np.stack([np.abs(array).sum(axis=-1) for array in (of_rates, of_p0)], axis=-1)
            self._expect_small(bounds, np.maximum(scales[..., None], sums))
        if by_times:
            of_times = self._by_times(values, p, rates)
        return of_rates, of_p0, of_times, bounds

    def _of_kept(
        self, by_rates: Any, of_p0: Floats, bounds: list[float], values: Floats, p: Floats, rates: Any, times: Floats, *, by_times: bool
    ) -> tuple[Any, Floats, Floats, Floats]:
        """Return derivatives that a chain computed by its rates and by p0, and those by times."""
        take = _device.way_into(rates)
        of_rates: Any = by_rates if take is None else take(by_rates)
        sums = np.array([float(abs(of_rates).sum()), np.abs(of_p0).sum()])
        self._expect_small(np.array(bounds), np.maximum(np.abs(values).max(), sums))
        of_times = self._by_times(values, p, self._on_host(rates)) if by_times else np.zeros(times.size)
        return of_rates, of_p0, of_times, np.array(bounds)

    def _expect_small(self, bounds: Floats, scales: Floats) -> None:
        above = bounds > self._epsilon * scales
        if above.any():
            told = f"the bound of derivatives is {bounds[above].max():.2g}, more than epsilon {self._epsilon:.2g} times their scale"
            warnings.warn(told, BoundWarning, stacklevel=2)

    def _by_times(self, values: Floats, p: Floats, rates: Floats) -> Floats:
        """Return the derivatives by times: that of probabilities by their time is p Q."""
        rows, columns = self._transitions.rows, self._transitions.columns
        flow = np.take(values, columns, axis=-1) - np.take(values, rows, axis=-1)
        found: Floats = (rates[..., None, :] * np.take(p, rows, axis=-1) * flow).sum(axis=-1)
        return found

