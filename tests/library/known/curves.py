#!/usr/bin/env python3
"""Writes curves.txt: distributions of small chains at long times, by Arb's ball arithmetic.

Needs `pip install python-flint`.

    python3 curves.py > curves.txt

A block begins with `chain NAME STATES`. Lines `rate FROM TO RATE` and `begin STATE PROBABILITY`
follow, and lines `at TIME` with the probabilities at that time, rounded to the nearest doubles.
Input numbers are doubles, taken exactly.
"""
from flint import arb, arb_mat, ctx

ctx.prec = 600


def line(n, up, down):
    """Returns the rates of a birth-death chain."""
    return [(i, i + 1, up) for i in range(n - 1)] + [(i + 1, i, down) for i in range(n - 1)]


def ring(first, n, rate):
    return [(first + i, first + (i + 1) % n, rate) for i in range(n)]


def show(name, n, rates, begin, times):
    print("chain", name, n)
    for i, j, rate in rates:
        print("rate", i, j, repr(float(rate)))
    for i, p in begin:
        print("begin", i, repr(float(p)))
    for t in times:
        q = arb_mat(n, n)
        for i, j, rate in rates:
            q[i, j] += arb(float(rate)) * arb(float(t))
            q[i, i] -= arb(float(rate)) * arb(float(t))
        row = arb_mat(1, n, [arb(float(dict(begin).get(i, 0.0))) for i in range(n)]) * q.exp()
        assert all(float(row[0, j].rad()) < 1e-40 for j in range(n)), "more precision"
        print("at", repr(float(t)), *(repr(float(row[0, j].mid())) for j in range(n)))


LONG = [1e8, 0.0, 10.0, 1e4, 1e10, 1e6, 1e8]
show("leak", 13, line(12, 1, 2) + [(i, 12, 1e-7) for i in range(0, 12, 3)], [(11, 1)], LONG)
show("leak_to_three", 14, line(11, 1, 1.5) + [(2, 11, 1e-6), (5, 12, 3e-7), (8, 13, 2e-6)], [(0, 0.5), (12, 0.5)], LONG)
# Two fast classes: the mean time from the first to the second is about 1e3, then to the exit 1e6.
two = line(4, 1, 2) + [(i + 4, j + 4, r) for i, j, r in line(4, 3, 1)]
show("two_scales", 9, two + [(1, 5, 1e-2), (6, 8, 1e-6)], [(0, 1)], [1e7, 1e2, 1e3, 1e6])
# A closed class of two states and two absorbing states, all reached slowly.
classes = ring(0, 4, 1) + [(0, 4, 1e-2), (1, 5, 2e-2), (2, 6, 1e-2), (6, 7, 1), (7, 6, 3)]
show("closed_classes", 8, classes, [(3, 1)], [1e3, 1e6, 1e8])
# P has no diagonal except for the exit: iterates alternate forever.
show("periodic", 6, ring(0, 5, 1) + [(0, 5, 1e-5)], [(0, 1)], [3.0, 1e4, 2e4])
show("begins_absorbed", 13, line(12, 1, 2) + [(i, 12, 1e-7) for i in range(0, 12, 3)], [(12, 1)], [1e8, 1.0])
# In doubles every iterate equals the first, although one half loses its probability in 1e17.
halves = ring(0, 2, 1) + ring(2, 2, 1) + [(0, 2, 1e-17)]
show("hidden_flow", 4, halves, [(i, 0.25) for i in range(4)], [1e8, 1e12, 9e12])
show("settled", 5, line(5, 1, 2), [(0, 1)], [1e8, 1e10, 3e12])
show("death", 6, [(i, i + 1, 1.0) for i in range(5)], [(0, 1)], [1.0, 30.0, 1e4, 1e13])
# Two birth-death chains, entered from a state between them, each with its own exits.
apart = line(5, 1, 2) + [(i + 5, j + 5, r) for i, j, r in line(6, 3, 1)] + [(11, 0, 1), (11, 7, 2)]
apart += [(1, 12, 1e-7), (4, 13, 2e-7), (6, 13, 1e-9), (9, 12, 3e-9)]
show("parts", 14, apart, [(11, 1)], [1e10, 1e7, 1e8, 1e9])
