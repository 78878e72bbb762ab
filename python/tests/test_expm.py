"""Properties that SciPy tests of its expm_multiply, for generators and their transposes."""

import decimal

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from chains import generator, queue
from scipy.linalg import expm

import kolmo

TOLERANCE = 1e-8


@pytest.mark.parametrize("k", [None, 1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_one_time(n, k, form):
    q = sp.csr_array((1, 1)) if n == 1 else generator(n, 0.3)
    a = q.T.toarray() if form == "dense" else q.T.asformat(form)
    b = np.random.default_rng(n).standard_normal((n,) if k is None else (n, k))
    x = kolmo.expm_multiply(a, b)
    assert x.shape == b.shape and x.dtype == np.float64
    np.testing.assert_allclose(x, expm(q.T.toarray()) @ b, atol=TOLERANCE * np.abs(b).sum())
    np.testing.assert_allclose(x, scipy.sparse.linalg.expm_multiply(a, b), atol=TOLERANCE * np.abs(b).sum())


@pytest.mark.parametrize("endpoint", [None, True, False])
@pytest.mark.parametrize("num", [None, 2, 14])
def test_intervals_of_time(num, endpoint):
    q = generator(20)
    b = np.random.default_rng(0).standard_normal((20, 3))
    options = {"start": 0.1, "stop": 3.2, "num": num, "endpoint": endpoint}
    theirs = scipy.sparse.linalg.expm_multiply(q.T.tocsc(), b, **options)
    ours, bound = kolmo.expm_multiply(q.T.tocsc(), b, return_bound=True, **options)
    assert ours.shape == theirs.shape and bound.shape == (ours.shape[0], 3)
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)
    assert np.all(np.abs(ours - theirs).sum(axis=1) <= bound + 1e-12)


def test_zero_matrices_and_vectors():
    b = np.arange(5.0)
    np.testing.assert_array_equal(kolmo.expm_multiply(sp.csr_array((5, 5)), b), b)
    np.testing.assert_array_equal(kolmo.expm_multiply(generator(5).T, 0 * b), 0 * b)


def test_integers_and_small_floats_are_doubles():
    q = np.array([[-1, 1], [2, -2]])
    exact = expm(q.T.astype(float)) @ [3.0, 4.0]
    for a, b in ((q, [3, 4]), (q.astype(np.int8), np.array([3, 4], dtype=np.float32))):
        x = kolmo.expm_multiply(a.T, b)
        assert x.dtype == np.float64
        np.testing.assert_allclose(x, exact, atol=TOLERANCE)


def test_columns_that_lose_mass():
    q = generator(30)
    killed = (q - sp.diags_array(np.linspace(0, 2, 30))).tocsr()
    b = np.random.default_rng(3).standard_normal(30)
    np.testing.assert_allclose(kolmo.expm_multiply(killed.T, b), expm(killed.T.toarray()) @ b, atol=TOLERANCE * 30)


@pytest.mark.parametrize("k", [None, 1, 3, 8, 11])
def test_a_generator_gives_expectations_from_every_state(k):
    q = generator(30, 0.3)
    b = np.random.default_rng(3).standard_normal((30,) if k is None else (30, k))
    for scale in (0.1, 1, 100):
        x = kolmo.expm_multiply(scale * q, b)
        np.testing.assert_allclose(x, expm(scale * q.toarray()) @ b, atol=1e-8 * np.abs(b).max())
        assert np.all(x.bound <= 1e-9 * np.abs(b).max(axis=0))
    killed = (q - sp.diags_array(np.linspace(0, 2, 30))).tocsr()
    np.testing.assert_allclose(kolmo.expm_multiply(killed, b), expm(killed.toarray()) @ b, atol=1e-8)


def test_long_times_of_a_generator():
    q = queue(50, 1.0, 1.5)
    b = np.random.default_rng(4).standard_normal((50, 2))
    stationary = 1.5 ** -np.arange(50.0) / (1.5 ** -np.arange(50.0)).sum()
    x = kolmo.expm_multiply(q, b, 1e7, 2e7, 2)
    np.testing.assert_allclose(x, np.broadcast_to(stationary @ b, x.shape), atol=1e-9)
    assert x.bound.shape == (2, 2) and np.all(x.bound < 1e-8)
    # Bounds of a transpose grow with the time, even if nothing changes any more.
    y = kolmo.expm_multiply(q.T, b, 1e4, 2e4, 2)
    np.testing.assert_allclose(y[0], np.outer(stationary, b.sum(axis=0)), atol=1e-7)


def test_a_matrix_whose_rows_and_columns_grow():
    q = generator(30, 0.3)
    b = np.random.default_rng(3).standard_normal(30)
    grows = q + 0.5 * sp.eye_array(30)
    for a in (grows, grows.T, q + sp.diags_array(np.linspace(-1, 1, 30))):
        a = a.tocsr()
        x, bound = kolmo.expm_multiply(a, b, return_bound=True)
        error = np.abs(x - expm(a.toarray()) @ b)
        assert error.max() <= bound + 1e-12 and bound < TOLERANCE * np.abs(b).sum()
    symmetric = queue(30, 1.0, 1.0)
    np.testing.assert_allclose(
        kolmo.expm_multiply(symmetric, b, 0, 50, 3), scipy.sparse.linalg.expm_multiply(symmetric, b, 0, 50, 3), atol=1e-7
    )
    with pytest.raises(kolmo.InvalidInput, match="expected a generator"):
        kolmo.expm_multiply(100 * grows, b)


def test_bounds_stay_with_whole_results():
    x = kolmo.expm_multiply(generator(5).T, np.ones(5))
    assert x.bound.shape == (1,) and x[1:].bound is None and (2 * x).bound is None


@pytest.mark.parametrize(
    ("a", "b", "options", "told"),
    [
        (np.array([[0.0, -1.0], [0.0, 1.0]]), np.ones(2), {}, r"A\[0, 1\] is -1.0"),
        (np.eye(2) * np.nan, np.ones(2), {}, "not finite"),
        (-np.eye(2), np.ones(3), {}, "A has 2 rows"),
        (-np.eye(2), np.array([1.0, np.inf]), {}, "B holds numbers that are not finite"),
        (-np.eye(2), np.ones(2) * 1j, {}, "complex128"),
        (-np.eye(2), np.ones(2), {"start": -1, "stop": 1}, "not negative"),
        (-np.eye(2), np.ones(2), {"start": 1}, "start and stop"),
        (np.ones((2, 3)), np.ones(2), {}, "square"),
    ],
)
def test_input_without_an_answer_is_refused(a, b, options, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.expm_multiply(a, b, **options)


DIGITS = decimal.Context(prec=120)


def exactly(a, b, t):
    """exp(tA) b in decimal numbers, by scaling and Taylor's series."""
    with decimal.localcontext(DIGITS):
        a = [[decimal.Decimal(float(x)) * decimal.Decimal(float(t)) for x in row] for row in a]
        x = [decimal.Decimal(float(value)) for value in b]
        if len(a) == 1:
            return [a[0][0].exp() * x[0]]
        steps = 1 + int(max(sum(abs(value) for value in row) for row in a))
        for _ in range(steps):
            term = x
            for k in range(1, 90):
                term = [sum(r * y for r, y in zip(row, term, strict=True)) / (k * steps) for row in a]
                x = [u + v for u, v in zip(x, term, strict=True)]
        return x


def expect_bound(a, b, *times, epsilon=1e-9, norm="sum"):
    """Checks the error against the bound, in exact arithmetic."""
    if times:
        times = [*times, 3]
        found, bounds = kolmo.expm_multiply(a, b, *times, return_bound=True, epsilon=epsilon)
        at = np.linspace(*times)
    else:
        found, bounds = (each[None] for each in kolmo.expm_multiply(a, b, return_bound=True, epsilon=epsilon))
        at = np.ones(1)
    for t, x, bound in zip(at, found, bounds, strict=True):
        (bound,), exact = bound, exactly(a, b, t)
        # A bound for a generator is on every error, and for its transpose on their sum.
        join, size = (max, np.abs(b).max()) if norm == "max" else (sum, np.abs(b).sum())
        with decimal.localcontext(DIGITS):
            error = join(abs(decimal.Decimal(float(p)) - q) for p, q in zip(x, exact, strict=True))
            assert error <= decimal.Decimal(float(bound)), (a, b, t, float(error), bound)
        assert bound <= 1.01 * epsilon * size + 1e-300, "the bound is no guess"


def test_the_bound_holds_where_a_single_number_grows_or_decays():
    expect_bound(np.array([[0.001]]), np.array([-0.6131700061123667]), 0, 5266.77033059299)
    expect_bound(np.array([[0.14583756178366172]]), np.array([0.272097020758701]))
    rng = np.random.default_rng(1)
    for _ in range(60):
        rate, b = rng.uniform(-3, 3), rng.standard_normal(1) * 10.0 ** rng.integers(-20, 20)
        expect_bound(np.array([[rate]]), b)
        rate = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-6, 0)
        expect_bound(np.array([[rate]]), b, 0, rng.uniform(0, 6.9) / abs(rate))


def test_the_bound_holds_where_numbers_move_grow_vanish_or_stay():
    rng = np.random.default_rng(2)
    for k in range(30):
        n = int(rng.integers(2, 5))
        a = rng.uniform(0, 1, (n, n)) * (rng.uniform(0, 1, (n, n)) < 0.7)
        np.fill_diagonal(a, 0)
        # Columns that sum to 0 but for rounding, to less, to more, or to any of these.
        drift = [np.zeros(n), -rng.uniform(0, 1, n), rng.uniform(0, 1, n), rng.uniform(-1, 1, n), 1e-11 * rng.uniform(-1, 1, n)]
        a += np.diag(drift[k % 5] - a.sum(axis=0))
        a *= rng.uniform(0, 2)
        columns, rows = (max(a.sum(axis=axis).max(), 0) for axis in (0, 1))
        norm = "max" if rows < columns else "sum"
        b, epsilon = rng.standard_normal(n), float(rng.choice([1e-9, 1e-11]))
        expect_bound(a, b, epsilon=epsilon, norm=norm)
        expect_bound(a.T, b, epsilon=epsilon, norm="max" if columns < rows else "sum")
        expect_bound(np.zeros((n, n)), rng.standard_normal(n))


def test_numbers_at_the_ends_of_the_range():
    q = np.array([[-1.0, 2.0], [1.0, -2.0]])
    largest, bound = kolmo.expm_multiply(q, np.full(2, 1e308), return_bound=True)
    ones = kolmo.expm_multiply(q, np.ones(2))
    np.testing.assert_allclose(largest, 1e308 * ones, rtol=1e-15)
    assert np.isfinite(bound)
    with pytest.warns(kolmo.BoundWarning):
        smallest, bound = kolmo.expm_multiply(q, np.array([5e-324, 0.0]), return_bound=True)
    assert np.all(smallest <= 5e-324) and bound >= 5e-324
    with pytest.raises(kolmo.InvalidInput, match="above 1.79e308"):
        kolmo.expm_multiply(np.array([[1.0]]), np.array([1e308]))
    x, bound = kolmo.expm_multiply(sp.csr_array((3, 3)), np.zeros(3), return_bound=True)
    assert bound == 0 and not x.any()
