import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.linalg import lapack, solve_banded

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


def condition(dl, d, du):
    """LAPACK's reciprocal condition number, or 0 if a pivot is 0."""
    *lu, info = lapack.dgttrf(dl[1:], d, du[:-1])
    if info > 0:
        return 0.0
    anorm = np.abs(dense(dl, d, du)).sum(axis=0).max()
    rcond, info = lapack.dgtcon(*lu, anorm)
    assert info == 0
    return rcond


def neumann(n):
    d = np.full(n, 2.0)
    d[0] = d[-1] = 1.0
    return np.full(n, -1.0), d, np.full(n, -1.0)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 100, 1000, 2048, 2049, 3000, 10_000, 100_000])
def test_row_sums_of_zero_are_singular_in_every_way(n, device):
    dl, d, du = neumann(n)
    consistent = np.zeros(n)
    consistent[0], consistent[-1] = 1.0, -1.0
    for b in (np.ones(n), consistent):
        assert lapack.dgtsv(dl[1:], d, du[:-1], b)[-1] == n
        with pytest.raises(kolmo.Singular):
            kolmo.solve_tridiagonal(dl, d, du, b, device=device)
        with pytest.raises(kolmo.Singular):
            kolmo.TridiagonalFactor(dl, d, du, device=device).solve(b)
        side, ring = np.full(n, -1.0), np.full(n, 2.0)
        with pytest.raises(kolmo.Singular):
            kolmo.solve_tridiagonal(side, ring, side, b, cyclic=True, device=device)


def test_singular_to_working_precision_is_that_of_lapack():
    rng = np.random.default_rng(3)
    verdicts = set()
    for k in range(300):
        # SciPy's dgttrf does not support systems of two rows.
        n = int(rng.integers(3, 60))
        dl, du = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
        d = -np.where(np.arange(n) > 0, dl, 0) - np.where(np.arange(n) < n - 1, du, 0)
        if k % 3:
            d[int(rng.integers(n))] += 10.0 ** -rng.uniform(0, 12)
        rcond = condition(dl, d, du)
        r = kolmo.solve_tridiagonal(dl, d, du, rng.uniform(-1, 1, n), full_output=True)
        # LAPACK's condition number also grows with bad scaling, which `singular` does not count.
        if (k % 3 == 0 and rcond < 2.0**-53) or rcond > 1e-13:
            assert r.met == (rcond > 1e-13), (k, n, rcond, r)
            verdicts.add(r.met)
    assert verdicts == {True, False}


def test_scaled_rows_and_columns_are_not_taken_for_singular():
    rng = np.random.default_rng(4)
    for _ in range(100):
        n = int(rng.integers(2, 60))
        dl, d, du, b = system(n, int(rng.integers(1 << 30)))
        # Quotients of elements stay in the range of doubles.
        rows, columns = (2.0 ** rng.integers(-100, 100, n) for _ in range(2))
        left, right = np.roll(columns, 1), np.roll(columns, -1)
        r = kolmo.solve_tridiagonal(dl * rows * left, d * rows * columns, du * rows * right, b * rows, full_output=True)
        assert r.componentwise < 1e-14, (n, r)


def test_a_row_by_itself_is_solved_by_itself():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n = 33
        dl, d, du, b = (rng.integers(-9, 10, n).astype(float) for _ in range(4))
        d[d == 0] = 1.0
        k = int(rng.integers(n))
        dl[k] = du[k] = b[k] = 0.0
        r = kolmo.solve_tridiagonal(dl, d, du, b, cyclic=True, full_output=True)
        if np.linalg.cond(dense(dl, d, du, True)) < 1e10:
            assert r.met and r.x[k] == 0.0, r


def test_a_cyclic_system_has_all_of_its_off_diagonals():
    side, d, b = np.full(4, -1.0), np.full(5, 4.0), np.ones(5)
    whole = np.full(5, -1.0)
    for dl, du in ((side, side), (whole, side), (side, whole)):
        with pytest.raises(ValueError, match="corner"):
            kolmo.solve_tridiagonal(dl, d, du, b, cyclic=True)
        with pytest.raises(ValueError, match="corner"):
            kolmo.TridiagonalFactor(dl, d, du, cyclic=True)
    np.testing.assert_allclose(kolmo.solve_tridiagonal(whole, d, whole, b, cyclic=True), np.full(5, 0.5))


