"""Chains from files, with labels and rewards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._input import Floats, Place, Progress
from ._transient import Transient, made
from .errors import InvalidInput


class Chain:
    """A chain as a file has it; made by :func:`read`.

    Attributes
    ----------
    name : str
        The file or the built-in.
    n : int
        Number of states.
    labels : dict of str to ndarray of int
        The states with each label.
    rewards : dict of str to ndarray
        What each state earns in a unit of time.
    initial : ndarray
        The probability of each state at the beginning.
    """

    name: str
    n: int
    labels: dict[str, NDArray[np.uint32]]
    rewards: dict[str, Floats]
    initial: Floats

    def __init__(self, held: _kolmo.Chain) -> None:
        self._held = held
        self.name, self.n = held.name, held.states
        self.labels, self.rewards, self.initial = held.labels, held.rewards, held.initial

    def __repr__(self) -> str:
        return f"Chain({self.name!r}, {self.n} states, labels {sorted(self.labels)}, rewards {sorted(self.rewards)})"

    def state_name(self, state: int) -> str | None:
        """The values of the model's variables in a state, where the file has them."""
        return self._held.state_name(int(_input.whole("state", state, self.n)))

    def rates(self) -> Any:
        """The rates R as a ``scipy.sparse.csr_array``."""
        import scipy.sparse

        return scipy.sparse.csr_array(self._held.rates(), shape=(self.n, self.n))

    def transient(
        self,
        times: ArrayLike,
        p0: ArrayLike | None = None,
        *,
        device: str = "auto",
        epsilon: float = 1e-9,
        rewards: Mapping[str, ArrayLike] | None = None,
        absorbing: ArrayLike | str | None = None,
        precision: Literal["f64", "f32", "q64"] | None = None,
        progress: Progress = None,
    ) -> Transient:
        """Probabilities at some times, as :func:`transient` computes them.

        Without `p0` the chain begins as its file says; without `rewards` those of the file are earned; `absorbing` may
        be a label.

        Examples
        --------
        >>> import kolmo
        >>> queue = kolmo.read("birth-death:100,0.9,1")
        >>> r = queue.transient(1000.0)
        >>> bool(r.p[0, 99] < 1e-5)
        True
        """
        if isinstance(absorbing, str):
            if absorbing not in self.labels:
                raise InvalidInput(f"{self.name} has no label '{absorbing}'; there are {', '.join(self.labels)}")
            absorbing = self.labels[absorbing]
        earned = self.rewards if rewards is None else rewards
        asked = _input.question(self.n, times, earned, Place(device, precision), epsilon, progress)
        begin = None if p0 is None else _input.begin(p0, self.n)
        return made(self._held.transient(begin, _input.mask("absorbing", absorbing, self.n), asked), self.name)


def read(path: str | os.PathLike[str]) -> Chain:
    """The chain of a file: .tra, .drn, .umb, .mtx, .npz, .npy, with labels and rewards of the same stem beside it.

    Parameters
    ----------
    path : path or str
        The file, or a built-in such as ``wlan:12,6``, ``tandem:15``, ``birth-death:100,0.9,1``.

    Raises
    ------
    FileError
        With the line and the remedy, where the file has lines.

    Examples
    --------
    >>> import kolmo
    >>> kolmo.read("tandem:5").n
    66
    """
    held = _kolmo.read(os.fspath(path))
    for told in held.warnings:
        warnings.warn(told, UserWarning, stacklevel=2)
    return Chain(held)
