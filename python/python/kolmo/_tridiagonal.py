"""Tridiagonal systems."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from . import _device, _input, _kolmo
from ._input import Diagonals, Floats, Place
from ._result import Result, same
from .errors import BoundWarning, InvalidInput, Singular


@dataclass(frozen=True, eq=False, repr=False)
class Tridiagonal(Result):
    """Unknowns of tridiagonal systems, with residuals.

    Attributes
    ----------
    x : array
        Unknowns, in the shape of the right-hand sides. For right-hand sides on a device, an array
        of their library on that device.
    met : bool
        True if ``normwise`` is at most the tolerance and ``componentwise`` at most 1e-8.
    normwise : float
        Normwise relative residual.
    componentwise : float
        Componentwise relative residual, that of the worst row.
    device : str
        Devices of the solver.
    seconds : float
        Seconds of the solver.
    """

    x: Any
    met: bool
    normwise: float
    componentwise: float
    device: str
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        met = "met" if self.met else "not met"
        residuals = f"residual {self.normwise:.2g} in norms, {self.componentwise:.2g} by rows"
        return f"Tridiagonal(x of shape {tuple(self.x.shape)}, {residuals}: {met}, device {self.device!r})"


@overload
def solve_tridiagonal(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    cyclic: bool = ...,
    transpose: bool = ...,
    tolerance: float = ...,
    device: str = ...,
    precision: Literal["f64", "f32"] | None = ...,
    full_output: Literal[False] = ...,
) -> Any: ...
@overload
def solve_tridiagonal(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    cyclic: bool = ...,
    transpose: bool = ...,
    tolerance: float = ...,
    device: str = ...,
    precision: Literal["f64", "f32"] | None = ...,
    full_output: Literal[True],
) -> Tridiagonal: ...
def solve_tridiagonal(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    cyclic: bool = False,
    transpose: bool = False,
    tolerance: float = 1e-12,
    device: str = "auto",
    precision: Literal["f64", "f32"] | None = None,
    full_output: bool = False,
) -> Any:
    """Solve dl[i] x[i-1] + d[i] x[i] + du[i] x[i+1] = b[i], one system or many of equal size.

    Parameters
    ----------
    dl, d, du : array_like, (n,) or (..., n)
        Lower, main and upper diagonal. ``dl[0]`` and ``du[n-1]`` are not used and may be left out,
        as in LAPACK, unless the system is cyclic. Axes before the last one count systems. Host
        arrays are broadcast as in NumPy: one number is a whole diagonal, and ``(1, n)`` is one
        diagonal of all systems.
    b : array_like, (n,), (n, k) or (..., n)
        Right-hand sides. A single system of shape ``(n,)`` takes one, or the columns of a matrix.
        Several systems take one each, broadcast if there are fewer than systems.
    cyclic : bool
        True if ``dl[0]`` multiplies ``x[n-1]``, and ``du[n-1]`` multiplies ``x[0]``.
    transpose : bool
        Solve with the transposed matrix.
    tolerance : float
        Requested relative residual.
    device, precision
        As in :func:`transient`.
    full_output : bool
        Return a :class:`Tridiagonal` instead of a warning or an exception.

    Returns
    -------
    ndarray or Tridiagonal
        Unknowns, in the shape of `b`. Systems with arrays on a CUDA device (CuPy, Torch, JAX and
        others, by DLPack or ``__cuda_array_interface__``) are solved there, in float64. The
        unknowns are then an array of the library of `b` on that device. The numbers are copied to
        the host only if pivoting or refinement is needed.

    Raises
    ------
    Singular
        If the matrix is singular, with the row where this shows.

    Examples
    --------
    >>> import numpy as np, kolmo
    >>> n = 1000
    >>> x = kolmo.solve_tridiagonal(np.full(n, -1.0), np.full(n, 4.0), np.full(n, -1.0), np.full(n, 2.0))
    >>> round(float(x[500]), 12)
    1.0
    """
    place, tolerance = _input.place(device, precision), _tolerance(tolerance)
    cyclic, transpose = _input.flag("cyclic", cyclic), _input.flag("transpose", transpose)
    full_output = _input.flag("full_output", full_output)
    there = _device.common_place({"dl": dl, "d": d, "du": du, "b": b}, place)
    if there is not None:
        factor = _device.Factor(dl, d, du, cyclic, tolerance, there)
        answer = factor.solve(b, transpose)
        return _told(answer, answer.pop("x"), tolerance, full_output)
    diagonals, shape = _diagonals(dl, d, du, cyclic, tolerance, _input.real("b", b).shape)
    right = _right_hand_sides(b, shape)
    answer = _kolmo.solve_tridiagonal(diagonals, right.each, transpose, place)
    return _told(answer, _shaped(answer, right), tolerance, full_output)


def _tolerance(tolerance: Any) -> float:
    expected = "a finite number above 0 and below 1"
    number = _input.number("tolerance", tolerance, expected)
    if not 0 < number < 1:
        raise _input.invalid("tolerance", tolerance, expected)
    return number


class _RightHandSides(NamedTuple):
    each: list[Floats]
    shape: tuple[int, ...]
    columns: bool


def _spread(name: str, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Broadcast an array to a shape, and return its numbers as a contiguous vector."""
    try:
        return np.ascontiguousarray(np.broadcast_to(values, shape)).ravel()
    except ValueError:
        raise InvalidInput(f"{name} has the shape {values.shape}; expected one that fits {shape}") from None


