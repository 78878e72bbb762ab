"""Exceptions and warnings; each text names the object, the number and the remedy."""

from __future__ import annotations

import errno as codes
import os
from typing import Any

import numpy as np


class Error(Exception):
    """Base of all exceptions of kolmo."""


class InvalidInput(Error, ValueError):
    """Input or an option without an answer."""


class Divergent(InvalidInput):
    """A system whose random walks would diverge, or vary without bound."""


class Singular(Error, np.linalg.LinAlgError):
    """A singular matrix."""


class FileError(Error, OSError):
    """A file that cannot be read, or does not hold what its format asks for.

    Attributes
    ----------
    filename : str
        The file.
    errno : int or None
        Code of the operating system, such as ``errno.ENOENT``; None for a file with wrong contents.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return file_error, (str(self), self.errno, self.filename)


class MissingFile(FileError, FileNotFoundError):
    """A file that does not exist."""


class DeviceError(Error, RuntimeError):
    """No such device, or one that cannot do what was asked."""


class DeviceLost(DeviceError):
    """A device that went away in the middle of the work."""


class OutOfMemory(Error, MemoryError):
    """A device's memory, or a limit of one of its allocations, that does not suffice."""


class ConversionWarning(UserWarning):
    """A matrix that is copied into another format or type before it is used."""


class BoundWarning(UserWarning):
    """An answer whose bound or residual is larger than what was asked for."""


def file_error(text: str, code: int | None, path: str | os.PathLike[str]) -> FileError:
    """The exception of a file, with the code and the name that an OSError has."""
    if code is None and not os.path.exists(path):
        code = codes.ENOENT
    error = (MissingFile if code == codes.ENOENT else FileError)(text)
    error.errno, error.filename = code, os.fspath(path)
    error.strerror = None if code is None else os.strerror(code)
    return error
