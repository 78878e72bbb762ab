"""Compares absorption probabilities of a nearest-neighbour graph with SciPy's GMRES.

    python3 absorption.py [STATES [RUNS]]
    python3 absorption.py --memory STATES

The second form prints the largest memory of a process that loads the matrix and calls kolmo, above
that of Python with its modules, as multiples of the matrix (12 bytes per entry).

The chain is a random walk on the 30 nearest neighbours of random points in the unit cube, with
Gaussian weights, as in trajectory inference from single cells. Three sets of 30 states absorb.
GMRES solves (I - Q) x = b for each set without a preconditioner, to a relative residual of 1e-5.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
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
    row = np.repeat(np.arange(n, dtype=np.int32), 30)
    matrix = sp.csr_array((weight.ravel(), (row, column[:, 1:].ravel().astype(np.int32))), shape=(n, n))
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


def resident(name):
    """Resident memory of this process in bytes: VmRSS is the current one, VmHWM the largest."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def measure(folder):
    """Prints the memory of a call for the matrix in a folder."""
    before = resident("VmRSS")
    matrix, sets = sp.load_npz(f"{folder}/matrix.npz"), dict(np.load(f"{folder}/sets.npz"))
    given, size = resident("VmRSS"), 12 * matrix.nnz
    started = time.perf_counter()
    answer = kolmo.absorption(matrix, sets)
    seconds, most = time.perf_counter() - started, resident("VmHWM")
    print("| states | matrix, MB | in all | above the matrix | seconds | bound |\n|---|---|---|---|---|---|")
    row = f"{size / 1e6:.0f} | {(most - before) / size:.2f} | {(most - given) / size:.2f} | {seconds:.1f}"
    print(f"| {matrix.shape[0]} | {row} | {answer.bound.max():.1e} |")


def memory(n):
    """Measures in a process of its own: the construction of the graph takes more memory."""
    with tempfile.TemporaryDirectory() as folder:
        matrix, sets = graph(n)
        sp.save_npz(f"{folder}/matrix.npz", matrix, compressed=False)
        np.savez(f"{folder}/sets.npz", **sets)
        subprocess.run([sys.executable, __file__, "--measure", folder], check=True)


def main():
    if sys.argv[1:2] == ["--memory"]:
        return memory(int(sys.argv[2]))
    if sys.argv[1:2] == ["--measure"]:
        return measure(sys.argv[2])
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
