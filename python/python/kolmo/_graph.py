"""PageRank of graphs."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _input, _kolmo
from ._input import Floats, Progress
from ._result import Result, counted
from .errors import BoundWarning, InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class PageRank(Result):
    """PageRank of some nodes, with intervals.

    Attributes
    ----------
    nodes : ndarray of int
        Names of the nodes.
    estimate : ndarray
        PageRank, which sums to 1 over all nodes of the graph.
    half_width : ndarray
        Half-width of each interval: ``truncation + rounding``.
    truncation : ndarray
        Bound on the terms of the series that are left out.
    rounding : ndarray
        Bound on all rounding errors.
    met : bool
        True if every half-width is at most the requested one.
    products : int
        Matrix–vector products.
    seconds : float
        Seconds of the solver.
    """

    nodes: NDArray[np.uint64]
    estimate: Floats
    half_width: Floats
    truncation: Floats
    rounding: Floats
    met: bool
    products: int
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        met = "met" if self.met else "not met"
        return f"PageRank({counted(len(self.nodes), 'node')}, half-width up to {self.half_width.max(initial=0.0):.2g}: {met})"

    def top(self, count: int) -> list[tuple[int, float]]:
        """Return the nodes with the largest PageRank as pairs (name, estimate)."""
        order = np.lexsort((self.nodes, -self.estimate))[: _input.count("count", count)]
        return [(int(self.nodes[k]), float(self.estimate[k])) for k in order]


class Graph:
    """A directed graph, kept for any number of calls.

    Parameters
    ----------
    links : sparse matrix, array_like or path
        Number of edges from node i to node j in entry (i, j), a whole number. Or a file: a list of
        edges, one per line, or ``.mtx`` or ``.npz``. Or a built-in: ``barabasi:N,EDGES`` or
        ``rmat:SCALE,EDGES``.
    undirected : bool
        True if edges lead both ways. This adds nothing if each edge has its reverse already, as in
        a symmetric matrix.
    seed : int
        Seed of a built-in graph.

    Examples
    --------
    >>> import kolmo
    >>> g = kolmo.Graph([[0, 1, 0], [1, 0, 0], [1, 0, 0]])
    >>> g
    Graph(3 nodes, 3 links)
    """

    def __init__(self, links: Any, *, undirected: bool = False, seed: int = 0) -> None:
        undirected = _input.flag("undirected", undirected)
        if isinstance(links, (str, bytes, os.PathLike)):
            path = _input.path("links", links)
            self._held = _kolmo.read_graph(path, undirected, _input.count("seed", seed))
            return
        matrix = _input.compressed("links", links)
        counts = matrix.data
        wrong = ~((counts >= 0) & (counts == np.floor(counts)) & np.isfinite(counts))
        if np.any(wrong):
            raise InvalidInput(
                f"links holds {counts[wrong][0]}; give numbers of links, such as (A != 0) where weights do not count"
            )
        major = np.repeat(np.arange(matrix.n, dtype=np.uint32), np.diff(matrix.indptr))
        minor = matrix.indices.astype(np.uint32)
        if np.any(counts == 0):
            major, minor, counts = (array[counts != 0] for array in (major, minor, counts))
        if matrix.by_columns:
            major, minor = minor, major
        self._held = _kolmo.graph_of_links(matrix.n, major, minor, counts.astype(np.float64), undirected)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self._held.nodes

    @property
    def links(self) -> int:
        """Number of edges."""
        return self._held.links

    @property
    def names(self) -> NDArray[np.uint64]:
        """Names of the nodes, ascending: those of the file, or the numbers from 0."""
        return self._held.names()

    def __repr__(self) -> str:
        return f"Graph({self.n} nodes, {self.links} links)"

    def __eq__(self, other: object) -> bool:
        return self._held.equals(other._held) if isinstance(other, Graph) else NotImplemented

    def __hash__(self) -> int:
        return hash((Graph, self.n, self.links))


def _named(name: str, nodes: ArrayLike) -> list[int]:
    try:
        array = np.asarray(nodes)
    except ValueError:
        array = np.array([np.nan])
    if array.size and (array.dtype.kind not in "iu" or np.any(array < 0)):
        raise InvalidInput(f"{name} is {nodes!r}; give names of nodes, which are whole numbers from 0 on")
    _input.expect_once(name, array)
    return [int(node) for node in array.ravel()]


def pagerank(
    graph: Any,
    nodes: ArrayLike | None = None,
    *,
    damping: float = 0.85,
    seeds: ArrayLike = (),
    relative: float | None = None,
    epsilon: float | None = None,
    time_limit: float | None = None,
    progress: Progress = None,
) -> PageRank:
    """Compute the PageRank of a graph's nodes, with intervals, on the CPU.

    Parameters
    ----------
    graph : Graph, sparse matrix, array_like or path
        The graph, or an argument of :class:`Graph`.
    nodes : int or array_like of int, optional
        Names of the requested nodes; by default all nodes.
    damping : float
        Damping factor, from 0 to below 1: probability of following an edge.
    seeds : array_like of int
        Names of the teleport nodes, for personalised PageRank; by default all nodes.
    relative : float, optional
        Requested half-width relative to each estimate; 1e-6 if `epsilon` is not given either.
    epsilon : float, optional
        Absolute half-width that is sufficient for every estimate.
    time_limit : float, optional
        Seconds after which the intervals reached by then are returned.
    progress
        As in :func:`transient`.

    Returns
    -------
    PageRank

    Examples
    --------
    >>> import kolmo
    >>> r = kolmo.pagerank([[0, 1, 0], [1, 0, 0], [1, 0, 0]])
    >>> [node for node, _ in r.top(2)], bool((r.half_width <= 1e-6 * r.estimate).all())
    ([0, 1], True)
    """
    held = graph if isinstance(graph, Graph) else Graph(graph)
    with _input.watched(progress) as tell:
        asked = _input.Reader(
            None if nodes is None else _named("nodes", nodes),
            _input.number("damping", damping, "a number from 0 on and below 1"),
            _named("seeds", seeds),
            (1e-6 if epsilon is None else 0.0) if relative is None else _input.number("relative", relative),
            0.0 if epsilon is None else _input.number("epsilon", epsilon),
            None if time_limit is None else _input.number("time_limit", time_limit, "a number of seconds"),
            tell,
        )
        result = PageRank(**held._held.page_rank(asked))
    if not result.met:
        warnings.warn(f"a half-width is {result.half_width.max():.2g}, more than was asked for", BoundWarning, stacklevel=2)
    return result
