"""Conversion of arguments for the compiled module.

Arrays become contiguous arrays of native numbers. Arrays that are already so are borrowed.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ConversionWarning, InvalidInput

# DLPack's kDLCPU.
_ON_HOST = 1

Progress: TypeAlias = Callable[[int, int], object] | bool | None
Floats: TypeAlias = NDArray[np.float64]


class Compressed(NamedTuple):
    """A square matrix in compressed rows or columns."""

    n: int
    by_columns: bool
    indptr: NDArray[np.integer[Any]]
    indices: NDArray[np.integer[Any]]
    data: NDArray[np.floating[Any]]


class Place(NamedTuple):
    """Device and precision."""

    device: str
    precision: Literal["f64", "f32", "q64"] | None


class Diagonals(NamedTuple):
    """Tridiagonal matrices, stored one after another."""

    dl: Floats
    d: Floats
    du: Floats
    batch: int
    cyclic: bool
    tolerance: float


class Wish(NamedTuple):
    """A request for components of a linear system."""

    b: list[Floats]
    components: list[int]
    functionals: list[Floats]
    epsilon: float | None
    confidence: float
    seed: int
    splitting: str
    time_limit: float | None
    progress: Callable[[int, int], object] | None


class Reader(NamedTuple):
    """A PageRank request."""

    nodes: list[int] | None
    damping: float
    seeds: list[int]
    relative: float
    epsilon: float
    time_limit: float | None
    progress: Callable[[int, int], object] | None


class Question(NamedTuple):
    """A transient request, without its chain."""

    times: list[float]
    rewards: list[tuple[str, Floats]]
    place: Place
    epsilon: float
    progress: Callable[[int, int], object] | None


class LongRun(NamedTuple):
    """A long-run question, without its chain."""

    name: str
    kind: Literal["generator", "rates", "stochastic"] | None
    sets: list[tuple[str, NDArray[np.uint32]]]
    begin: int | Floats | None
    reward: Floats | None
    place: Place
    epsilon: float
    time_limit: float | None
    gradient: list[Derivative]
    progress: Callable[[int, int], object] | None


# Name of a parameter, dQ, and the derivative of the initial probabilities if they depend on it.
Derivative: TypeAlias = tuple[str, Compressed, Floats | None]


def derivatives(n: int, gradient: Any, gradient_p0: Any = None) -> list[Derivative]:
    """Convert mappings of names to matrices dQ and to vectors dp0; None is an empty one."""
    by_rates = _by_name("gradient", gradient, "matrices dQ")
    by_p0 = _by_name("gradient_p0", gradient_p0, "derivatives of p0")
    none = Compressed(n, False, np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    found: list[Derivative] = []
    for name in [*by_rates, *(name for name in by_p0 if name not in by_rates)]:
        changes = compressed(f"gradient[{name!r}]", by_rates[name], 6) if name in by_rates else none
        begin = vector(f"gradient_p0[{name!r}]", by_p0[name], n) if name in by_p0 else None
        found.append((name, changes, begin))
    return found


def _by_name(argument: str, given: Any, of: str) -> Mapping[str, Any]:
    given = {} if given is None else given
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise invalid(argument, given, f"a mapping of names to {of}")
    return given


def exchanged(name: str, values: Any) -> Any:
    """Borrow a host array of another library without a copy. Arrays on devices are errors."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "__dlpack_device__"):
        kind, number = values.__dlpack_device__()
        if int(kind) == _ON_HOST:
            return np.from_dlpack(values)
        where = f"device {number} of DLPack's kind {int(kind)}"
    elif hasattr(values, "__cuda_array_interface__"):
        where = "a CUDA device"
    else:
        return values
    raise InvalidInput(
        f"{name} is on {where}; only tridiagonal systems are solved on CUDA devices, from arrays of other libraries: give a "
        f"copy on the host, such as {name}.cpu() of torch or cupy.asnumpy({name})"
    )


def invalid(name: str, value: Any, expected: str) -> InvalidInput:
    """Make the exception of an argument, with its name, its value and the expectation."""
    told = repr(value)
    return InvalidInput(f"invalid {name} {told if len(told) <= 60 else told[:57] + '...'}: expected {expected}")


