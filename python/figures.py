"""Measures the figures of the Python package: python figures.py (in an environment with SciPy).

kolmo and SciPy are measured in one run. Build kolmo with `maturin build --release`. Times are
medians over whole calls.
"""

import statistics
import time

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg

import kolmo


def median(work, repeat):
    """Return the median seconds of some calls, and the result of the last one."""
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), result


def chain(n, degree, rng):
    """Make a chain of n states with random rates to `degree` neighbours, in columns."""
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree - degree // 2 + 1)]) * 17
    states = np.sort((np.arange(n)[:, None] + steps) % n, axis=1).astype(np.int32)
    starts = np.arange(0, degree * n + 1, degree, dtype=np.int32)
    rates = sp.csr_array((rng.uniform(0.5, 1.5, degree * n), states.ravel(), starts), (n, n))
    return (rates - sp.diags_array(rates.sum(axis=1))).tocsc()


def overhead(rng):
    """Measure a call without the solver's own seconds, for 100 states."""
    q = chain(100, 6, rng)
    beside = []
    for _ in range(2000):
        began = time.perf_counter()
        r = kolmo.transient(q, times=3.0, device="cpu")
        beside.append(time.perf_counter() - began - r.seconds)
    print(f"overhead, 100 states: {1e6 * statistics.median(beside):.0f} µs beside the solver")


def expm_multiply(rng):
    """Compare expm_multiply with SciPy for 10⁵ states and αt = 100."""
    q = chain(100_000, 6, rng)
    q = (100 / -q.diagonal().min() * q).tocsr()
    first, block = np.zeros(100_000), rng.standard_normal((100_000, 8))
    first[0] = 1
    for name, a, b in (("Q.T", q.T.tocsr(), first), ("Q.T, 8 columns", q.T.tocsr(), block), ("Q, 8 columns", q, block)):
        theirs, x = median(lambda: scipy.sparse.linalg.expm_multiply(a, b), 3)
        ours, y = median(lambda: kolmo.expm_multiply(a, b, device="cpu"), 3)
        print(
            f"expm_multiply, {name}: kolmo {ours:.3f} s, scipy {theirs:.3f} s, {theirs / ours:.1f} times; apart {abs(x - y).max():.1e}"
        )


def whole_calls(rng):
    """Measure whole calls of transient for 2.25·10⁶ states and 1.1·10⁷ entries on the best device."""
    q = chain(2_250_000, 4, rng).tocsr()
    for t in (0.1, 1500):
        took, r = median(lambda t=t: kolmo.transient(q, times=t), 5)
        print(f"transient, {q.nnz} entries, t = {t}: {took:.3f} s, {r.terms} products, {r.device}")


def tridiagonal(rng):
    """Compare with solve_banded for 10⁷ rows."""
    n = 10_000_000
    dl, du, b = (rng.uniform(-1, 1, n) for _ in range(3))
    d = rng.uniform(2, 3, n)
    banded = np.array([np.roll(du, 1), d, np.roll(dl, -1)])
    theirs, x = median(lambda: scipy.linalg.solve_banded((1, 1), banded, b), 5)
    ours, y = median(lambda: kolmo.solve_tridiagonal(dl, d, du, b, device="cpu"), 5)
    print(f"tridiagonal: kolmo {ours:.3f} s, scipy {theirs:.3f} s, {theirs / ours:.1f} times; apart {abs(x - y).max():.1e}")


def memory(rng):
    """Measure peak memory above the matrix, n = 5·10⁶ and 3·10⁷ entries, on Linux (VmHWM)."""

    def resident(key):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))

    q = chain(5_000_000, 5, rng)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    r = kolmo.transient(q, times=0.1, device="cpu")
    held = (q.data.nbytes + q.indices.nbytes + q.indptr.nbytes) / 2**20
    print(f"memory, {q.nnz} entries: matrix {held:.0f} MiB, {resident('VmHWM') - before:.0f} MiB more; {r.seconds:.1f} s")


for figure in (overhead, expm_multiply, whole_calls, tridiagonal, memory):
    figure(np.random.default_rng(0))