def _matrix_shape(dl: Floats, d: Floats, du: Floats, cyclic: bool, rows: int | None) -> tuple[int, ...]:
    """Return the shape of the diagonals of all matrices.

    `rows` is the number of rows if the main diagonal is a single number.
    """
    sides = (("dl", dl), ("du", du))
    n = d.shape[-1] if d.ndim else rows
    if not n or d.size == 0 or (d.ndim == 0 and any(side.ndim and side.shape[-1] != n for _, side in sides)):
        raise InvalidInput(f"d has the shape {d.shape}; give n numbers, or a row of n for each system")
    for name, side in sides:
        if side.ndim and side.shape[-1] not in ((n,) if cyclic else (n, n - 1)):
            has = f"has {side.shape[-1]} numbers" if side.ndim == d.ndim else f"has the shape {side.shape}"
            needs = f"{n} numbers a system, with that of the corner" if cyclic else f"{n} numbers a system, or {n - 1} as in LAPACK"
            raise InvalidInput(f"{name} {has}, d has the shape {d.shape}; {name} needs {needs}")
    try:
        return (*np.broadcast_shapes(dl.shape[:-1], d.shape[:-1], du.shape[:-1]), n)
    except ValueError:
        raise InvalidInput(f"dl has the shape {dl.shape}, d {d.shape}, du {du.shape}; they need one number of systems") from None


def _diagonals(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, cyclic: bool, tolerance: float, b: tuple[int, ...] = ()
) -> tuple[Diagonals, tuple[int, ...]]:
    """Return the diagonals of all matrices, and their shape.

    `b` is the shape of the right-hand sides, for a main diagonal that is a single number.
    """
    below, on, above = _input.floats("dl", dl), _input.floats("d", d), _input.floats("du", du)
    several = max(below.ndim, on.ndim, above.ndim) > 1
    shape = _matrix_shape(below, on, above, cyclic, (b[-1] if several else b[0]) if b else None)

    def whole(name: str, values: Floats) -> Floats:
        return _spread(name, values, (*shape[:-1], values.shape[-1] if values.ndim else shape[-1]))

    batch = int(np.prod(shape[:-1], dtype=np.int64))
    made = Diagonals(whole("dl", below), whole("d", on), whole("du", above), batch, cyclic, tolerance)
    return made, shape


def _right_hand_sides(b: ArrayLike, shape: tuple[int, ...]) -> _RightHandSides:
    right = _input.real("b", b)
    batch, n = int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]
    wrong = InvalidInput(f"b has the shape {right.shape}, d {shape}; give one of that shape, or n rows of columns")
    if right.ndim == 0 or right.size == 0:
        raise wrong
    if len(shape) == 1:
        if right.ndim > 2 or right.shape[0] != n:
            raise wrong
        columns = right.ndim == 2
        each = [_input.floats("b", column).ravel() for column in (right.T if columns else [right])]
        return _RightHandSides(each, right.shape, columns)
    try:
        whole = np.broadcast_shapes(right.shape, shape)
    except ValueError:
        raise wrong from None
    if right.shape[-1] != n or (batch > 1 and whole[-len(shape) :] != shape):
        raise wrong
    # Axes before those of the matrices count right-hand sides.
    numbers = _spread("b", _input.floats("b", right), whole).reshape(-1, batch * n)
    return _RightHandSides(list(numbers), whole, False)


def _shaped(answer: dict[str, Any], right: _RightHandSides) -> Floats:
    rows: Floats = answer.pop("x")
    return rows.T if right.columns else rows.reshape(right.shape)


def _told(answer: dict[str, Any], x: Any, tolerance: float, full_output: bool) -> Any:
    singular = answer.pop("singular")
    if not full_output:
        if singular is not None:
            system, row = singular
            raise Singular(f"the matrix of system {system} is singular to working precision: it shows in row {row}, counted from 0")
        if not answer["met"]:
            residuals = f"{answer['normwise']:.2g} in norms, {answer['componentwise']:.2g} by rows"
            warnings.warn(f"the residual is {residuals}; tolerance is {tolerance:g}", BoundWarning, stacklevel=3)
        return x
    return Tridiagonal(x=x, **answer)


