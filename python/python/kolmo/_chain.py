"""Chains from files and built-in chains, with labels and rewards."""

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
    """Base of :class:`Chain` and :class:`Model`, which is explored to a chain."""

    def _asked(self) -> Chain:
        """Return the chain; a model is explored first."""
        raise NotImplementedError

    def _phases(self, times: ArrayLike) -> list[tuple[tuple[float, float], _kolmo.Chain]]:
        """Return the phases up to the last time, each with its end; none for constant rates."""
        return []

    def _truncated(self, asked: Question, absorbing: str | None, allowed: float) -> tuple[Chain, dict[str, Any]]:
        """Explore until at most `allowed` is lost, and solve.

        Returns the explored chain and the answer of the compiled module.
        """
        raise InvalidInput(f"truncate is {allowed}: a chain is explored already; leave it out, or ask the model")

    def transient(
        self,
        times: ArrayLike | None = None,
        p0: ArrayLike | None = None,
        *,
        steps: ArrayLike | None = None,
        device: str = "auto",
        epsilon: float = 1e-9,
        rewards: Mapping[str, ArrayLike] | None = None,
        absorbing: ArrayLike | str | None = None,
        truncate: float | None = None,
        precision: Literal["f64", "f32", "q64"] | None = None,
        progress: Progress = None,
    ) -> Transient:
        """Compute probabilities at some times, as :func:`transient` does.

        Without `p0` the initial state or distribution is that of the file or model. Without
        `rewards` the rewards are those of the file or model. `absorbing` may be a label. In
        discrete time, times are numbers of steps; `steps` may give them instead. If constants of a
        model change with time, so do its rewards; labels are those of the first phase.

        With `truncate` a model with infinitely many states, or too many, is explored until at most
        this probability is lost, a part of `epsilon`. Initial state and rewards are then those of
        the model, and `absorbing` is a label or an expression of its variables.
        :attr:`Transient.chain` is the explored chain, with names for the columns of `p`.

        Examples
        --------
        >>> import kolmo
        >>> queue = kolmo.read("birth-death:100,0.9,1")
        >>> r = queue.transient(1000.0)
        >>> bool(r.p[0, 99] < 1e-5)
        True
        """
        place = _input.place(device, precision)
        given = times if steps is None else steps
        if given is None:
            raise InvalidInput("times is missing: give times, or steps of a chain in discrete time")
        if truncate is not None:
            if p0 is not None or rewards is not None or not isinstance(absorbing, (str, type(None))):
                raise InvalidInput(
                    "truncate: states have no numbers before they are explored; leave p0 and rewards out, and give absorbing "
                    "states as a label or by their variables"
                )
            with _input.watched(progress) as tell:
                asked = _input.question(0, given, {}, place, epsilon, tell)
                chain, answer = self._truncated(asked, absorbing, _input.number("truncate", truncate))
            return made(answer, chain.name, chain)
        phases = self._phases(given)
        chain = Chain(phases[0][1]) if phases else self._asked()
        times = _input.steps(times, steps, chain.discrete)
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
            if phases:
                first = chain.initial if begin is None else begin
                answer = _kolmo.piecewise(phases, first, mask, asked, rewards is None)
            else:
                answer = chain._held.transient(begin, mask, asked)
        return made(answer, chain.name, chain)


class Chain(Explored):
    """A Markov chain with labels and rewards, from :func:`read`, :meth:`Model.chain` or a matrix.

    Parameters
    ----------
    matrix : sparse matrix or array_like, (n, n)
        Rates or a generator, as for :func:`transient`.
    discrete : bool
        True for a matrix of the probabilities of a step.

    Attributes
    ----------
    name : str
        File, built-in or model.
    n : int
        Number of states.
    discrete : bool
        True in discrete time.
    labels : dict of str to ndarray of int
        States with each label.
    rewards : dict of str to ndarray
        Reward rate of each state, by the name of the reward.
    initial : ndarray
        Initial probability of each state.
    """

    name: str
    n: int
    discrete: bool
    labels: dict[str, NDArray[np.uint32]]
    rewards: dict[str, Floats]
    initial: Floats

    def __init__(self, matrix: Any, *, discrete: bool = False) -> None:
        held = matrix
        if not isinstance(held, _kolmo.Chain):
            held = _kolmo.chain_of_matrix(_input.compressed("matrix", matrix), _input.flag("discrete", discrete))
        self._held = held
        self.name, self.n, self.discrete = held.name, held.states, held.discrete
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
        """Return the values of the model's variables in a state, if the file has them."""
        number = _input.whole("state", state, self.n)
        if number.ndim != 0:
            raise _input.invalid("state", state, "one number")
        return self._held.state_name(int(number))

    def rates(self) -> Any:
        """Return the rates R as a ``scipy.sparse.csr_array``; in discrete time P without self-loops."""
        import scipy.sparse

        return scipy.sparse.csr_array(self._held.rates(), shape=(self.n, self.n))


def read(path: str | os.PathLike[str], *, discrete: bool = False) -> Chain:
    """Read a chain from a file, or make a built-in chain.

    Parameters
    ----------
    path : path or str
        A .tra, .drn, .mtx, .npz or .npy file, or a built-in such as ``wlan:12,6``,
        ``tandem:15``, ``birth-death:100,0.9,1``. Labels and rewards are read from files with the
        same stem.
    discrete : bool
        True if the entries of a file are probabilities of a step. DRN files declare that
        themselves.

    Raises
    ------
    FileError
        If the file cannot be read, with the line, if the file has lines, and a suggestion.

    Examples
    --------
    >>> import kolmo
    >>> kolmo.read("tandem:5").n
    66
    """
    held = _kolmo.read(_input.path("path", path), _input.flag("discrete", discrete))
    for told in held.warnings:
        warnings.warn(told, UserWarning, stacklevel=2)
    return Chain(held)