@pytest.mark.parametrize("tolerance", [-1, 0, 1, np.nan, np.inf])
def test_a_tolerance_is_between_0_and_1(tolerance):
    one = np.ones(3)
    with pytest.raises(ValueError, match="invalid tolerance"):
        kolmo.solve_tridiagonal(one, 4 * one, one, one, tolerance=tolerance)
    with pytest.raises(ValueError, match="invalid tolerance"):
        kolmo.TridiagonalFactor(one, 4 * one, one, tolerance=tolerance)


def test_arrays_are_repeated_as_numpy_does():
    dl, d, du, b = system(20, batch=6)
    each = [kolmo.solve_tridiagonal(dl[k], d[k], du[k], b[k]) for k in range(6)]
    cube = [v.reshape(2, 3, 20) for v in (dl, d, du, b)]
    np.testing.assert_allclose(kolmo.solve_tridiagonal(*cube), np.reshape(each, (2, 3, 20)), rtol=1e-13)
    shared = [kolmo.solve_tridiagonal(dl[0], d[0], du[0], b[k]) for k in range(6)]
    np.testing.assert_allclose(kolmo.solve_tridiagonal(dl[:1], d[:1], du[:1], b), shared, rtol=1e-13)
    np.testing.assert_allclose(kolmo.solve_tridiagonal(dl[:1], d[:1], du[:1], cube[3]), np.reshape(shared, (2, 3, 20)), rtol=1e-13)
    one = [kolmo.solve_tridiagonal(dl[k], d[k], du[k], b[0]) for k in range(6)]
    for right in (b[0], b[:1]):
        np.testing.assert_allclose(kolmo.solve_tridiagonal(dl, d, du, right), one, rtol=1e-13)
        np.testing.assert_allclose(kolmo.TridiagonalFactor(dl, d, du).solve(right), one, rtol=1e-13)
    stiff = kolmo.solve_tridiagonal(-1, 4, -1, b[0])
    np.testing.assert_array_equal(stiff, kolmo.solve_tridiagonal(np.full(20, -1.0), np.full(20, 4.0), np.full(20, -1.0), b[0]))
    np.testing.assert_array_equal(stiff, kolmo.solve_tridiagonal(-1, np.full(20, 4.0), -1, b[0]))
    with pytest.raises(ValueError, match="number of systems"):
        kolmo.solve_tridiagonal(dl[:4], d, du, b)


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
        ((np.ones(3), np.ones(4), np.ones(3), np.ma.ones(4)), "masked"),
        ((np.ones(3), np.ones(4), np.ones(3), np.ones(4) * 1j), "complex"),
        ((np.ones(3), np.ones(4), np.ones(3), 1.0), "b has the shape"),
        ((np.ones(3), np.ones(4), np.ones(3), np.ones((3, 2))), "b has the shape"),
        ((np.ones(3), np.ones(4), np.ones(3), np.ones((4, 0))), "b has the shape"),
    ],
)
def test_input_without_an_answer_is_refused(arguments, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.solve_tridiagonal(*arguments)


@pytest.mark.parametrize("cyclic", [False, True])
def test_a_factor_solves_as_the_function_does(device, cyclic):
    dl, d, du, b = system(5000)
    factor = kolmo.TridiagonalFactor(dl, d, du, cyclic=cyclic, device=device)
    columns = np.random.default_rng(1).standard_normal((5000, 3))
    for transpose in (False, True, False):
        for right in (b, columns):
            x = factor.solve(right, transpose=transpose)
            same = kolmo.solve_tridiagonal(dl, d, du, right, cyclic=cyclic, transpose=transpose, device=device)
            assert x.shape == right.shape
            np.testing.assert_allclose(x, same, rtol=1e-12, atol=1e-14)
    assert factor.solve(b, full_output=True).met and repr(factor) == "TridiagonalFactor(shape=(5000,))"


def test_a_factor_of_several_matrices_and_what_it_refuses():
    dl, d, du, b = system(100, batch=7)
    factor = kolmo.TridiagonalFactor(dl, d, du)
    np.testing.assert_array_equal(factor.solve(b), kolmo.solve_tridiagonal(dl, d, du, b))
    with pytest.raises(kolmo.InvalidInput, match="b has the shape"):
        factor.solve(b[:, :50])
    with pytest.raises(kolmo.InvalidInput, match="NaN"):
        factor.solve(np.full_like(b, np.nan))
    with pytest.raises(kolmo.InvalidInput, match="NaN"):
        kolmo.TridiagonalFactor(dl, d * np.nan, du)
    ones = np.ones(3)
    with pytest.raises(kolmo.Singular, match="row"):
        kolmo.TridiagonalFactor(ones, 0 * ones, ones).solve(ones)


def test_a_factor_serves_several_threads():
    dl, d, du, b = system(30_000)
    factor = kolmo.TridiagonalFactor(dl, d, du, device="cpu")
    alone = factor.solve(b)
    with ThreadPoolExecutor(4) as pool:
        for x in pool.map(factor.solve, [b] * 8):
            np.testing.assert_array_equal(x, alone)


def test_what_is_solved_has_the_bits_of_the_command(command, tmp_path):
    done = subprocess.run(
        [command, "generate", "random:50000", "-o", str(tmp_path / "a.npz")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    given = np.load(tmp_path / "a.npz")
    line = [command, "tridiagonal", str(tmp_path / "a.npz"), "--device", "cpu", "-o", str(tmp_path / "x.npy")]
    subprocess.run(line, check=True, capture_output=True)
    x = kolmo.solve_tridiagonal(given["dl"], given["d"], given["du"], given["b"].ravel(), device="cpu")
    np.testing.assert_array_equal(x, np.load(tmp_path / "x.npy").ravel())


class Exchanged:
    """An array of another library that supports DLPack alone."""

    def __init__(self, array, kind=1):
        self.array, self.kind = array, kind

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, stream=None, **asked):
        # NumPy does not support this argument.
        return self.array.__dlpack__(**asked)


class OnDevice:
    def __init__(self, n):
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<f8", "data": (4096, False), "version": 3}


def test_arrays_of_other_libraries_are_borrowed_and_those_on_devices_refused():
    dl, d, du, b = system(1000)
    x = kolmo.solve_tridiagonal(*(Exchanged(array) for array in (dl, d, du, b)))
    np.testing.assert_array_equal(x, kolmo.solve_tridiagonal(dl, d, du, b))
    assert np.from_dlpack(x).ctypes.data == x.ctypes.data
    # A device of ROCm, which kolmo cannot use.
    with pytest.raises(kolmo.InvalidInput, match="b is on device 0 of DLPack's kind 10"):
        kolmo.solve_tridiagonal(dl, d, du, Exchanged(b, kind=10))
    # Arrays that claim to be on a CUDA device, without being there or without one.
    for there in (Exchanged(b, kind=2), OnDevice(len(b))):
        with pytest.raises((kolmo.DeviceError, kolmo.InvalidInput), match="cuda|DLPack's kind 1"):
            kolmo.solve_tridiagonal(dl, d, du, there)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peaks of memory are Linux's")
def test_nothing_is_copied():
    n = 2_000_000
    dl, d, du, b = system(n)
    kolmo.solve_tridiagonal(dl[:5000], d[:5000], du[:5000], b[:5000], device="cpu")

    def resident(key):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))

    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    x = kolmo.solve_tridiagonal(dl, d, du, b, device="cpu")
    assert resident("VmHWM") - before < 1.5 * x.nbytes


