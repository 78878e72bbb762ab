import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from chains import generator, queue
from scipy.linalg import expm

import kolmo


def test_probabilities_are_within_their_bound_in_every_format(device):
    q = generator(60)
    times = [0.0, 0.3, 2.0]
    exact = np.array([expm(q.toarray() * t)[0] for t in times])
    p = []
    for form in ("csr", "csc"):
        r = kolmo.transient(q.asformat(form), times=times, device=device)
        assert r.p.shape == (3, 60) and r.p.dtype == np.float64
        assert r.status == "met" and r.device == device
        # SciPy's own error is some 1e-14.
        assert np.all(np.abs(r.p - exact).sum(axis=1) <= r.bound + 1e-12)
        np.testing.assert_array_equal(r.bound, r.truncation + r.steady_state + r.rounding)
        p.append(r.p)
    np.testing.assert_array_equal(*p)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_borrowed_types_have_the_bits_of_doubles(index, value):
    q = generator(40)
    # Rates that are exact in both types.
    q.data = np.round(q.data * 64) / 64
    q.setdiag(0)
    expected = kolmo.transient(q.tocsc(), times=2).p
    for form in ("csr", "csc"):
        m = q.asformat(form).astype(value)
        m.indptr, m.indices = m.indptr.astype(index), m.indices.astype(index)
        np.testing.assert_array_equal(kolmo.transient(m, times=2).p, expected)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_matrices_of_many_rows_are_read_in_pieces(form):
    # Threads read 4096 rows or columns at once; the last row is empty.
    n = 3 * 4096 + 5
    steps, rates = np.array([1, 2, 700]), np.random.default_rng(0).uniform(0.5, 1.5, 3 * n)
    rows, columns = np.repeat(np.arange(n), 3), ((np.arange(n)[:, None] + steps) % n).ravel()
    leaves = rows < n - 1
    q = sp.csr_array((rates[leaves], (rows[leaves], columns[leaves])), (n, n))
    absorbing = np.arange(n) % 50 == 9
    # The distribution after a step, by SciPy.
    alpha = q.sum(axis=1).max()
    first = np.zeros(n)
    first[5] = 1
    for mask in (None, absorbing):
        kept = q if mask is None else sp.diags_array(1.0 - mask) @ q
        step = sp.eye_array(n) + (kept - sp.diags_array(kept.sum(axis=1))) / alpha
        expected, x, weight = np.zeros(n), first, np.exp(-alpha / 2)
        for k in range(40):
            expected, x, weight = expected + weight * x, step.T @ x, weight * alpha / 2 / (k + 1)
        r = kolmo.transient(q.asformat(form), first, 0.5, absorbing=mask)
        assert np.abs(r.p[0] - expected).sum() <= r.bound[0] + 1e-13

    for at, rate, message in ((2 * 4096 + 9, np.nan, "NaN"), (4096 + 7, -1.0, "-1")):
        bad = q.asformat(form, copy=True)
        bad.data[[bad.indptr[at], bad.indptr[-1] - 1]] = rate, np.inf
        with pytest.raises(kolmo.InvalidInput, match=f"is {message}"):
            kolmo.transient(bad, times=1)
    bad = q.asformat(form, copy=True)
    bad.indices[[bad.indptr[4096 + 4] - 1, bad.indptr[2 * 4096 + 4] - 1]] = n, n + 1
    with pytest.raises(kolmo.InvalidInput, match=rf"4099 has the index {n}"):
        kolmo.transient(bad, times=1)


@pytest.mark.parametrize("form", ["coo", "lil", "dok", "dia", "bsr"])
def test_other_formats_are_converted_with_a_word(form):
    q = generator(20)
    with pytest.warns(kolmo.ConversionWarning, match=f"Q is {form}"):
        r = kolmo.transient(q.asformat(form), times=1)
    np.testing.assert_array_equal(r.p, kolmo.transient(q, times=1).p)
    np.testing.assert_array_equal(r.p, kolmo.transient(q.toarray(), times=1).p)


