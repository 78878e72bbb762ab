"""Exceptions and warnings. Each text names the object and its value, with a suggestion."""

from __future__ import annotations

import errno as codes
import os
from typing import Any

import numpy as np


class Error(Exception):
    """Base of all exceptions of kolmo."""


class InvalidInput(Error, ValueError):
    """Invalid input, or a request that is not supported."""


class Divergent(InvalidInput):
    """A system for which random walks would diverge, or have an unbounded variance."""


class Singular(Error, np.linalg.LinAlgError):
    """A singular matrix."""


class FileError(Error, OSError):
    """A file that cannot be read, or that violates its format.

    Attributes
    ----------
    filename : str
        Path of the file.
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
    """A device that does not exist, or that does not support a request."""


class DeviceLost(DeviceError):
    """A device that was lost during the work."""


class OutOfMemory(Error, MemoryError):
    """Too little memory on a device or the host, or an allocation above a limit."""


class ConversionWarning(UserWarning):
    """A matrix that has to be copied to another format or type."""


class BoundWarning(UserWarning):
    """An answer with a bound or residual above the requested one."""


def file_error(text: str, code: int | None, path: str | os.PathLike[str]) -> FileError:
    """Make the exception of a file, with the attributes of an OSError."""
    if code is None and not os.path.exists(path):
        code = codes.ENOENT
    error = (MissingFile if code == codes.ENOENT else FileError)(text)
    error.errno, error.filename = code, os.fspath(path)
    error.strerror = None if code is None else os.strerror(code)
    return error
