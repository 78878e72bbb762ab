"""Arrays of other libraries on a device: tridiagonal systems are solved on that device.

The protocol is tested on the host, with the CPU as a "device", and with CuPy and Torch if there is
a CUDA device.
"""

import gc
import sys
import weakref

import numpy as np
import pytest
from conftest import cuda_or_skip
from test_tridiagonal import dense, system

import kolmo
from kolmo import _device, _kolmo


class There:
    """An array of another library that supports DLPack alone."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.streams = array, versioned, []

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, **asked):
        if asked and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return self.array.__dlpack__(**asked)


@pytest.fixture
def there(monkeypatch):
    """The host, as a device with arrays of other libraries."""
    monkeypatch.setitem(_device.KINDS, 1, "cpu")
    return There


def numbers(x):
    assert isinstance(x, kolmo.DeviceArray)
    return np.from_dlpack(x)


@pytest.mark.parametrize("versioned", [True, False])
def test_what_lies_there_is_solved_there(there, versioned):
    for n in (1, 7, 2048, 2049, 100_003):
        dl, d, du, b = system(n)
        given = [there(array, versioned) for array in (dl, d, du, b)]
        r = kolmo.solve_tridiagonal(*given, full_output=True)
        assert r.met and r.device == "cpu" and 0 <= r.normwise <= r.componentwise < 1e-12
        assert r.x.shape == (n,) and r.x.__dlpack_device__() == (1, 0)
        np.testing.assert_allclose(numbers(r.x), kolmo.solve_tridiagonal(dl, d, du, b), rtol=1e-12, atol=1e-14)
        assert all(array.streams == [None] for array in given), "the lane of the host has no stream"


def test_shapes_strides_and_sides_as_of_arrays_of_the_host(there):
    dl, d, du, b = system(5000)
    columns = np.random.default_rng(1).standard_normal((5000, 3))
    apart = np.zeros((5000, 2))
    apart[:, 1] = d
    same = kolmo.solve_tridiagonal(dl, d, du, columns)
    for right in (columns, np.asfortranarray(columns), np.repeat(columns, 2, axis=1)[:, ::2]):
        x = kolmo.solve_tridiagonal(there(dl[1:]), there(apart[:, 1]), there(du[:-1]), there(right))
        assert numbers(x).shape == (5000, 3) and numbers(x).flags.f_contiguous
        np.testing.assert_allclose(numbers(x), same, rtol=1e-12, atol=1e-14)
    # Some arrays may be on the host; the result is on the device of the others.
    x = kolmo.solve_tridiagonal(dl[1:], there(d), du.tolist(), columns)
    np.testing.assert_allclose(numbers(x), same, rtol=1e-12, atol=1e-14)
    assert numbers(kolmo.solve_tridiagonal(there(dl), d, du, b[:, None])).shape == (5000, 1)


@pytest.mark.parametrize("n", [1, 100, 3000])
def test_several_systems_lie_one_behind_the_other_or_apart(there, n):
    dl, d, du, b = system(n, batch=7)
    same = kolmo.solve_tridiagonal(dl, d, du, b)
    wide = np.zeros((7, n + 3))
    wide[:, :n] = d
    for transpose in (False, True):
        same = kolmo.solve_tridiagonal(dl, d, du, b, transpose=transpose)
        for diagonal in (d, wide[:, :n]):
            x = kolmo.solve_tridiagonal(there(dl), there(diagonal), there(du), there(b), transpose=transpose)
            np.testing.assert_allclose(numbers(x), same, rtol=1e-11, atol=1e-13)
        if n > 1:
            x = kolmo.solve_tridiagonal(there(dl[:, 1:]), there(d), there(du[:, :-1]), there(b), transpose=transpose)
            np.testing.assert_allclose(numbers(x), same, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("cyclic", [False, True])
def test_a_factor_solves_with_both_matrices(there, cyclic):
    dl, d, du, b = system(400)
    factor = kolmo.TridiagonalFactor(there(dl), there(d), there(du), cyclic=cyclic)
    a = dense(dl, d, du, cyclic)
    for transpose in (False, True, False):
        x = numbers(factor.solve(there(b), transpose=transpose))
        np.testing.assert_allclose((a.T if transpose else a) @ x, b, atol=1e-12)
    assert factor.shape == (400,)
    # The right-hand side is on the host, the matrix on the device.
    np.testing.assert_allclose(a @ numbers(factor.solve(b)), b, atol=1e-12)


def test_rows_that_have_to_be_exchanged_go_by_way_of_the_host(there):
    n = 5000
    dl, d, du, b = system(n)
    d = 0.1 * d
    r = kolmo.solve_tridiagonal(*(there(array) for array in (dl, d, du, b)), full_output=True)
    assert r.met and r.componentwise < 1e-8
    np.testing.assert_array_equal(numbers(r.x), kolmo.solve_tridiagonal(dl, d, du, b, device="cpu"))
    for name, wrong in (("d", d), ("b", b)):
        wrong = wrong.copy()
        wrong[77] = np.nan
        given = {"dl": dl, "d": d, "du": du, "b": b, name: wrong}
        with pytest.raises(kolmo.InvalidInput, match=f"{name} of row 77 is NaN"):
            kolmo.solve_tridiagonal(*(there(array) for array in given.values()))
    ones = np.ones(3)
    with pytest.raises(kolmo.Singular, match="row"):
        kolmo.solve_tridiagonal(there(ones), there(0 * ones), there(ones), there(ones))


def test_what_is_borrowed_is_given_back_and_what_is_lent_lives_on(there):
    class Watched(np.ndarray):
        pass

    dl, d, du, b = (array.view(Watched) for array in system(3000))
    gone = [weakref.ref(array) for array in (dl, d, du, b)]
    # NumPy lends the array itself: it lives as long as any of its capsules.
    factor = kolmo.TridiagonalFactor(there(dl), there(d), there(du))
    x = factor.solve(there(b))
    del dl, d, du, b
    gc.collect()
    assert not any(array() is not None for array in gone), "the matrix is kolmo's own"
    first, second = np.from_dlpack(x), np.from_dlpack(x)
    assert first.ctypes.data == second.ctypes.data
    kept = first.copy()
    # Capsules without a consumer, of both types.
    x.__dlpack__(), x.__dlpack__(max_version=(1, 0))
    del x, second, factor
    gc.collect()
    for _ in range(3):
        kolmo.solve_tridiagonal(*system(3000))
    np.testing.assert_array_equal(first, kept)


def test_a_capsule_is_taken_once():
    capsule = np.ones(3).__dlpack__()
    assert _kolmo.Borrowed("b", capsule).shape == [3]
    with pytest.raises(BufferError, match="taken out already"):
        _kolmo.Borrowed("b", capsule)
    array = np.ones((4, 6))[::2, 1:]
    borrowed = _kolmo.Borrowed("b", array.__dlpack__())
    assert (borrowed.shape, borrowed.strides) == ([2, 5], [12, 1]) and borrowed.column(2).strides == [12]


def test_what_is_lent_is_told_of_as_others_ask(there):
    x = kolmo.solve_tridiagonal(*(there(array) for array in system(10)))
    assert repr(x) == "DeviceArray(shape=[10], device=(1, 0))"
    with pytest.raises(BufferError, match="is exported without a copy"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="is exported without a copy"):
        x.__dlpack__(copy=True)
    assert not hasattr(x, "__cuda_array_interface__")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"b": np.ones(4, dtype=np.float32)}, "b: b holds numbers of DLPack's type 2 with 32 bits"),
        ({"b": np.ones(4, dtype=np.int64)}, "arrays on a device hold float64"),
        ({"d": np.ones(8)[::-2]}, "d repeats its numbers, or has them in opposite order"),
        ({"d": np.broadcast_to(np.ones(1), 4)}, "d repeats its numbers"),
        ({"b": np.ones(5)}, r"b has the shape \(5,\)"),
        ({"b": np.ones((4, 0))}, "b has the shape"),
        ({"b": np.ones((4, 2, 2))}, "b has the shape"),
        ({"dl": np.ones(2)}, "dl needs 4 numbers a system, or 3"),
        ({"d": np.ones((2, 2))}, "dl has the shape"),
        ({"d": np.ones((1, 2, 2))}, "d has the shape"),
        ({"d": np.ones(0)}, "give n numbers"),
    ],
)
def test_arrays_without_an_answer_are_refused(there, change, told):
    given = {"dl": np.ones(4), "d": 4 * np.ones(4), "du": np.ones(4), "b": np.ones(4), **change}
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.solve_tridiagonal(*(there(array) for array in given.values()))


def test_options_and_places_that_contradict_each_other_are_refused(there):
    dl, d, du, b = (there(array) for array in system(10))
    with pytest.raises(kolmo.InvalidInput, match="dl is on cpu, and device is 'wgpu:0'"):
        kolmo.solve_tridiagonal(dl, d, du, b, device="wgpu:0")
    with pytest.raises(kolmo.InvalidInput, match="leave precision out"):
        kolmo.solve_tridiagonal(dl, d, du, b, precision="f32")
    with pytest.raises(kolmo.InvalidInput, match="b is on cpu, the matrix on the host"):
        kolmo.TridiagonalFactor(*system(10)[:3]).solve(b)
    with pytest.raises(kolmo.InvalidInput, match="off-diagonals of a cyclic system"):
        kolmo.solve_tridiagonal(there(np.ones(9)), d, there(np.ones(9)), b, cyclic=True)
    with pytest.raises(kolmo.InvalidInput, match="7 cyclic systems"):
        kolmo.solve_tridiagonal(*(there(array) for array in system(10, batch=7)), cyclic=True)

    class Elsewhere(There):
        def __dlpack_device__(self):
            return 2, 3

    with pytest.raises(kolmo.InvalidInput, match="dl is on cpu, b on cuda:3"):
        kolmo.solve_tridiagonal(dl, d, du, Elsewhere(np.ones(10)))
    # An array that misstates its contents is found out before it is read.
    lane = _kolmo.DeviceLane(kolmo._input.Place("cpu", None), (2, 0))
    lies = _kolmo.Borrowed("d", np.ones(4).__dlpack__())
    with pytest.raises(kolmo.InvalidInput, match="dl is on device 0 of DLPack's kind 1"):
        lane.factor(lies, lies, lies, 1, 4, False, 1e-12)


def test_interfaces_of_cuda_are_read_as_they_are_meant(there, monkeypatch):
    """Addresses on the host stand for those of a device."""
    at = _device.There(1, 0)
    monkeypatch.setattr(_device, "place_of", lambda values, asked="": None if isinstance(values, np.ndarray) else at)

    class Interface:
        def __init__(self, array, **more):
            self.array = array
            self.__cuda_array_interface__ = {
                "shape": array.shape,
                "typestr": array.dtype.str,
                "data": (array.ctypes.data, False),
                "version": 3,
                **more,
            }

    dl, d, du, b = system(3000)
    columns = np.random.default_rng(1).standard_normal((3000, 2))
    x = kolmo.solve_tridiagonal(*(Interface(array) for array in (dl, d, du, b)))
    np.testing.assert_allclose(numbers(x), kolmo.solve_tridiagonal(dl, d, du, b), rtol=1e-12, atol=1e-14)
    x = kolmo.solve_tridiagonal(Interface(dl), Interface(d), Interface(du), Interface(columns, strides=columns.strides))
    np.testing.assert_allclose(numbers(x), kolmo.solve_tridiagonal(dl, d, du, columns), rtol=1e-12, atol=1e-14)
    for wrong, told in (
        (Interface(b.astype(np.float32)), "<f4"),
        (Interface(b, mask=b), "masked"),
        (Interface(b, strides=(4,)), "multiples of 8"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=told):
            kolmo.solve_tridiagonal(Interface(dl), Interface(d), Interface(du), wrong)
    with pytest.raises(kolmo.DeviceError, match="cpu cannot read memory of other libraries"):
        kolmo.solve_tridiagonal(Interface(dl), Interface(d), Interface(du), Interface(b, stream=1))


@pytest.mark.parametrize("name", ["cupy", "torch"])
class TestCuda:
    """Tests with a CUDA device; they have run on an H200 with CuPy 14 and Torch 2.11."""

    @staticmethod
    def arrays(name, *given):
        library = cuda_or_skip(name)
        return [library.asarray(array) if name == "cupy" else library.from_numpy(array).cuda() for array in given]

    @staticmethod
    def host(x):
        return x.cpu().numpy() if hasattr(x, "cpu") else x.get()

    def test_unknowns_are_those_of_scipy_and_stay_there(self, name):
        for n in (7, 2049, 1_000_003):
            dl, d, du, b = system(n)
            given = self.arrays(name, dl, d, du, b)
            r = kolmo.solve_tridiagonal(*given, full_output=True)
            assert type(r.x) is type(given[3]) and r.met and r.device == "cuda:0" and r.componentwise < 1e-12
            same = kolmo.solve_tridiagonal(dl, d, du, b, device="cpu")
            np.testing.assert_allclose(self.host(r.x), same, rtol=1e-11, atol=1e-13)

    def test_what_was_queued_before_is_seen(self, name):
        library = cuda_or_skip(name)
        n = 2_000_000
        dl, d, du, b = self.arrays(name, *system(n))
        side = library.cuda.Stream() if name == "torch" else library.cuda.Stream(non_blocking=True)
        with library.cuda.stream(side) if name == "torch" else side:
            late = b.clone() if name == "torch" else b.copy()
            for _ in range(200):
                late = late * 1.0
            late = late * 2.0
            x = kolmo.solve_tridiagonal(dl, d, du, late)
        twice = 2.0 * self.host(kolmo.solve_tridiagonal(dl, d, du, b))
        np.testing.assert_allclose(self.host(x), twice, rtol=1e-13, atol=1e-14)

    def test_factors_columns_transposes_and_batches(self, name):
        dl, d, du, _ = system(50_000)
        columns = np.random.default_rng(1).standard_normal((50_000, 3))
        factor = kolmo.TridiagonalFactor(*self.arrays(name, dl, d, du))
        for transpose in (False, True, False):
            (right,) = self.arrays(name, columns)
            x = self.host(factor.solve(right, transpose=transpose))
            same = kolmo.solve_tridiagonal(dl, d, du, columns, transpose=transpose, device="cpu")
            np.testing.assert_allclose(x, same, rtol=1e-11, atol=1e-13)
        batch = system(300, batch=70)
        x = self.host(kolmo.solve_tridiagonal(*self.arrays(name, *batch)))
        np.testing.assert_allclose(x, kolmo.solve_tridiagonal(*batch, device="cpu"), rtol=1e-11, atol=1e-13)
        apart = [np.repeat(array, 2)[::2] for array in system(5000)]
        x = self.host(kolmo.solve_tridiagonal(*(array[::2] for array in self.arrays(name, *(np.repeat(a, 2) for a in apart)))))
        np.testing.assert_allclose(x, kolmo.solve_tridiagonal(*apart, device="cpu"), rtol=1e-11, atol=1e-13)

    def test_rows_that_have_to_be_exchanged(self, name):
        dl, d, du, b = system(5000)
        d = 0.1 * d
        r = kolmo.solve_tridiagonal(*self.arrays(name, dl, d, du, b), full_output=True)
        assert r.met and r.componentwise < 1e-8
        (dl, d, du, b) = self.arrays(name, dl, d, du, np.full(5000, np.nan))
        with pytest.raises(kolmo.InvalidInput, match="b of row 0 is NaN"):
            kolmo.solve_tridiagonal(dl, d, du, b)

    def test_memory_is_given_back_and_the_context_stays_the_librarys(self, name):
        library = cuda_or_skip(name)
        given = self.arrays(name, *system(1_000_000))
        free = (lambda: library.cuda.mem_get_info()[0]) if name == "torch" else (lambda: library.cuda.runtime.memGetInfo()[0])
        kolmo.solve_tridiagonal(*given)
        gc.collect()
        before = free()
        for _ in range(20):
            x = kolmo.solve_tridiagonal(*given)
        del x
        gc.collect()
        assert before - free() < 8_000_000
        current = library.cuda.current_device() if name == "torch" else library.cuda.runtime.getDevice()
        assert current == 0 and float(self.host(given[1] + given[1])[0]) == 2 * float(self.host(given[1])[0])

    def test_what_is_refused(self, name):
        dl, d, du, b = self.arrays(name, *system(100))
        with pytest.raises(kolmo.InvalidInput, match="is on cuda:0, and device is 'cpu'"):
            kolmo.solve_tridiagonal(dl, d, du, b, device="cpu")
        single = b.float() if name == "torch" else b.astype("float32")
        with pytest.raises(kolmo.InvalidInput, match="float64"):
            kolmo.solve_tridiagonal(dl, d, du, single)
        with pytest.raises(kolmo.InvalidInput, match=r"only tridiagonal systems"):
            kolmo.transient(np.array([[0.0, 1.0], [1.0, 0.0]]), b[:2], 1.0)


class Interfaced:
    """An array of CuPy that supports ``__cuda_array_interface__`` alone."""

    def __init__(self, array):
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.array = array


def test_interfaces_of_cuda_alone():
    cupy = cuda_or_skip("cupy")
    dl, d, du, b = system(5000)
    given = [Interfaced(cupy.asarray(array)) for array in (dl, d, du, b)]
    x = kolmo.solve_tridiagonal(*given)
    assert isinstance(x, kolmo.DeviceArray)
    np.testing.assert_allclose(
        cupy.asarray(x).get(), kolmo.solve_tridiagonal(dl, d, du, b, device="cpu"), rtol=1e-12, atol=1e-14
    )
    with pytest.raises(kolmo.DeviceError, match="CUDA"):
        wrong = Interfaced(cupy.asarray(b))
        wrong.__cuda_array_interface__ = {**wrong.__cuda_array_interface__, "data": (4096, False)}
        kolmo.solve_tridiagonal(*given[:3], wrong)


def test_jax_arrays_stay_there():
    jax = cuda_or_skip("jax")
    jax.config.update("jax_enable_x64", True)
    dl, d, du, b = system(5000)
    x = kolmo.solve_tridiagonal(*(jax.device_put(array, jax.devices("cuda")[0]) for array in (dl, d, du, b)))
    assert "cuda" in str(x.devices()).lower() and sys.modules["jax"] is jax
    np.testing.assert_allclose(np.asarray(x), kolmo.solve_tridiagonal(dl, d, du, b, device="cpu"), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_transition_matrices_stay_on_the_device(name):
    library = cuda_or_skip(name)
    q = np.random.default_rng(3).random((7, 20, 20)) / 10
    times = np.geomspace(0.1, 100, 7)
    here = kolmo.transition_matrices(q, times)
    there = library.from_dlpack(library.asarray(q)) if name == "cupy" else library.tensor(q, device="cuda:0")
    r = kolmo.transition_matrices(there, times)
    assert type(r.p) is type(there) and np.array_equal(r.bound, here.bound)
    assert np.array_equal(library.asnumpy(r.p) if name == "cupy" else r.p.cpu().numpy(), here.p)
    with pytest.raises(kolmo.InvalidInput, match="a chain for each time"):
        kolmo.transition_matrices(there, np.ones((2, 7)))
    with pytest.raises(kolmo.InvalidInput, match="chain 0: a rate of state 0 is -"):
        kolmo.transition_matrices(-there, times)
