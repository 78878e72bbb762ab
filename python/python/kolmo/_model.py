"""Models in PRISM's language, and properties in CSL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from . import _input, _kolmo
from ._chain import Chain, Explored
from ._input import Floats, Place, Progress, Question
from .errors import BoundWarning, InvalidInput

Constant: TypeAlias = bool | int | float


@dataclass(frozen=True)
class Answer:
    """The answer to one property."""

    property: str
    """The property, as it is written."""
    name: str | None
    """Its name, where it has one."""
    value: float | bool | None
    """A number; or of a property with a bound whether it holds, None where the error leaves that open."""
    number: float | None
    """The number; of a property with a bound that which decides."""
    bound: float
    """Bound on the number's error."""
    loss: float
    """The part of it that is due to states that are not explored, of a model that is truncated."""
    constants: dict[str, Constant]
    """Values of the constants, the model's and its own."""
    states: int
    """States of the chain."""


@dataclass(frozen=True)
class Checked:
    """Answers to properties; iterating gives each :class:`Answer`."""

    answers: list[Answer]
    """One for each property and each combination of the values of constants."""
    met: bool
    """Whether the probabilities behind every answer are as good as epsilon asks."""
    states: int
    """States of all chains."""
    sweeps: int = field(repr=False)
    """Sweeps through the chains, which properties share."""
    terms: int = field(repr=False)
    """Multiplications with their matrices."""
    device: str
    """The device that solved it."""
    seconds: float
    """Seconds of exploring and solving."""

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def value(self) -> Any:
        """The value of the only answer, or a list of all values."""
        return self.answers[0].value if len(self.answers) == 1 else [answer.value for answer in self.answers]

    @property
    def bound(self) -> float | Floats:
        """The bound of the only answer, or an array of all bounds."""
        bounds = [answer.bound for answer in self.answers]
        return bounds[0] if len(bounds) == 1 else np.array(bounds)


def _constant(name: str, value: Any) -> Constant:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise InvalidInput(f"the constant {name} is {value!r}; give a number, True or False, or a list of them to check")


class Model(Explored):
    """A Markov chain in PRISM's language, ``ctmc``, with the values of its constants.

    Parameters
    ----------
    path : path or str
        A file, .sm or .prism.
    **constants
        Values of constants that the model leaves open: numbers, True or False. A list gives a chain for each of its values,
        for :meth:`check`.

    Raises
    ------
    FileError, InvalidInput
        With the place in the text, and the remedy.

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

    def __init__(self, path: str | os.PathLike[str], **constants: Constant | Sequence[Constant]) -> None:
        self.path = os.fspath(path)
        """The file."""
        self._held = _kolmo.read_model(self.path)
        self.constants: dict[str, Constant | Sequence[Constant]] = constants
        """Values of constants."""
        self._chain: Chain | None = None

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.constants.items())
        return f"Model({self.path!r}{given})"

    @property
    def undefined(self) -> dict[str, str]:
        """Constants that the model leaves open, with their types."""
        return dict(self._held.constants)

    def chain(self) -> Chain:
        """The chain, explored once: its states have names, labels and rewards those of the model.

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
        progress: Progress = None,
        **constants: Constant | Sequence[Constant],
    ) -> Checked:
        """Answer properties in CSL, in as few sweeps through the chain as possible.

        Each call explores the model: properties of one call share that, and sweeps.

        Parameters
        ----------
        *properties : str or path
            Properties such as ``'P=? [ F<=10 "full" ]'``, or files of them (.csl, .props, .pctl).
        device, precision, progress
            As in :func:`transient`.
        epsilon : float
            Bound on the sum of the errors of the probabilities behind each answer.
        truncate : float, optional
            Explore the model until no more probability than this, a part of `epsilon`, is lost with the states that are left out:
            for models with infinitely many states, or too many.
        **constants
            Values of constants of the properties, or of the model in the place of those it was made with; a list gives an
            answer for each of its values.

        Returns
        -------
        Checked
            Answers, each with a proved bound.

        Raises
        ------
        InvalidInput
            For properties that are wrong, and such that kolmo does not answer, with the reason.
        """
        if not properties:
            raise InvalidInput("no property; give one, such as 'P=? [ F<=10 \"full\" ]'")
        values = []
        for name, value in {**self.constants, **constants}.items():
            several = value if isinstance(value, (Sequence, np.ndarray, range)) else [value]
            if len(several) == 0:
                raise InvalidInput(f"the constant {name} has no value; give one or a list of them")
            values.append((name, [_constant(name, each) for each in several]))
        asked = [os.fspath(text) for text in properties]
        place = Place(device, precision)
        answer = self._held.check(asked, values, place, float(epsilon), truncate, _input.callback(progress))
        answers = [Answer(**each) for each in answer.pop("answers")]
        result = Checked(answers=answers, **answer)
        if not result.met:
            told = f"the bound of an answer is {np.max(result.bound):.2g}, more than epsilon allows; see Answer.bound"
            warnings.warn(told, BoundWarning, stacklevel=2)
        return result
