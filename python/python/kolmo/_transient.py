"""Transient probabilities of Markov chains, in continuous or discrete time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class Transient(Result):
    """Probabilities of a chain at some times, with error bounds.

    Attributes
    ----------
    times : ndarray
        Times, in the order of the argument.
    p : ndarray
        Probabilities: a row for each time, a column for each state.
    bound : ndarray
        Proved bound on the sum of the errors of all probabilities, for each time:
        ``truncation + steady_state + rounding + loss``.
    truncation : ndarray
        Poisson probability that is left out.
    steady_state : ndarray
        Error of early termination; 0 for the time ``inf``.
    rounding : ndarray
        Bound on all rounding errors; for the time ``inf``, on the whole error. With ``gradient``, it
        includes the error of early termination.
    loss : ndarray
        Probability lost with states that a truncated model leaves out; 0 otherwise.
    met : bool
        True if every bound is at most epsilon.
    rewards : dict of str to ndarray
        Expected rate of each reward at each time.
    accumulated : dict of str to ndarray
        Expected sum of each reward up to each time.
    device : str
        Devices of the solver.
    alpha : float
        Uniformization rate: the largest exit rate.
    terms : int
        Matrix–vector products.
    seconds : float
        Seconds of the solver.
    chain : Chain or None
        Chain that names the columns of `p`; None for a matrix.
    gradient : dict of str to ndarray
        Derivatives of `p` by each parameter, of the same shape.
    gradient_bound : dict of str to ndarray
        Proved bound on the sum of the errors of all derivatives, for each time.
    gradient_rewards : dict of str to dict of str to ndarray
        Derivatives of `rewards` by each parameter, for each reward.
    gradient_accumulated : dict of str to dict of str to ndarray
        Derivatives of `accumulated` by each parameter, for each reward.
    """

    times: Floats
    p: Floats
    bound: Floats
    truncation: Floats
    steady_state: Floats
    rounding: Floats
    loss: Floats
    met: bool
    rewards: dict[str, Floats]
    accumulated: dict[str, Floats]
    device: str
    alpha: float
    terms: int
    seconds: float = field(compare=False)
    chain: Any = None
    gradient: dict[str, Floats] = field(default_factory=dict)
    gradient_bound: dict[str, Floats] = field(default_factory=dict)
    gradient_rewards: dict[str, dict[str, Floats]] = field(default_factory=dict)
    gradient_accumulated: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = f"{counted(self.p.shape[0], 'time')}, {counted(self.p.shape[1], 'state')}"
        met = "met" if self.met else "not met"
        return f"Transient({shape}, bound up to {self.bound.max():.2g}: {met}, device {self.device!r})"

    @property
    def status(self) -> Literal["met", "not_met"]:
        """``met`` if every bound is at most epsilon, else ``not_met``."""
        return "met" if self.met else "not_met"

    def plot(self, states: ArrayLike | None = None, ax: Any = None) -> Any:
        """Draw probabilities over time with matplotlib.

        Parameters
        ----------
        states : array_like of int, optional
            States to draw; by default the five most likely ones at any time.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default the current ones.

        Returns
        -------
        matplotlib.axes.Axes
        """
        import matplotlib.pyplot as plt

        if states is None:
            states = np.argsort(self.p.max(axis=0))[: -6 : -1]
        n, chosen = self.p.shape[1], _input.as_array("states", states)
        if chosen.dtype == np.bool_ and chosen.shape == (n,):
            chosen = np.flatnonzero(chosen)
        chosen = _input.whole("states", chosen, n)
        ax = plt.gca() if ax is None else ax
        order = np.argsort(self.times)
        for state in np.atleast_1d(chosen):
            ax.plot(self.times[order], self.p[order, state], label=f"state {state}")
        ax.set_xlabel("time")
        ax.set_ylabel("probability")
        ax.legend()
        return ax


def made(answer: dict[str, Any], name: str, chain: Any = None) -> Transient:
    """Make the result of an answer of the compiled module, and issue its warnings."""
    for contradiction in answer.pop("contradictions"):
        warnings.warn(contradiction, BoundWarning, stacklevel=3)
    if answer.pop("stochastic", False):
        told = (
            f"{name}: the rates of every state sum to 1: is this a discrete-time chain? Its entries are read as rates; "
            "discrete=True reads them as probabilities of a step"
        )
        warnings.warn(told, UserWarning, stacklevel=3)
    result = Transient(**answer, chain=chain)
    if not result.met:
        largest = max(bound.max() for bound in (result.bound, *result.gradient_bound.values()))
        told = f"the bound is {largest:.2g}, more than epsilon; see Transient.bound"
        warnings.warn(told, BoundWarning, stacklevel=3)
    return result


def transient(
    Q: Any,
    p0: ArrayLike | None = None,
    times: ArrayLike | None = None,
    *,
    steps: ArrayLike | None = None,
    discrete: bool = False,
    device: str = "auto",
    epsilon: float = 1e-9,
    rewards: Mapping[str, ArrayLike] | None = None,
    absorbing: ArrayLike | None = None,
    precision: Literal["f64", "f32", "q64"] | None = None,
    gradient: Mapping[str, Any] | None = None,
    gradient_p0: Mapping[str, ArrayLike] | None = None,
    progress: Progress = None,
) -> Transient:
    """Compute p0 exp(Q t) of a chain in continuous time, or p0 P^k in discrete time.

    `Q` may be a list of phases (end, Q): each matrix holds from the end of the phase before, or
    from 0, to its own end; the last end may be ``inf``. A phase (end, chain) with a
    :class:`Chain` in discrete time is a jump: one of its steps at the end of the phase before.

    Parameters
    ----------
    Q : sparse matrix or array_like, (n, n); or list of pairs (end, Q)
        Rate from state i to state j in entry (i, j). A matrix with a negative diagonal is a
        generator, and its rows sum to 0; a matrix without one holds the rates alone. The arrays of
        a ``csr`` or ``csc`` matrix are borrowed, if indices are int32 or int64 and values float32
        or float64. The solver needs rows and columns, and builds the missing order, in 12 bytes
        per entry. Do not change the matrix in another thread during the call.
    p0 : int or array_like of n numbers, optional
        Initial state, or the initial probability of each state; by default state 0.
    times : float or array_like
        Times from 0 to ``inf`` (steady state).
    steps : int or array_like, optional
        Numbers of steps in discrete time, instead of `times`; ``inf`` is the long run.
    discrete : bool
        True if `Q` is a matrix P of the probabilities of a step. Its rows sum to 1 within 1e-6,
        and are divided by their sums. Time is then discrete, and rewards are earned per step.
    device : str
        ``auto``, ``cpu``, ``cuda:N``, ``wgpu:N``, or several with commas between them; see
        :func:`devices`.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities.
    rewards : mapping of str to array_like of n numbers, optional
        Reward rate of each state, by the name of the reward. With m phases, an array (m, n) has
        the rates in each phase; those of jumps are not used.
    absorbing : array_like of bool or int, optional
        States to make absorbing: a mask or a list.
    precision : {'f64', 'f32', 'q64'}, optional
        Type of the numbers on the device; by default f64, or f32 on devices without f64.
    gradient : mapping of str to sparse matrix or array_like, optional
        Derivative of `Q` by each parameter; requests the derivatives of the probabilities. Entries
        must belong to rates that `Q` stores; the diagonal may be left out. Times must be finite,
        and the device must have f64. `met` also compares the bounds of derivatives with `epsilon`.
    gradient_p0 : mapping of str to array_like of n numbers, optional
        Derivative of `p0` by each parameter on which it depends. These parameters may be in
        `gradient`, too.
    progress : callable or bool, optional
        Called about ten times a second with the matrix–vector products done and an upper bound of
        their total. An exception stops the work. True shows a progress bar.

    Returns
    -------
    Transient

    Raises
    ------
    InvalidInput, DeviceError, DeviceLost, OutOfMemory

    Examples
    --------
    A machine fails once in 50 hours and is repaired in 4 hours on average. The probability that it
    is down after 8 hours:

    >>> import kolmo
    >>> r = kolmo.transient([[-0.02, 0.02], [0.25, -0.25]], times=8)
    >>> round(float(r.p[0, 1]), 4)
    0.0655
    >>> bool(r.bound[0] < 1e-9)
    True

    In discrete time, the weather of the day after tomorrow:

    >>> r = kolmo.transient([[0.9, 0.1], [0.5, 0.5]], steps=2, discrete=True)
    >>> round(float(r.p[0, 1]), 12)
    0.14

    The machine is repaired by day alone, in the first 8 of 24 hours:

    >>> day, night = [[-0.02, 0.02], [0.25, -0.25]], [[-0.02, 0.02], [0, 0]]
    >>> r = kolmo.transient([(8, day), (24, night), (32, day)], times=[8, 24, 32])
    >>> r.p[:, 1].round(4).tolist()
    [0.0655, 0.3214, 0.1026]

    A failure rate that is higher by 0.001 an hour raises the probability after 8 hours by 0.0031:

    >>> Q, failure = [[-0.02, 0.02], [0.25, -0.25]], [[-1, 1], [0, 0]]
    >>> r = kolmo.transient(Q, times=8, gradient={"failure": failure})
    >>> round(float(r.gradient["failure"][0, 1]), 3)
    3.102
    """
    differentiated = gradient is not None or gradient_p0 is not None
    if phased := _phases(Q):
        if differentiated:
            raise InvalidInput("gradient is not supported for phases; give one matrix Q")
        if steps is not None or discrete:
            raise InvalidInput("Q is a list of phases, which have times; leave steps and discrete out")
        return _piecewise(phased, p0, times, device, epsilon, rewards, absorbing, precision, progress)
    matrix = _input.compressed("Q", Q)
    discrete = _input.flag("discrete", discrete)
    times = _input.steps(times, steps, discrete)
    if times is None:
        told = "the order of arguments is transient(Q, p0, times); give times=... to begin in state 0"
        raise InvalidInput(f"times is missing: {told}")
    n, place = matrix.n, _input.place(device, precision)
    begin = _input.begin(p0, n, "transient(Q, p0, times)")
    mask = _input.mask("absorbing", absorbing, n)
    with _input.watched(progress) as tell:
        asked = _input.question(n, times, {} if rewards is None else rewards, place, epsilon, tell)
        if differentiated:
            by = _input.derivatives(n, gradient, gradient_p0)
            return made(_gradient(matrix, begin, mask, asked, by, discrete), "Q")
        if discrete:
            answer = _kolmo.chain_of_matrix(matrix, True).transient(begin, mask, asked)
        else:
            answer = _kolmo.transient(matrix, begin, mask, asked)
    return made(answer, "Q")


def _gradient(
    matrix: _input.Compressed,
    begin: Any,
    mask: Any,
    asked: _input.Question,
    by: list[_input.Derivative],
    discrete: bool,
) -> dict[str, Any]:
    if discrete:
        raise InvalidInput("gradient is not supported for discrete=True; give rates")
    if asked.place.precision not in (None, "f64"):
        raise InvalidInput(f"gradient is computed in f64, not in {asked.place.precision}; leave precision out")
    asked = asked._replace(place=asked.place._replace(precision="f64"))
    answer: dict[str, Any] = _kolmo.gradient(matrix, begin, mask, asked, by, False)[0][0]
    return answer


def _phases(given: Any) -> list[tuple[Any, Any]]:
    """Return the pairs (end, matrix) of a list of phases, or nothing for a matrix."""
    if not isinstance(given, (list, tuple)) or not given:
        return []
    pair = [isinstance(phase, (list, tuple)) and len(phase) == 2 and not np.isscalar(phase[1]) for phase in given]
    if not any(pair):
        return []
    if not all(pair):
        raise InvalidInput(f"Q[{pair.index(False)}] is {given[pair.index(False)]!r}; give pairs (end, matrix) alone")
    return list(given)


def _piecewise(
    phases: list[tuple[Any, Any]],
    p0: ArrayLike | None,
    times: ArrayLike | None,
    device: str,
    epsilon: float,
    rewards: Mapping[str, ArrayLike] | None,
    absorbing: ArrayLike | None,
    precision: Any,
    progress: Progress,
) -> Transient:
    if times is None:
        raise InvalidInput("times is missing: the order of arguments is transient(Q, p0, times)")
    chains = []
    for k, (end, chain) in enumerate(phases):
        held = getattr(chain, "_held", None)
        if not isinstance(held, _kolmo.Chain):
            matrix = _input.compressed(f"Q[{k}][1]", chain)
            try:
                held = _kolmo.chain_of_matrix(matrix, False)
            except InvalidInput as wrong:
                raise InvalidInput(f"Q[{k}][1]: {wrong}") from None
        chains.append(((_input.number(f"Q[{k}][0]", end), 0.0), held))
    n = chains[0][1].states
    place, begin = _input.place(device, precision), _input.begin(p0, n, "transient(Q, p0, times)")
    mask = _input.mask("absorbing", absorbing, n)
    with _input.watched(progress) as tell:
        asked = _input.question(n, times, {} if rewards is None else rewards, place, epsilon, tell, len(chains))
        return made(_kolmo.piecewise(chains, begin, mask, asked, False), "Q")
