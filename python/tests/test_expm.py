"""Properties that SciPy's tests ask of its expm_multiply, of matrices that are generators or their transposes."""

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


def test_the_generator_itself_where_columns_do_not_grow_far():
    q = generator(30, 0.3)
    b = np.random.default_rng(3).standard_normal(30)
    x, bound = kolmo.expm_multiply(0.1 * q, b, return_bound=True)
    error = np.abs(x - expm(0.1 * q.toarray()) @ b).sum()
    assert error <= bound + 1e-12 and bound < TOLERANCE * np.abs(b).sum()
    symmetric = queue(30, 1.0, 1.0)
    np.testing.assert_allclose(
        kolmo.expm_multiply(symmetric, b, 0, 50, 3), scipy.sparse.linalg.expm_multiply(symmetric, b, 0, 50, 3), atol=1e-7
    )
    with pytest.raises(kolmo.InvalidInput, match=r"give A\.T"):
        kolmo.expm_multiply(100 * q, b)


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