class TridiagonalFactor:
    """A tridiagonal matrix, or many of equal size, kept for any number of right-hand sides.

    The numbers are copied once, and sent to the device once. One call is solved at a time.

    Parameters
    ----------
    dl, d, du, cyclic, tolerance, device, precision
        As in :func:`solve_tridiagonal`.

    Examples
    --------
    >>> import numpy as np, kolmo
    >>> n = 1000
    >>> f = kolmo.TridiagonalFactor(np.full(n, -1.0), np.full(n, 4.0), np.full(n, -2.0))
    >>> x = f.solve(np.ones(n))
    >>> y = f.solve(np.ones((n, 3)), transpose=True)
    >>> y.shape, bool(abs(x.sum() - y[:, 0].sum()) < 1e-9)
    ((1000, 3), True)
    """

    def __init__(
        self,
        dl: ArrayLike,
        d: ArrayLike,
        du: ArrayLike,
        *,
        cyclic: bool = False,
        tolerance: float = 1e-12,
        device: str = "auto",
        precision: Literal["f64", "f32"] | None = None,
    ) -> None:
        place, tolerance = _input.place(device, precision), _tolerance(tolerance)
        cyclic = _input.flag("cyclic", cyclic)
        there = _device.common_place({"dl": dl, "d": d, "du": du}, place)
        self._there: _device.Factor | None = None
        shape: tuple[int, ...]
        if there is not None:
            self._there = _device.Factor(dl, d, du, cyclic, tolerance, there)
            shape = self._there.shape
        else:
            diagonals, shape = _diagonals(dl, d, du, cyclic, tolerance)
            self._held = _kolmo.TridiagonalFactor(diagonals, place)
        self._place, self._cyclic, self._tolerance = place, cyclic, tolerance
        self.shape: tuple[int, ...] = shape
        """Shape of the main diagonal."""

    def __repr__(self) -> str:
        return f"TridiagonalFactor(shape={self.shape})"

    def _made_by(self) -> tuple[Any, ...]:
        """Return the arguments that make the factor again."""
        if self._there is not None:
            raise TypeError(
                f"{self!r} is on {self._there.spec}, which neither pickles nor copies: pickle copies of the "
                "diagonals on the host, and make the factor of them again"
            )
        diagonals = (diagonal.reshape(self.shape) for diagonal in self._held.diagonals())
        return *diagonals, self._cyclic, self._tolerance, self._place

    def __reduce__(self) -> tuple[Any, ...]:
        return _factor, self._made_by()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TridiagonalFactor):
            return NotImplemented
        if self is other or self._there is not None or other._there is not None:
            return self is other
        return same(self._made_by(), other._made_by())

    def __hash__(self) -> int:
        return hash((TridiagonalFactor, self.shape))

    @overload
    def solve(self, b: ArrayLike, *, transpose: bool = ..., full_output: Literal[False] = ...) -> Any: ...
    @overload
    def solve(self, b: ArrayLike, *, transpose: bool = ..., full_output: Literal[True]) -> Tridiagonal: ...
    def solve(
        self, b: ArrayLike, *, transpose: bool = False, full_output: bool = False
    ) -> Any:
        """Solve A x = b, or with the transposed matrix.

        Parameters
        ----------
        b : array_like, (n,), (n, k) or (..., n)
            Right-hand sides, as in :func:`solve_tridiagonal`.
        transpose : bool
            Solve with the transposed matrix.
        full_output : bool
            Return a :class:`Tridiagonal` instead of a warning or an exception.

        Returns
        -------
        ndarray or Tridiagonal
            Unknowns, in the shape of `b`.
        """
        transpose, full_output = _input.flag("transpose", transpose), _input.flag("full_output", full_output)
        if self._there is not None:
            answer = self._there.solve(b, transpose)
            return _told(answer, answer.pop("x"), self._tolerance, full_output)
        if (there := _device.place_of(b)) is not None:
            raise InvalidInput(f"b is on {there.spec}, the matrix on the host; give the diagonals on {there.spec}, too")
        right = _right_hand_sides(b, self.shape)
        answer = self._held.solve(right.each, transpose)
        return _told(answer, _shaped(answer, right), self._tolerance, full_output)


def _factor(dl: Floats, d: Floats, du: Floats, cyclic: bool, tolerance: float, place: Place) -> TridiagonalFactor:
    """Make the factor of a pickle."""
    device, precision = place
    return TridiagonalFactor(dl, d, du, cyclic=cyclic, tolerance=tolerance, device=device, precision=precision)  # type: ignore[arg-type]
