"""Models in the PRISM language, and properties in CSL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from . import _input, _kolmo
from ._chain import Chain, Explored
from ._input import Floats, Progress, Question
from ._result import Result, counted, same
from .errors import BoundWarning, InvalidInput

Constant: TypeAlias = bool | int | float


class Schedule:
    """Values of a constant of a :class:`Model` that change with time.

    Parameters
    ----------
    values : sequence of pairs (time, value), or mapping of times to values
        Each value holds from its time on. The first time is 0, and times increase.
    period : float, optional
        Time after which the values repeat.

    Raises
    ------
    InvalidInput
        For anything but pairs of numbers. A call for the model checks the times.

    Examples
    --------
    Repair crews work in the first 8 of 24 hours:

    >>> import kolmo
    >>> kolmo.Schedule([(0, 0.25), (8, 0.0)], period=24)
    Schedule([(0.0, 0.25), (8.0, 0.0)], period=24.0)
    """

    def __init__(self, values: Mapping[float, Constant] | Sequence[tuple[float, Constant]], period: float | None = None) -> None:
        given = values.items() if isinstance(values, Mapping) else values
        pairs = list(given) if isinstance(given, Iterable) else [given]
        if not all(isinstance(pair, (tuple, list, np.ndarray)) and len(pair) == 2 for pair in pairs):
            raise InvalidInput(f"a schedule of {values!r}; give pairs (time, value), such as [(0, 0.25), (8, 0.0)]")
        self.values = [(_input.number("time", time), _constant("of a schedule", value)) for time, value in pairs]
        """Pairs (time, value)."""
        self.period = None if period is None else _input.number("period", period)
        """Time after which the values repeat."""

    def __repr__(self) -> str:
        return f"Schedule({self.values}" + (")" if self.period is None else f", period={self.period})")

    def __eq__(self, other: object) -> bool:
        return (self.values, self.period) == (other.values, other.period) if isinstance(other, Schedule) else NotImplemented

    def __hash__(self) -> int:
        return hash((tuple(self.values), self.period))


def _changing(constants: dict[str, Any]) -> list[tuple[str, list[tuple[float, Constant]], float | None]]:
    """Return the constants that change with time."""
    return [(name, one.values, one.period) for name, one in constants.items() if isinstance(one, Schedule)]


def _fixed(constants: dict[str, Any]) -> dict[str, Any]:
    """Return the constants that do not change with time."""
    return {name: one for name, one in constants.items() if not isinstance(one, Schedule)}


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Result):
    """The answer to one property.

    Attributes
    ----------
    property : str
        Text of the property.
    name : str or None
        Name of the property, if it has one.
    value : float, bool or None
        Number of the property, or its truth if it has a threshold. None if the error leaves the
        truth undecided.
    number : float or None
        Number of the property, also of one with a threshold.
    bound : float
        Proved bound on the error of ``number``.
    loss : float
        Part of ``bound`` for states that a truncated model leaves out.
    constants : dict
        Values of the constants of the model and the property.
    states : int
        Number of states of the chain.
    gradient : dict of str to float
        Derivative of ``number`` by each constant of the argument `gradient`.
    gradient_bound : dict of str to float
        Proved bound on the error of each derivative.
    """

    property: str
    name: str | None
    value: float | bool | None
    number: float | None
    bound: float
    loss: float
    constants: dict[str, Constant]
    states: int
    gradient: dict[str, float] = field(default_factory=dict)
    gradient_bound: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Answer({self.property!r}, value {self.value}, bound {self.bound:.2g})"


@dataclass(frozen=True, eq=False, repr=False)
class Checked(Result):
    """Answers to properties; iterating gives each :class:`Answer`.

    Attributes
    ----------
    answers : list of Answer
        One for each property and each combination of the values of constants.
    met : bool
        True if the probabilities used for every answer meet epsilon.
    states : int
        Total number of states of all chains.
    explorations : int
        Number of explorations. Values that change only rates share the states.
    sweeps : int
        Number of uniformization runs, which properties share.
    terms : int
        Matrix–vector products.
    device : str
        Devices of the solver.
    seconds : float
        Seconds of exploring and solving.
    """

    answers: list[Answer]
    met: bool
    states: int
    explorations: int
    sweeps: int
    terms: int
    device: str
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        met = "met" if self.met else "not met"
        return f"Checked({counted(len(self.answers), 'answer')}: {met}, {counted(self.states, 'state')}, device {self.device!r})"

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def value(self) -> Any:
        """Value of the only answer, or a list of all values."""
        return self.answers[0].value if len(self.answers) == 1 else [answer.value for answer in self.answers]

    @property
    def bound(self) -> float | Floats:
        """Bound of the only answer, or an array of all bounds."""
        bounds = [answer.bound for answer in self.answers]
        return bounds[0] if len(bounds) == 1 else np.array(bounds)


def _constant(name: str, value: Any) -> Constant:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, Schedule):
        told = "give one value, or call check, or transient without truncate"
        raise InvalidInput(f"the constant {name} changes with time: {told}")
    raise InvalidInput(f"the constant {name} is {value!r}; give a number, True or False, or a list of them to check")


def _is_listed(value: Any) -> bool:
    return value.ndim > 0 if isinstance(value, np.ndarray) else isinstance(value, Sequence) and not isinstance(value, str)


def _several(name: str, value: Any) -> list[Constant]:
    several: Any = value if _is_listed(value) else [value]
    if len(several) == 0:
        raise InvalidInput(f"the constant {name} has no value; give one or a list of them")
    return [_constant(name, each) for each in several]


@dataclass(frozen=True, eq=False, repr=False)
class Swept(Result):
    """Answers to properties for many values of constants.

    Attributes
    ----------
    value : array
        Values, with an axis per constant in the order of the call, and a last axis of properties if
        there are several. A truth is 1 or 0. It is NaN where undecided, or not answered.
    bound : array
        Proved bounds on the errors of the values. They are infinite where not answered. That of a
        truth is 0.
    axes : dict
        Values of each constant with an axis. For samples: an array of the samples' shape.
    failed : dict
        Reason for each index of ``value`` that is not answered.
    met : bool
        True if the probabilities used for every answer meet epsilon.
    explorations : int
        Number of explorations. Values that change only rates share the states.
    sweeps : int
        Number of uniformization runs.
    terms : int
        Matrix–vector products.
    device : str
        Devices of the solver.
    seconds : float
        Seconds of exploring and solving.
    """

    value: Floats
    bound: Floats
    axes: dict[str, np.ndarray[Any, Any]]
    failed: dict[tuple[int, ...], str]
    met: bool
    explorations: int
    sweeps: int
    terms: int
    device: str
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        met = "met" if self.met else "not met"
        return f"Swept(shape {self.value.shape}: {met}, {counted(self.explorations, 'exploration')}, device {self.device!r})"


class Sweep:
    """A model with many values of constants, made by :meth:`Model.sweep`."""

    def __init__(self, model: Model, constants: dict[str, Any], samples: bool) -> None:
        # Axes are in the order of the call.
        constants = {name: value for name, value in model.constants.items() if name not in constants} | constants
        self._changing, constants = _changing(constants), _fixed(constants)
        given = {name: value for name, value in constants.items() if not _is_listed(value)}
        self._axes = {name: np.asarray(value) for name, value in constants.items() if name not in given}
        self._held = model._held
        self._samples = samples
        # Constants of the model change slowest in the answers.
        undefined = model.undefined
        self._order = sorted(self._axes, key=lambda name: name not in undefined)
        for name, values in self._axes.items():
            if values.size == 0:
                raise InvalidInput(f"the constant {name} has no value; give one or a list of them")
            if values.ndim > 1 and not samples:
                raise InvalidInput(f"the constant {name} has the shape {values.shape}; give one axis, or zip=True for samples")
        if samples:
            try:
                arrays = np.broadcast_arrays(*self._axes.values())
            except ValueError:
                shapes = ", ".join(f"{name} {values.shape}" for name, values in self._axes.items())
                raise InvalidInput(f"samples need arrays of equal shapes: {shapes}") from None
            self._axes = dict(zip(self._axes, arrays, strict=True))
            self._shape = arrays[0].shape if arrays else ()
        else:
            self._shape = tuple(len(self._axes[name]) for name in self._order)
        axes = {name: self._axes[name].ravel() for name in self._order}
        self._values = [(name, _several(name, value)) for name, value in {**given, **axes}.items()]

    def check(
        self,
        *properties: str | os.PathLike[str],
        device: str = "auto",
        epsilon: float = 1e-9,
        precision: Literal["f64", "q64"] | None = None,
        progress: Progress = None,
    ) -> Swept:
        """Answer CSL properties for all values.

        States are explored once for all values that change only rates and rewards. Values with an
        error, such as a negative rate, have no answer; the others do.

        Parameters
        ----------
        *properties, device, epsilon, precision, progress
            As in :meth:`Model.check`.

        Returns
        -------
        Swept
            Arrays of values and of proved bounds.

        Raises
        ------
        InvalidInput
            For properties that are invalid or not supported, and if no value has an answer.
        """
        asked = [_input.path("property", text) for text in properties]
        if not asked:
            raise InvalidInput("no property; give one, such as 'P=? [ F<=10 \"full\" ]'")
        place, epsilon = _input.place(device, precision), _input.number("epsilon", epsilon, "a number above 0")
        with _input.watched(progress) as tell:
            how = (self._samples, False)
            answer = self._held.check(
                asked, self._values, self._changing, how, place, epsilon, None, [], tell
            )
        rows, errors, counts = answer.pop("answers"), answer.pop("errors"), answer.pop("counts")
        answer.pop("states")
        if not rows:
            raise InvalidInput(errors[0])
        # Axes: chains, values of the properties' own constants, properties.
        inner = int(np.prod(self._shape, dtype=int)) // len(errors)
        shape = (len(errors), inner, max(counts) // inner)
        if any(count not in (0, max(counts)) for count in counts):
            raise InvalidInput("a filter prints different numbers of values; use one that has a single value")
        value, bound, reason = np.full(shape, np.nan), np.full(shape, np.inf), np.full(shape, None, dtype=object)
        answered = np.array([error is None for error in errors])
        of_rows = (-1, *shape[1:])
        value[answered] = np.reshape([np.nan if row["value"] is None else float(row["value"]) for row in rows], of_rows)
        bound[answered] = np.reshape([self._bound(row) for row in rows], of_rows)
        reason[answered] = np.reshape(np.array([row.get("refused") for row in rows], dtype=object), of_rows)
        for case, error in enumerate(errors):
            if error is not None:
                reason[case] = error
        value, bound, reason = (self._ordered(array) for array in (value, bound, reason))
        failed = {index: why for index, why in np.ndenumerate(reason) if why is not None}
        result = Swept(value=value, bound=bound, axes=self._axes, failed=failed, **answer)
        if failed or not result.met:
            told = f"{len(failed)} of {value.size} values have no answer; see Swept.failed"
            if not failed:
                told = f"the largest bound is {np.max(bound):.2g}, more than epsilon allows; see Swept.bound"
            warnings.warn(told, BoundWarning, stacklevel=2)
        return result

    @staticmethod
    def _bound(row: dict[str, Any]) -> float:
        if "refused" in row:
            return np.inf
        return 0.0 if isinstance(row["value"], bool) else row["bound"]

    def _ordered(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Order the axes of constants as they were given, and drop that of a single property."""
        array = array.reshape(*self._shape, array.shape[-1])
        if not self._samples:
            axes = [self._order.index(name) for name in self._axes]
            array = array.transpose(*axes, len(axes))
        return array[..., 0] if array.shape[-1] == 1 else array


