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
    """Unknowns, and how well they solve the systems.

    Attributes
    ----------
    x : array
        Unknowns, in the shape of the right-hand sides. For right-hand sides on a device, an array of
        their library there.
    met : bool
        True if ``normwise`` is at most the tolerance and ``componentwise`` at most 1e-8.
    normwise : float
        Relative residual in norms.
    componentwise : float
        Relative residual of the worst row.
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
    dl, d, du : array_like, (n,) or (batch, n)
        The diagonals below, on and above the main one. ``dl[0]`` and ``du[n-1]`` do not count and may be left out, as in
        LAPACK, unless the system is cyclic.
    b : array_like, (n,), (n, k) or (batch, n)
        Right-hand sides: of one system one or the columns of a matrix, of several one each.
    cyclic : bool
        Whether ``dl[0]`` multiplies ``x[n-1]``, and ``du[n-1]`` multiplies ``x[0]``.
    transpose : bool
        Whether the matrix is transposed.
    tolerance : float
        Relative residual to be met.
    device, precision
        As in :func:`transient`.
    full_output : bool
        Whether a :class:`Tridiagonal` is returned, in the place of a warning or an exception.

    Returns
    -------
    ndarray or Tridiagonal
        The unknowns, in the shape of `b`. Where arrays lie on a CUDA device (CuPy, Torch, JAX and others, by DLPack or
        ``__cuda_array_interface__``) they are solved there, in float64, and the unknowns are an array of the library of `b` on
        that device. The host sees those numbers only where rows have to be exchanged or unknowns corrected.

    Raises
    ------
    Singular
        Where the matrix is, with the row where that shows.

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
    diagonals, shape = _diagonals(dl, d, du, cyclic, tolerance)
    right = _right_hand_sides(b, shape)
    answer = _kolmo.solve_tridiagonal(diagonals, right.each, transpose, place)
    return _told(answer, _shaped(answer, right), tolerance, full_output)


def _tolerance(tolerance: Any) -> float:
    number = _input.number("tolerance", tolerance, "a finite number, 0 or more")
    if not 0 <= number < np.inf:
        raise _input.invalid("tolerance", tolerance, "a finite number, 0 or more")
    return number


class _RightHandSides(NamedTuple):
    each: list[Floats]
    shape: tuple[int, ...]
    columns: bool


def _diagonals(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, cyclic: bool, tolerance: float
) -> tuple[Diagonals, tuple[int, ...]]:
    diagonal = _input.floats("d", d)
    if diagonal.ndim not in (1, 2) or diagonal.size == 0:
        raise InvalidInput(f"d has the shape {diagonal.shape}; give n numbers, or a row of n for each system")
    sides = []
    for name, values in (("dl", dl), ("du", du)):
        side = _input.floats(name, values)
        if side.ndim != diagonal.ndim or side.shape[:-1] != diagonal.shape[:-1]:
            raise InvalidInput(f"{name} has the shape {side.shape}, d {diagonal.shape}")
        sides.append(side.ravel())
    batch = 1 if diagonal.ndim == 1 else diagonal.shape[0]
    made = Diagonals(sides[0], diagonal.ravel(), sides[1], batch, cyclic, tolerance)
    return made, diagonal.shape


def _right_hand_sides(b: ArrayLike, shape: tuple[int, ...]) -> _RightHandSides:
    right = _input.real("b", b)
    columns = right.ndim == 2 and len(shape) == 1
    fits = right.shape[0] == shape[0] if columns else right.shape == shape
    if right.ndim not in (1, 2) or right.size == 0 or not fits:
        raise InvalidInput(f"b has the shape {right.shape}, d {shape}; give one of that shape, or n rows of columns")
    each = [_input.floats("b", column).ravel() for column in (right.T if columns else [right])]
    return _RightHandSides(each, right.shape, columns)


def _shaped(answer: dict[str, Any], right: _RightHandSides) -> Floats:
    rows: Floats = answer.pop("x")
    return rows.T if right.columns else rows.reshape(right.shape)


def _told(answer: dict[str, Any], x: Any, tolerance: float, full_output: bool) -> Any:
    singular = answer.pop("singular")
    if not full_output:
        if singular is not None:
            system, row = singular
            raise Singular(f"the matrix of system {system} is singular: it shows in row {row}, counted from 0")
        if not answer["met"]:
            residuals = f"{answer['normwise']:.2g} in norms, {answer['componentwise']:.2g} by rows"
            warnings.warn(f"the residual is {residuals}; tolerance is {tolerance:g}", BoundWarning, stacklevel=3)
        return x
    return Tridiagonal(x=x, **answer)


class TridiagonalFactor:
    """A tridiagonal matrix, or many of equal size, kept for any number of right-hand sides.

    Its numbers are copied once, and go to the device once. One call at a time is at work.

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
        """The shape of the main diagonal."""

    def __repr__(self) -> str:
        return f"TridiagonalFactor(shape={self.shape})"

    def _made_by(self) -> tuple[Any, ...]:
        """Arguments that make the factor again."""
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
        b : array_like, (n,), (n, k) or (batch, n)
            Right-hand sides: of one matrix one or the columns of a matrix, of several one each.
        transpose : bool
            Whether the matrix is transposed.
        full_output : bool
            Whether a :class:`Tridiagonal` is returned, in the place of a warning or an exception.

        Returns
        -------
        ndarray or Tridiagonal
            The unknowns, in the shape of `b`.
        """
        transpose, full_output = _input.flag("transpose", transpose), _input.flag("full_output", full_output)
        if self._there is not None:
            answer = self._there.solve(b, transpose)
            return _told(answer, answer.pop("x"), self._tolerance, full_output)
        if (there := _device.place_of(b)) is not None:
            raise InvalidInput(f"b lies on {there.spec}, the matrix on the host; give the diagonals on {there.spec}, too")
        right = _right_hand_sides(b, self.shape)
        answer = self._held.solve(right.each, transpose)
        return _told(answer, _shaped(answer, right), self._tolerance, full_output)


def _factor(dl: Floats, d: Floats, du: Floats, cyclic: bool, tolerance: float, place: Place) -> TridiagonalFactor:
    """The factor of a pickle."""
    device, precision = place
    return TridiagonalFactor(dl, d, du, cyclic=cyclic, tolerance=tolerance, device=device, precision=precision)  # type: ignore[arg-type]
