"""Arguments as the compiled module takes them: arrays of native numbers, contiguous, borrowed where they already are."""

from __future__ import annotations

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
    """Where to solve."""

    device: str
    precision: Literal["f64", "f32", "q64"] | None


class Diagonals(NamedTuple):
    """Tridiagonal matrices one behind the other."""

    dl: Floats
    d: Floats
    du: Floats
    batch: int
    cyclic: bool
    tolerance: float


class Wish(NamedTuple):
    """What is asked of a linear system, and how."""

    b: list[Floats]
    components: list[int]
    functionals: list[Floats]
    epsilon: float | None
    confidence: float
    seed: int
    splitting: str
    lazy: bool
    time_limit: float | None
    progress: Callable[[int, int], object] | None


class Reader(NamedTuple):
    """What is asked of a graph, and how."""

    nodes: list[int] | None
    damping: float
    seeds: list[int]
    relative: float
    epsilon: float
    lazy: bool
    confidence: float
    seed: int
    max_walks: int | None
    progress: Callable[[int, int], object] | None


class Question(NamedTuple):
    """What is asked of a chain, and how."""

    times: list[float]
    rewards: list[tuple[str, Floats]]
    place: Place
    epsilon: float
    progress: Callable[[int, int], object] | None


def exchanged(name: str, values: Any) -> Any:
    """Arrays of other libraries in the host's memory, without a copy; those on devices are refused."""
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
        f"{name} lies on {where}; only tridiagonal systems are solved where arrays of other libraries lie, on CUDA devices: give a "
        f"copy on the host, such as {name}.cpu() of torch or cupy.asnumpy({name})"
    )


def real(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of real numbers of some type, without a copy."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(f"{name} is a masked array; give {name}.filled(...)")
    if hasattr(values, "toarray"):
        raise InvalidInput(f"{name} is sparse; give {name}.toarray()")
    array = np.asarray(exchanged(name, values))
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"{name} holds {array.dtype}; give real numbers, such as float64")
    return array


def floats(name: str, values: ArrayLike) -> Floats:
    """A contiguous array of native doubles: the argument itself where it is one."""
    return np.asarray(real(name, values), dtype=np.float64, order="C")


def vector(name: str, values: ArrayLike, n: int) -> Floats:
    """The same, of n numbers."""
    array = floats(name, values)
    if array.shape != (n,) or np.ndim(values) != 1:
        raise InvalidInput(f"{name} has the shape {np.shape(values)}; give {n} numbers, one a row")
    return array


def whole(name: str, values: ArrayLike, n: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to n − 1, in the shape that they have."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInput(f"{name} holds {array.dtype}; give whole numbers from 0 to {n - 1}")
    outside = (array < 0) | (array >= n) if array.size else np.zeros(0, dtype=np.bool_)
    if np.any(outside):
        raise InvalidInput(f"{name} is {array[outside].flat[0]}; give a number from 0 to {n - 1}")
    return array.astype(np.int64)


def mask(name: str, states: ArrayLike | None, n: int) -> NDArray[np.bool_] | None:
    """States as a mask, from a mask or from their numbers."""
    if states is None:
        return None
    array = np.asarray(states)
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


def compressed(name: str, matrix: Any) -> Compressed:
    """A square matrix of SciPy, its arrays borrowed where it is csr or csc; or a dense one, its zeros left out."""
    sparse = hasattr(matrix, "tocsr") and hasattr(matrix, "format")
    if not sparse:
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
        warnings.warn(told, ConversionWarning, stacklevel=3)
        matrix = matrix.tocsc()
    if not matrix.has_canonical_format:
        told = f"{name} has unsorted or repeated indices: a copy is sorted; call {name}.sum_duplicates() first"
        warnings.warn(told, ConversionWarning, stacklevel=3)
        matrix = matrix.copy()
        matrix.sum_duplicates()
    indptr, indices = matrix.indptr, matrix.indices
    if indptr.dtype != indices.dtype or indices.dtype not in (np.int32, np.int64):
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    indptr, indices = np.ascontiguousarray(indptr), np.ascontiguousarray(indices)
    return Compressed(n, matrix.format == "csc", indptr, indices, _values(name, matrix.data))


def begin(p0: ArrayLike | None, n: int) -> int | Floats:
    """The beginning of a chain: state 0, a state, or a distribution."""
    if p0 is None:
        return 0
    if np.ndim(p0) == 0:
        return int(whole("p0", p0, n))
    return vector("p0", p0, n)


def question(
    n: int,
    times: ArrayLike,
    rewards: Mapping[str, ArrayLike],
    place: Place,
    epsilon: float,
    progress: Progress,
) -> Question:
    """What is asked of a chain of n states."""
    at = np.atleast_1d(floats("times", times))
    if at.ndim != 1 or at.size == 0:
        raise InvalidInput(f"times has the shape {np.shape(times)}; give one time or a list of them")
    earned = [(name, vector(f"rewards[{name!r}]", values, n)) for name, values in rewards.items()]
    return Question(at.tolist(), earned, place, float(epsilon), callback(progress))


def callback(progress: Progress) -> Callable[[int, int], object] | None:
    """A function of the work done and all work; True is a bar of tqdm where that is installed, or a line on stderr."""
    if not progress:
        return None
    if progress is not True:
        return progress
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return lambda done, total: print(f"\r{done} of {total}", end="", file=sys.stderr, flush=True)
    bar = tqdm()

    def show(done: int, total: int) -> None:
        bar.total, bar.n = total, done
        bar.refresh()
        if done >= total > 0:
            bar.close()

    return show


