"""Compiled module, which the package calls with converted arguments."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ._input import Compressed, Derivative, Diagonals, LongRun, Place, Question, Reader, Wish

__all__ = [
    "Borrowed",
    "Chain",
    "DeviceArray",
    "DeviceChain",
    "DeviceLane",
    "Graph",
    "Model",
    "ResidentFactor",
    "TridiagonalFactor",
    "__version__",
    "adjoint",
    "chain_of_matrix",
    "chain_of_rates",
    "devices",
    "exponential",
    "gradient",
    "graph_of_links",
    "long_run",
    "model_of_text",
    "piecewise",
    "read",
    "read_graph",
    "read_model",
    "solve_tridiagonal",
    "transient",
    "transient_batch",
    "transition_matrices",
    "walk",
]

__version__: str

@final
class Borrowed:
    def __new__(cls, name: str, capsule: Any) -> Borrowed: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...
    def column(self, number: int) -> Borrowed: ...
    @staticmethod
    def of_interface(
        owner: Any,
        device: tuple[int, int],
        address: int,
        shape: list[int],
        strides: list[int] | None,
        stream: int | None,
    ) -> Borrowed: ...

@final
class DeviceArray:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class DeviceChain:
    def __new__(
        cls, lane: DeviceLane, n: int, sources: NDArray[np.uint32], targets: NDArray[np.uint32]
    ) -> DeviceChain: ...
    def transient(
        self,
        rates: Borrowed | NDArray[np.float64],
        begin: NDArray[np.float64],
        times: NDArray[np.float64],
        epsilon: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]: ...
    def adjoint(
        self,
        rates: Borrowed | NDArray[np.float64],
        begin: NDArray[np.float64],
        times: NDArray[np.float64],
        values: NDArray[np.float64],
        epsilon: float,
    ) -> tuple[DeviceArray | NDArray[np.float64], NDArray[np.float64], list[float]]: ...

@final
class DeviceLane:
    def __new__(cls, place: Place, device: tuple[int, int]) -> DeviceLane: ...
    @property
    def stream(self) -> int | None: ...
    def transition_matrices(
        self,
        n: int,
        q: Borrowed | NDArray[np.float64],
        times: NDArray[np.float64],
        shape: list[int],
    ) -> tuple[DeviceArray, NDArray[np.float64], float]: ...
    def factor(
        self,
        dl: Borrowed | NDArray[np.float64],
        d: Borrowed | NDArray[np.float64],
        du: Borrowed | NDArray[np.float64],
        batch: int,
        n: int,
        cyclic: bool,
        tolerance: float,
    ) -> ResidentFactor: ...

@final
class ResidentFactor:
    def solve(
        self, b: Sequence[Borrowed | NDArray[np.float64]], transpose: bool, shape: list[int]
    ) -> dict[str, Any]: ...

@final
class Graph:
    @property
    def nodes(self) -> int: ...
    @property
    def links(self) -> int: ...
    def names(self) -> NDArray[np.uint64]: ...
    def equals(self, other: Graph) -> bool: ...
    def __deepcopy__(self, _memo: Any) -> Graph: ...
    def page_rank(self, reader: Reader) -> dict[str, Any]: ...

@final
class Chain:
    @property
    def name(self) -> str: ...
    @property
    def states(self) -> int: ...
    @property
    def discrete(self) -> bool: ...
    @property
    def labels(self) -> dict[str, NDArray[np.uint32]]: ...
    @property
    def rewards(self) -> dict[str, NDArray[np.float64]]: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def initial(self) -> NDArray[np.float64]: ...
    def state_name(self, state: int) -> str | None: ...
    def equals(self, other: Chain) -> bool: ...
    def __deepcopy__(self, _memo: Any) -> Chain: ...
    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]: ...
    def transient(
        self,
        begin: int | NDArray[np.float64] | None,
        absorbing: NDArray[np.bool_] | None,
        question: Question,
    ) -> dict[str, Any]: ...

@final
class Model:
    @property
    def constants(self) -> list[tuple[str, str]]: ...
    @property
    def text(self) -> str: ...
    def __deepcopy__(self, _memo: Any) -> Model: ...
    def chain(self, constants: list[tuple[str, bool | int | float]]) -> Chain: ...
    def phases(
        self,
        constants: list[tuple[str, bool | int | float]],
        schedules: list[tuple[str, list[tuple[float, bool | int | float]], float | None]],
        horizon: float,
    ) -> list[tuple[tuple[float, float], Chain]]: ...
    def check(
        self,
        properties: list[str],
        constants: list[tuple[str, list[bool | int | float]]],
        schedules: list[tuple[str, list[tuple[float, bool | int | float]], float | None]],
        how: tuple[bool, bool],
        place: Place,
        epsilon: float,
        truncate: float | None,
        gradient: list[str],
        progress: Callable[[int, int], object] | None,
    ) -> dict[str, Any]: ...
    def transient(
        self,
        constants: list[tuple[str, bool | int | float]],
        times: list[float],
        absorbing: str | None,
        place: Place,
        epsilon: float,
        allowed: float,
        progress: Callable[[int, int], object] | None,
    ) -> tuple[Chain, dict[str, Any]]: ...

@final
class TridiagonalFactor:
    def __new__(cls, diagonals: Diagonals, place: Place) -> TridiagonalFactor: ...
    def diagonals(self) -> list[NDArray[np.float64]]: ...
    def solve(self, b: list[NDArray[np.float64]], transpose: bool) -> dict[str, Any]: ...

def chain_of_matrix(q: Compressed, discrete: bool) -> Chain: ...
def chain_of_rates(
    name: str,
    rates: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]],
    initial: NDArray[np.float64],
    names: tuple[list[str], str] | None,
    discrete: bool,
) -> Chain: ...
def devices() -> list[dict[str, Any]]: ...
def graph_of_links(
    nodes: int,
    from_: NDArray[np.uint32],
    to: NDArray[np.uint32],
    counts: NDArray[np.float64],
    undirected: bool,
    names: NDArray[np.uint64] | None = None,
) -> Graph: ...
def long_run(subject: Compressed | Chain, question: LongRun) -> dict[str, Any]: ...
def model_of_text(path: str, text: str) -> Model: ...
def read(spec: str, discrete: bool = False) -> Chain: ...
def read_graph(spec: str, undirected: bool, seed: int) -> Graph: ...
def read_model(path: str) -> Model: ...
def transient(
    q: Compressed,
    begin: int | NDArray[np.float64],
    absorbing: NDArray[np.bool_] | None,
    question: Question,
) -> dict[str, Any]: ...
def gradient(
    q: Compressed,
    begin: int | NDArray[np.float64],
    absorbing: NDArray[np.bool_] | None,
    question: Question,
    derivatives: list[Derivative],
    batch: bool,
) -> tuple[list[Any], dict[int, str]]: ...
def adjoint(
    q: Compressed,
    begin: NDArray[np.float64],
    times: NDArray[np.float64],
    values: NDArray[np.float64],
    place: Place,
    epsilon: float,
) -> list[NDArray[np.float64]]: ...
def exponential(
    q: Compressed, forward: bool, block: NDArray[np.float64], question: Question
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def transient_batch(
    q: Compressed, begin: int | NDArray[np.float64], question: Question
) -> dict[str, Any]: ...
def piecewise(
    chains: list[tuple[tuple[float, float], Chain]],
    begin: int | NDArray[np.float64],
    absorbing: NDArray[np.bool_] | None,
    question: Question,
    own: bool,
) -> dict[str, Any]: ...
def solve_tridiagonal(
    diagonals: Diagonals, b: list[NDArray[np.float64]], transpose: bool, place: Place
) -> dict[str, Any]: ...
def transition_matrices(
    n: int, q: NDArray[np.float64], times: NDArray[np.float64], place: Place, progress: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]: ...
def walk(a: Compressed, wish: Wish, place: Place) -> dict[str, Any]: ...
