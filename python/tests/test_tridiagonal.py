import numpy as np
import pytest
from scipy.linalg import solve_banded

import kolmo


def system(n, seed=0, batch=None):
    rng = np.random.default_rng(seed)
    shape = (n,) if batch is None else (batch, n)
    dl, du, b = (rng.uniform(-1, 1, shape) for _ in range(3))
    return dl, rng.uniform(2, 3, shape), du, b


def dense(dl, d, du, cyclic=False):
    a = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
    if cyclic:
        a[0, -1], a[-1, 0] = dl[0], du[-1]
    return a


def test_unknowns_are_those_of_scipy(device):
    dl, d, du, b = system(5000)
    x = kolmo.solve_tridiagonal(dl, d, du, b, device=device)
    banded = solve_banded((1, 1), np.array([np.roll(du, 1), d, np.roll(dl, -1)]), b)
    np.testing.assert_allclose(x, banded, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(x, kolmo.solve_tridiagonal(dl[1:], d, du[:-1], b, device=device))


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_cyclic_and_transposed_systems_with_several_right_hand_sides(cyclic, transpose):
    dl, d, du, _ = system(300)
    b = np.asfortranarray(np.random.default_rng(1).standard_normal((300, 3)))
    a = dense(dl, d, du, cyclic)
    r = kolmo.solve_tridiagonal(dl, d, du, b, cyclic=cyclic, transpose=transpose, full_output=True)
    assert r.met and r.normwise < 1e-12 and r.componentwise < 1e-8
    assert r.x.shape == b.shape
    np.testing.assert_allclose((a.T if transpose else a) @ r.x, b, atol=1e-12)


def test_several_systems():
    dl, d, du, b = system(100, batch=7)
    x = kolmo.solve_tridiagonal(dl, d, du, b)
    for k in range(7):
        np.testing.assert_allclose(dense(dl[k], d[k], du[k]) @ x[k], b[k], atol=1e-13)


def test_a_singular_matrix_is_an_exception_with_its_row():
    ones = np.ones(3)
    with pytest.raises(kolmo.Singular, match="row"):
        kolmo.solve_tridiagonal(ones, 0 * ones, ones, ones)
    assert issubclass(kolmo.Singular, np.linalg.LinAlgError)
    r = kolmo.solve_tridiagonal(ones, 0 * ones, ones, ones, full_output=True)
    assert not r.met


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((np.ones(2), np.ones(4), np.ones(3), np.ones(4)), "dl has 2"),
        ((np.ones(3), np.ones(4), np.ones(3), np.ones(5)), "b has the shape"),
        ((np.ones(3), np.ones((2, 2)), np.ones(3), np.ones(4)), "dl has the shape"),
        ((np.ones(3), np.ones(4) * np.nan, np.ones(3), np.ones(4)), "NaN"),
        ((np.ones(0), np.ones(0), np.ones(0), np.ones(0)), "give n numbers"),
        ((np.ones(3), np.float64(1), np.ones(3), np.ones(4)), "give n numbers"),
        ((np.ones(3), np.ones(4), np.ones(3), np.array([None] * 4)), "object"),
    ],
)
def test_input_without_an_answer_is_refused(arguments, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.solve_tridiagonal(*arguments)
