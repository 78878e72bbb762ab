"""Markov chains, linear systems and tridiagonal systems, solved on any GPU or CPU.

Every result has an error bound, an interval or a residual.
"""

import os as _os

# Mesa's device-select layer reports an error in processes without a display.
_os.environ.setdefault("NODEVICE_SELECT", "1")

from . import errors
from ._chain import Chain, read
from ._expm import expm_multiply
from ._graph import Graph, PageRank, pagerank
from ._kolmo import DeviceArray, __version__, devices
from ._long_run import (
    Absorption,
    StateValues,
    Stationary,
    Visits,
    absorption,
    expected_reward,
    hitting_time,
    stationary,
    visits,
)
from ._model import Answer, Checked, Model, Schedule, Sweep, Swept
from ._transient import Transient, transient
from ._transient_batch import TransientBatch, transient_batch
from ._transition_matrices import TransitionMatrices, transition_matrices
from ._tridiagonal import Tridiagonal, TridiagonalFactor, solve_tridiagonal
from ._walk import Walk, walk
from .errors import (
    BoundWarning,
    ConversionWarning,
    DeviceError,
    DeviceLost,
    Divergent,
    Error,
    FileError,
    InvalidInput,
    MissingFile,
    OutOfMemory,
    Singular,
)

__all__ = [
    "Absorption",
    "Answer",
    "BoundWarning",
    "Chain",
    "Checked",
    "ConversionWarning",
    "DeviceArray",
    "DeviceError",
    "DeviceLost",
    "Divergent",
    "Error",
    "FileError",
    "Graph",
    "InvalidInput",
    "MissingFile",
    "Model",
    "OutOfMemory",
    "PageRank",
    "Schedule",
    "Singular",
    "StateValues",
    "Stationary",
    "Sweep",
    "Swept",
    "Transient",
    "TransientBatch",
    "TransitionMatrices",
    "Tridiagonal",
    "TridiagonalFactor",
    "Visits",
    "Walk",
    "__version__",
    "absorption",
    "devices",
    "errors",
    "expected_reward",
    "expm_multiply",
    "hitting_time",
    "pagerank",
    "read",
    "solve_tridiagonal",
    "stationary",
    "transient",
    "transient_batch",
    "transition_matrices",
    "visits",
    "walk",
]
