"""Comparison of results, chains and graphs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def same(a: Any, b: Any) -> bool:
    """Return True for equal values. Arrays need equal types and shapes; NaN equals NaN."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.dtype, a.shape) != (
            b.dtype,
            b.shape,
        ):
            return False
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, dict):
        return (
            isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    equal = a == b
    # Arrays on a device compare elementwise: they are equal by identity alone.
    if not isinstance(equal, (bool, np.bool_)):
        return False
    return bool(equal) or bool(a != a and b != b)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, in the singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Result:
    """Base of the results. They are equal if all fields but ``seconds`` are, and not hashable."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        compared = [f.name for f in fields(self) if f.compare]  # type: ignore[arg-type]
        return all(same(getattr(self, name), getattr(other, name)) for name in compared)
