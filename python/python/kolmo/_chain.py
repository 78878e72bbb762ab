"""Chains from files, with labels and rewards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._input import Floats, Progress, Question
from ._result import same
from ._transient import Transient, made
from .errors import InvalidInput


class Explored:
    """What has probabilities at times: a :class:`Chain`, or a :class:`Model`, which is explored for them."""

    def _asked(self) -> Chain:
        """The chain that is asked."""
        raise NotImplementedError

    def _truncated(self, asked: Question, absorbing: str | None, allowed: float) -> tuple[Chain, dict[str, Any]]:
        """The answer of what is explored until no more than `allowed` is lost, and the chain that is."""
        raise InvalidInput(f"truncate is {allowed}: a chain is explored already; leave it out, or ask the model")

    def transient(
        self,
        times: ArrayLike,
        p0: ArrayLike | None = None,
        *,
        device: str = "auto",
        epsilon: float = 1e-9,
        rewards: Mapping[str, ArrayLike] | None = None,
        absorbing: ArrayLike | str | None = None,
        truncate: float | None = None,
        precision: Literal["f64", "f32", "q64"] | None = None,
        progress: Progress = None,
    ) -> Transient:
        """Probabilities at some times, as :func:`transient` computes them.

        Without `p0` the chain begins as its file or model says; without `rewards` those of the file or model are earned;
        `absorbing` may be a label.

        With `truncate` a model that has infinitely many states, or too many, is explored until no more probability than that is
        lost with the others, a part of `epsilon`. It begins as it says, earns its own rewards, and `absorbing` is a label or an
        expression of its variables; :attr:`Transient.chain` is what was explored, with names for the columns of `p`.

        Examples
        --------
        >>> import kolmo
        >>> queue = kolmo.read("birth-death:100,0.9,1")
        >>> r = queue.transient(1000.0)
        >>> bool(r.p[0, 99] < 1e-5)
        True
        """
        place = _input.place(device, precision)
        if truncate is not None:
            if p0 is not None or rewards is not None or not isinstance(absorbing, (str, type(None))):
                raise InvalidInput(
                    "truncate: states have no numbers before they are explored; leave p0 and rewards out, and give absorbing "
                    "states as a label or by their variables"
                )
            with _input.watched(progress) as tell:
                asked = _input.question(0, times, {}, place, epsilon, tell)
                chain, answer = self._truncated(asked, absorbing, _input.number("truncate", truncate))
            return made(answer, chain.name, chain)
        chain = self._asked()
        if isinstance(absorbing, str):
            if absorbing not in chain.labels:
                there = f"there are {', '.join(chain.labels)}" if chain.labels else "it has no labels: give numbers of states"
                raise InvalidInput(f"{chain.name} has no label '{absorbing}'; {there}")
            absorbing = chain.labels[absorbing]
        earned = chain.rewards if rewards is None else rewards
        begin = None if p0 is None else _input.begin(p0, chain.n, "transient(times, p0) here")
        mask = _input.mask("absorbing", absorbing, chain.n)
        with _input.watched(progress) as tell:
            asked = _input.question(chain.n, times, earned, place, epsilon, tell)
            answer = chain._held.transient(begin, mask, asked)
        return made(answer, chain.name, chain)


class Chain(Explored):
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        ours, theirs = (self.initial, self.labels, self.rewards), (other.initial, other.labels, other.rewards)
        return self is other or (same(ours, theirs) and self._held.equals(other._held))

    def __hash__(self) -> int:
        return hash((Chain, self.n))

    def _asked(self) -> Chain:
        return self

    def state_name(self, state: int) -> str | None:
        """The values of the model's variables in a state, where the file has them."""
        number = _input.whole("state", state, self.n)
        if number.ndim != 0:
            raise _input.invalid("state", state, "one number")
        return self._held.state_name(int(number))

    def rates(self) -> Any:
        """The rates R as a ``scipy.sparse.csr_array``."""
        import scipy.sparse

        return scipy.sparse.csr_array(self._held.rates(), shape=(self.n, self.n))


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
    held = _kolmo.read(_input.path("path", path))
    for told in held.warnings:
        warnings.warn(told, UserWarning, stacklevel=2)
    return Chain(held)
