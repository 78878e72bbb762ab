"""Arrays of other libraries on a device, where they stay."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _input, _kolmo
from ._input import Floats, Place
from .errors import InvalidInput

# DLPack's kinds of devices that kolmo supports: kDLCUDA.
KINDS = {2: "cuda"}

# kDLCUDAManaged: memory that all CUDA devices can read.
_MANAGED = 13


class There(NamedTuple):
    """A device with arrays, in DLPack's numbering."""

    kind: int
    number: int

    @property
    def spec(self) -> str:
        """Name of the device in kolmo."""
        return KINDS[self.kind] if KINDS[self.kind] == "cpu" else f"{KINDS[self.kind]}:{self.number}"


def place_of(values: Any, asked: str = "auto") -> There | None:
    """Return the device of another library's array, or None for host arrays and other values.

    ``__cuda_array_interface__`` names no CUDA device: it is the requested one, or device 0.
    """
    if isinstance(values, np.ndarray):
        return None
    if hasattr(values, "__dlpack_device__"):
        kind, number = (int(part) for part in values.__dlpack_device__())
        kind = 2 if kind == _MANAGED else kind
        return There(kind, number) if kind in KINDS else None
    if hasattr(values, "__cuda_array_interface__"):
        backend, _, place = asked.partition(":")
        return There(2, int(place) if backend == "cuda" and place.isdigit() else 0)
    return None


def common_place(arrays: dict[str, Any], place: Place) -> There | None:
    """Return the device of the arrays, ignoring host arrays, or None if all are on the host."""
    found: dict[str, There] = {name: at for name, values in arrays.items() if (at := place_of(values, place.device)) is not None}
    if not found:
        return None
    (first, there), *others = found.items()
    for name, other in others:
        if other.spec != there.spec:
            raise InvalidInput(f"{first} is on {there.spec}, {name} on {other.spec}; give both on one device")
    if place.device not in ("auto", there.spec):
        raise InvalidInput(
            f"{first} is on {there.spec}, and device is '{place.device}'; leave device out, or give a copy on the host, such "
            f"as {first}.cpu() of torch or cupy.asnumpy({first})"
        )
    if place.precision not in (None, "f64"):
        raise InvalidInput(f"{first} is on {there.spec}, where precision is f64; leave precision out")
    return there


def _capsule(values: Any, stream: int | None) -> Any:
    try:
        return values.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        # Libraries older than DLPack 1.
        return values.__dlpack__(stream=stream)


def borrowed(name: str, values: Any, lane: _kolmo.DeviceLane, there: There) -> _kolmo.Borrowed | NDArray[Any]:
    """Borrow an array on the device, or convert one on the host.

    The lane's later work waits until the array is complete.
    """
    if place_of(values) is None:
        return _input.floats(name, values)
    try:
        if hasattr(values, "__dlpack__"):
            return _kolmo.Borrowed(name, _capsule(values, lane.stream))
    except BufferError as error:
        raise InvalidInput(f"{name}: {error}") from error
    told = values.__cuda_array_interface__
    if told["typestr"] != "<f8":
        raise InvalidInput(f"{name} holds {told['typestr']}; arrays on a device hold float64, '<f8'")
    if told.get("mask") is not None:
        raise InvalidInput(f"{name} is a masked array; give its numbers alone")
    strides = told.get("strides")
    if strides is not None:
        if any(apart % 8 for apart in strides):
            raise InvalidInput(f"{name} has strides of {strides} bytes; float64 needs multiples of 8")
        strides = [apart // 8 for apart in strides]
    shape, address = list(told["shape"]), int(told["data"][0])
    return _kolmo.Borrowed.of_interface(
        values, (there.kind, there.number), address, shape, strides, told.get("stream")
    )


def way_into(values: Any) -> Callable[[Any], Any] | None:
    """Return ``from_dlpack`` of an array's library, or None for NumPy and if there is none."""
    if place_of(values) is None:
        return None
    if hasattr(values, "__array_namespace__"):
        library = values.__array_namespace__()
    else:
        library = sys.modules.get(type(values).__module__.partition(".")[0])
    take: Callable[[Any], Any] | None = getattr(library, "from_dlpack", None)
    return take


class Factor:
    """Tridiagonal matrices that stay on a device."""

    def __init__(
        self,
        dl: Any,
        d: Any,
        du: Any,
        cyclic: bool,
        tolerance: float,
        there: There,
    ) -> None:
        self._there = there
        self._take = way_into(d) or way_into(dl) or way_into(du)
        self._lane = _kolmo.DeviceLane(Place(there.spec, "f64"), (there.kind, there.number))
        taken = {name: borrowed(name, values, self._lane, there) for name, values in (("dl", dl), ("d", d), ("du", du))}
        self.shape = tuple(taken["d"].shape)
        if len(self.shape) not in (1, 2) or 0 in self.shape:
            raise InvalidInput(f"d has the shape {self.shape}; give n numbers, or a row of n for each system")
        n, batch = self.shape[-1], self.shape[0] if len(self.shape) == 2 else 1
        for name in ("dl", "du"):
            side = tuple(taken[name].shape)
            if side[:-1] != self.shape[:-1] or len(side) != len(self.shape) or side[-1] not in (n, n - 1):
                raise InvalidInput(
                    f"{name} has the shape {side}, d {self.shape}; {name} needs {n} numbers a system, or {n - 1} as in LAPACK"
                )
        if cyclic and any(tuple(taken[name].shape)[-1] < n for name in ("dl", "du")):
            raise InvalidInput(f"the off-diagonals of a cyclic system have {n} numbers, as d has")
        below, above = _whole(taken["dl"], n, True), _whole(taken["du"], n, False)
        on = _whole(taken["d"], n, False)
        self._held = self._lane.factor(below, on, above, batch, n, cyclic, tolerance)

    @property
    def spec(self) -> str:
        """Name of the device."""
        return self._there.spec

    def solve(self, b: Any, transpose: bool) -> dict[str, Any]:
        """Return the answer of the compiled module, with unknowns in an array of `b`'s library."""
        right = borrowed("b", b, self._lane, self._there)
        shape = tuple(right.shape)
        columns = len(shape) == 2 and len(self.shape) == 1
        fits = shape[0] == self.shape[0] if columns else shape == self.shape
        if len(shape) not in (1, 2) or 0 in shape or not fits:
            raise InvalidInput(f"b has the shape {shape}, d {self.shape}; give one of that shape, or n rows of columns")
        each: Sequence[_kolmo.Borrowed | Floats]
        if not columns:
            each = [right.ravel() if isinstance(right, np.ndarray) else right]
        elif isinstance(right, np.ndarray):
            each = [_input.floats("b", column) for column in right.T]
        else:
            each = [right.column(k) for k in range(shape[1])]
        answer = self._held.solve(list(each), transpose, list(shape))
        take = way_into(b) if place_of(b) is not None else self._take
        if take is not None:
            answer["x"] = take(answer["x"])
        return answer


def _whole(values: _kolmo.Borrowed | NDArray[Any], n: int, front: bool) -> _kolmo.Borrowed | NDArray[Any]:
    """Extend a diagonal on the host to one number per row."""
    if not isinstance(values, np.ndarray):
        return values
    if values.shape[-1] < n:
        values = np.insert(values, 0 if front else values.shape[-1], 0.0, axis=-1)
    return values.ravel()
