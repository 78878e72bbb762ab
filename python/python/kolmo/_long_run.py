"""Stationary distributions, absorption, hitting times, rewards and visits of Markov chains."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._chain import Chain, Explored, read
from ._input import Compressed, Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput

Kind: TypeAlias = Literal["generator", "rates", "stochastic"]


@dataclass(frozen=True, eq=False, repr=False)
class _LongRun(Result):
    """Common fields of the results."""

    met: bool
    kind: Kind
    residual: float | None
    limit: str | None
    seconds: float = field(compare=False)

    @property
    def status(self) -> Literal["met", "not_met"]:
        """``met`` if the bound is as small as requested, else ``not_met``."""
        return "met" if self.met else "not_met"

    def _summary(self, size: str, bound: Any) -> str:
        return f"{type(self).__name__}({size}, bound up to {np.max(bound):.2g}: {'met' if self.met else 'not met'})"


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(_LongRun):
    """A stationary or limit distribution, with an error bound.

    Attributes
    ----------
    p : ndarray
        Probability of each state; exactly 0 in transient states.
    bound : float
        Proved bound on the sum of the errors of all probabilities.
    met : bool
        True if the bound is at most epsilon.
    kind : {'generator', 'rates', 'stochastic'}
        Kind of the matrix; a chain or model has rates.
    residual : float or None
        Residual at the last step of an iteration, relative to the first one of its equations. None
        if the states were eliminated.
    limit : str or None
        Reason why the bound falls no further, such as 'the time limit'; None if it is met.
    device : str
        Devices of the solver.
    seconds : float
        Seconds of the solver.
    gradient : dict of str to ndarray
        Derivative of `p` by each parameter.
    gradient_bound : dict of str to float
        Proved bound on the sum of the errors of each derivative.
    """

    p: Floats
    bound: float
    device: str
    gradient: dict[str, Floats] = field(default_factory=dict)
    gradient_bound: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self._summary(counted(len(self.p), "state"), self.bound)


@dataclass(frozen=True, eq=False, repr=False)
class Absorption(_LongRun):
    """Probabilities of reaching sets of states first, from every state, with error bounds.

    Attributes
    ----------
    targets : list of str
        Names of the sets.
    p : ndarray, (n, sets)
        Probability from each state of reaching each set before the others. Exactly 0 if the set is
        never reached, exactly 1 if it surely is.
    bound : ndarray, (n, sets)
        Proved bound on the error of each probability.
    met : bool
        True if every bound is at most epsilon.
    kind, residual, limit, seconds
        As in :class:`Stationary`.
    gradient : dict of str to ndarray, (n, sets)
        Derivative of `p` by each parameter.
    gradient_bound : dict of str to ndarray, (n, sets)
        Proved bound on the error of each derivative.
    """

    targets: list[str]
    p: Floats
    bound: Floats
    gradient: dict[str, Floats] = field(default_factory=dict)
    gradient_bound: dict[str, Floats] = field(default_factory=dict)

    def __repr__(self) -> str:
        asked = f"{counted(self.p.shape[0], 'state')}, {counted(self.p.shape[1], 'set')}"
        never = int(np.count_nonzero(~self.p.any(axis=1)))
        return self._summary(asked + (f", none reached from {never}" if never else ""), self.bound)


@dataclass(frozen=True, eq=False, repr=False)
class StateValues(_LongRun):
    """Expected times or rewards from every state, with error bounds.

    Attributes
    ----------
    values : ndarray
        Expectation from each state; infinite if the target may never be reached.
    bound : ndarray
        Proved bound on the error of each finite value; 0 for infinite ones.
    met : bool
        True if every bound is at most epsilon times the largest finite value.
    kind, residual, limit, seconds
        As in :class:`Stationary`.
    gradient : dict of str to ndarray
        Derivative of `values` by each parameter; NaN where the value is infinite.
    gradient_bound : dict of str to ndarray
        Proved bound on the error of each derivative.
    """

    values: Floats
    bound: Floats
    gradient: dict[str, Floats] = field(default_factory=dict)
    gradient_bound: dict[str, Floats] = field(default_factory=dict)

    def __repr__(self) -> str:
        endless = int(np.count_nonzero(np.isinf(self.values)))
        asked = counted(len(self.values), "state")
        return self._summary(asked + (f", infinite from {endless}" if endless else ""), self.bound)


@dataclass(frozen=True, eq=False, repr=False)
class Visits(_LongRun):
    """Expected time spent in every state, with an error bound.

    Attributes
    ----------
    values : ndarray
        Expected time in each state; for a stochastic matrix the expected number of visits. 0 in
        states where the time ends, infinite in states of other closed classes that may be reached.
    bound : float
        Proved bound on the sum of the errors of all finite values.
    met : bool
        True if the bound is at most epsilon times the sum of all finite values.
    kind, residual, limit, device, seconds
        As in :class:`Stationary`.
    """

    values: Floats
    bound: float
    device: str

    def __repr__(self) -> str:
        endless = int(np.count_nonzero(np.isinf(self.values)))
        asked = counted(len(self.values), "state")
        return self._summary(asked + (f", infinite in {endless}" if endless else ""), self.bound)


class _Subject:
    """The chain of a question: a matrix, a file or built-in, a chain or a model."""

    def __init__(self, Q: Any, kind: Kind | None) -> None:
        if isinstance(Q, (str, bytes, os.PathLike)):
            Q = read(os.fsdecode(Q))
        if kind not in (None, "generator", "rates", "stochastic"):
            raise _input.invalid("kind", kind, "'generator', 'rates', 'stochastic' or None")
        self._kind = kind
        self.chain: Chain | None = None
        if isinstance(Q, Explored):
            chain = self.chain = Q._asked()
            if kind is not None:
                raise InvalidInput(f"kind is {kind!r}, but {chain.name} is a chain, which has rates: leave kind out")
            self._held: Compressed | _kolmo.Chain = chain._held
            self.n = chain.n
        else:
            self._held = _input.compressed("Q", Q, 4)
            self.n = self._held.n

    def states(self, name: str, given: Any) -> NDArray[np.uint32]:
        """Convert a state, states, a mask or a label to numbers of states."""
        if isinstance(given, str):
            labels = {} if self.chain is None else self.chain.labels
            if given not in labels:
                there = f"the labels {', '.join(labels)}" if labels else "numbers of states or a mask, since there are no labels"
                raise _input.invalid(name, given, there)
            return labels[given]
        mask = _input.mask(name, np.atleast_1d(_input.as_array(name, given)), self.n)
        return np.flatnonzero(np.asarray(mask)).astype(np.uint32)

    def ask(
        self,
        name: str,
        sets: list[tuple[str, NDArray[np.uint32]]],
        epsilon: float,
        time_limit: float | None,
        progress: Progress,
        *,
        begin: ArrayLike | None = None,
        reward: Floats | None = None,
        device: str = "cpu",
        gradient: Mapping[str, Any] | None = None,
        gradient_p0: Mapping[str, ArrayLike] | None = None,
    ) -> dict[str, Any]:
        """Call the compiled module, and warn if the bound exceeds epsilon."""
        start = None if begin is None else _input.begin(begin, self.n, "stationary(Q, p0), visits(Q, p0)")
        place, epsilon = _input.place(device, None), _input.number("epsilon", epsilon, "a number above 0")
        if time_limit is not None:
            time_limit = _input.number("time_limit", time_limit, "a number of seconds")
        with _input.watched(progress) as tell:
            by = _input.derivatives(self.n, gradient, gradient_p0)
            asked = _input.LongRun(name, self._kind, sets, start, reward, place, epsilon, time_limit, by, tell)
            answer = _kolmo.long_run(self._held, asked)
        if not answer["met"]:
            why = f", limited by {answer['limit']}" if answer["limit"] else ""
            largest = max(np.max(bound) for bound in (answer["bound"], *answer["gradient_bound"].values()))
            told = f"the bound is {largest:.2g}, more than epsilon allows{why}; see the field bound of the result"
            warnings.warn(told, BoundWarning, stacklevel=3)
        return answer


def stationary(
    Q: Any,
    p0: ArrayLike | None = None,
    *,
    kind: Kind | None = None,
    device: str = "auto",
    epsilon: float = 1e-9,
    gradient: Mapping[str, Any] | None = None,
    gradient_p0: Mapping[str, ArrayLike] | None = None,
    time_limit: float | None = None,
    progress: Progress = None,
) -> Stationary:
    """Compute the stationary distribution of a Markov chain.

    Parameters
    ----------
    Q : sparse matrix or array_like, (n, n), path, Chain or Model
        A generator, rates, or a stochastic matrix: see `kind`. Or a file or built-in as for
        :func:`read`, or a chain or model.
    p0 : int or array_like of n numbers, optional
        Initial state or distribution. It is needed if the chain has several closed classes: the
        result is then its limit distribution, averaged over time if the chain is periodic.
    kind : {'generator', 'rates', 'stochastic'}, optional
        Kind of the matrix. A generator has a negative diagonal, and rows that sum to 0. The rows of
        a stochastic matrix sum to 1 within 0.001, and a step takes one unit of time; the diagonal
        entry is taken as 1 minus the other entries of its row. All other matrices hold rates, whose
        diagonal has no effect. Without `kind` the kind is recognised by these rules, and
        :attr:`Stationary.kind` returns it. With `kind` a matrix of another kind is an error.
    device : str
        As in :func:`transient`.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities.
    gradient : mapping of str to sparse matrix or array_like, optional
        Derivative of `Q` by each parameter; requests the derivatives of the result, which are
        computed on the CPU. Entries must belong to rates above 0; the diagonal may be left out.
        `met` also compares the bounds of derivatives with `epsilon`. If the absolute values of a
        derivative sum to more than 1, its bound is divided by this sum.
    gradient_p0 : mapping of str to array_like of n numbers, optional
        Derivative of `p0` by each parameter on which it depends; requires `p0`.
    time_limit : float, optional
        Seconds after which an iteration ends with the best bound so far.
    progress : callable or bool, optional
        As in :func:`transient`.

    Returns
    -------
    Stationary

    Raises
    ------
    InvalidInput
        If the chain has several closed classes, without `p0`. With `gradient`, if more than 64 of
        them are reached.

    Examples
    --------
    >>> import kolmo
    >>> s = kolmo.stationary([[0.9, 0.1], [0.5, 0.5]])
    >>> s.kind, s.p.round(4).tolist()
    ('stochastic', [0.8333, 0.1667])

    A machine fails at the rate 1 and is repaired at the rate 3. The probability that it is down
    grows with the rate of failures:

    >>> s = kolmo.stationary([[-1, 1], [3, -3]], gradient={"failure": [[-1, 1], [0, 0]]})
    >>> round(float(s.gradient["failure"][1]), 4), s.gradient_bound["failure"] < 1e-12
    (0.1875, True)
    """
    if gradient_p0 is not None and p0 is None:
        raise InvalidInput("gradient_p0 is given without p0; give the initial distribution, too")
    answer = _Subject(Q, kind).ask(
        "stationary", [], epsilon, time_limit, progress, begin=p0, device=device, gradient=gradient, gradient_p0=gradient_p0
    )
    answer = _only(answer, lambda bound: float(bound[0, 0]))
    return Stationary(p=answer.pop("values"), **answer)


def visits(
    Q: Any,
    start: ArrayLike | None = None,
    *,
    until: ArrayLike | str | None = None,
    kind: Kind | None = None,
    device: str = "auto",
    epsilon: float = 1e-9,
    time_limit: float | None = None,
    progress: Progress = None,
) -> Visits:
    """Compute the expected time spent in each state until absorption.

    For a stochastic matrix this is the expected number of visits: row `start` of the fundamental
    matrix.

    Parameters
    ----------
    Q, kind
        As in :func:`stationary`.
    start : int or array_like of n numbers, optional
        Initial state or distribution; by default that of the file or model, and state 0 of a
        matrix.
    until : int, array_like of int or bool, or str, optional
        States where the time ends: a state, a list, a mask, or a label of a chain. By default all
        states of closed classes.
    device, progress
        As in :func:`transient`.
    epsilon : float
        Requested bound on the sum of all errors, relative to the sum of all finite values.
    time_limit : float, optional
        As in :func:`stationary`.

    Returns
    -------
    Visits

    Examples
    --------
    >>> import kolmo
    >>> kolmo.visits([[0, 0.5, 0.5], [0.5, 0, 0.5], [0, 0, 1]], start=0).values.round(4).tolist()
    [1.3333, 0.6667, 0.0]
    """
    subject = _Subject(Q, kind)
    sets = [] if until is None else [("until", subject.states("until", until))]
    begin = 0 if start is None and subject.chain is None else start
    answer = subject.ask("visits", sets, epsilon, time_limit, progress, begin=begin, device=device)
    del answer["gradient"], answer["gradient_bound"]
    return Visits(**answer | {"values": answer["values"][0], "bound": float(answer["bound"][0, 0])})


def absorption(
    Q: Any,
    targets: Mapping[str, Any],
    *,
    kind: Kind | None = None,
    epsilon: float = 1e-9,
    gradient: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    progress: Progress = None,
) -> Absorption:
    """Compute the probability of reaching each set before all others, from every state.

    The states of all sets are made absorbing.

    Parameters
    ----------
    Q, kind
        As in :func:`stationary`.
    targets : mapping of str to int, array_like of int or bool, or str
        Disjoint sets of states by name: a state, a list, a mask, or a label of a chain.
    epsilon : float
        Requested bound on the error of each probability.
    gradient : mapping of str to sparse matrix or array_like, optional
        As in :func:`stationary`. The bound of a derivative is compared with `epsilon` times the
        largest derivative, or with `epsilon` if that is larger.
    time_limit : float, optional
        As in :func:`stationary`.
    progress : callable or bool, optional
        As in :func:`transient`.

    Returns
    -------
    Absorption

    Raises
    ------
    InvalidInput
        For a set that is empty, overlaps with another, or is reached from no other state.

    Examples
    --------
    A gambler with 0 to 3 coins wins or loses one with equal odds:

    >>> import kolmo
    >>> P = [[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 1]]
    >>> kolmo.absorption(P, targets={"ruined": 0, "rich": 3}).p.round(4).tolist()
    [[1.0, 0.0], [0.6667, 0.3333], [0.3333, 0.6667], [0.0, 1.0]]
    """
    subject = _Subject(Q, kind)
    if not isinstance(targets, Mapping):
        raise _input.invalid("targets", targets, "a mapping of names to states, such as {'a': [0, 1]}")
    sets = []
    for name, states in targets.items():
        if not isinstance(name, str):
            raise _input.invalid("targets", name, "names that are strings")
        sets.append((name, subject.states(f"targets[{name!r}]", states)))
    answer = subject.ask("absorption", sets, epsilon, time_limit, progress, gradient=gradient)
    columns = {name: np.ascontiguousarray(answer.pop(name).T) for name in ("values", "bound")}
    for name in ("gradient", "gradient_bound"):
        answer[name] = {of: np.ascontiguousarray(values.T) for of, values in answer[name].items()}
    return Absorption(targets=list(targets), p=columns["values"], bound=columns["bound"], **answer)


def expected_reward(
    Q: Any,
    reward: ArrayLike,
    until: ArrayLike | str | None = None,
    *,
    kind: Kind | None = None,
    epsilon: float = 1e-9,
    gradient: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    progress: Progress = None,
) -> StateValues:
    """Compute the expected reward until some states are reached, from every state.

    Parameters
    ----------
    Q, kind
        As in :func:`stationary`.
    reward : array_like of n numbers, or str
        Reward of each state per unit of time, per step for a stochastic matrix; or the name of a
        reward of a chain.
    until : int, array_like of int or bool, or str, optional
        States where the reward ends: a state, a list, a mask, or a label of a chain. Values are
        infinite in states from which these may never be reached. Without `until` the reward is
        accumulated for ever, and must be 0 in closed classes.
    epsilon : float
        Requested bound on the error of each value, relative to the largest finite value.
    gradient : mapping of str to sparse matrix or array_like, optional
        As in :func:`stationary`. The bounds of a derivative are relative to the largest value or
        derivative. The rewards do not depend on the parameters.
    time_limit : float, optional
        As in :func:`stationary`.
    progress : callable or bool, optional
        As in :func:`transient`.

    Returns
    -------
    StateValues

    Raises
    ------
    InvalidInput
        If `until` is empty or reached from no other state, or if a total is infinite without it.

    Examples
    --------
    >>> import kolmo
    >>> kolmo.expected_reward([[0, 1.0, 0], [0, 0, 2.0], [0, 0, 0]], [3, 4, 5], until=2).values.tolist()
    [5.0, 2.0, 0.0]
    """
    subject = _Subject(Q, kind)
    if isinstance(reward, str):
        known = {} if subject.chain is None else subject.chain.rewards
        if reward not in known:
            there = f"the rewards {', '.join(known)}" if known else f"{subject.n} numbers, since there are no rewards"
            raise _input.invalid("reward", reward, there)
        reward = known[reward]
    earned = _input.vector("reward", reward, subject.n)
    sets = [] if until is None else [("until", subject.states("until", until))]
    answer = subject.ask("reward", sets, epsilon, time_limit, progress, reward=earned, gradient=gradient)
    return StateValues(**_only(answer))


def hitting_time(
    Q: Any,
    target: ArrayLike | str,
    *,
    kind: Kind | None = None,
    epsilon: float = 1e-9,
    gradient: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    progress: Progress = None,
) -> StateValues:
    """Compute the expected time until a target is reached, from every state.

    Parameters
    ----------
    Q, kind
        As in :func:`stationary`.
    target : int, array_like of int or bool, or str
        States to reach: a state, a list, a mask, or a label of a chain. The time is infinite from
        states that may never reach it.
    epsilon, gradient, time_limit, progress
        As in :func:`expected_reward`.

    Returns
    -------
    StateValues

    Examples
    --------
    >>> import kolmo
    >>> kolmo.hitting_time([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], target=2).values.tolist()
    [4.0, 2.0, 0.0]
    """
    subject = _Subject(Q, kind)
    sets = [("target", subject.states("target", target))]
    ones = np.ones(subject.n)
    answer = subject.ask("reward", sets, epsilon, time_limit, progress, reward=ones, gradient=gradient)
    return StateValues(**_only(answer))


def _only(answer: dict[str, Any], bound: Callable[[Any], Any] = lambda bound: bound[0]) -> dict[str, Any]:
    """Return an answer with the values and bounds of its only row."""
    gradient = {name: values[0] for name, values in answer["gradient"].items()}
    bounds = {name: bound(values) for name, values in answer["gradient_bound"].items()}
    one = {"values": answer["values"][0], "bound": bound(answer["bound"])}
    return answer | one | {"gradient": gradient, "gradient_bound": bounds}
