"""Transient probabilities of continuous-time Markov chains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._input import Floats, Place, Progress
from .errors import BoundWarning


@dataclass(frozen=True)
class Transient:
    """Probabilities of a chain at some times, and how good they are."""

    times: Floats
    """The times, in the order asked."""
    p: Floats = field(repr=False)
    """Probabilities: a row for each time, a column for each state."""
    bound: Floats
    """Of each time, a proved bound on the sum of the errors of all probabilities: the sum of the next four."""
    truncation: Floats = field(repr=False)
    """Poisson mass that was left out."""
    steady_state: Floats = field(repr=False)
    """Price of an early stop once the chain had settled."""
    rounding: Floats = field(repr=False)
    """Rounding of all numbers."""
    loss: Floats = field(repr=False)
    """What has left the states that are explored of a model that is truncated; 0 otherwise."""
    met: bool
    """Whether every bound is at most epsilon."""
    rewards: dict[str, Floats]
    """Of each reward the expected rate at each time."""
    accumulated: dict[str, Floats]
    """Of each reward what is earned up to each time, as expected."""
    device: str
    """The device that solved it."""
    alpha: float = field(repr=False)
    """Uniformization rate: the largest exit rate."""
    terms: int = field(repr=False)
    """Multiplications with the matrix."""
    seconds: float
    """Seconds of the solver."""
    chain: Any = field(default=None, repr=False)
    """The :class:`Chain` that `p` has a column for each state of; None for a matrix."""

    @property
    def status(self) -> Literal["met", "not_met"]:
        """``met`` where every bound is at most epsilon."""
        return "met" if self.met else "not_met"

    def plot(self, states: ArrayLike | None = None, ax: Any = None) -> Any:
        """Draw probabilities over time with matplotlib.

        Parameters
        ----------
        states : array_like of int, optional
            The states to draw; the five most likely ones at any time if not given.
        ax : matplotlib.axes.Axes, optional
            Where to draw; the current axes if not given.

        Returns
        -------
        matplotlib.axes.Axes
        """
        import matplotlib.pyplot as plt

        if states is None:
            states = np.argsort(self.p.max(axis=0))[: -6 : -1]
        ax = plt.gca() if ax is None else ax
        order = np.argsort(self.times)
        for state in np.atleast_1d(np.asarray(states)):
            ax.plot(self.times[order], self.p[order, state], label=f"state {state}")
        ax.set_xlabel("time")
        ax.set_ylabel("probability")
        ax.legend()
        return ax


def made(answer: dict[str, Any], name: str, chain: Any = None) -> Transient:
    """The result of the compiled module, with its warnings said."""
    for contradiction in answer.pop("contradictions"):
        warnings.warn(contradiction, BoundWarning, stacklevel=3)
    if answer.pop("stochastic", False):
        told = f"{name}: the rates of every state sum to 1: is this a discrete-time chain? Its entries are read as rates"
        warnings.warn(told, UserWarning, stacklevel=3)
    result = Transient(**answer, chain=chain)
    if not result.met:
        told = f"the bound is {result.bound.max():.2g}, more than epsilon; see Transient.bound"
        warnings.warn(told, BoundWarning, stacklevel=3)
    return result


def transient(
    Q: Any,
    p0: ArrayLike | None = None,
    times: ArrayLike = (),
    *,
    device: str = "auto",
    epsilon: float = 1e-9,
    rewards: Mapping[str, ArrayLike] = {},
    absorbing: ArrayLike | None = None,
    precision: Literal["f64", "f32", "q64"] | None = None,
    progress: Progress = None,
) -> Transient:
    """Probabilities p0 exp(Q t) of a continuous-time Markov chain, by uniformization.

    Parameters
    ----------
    Q : sparse matrix or array_like, (n, n)
        Entry (i, j) is the rate from state i to state j. With a negative diagonal it is a generator, whose rows sum to
        0; without one it holds the rates. The arrays of a ``csr`` or ``csc`` matrix are borrowed, with int32 or int64
        indices, float32 or float64 values. The solver needs rows and columns: those that are not there are made beside
        it, in 12 bytes an entry. Do not change the matrix in another thread meanwhile.
    p0 : int or array_like of n numbers, optional
        The state that the chain begins in, or a probability for each; state 0 if not given.
    times : float or array_like
        Times from 0 to ``inf``, which is the steady state.
    device : str
        ``auto``, ``cpu``, ``cuda:N``, ``wgpu:N``, or several with commas between them; see :func:`devices`.
    epsilon : float
        Bound to be met on the sum of the errors of all probabilities.
    rewards : mapping of str to array_like of n numbers
        What each state earns in a unit of time.
    absorbing : array_like of bool or int, optional
        States whose way out is removed: a mask or a list.
    precision : {'f64', 'f32', 'q64'}, optional
        Of the numbers on the device: f64 unless it has f32 alone.
    progress : callable or bool, optional
        Called with the multiplications done and an upper bound of all, some ten times a second; an exception stops the
        work. True shows a bar.

    Returns
    -------
    Transient

    Raises
    ------
    InvalidInput, DeviceError, DeviceLost, OutOfMemory

    Examples
    --------
    A machine fails once in 50 hours and is repaired in 4 hours on average. After 8 hours it is down with the probability

    >>> import kolmo
    >>> r = kolmo.transient([[-0.02, 0.02], [0.25, -0.25]], times=8)
    >>> round(float(r.p[0, 1]), 4)
    0.0655
    >>> bool(r.bound[0] < 1e-9)
    True
    """
    matrix = _input.compressed("Q", Q)
    n = matrix.n
    asked = _input.question(n, times, rewards, Place(device, precision), epsilon, progress)
    return made(_kolmo.transient(matrix, _input.begin(p0, n), _input.mask("absorbing", absorbing, n), asked), "Q")