def test_the_bits_are_those_of_the_command(command, tmp_path, device):
    q = generator(200, density=0.05)
    sp.save_npz(tmp_path / "q.npz", q)
    line = [command, "transient", "q.npz", "--time", "0.5,3,inf", "-o", "p.npy", "--quiet", "--device", device]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    theirs = np.load(tmp_path / "p.npy")
    ours = kolmo.transient(q, times=[0.5, 3, np.inf], device=device).p
    np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


def test_beginnings_rewards_and_absorbing_states():
    q = generator(30)
    p0 = np.arange(30.0)
    p0 /= p0.sum()
    mask = np.zeros(30, dtype=bool)
    mask[[3, 7]] = True
    cut = q.toarray()
    cut[mask] = 0
    r = kolmo.transient(q, p0, 2.0, absorbing=[3, 7], rewards={"one": np.ones(30), "mask": mask})
    np.testing.assert_allclose(r.p[0], p0 @ expm(cut * 2.0), atol=1e-9)
    np.testing.assert_array_equal(r.p, kolmo.transient(q, p0, 2.0, absorbing=mask).p)
    np.testing.assert_allclose(r.rewards["mask"], r.p[:, mask].sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(r.accumulated["one"], [2.0], rtol=1e-8)
    by_columns = kolmo.transient(q.tocsc(), p0, 2.0, absorbing=mask, rewards={"mask": mask})
    np.testing.assert_array_equal(by_columns.p, r.p)
    assert kolmo.transient(q, 5, 0.0).p[0, 5] == 1.0


def test_a_bound_that_is_not_met_is_a_warning():
    with pytest.warns(kolmo.BoundWarning, match="more than epsilon"):
        r = kolmo.transient(queue(50), times=1e3, epsilon=1e-15)
    assert r.status == "not_met" and r.bound[0] > 1e-15


def test_a_stochastic_matrix_is_asked_about():
    with pytest.warns(UserWarning, match="discrete-time"):
        kolmo.transient([[0.5, 0.5], [0.25, 0.75]], times=1)


class Sub(np.ndarray):
    pass


def test_unusual_arrays_that_hold_numbers_are_taken():
    q = generator(20)
    expected = kolmo.transient(q, np.eye(20)[4], [1.0]).p

    def same(matrix, p0):
        np.testing.assert_array_equal(kolmo.transient(matrix, p0, [1.0]).p, expected)

    frozen = q.copy()
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.flags.writeable = False
    swapped = q.copy()
    swapped.data = q.data.astype(">f8")
    strided = q.copy()
    strided.data = np.repeat(q.data, 2)[::2]
    same(frozen, 4)
    same(swapped, np.eye(20, dtype=">f8")[4])
    same(strided, np.eye(20, order="F")[:, 4])
    same(q, np.eye(20)[4].view(Sub))
    same(q, (np.arange(20) == 4).astype(np.int8))
    same(q, np.repeat(np.eye(20)[4], 2)[::2])
    same(np.asfortranarray(q.toarray()), np.int8(4))
    same(sp.csr_matrix(q), 4)
    assert kolmo.transient(sp.csr_array(np.array([[0, 3], [2, 0]], dtype=np.int8)), times=1).met


def test_unsorted_and_repeated_entries_are_added_in_a_copy():
    parts = sp.csr_array((np.array([2.0, 1.5, 1.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 2))
    with pytest.warns(kolmo.ConversionWarning, match="sum_duplicates"):
        r = kolmo.transient(parts, times=1)
    assert parts.nnz == 3, "the argument is as it was"
    np.testing.assert_array_equal(r.p, kolmo.transient([[0, 3.5], [1, 0]], times=1).p)


def huge():
    m = generator(5)
    m.indices = m.indices.astype(np.int64)
    m.indices[-1] = 2**40
    m.has_canonical_format = True
    return m


def negative():
    m = generator(5)
    m.indices[0] = -1
    m.has_canonical_format = True
    return m


def lying():
    m = generator(5, density=0.9)
    m.indices[:2] = m.indices[:2][::-1].copy()
    m.has_canonical_format = True
    return m


def broken():
    m = generator(5)
    m.indptr = m.indptr.copy()
    m.indptr[2] = 10**6
    m.has_canonical_format = True
    return m


Q = generator(5)
NAN = Q.copy()
NAN.data[1] = np.nan


@pytest.mark.parametrize(
    ("matrix", "options", "told"),
    [
        (np.array([[None, 1], [1, None]]), {}, "object"),
        (Q.toarray() + 1j, {}, "complex128"),
        (np.array([["a", "b"], ["c", "d"]]), {}, "give real numbers"),
        (np.ma.masked_equal(Q.toarray(), 0), {}, "masked"),
        (np.array(1.0), {}, "square"),
        (np.ones(3), {}, "square"),
        (np.zeros((0, 0)), {}, "0 rows"),
        (sp.csr_array((2, 3)), {}, r"\(2, 3\)"),
        (NAN, {}, "is NaN: expected a finite rate"),
        (-Q, {}, "expected a rate ≥ 0"),
        (Q.T.tocsr(), {}, "looks transposed"),
        (huge(), {}, str(2**40)),
        (negative(), {}, "-1"),
        (lying(), {}, "call sum_duplicates"),
        (broken(), {}, "1000000"),
        (Q, {"times": []}, "times has the shape"),
        (Q, {"times": [[1.0]]}, "times"),
        (Q, {"times": -1}, "expected a number ≥ 0 or inf"),
        (Q, {"times": "soon"}, "times holds"),
        (Q, {"epsilon": 0}, "epsilon"),
        (Q, {"p0": 5}, "0 to 4"),
        (Q, {"p0": -1}, "0 to 4"),
        (Q, {"p0": 1.5}, "whole numbers"),
        (Q, {"p0": np.ones(4)}, "give 5 numbers"),
        (Q, {"p0": np.ones((5, 1))}, "give 5 numbers"),
        (Q, {"p0": np.ones(5)}, "sums to 5"),
        (Q, {"p0": np.ma.ones(5)}, "masked"),
        (Q, {"p0": [None] * 5}, "object"),
        (Q, {"rewards": {"r": np.ones(4)}}, r"rewards\['r'\]"),
        (Q, {"absorbing": [7]}, "0 to 4"),
        (Q, {"absorbing": [True]}, "5 values"),
        (Q, {"precision": "f16"}, "f16"),
    ],
)
def test_input_without_an_answer_is_refused(matrix, options, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.transient(matrix, **{"times": 1.0, **options})


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(kolmo.DeviceError, match="gpu:7"):
        kolmo.transient(Q, times=1, device="gpu:7")


# αt = 4e8 and more takes minutes. A queue that spreads out from state 0 reaches no steady state
# earlier.
LONG = queue(20000, 1.0, 1.0) * 1e4


def test_progress_is_told_and_an_exception_of_it_stops_the_work():
    seen = []

    def tell(done, total):
        seen.append((done, total))
        if len(seen) == 3:
            raise RuntimeError("enough")

    began = time.perf_counter()
    with pytest.raises(RuntimeError, match="enough"):
        kolmo.transient(LONG, times=2e4, device="cpu", progress=tell)
    assert time.perf_counter() - began < 20
    assert 0 < seen[0][0] < seen[-1][0] < seen[-1][1]


def test_a_bar_is_shown_where_tqdm_is_installed(capsys):
    assert kolmo.transient(Q, times=1e3, device="cpu", progress=True).met
    assert "it" in capsys.readouterr().err


def test_an_interrupt_stops_the_work_and_the_next_call_works():
    sent = []

    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    # A process that a shell starts in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(1.0, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            kolmo.transient(LONG, times=2e4, device="cpu")
    finally:
        signal.signal(signal.SIGINT, before)
    # The promise is 100 ms on an idle machine.
    assert time.perf_counter() - sent[0] < 1.0
    assert kolmo.transient(Q, times=1, device="cpu").met


def test_the_gil_is_released_and_threads_solve_at_the_same_time():
    expected = kolmo.transient(queue(500), times=100.0, device="cpu").p
    ticks, results = [], []
    threads = [
        threading.Thread(target=lambda: results.append(kolmo.transient(queue(500), times=100.0, device="cpu").p))
        for _ in range(4)
    ]
    stop = threading.Event()

    def quit_later(done, total):
        ticks.append(done)
        if stop.is_set():
            raise StopIteration

    def long():
        with pytest.raises(StopIteration):
            kolmo.transient(LONG, times=2e4, device="cpu", progress=quit_later)

    one = threading.Thread(target=long)
    one.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    one.join()
    assert ticks and len(results) == 4
    for p in results:
        np.testing.assert_array_equal(p, expected)


def test_a_forked_process_is_told_that_it_cannot():
    code = """
import os, sys, kolmo
kolmo.transient([[0, 1], [1, 0]], times=1, device="cpu")
if (child := os.fork()) == 0:
    try:
        kolmo.transient([[0, 1], [1, 0]], times=1, device="cpu")
    except kolmo.DeviceError as error:
        os._exit(0 if "spawn" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


FORKED = """
import multiprocessing, os, signal, sys, numpy as np, kolmo
calls = {
    "transient": lambda: kolmo.transient([[0, 1], [1, 0]], times=1),
    "solve_tridiagonal": lambda: kolmo.solve_tridiagonal([1.0], [4.0, 4.0], [1.0], [1.0, 2.0]),
    "pagerank": lambda: kolmo.pagerank(np.ones((3, 3))),
    "Graph": lambda: kolmo.Graph(np.ones((3, 3))),
    "walk": lambda: kolmo.walk(4 * np.eye(9) - np.eye(9, k=1), np.ones(9), [1]),
    "expm_multiply": lambda: kolmo.expm_multiply(np.array([[-1.0, 1], [1, -1]]), np.ones(2)),
    "read": lambda: kolmo.read("tandem:3"),
    "devices": kolmo.devices,
}
calls[sys.argv[1]]()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("first", ["transient", "solve_tridiagonal", "pagerank", "Graph", "walk", "read"])
def test_every_call_in_a_forked_process_is_refused_at_once(first):
    code = FORKED + """
for name, call in calls.items():
    if (child := os.fork()) == 0:
        signal.alarm(20)
        try:
            call()
        except kolmo.DeviceError as error:
            os._exit(0 if "spawn" in str(error) else 1)
        os._exit(2)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"{name} in a child ended with {status}: 14 is a hang, 512 an answer"
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, first], check=True, timeout=240)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_pool_of_forked_processes_is_told_that_it_cannot():
    code = FORKED + """
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.apply_async(kolmo.pagerank, (np.ones((3, 3)),)).get(30)
    except kolmo.DeviceError as error:
        sys.exit(0 if "spawn" in str(error) else 1)
sys.exit(2)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, "pagerank"], check=True, timeout=120)


@pytest.mark.slow
def test_a_matrix_that_another_thread_changes_meanwhile_harms_nobody():
    """The answer is undefined, but the process continues: more is not promised."""
    code = """
import threading, time, numpy as np, scipy.sparse as sp, kolmo
n = 300_000
starts = np.arange(0, 6 * n + 1, 6, dtype=np.int32)
states = np.sort((np.arange(n)[:, None] + 17 * np.arange(1, 7)) % n, axis=1).astype(np.int32).ravel()
def write(q, delay, stop):
    rng = np.random.default_rng(0)
    time.sleep(delay)
    while not stop.is_set():
        q.indices[rng.integers(0, 6 * n, 1000)] = rng.integers(-(2**31), 2**31, 1000)
for form in (sp.csr_array, sp.csc_array):
    for delay in (0.005, 0.02, 0.05, 0.1, 0.2):
        q, stop = form((np.ones(6 * n), states.copy(), starts), (n, n)), threading.Event()
        assert q.has_canonical_format
        writer = threading.Thread(target=write, args=(q, delay, stop))
        writer.start()
        try:
            # The time is short enough for any rates.
            kolmo.transient(q, times=1e-3, device="cpu")
        except BaseException as error:
            print(type(error).__name__)
        stop.set()
        writer.join()
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("alive\n"), done.stderr


# A small process starts the measured one, since a child's peak includes its parent's pages.
PEAK = """
import os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
assert status == 0
print(usage.ru_maxrss)
"""


def peak(*line):
    """The peak resident memory of a process in kilobytes."""
    line = [sys.executable, "-S", "-c", PEAK, *map(str, line)]
    return int(subprocess.run(line, check=True, capture_output=True, text=True, timeout=300).stdout.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="a peak in kilobytes is Linux's")
@pytest.mark.parametrize(
    ("form", "states"),
    [("csr", 300_000), ("csc", 300_000), pytest.param("csc", 1_500_000, marks=pytest.mark.slow)],
)
def test_no_copy_is_made_on_the_way_in(command, tmp_path, form, states):
    """Memory is at most 1.05 times that of the command, which reads the chain from a file.

    The memory of each for a small chain is subtracted.
    """
    rng = np.random.default_rng(0)

    def chain(n):
        # Random rates, so that no smaller format fits them.
        starts = np.arange(0, 6 * n + 1, 6, dtype=np.int32)
        states = (np.arange(n, dtype=np.int32)[:, None] + 1 + 17 * np.arange(6, dtype=np.int32)) % n
        rates = rng.random(6 * n) + 0.5
        return sp.csr_array((rates, np.sort(states, axis=1).ravel(), starts), (n, n)).asformat(form)

    ours, theirs = [], []
    for n in (1000, states):
        path = tmp_path / f"{n}.npz"
        sp.save_npz(path, chain(n), compressed=False)
        code = f"import kolmo, scipy.sparse as sp; kolmo.transient(sp.load_npz({str(path)!r}), times=1e-2, device='cpu')"
        ours.append(peak(sys.executable, "-c", code))
        theirs.append(peak(command, "transient", path, "--time", "1e-2", "--device", "cpu", "--quiet"))
    assert ours[1] - ours[0] <= 1.05 * (theirs[1] - theirs[0]), (ours, theirs)


def test_discrete_time() -> None:
    P = np.array([[0.0, 0.5, 0.5], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    exact = [np.linalg.matrix_power(P, k)[0] for k in (0, 1, 7)]
    for found in (
        kolmo.transient(P, steps=[0, 1, 7], discrete=True),
        kolmo.Chain(P, discrete=True).transient(steps=[0, 1, 7]),
        kolmo.transient(P, 0, [0, 1, 7], discrete=True, precision="q64", device="cpu"),
    ):
        assert np.abs(found.p - exact).sum(axis=1).max() <= found.bound.max() + 1e-15
        assert found.alpha == 1.0
    again = pickle.loads(pickle.dumps(kolmo.Chain(P, discrete=True)))
    assert again.discrete and again == kolmo.Chain(P, discrete=True) and again != kolmo.Chain(P)
    earned = kolmo.transient(P, steps=3, discrete=True, rewards={"r": [1, 0, 0]})
    assert abs(earned.accumulated["r"][0] - sum(np.linalg.matrix_power(P, k)[0, 0] for k in range(3))) < 1e-12
    for wrong in (
        lambda: kolmo.transient(P, steps=0.5, discrete=True),
        lambda: kolmo.transient(P, steps=1),
        lambda: kolmo.transient(P, times=1, steps=1, discrete=True),
        lambda: kolmo.transient(2 * P, steps=1, discrete=True),
    ):
        with pytest.raises(kolmo.InvalidInput):
            wrong()


def test_phases_and_jumps_are_products_of_exponentials(device) -> None:
    day, night = generator(20), 0.3 * generator(20).T.tocsr()
    night.setdiag(0)
    night.setdiag(-np.asarray(night.sum(axis=1)).ravel())
    jump = np.roll(np.eye(20), 3, axis=1)
    phases = [(1.5, day), (2.25, night), (2.25, kolmo.Chain(jump, discrete=True)), (np.inf, day)]
    rewards = {"first": np.eye(20)[0], "time": np.ones(20)}
    r = kolmo.transient(phases, 4, [2.25, 3, 1, 0], device=device, rewards=rewards)
    p = np.eye(20)[4] @ expm(day.toarray() * 1.5) @ expm(night.toarray() * 0.75) @ jump
    exact = [p, p @ expm(day.toarray() * 0.75), np.eye(20)[4] @ expm(day.toarray()), np.eye(20)[4]]
    assert np.all(np.abs(r.p - exact).sum(axis=1) <= r.bound + 1e-12)
    assert r.met and list(r.times) == [2.25, 3, 1, 0]
    np.testing.assert_allclose(r.rewards["first"], r.p[:, 0], atol=1e-9)
    np.testing.assert_allclose(r.accumulated["time"], r.times, atol=1e-8)
    halves = kolmo.transient([(1, day), (2, day), (3, day)], 4, [2.5], device=device, rewards={"first": np.eye(20)[0]})
    whole = kolmo.transient(day, 4, [2.5], device=device, rewards={"first": np.eye(20)[0]})
    assert np.abs(halves.p - whole.p).sum() <= halves.bound[0] + whole.bound[0]
    np.testing.assert_allclose(halves.accumulated["first"], whole.accumulated["first"], atol=1e-9)
    rates = np.array([[2.0] * 20, [0.0] * 20, [np.pi] * 20, [3.0] * 20])
    r = kolmo.transient(phases, 4, [1.0, 2.0, 4.25], rewards={"a": rates, "b": rates[0]}, device=device)
    np.testing.assert_allclose(r.accumulated["a"], [2.0, 3.0, 9.0], atol=1e-8)
    np.testing.assert_allclose(r.accumulated["b"], [2.0, 4.0, 8.5], atol=1e-8)
    for wrong in (rates[:2], rates[:, 1:], rates.reshape(2, 2, 20), rates + np.inf):
        with pytest.raises(kolmo.InvalidInput, match="rewards"):
            kolmo.transient(phases, 4, 1.0, rewards={"a": wrong})
    held = kolmo.transient([(1, day), (2, night)], 4, 2, device=device, absorbing=[4])
    assert abs(held.p[0, 4] - 1) <= held.bound[0]
    for wrong, said in (
        ([(1, day), (1, night)], "phase 2 ends at 1"),
        ([(1, day), (2, generator(19))], "phase 2 has 19 states"),
        ([(1, day), night], "give pairs"),
        ([(1, day), (2, -day)], r"Q\[1\]\[1\]: "),
    ):
        with pytest.raises(kolmo.InvalidInput, match=said):
            kolmo.transient(wrong, 4, 0.5, device=device)


def test_a_batch_has_the_bits_of_single_runs_and_keeps_its_errors() -> None:
    n = 1200
    pattern = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]).tocsr()
    data = np.random.default_rng(7).choice([0.5, 1.0, 3.0], size=(10, pattern.nnz))
    data[4, 17], data[6, 3] = -1.0, np.nan
    reward, told = np.arange(n) / n, []
    r = kolmo.transient_batch(
        pattern, data, 3, [2.0, 0.5], rewards={"mean": reward}, progress=lambda done, _: told.append(done)
    )
    assert r.p.shape == (10, 2, n) and sorted(r.errors) == [4, 6] and told[-1] <= 10
    assert "-1" in r.errors[4] and "nan" in r.errors[6].lower()
    for k in range(10):
        if k in r.errors:
            assert np.isnan(r.p[k]).all() and np.isnan(r.bound[k]).all() and not r.met[k]
            continue
        one = sp.csr_array((data[k], pattern.indices, pattern.indptr))
        single = kolmo.transient(one, 3, [2.0, 0.5], rewards={"mean": reward}, device="cpu")
        assert np.array_equal(r.p[k], single.p) and np.array_equal(r.bound[k], single.bound)
        assert np.array_equal(r.accumulated["mean"][k], single.accumulated["mean"])
        assert (r.alpha[k], r.terms[k], r.met[k]) == (single.alpha, single.terms, True)
    assert np.array_equal(kolmo.transient_batch(pattern.tocsc(), data, 3, 0.5).terms > 0, r.met)
    with pytest.raises(ZeroDivisionError):
        kolmo.transient_batch(pattern, data, 3, 0.5, progress=lambda *_: 1 // 0)
    for wrong, said in (
        (lambda: kolmo.transient_batch(pattern, data[:, 1:], 3, 1.0), "data has the shape"),
        (lambda: kolmo.transient_batch(pattern, data[0], 3, 1.0), "data has the shape"),
        (lambda: kolmo.transient_batch(pattern.toarray(), data, 3, 1.0), "pattern is no csr"),
        (lambda: kolmo.transient_batch(pattern, data), "times is missing"),
        (lambda: kolmo.transient_batch(pattern, data, n, 1.0), "p0"),
        (lambda: kolmo.transient_batch(pattern, data[:1], 3, -1.0), "invalid time -1"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=said):
            wrong()


def test_transition_matrices_are_exponentials(device) -> None:
    q = np.array([generator(12, seed=k).toarray() for k in range(5)])
    times = np.array([0.0, 0.1, 1.0, 3.0, 20.0])
    r = kolmo.transition_matrices(q, times)
    exact = np.array([expm(a * t) for a, t in zip(q, times)])
    assert r.p.shape == (5, 12, 12) and r.bound.shape == (5,) and r.met
    # SciPy's own error is some 1e-13.
    assert np.abs(r.p - exact).sum(axis=2).max() < 1e-11 and r.bound.max() < 1e-11
    there = kolmo.transition_matrices(q, times, device=device)
    # Software adapters round differently.
    assert np.array_equal(there.bound, r.bound)
    assert (np.abs(there.p - r.p).sum(axis=2) <= 2 * r.bound[:, None]).all()
    one = kolmo.transition_matrices(q[2], times.reshape(1, 5))
    assert one.p.shape == (1, 5, 12, 12) and np.array_equal(one.p[0, 2], r.p[2])
    bare = q[2] - np.diag(np.diag(q[2]))
    assert np.array_equal(kolmo.transition_matrices(bare, 1.0).p, r.p[2])
    assert kolmo.transition_matrices(bare, 1.0).bound.shape == ()
    with pytest.warns(kolmo.BoundWarning):
        assert not kolmo.transition_matrices(q[2], 1.0, epsilon=1e-17).met
    for wrong in (
        lambda: kolmo.transition_matrices(q, 1.0, epsilon=0),
        lambda: kolmo.transition_matrices(q[:, :3], 1.0),
        lambda: kolmo.transition_matrices(q, times[:2]),
        lambda: kolmo.transition_matrices(-q, 1.0),
        lambda: kolmo.transition_matrices(q, -1.0),
        lambda: kolmo.transition_matrices(q, np.inf),
    ):
        with pytest.raises(kolmo.InvalidInput):
            wrong()


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
def test_transition_matrices_of_sparse_chains(kind) -> None:
    q = np.array([generator(12, seed=3).toarray() * scale for scale in (1, 2, 5)])
    chains = [kind(chain) for chain in q]
    times = [0.1, 1.0, 3.0]
    dense = kolmo.transition_matrices(q, times)
    data = np.array([chain.data for chain in chains])
    for given in (chains, (chains[0], data)):
        assert np.array_equal(kolmo.transition_matrices(given, times).p, dense.p)
    assert np.array_equal(kolmo.transition_matrices(chains[1], 1.0).p, dense.p[1])
    for wrong in ([chains[0], q[1]], [chains[0], kind(q[1][:5, :5])], (chains[0], data[0]), (chains[0], data[:, 1:])):
        with pytest.raises(kolmo.InvalidInput):
            kolmo.transition_matrices(wrong, 1.0)


def test_invalid_chains_leave_the_other_transition_matrices(device) -> None:
    q = np.array([generator(5, seed=k).toarray() for k in range(7)])
    q[2], times = -q[2], [1, 1, 1, 1, -1, 1, 2]
    r = kolmo.transition_matrices(q, times, device=device)
    assert sorted(r.errors) == [2, 4] and not r.met
    assert "a rate of state 0" in r.errors[2] and "its time is -1" in r.errors[4]
    for k in range(7):
        alone = None if k in r.errors else kolmo.transition_matrices(q[k], times[k], device=device).p
        assert np.isnan(r.p[k]).all() and np.isnan(r.bound[k]) if alone is None else np.array_equal(r.p[k], alone)
