"""Exceptions and warnings; each text names the object, the number and the remedy."""

import numpy as np


class Error(Exception):
    """Whatever kolmo raises."""


class InvalidInput(Error, ValueError):
    """Input or an option without an answer."""


class Divergent(InvalidInput):
    """A system whose random walks would diverge, or vary without bound."""


class Singular(Error, np.linalg.LinAlgError):
    """A singular matrix."""


class FileError(Error, OSError):
    """A file that cannot be read, or does not hold what its format asks for."""


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
