"""The compiled module: it takes what the functions of ``kolmo`` have made of their arguments."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ._input import Compressed, Diagonals, Place, Question, Wish

__all__ = [
    "Chain",
    "Model",
    "TridiagonalFactor",
    "devices",
    "read",
    "read_model",
    "solve_tridiagonal",
    "transient",
    "walk",
]

@final
class Chain:
    @property
    def name(self) -> str: ...
    @property
    def states(self) -> int: ...
    @property
    def labels(self) -> dict[str, NDArray[np.uint32]]: ...
    @property
    def rewards(self) -> dict[str, NDArray[np.float64]]: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def initial(self) -> NDArray[np.float64]: ...
    def state_name(self, state: int) -> str | None: ...
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
    def chain(self, constants: list[tuple[str, bool | int | float]]) -> Chain: ...
    def check(
        self,
        properties: list[str],
        constants: list[tuple[str, list[bool | int | float]]],
        place: Place,
        epsilon: float,
        progress: Callable[[int, int], object] | None,
    ) -> dict[str, Any]: ...

@final
class TridiagonalFactor:
    def __new__(cls, diagonals: Diagonals, place: Place) -> TridiagonalFactor: ...
    def solve(self, b: list[NDArray[np.float64]], transpose: bool) -> dict[str, Any]: ...

def devices() -> list[dict[str, Any]]: ...
def read(spec: str) -> Chain: ...
def read_model(path: str) -> Model: ...
def transient(
    q: Compressed,
    begin: int | NDArray[np.float64],
    absorbing: NDArray[np.bool_] | None,
    question: Question,
) -> dict[str, Any]: ...
def solve_tridiagonal(
    diagonals: Diagonals, b: list[NDArray[np.float64]], transpose: bool, place: Place
) -> dict[str, Any]: ...
def walk(a: Compressed, wish: Wish, place: Place) -> dict[str, Any]: ...
