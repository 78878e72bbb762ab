"""Compares bounds of long-run answers with their errors, on chains with closed forms.

    python3 tightness.py

A row of the table is a question. A case is one chain at one ε; of an answer for every state it has
the median ratio of bound and error over the states. Errors below 1e-13 of the largest value are
rounding, and count only as violations if they exceed their bound.
"""

import math
import warnings

import numpy as np
import scipy.sparse as sp

import kolmo

ROUNDING = 64 * np.finfo(float).eps


def line(n, up, down):
    """Rates of a chain of n + 1 states in a row."""
    return sp.diags_array(np.broadcast_to(up, n), offsets=1, shape=(n + 1, n + 1)) + sp.diags_array(
        np.broadcast_to(down, n), offsets=-1, shape=(n + 1, n + 1)
    )


def stationary(rates, exact, epsilon):
    """Error and bound of a stationary distribution, and 1, its size."""
    found = kolmo.stationary(sp.csr_array(rates), kind="rates", epsilon=epsilon)
    return np.array([np.abs(found.p - exact / exact.sum()).sum()]), np.array([found.bound]), 1


def strip(width, height, speed, rng):
    """Random walk on a strip with vertical rates of any size; the left and right column absorb."""
    across = sp.kron(sp.eye_array(height), line(width, 1.0, 1.0))
    along = line(height - 1, *(speed * rng.uniform(0.5, 1, (2, height - 1))))
    x = np.tile(np.arange(width + 1), height)
    return sp.csr_array(across + sp.kron(along, sp.eye_array(width + 1))), x


def cases(epsilon):
    """Question, errors, bounds and size of each case."""
    rng = np.random.default_rng(1)
    for size in (20, 60, 150):
        one, two = rng.uniform(0.5, 0.99, 2)
        both = sp.kron(line(size, one, 1.0), sp.eye_array(size + 1)) + sp.kron(
            sp.eye_array(size + 1), line(size, two, 1.0)
        )
        exact = np.kron(one ** np.arange(size + 1.0), two ** np.arange(size + 1.0))
        yield "two queues", *stationary(both, exact, epsilon)
        servers = 10 * size
        arrivals = one * servers
        logs = [k * math.log(arrivals) - math.lgamma(k + 1) for k in range(servers + 1)]
        rates = line(servers, arrivals, np.arange(1.0, servers + 1))
        yield "loss system", *stationary(rates, np.exp(np.array(logs) - max(logs)), epsilon)
    for width in (120, 200):
        for speed in (0.01, 1, 100):
            rates, x = strip(width, width, speed, rng)
            ends, between = {"a": x == 0, "b": x == width}, (x > 0) & (x < width)
            found = kolmo.absorption(rates, ends, kind="rates", epsilon=epsilon)
            error = np.abs(found.p[:, 1] - x / width)
            yield "probability from each state", error[between], found.bound[between, 1], 1
            found = kolmo.hitting_time(rates, ~between, kind="rates", epsilon=epsilon)
            exact = x * (width - x) / 2
            error = np.abs(found.values - exact)
            yield "time from each state", error[between], found.bound[between], exact.max()


def main():
    warnings.simplefilter("ignore", kolmo.BoundWarning)
    ratios, values, violations = {}, {}, {}
    for epsilon in 10.0 ** -np.arange(2, 11):
        for question, error, bound, size in cases(epsilon):
            values[question] = values.get(question, 0) + len(error)
            beyond = np.count_nonzero(error > bound + ROUNDING * size)
            violations[question] = violations.get(question, 0) + beyond
            known = error > 1e-13 * size
            own = ratios.setdefault(question, [])
            if known.any():
                own.append(np.median(bound[known] / error[known]))
    ratios["all"] = [ratio for own in ratios.values() for ratio in own]
    values["all"], violations["all"] = sum(values.values()), sum(violations.values())
    print("| question | values | beyond their bound | cases | median of bound / error |\n|---|---|---|---|---|")
    for question, own in ratios.items():
        median = f"{np.median(own):.1f}" if own else "–"
        print(f"| {question} | {values[question]} | {violations[question]} | {len(own)} | {median} |")


main()