def number(name: str, value: Any, expected: str = "a number") -> float:
    """Convert a single number to a float."""
    try:
        if not isinstance(value, (str, bytes, bool, np.bool_)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise invalid(name, value, expected)


def count(name: str, value: Any) -> int:
    """Convert an unsigned 64-bit integer, such as a seed or a count."""
    try:
        whole_number = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        whole_number = -1
    if not 0 <= whole_number < 2**64:
        raise invalid(name, value, "a whole number from 0 to 2**64 - 1")
    return whole_number


def flag(name: str, value: Any) -> bool:
    """Convert a truth value."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise invalid(name, value, "True or False")


def path(name: str, value: Any) -> str:
    """Convert a path, or the specification of a built-in, to a text."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    raise invalid(name, value, "a path or a text")


def place(device: Any, precision: Any) -> Place:
    """Check the names of devices and a precision."""
    if not isinstance(device, str):
        raise invalid("device", device, "a text such as 'auto', 'cpu', 'cuda:0', or several names with commas between them")
    if not isinstance(precision, (str, type(None))):
        raise invalid("precision", precision, "'f64', 'f32', 'q64' or None")
    return Place(device, precision)  # type: ignore[arg-type]


_OWN = {
    "Chain": "call its method transient, or give its rates()",
    "Graph": "kolmo.pagerank takes it",
    "Model": "call its method transient, or give its chain().rates()",
}


def _expect_numbers(name: str, values: Any) -> None:
    """Reject known classes that are not arrays, and suggest a conversion."""
    if isinstance(values, (np.ndarray, float, int, list, tuple)):
        return
    library, kind = type(values).__module__.partition(".")[0], type(values).__name__
    if values is None:
        raise invalid(name, None, "an array of real numbers")
    if library == "kolmo" and kind in _OWN:
        raise InvalidInput(f"{name} is a kolmo.{kind}, not an array: {_OWN[kind]}")
    if library == "networkx":
        raise InvalidInput(f"{name} is a graph of NetworkX, not a matrix: give networkx.to_scipy_sparse_array({name})")
    if library == "igraph":
        raise InvalidInput(f"{name} is a graph of igraph, not a matrix: give {name}.get_adjacency_sparse()")
    if hasattr(values, "matvec"):
        raise InvalidInput(f"{name} is a {kind}, which has no entries: give a sparse matrix or an array")


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Convert to an array of any type, if possible without a copy."""
    _expect_numbers(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is no array of numbers: {error}") from error


def _expect_real(name: str, dtype: np.dtype[Any]) -> None:
    """Reject types without real numbers."""
    if dtype.kind == "c":
        raise InvalidInput(f"{name} holds {dtype}; give {name}.real if all imaginary parts are 0")
    if dtype.kind not in "fiub":
        raise InvalidInput(f"{name} holds {dtype}; give real numbers, such as float64")


def real(name: str, values: ArrayLike) -> NDArray[Any]:
    """Convert to an array of real numbers of any type, if possible without a copy."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(f"{name} is a masked array; give {name}.filled(...)")
    if hasattr(values, "toarray"):
        raise InvalidInput(f"{name} is sparse; give {name}.toarray()")
    array = as_array(name, exchanged(name, values))
    _expect_real(name, array.dtype)
    return array


def floats(name: str, values: ArrayLike) -> Floats:
    """Convert to a contiguous array of native doubles; such an argument itself is returned."""
    return np.asarray(real(name, values), dtype=np.float64, order="C")


def vector(name: str, values: ArrayLike, n: int) -> Floats:
    """Convert to a contiguous array of n native doubles."""
    array = floats(name, values)
    if array.shape != (n,):
        raise InvalidInput(f"{name} has the shape {array.shape}; give {n} numbers, one a row")
    return array


def whole(name: str, values: ArrayLike, n: int) -> NDArray[np.int64]:
    """Convert distinct integers from 0 to n − 1. Their shape is kept."""
    array = as_array(name, values)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInput(f"{name} holds {array.dtype}; give whole numbers from 0 to {n - 1}")
    outside = (array < 0) | (array >= n) if array.size else np.zeros(0, dtype=np.bool_)
    if np.any(outside):
        raise InvalidInput(f"{name} is {array[outside].flat[0]}; give a number from 0 to {n - 1}")
    expect_once(name, array)
    return array.astype(np.int64)


def expect_once(name: str, array: NDArray[Any]) -> None:
    """Reject arrays with a repeated number, such as a mask of integers."""
    numbers, counts = np.unique(array, return_counts=True)
    if np.any(counts > 1):
        twice = numbers[counts > 1][0]
        raise InvalidInput(f"{name} has the number {twice} twice; give each once, or a mask as an array of bool")


def mask(name: str, states: ArrayLike | None, n: int) -> NDArray[np.bool_] | None:
    """Convert a mask or numbers of states to a mask."""
    if states is None:
        return None
    array = as_array(name, states)
    if array.dtype == np.bool_:
        if array.shape != (n,):
            raise InvalidInput(f"{name} has the shape {array.shape}; a mask has {n} values, one a state")
        return np.ascontiguousarray(array)
    chosen = np.zeros(n, dtype=np.bool_)
    chosen[whole(name, array, n)] = True
    return chosen


def _values(name: str, data: NDArray[Any]) -> NDArray[Any]:
    data = real(name, data)
    if data.dtype in (np.float32, np.float64) and data.dtype.isnative:
        return np.ascontiguousarray(data)
    return np.ascontiguousarray(data, dtype=np.float64)


def _dense(name: str, matrix: NDArray[Any], n: int) -> Compressed:
    rows, columns = np.nonzero(matrix)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=indptr[1:])
    return Compressed(n, False, indptr, columns.astype(np.int64), _values(name, matrix[rows, columns]))


