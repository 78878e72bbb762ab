"""Compares absorption probabilities of a nearest-neighbour graph with SciPy's GMRES.

    python3 absorption.py [STATES [RUNS]]

The chain is a random walk on the 30 nearest neighbours of random points in the unit cube, with
Gaussian weights, as in trajectory inference from single cells. Three sets of 30 states absorb.
GMRES solves (I - Q) x = b for each set without a preconditioner, to a relative residual of 1e-5.
"""

import statistics
import sys
import time

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sl
from scipy.spatial import KDTree

import kolmo


def graph(n, seed=1):
    """Transition matrix and three sets of neighbouring states."""
    points = np.random.default_rng(seed).random((n, 3))
    tree = KDTree(points)
    distance, column = tree.query(points, 31, workers=-1)
    weight = np.exp(-((distance[:, 1:] / np.median(distance[:, 1:])) ** 2))
    weight /= weight.sum(axis=1, keepdims=True)
    row = np.repeat(np.arange(n), 30)
    matrix = sp.csr_array((weight.ravel(), (row, column[:, 1:].ravel())), shape=(n, n))
    corners = [(0, 0, 0), (1, 1, 0), (0, 1, 1)]
    return matrix, {f"set {k}": tree.query(corner, 30)[1] for k, corner in enumerate(corners)}


def gmres(matrix, sets):
    """Probabilities by GMRES, column by column, and 0 where it did not converge."""
    n = matrix.shape[0]
    absorbing = np.zeros(n, bool)
    absorbing[np.concatenate(list(sets.values()))] = True
    left = np.flatnonzero(~absorbing)
    rows = matrix[left]
    system = sp.eye_array(len(left), format="csr") - rows[:, left]
    p = np.zeros((n, len(sets)))
    for k, states in enumerate(sets.values()):
        p[states, k] = 1
        x, failed = sl.gmres(system, rows[:, states].sum(axis=1), rtol=1e-5)
        print(f"# GMRES, set {k}: {'not converged' if failed else 'converged'}", flush=True)
        p[left, k] = x
    return p


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    matrix, sets = graph(n)
    times = {"kolmo": [], "gmres": []}
    for _ in range(runs):
        started = time.perf_counter()
        answer = kolmo.absorption(matrix, sets)
        times["kolmo"].append(time.perf_counter() - started)
        started = time.perf_counter()
        other = gmres(matrix, sets)
        times["gmres"].append(time.perf_counter() - started)
    ours, theirs = (statistics.median(times[name]) for name in ("kolmo", "gmres"))
    print("| states | kolmo, s | bound | GMRES, s | its error | ratio |\n|---|---|---|---|---|---|")
    error = np.abs(answer.p - other).max()
    print(f"| {n} | {ours:.2f} | {np.max(answer.bound):.1e} | {theirs:.2f} | {error:.1e} | {theirs / ours:.1f} |")


main()