class Named(np.ndarray):
    """A subclass of ndarray, like arrays with units."""


def test_unusual_arrays_that_hold_numbers_are_taken():
    n = 5000
    dl, d, du, b = system(n)
    whole = np.round(8 * b)
    same = kolmo.solve_tridiagonal(dl, d, du, whole)
    read_only, apart = d.copy(), np.zeros((n, 2))
    read_only.flags.writeable = False
    apart[:, 1] = d
    for diagonal in (read_only, apart[:, 1], d.astype(">f8"), d.view(Named), d.tolist(), d[::-1].copy()[::-1]):
        x = kolmo.solve_tridiagonal(dl, diagonal, du, whole)
        assert type(x) is np.ndarray
        np.testing.assert_array_equal(x, same)
    for right in (whole.astype(np.int8), whole.astype(np.float32), whole.astype(">i4")):
        np.testing.assert_array_equal(kolmo.solve_tridiagonal(dl, d, du, right), same)
    both = np.asfortranarray(np.stack([whole, whole], axis=1))
    for columns in (both, np.ascontiguousarray(both)):
        x = kolmo.solve_tridiagonal(dl, d, du, columns)
        np.testing.assert_array_equal(x, np.stack([same, same], axis=1))
    # One array may be passed for several arguments.
    assert np.all(kolmo.solve_tridiagonal(dl[1:], d, du[:-1], d) == kolmo.solve_tridiagonal(dl, d, du, d.copy()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_factor_in_a_forked_process_is_refused():
    script = """
import os, sys, numpy as np, kolmo
f = kolmo.TridiagonalFactor(np.ones(3), 4 * np.ones(3), np.ones(3), device="cpu")
if (child := os.fork()) == 0:
    try:
        f.solve(np.ones(3))
    except kolmo.DeviceError as error:
        os._exit(0 if "forked" in str(error) else 2)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