def compressed(name: str, matrix: Any, level: int = 3) -> Compressed:
    """Convert a square matrix to compressed rows or columns.

    The arrays of SciPy's csr and csc matrices are borrowed. Zeros of dense matrices are left out.
    `level` is the stack level of warnings.
    """
    sparse = hasattr(matrix, "tocsr") and hasattr(matrix, "format")
    if sparse:
        _expect_real(name, matrix.dtype)
    else:
        matrix = real(name, matrix)
    shape = tuple(matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInput(f"{name} has the shape {shape}; give a square matrix")
    n = int(shape[0])
    if n == 0:
        raise InvalidInput(f"{name} has 0 rows; give at least one")
    if not sparse:
        return _dense(name, np.asarray(matrix), n)
    if matrix.format not in ("csr", "csc"):
        told = f"{name} is {matrix.format}: a copy in csc is made; give csc or csr, which are borrowed"
        warnings.warn(told, ConversionWarning, stacklevel=level)
        matrix = _doubles(matrix).tocsc()
    if not matrix.has_canonical_format:
        told = f"{name} has unsorted or repeated indices: a copy is sorted; call {name}.sum_duplicates() first"
        warnings.warn(told, ConversionWarning, stacklevel=level)
        copy = _doubles(matrix)
        matrix = matrix.copy() if copy is matrix else copy
        matrix.sum_duplicates()
    indptr, indices = matrix.indptr, matrix.indices
    if indptr.dtype != indices.dtype or indices.dtype not in (np.int32, np.int64):
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    indptr, indices = np.ascontiguousarray(indptr), np.ascontiguousarray(indices)
    return Compressed(n, matrix.format == "csc", indptr, indices, _values(name, matrix.data))


def _doubles(matrix: Any) -> Any:
    """Convert to doubles, since sums of small integers wrap. Arrays of bool stay as they are."""
    data = getattr(matrix, "data", None)
    if not isinstance(data, np.ndarray) or data.dtype != matrix.dtype or data.dtype in (np.bool_, np.float64):
        return matrix
    # SciPy's `astype` sums entries before it converts them.
    matrix = matrix.copy()
    matrix.data = data.astype(np.float64)
    return matrix


def begin(p0: ArrayLike | None, n: int, call: str) -> int | Floats:
    """Convert an initial state or distribution, by default state 0. `call` is for messages."""
    if p0 is None:
        return 0
    try:
        return int(whole("p0", p0, n)) if as_array("p0", p0).ndim == 0 else vector("p0", p0, n)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (the order of arguments is {call})") from None


def steps(times: Any, steps: Any, discrete: bool) -> Any:
    """Return `times`, or `steps` of a chain in discrete time."""
    if steps is None:
        return times
    if times is not None:
        raise InvalidInput("times and steps are both given; give one of them")
    if not discrete:
        raise InvalidInput("steps: the chain is in continuous time; give times, or discrete=True for a matrix")
    return steps


def question(
    n: int,
    times: ArrayLike,
    rewards: Mapping[str, ArrayLike],
    place: Place,
    epsilon: float,
    tell: Callable[[int, int], object] | None,
    phases: int = 1,
) -> Question:
    """Make the request for a chain of n states. A reward of several phases may have a row for each."""
    at = np.atleast_1d(floats("times", times))
    if at.ndim != 1 or at.size == 0:
        raise InvalidInput(f"times has the shape {np.shape(times)}; give one time or a list of them")
    if not isinstance(rewards, Mapping):
        raise invalid("rewards", rewards, f"a mapping of names to arrays of {n} numbers")
    earned = []
    for key, values in rewards.items():
        if not isinstance(key, str):
            raise invalid("rewards", key, "names that are strings")
        name = f"rewards[{key!r}]"
        rates = floats(name, values)
        if phases > 1 and rates.ndim == 2 and rates.shape != (phases, n):
            raise InvalidInput(f"{name} has the shape {rates.shape}; give {n} numbers, or ({phases}, {n}) for the phases")
        rates = rates.reshape(-1) if phases > 1 and rates.ndim == 2 else vector(name, values, n)
        wrong = np.flatnonzero(~np.isfinite(rates))
        if wrong.size:
            raise InvalidInput(f"{name} is {rates[wrong[0]]} in state {wrong[0] % n}; give finite numbers")
        earned.append((key, rates))
    return Question(at.tolist(), earned, place, number("epsilon", epsilon, "a number above 0"), tell)


class watched:
    """Context manager that makes a progress callback of the argument `progress`.

    True shows a bar of tqdm, or without tqdm a line on stderr. The bar ends at 100 % even if the
    work ends before its upper bound.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar: Any = None

    def __enter__(self) -> Callable[[int, int], object] | None:
        progress = self._progress
        if progress is None or progress is False:
            return None
        if progress is not True:
            if not callable(progress):
                raise invalid("progress", progress, "a function of two numbers, True, False or None")
            return progress
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return lambda done, total: print(f"\r{done} of {total}", end="", file=sys.stderr, flush=True)
        bar = self._bar = tqdm()

        def show(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        return show

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            if kind is None:
                self._bar.total = self._bar.n = self._bar.total or 1
                self._bar.refresh()
            self._bar.close()
        elif self._progress is True:
            print(file=sys.stderr)
