import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import kolmo


def dominant(n, seed=0):
    rng = np.random.default_rng(seed)
    a = sp.random_array((n, n), density=10 / n, rng=rng, format="csr")
    a.setdiag(0)
    a.eliminate_zeros()
    return (a + sp.diags_array(2 * a.sum(axis=1) + 1)).tocsr(), rng.uniform(0, 1, (n, 2))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_intervals_hold_the_components(device, form):
    a, b = dominant(2000)
    exact = spsolve(a.tocsc(), b)
    w = kolmo.walk(a.asformat(form), b, [7, 100, 1999], epsilon=1e-4, device=device)
    assert w.met and w.estimate.shape == (2, 3) and np.all(w.half_width <= 1e-4)
    # One of six intervals of 95 % may miss, none by much.
    off = np.abs(w.estimate - exact[[7, 100, 1999]].T)
    assert np.all(off <= 3 * w.half_width) and np.sum(off <= w.half_width) >= 5
    np.testing.assert_array_equal(w.components, [7, 100, 1999])
    one = kolmo.walk(a, b[:, 0], 7, epsilon=1e-4, device=device)
    assert one.estimate.shape == (1,) and one.device == device


def test_the_bits_are_those_of_the_command(command, tmp_path):
    a, b = dominant(500)
    sp.save_npz(tmp_path / "a.npz", a)
    np.save(tmp_path / "b.npy", b[:, 0])
    line = [command, "walk", "a.npz", "--rhs", "b.npy", "--component", "7,42", "--epsilon", "1e-3", "--device", "cpu"]
    told = subprocess.run([*line, "--quiet"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    theirs = [row.split(",")[1:3] for row in told.splitlines()[1:]]
    w = kolmo.walk(a, b[:, 0], [7, 42], epsilon=1e-3, device="cpu")
    np.testing.assert_array_equal(np.array(theirs, dtype=float), np.stack([w.estimate, w.half_width], axis=1))


def test_a_system_whose_walks_diverge_is_refused():
    a = sp.csr_array(np.array([[1.0, 3.0], [3.0, 1.0]]))
    with pytest.raises(kolmo.Divergent, match="row"):
        kolmo.walk(a, np.ones(2), 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((np.eye(3), np.ones(2), 0), "A has 3 rows"),
        ((np.eye(3), np.ones(3), 3), "0 to 2"),
        ((np.eye(3), np.ones(3), [0, 0]), "components has the number 0 twice"),
        ((np.eye(3), np.ones(3), []), "no component"),
        ((np.ones((2, 3)), np.ones(3), 0), "square"),
        ((np.eye(3), np.ones(3) * np.inf, 0), "inf"),
    ],
)
def test_input_without_an_answer_is_refused(arguments, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.walk(*arguments)


def test_functionals_have_intervals_and_the_bits_of_the_command(command, tmp_path, device):
    a, b = dominant(500)
    h = np.stack([np.ones(500) / 500, (np.arange(500) == 3) * 2.0], axis=1)
    x = spsolve(a.tocsc(), b)
    w = kolmo.walk(a, b, [7], functional=h, epsilon=1e-3, device=device)
    assert w.functional.shape == w.functional_half_width.shape == (2, 2) and w.met
    assert np.all(abs(w.functional - (h.T @ x).T) <= 3 * w.functional_half_width)
    alone = kolmo.walk(a, b[:, 0], functional=h[:, 0], epsilon=1e-3, device="cpu")
    assert alone.estimate.shape == (0,) and alone.functional.shape == (1,)
    sp.save_npz(tmp_path / "a.npz", a)
    np.save(tmp_path / "b.npy", b[:, 0])
    np.save(tmp_path / "h.npy", h[:, 0])
    line = [command, "walk", "a.npz", "--rhs", "b.npy", "--functional", "h.npy", "--epsilon", "1e-3", "--device", "cpu"]
    told = subprocess.run([*line, "--quiet"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    (row,) = told.splitlines()[1:]
    assert [float(number) for number in row.split(",")[1:3]] == [alone.functional[0], alone.functional_half_width[0]]


def test_a_time_limit_ends_with_what_is_there():
    a, b = dominant(2000)
    with pytest.warns(kolmo.BoundWarning, match="more than epsilon"):
        w = kolmo.walk(a, b[:, 0], [7], epsilon=1e-12, time_limit=1e-9, device="cpu")
    assert not w.met and w.half_width[0] > 1e-6 and w.estimate.shape == (1,)
    for wrong in (0, -1, np.inf, np.nan):
        with pytest.raises(kolmo.InvalidInput, match="time_limit is"):
            kolmo.walk(a, b[:, 0], 7, time_limit=wrong)
    with pytest.raises(kolmo.InvalidInput, match="functional has the shape"):
        kolmo.walk(a, b[:, 0], functional=np.ones(3))