class Model(Explored):
    """A continuous-time Markov chain in the PRISM language, with values of its constants.

    Parameters
    ----------
    path : path or str
        A file, .sm or .prism.
    **constants
        Values of constants that the model leaves undefined: numbers, True or False. A list gives a
        chain for each of its values, for :meth:`check`. A :class:`Schedule` gives values that
        change with time, for :meth:`check`, :meth:`sweep` and :meth:`transient`.

    Raises
    ------
    FileError, InvalidInput
        With the place in the text, and a suggestion.

    Examples
    --------
    >>> import kolmo, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "queue.sm"
    >>> _ = path.write_text('''ctmc
    ... const int N;
    ... module queue
    ...     q : [0..N];
    ...     [] q < N -> 2 : (q'=q+1);
    ...     [] q > 0 -> 3 : (q'=q-1);
    ... endmodule
    ... label "full" = q = N;
    ... ''')
    >>> model = kolmo.Model(path, N=4)
    >>> checked = model.check('const double T; P=? [ F<=T "full" ]', T=[1, 10])
    >>> [(answer.constants["T"], round(answer.value, 3), answer.bound < 1e-8) for answer in checked]
    [(1, 0.049, True), (10, 0.711, True)]
    >>> model.check('S<0.1 [ "full" ]').value
    True
    >>> model.transient(10.0).p.shape
    (1, 5)
    """

    def __init__(self, path: str | os.PathLike[str], **constants: Constant | Sequence[Constant] | Schedule) -> None:
        self.path = _input.path("path", path)
        """Path of the file."""
        self._held = _kolmo.read_model(self.path)
        self.constants: dict[str, Constant | Sequence[Constant] | Schedule] = constants
        """Values of the constants."""
        self._chain: Chain | None = None

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.constants.items())
        return f"Model({self.path!r}{given})"

    def __getstate__(self) -> dict[str, Any]:
        # A copy explores its chain again.
        return {**self.__dict__, "_chain": None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return NotImplemented
        return self._held.text == other._held.text and same(self.constants, other.constants)

    def __hash__(self) -> int:
        return hash((Model, self._held.text))

    @property
    def undefined(self) -> dict[str, str]:
        """Constants without a value in the model, with their types."""
        return dict(self._held.constants)

    def chain(self) -> Chain:
        """Return the chain, which is explored once.

        It has the names of the states, and the labels and rewards of the model.

        Returns
        -------
        Chain
        """
        if self._chain is None:
            values = [(name, _constant(name, value)) for name, value in self.constants.items()]
            held = self._held.chain(values)
            for told in held.warnings:
                warnings.warn(told, UserWarning, stacklevel=2)
            self._chain = Chain(held)
        return self._chain

    def _asked(self) -> Chain:
        return self.chain()

    def _phases(self, times: ArrayLike) -> list[tuple[tuple[float, float], _kolmo.Chain]]:
        if not (changing := _changing(self.constants)):
            return []
        values = [(name, _constant(name, value)) for name, value in _fixed(self.constants).items()]
        horizon = np.max(_input.as_array("times", times), initial=0.0)
        return self._held.phases(values, changing, _input.number("times", horizon))

    def _truncated(self, asked: Question, absorbing: str | None, allowed: float) -> tuple[Chain, dict[str, Any]]:
        values = [(name, _constant(name, value)) for name, value in self.constants.items()]
        held, answer = self._held.transient(
            values, asked.times, absorbing, asked.place, asked.epsilon, allowed, asked.progress
        )
        return Chain(held), answer

    def check(
        self,
        *properties: str | os.PathLike[str],
        device: str = "auto",
        epsilon: float = 1e-9,
        precision: Literal["f64", "q64"] | None = None,
        truncate: float | None = None,
        gradient: str | Sequence[str] = (),
        progress: Progress = None,
        **constants: Constant | Sequence[Constant] | Schedule,
    ) -> Checked:
        """Answer CSL properties, in as few uniformization runs as possible.

        Each call explores the model. Properties of one call share the exploration and the runs.

        Parameters
        ----------
        *properties : str or path
            Properties such as ``'P=? [ F<=10 "full" ]'``, or files of them (.csl, .props, .pctl).
        device, precision, progress
            As in :func:`transient`.
        epsilon : float
            Requested bound on the sum of the errors of the probabilities used for each answer.
        truncate : float, optional
            Explore the model until at most this probability is lost, a part of `epsilon`: for
            models with infinitely many states, or too many.
        gradient : str or sequence of str
            Names of constants by which the answers are differentiated. They must be doubles that
            change only rates and rewards. A property must ask for the number of one operator P, R, S
            or T, without a lower time bound. Not with `truncate`.
        **constants
            Values of constants of the properties, or of the model, instead of those that the model
            was made with. A list gives an answer for each of its values. With a
            :class:`Schedule`, properties are P and R with bounds on time.

        Returns
        -------
        Checked
            Answers, each with a proved bound.

        Raises
        ------
        InvalidInput
            For properties that are invalid or not supported, with the reason.
        """
        if not properties:
            raise InvalidInput("no property; give one, such as 'P=? [ F<=10 \"full\" ]'")
        given: dict[str, Any] = {**self.constants, **constants}
        changing = _changing(given)
        if changing and truncate is not None:
            raise InvalidInput(f"truncate is {truncate}, and {changing[0][0]} changes with time; leave one out")
        values = [(name, _several(name, value)) for name, value in _fixed(given).items()]
        asked = [_input.path("property", text) for text in properties]
        place, epsilon = _input.place(device, precision), _input.number("epsilon", epsilon, "a number above 0")
        allowed = None if truncate is None else _input.number("truncate", truncate)
        by = [gradient] if isinstance(gradient, str) else list(gradient)
        if not all(isinstance(name, str) for name in by) or len(set(by)) < len(by):
            raise _input.invalid("gradient", gradient, "different names of constants")
        if by and (allowed is not None or changing or precision not in (None, "f64")):
            raise InvalidInput(
                "gradient is not supported with truncate, a Schedule or precision 'q64': leave them out"
            )
        with _input.watched(progress) as tell:
            how = (False, True)
            answer = self._held.check(asked, values, changing, how, place, epsilon, allowed, by, tell)
        answers = [Answer(**each) for each in answer.pop("answers")]
        del answer["errors"], answer["counts"]
        result = Checked(answers=answers, **answer)
        if not result.met:
            bounds = [bound for each in answers for bound in (each.bound, *each.gradient_bound.values())]
            told = f"the bound of an answer is {max(bounds):.2g}, more than epsilon allows; see Answer.bound"
            warnings.warn(told, BoundWarning, stacklevel=2)
        return result

    def sweep(self, *, zip: bool = False, **constants: Any) -> Sweep:
        """Choose many values of constants, for the same properties.

        Parameters
        ----------
        zip : bool
            Take the values of equal places together, as samples. By default there is an answer for
            each combination of values.
        **constants
            Values of constants of the model and the properties, instead of those that the model was
            made with: one value, an array, or a :class:`Schedule`, which has no axis. An underscore
            at the end of a name is dropped, as in ``lambda_``.

        Returns
        -------
        Sweep
            Its method ``check`` answers properties.

        Raises
        ------
        InvalidInput
            For arrays without a value, and samples of different shapes.

        Examples
        --------
        >>> import kolmo, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "queue.sm"
        >>> _ = path.write_text('''ctmc
        ... const double lambda; const double mu;
        ... module queue
        ...     q : [0..4];
        ...     [] q < 4 -> lambda : (q'=q+1);
        ...     [] q > 0 -> mu : (q'=q-1);
        ... endmodule
        ... ''')
        >>> swept = kolmo.Model(path).sweep(lambda_=[1, 2, 3], mu=[2.0, 4.0]).check("S=? [ q=4 ]")
        >>> swept.value.round(3).tolist(), swept.explorations
        ([[0.032, 0.003], [0.2, 0.032], [0.384, 0.104]], 1)
        """
        return Sweep(self, {name.removesuffix("_"): value for name, value in constants.items()}, zip)
