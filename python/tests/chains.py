"""Chains for the tests."""

import numpy as np
import scipy.sparse as sp


def generator(n, density=0.1, seed=0, scale=1.0):
    """A random generator in csr without absorbing states."""
    rng = np.random.default_rng(seed)
    rates = sp.random_array((n, n), density=density, rng=rng, format="lil")
    rates.setdiag(0)
    rates[np.arange(n), (np.arange(n) + 1) % n] = 1.0
    rates = scale * rates.tocsr()
    q = (rates - sp.diags_array(rates.sum(axis=1))).tocsr()
    q.sum_duplicates()
    return q


def queue(n, arrivals=0.9, services=1.0):
    """An M/M/1 queue with n states."""
    ones = np.ones(n - 1)
    rates = sp.diags_array([arrivals * ones, services * ones], offsets=[1, -1])
    return (rates - sp.diags_array(rates.sum(axis=1))).tocsc()
